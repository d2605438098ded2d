"""`Files` in memory, which keep track of synced data, fail on demand, and crash.

In the model of a disk, a file's bytes are durable if its last `sync` covered them. The creation
or removal of a name is durable if its directory was synced afterwards. `crash` restores the durable
state, and lets a random part of the rest survive, because kernels write back at any time and in any
order. Some crashes lose all unsynced names (content without its file), or all unsynced bytes (files
without content).
"""

from __future__ import annotations

import builtins
import errno
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from odradek_broker.platform.seams import BLOCK_BYTES, Buffer, Volume
from odradek_testkit.simulation.shortage import Shortage

V = TypeVar("V")
VOLUME_BYTES = 1 << 30
#: The unit that a disk writes completely or not at all.
SECTOR_BYTES = 512


#: A power cut draws two of these values: the probability that an unsynced name survives, and the
#: part of a file's unsynced bytes that survives (0: none, 1: all, else a random part).
_SURVIVING = (0.0, 0.5, 0.5, 0.5, 1.0)


class _Inode:
    """A file. `cut_to_bytes`: the smallest size to which the file was truncated since its last
    sync; None if it was not truncated."""

    __slots__ = ("content", "cut_to_bytes", "durable", "modified_ms", "open_handles")

    def __init__(self, modified_ms: int) -> None:
        self.content = bytearray()
        self.durable = b""
        self.cut_to_bytes: int | None = None
        self.modified_ms = modified_ms
        self.open_handles = 0


class _Tree(dict[str, V]):
    """Values by path, with an index of directories, because a disk may have many files."""

    def __init__(self, values: Mapping[str, V] | None = None) -> None:
        super().__init__()
        #: The paths in each directory, and those below it at any depth, oldest first.
        self._inside: dict[str, dict[str, None]] = {}
        self._below: dict[str, dict[str, None]] = {}
        for path, value in (values or {}).items():
            self[path] = value

    def __setitem__(self, path: str, value: V) -> None:
        if path not in self:
            for directory, index in self._indexes(path):
                index.setdefault(directory, {})[path] = None
        super().__setitem__(path, value)

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        for directory, index in self._indexes(path):
            del index[directory][path]
            if not index[directory]:
                del index[directory]

    def _indexes(self, path: str) -> Iterator[tuple[str, dict[str, dict[str, None]]]]:
        """The directories that a path is in, with the index that has the path there."""
        directory = _parent(path)
        yield directory, self._inside
        while path:
            path = _parent(path)
            yield path, self._below

    def take(self, path: str) -> V:
        """Remove a path, and return its value."""
        value = self[path]
        del self[path]
        return value

    def inside(self, directory: str) -> list[str]:
        """The paths in a directory."""
        return list(self._inside.get(directory, ()))

    def below(self, directory: str) -> list[str]:
        """The paths in a directory, and in those that are in it."""
        return list(self._below.get(directory, ()))

    def drop(self, directory: str) -> None:
        """Remove a directory, if it is there, and all that is below it."""
        for path in self.below(directory):
            del self[path]
        if directory in self:
            del self[directory]


class DiskFailure:
    """A failure of the `nth` (from 1) operation of a kind; with `for_ever`, also of all later
    operations of this kind.

    `kind`: append, write_at, sync, sync_dir, truncate, open, make_dirs, rename, read, remove,
    volume. `path_part`: operations on paths without this text are not counted. `torn_bytes`: the
    number of bytes that a failing append writes.
    """

    def __init__(
        self,
        kind: str,
        nth: int = 1,
        *,
        code: int = errno.EIO,
        path_part: str = "",
        torn_bytes: int = 0,
        for_ever: bool = False,
    ) -> None:
        self.kind = kind
        self.remaining = nth
        self.code = code
        self.path_part = path_part
        self.torn_bytes = torn_bytes
        self.for_ever = for_ever
        self.fired = 0


