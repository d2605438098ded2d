"""Limits on the memory and the processor time that a target uses for one input."""

from __future__ import annotations

import resource
import signal
import sys
import tracemalloc
from types import FrameType

from tests.adversity.fuzz.target import Target, TooMuchMemory, TooSlow

#: The limit on the processor time for an input of a few kilobytes, in code with coverage counters.
SECONDS_MAX = 5.0
#: The limit on the address space of the process, which is more than any target needs.
ADDRESS_SPACE_BYTES = 3 * 1024**3
_UNIT = 1 if sys.platform == "darwin" else 1024


def limit_address_space() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, hard))


def check_cheaply(target: Target, data: bytes) -> None:
    """Run `target.check`. Raises TooMuchMemory or TooSlow if the check exceeds a limit.

    The measure is the growth of the process's peak memory, so memory below an earlier peak is not
    counted.
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
    """Run `target.check` under `tracemalloc`. Raises TooMuchMemory if the check exceeds the
    limit."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    target.check(data)
    _, peak = tracemalloc.get_traced_memory()
    if peak - before > target.memory_bytes:
        raise TooMuchMemory(f"{peak - before} bytes at once for {len(data)} bytes")
