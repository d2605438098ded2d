"""The event loop in a daemon thread that all blocking objects share; a forked child gets a new one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from odradek_client.errors import IllegalState

R = TypeVar("R")

Callback = Callable[[], None]


class LoopThread:
    """One event loop in a daemon thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _new_loop()
        self.thread = threading.Thread(target=self._run, name="odradek-sync", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, R], callbacks: SimpleQueue[Callback | None]) -> R:
        """Wait for `work`, doing meanwhile what is put into `callbacks` in the caller's thread."""
        if threading.current_thread() is self.thread:
            work.close()
            raise IllegalState("a blocking call on the event loop's own thread would never return")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        future.add_done_callback(lambda _: callbacks.put(None))
        try:
            while (callback := callbacks.get()) is not None:
                callback()
            return future.result()
        except BaseException:
            # Ctrl+C, or what a callback raised past us: nobody waits for the work any more.
            future.cancel()
            raise


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


_shared: LoopThread | None = None
_sharing = threading.Lock()


def loop_thread() -> LoopThread:
    """The one of this process, begun at the first call."""
    global _shared
    with _sharing:
        if _shared is None or _shared.pid != os.getpid():
            _shared = LoopThread()
        return _shared
