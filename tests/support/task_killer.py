"""A task factory that ends one task of the client from outside: the task is cancelled, or killed by
an exception."""

from __future__ import annotations

import asyncio
import types
from collections import Counter
from collections.abc import Coroutine, Generator
from enum import Enum
from pathlib import Path
from typing import Any, Self, cast

import odradek
import odradek_client
import odradek_mirror

_CLIENT = tuple(
    Path(str(package.__file__)).parent for package in (odradek_client, odradek_mirror, odradek)
)


class Planted(RuntimeError):
    """The exception that kills a task."""


class Ending(Enum):
    """How a task ends."""

    UNBEGUN = "cancelled before it began"
    CANCELLED = "cancelled while it waited"
    RAISED = "an exception where it waited"
    KILLED = "an exception that it could not handle"


class TaskKiller:
    """Records the names of the tasks that the client creates while the block runs, and ends the
    first task named `victim`. No effect while `paused`.

    `all_at`: all running tasks are cancelled when this number of tasks has begun.
    """

    def __init__(
        self, victim: str = "", ending: Ending = Ending.CANCELLED, *, all_at: int = 0
    ) -> None:
        self.begun = Counter[str]()
        self.tasks = dict[asyncio.Task[Any], str]()
        self.victim = victim
        self.paused = False
        self._ending = ending
        self._all_at = all_at
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        self._loop.set_task_factory(cast(Any, self._make))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.set_task_factory(None)

    def _make(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **named: Any
    ) -> asyncio.Task[Any]:
        code = getattr(work, "cr_code", None)
        if (
            self.paused
            or code is None
            or not any(Path(code.co_filename).is_relative_to(folder) for folder in _CLIENT)
        ):
            return asyncio.Task(work, loop=loop, **named)
        name = code.co_qualname
        self.begun[name] += 1
        chosen = name == self.victim and self.begun[name] == 1
        if chosen and self._ending in (Ending.RAISED, Ending.KILLED):
            work = _as_coroutine(_killed(work, self._ending is Ending.RAISED))
        task = asyncio.Task(work, loop=loop, **named)
        self.tasks[task] = name
        task.add_done_callback(self.tasks.pop)
        if self.begun.total() == self._all_at:
            for each in list(self.tasks):
                each.cancel()
        if chosen and self._ending is Ending.UNBEGUN:
            task.cancel()
        elif chosen and self._ending is Ending.CANCELLED:
            loop.call_soon(task.cancel)
        return task


async def _as_coroutine(work: Any) -> Any:
    return await work


@types.coroutine
def _killed(work: Coroutine[Any, Any, Any], raised: bool) -> Generator[Any, Any, Any]:
    """Run `work` until it first waits, and then raise in it, or instead of it."""
    try:
        yield work.send(None)
        if not raised:
            work.close()
            raise Planted("planted")
        waits_for = work.throw(Planted("planted"))
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001  the work decides
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as end:
        return end.value