class MemoryFile:
    """A file handle; see `odradek_broker.platform.seams.File`."""

    def __init__(self, files: MemoryFiles, path: str, inode: _Inode) -> None:
        self._files = files
        self._path = path
        self._inode: _Inode | None = inode
        inode.open_handles += 1
        files.open_handles += 1

    @property
    def _live(self) -> _Inode:
        if self._inode is None:
            raise OSError(errno.EBADF, f"{self._path} is closed")
        return self._inode

    def append(self, buffers: Sequence[Buffer]) -> int:
        inode = self._live
        content = b"".join(bytes(buffer) for buffer in buffers)
        failure = self._files.refuse("append", self._path, len(content))
        if failure is not None:
            inode.content += content[: failure.torn_bytes]
            raise OSError(failure.code, f"append to {self._path}")
        inode.content += content
        inode.modified_ms = self._files.now_ms
        return len(content)

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._files.check("read", self._path)
        if position < 0:
            raise OSError(errno.EINVAL, f"read from {self._path} at {position}")
        return bytes(self._live.content[position : position + size_bytes])

    def size(self) -> int:
        return len(self._live.content)

    def truncate(self, size_bytes: int) -> None:
        self._files.check("truncate", self._path)
        inode = self._live
        content = inode.content
        if size_bytes < len(inode.durable):
            cut_before = inode.cut_to_bytes
            inode.cut_to_bytes = size_bytes if cut_before is None else min(size_bytes, cut_before)
        del content[size_bytes:]
        content += bytes(size_bytes - len(content))

    def sync(self) -> None:
        inode = self._live
        self._files.check("sync", self._path)
        inode.durable = bytes(inode.content)
        inode.cut_to_bytes = None

    def close(self) -> None:
        if self._inode is not None:
            self._inode.open_handles -= 1
            self._files.open_handles -= 1
            self._inode = None


