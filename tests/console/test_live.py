"""Feeds of events: all pages share one poll, and without a page there is no poll."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import structlog.testing

from odradek_client.errors import TopicAuthorizationFailed
from odradek_console.answers import HttpProblem, Json
from odradek_console.live import Feed, Hub
from odradek_console.sessions import ConsoleSession
from waiting import until


class _Source:
    """A value that a feed polls; each poll waits for the test."""

    def __init__(self) -> None:
        self.polls = 0
        self.value: Json | Exception = {"value": 0}
        self.names: list[str] = []
        self.turn = asyncio.Semaphore(0)

    async def poll(self, _session: ConsoleSession, name: str) -> Json:
        await self.turn.acquire()
        self.polls += 1
        self.names.append(name)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value

    async def step(self) -> None:
        """Let one poll continue, and wait until it is done."""
        polls = self.polls
        self.turn.release()
        await until(lambda: self.polls > polls)


def _hub(source: _Source) -> Hub:
    return Hub(ConsoleSession({}), {"counter": Feed(source.poll, every_ms=0)})


async def _next(events: Any) -> tuple[str, Json]:
    """(id, data) of the next event that has data."""
    while True:
        lines = (await anext(events)).decode().splitlines()
        if lines[0].startswith("id: "):
            return lines[0].removeprefix("id: "), json.loads(lines[1].removeprefix("data: "))


async def test_pages_share_one_poll_that_ends_with_the_last_page() -> None:
    source = _Source()
    hub = _hub(source)
    first, second = hub.events(["counter:a"]), hub.events(["counter:a"])
    source.turn.release()
    assert (await _next(first))[1] == {"feed": "counter:a", "data": {"value": 0}}
    assert (await _next(second))[1] == {"feed": "counter:a", "data": {"value": 0}}
    assert (source.polls, source.names, hub.polls) == (1, ["a"], 1)
    await first.aclose()
    assert hub.polls == 1
    await second.aclose()
    assert hub.polls == 0
    polls = source.polls
    source.turn.release()
    await asyncio.sleep(0)
    assert source.polls == polls


async def test_a_page_gets_events_for_changes_only_and_the_newest_if_slow() -> None:
    source = _Source()
    hub = _hub(source)
    events = hub.events(["counter"])
    source.turn.release()
    await _next(events)
    for value in (0, 0, 1, 2):
        source.value = {"value": value}
        await source.step()
    await asyncio.sleep(0)
    assert (await _next(events))[1]["data"] == {"value": 2}
    await events.aclose()


async def test_a_page_that_reconnects_gets_the_events_that_it_has_missed() -> None:
    source = _Source()
    hub = _hub(source)
    other = hub.events(["counter"])
    source.turn.release()
    last_id, _ = await _next(other)
    back = hub.events(["counter"], last_id)
    waits = asyncio.create_task(_next(back))
    await asyncio.sleep(0)
    assert not waits.done()
    source.value = {"value": 1}
    source.turn.release()
    assert (await waits)[1]["data"] == {"value": 1}
    # Event ids of another run of the console, and invalid ids, are ignored.
    run = last_id.partition("-")[0]
    others = []
    for strange_id in ("00000000-99", f"{run}-", f"{run}-x", f"{run}-{'9' * 5_000}"):
        others.append(hub.events(["counter"], strange_id))
        assert (await _next(others[-1]))[1]["data"] == {"value": 1}
    for events in (other, back, *others):
        await events.aclose()


@pytest.mark.parametrize(
    ("error", "title"),
    [
        (TopicAuthorizationFailed("a"), "A right on the topic is missing"),
        (HttpProblem(404, "Gone"), "Gone"),
        (ZeroDivisionError("secret"), "The console failed"),
    ],
)
async def test_a_failed_poll_is_reported_and_followed_by_the_next_one(
    error: Exception, title: str
) -> None:
    source = _Source()
    hub = _hub(source)
    source.value = error
    events = hub.events(["counter"])
    source.turn.release()
    _, told = await _next(events)
    assert told["error"]["title"] == title
    assert "secret" not in json.dumps(told)
    source.value = {"value": 1}
    source.turn.release()
    assert (await _next(events))[1]["data"] == {"value": 1}
    await events.aclose()


async def test_unknown_and_too_many_feeds_are_refused() -> None:
    hub = _hub(_Source())
    for names, status in (
        ([], 400),
        ([f"counter:{n}" for n in range(17)], 400),
        (["nothing"], 404),
        (["counter:" + "x" * 10_000], 400),
    ):
        with pytest.raises(HttpProblem) as refused:
            hub.check(names)
        assert refused.value.status == status
    pages = []
    for page in range(8):
        pages.append(hub.events([f"counter:{page}-{n}" for n in range(16)]))
        await anext(pages[-1])
    with pytest.raises(HttpProblem, match="Too many"):
        hub.check(["counter:another"])
    hub.check(["counter:0-0"])
    await hub.close()
    for events in pages:
        await events.aclose()
    assert hub.polls == 0


async def test_a_feed_that_fails_again_and_again_does_not_fill_the_log() -> None:
    """A broker that answers nonsense made a traceback every two seconds for each open page."""
    source = _Source()
    hub = _hub(source)
    source.value = ValueError("the broker's answer makes no sense")
    with structlog.testing.capture_logs() as lines:
        events = hub.events(["counter"])
        source.turn.release()
        assert "error" in (await _next(events))[1]
        for _ in range(20):
            await source.step()
    await events.aclose()
    assert len(lines) == 1
