"""Limits for one input."""

from __future__ import annotations

import resource
import signal
import sys
import tracemalloc
from types import FrameType

from tests.adversity.fuzz.target import Target, TooMuchMemory, TooSlow

#: The processor time for an input of a few kilobytes, in code that counts its steps.
SECONDS_MAX = 5.0
#: The memory in addition to a new process's; beyond this limit the system refuses it.
ADDRESS_SPACE_BYTES = 3 * 1024**3
_UNIT = 1 if sys.platform == "darwin" else 1024


def limit_address_space() -> None:
    """Let the system refuse this process more memory than any target may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, hard))


def check_cheaply(target: Target, data: bytes) -> None:
    """Run `target.check`; TooMuchMemory if the process grew by more than the limit, TooSlow
    likewise.

    The measure is the process's peak memory, so memory that was used before is not counted again.
    """
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.signal(signal.SIGPROF, _too_slow)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_MAX)
    try:
        target.check(data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * _UNIT
    if grown > target.memory_bytes:
        raise TooMuchMemory(f"{grown} bytes more for {len(data)} bytes")


def _too_slow(_: int, __: FrameType | None) -> None:
    raise TooSlow(f"more than {SECONDS_MAX:.0f} s")


def check_exactly(target: Target, data: bytes) -> None:
    """Run `target.check`; TooMuchMemory if Python's objects exceeded the limit. `tracemalloc`
    runs."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    target.check(data)
    _, peak = tracemalloc.get_traced_memory()
    if peak - before > target.memory_bytes:
        raise TooMuchMemory(f"{peak - before} bytes at once for {len(data)} bytes")
