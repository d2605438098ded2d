"""Garbage collection that does not hold the event loop for long (N-57).

A full collection of CPython visits every object of the process: 100 ms for a million. Here an
object that has survived a collection of young objects is frozen, and no later collection visits it;
its reference count still frees it. Only cycles that become garbage after they were frozen stay, and
a full collection takes those when the memory has grown by much and has not become less for a
minute.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_LOOK_S = 60.0
#: The growth since the last full collection, in blocks of memory, that is followed by the next one:
#: this share of the blocks of then, and so many more.
_GROWTH = 0.5
_GROWTH_BLOCKS = 200_000


async def with_short_collections(main: Coroutine[Any, Any, T]) -> T:
    """Run `main`, the program of this process, with collections that take about a millisecond."""
    collector = _Collector(asyncio.get_running_loop())
    gc.callbacks.append(collector.collected)
    gc.freeze()
    gc.enable()
    try:
        return await main
    finally:
        gc.callbacks.remove(collector.collected)
        collector.stop()


class _Collector:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._blocks = sys.getallocatedblocks()
        self._grown = False
        self._timer = loop.call_later(_LOOK_S, self._look)

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Called by CPython before and after each collection."""
        if phase == "stop" and info["generation"] > 0:
            gc.freeze()

    def _look(self) -> None:
        grown_before = self._grown
        growth = sys.getallocatedblocks() - self._blocks
        self._grown = growth > self._blocks * _GROWTH + _GROWTH_BLOCKS
        if grown_before and self._grown:
            gc.unfreeze()
            gc.collect()
            self._blocks, self._grown = sys.getallocatedblocks(), False
        self._timer = self._loop.call_later(_LOOK_S, self._look)

    def stop(self) -> None:
        self._timer.cancel()
