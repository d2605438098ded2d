"""The process around a command: standard streams that are closed, full or gone, and its end.

Nothing here is a traceback: whoever pipes into `head`, or writes to a full disk, gets one line or
none.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

#: What writing to a stream fails with when there is no room, no stream or no device.
_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO})


def open_missing() -> None:
    """Where a stream was closed by the parent, one that fails with EBADF when it is used.

    It also keeps the numbers 0 to 2 from being given to sockets. What people should read on stderr
    is lost in silence, as there is nobody to tell.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)


def drop_output() -> None:
    """Whoever read our output has had enough, or cannot take it: Python must not try it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_to_end(command: Callable[[], None]) -> NoReturn:
    """Run a command and end the process with its exit code.

    What cannot be written to stdout is one line on stderr and exit code 1; a pipe that was closed
    is nothing at all. A thread that is stuck in a call of the system, such as a resolver that does
    not answer, holds nobody up.
    """
    code: int | str | None = 0
    try:
        command()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        code = _failed(error)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _failed(error) if code in (0, None) else code
        drop_output()
    if any(
        not each.daemon for each in threading.enumerate() if each is not threading.main_thread()
    ):
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)
    sys.exit(code)


def _failed(error: OSError) -> int:
    """Say it, unless nobody wants to know; the exit code."""
    drop_output()
    if error.errno == errno.EPIPE:
        return 0
    if error.filename is None and error.errno in _OUTPUT_ERRORS:
        text = f"standard output cannot be written: {error.strerror}"
    else:
        text = str(error)
    print(f"odradek: {text}", file=sys.stderr)
    return 1
