"""The implementations of the seams on this machine: its clocks, its randomness, its files.

The implementations make no decisions (D3), and pass on errors of the operating system unchanged.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import secrets
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from odradek_broker.platform.seams import BLOCK_BYTES, BlockFile, Buffer, File, Volume

# The limit of the buffers of one gathered write; POSIX guarantees 16.
_IOV_MAX = max(os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 16, 16)
_FILE_MODE = 0o644
#: Only the owner may use directories, because files contain records and the keys of passwords
#: (L-59).
_DIRECTORY_MODE = 0o700


class RealClock:
    """`Clock` of this machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class RealRandomness:
    """`Randomness` from the operating system's generator, which is cryptographically secure."""

    def uuid(self) -> bytes:
        return uuid.uuid4().bytes

    def below(self, bound: int) -> int:
        """A random integer in [0, bound). Raises ValueError unless `bound` is positive."""
        return secrets.randbelow(bound)


class RealFile:
    """`File` over a descriptor.

    The object keeps the position of its end, and writes at this position. A failed append does not
    change the position. So even if the truncation after a failed append fails, the next append
    directly follows the last complete append. With O_APPEND the next append would follow the torn
    data, and recovery would remove both (rules L-08, L-32). Therefore a file must have only one
    writing handle at a time.

    `sync` may run in another thread during appends and reads; `close` waits for a running `sync`,
    because the next opened file would get the number of the closed descriptor.
    """

    __slots__ = ("_end", "_fd", "_sync_lock")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._end = os.fstat(fd).st_size
        self._sync_lock = threading.Lock()

    def append(self, buffers: Sequence[Buffer]) -> int:
        alone = len(buffers) == 1
        size_bytes = _size_bytes(buffers[0]) if alone else sum(map(_size_bytes, buffers))
        if len(buffers) <= _IOV_MAX:
            written = _write_at(self._fd, buffers, self._end) if size_bytes else 0
        else:
            written = 0
        if written != size_bytes:
            self._continue(buffers, written, size_bytes)
        self._end += size_bytes
        return size_bytes

    def _continue(self, buffers: Sequence[Buffer], written: int, size_bytes: int) -> None:
        """Write the rest after a short write, _IOV_MAX buffers at a time."""
        views = [memoryview(buffer).cast("B") for buffer in buffers if _size_bytes(buffer)]
        first = 0
        step = written
        while True:
            while first < len(views) and step >= len(views[first]):
                step -= len(views[first])
                first += 1
            if first == len(views):
                return
            views[first] = views[first][step:]
            step = _write_at(self._fd, views[first : first + _IOV_MAX], self._end + written)
            if step == 0:
                raise OSError(
                    errno.EIO, f"the file takes no more: {written} of {size_bytes} bytes written"
                )
            written += step

    def read_at(self, position: int, size_bytes: int) -> bytes:
        content = os.pread(self._fd, size_bytes, position)
        if len(content) == size_bytes or not content:
            return content
        parts = [content]
        missing = size_bytes - len(content)
        while missing:
            position += len(content)
            content = os.pread(self._fd, missing, position)
            if not content:
                break
            parts.append(content)
            missing -= len(content)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self) -> int:
        """The present length of the file, including torn bytes of a failed append."""
        return os.fstat(self._fd).st_size

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._fd, size_bytes)
        self._end = size_bytes

    def sync(self) -> None:
        with self._sync_lock:
            if self._fd < 0:
                raise OSError(errno.EBADF, "the file is closed")
            _sync_data(self._fd)

    def close(self) -> None:
        """Close the file; a second call does nothing. Afterwards every other method raises OSError
        (EBADF)."""
        with self._sync_lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)


