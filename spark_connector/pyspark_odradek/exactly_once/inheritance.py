"""Names of transactions that outlive the process that used them (S-02).

Spark ends Python workers that were idle for a minute. Names that died with them would leave an id at the
brokers for every task of every batch of a query that is triggered rarely. So a name is a file on the
machine, and whoever holds the lock on that file owns the name: the kernel lets go of it when the
process ends, however it ends, and not before. The file tells for which batch the name was last used,
so the next owner is bound as the last one was (S-13).

Where there are no such locks, or the machine cannot be told from its earlier self, nothing is inherited.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import uuid
from pathlib import Path

from pyspark_odradek.exactly_once.identity import Writer

try:
    import fcntl
except ImportError:  # no POSIX
    fcntl = None  # type: ignore[assignment]

#: Locks that one process looks at for one run.
LOCKS_MAX = 10_000
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CONTENT_BYTES_MAX = 64
_NEVER = -1


def default_folder() -> Path | None:
    """Where this user's names are on this machine, since it was started; None if that cannot be told.

    After a crash of the machine a file may be older than what it should say: so each start of the machine
    has names of its own.
    """
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        return None
    if fcntl is None or not boot:
        return None
    return Path(tempfile.gettempdir(), f"odradek-spark-{os.getuid()}", boot)


class Inheritance:
    """The names of one run that this process owns, or may come to own."""

    def __init__(self, folder: Path, writer: Writer) -> None:
        query, run = (hashlib.sha256(each.encode()).hexdigest()[:24] for each in _parts(writer))
        self._runs = folder / query
        self._folder = self._runs / run
        self._next = 0
        self._held: dict[str, int] = {}
        self._is_ready = False

    def take(self) -> tuple[str, int] | None:
        """(a name that is now this process's, the newest batch it was used for or -1); None if there
        is none to be had."""
        try:
            if not self._is_ready:
                self._prepare()
            while self._next < LOCKS_MAX:
                number, self._next = self._next, self._next + 1
                descriptor = os.open(self._folder / str(number), os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                    continue
                name, last = _read(descriptor)
                self._held[name] = descriptor
                return name, last
        except OSError:
            pass  # a full or read-only disk: as without
        return None

    def used(self, name: str, batch: int) -> bool:
        """To be said before the name is used for `batch`. False: it may not be used, for it was not noted."""
        descriptor = self._held.get(name)
        if descriptor is None:
            return True
        try:
            _write(descriptor, name, batch)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Give everything to whoever comes next; no name may be used any more."""
        for descriptor in self._held.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._held.clear()

    def _prepare(self) -> None:
        user_folder = self._runs.parent.parent
        user_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if user_folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{user_folder} is somebody else's")
        self._folder.mkdir(parents=True, exist_ok=True)
        # A name is made of what is in its file: one that is deleted never comes back.
        for other in self._runs.iterdir():
            if other != self._folder:
                shutil.rmtree(other, ignore_errors=True)
        self._is_ready = True


def _parts(writer: Writer) -> tuple[str, str]:
    return writer.query, writer.run


def _read(descriptor: int) -> tuple[str, int]:
    """The name and its batch; a new name where the file has none, or cannot be understood."""
    words = os.pread(descriptor, _CONTENT_BYTES_MAX, 0).decode(errors="replace").split()
    if len(words) == 2 and words[0].isalnum() and words[1].lstrip("-").isdecimal():
        return words[0], int(words[1])
    name = uuid.uuid4().hex[:16]
    _write(descriptor, name, _NEVER)
    return name, _NEVER


def _write(descriptor: int, name: str, batch: int) -> None:
    os.pwrite(descriptor, f"{name} {batch:>20}\n".encode(), 0)
