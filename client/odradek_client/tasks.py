"""The background tasks of clients, and what follows when others end them (C-83).

A task may be cancelled by the application, which can see all tasks of its event loop, or by the end
of `asyncio.run`; and an exception that no code expects may end it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from odradek_client.errors import Closed, IllegalState, InternalError, OdradekError, TaskCancelled
from odradek_protocol.primitives import WireError

T = TypeVar("T")

#: The pause before a task that was ended begins again. At the end of `asyncio.run`, which cancels
#: every task, the loop is closed before that.
_AGAIN_S = 0.1

log = logging.getLogger("odradek.client")


async def cancel(*tasks: asyncio.Task[None] | None) -> None:
    """Cancel the tasks, and wait until all have ended. Their exceptions are ignored."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def failure_of(task: asyncio.Future[Any], what: str) -> OdradekError | None:
    """The reason why a task has failed; None if it succeeded. `what`: the work of the task, for
    messages. An exception that nobody expects is also logged."""
    if task.cancelled() or isinstance(task.exception(), KeyboardInterrupt | SystemExit):
        return TaskCancelled(f"{what} was cancelled by another part of the program")
    return as_odradek(task.exception(), what)


def as_odradek(error: BaseException | None, what: str) -> OdradekError | None:
    """The error as one that the client raises."""
    if error is None or isinstance(error, OdradekError):
        return error
    if isinstance(error, WireError):
        found = OdradekError(f"the broker cannot be asked: {error}")
    else:
        log.error("%s failed", what, exc_info=error)
        found = InternalError(f"{what} failed with {type(error).__name__}: {error}")
    found.__cause__ = error
    return found


async def together(what: str, *works: Awaitable[T]) -> list[T | OdradekError]:
    """The results of all works, which run in tasks of their own; errors are in the results."""
    tasks = [asyncio.ensure_future(work) for work in works]
    await asyncio.gather(*tasks, return_exceptions=True)
    return [failure_of(task, what) or task.result() for task in tasks]


async def all_done(what: str, *works: Awaitable[T]) -> list[T]:
    """The results of all works, which run in tasks of their own. Raises the first of their
    errors."""
    found: list[T] = []
    for each in await together(what, *works):
        if isinstance(each, OdradekError):
            raise each
        found.append(each)
    return found


def begin(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, None],
    what: str,
    ended: Callable[[OdradekError | None], None],
    *,
    name: str | None = None,
) -> asyncio.Task[None]:
    """Run work in a task. `ended` is called with the reason of a failure, or with None, however the
    task ends; even if it was cancelled before it began."""
    task = loop.create_task(work, name=name)
    task.add_done_callback(lambda task: ended(failure_of(task, what)))
    return task


class LastingTask:
    """A task that runs until `stop`. If others end it, it begins again after a short pause.

    `ended` is called with the reason whenever others have ended the task.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Callable[[], Coroutine[Any, Any, None]],
        what: str,
        ended: Callable[[OdradekError], None] = lambda _: None,
    ) -> None:
        self._loop = loop
        self._work = work
        self._what = what
        self._ended = ended
        self._stopped = False
        self._again: asyncio.TimerHandle | None = None
        self._task = self._begin()

    def _begin(self) -> asyncio.Task[None]:
        return begin(self._loop, self._work(), self._what, self._on_end, name=self._what)

    def _begin_again(self, failure: OdradekError) -> None:
        # At the end of `asyncio.run` the loop is closed before this line is logged.
        log.warning("%s; it begins again", failure)
        self._task = self._begin()

    def _on_end(self, failure: OdradekError | None) -> None:
        if self._stopped:
            return
        if failure is None:
            failure = InternalError(f"{self._what} ended by itself")
        self._again = self._loop.call_later(_AGAIN_S, self._begin_again, failure)
        self._ended(failure)

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        self._stopped = True
        self._task.cancel()
        if self._again is not None:
            self._again.cancel()

    async def stopped(self) -> None:
        """`stop`, and wait until the task has ended."""
        self.stop()
        await cancel(self._task)


def require_running(loop: asyncio.AbstractEventLoop) -> None:
    """Raise Closed if the event loop of a client is closed; IllegalState under another loop."""
    if loop.is_closed():
        raise Closed(
            "the event loop in which this client was started is closed, and with it the client; make"
            " a new one in the present loop"
        )
    require_own(loop)


def require_own(loop: asyncio.AbstractEventLoop) -> None:
    """Raise IllegalState under another event loop than the client's."""
    running = asyncio._get_running_loop()
    if running is not loop and running is not None:
        raise IllegalState(
            "this client belongs to another event loop, in which it was started; make one in this"
            " loop, or use odradek.sync"
        )


class OfOneProcess:
    """The base of the clients, which cannot be pickled."""

    def __reduce__(self) -> NoReturn:
        raise IllegalState(
            f"{type(self).__name__}: connections cannot be pickled or copied; make one where it is"
            " used (in Spark inside of the function that its tasks run)"
        )


class Waiter(asyncio.Future[None]):
    """A future that may be completed after its event loop was closed, when nobody waits for it."""

    def set_result(self, result: None, /) -> None:
        if not self.get_loop().is_closed():
            super().set_result(result)
