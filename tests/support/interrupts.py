"""Ctrl+C at a chosen line of a blocking call."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from odradek_client import blocking_calls as loop_thread
from odradek_client import sync

R = TypeVar("R")
_FILES = (sync.__file__, loop_thread.__file__)


def _is_with(frame: FrameType) -> bool:
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return line.lstrip().startswith("with ")


def interrupted_at_line(moment: int, call: Callable[[], R]) -> R | None:
    """The result of `call`; None if it raised the KeyboardInterrupt that came at the line number
    `moment` of those that it ran in this thread, in the modules of the blocking classes.

    Lines with `with` do not count: a trace function may interrupt there before a lock is released,
    which a signal does not.
    """
    left = moment

    def at_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line" and not _is_with(frame):
            left -= 1
            if not left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return at_line

    def at_call(frame: FrameType, _event: str, _: Any) -> Any:
        return at_line if frame.f_code.co_filename in _FILES else None

    tracing = sys.gettrace()
    sys.settrace(at_call)
    try:
        return call()
    except KeyboardInterrupt:
        assert left == 0
        return None
    finally:
        sys.settrace(tracing)
