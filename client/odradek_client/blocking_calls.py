"""The event loop of all blocking clients, and calls that wait for its work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from odradek_client import loop_thread as base
from odradek_client.errors import Closed, IllegalState, TaskCancelled

R = TypeVar("R")
Callback = Callable[[], None]

#: A function that creates the coroutine. The loop's thread calls it, so that Ctrl+C in the caller
#: leaves no coroutine that is never awaited.
Work = Callable[[], Coroutine[Any, Any, R]]

#: The time within which a waiting thread notices a signal.
_SIGNAL_DELAY_S = 0.25


class CallbackLoopThread(base.LoopThread):
    """An event loop in a daemon thread."""

    def run(self, work: Work[R], callbacks: SimpleQueue[Callback | None]) -> R:
        """Wait for `work`, which runs on the loop's thread. During the wait, the calling thread
        runs the `callbacks` that `work` adds. Closed if the thread ends."""
        if threading.current_thread() is self.thread:
            raise IllegalState("a blocking call on the event loop's own thread would never return")
        call = _Call(self.loop, work, callbacks)
        try:
            self.soon(call.begin)
            while (callback := self._next(callbacks)) is not None:
                callback()
        except BaseException:
            # The result is not needed after Ctrl+C, or an exception of a callback.
            with suppress(Closed):
                self.soon(call.abandon)
            raise
        return call.result()

    def _next(self, callbacks: SimpleQueue[Callback | None]) -> Callback | None:
        """The next callback. Each wait is short, because a signal that arrives just before the wait
        does not end it."""
        while True:
            is_running = self.is_running
            try:
                return callbacks.get(timeout=_SIGNAL_DELAY_S)
            except Empty:
                if not is_running:
                    raise self.ended() from None


class _Call(Generic[R]):
    """The work of the loop's thread for a caller in another thread.

    Caller and loop share no lock: Ctrl+C may raise KeyboardInterrupt at any instruction of the
    caller, also between taking a lock and entering the block that releases it, and the loop's
    thread would then wait for that lock for ever.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Work[R],
        callbacks: SimpleQueue[Callback | None],
    ) -> None:
        self._loop, self._work, self._callbacks = loop, work, callbacks
        self._task: asyncio.Task[R] | None = None

    def begin(self) -> None:
        self._task = self._loop.create_task(self._awaited())
        self._task.add_done_callback(self._finish)

    async def _awaited(self) -> R:
        return await self._work()

    def _finish(self, task: asyncio.Task[R]) -> None:
        if not task.cancelled():
            task.exception()  # an abandoned call's error is not reported as never retrieved
        self._callbacks.put(None)

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def result(self) -> R:
        assert self._task is not None
        if self._task.cancelled():
            raise TaskCancelled("the call was cancelled by another part of the program")
        return self._task.result()


_shared: CallbackLoopThread | None = None
_sharing = threading.Lock()


def loop_thread() -> CallbackLoopThread:
    """The loop thread of this process, which the first call starts."""
    global _shared
    with _sharing:
        if _shared is None or not _shared.is_running:
            _shared = CallbackLoopThread("odradek-sync")
        return _shared
