"""The pid file of a broker: the process that serves a data directory, and its address.

The first line is the process id, the second the address. The broker keeps the file locked until it
ends, so an unlocked file is stale, even if a process with this id exists.

On a full disk a broker still serves the stored data. The file can then be created, but its lines
cannot be written. So both lines become the target of a symbolic link, which needs no free page.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from odradek_protocol.settings import INT32_MAX

PID_FILE = "odradek.pid"
_LINK_SUFFIX = ".link"
LOG_FILE = "odradek.log"

_LINES = re.compile(rb"([1-9][0-9]{0,9})\n([!-~]+:([0-9]{1,5}))\n")
_PORT_MAX = 65_535
#: The time to wait for the lock. A status query holds the lock only for a moment; a lock that lasts
#: longer belongs to another broker.
_CLAIM_TIMEOUT_S = 2.0
_RETRY_S = 0.01


@dataclass(frozen=True)
class RunningBroker:
    """A running broker. `address` is HOST:PORT."""

    pid: int
    address: str


class PidFileBusyError(Exception):
    """Another broker has locked the file."""


class PidFile:
    """The pid file of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / PID_FILE
        self._link = data_dir / (PID_FILE + _LINK_SUFFIX)
        self._fd: int | None = None

    def claim(self, pid: int, address: str) -> None:
        """Write and lock the file until `release`. PidFileBusyError, or OSError if the file cannot
        be written for another reason than a full disk."""
        self._fd = self._lock()
        content = f"{pid}\n{address}\n"
        try:
            self._link.unlink(missing_ok=True)
            os.ftruncate(self._fd, 0)
            try:
                os.pwrite(self._fd, content.encode(), 0)
            except OSError as problem:
                if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._link.symlink_to(content)
        except OSError as problem:
            self.release()
            raise OSError(problem.errno, problem.strerror, str(self.path)) from problem

    def _lock(self) -> int:
        deadline = time.monotonic() + _CLAIM_TIMEOUT_S
        while True:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            with suppress(BlockingIOError, FileNotFoundError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The lock is useless if the previous owner removed the file after `os.open`.
                if os.fstat(fd).st_ino == os.stat(self.path).st_ino:
                    return fd
            os.close(fd)
            if time.monotonic() > deadline:
                raise PidFileBusyError(f"{self.path} is held by another broker")
            time.sleep(_RETRY_S)

    def release(self) -> None:
        """Remove the file, if this object has locked it."""
        if self._fd is not None:
            for path in (self._link, self.path):
                with suppress(FileNotFoundError):
                    path.unlink()
            os.close(self._fd)
            self._fd = None

    def read(self) -> RunningBroker | None:
        """The broker that has locked the file; None if there is none. Raises OSError if the file
        cannot be read."""
        try:
            # Without O_NONBLOCK the call would wait for ever if the path is a pipe.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _parse(os.read(fd, 4096) or self._read_link())
            return None
        finally:
            os.close(fd)

    def _read_link(self) -> bytes:
        try:
            return os.readlink(bytes(self._link))
        except OSError:
            return b""  # A broker is writing the file at this moment.


def _parse(content: bytes) -> RunningBroker | None:
    # A file without both lines is being written at this moment. A signal to process 0 or -1 would
    # end other processes.
    found = _LINES.fullmatch(content)
    if found is None or int(found[1]) > INT32_MAX or int(found[3]) > _PORT_MAX:
        return None
    return RunningBroker(int(found[1]), found[2].decode())
