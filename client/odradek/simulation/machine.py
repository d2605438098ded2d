"""The machine that a simulated program sees: the time, and chance.

Functions of `time`, `random` and `os` that answer from outside of the simulation are replaced while
`simulated_machine` lasts, for clients and for users' own code alike: the same seed, the same answers.
"""

from __future__ import annotations

import os
import random as random_module
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from odradek.simulation.clock import WALL_START_MS

_Random = random_module.Random


@contextmanager
def simulated_machine(
    now_s: Callable[[], float], random: random_module.Random, wall_start_ms: int = WALL_START_MS
) -> Iterator[None]:
    """`now_s`: virtual time. Generators made without a seed get one of `random`."""

    def wall_s() -> float:
        return wall_start_ms / 1000 + now_s()

    class SeededRandom(_Random):
        def __init__(self, x: Any = None) -> None:
            super().__init__(random.getrandbits(64) if x is None else x)

    replaced: list[tuple[Any, str, Any]] = [
        (time, "time", wall_s),
        (time, "time_ns", lambda: int(wall_s() * 1e9)),
        (time, "monotonic", now_s),
        (time, "monotonic_ns", lambda: int(now_s() * 1e9)),
        (time, "perf_counter", now_s),
        (time, "perf_counter_ns", lambda: int(now_s() * 1e9)),
        (os, "urandom", random.randbytes),
        (random_module, "Random", SeededRandom),
    ]
    saved = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    state = random_module.getstate()
    random_module.seed(random.getrandbits(64))
    for module, name, value in replaced:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in saved:
            setattr(module, name, value)
        random_module.setstate(state)
