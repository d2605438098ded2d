"""A broker that was started by a program: it ends with the program, and writes its addresses to a
file."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: The time for a clean stop, after which the process is ended.
_STOP_S = 10.0
_LOOK_EVERY_S = 0.2


@contextmanager
def ended_by_stdin(scratch: Path | None) -> Iterator[None]:
    """Interrupt the block when standard input ends, and then remove `scratch`. If `scratch` is
    None, the block runs without interruption.

    While standard input is open, the program at its other end has to remove `scratch`.
    """
    if scratch is None:
        yield
        return
    with _ended_after(_until_stdin_ends, lambda: shutil.rmtree(scratch, ignore_errors=True)):
        yield


@contextmanager
def ended_with_parent(wanted: bool) -> Iterator[None]:
    """Interrupt the block when the process that started this one ends, however it ends."""
    if not wanted:
        yield
        return
    parent = os.getppid()

    def until_parent_ends() -> None:
        # When the parent of a process ends, the process gets another parent.
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY_S)

    with _ended_after(until_parent_ends, lambda: None):
        yield


@contextmanager
def _ended_after(wait: Callable[[], None], clean_up: Callable[[], None]) -> Iterator[None]:
    orphaned, stopped = threading.Event(), threading.Event()

    def watch() -> None:
        wait()
        orphaned.set()
        os.kill(os.getpid(), signal.SIGINT)
        if not stopped.wait(_STOP_S):
            clean_up()
            os._exit(1)

    threading.Thread(target=watch, daemon=True, name="odradek-parent").start()
    try:
        yield
    finally:
        if orphaned.is_set():
            clean_up()
        stopped.set()


def _until_stdin_ends() -> None:
    while _read_some():
        pass


def _read_some() -> bytes:
    try:
        return os.read(0, 4096)
    except OSError:
        return b""


class PortFile:
    """A file with the addresses of a running broker. The first line is the HOST:PORT for clients,
    the second line the HOST:PORT of the HTTP endpoint for tests (empty without such an endpoint).

    The file exists, and is complete, only while the broker is ready.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._content = b""

    def prepare(self) -> None:
        """Remove a file that a killed broker has left. Raises OSError if there is no such
        folder."""
        if not self._path.parent.is_dir():
            raise FileNotFoundError(2, "there is no such folder", str(self._path.parent))
        self._path.unlink(missing_ok=True)

    def write(self, address: str, http: str) -> None:
        """Write the addresses; a reader sees the whole file or none. Raises OSError."""
        content = f"{address}\n{http}\n".encode()
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(content)
            temporary.replace(self._path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        self._content = content

    def remove(self) -> None:
        """Remove the file, unless another broker has written it since."""
        with suppress(OSError):
            if self._content and self._path.read_bytes() == self._content:
                self._path.unlink()
