"""The inheritance of transaction names from processes that have ended (S-02).

Spark ends Python workers that were idle for a minute. If the names of these workers were not
reused, a query with rare batches would leave a transactional id at the brokers for every task of
every batch. So a name is a file on the machine, and the process with the lock on that file owns the
name: the kernel releases the lock when the process ends, however it ends, and not before. The file
contains the batch for which the name was last used, so the rule for its reuse also binds the next
owner (S-13).

Without such locks, or if a restart of the machine cannot be recognized, no names are inherited.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
import uuid
from pathlib import Path

from odradek_protocol.lazy_tuple import NamedTuple
from pyspark_odradek.exactly_once.identity import Writer

try:
    import fcntl
except ImportError:  # no POSIX
    fcntl = None  # type: ignore[assignment]

#: The limit of the locks that one process tries to take for one run.
LOCKS_MAX = 10_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CONTENT_BYTES_MAX = 64
#: The time for which brokers keep an unused transactional id, by default.
_QUERY_AGE_MAX_S = 7 * 24 * 3600
_NEVER = -1


class NamesDirectory(NamedTuple):
    """The directory of names. Everything below `root` belongs to this module; `boot` identifies the
    present boot of the machine.

    After a crash of the machine a file may have old content, so names are separate for each boot.
    """

    root: Path
    boot: str


def default_place() -> NamesDirectory | None:
    """The directory of this user on this machine; None if the present boot cannot be identified, or
    nothing can be written."""
    try:
        boot = _BOOT_ID.read_text().strip()
        folder = tempfile.gettempdir()
    except OSError:
        return None
    if fcntl is None or not boot:
        return None
    return NamesDirectory(Path(folder, f"odradek-spark-{os.getuid()}"), boot)


class Inheritance:
    """The transaction names of one run: those that this process owns, and those that it may take
    over from processes that have ended."""

    def __init__(self, place: NamesDirectory, writer: Writer) -> None:
        self._place = place
        self._runs = place.root / place.boot / _hashed(writer.query)
        self._folder = self._runs / _hashed(writer.run)
        self._names = self._folder
        self._next = 0
        self._locks: dict[str, int] = {}
        self._is_ready = False

    def take(self) -> tuple[str, int] | None:
        """Take a name, which belongs to this process from now on. Returns (the name, the newest
        batch for which it was used), with -1 for no batch; None if no name can be taken."""
        try:
            if not self._is_ready:
                self._prepare()
            while self._next < LOCKS_MAX:
                number, self._next = self._next, self._next + 1
                descriptor = os.open(self._names / str(number), os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    name, last = _read(descriptor)
                except BlockingIOError:
                    os.close(descriptor)
                    continue
                except OSError:
                    os.close(descriptor)
                    raise
                self._locks[name] = descriptor
                return name, last
        except OSError:
            pass  # With a full or read-only disk, no names are inherited.
        return None

    def used(self, name: str, batch: int) -> bool:
        """Called when a name will be used for `batch`. False if this could not be stored, so that
        the name must not be used."""
        descriptor = self._locks.get(name)
        if descriptor is None:
            return True
        try:
            _write(descriptor, name, batch)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Release all names, so that other processes can take them. This object must not use the
        names afterwards."""
        for descriptor in self._locks.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._locks.clear()

    def _prepare(self) -> None:
        root = self._place.root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = root.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            # A symbolic link is also refused, even if it leads to a folder of this user.
            raise PermissionError(f"{root} is somebody else's")
        self._folder.mkdir(parents=True, exist_ok=True)
        os.utime(self._runs)  # keeps `_tidy` from deleting a run that lasts longer than a week
        self._tidy()
        # Names are separate for each device number, because on some file systems locks are
        # separate for each mount, and each container may have its own mount.
        self._names = self._folder / str(_device(root))
        self._names.mkdir(exist_ok=True)
        self._is_ready = True

    def _tidy(self) -> None:
        """Delete the names of earlier runs of the query, of queries that had no new worker for a
        week, and of earlier boots.

        A name is stored only in its file: a name whose file is deleted is never used again.
        """
        boot = self._runs.parent
        old = [each for each in self._place.root.iterdir() if each != boot]
        old += [each for each in self._runs.iterdir() if each != self._folder]
        long_ago = time.time() - _QUERY_AGE_MAX_S
        with contextlib.suppress(FileNotFoundError):  # others may tidy at the same time
            old += [each for each in boot.iterdir() if each.stat().st_mtime < long_ago]
        for each in old:
            shutil.rmtree(each, ignore_errors=True)


def _device(folder: Path) -> int:
    """The device number of the file system that the folder is on."""
    return folder.stat().st_dev


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(descriptor: int) -> tuple[str, int]:
    """(the name in the file, its last batch). The name is new if the file contains no valid
    name."""
    words = os.pread(descriptor, _CONTENT_BYTES_MAX, 0).decode(errors="replace").split()
    if len(words) == 2 and words[0].isalnum() and words[1].lstrip("-").isdecimal():
        return words[0], int(words[1])
    name = uuid.uuid4().hex[:16]
    _write(descriptor, name, _NEVER)
    return name, _NEVER


def _write(descriptor: int, name: str, batch: int) -> None:
    os.pwrite(descriptor, f"{name} {batch:>20}\n".encode(), 0)
