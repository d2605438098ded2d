"""Fault injection: a broker under test ends itself at a fault point (`fault_points.py`) by SIGKILL.

Nothing is flushed or closed. At a point that tears a write, only half of the next write is written,
as after a power cut.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence

from odradek_broker.platform.fault_points import (
    FAULT_POINT_VARIABLE,
    NO_FAULT_POINTS,
    FaultPoint,
    FaultPoints,
    parse_fault_point,
)
from odradek_broker.platform.machine import RealFile, RealFiles
from odradek_broker.platform.seams import Buffer
from odradek_protocol.lazy_tuple import NamedTuple


class FaultInjection(NamedTuple):
    """The fault points of a broker, and files whose writes can be torn at these points.

    `armed`: the armed point as it was given; empty if none is.
    """

    fault_points: FaultPoints
    files: RealFiles
    armed: str


def no_injection() -> FaultInjection:
    """The fault points of a broker that is not under test."""
    return FaultInjection(NO_FAULT_POINTS, RealFiles(), "")


def injection_from_environment(environment: Mapping[str, str]) -> FaultInjection:
    """The fault point that ODRADEK_FAULT_POINT names, if it is set. Raises UnknownFaultPoint for an
    unknown name."""
    text = environment.get(FAULT_POINT_VARIABLE, "")
    if not text:
        return no_injection()
    point, nth = parse_fault_point(text)
    tear = _Tear()

    def action(reached: FaultPoint) -> None:
        if reached.tears:
            tear.next_write = True
        else:
            _kill_process()

    return FaultInjection(
        FaultPoints(point, nth, action),
        RealFiles(file_type=lambda fd: _TearingFile(fd, tear)),
        text,
    )


class _Tear:
    """A flag that makes the next write to any file tear. All files share the flag."""

    __slots__ = ("next_write",)

    def __init__(self) -> None:
        self.next_write = False


class _TearingFile(RealFile):
    __slots__ = ("_tear",)

    def __init__(self, fd: int, tear: _Tear) -> None:
        super().__init__(fd)
        self._tear = tear

    def append(self, buffers: Sequence[Buffer]) -> int:
        if self._tear.next_write:
            whole = b"".join(bytes(buffer) for buffer in buffers)
            super().append((whole[: len(whole) // 2],))
            _kill_process()
        return super().append(buffers)


def _kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
