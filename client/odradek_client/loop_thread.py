"""An event loop in a thread of its own, for programs and frameworks without an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from odradek_client.errors import Closed

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread. `pid`: the process in which the thread runs; a forked
    process has a copy of the object, without the thread."""

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()
        self.loop = _new_loop()
        #: Results for which other threads wait.
        self._awaited: weakref.WeakSet[Future[Any]] = weakref.WeakSet()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            # An exception such as SystemExit in a callback ends the thread (C-83).
            # uvloop complains of open connections after it has closed the loop.
            with suppress(OSError):
                self.loop.close()
            for future in list(self._awaited):
                if not future.done():
                    future.set_exception(self.ended())

    @property
    def is_running(self) -> bool:
        """True in the process that started the thread, unless the thread has ended."""
        # Ctrl+C during `Thread.is_alive` may mark a running thread as ended.
        return self.pid == os.getpid() and not self.loop.is_closed()

    def ended(self) -> Closed:
        """The error of calls that need the thread after its end."""
        return Closed(
            f"the event loop of the thread {self.thread.name} has ended, and with it this client;"
            " make a new one"
        )

    def soon(self, method: Callable[..., object], *args: Any) -> None:
        """Call a method on the loop's thread. Closed if the thread has ended."""
        try:
            self.loop.call_soon_threadsafe(method, *args)
        except RuntimeError:
            raise self.ended() from None

    def future(self) -> Future[Any]:
        """A future for another thread; it fails with Closed if the loop's thread ends."""
        made: Future[Any] = Future()
        self._awaited.add(made)
        return made

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine without waiting for its end. The future fails with Closed if the loop's
        thread ends."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise self.ended() from None
        self._awaited.add(future)
        return future


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
