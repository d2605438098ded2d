"""A count of the work that a call does, in steps instead of time.

A step is an instruction of Python in the broker's modules, or an element that a built-in function
goes through: `min(loads.values())` is one instruction, and as many steps as there are loads.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import odradek_broker

_ROOT = str(Path(odradek_broker.__file__).parent)
_GOING_THROUGH = ("max", "min", "sorted", "sum")


class _Counter:
    def __init__(self) -> None:
        self.steps = 0

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call" and not frame.f_code.co_filename.startswith(_ROOT):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.steps += event == "opcode"
        return self.trace

    def counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **options: Any) -> Any:
            if len(values) == 1 and isinstance(values[0], Iterable):
                values = (list(values[0]),)
                self.steps += len(values[0])
            return function(*values, **options)

        return call


def steps_of(action: Callable[[], object]) -> int:
    """The steps of a call."""
    counter = _Counter()
    before = sys.gettrace()
    patched = {name: counter.counted(getattr(builtins, name)) for name in _GOING_THROUGH}
    with mock.patch.dict(vars(builtins), patched):
        sys.settrace(counter.trace)
        try:
            action()
        finally:
            sys.settrace(before)
    return counter.steps
