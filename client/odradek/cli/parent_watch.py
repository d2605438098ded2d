"""A broker that a program has started for itself ends with that program, whatever ended it.

Standard input of the broker is a pipe that only the program holds open: the pipe ends with the program,
also where that was killed. So it works on every system.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: A broker that has not stopped in that time is ended without its consent.
_STOP_S = 10.0


@contextmanager
def ended_by_stdin(scratch: Path | None) -> Iterator[None]:
    """Interrupt the block when standard input ends, and remove `scratch` then. None: do nothing.

    While standard input is open, `scratch` is the other program's to remove.
    """
    if scratch is None:
        yield
        return
    orphaned, stopped = threading.Event(), threading.Event()

    def watch() -> None:
        while _read_some():
            pass
        orphaned.set()
        os.kill(os.getpid(), signal.SIGINT)
        if not stopped.wait(_STOP_S):
            shutil.rmtree(scratch, ignore_errors=True)
            os._exit(1)

    threading.Thread(target=watch, daemon=True, name="odradek-parent").start()
    try:
        yield
    finally:
        if orphaned.is_set():
            shutil.rmtree(scratch, ignore_errors=True)
        stopped.set()


def _read_some() -> bytes:
    try:
        return os.read(0, 4096)
    except OSError:
        return b""
