"""Sessions, each with the clients of one principal, which all pages of that principal share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from odradek_client.admin import Admin
from odradek_console.answers import HttpProblem

T = TypeVar("T")

#: The maximum number of answers that a session keeps.
_KEPT_MAX = 256
#: The minimum time for which an answer is kept, as a multiple of the time that the broker took for
#: the answer. So the broker spends at most a twentieth of its time on one request.
_KEPT_TIMES = 19
#: The maximum time that `_KEPT_TIMES` can give. There is a limit, because an answer also takes long
#: if the broker was unreachable for a while.
_KEPT_S_MAX = 30.0

#: The settings by kind of client: "admin", "consumer" or "producer".
ClientSettings = Mapping[str, Mapping[str, Any]]


@dataclass
class _Kept:
    task: asyncio.Task[Any]
    began_s: float
    ended_s: float | None = None

    def serves(self, now_s: float, keep_ms: int) -> bool:
        if self.ended_s is None:
            return True
        if self.task.cancelled() or self.task.exception() is not None:
            return False
        of_time_s = min(_KEPT_S_MAX, _KEPT_TIMES * (self.ended_s - self.began_s))
        keep_s = max(keep_ms / 1_000, of_time_s)
        return now_s - self.ended_s < keep_s


@dataclass(eq=False)
class ConsoleSession:
    """A principal's clients and their recent answers. `user`: None if nobody has to sign in.

    `settings` are those of the clients, for views that need a separate client. `cluster`: the name
    of the cluster; "" in a console for one cluster. `streams`: the
    number of streams (answers in pieces) in progress. A stream with a separate client ends when
    `closed` is true.
    """

    settings: ClientSettings
    user: str | None = None
    cluster: str = ""
    streams: int = 0
    closed: bool = False
    _admin: Admin | None = None
    _starting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _kept: dict[Hashable, _Kept] = field(default_factory=dict)
    _stores: dict[type[Any], Any] = field(default_factory=dict)

    async def admin(self) -> Admin:
        """The session's only `Admin`, started at the first call.

        Raises MetadataTimeout, AuthenticationFailed; the next call then tries again. Refusal if the
        session is closed, because a client that was started afterwards would never be closed.
        """
        async with self._starting:
            self._refuse_if_closed()
            if self._admin is None:
                admin = Admin(**self.settings["admin"])
                try:
                    await admin.start()
                    self._refuse_if_closed()
                except BaseException:
                    await admin.close()
                    raise
                self._admin = admin
            return self._admin

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise HttpProblem(401, "You are signed out", "", "Sign in again.")

    async def cached(self, key: Hashable, keep_ms: int, ask: Callable[[Admin], Awaitable[T]]) -> T:
        """The kept answer with the same key if it is less than `keep_ms` old, or else a new answer.

        Callers that ask for the same key at the same time share an answer. Errors are not kept. An
        answer that took long is kept for longer.
        """
        kept = self._kept.get(key)
        if kept is None or not kept.serves(time.monotonic(), keep_ms):
            kept = _Kept(asyncio.create_task(self._ask(ask)), time.monotonic())
            kept.task.add_done_callback(lambda _: _ended(kept))
            self._kept.pop(key, None)
            self._kept[key] = kept
            while len(self._kept) > _KEPT_MAX:
                self._kept.pop(next(iter(self._kept)))
        # Other pages may wait for the same answer, so a closed page must not cancel the request.
        answer: T = await asyncio.shield(kept.task)
        return answer

    def store(self, kind: type[T]) -> T:
        """The session's only object of a class, created at the first call. The class limits the
        memory of the object."""
        if kind not in self._stores:
            self._stores[kind] = kind()
        found: T = self._stores[kind]
        return found

    async def _ask(self, ask: Callable[[Admin], Awaitable[T]]) -> T:
        return await ask(await self.admin())

    def forget(self, *keys: Hashable) -> None:
        """Drop the answers with these keys, because a change has made the answers invalid; without
        keys, drop all answers."""
        for key in keys or tuple(self._kept):
            self._kept.pop(key, None)

    async def close(self) -> None:
        """Close the clients."""
        self.closed = True
        tasks = [kept.task for kept in self._kept.values()]
        self._kept.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._admin is not None:
            admin, self._admin = self._admin, None
            await admin.close()


def _ended(kept: _Kept) -> None:
    kept.ended_s = time.monotonic()
    if not kept.task.cancelled():
        # The error is retrieved, because asyncio would otherwise report that nobody has retrieved
        # it.
        kept.task.exception()
