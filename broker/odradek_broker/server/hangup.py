"""SIGHUP: open the log file again, or stop because the terminal has been closed (N-37)."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import Callable

import structlog

log = structlog.get_logger("odradek.server")


def handle_hangup(stop: Callable[[], None], reopen_log: Callable[[], None] | None) -> None:
    """Begin to handle SIGHUP in the running loop. `stop` stops the broker cleanly. `reopen_log`
    reopens its log file; None if the broker has no log file.

    Without a log file an ignored SIGHUP (`nohup`) stays ignored.
    """
    if reopen_log is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reopen, reopen_log)
    elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        # Checked now, because later a process whose terminal was closed looks like a process
        # without a terminal.
        on_hangup = _terminal_closed if _has_terminal() else _nothing_to_reopen
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_hangup, stop)


def _has_terminal() -> bool:
    """True if this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _reopen(reopen_log: Callable[[], None]) -> None:
    try:
        reopen_log()
    except OSError as error:
        log.error(
            "the log file cannot be opened again; the old one stays in use", problem=str(error)
        )
    else:
        log.info("the log file was opened again (SIGHUP)")


def _terminal_closed(stop: Callable[[], None]) -> None:
    _leave_terminal()
    log.warning("the terminal was closed (SIGHUP): the broker stops")
    stop()


def _leave_terminal() -> None:
    """Send output for a terminal to /dev/null: an error from writing to a closed terminal would
    interrupt a clean stop."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    for stream_fd in (1, 2):
        # isatty() is false for a closed terminal.
        if stat.S_ISCHR(os.fstat(stream_fd).st_mode):
            os.dup2(nowhere, stream_fd)
    os.close(nowhere)


def _nothing_to_reopen(_: Callable[[], None]) -> None:
    log.info("SIGHUP changes nothing: the log goes to stderr, and there is no file to open again")
