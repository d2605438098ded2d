"""Standard streams that are closed or cannot be written, and the end of the process.

If a stream fails, as when a pipe into `head` is closed or a disk is full, the user sees one line or
nothing, never a traceback.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn

from odradek_protocol.visible import visible

#: The errors of a write to a full disk, to a closed stream, or to a failed device.
_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO})


def open_missing() -> None:
    """Replace each stream that the parent closed with one that fails with EBADF when it is used.

    Because of the replacement, no socket gets one of the file descriptors 0 to 2. Text for stderr
    is lost silently.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", closefd=False)


class _VisibleLines(logging.Formatter):
    """Log lines of the client, which may have names and errors that strangers chose."""

    def format(self, record: logging.LogRecord) -> str:
        text = visible(record.getMessage())
        if record.exc_info:
            text += "\n" + visible(self.formatException(record.exc_info), keep="\n")
        return text


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = "".join(traceback.format_exception(kind, error, trace))
    print(visible(text, keep="\n"), end="", file=sys.stderr)


def show_visibly() -> None:
    """Let tracebacks and lines of logs without a handler have no character that a terminal acts
    on. To be called before typer is imported, which keeps the present hook."""
    sys.excepthook = _show
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_VisibleLines())


def drop_output() -> None:
    """Discard further output, because it cannot be written, and Python would try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_to_end(command: Callable[[], None]) -> NoReturn:
    """Run a command and end the process with its exit code.

    If output cannot be written to stdout, the command prints one line on stderr and exits with 1; a
    closed pipe is no error. The process ends even if a thread is stuck in a system call, such as a
    resolver that does not answer.
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
    """Report a failed write, unless its pipe was closed. Returns the exit code."""
    drop_output()
    if error.errno == errno.EPIPE:
        return 0
    if error.filename is None and error.errno in _OUTPUT_ERRORS:
        text = f"standard output cannot be written: {error.strerror}"
    else:
        text = str(error)
    print(f"odradek: {visible(text)}", file=sys.stderr)
    return 1
