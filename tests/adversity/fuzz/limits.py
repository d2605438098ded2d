"""What one input may cost."""

from __future__ import annotations

import resource
import signal
import sys
import tracemalloc
from types import FrameType

from tests.adversity.fuzz.target import Target, TooMuchMemory, TooSlow

#: Of processor time, for the few kilobytes of an input in code that counts its steps.
SECONDS_MAX = 5.0
#: Beyond what a process has when it begins: at this limit the system refuses it.
ADDRESS_SPACE_BYTES = 3 * 1024**3
_UNIT = 1 if sys.platform == "darwin" else 1024


def limit_address_space() -> None:
    """Have the system refuse this process memory beyond any that a target may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, hard))


def check_cheaply(target: Target, data: bytes) -> None:
    """`target.check`; TooMuchMemory if the process grew by more than it may, TooSlow likewise.

    Memory is that of the process at its highest, so what was held once before is not seen again.
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
    """`target.check`; TooMuchMemory if Python's objects took more than they may. `tracemalloc`
    runs."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    target.check(data)
    _, peak = tracemalloc.get_traced_memory()
    if peak - before > target.memory_bytes:
        raise TooMuchMemory(f"{peak - before} bytes at once for {len(data)} bytes")