class RealBlockFile:
    """`BlockFile` over a descriptor. Writes bypass the page cache if the file system supports that.
    Direct writes save a copy of the data and the kernel's search for dirty pages.

    Only one thread at a time may use the object.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._direct = hasattr(os, "O_DIRECT")
        self._fd = -1
        self._open()
        # Memory from mmap is aligned to a page, as direct writes require.
        self._buffer = mmap.mmap(-1, 16 * BLOCK_BYTES)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC
        if self._direct:
            try:
                self._fd = os.open(self._path, flags | os.O_DIRECT | os.O_DSYNC)
                return
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._direct = False
        self._fd = os.open(self._path, flags)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        size_bytes = -(-sum(map(_size_bytes, buffers)) // BLOCK_BYTES) * BLOCK_BYTES
        if size_bytes > len(self._buffer):
            self._buffer = mmap.mmap(-1, size_bytes)
        end = 0
        for buffer in buffers:
            begin, end = end, end + _size_bytes(buffer)
            self._buffer[begin:end] = buffer
        self._buffer[end:size_bytes] = bytes(size_bytes - end)
        with memoryview(self._buffer) as whole, whole[:size_bytes] as content:
            self._write(position, content)

    def _write(self, position: int, content: memoryview) -> None:
        try:
            written = os.pwrite(self._fd, content, position)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._direct:
                raise
            # Direct writes to this device need larger blocks, so writes go through the page cache.
            os.close(self._fd)
            self._direct = False
            self._open()
            written = 0
        while written < len(content):
            with content[written:] as rest:
                step = os.pwrite(self._fd, rest, position + written)
            if step == 0:
                raise OSError(errno.EIO, f"{self._path} takes no more")
            written += step
        if not self._direct:
            _sync_data(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFiles:
    """`Files` below a directory. Absolute paths are used unchanged."""

    def __init__(
        self,
        root: str = "",
        file_type: Callable[[int], File] = RealFile,
        block_file_type: Callable[[str], BlockFile] = RealBlockFile,
    ) -> None:
        self._root = root
        self._file_type = file_type
        self._block_file_type = block_file_type

    def with_files(
        self, wrap: Callable[[File], File], wrap_blocks: Callable[[BlockFile], BlockFile]
    ) -> RealFiles:
        """The same file tree, in which every opened file is wrapped by `wrap` or `wrap_blocks`."""
        return RealFiles(
            self._root,
            lambda fd: wrap(self._file_type(fd)),
            lambda path: wrap_blocks(self._block_file_type(path)),
        )

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path) if self._root else path

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(self._at(path), flags, _FILE_MODE)
        try:
            return self._file_type(fd)
        except BaseException:
            os.close(fd)
            raise

    def open_blocks(self, path: str) -> BlockFile:
        return self._block_file_type(self._at(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(self._at(path))

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(self._at(path)))

    def make_dirs(self, path: str) -> None:
        os.makedirs(self._at(path), _DIRECTORY_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(self._at(source), self._at(target))

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._at(path))

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._at(path))

    def sync_dir(self, path: str) -> None:
        fd = os.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync_all(fd)
        finally:
            os.close(fd)

    def modified_ms(self, path: str) -> int:
        return os.stat(self._at(path)).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        nanoseconds = modified_ms * 1_000_000
        os.utime(self._at(path), ns=(nanoseconds, nanoseconds))

    def absolute(self, path: str) -> str:
        return os.path.abspath(self._at(path))

    def volume(self, path: str) -> Volume:
        """The usable bytes are those that an unprivileged process may write, as in Java."""
        directory = self.absolute(path)
        found = os.statvfs(directory)
        return Volume(directory, found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def lock(self, path: str) -> Callable[[], None]:
        """The operating system releases the lock when the process ends; the file stays."""
        fd = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        return _locked(fd, fcntl.LOCK_EX)


class ReadOnlyFiles(RealFiles):
    """`Files` for readers of a directory that another process may use: every change raises
    OSError."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file. Raises FileNotFoundError if it does not exist, even with `create`."""
        fd = os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._file_type(fd)
        except BaseException:
            os.close(fd)
            raise

    def open_blocks(self, path: str) -> BlockFile:
        self._refuse(path)

    def make_dirs(self, path: str) -> None:
        self._refuse(path)

    def rename(self, source: str, target: str) -> None:
        self._refuse(source)

    def remove(self, path: str) -> None:
        self._refuse(path)

    def remove_tree(self, path: str) -> None:
        self._refuse(path)

    def sync_dir(self, path: str) -> None:
        self._refuse(path)

    def lock(self, path: str) -> Callable[[], None]:
        """Take a shared lock on an existing file. The lock excludes writers, but not other readers.
        Raises BlockingIOError."""
        fd = os.open(self._at(path), os.O_RDONLY | os.O_CLOEXEC)
        return _locked(fd, fcntl.LOCK_SH)

    @staticmethod
    def _refuse(path: str) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def _locked(fd: int, kind: int) -> Callable[[], None]:
    """Lock an open file, and close the file if it cannot be locked. Returns the function that
    releases the lock. Raises BlockingIOError."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    held = [fd]

    def release() -> None:
        while held:
            os.close(held.pop())

    return release


def _size_bytes(buffer: Buffer) -> int:
    return buffer.nbytes if type(buffer) is memoryview else len(buffer)


def _write_at(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write the buffers at a position in one gathered write. The write may be incomplete; returns
    the number of written bytes.
    """
    if len(buffers) == 1:
        return os.pwrite(fd, buffers[0], position)
    if hasattr(os, "pwritev"):
        return os.pwritev(fd, buffers, position)
    # macOS before 11 lacks pwritev. Nothing else moves the descriptor's position, so the two steps
    # are safe.
    os.lseek(fd, position, os.SEEK_SET)
    return os.writev(fd, buffers)


def _sync_data(fd: int) -> None:
    if sys.platform == "linux":
        os.fdatasync(fd)
    else:
        _sync_all(fd)


def _sync_all(fd: int) -> None:
    """Sync to the medium. macOS' fsync stops at the drive's cache, F_FULLFSYNC does not."""
    full_sync: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:
        try:
            fcntl.fcntl(fd, full_sync)
            return
        except OSError as error:
            # Network and foreign file systems do not support F_FULLFSYNC. After an I/O error no
            # weaker sync is tried.
            if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
    os.fsync(fd)
