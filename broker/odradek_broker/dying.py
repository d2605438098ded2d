"""How a broker under test dies at a fault point (`fault_points.py`): at once, by SIGKILL.

Nothing is flushed, closed or told, just as when somebody pulls the plug on the process. At the points
that tear, the next write ends in the middle, as a power cut may leave it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from odradek_broker.fault_points import (
    FAULT_POINT_VARIABLE,
    NO_FAULTS,
    FaultPoint,
    FaultPoints,
    parse_fault_point,
)
from odradek_broker.real import RealFile, RealFiles
from odradek_broker.seams import Buffer


class Mortality(NamedTuple):
    """What a broker is started with: its points, and files that can tear."""

    faults: FaultPoints
    files: RealFiles
    #: The armed point in words; empty if none is.
    armed: str


def immortal() -> Mortality:
    """Every broker but those under test."""
    return Mortality(NO_FAULTS, RealFiles(), "")


def from_environment(environment: Mapping[str, str]) -> Mortality:
    """Armed by ODRADEK_FAULT_POINT, if that is set. UnknownFaultPoint if it names no point."""
    text = environment.get(FAULT_POINT_VARIABLE, "")
    if not text:
        return immortal()
    point, nth = parse_fault_point(text)
    tear = _Tear()

    def strike(reached: FaultPoint) -> None:
        if reached.tears:
            tear.next_write = True
        else:
            _die()

    return Mortality(
        FaultPoints(point, nth, strike),
        RealFiles(file_type=lambda fd: _TearingFile(fd, tear)),
        text,
    )


class _Tear:
    """Shared by all files: shall the next write be torn?"""

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
            _die()
        return super().append(buffers)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
