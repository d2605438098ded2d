"""Garbage collection that does not hold the event loop for long (N-57).

A full collection of CPython visits every object of the process: 100 ms for a million. Here an
object that has survived a collection of young objects is frozen, and no later collection visits it;
its reference count still frees it. Only cycles that become garbage after they were frozen stay.
Connections, logs and segments, which live for long and end often, are no cycles any more when they
end. For cycles that nobody knows of, there is a full collection if the collections of young objects
have found many of them, and the memory has grown by much and has not become less for a minute. So a
broker that only has more partitions, groups or records than before is not interrupted.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_S = 60.0
#: The growth since the last full collection, in blocks of memory, that is followed by the next one:
#: this share of the blocks of then, and so many more.
_GROWTH = 0.5
_GROWTH_BLOCKS = 200_000
#: The objects in young cycles, as a share of that growth, without which it is no garbage.
_CYCLES = 0.1


async def with_short_collections(main: Callable[[], Awaitable[T]]) -> T:
    """Run `main`, the program of this process, with collections that take about a millisecond."""
    collector = _Collector(asyncio.get_running_loop())
    gc.callbacks.append(collector.collected)
    gc.freeze()
    gc.enable()
    try:
        return await main()
    finally:
        gc.callbacks.remove(collector.collected)
        collector.stop()


class _Collector:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._blocks = sys.getallocatedblocks()
        self._grown = False
        #: The objects that young collections have found in cycles since the last full collection.
        self._in_cycles = 0
        self._timer = loop.call_later(_LOOK_S, self._look)

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Called by CPython before and after each collection."""
        if phase == "stop":
            self._in_cycles += info["collected"]
            if info["generation"] > 0:
                gc.freeze()

    def _look(self) -> None:
        grown_before = self._grown
        growth = sys.getallocatedblocks() - self._blocks
        self._grown = growth > self._blocks * _GROWTH + _GROWTH_BLOCKS
        if grown_before and self._grown and self._in_cycles > growth * _CYCLES:
            gc.unfreeze()
            gc.collect()
            self._blocks, self._grown, self._in_cycles = sys.getallocatedblocks(), False, 0
        self._timer = self._loop.call_later(_LOOK_S, self._look)

    def stop(self) -> None:
        self._timer.cancel()