class MemoryBlockFile:
    """A file handle; see `odradek_broker.platform.seams.BlockFile`. A write that a crash
    interrupts, or that fails, leaves some of the sectors unchanged."""

    def __init__(self, files: MemoryFiles, path: str, inode: _Inode) -> None:
        self._files = files
        self._path = path
        self._inode: _Inode | None = inode
        files.open_handles += 1

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        inode = self._inode
        if inode is None:
            raise OSError(errno.EBADF, f"{self._path} is closed")
        content = b"".join(bytes(buffer) for buffer in buffers)
        content = content.ljust(-(-len(content) // BLOCK_BYTES) * BLOCK_BYTES, b"\0")
        if position % BLOCK_BYTES or position + len(content) > len(inode.content):
            raise OSError(errno.EINVAL, f"write to {self._path} at {position}")
        self._files.writing = inode, position, content
        failure = self._files.refuse("write_at", self._path, len(content))
        self._files.writing = None
        if failure is not None:
            whole_bytes = failure.torn_bytes // SECTOR_BYTES * SECTOR_BYTES
            _write_sectors(inode, position, content[:whole_bytes])
            raise OSError(failure.code, f"write to {self._path}")
        _write_sectors(inode, position, content)
        inode.modified_ms = self._files.now_ms

    def close(self) -> None:
        if self._inode is not None:
            self._files.open_handles -= 1
            self._inode = None


def _write_sectors(inode: _Inode, position: int, content: bytes) -> None:
    """Write sectors, durably."""
    inode.content[position : position + len(content)] = content
    durable = bytearray(inode.durable)
    durable[position : position + len(content)] = content
    inode.durable = bytes(durable)


class MemoryFiles:
    """A tree of files; see `odradek_broker.platform.seams.Files`.

    `operations` counts all operations that change the disk; `crash_at` raises `Crashed` just before
    the operation of that number, so that a test can crash at any of them.
    """

    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.open_handles = 0
        self.operations = 0
        self.crash_at: int | None = None
        #: Called when `crash_at` is reached, before `Crashed` is raised.
        self.on_crash: Callable[[], None] = _nothing
        self._names: _Tree[_Inode] = _Tree()
        self._durable_names: _Tree[_Inode] = _Tree()
        self._directories: _Tree[None] = _Tree({"": None, ".": None})
        self._durable_directories: _Tree[None] = _Tree({"": None, ".": None})
        #: The unsynced renames of directories, as (source, target), the oldest one first.
        self._unsynced_renames: list[tuple[str, str]] = []
        self._locks: set[str] = set()
        self._failures: list[DiskFailure] = []
        #: The rule by which operations fail for lack of space; None while there is enough. A crash
        #: does not remove the rule.
        self.shortage: Shortage | None = None
        #: The write of a block file that a crash interrupts: file, position, content.
        self.writing: tuple[_Inode, int, bytes] | None = None
        #: The number of failed syncs since the last crash or start.
        self.failed_syncs = 0

    # ---- faults

    def fail(self, failure: DiskFailure) -> DiskFailure:
        self._failures.append(failure)
        return failure

    def heal(self) -> None:
        """Drop all failures, and make room."""
        self._failures.clear()
        self.shortage = None

    def trip(self, kind: str, path: str) -> DiskFailure | None:
        """The failure that `fail` has requested for this operation, or None. Counts the operation,
        and crashes at `crash_at`."""
        if kind != "read":
            if self.crash_at is not None and self.operations >= self.crash_at:
                self.on_crash()
                raise Crashed(f"before operation {self.operations}: {kind} {path}")
            self.operations += 1
        for failure in self._failures:
            if failure.kind != kind or failure.path_part not in path:
                continue
            failure.remaining -= 1
            if failure.remaining == 0 or (failure.for_ever and failure.remaining < 0):
                failure.fired += 1
                self.failed_syncs += kind in ("sync", "write_at")
                return failure
        return None

    def refuse(self, kind: str, path: str, size_bytes: int = 0) -> DiskFailure | None:
        """The failure of this operation, because `fail` has requested it or because space is
        lacking; None if the operation succeeds. The operation writes `size_bytes`."""
        failure = self.trip(kind, path)
        if failure is not None or self.shortage is None:
            return failure
        written_bytes = self.shortage.written_before_refusal(kind, size_bytes)
        if written_bytes is None:
            return None
        return DiskFailure(kind, code=errno.ENOSPC, torn_bytes=written_bytes)

    def check(self, kind: str, path: str) -> None:
        failure = self.refuse(kind, path)
        if failure is not None:
            raise OSError(failure.code, f"{kind} {path}")

    def crash(self, rng: random.Random | None = None, *, keep_page_cache: bool = False) -> None:
        """Crash the machine: open handles and locks are lost.

        `keep_page_cache`: only the process ended, so all written bytes exist, and what was unsynced
        is still unsynced. Otherwise each file keeps its unsynced bytes up to a random point (none
        without `rng`), sometimes as zeros, and each unsynced name survives or is lost.
        """
        self._locks.clear()
        self.open_handles = 0
        self._failures.clear()
        self.failed_syncs = 0
        self.crash_at = None
        self._tear(rng)
        for inode in self._names.values():
            inode.open_handles = 0
        if keep_page_cache:
            return
        self._undo_directory_renames(rng)
        self._lose_names(rng)
        surviving = 0.0 if rng is None else rng.choice(_SURVIVING)
        for path in sorted(self._names):
            _lose_bytes(self._names[path], rng, surviving)
        for inode in self._names.values():
            inode.durable = bytes(inode.content)
            inode.cut_to_bytes = None
        self._durable_names = _Tree(self._names)
        self._durable_directories = _Tree(self._directories)

    def _tear(self, rng: random.Random | None) -> None:
        """Write a random choice of sectors of the interrupted write of a block file."""
        writing, self.writing = self.writing, None
        if writing is None or rng is None:
            return
        inode, position, content = writing
        landed = rng.choice((0.0, 0.5, 0.9, 1.0))
        for begin in range(0, len(content), SECTOR_BYTES):
            if rng.random() < landed:
                _write_sectors(inode, position + begin, content[begin : begin + SECTOR_BYTES])

    def _lose_names(self, rng: random.Random | None) -> None:
        surviving = 0.0 if rng is None else rng.choice(_SURVIVING)

        def survives(is_durable: bool) -> bool:
            return is_durable or (rng is not None and rng.random() < surviving)

        directories: _Tree[None] = _Tree({"": None, ".": None})
        for path in sorted({*self._directories, *self._durable_directories}):
            # The paths are sorted, so parents come first.
            if _parent(path) not in directories:
                continue
            named = path in self._durable_directories
            # If the removal of a directory is not durable and is lost, the directory exists again.
            if survives(named) if path in self._directories else not survives(False):
                directories[path] = None
        names: _Tree[_Inode] = _Tree()
        for path in sorted({*self._names, *self._durable_names}):
            now, durable = self._names.get(path), self._durable_names.get(path)
            inode = now if now is durable or survives(False) else durable
            if inode is not None and _parent(path) in directories:
                names[path] = inode
        self._undo_lost_renames(names, directories)
        self._names, self._directories = names, directories

    def _undo_lost_renames(self, names: _Tree[_Inode], directories: _Tree[None]) -> None:
        """Return a file to its old name if its rename is lost: a file always has one of the two
        names."""
        found = {id(inode) for inode in names.values()}
        known = {id(inode) for inode in self._names.values()}
        for path, inode in self._durable_names.items():
            lost = id(inode) in known and id(inode) not in found and path not in names
            if lost and _parent(path) in directories:
                names[path] = inode

    def unsynced(self) -> builtins.list[str]:
        """The files whose content may change in a power cut."""
        found = sorted(self._names.items())
        return [path for path, inode in found if inode.content != inode.durable]

    def unsynced_content(self, path: str) -> bytes:
        """The bytes that follow the synced bytes."""
        inode = self._names[_clean(path)]
        return bytes(inode.content[len(inode.durable) :])

    def write_back(self, path: str) -> None:
        """Make a file and its name durable without a sync, as a kernel may at any time."""
        path = _clean(path)
        inode = self._names[path]
        inode.durable = bytes(inode.content)
        inode.cut_to_bytes = None
        self._durable_names[path] = inode

    def take_back(self, path: str) -> None:
        """Drop all unsynced bytes of a file, as a power cut may."""
        inode = self._names[_clean(path)]
        inode.content = bytearray(inode.durable)
        inode.cut_to_bytes = None

    def copy(self) -> MemoryFiles:
        """A new disk with the same files, all of them durable."""
        disk = MemoryFiles(self.now_ms)
        for path, inode in self._names.items():
            disk.put(path, inode.content)
            disk._names[path].modified_ms = inode.modified_ms
        for path in self._directories:
            disk._directories[path] = disk._durable_directories[path] = None
        return disk

    # ---- Files

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        path = _clean(path)
        inode = self._names.get(path)
        if inode is None and not create:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if inode is None:
            if _parent(path) not in self._directories:
                raise FileNotFoundError(errno.ENOENT, "no such directory", _parent(path))
            self.check("open", path)
            inode = self._names[path] = _Inode(self.now_ms)
        return MemoryFile(self, path, inode)

    def open_blocks(self, path: str) -> MemoryBlockFile:
        path = _clean(path)
        inode = self._names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return MemoryBlockFile(self, path, inode)

    def exists(self, path: str) -> bool:
        path = _clean(path)
        return path in self._names or path in self._directories

    def list(self, path: str) -> list[str]:
        path = _clean(path)
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        inside = {*self._names.inside(path), *self._directories.inside(path)} - {"", "."}
        return sorted(name.rpartition("/")[2] for name in inside)

    def make_dirs(self, path: str) -> None:
        path = _clean(path)
        missing = []
        while path not in self._directories:
            missing.append(path)
            path = _parent(path)
        for path in reversed(missing):
            self.check("make_dirs", path)
            self._directories[path] = None

    def rename(self, source: str, target: str) -> None:
        source, target = _clean(source), _clean(target)
        self.check("rename", source)
        if source in self._names:
            self._names[target] = self._names.take(source)
            return
        if source not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        if target in self._directories and self.list(target):
            raise OSError(errno.ENOTEMPTY, "directory not empty", target)
        self._move_directory(source, target)
        self._unsynced_renames.append((source, target))

    def _move_directory(self, source: str, target: str) -> None:
        """Move a directory: only the entries of both parents change. The files in it move with it;
        durable files stay durable, and unsynced files stay unsynced."""
        for names in (self._names, self._durable_names):
            for path in names.below(source):
                names[target + path[len(source) :]] = names.take(path)
        for directories in (self._directories, self._durable_directories):
            moved = [*directories.below(source), *([source] if source in directories else [])]
            for path in moved:
                del directories[path]
                directories[target + path[len(source) :]] = None

    def _undo_directory_renames(self, rng: random.Random | None) -> None:
        """Undo renames of directories. File systems journal renames in order, so a crash loses all
        renames after some point, with all later uses of the old names."""
        kept = 0 if rng is None else rng.randint(0, len(self._unsynced_renames))
        for source, target in reversed(self._unsynced_renames[kept:]):
            for tree in (
                self._names,
                self._durable_names,
                self._directories,
                self._durable_directories,
            ):
                tree.drop(source)
            if target in self._directories:
                self._move_directory(target, source)
        self._unsynced_renames.clear()

    def remove(self, path: str) -> None:
        path = _clean(path)
        if path in self._names:
            self.check("remove", path)
            del self._names[path]

    def remove_tree(self, path: str) -> None:
        path = _clean(path)
        for name in self._names.below(path):
            self.remove(name)
        self._directories.drop(path)

    def sync_dir(self, path: str) -> None:
        path = _clean(path)
        self.check("sync_dir", path)
        for name in [*self._names.inside(path), *self._durable_names.inside(path)]:
            if name in self._names:
                self._durable_names[name] = self._names[name]
            elif name in self._durable_names:
                del self._durable_names[name]
        for name in self._durable_directories.inside(path):
            if name and name not in self._directories:
                self._forget(name)
        for name in self._directories.inside(path):
            self._durable_directories[name] = None
        self._unsynced_renames = [
            pair for pair in self._unsynced_renames if path not in map(_parent, pair)
        ]

    def _forget(self, directory: str) -> None:
        """Forget a directory whose removal is durable, and the names below it."""
        self._durable_names.drop(directory)
        self._durable_directories.drop(directory)

    def modified_ms(self, path: str) -> int:
        inode = self._names.get(_clean(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode.modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        inode = self._names.get(_clean(path))
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        inode.modified_ms = modified_ms

    def absolute(self, path: str) -> str:
        return f"/{_clean(path)}"

    def volume(self, path: str) -> Volume:
        path = _clean(path)
        self.check("volume", path)
        return Volume(self.absolute(path), VOLUME_BYTES, VOLUME_BYTES - self.used_bytes())

    def used_bytes(self) -> int:
        """The number of bytes in all files."""
        return sum(map(len, [inode.content for inode in self._names.values()]))

    def lock(self, path: str) -> Callable[[], None]:
        path = _clean(path)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        if path not in self._names:
            self._names[path] = _Inode(self.now_ms)
        self._locks.add(path)
        return lambda: self._locks.discard(path)

    # ---- for tests

    def content(self, path: str) -> bytes:
        return bytes(self._names[_clean(path)].content)

    def put(self, path: str, content: bytes | bytearray) -> None:
        """Write a durable file, as if by another program."""
        path = _clean(path)
        parent = _parent(path)
        while parent:
            self._directories[parent] = self._durable_directories[parent] = None
            parent = _parent(parent)
        inode = self._names[path] = _Inode(self.now_ms)
        inode.content[:] = content
        inode.durable = bytes(content)
        self._durable_names[path] = inode

    def paths(self) -> builtins.list[str]:
        return sorted(self._names)


def _nothing() -> None:
    pass


class Crashed(BaseException):
    """The crash of the simulated machine in the middle of an operation. The class is no subclass of
    Exception, so that no error handling catches it."""


def _lose_bytes(inode: _Inode, rng: random.Random | None, surviving: float) -> None:
    """Lose unsynced bytes. `surviving`: 0 loses all of them, 1 loses none; other values keep bytes
    up to a random point."""
    content, durable = inode.content, inode.durable
    if rng is None or surviving == 0.0:
        inode.content = bytearray(durable)
        return
    if surviving == 1.0:
        return
    if bytes(content[: len(durable)]) != durable:
        # If the file was truncated or rewritten since the sync, the old and the new content are
        # possible. If it was truncated and then written again, the state after the truncation is
        # also possible.
        cut_to_bytes = inode.cut_to_bytes
        found = rng.random()
        if found < 0.4:
            inode.content = bytearray(durable)
        elif found < 0.7 and cut_to_bytes is not None:
            inode.content = _torn(content, min(cut_to_bytes, len(content)), rng)
        return
    inode.content = _torn(content, len(durable), rng)


def _torn(content: bytearray, sure_bytes: int, rng: random.Random) -> bytearray:
    """The first `sure_bytes` bytes, and a random number of the bytes after them."""
    kept = rng.randint(sure_bytes, len(content))
    torn = bytearray(content[:kept])
    if kept > sure_bytes and rng.random() < 0.3:
        # The length of the file has reached the disk, but not these blocks.
        hole = rng.randint(sure_bytes, kept)
        torn[hole:] = bytes(kept - hole)
    return torn


@lru_cache(maxsize=8_192)
def _clean(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", "."))


@lru_cache(maxsize=8_192)
def _parent(path: str) -> str:
    return path.rpartition("/")[0]
