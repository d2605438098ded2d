"""Answers that are shared by the pages of one principal."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, cast

import pytest

from odradek_client.admin import Admin
from odradek_client.errors import Refused
from odradek_console import sessions
from odradek_console.answers import HttpProblem
from odradek_console.sessions import ConsoleSession

_LONG_MS = 3_600_000


class _Asked:
    """A question that counts its calls, and waits for the test before it answers."""

    def __init__(self) -> None:
        self.count = 0
        self.answer = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, _admin: Admin) -> int:
        self.count += 1
        count = self.count
        await self.answer.wait()
        if self.error is not None:
            raise self.error
        return count


def _session() -> ConsoleSession:
    return ConsoleSession({}, _admin=cast(Any, object()))


async def test_concurrent_equal_requests_share_one_answer() -> None:
    session, asked = _session(), _Asked()
    first = asyncio.create_task(session.cached("key", 0, asked))
    second = asyncio.create_task(session.cached("key", 0, asked))
    await asyncio.sleep(0)
    asked.answer.set()
    assert (await first, await second) == (1, 1)


async def test_a_closed_page_does_not_cancel_a_shared_request() -> None:
    session, asked = _session(), _Asked()
    first = asyncio.create_task(session.cached("key", 0, asked))
    second = asyncio.create_task(session.cached("key", 0, asked))
    await asyncio.sleep(0)
    first.cancel()
    asked.answer.set()
    assert await second == 1


async def test_an_answer_is_cached_until_it_is_forgotten() -> None:
    session, asked = _session(), _Asked()
    asked.answer.set()
    assert await session.cached("key", _LONG_MS, asked) == 1
    assert await session.cached("key", _LONG_MS, asked) == 1
    assert await session.cached("other", _LONG_MS, asked) == 2
    session.forget("key")
    assert await session.cached("key", _LONG_MS, asked) == 3
    session.forget()
    assert await session.cached("other", _LONG_MS, asked) == 4


async def test_an_error_is_not_cached() -> None:
    session, asked = _session(), _Asked()
    asked.answer.set()
    asked.error = Refused("no")
    with pytest.raises(Refused):
        await session.cached("key", _LONG_MS, asked)
    asked.error = None
    assert await session.cached("key", _LONG_MS, asked) == 2


async def test_the_number_of_cached_answers_is_limited() -> None:
    session, asked = _session(), _Asked()
    asked.answer.set()
    for number in range(300):
        await session.cached(number, _LONG_MS, asked)
    assert await session.cached(299, _LONG_MS, asked) == 300
    assert await session.cached(0, _LONG_MS, asked) == 301


class _SlowAdmin:
    """A fake admin client that takes a while to start; `made` lists all of them."""

    made: ClassVar[list[_SlowAdmin]] = []

    def __init__(self, **_settings: Any) -> None:
        self.closed = False
        self.made.append(self)

    async def start(self) -> None:
        await asyncio.sleep(0.01)

    async def close(self) -> None:
        self.closed = True


async def test_a_closed_session_starts_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "Admin", _SlowAdmin)
    session = ConsoleSession({"admin": {}})
    starting = asyncio.create_task(session.admin())
    await asyncio.sleep(0)
    await session.close()
    with pytest.raises(HttpProblem, match="signed out"):
        await starting
    with pytest.raises(HttpProblem, match="signed out"):
        await session.cached("key", 0, _Asked())
    assert [admin.closed for admin in _SlowAdmin.made] == [True]


def test_a_slow_answer_is_cached_for_seconds_only() -> None:
    async def wait() -> None:
        kept = sessions._Kept(asyncio.create_task(asyncio.sleep(0)), began_s=0.0)
        await kept.task
        kept.ended_s = 60.0
        assert kept.serves(60.0 + 29, keep_ms=10)
        assert not kept.serves(60.0 + 31, keep_ms=10)

    asyncio.run(wait())
