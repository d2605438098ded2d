"""The event loop: uvloop or asyncio's, its timers, and a background thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from odradek_broker.platform.seams import Timer

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end on uvloop, or on asyncio where uvloop is missing."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class LoopScheduler:
    """Timers of the running loop, in milliseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Timer:
        """Call once, in so many milliseconds."""
        return self._loop.call_later(delay_ms / 1000, callback)


def _interrupted() -> InterruptedError:
    return InterruptedError("the broker is stopping")


class BackgroundThread:
    """A second thread for work that would hold up the loop.

    The callbacks of the work, `done`, are called on the loop, with the exception that ended it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, "odradek-background")
        self._stopping = False

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Do the work; after `refuse` it is not begun, and ends with an InterruptedError."""
        if self._stopping:
            self._loop.call_soon(done, _interrupted())
        else:
            self._executor.submit(self._run, work, done)

    def _run(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        problem: Exception | None = None
        try:
            if self._stopping:
                raise _interrupted()
            work()
        except Exception as error:  # noqa: BLE001 - handed to `done`
            problem = error
        # The loop may be closed by now; there is nobody left to tell then.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(done, problem)

    def refuse(self) -> None:
        """Begin nothing more, not even what waits."""
        self._stopping = True

    def wait(self) -> None:
        """Wait for what had begun before `refuse`."""
        self._executor.shutdown()
