"""Live tails: new records, samples of bursts, unreachable brokers, and the end of a tail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from console_process import console_process
from odradek import Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic
from odradek_client.admin.broker import Section
from odradek_console import tail
from odradek_console.answers import PageQuery
from odradek_console.asked import Asked
from odradek_console.sessions import ConsoleSession
from waiting import DEADLINE_S, until


@asynccontextmanager
async def _tail(
    bootstrap: str, topic: str, last_id: str = "", **params: str
) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    settings = {"bootstrap_servers": bootstrap}
    session = ConsoleSession({"admin": settings, "consumer": settings})
    stream = await tail.tail(Asked(session, PageQuery({"topic": topic, **params}), last_id))
    try:
        yield stream.pieces
    finally:
        await stream.pieces.aclose()
        await session.close()


async def _next(events: AsyncGenerator[bytes, None]) -> tuple[str, dict[str, Any]]:
    """(id, data) of the next event that has data."""
    while True:
        lines = (await anext(events)).decode().splitlines()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        if data:
            ids = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
            return (ids or [""])[0], json.loads(data[0])


async def _create(bootstrap: str, topic: str, partitions: int = 1) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(NewTopic(topic, partitions=partitions))


async def test_a_tail_shows_records_written_after_its_start(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic, 2)
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        await producer.send_and_wait(unique_topic, b"before", partition=0)
        async with _tail(live_bootstrap, unique_topic, filter="value~new") as events:
            assert (await _next(events))[1] == {"state": "live", "partitions": 2}
            await producer.send_and_wait(unique_topic, b"other", partition=0)
            await producer.send_and_wait(unique_topic, b"new", partition=1)
            received = 0
            rows: list[Any] = []
            while not rows:
                last_id, told = await _next(events)
                received += told["received"]
                rows += told["rows"]
            assert (received, rows[0]["value"]["text"]) == (2, "new")
        # A page that connects again continues after the last event it got.
        await producer.send_and_wait(unique_topic, b"new: meanwhile", partition=1)
        async with _tail(live_bootstrap, unique_topic, last_id) as events:
            assert (await _next(events))[1]["state"] == "live"
            _, told = await _next(events)
            assert [row["value"]["text"] for row in told["rows"]] == ["new: meanwhile"]


async def test_a_burst_is_sampled_and_counted(live_bootstrap: str, unique_topic: str) -> None:
    await _create(live_bootstrap, unique_topic)
    async with (
        Producer(bootstrap_servers=live_bootstrap) as producer,
        _tail(live_bootstrap, unique_topic, filter="key=a") as events,
    ):
        await _next(events)
        for number in range(10_000):
            await producer.send(unique_topic, b"%d" % number, key=b"ab"[number % 2 :][:1])
        await producer.flush()
        received = matched = shown = 0
        while received < 10_000:
            _, told = await _next(events)
            assert len(told["rows"]) <= tail.ROWS_MAX
            received += told["received"]
            matched += told["matched"]
            shown += len(told["rows"])
        assert (received, matched) == (10_000, 5_000)
        assert 0 < shown < 5_000


async def test_a_burst_that_a_page_can_keep_is_shown_whole(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    async with (
        Producer(bootstrap_servers=live_bootstrap) as producer,
        _tail(live_bootstrap, unique_topic) as events,
    ):
        await _next(events)
        for number in range(tail.ROWS_MAX):
            await producer.send(unique_topic, b"%d" % number)
        await producer.flush()
        values: list[int] = []
        while len(values) < tail.ROWS_MAX:
            _, told = await _next(events)
            assert told["matched"] == len(told["rows"])
            values += [int(row["value"]["text"]) for row in told["rows"]]
        assert sorted(values) == list(range(tail.ROWS_MAX))


@pytest.mark.full
async def test_a_tail_far_behind_jumps_to_the_end_and_reports_it(
    live_bootstrap: str, unique_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_BEHIND_MAX", 50)
    await _create(live_bootstrap, unique_topic)
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        async with _tail(live_bootstrap, unique_topic) as events:
            await _next(events)
            await producer.send_and_wait(unique_topic, b"first")
            last_id, _ = await _next(events)
        for _ in range(100):
            await producer.send(unique_topic, b"missed")
        await producer.flush()
        async with _tail(live_bootstrap, unique_topic, last_id) as events:
            await _next(events)
            _, told = await _next(events)
            assert (told["skipped"], told["rows"]) == (100, [])
            await producer.send_and_wait(unique_topic, b"new")
            _, told = await _next(events)
            assert [row["value"]["text"] for row in told["rows"]] == ["new"]


async def test_a_tail_ends_with_its_page_and_closes_its_client(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    async with _tail(live_bootstrap, unique_topic) as events:
        await _next(events)
        assert tail.running() == 1
        waits = asyncio.create_task(_next(events))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
    assert tail.running() == 0
    await until(lambda: not tail._closing)


async def test_a_tail_ends_with_the_session_of_its_user(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    settings = {"bootstrap_servers": live_bootstrap}
    session = ConsoleSession({"admin": settings})
    stream = await tail.tail(Asked(session, PageQuery({"topic": unique_topic})))
    await _next(stream.pieces)
    await session.close()
    assert (await _next(stream.pieces))[1]["error"]["title"] == "The session has ended"
    with pytest.raises(StopAsyncIteration):
        await anext(stream.pieces)


@pytest.mark.full
async def test_connections_of_a_tail_end_when_its_browser_leaves(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    bootstrap = odradek_broker.bootstrap
    await _create(bootstrap, unique_topic)
    with console_process(bootstrap) as address:
        async with Admin(bootstrap_servers=bootstrap) as admin, httpx.AsyncClient() as browser:

            async def fetching() -> bool:
                found = await admin.describe_broker_status(Section.CONNECTIONS)
                return any(each.api_name == "Fetch" for each in found.connections)

            async def wait_for(expected: bool) -> None:
                async with asyncio.timeout(DEADLINE_S):
                    while await fetching() is not expected:  # noqa: ASYNC110  no event says so
                        await asyncio.sleep(0.05)

            url = f"{address}api/tail?topic={unique_topic}"
            async with browser.stream("GET", url) as answer:
                # The answer would end if its iterator were not kept.
                lines = answer.aiter_lines()
                await anext(lines)
                await wait_for(True)
            await wait_for(False)


async def test_the_number_of_tails_is_limited(
    live_bootstrap: str, unique_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_TAILS_MAX", 1)
    await _create(live_bootstrap, unique_topic)
    async with _tail(live_bootstrap, unique_topic) as events:
        await _next(events)
        async with _tail(live_bootstrap, unique_topic) as refused:
            assert "Too many tails" in (await _next(refused))[1]["error"]["title"]
            with pytest.raises(StopAsyncIteration):
                await anext(refused)


async def test_a_tail_of_a_missing_or_deleted_topic_tells_an_error(
    live_bootstrap: str, unique_topic: str
) -> None:
    async with _tail(live_bootstrap, unique_topic) as events:
        assert (await _next(events))[1]["error"]["title"] == "There is no such topic or partition"
    await _create(live_bootstrap, unique_topic)
    async with _tail(live_bootstrap, unique_topic) as events:
        await _next(events)
        async with Admin(bootstrap_servers=live_bootstrap) as admin:
            await admin.delete_topics([unique_topic])
        assert (await _next(events))[1]["error"]["title"] == "There is no such topic or partition"
        with pytest.raises(StopAsyncIteration):
            await _next(events)


@pytest.mark.full
async def test_a_tail_survives_a_restart_of_its_broker(
    odradek_broker: SubprocessBroker, unique_topic: str
) -> None:
    bootstrap = odradek_broker.bootstrap
    await _create(bootstrap, unique_topic)
    async with _tail(bootstrap, unique_topic) as events:
        await _next(events)
        await asyncio.to_thread(odradek_broker.kill)
        _, told = await _next(events)
        assert told["state"] == "lost" and told["why"]
        await asyncio.to_thread(odradek_broker.restart)
        assert (await _next(events))[1]["state"] == "live"
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(unique_topic, b"after")
        _, told = await _next(events)
        assert [row["value"]["text"] for row in told["rows"]] == ["after"]


def test_samples_are_spread_evenly_and_include_the_last_record() -> None:
    assert tail.sample([1, 2, 3], 3) == [1, 2, 3]
    assert tail.sample(range(1, 101), 4) == [25, 50, 75, 100]


async def test_rows_of_several_partitions_are_ordered_by_time(
    live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic, 3)
    async with (
        Producer(bootstrap_servers=live_bootstrap) as producer,
        _tail(live_bootstrap, unique_topic) as events,
    ):
        await _next(events)
        for number in range(12):
            await producer.send(
                unique_topic, b"%d" % number, partition=number % 3, timestamp_ms=number
            )
        await producer.flush()
        received = 0
        while received < 12:
            _, told = await _next(events)
            times = [row["timestamp"] for row in told["rows"]]
            assert times == sorted(times)
            received += told["received"]
