"""Throughput, requests with percentiles, and connections, with a broker that describes itself."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from odradek import Producer
from odradek_client.admin import Admin
from odradek_client.admin.broker import BrokerDescription, RequestCounts
from odradek_client.errors import UnsupportedByBroker
from odradek_console.operations import FEEDS, percentile_ms, rates, request_row, since
from odradek_console.sessions import ConsoleSession
from waiting import deadline_in

_BOUNDS_US = [100, 200, 400]


def _description(now_ms: int, started_ms: int = 1, **counters: float) -> BrokerDescription:
    return BrokerDescription(1, "0", now_ms, started_ms, None, counters=counters)


def test_a_sample_has_rates_per_second_and_the_mean_flush_time() -> None:
    before = _description(
        1_000, appended_bytes_total=100, flushes_total=2, flush_time_us_total=5_000
    )
    after = _description(
        3_000,
        appended_bytes_total=4_100,
        flushes_total=4,
        flush_time_us_total=8_000,
        connections=7,
    )
    sample = rates(before, after)
    assert sample is not None
    assert (sample["time_ms"], sample["in_bytes"], sample["flush_ms"]) == (3_000, 2_000.0, 1.5)
    assert (sample["connections"], sample["requests"]) == (7, 0.0)


def test_a_sample_without_a_flush_has_no_flush_time() -> None:
    sample = rates(_description(1_000), _description(3_000))
    assert sample is not None and sample["flush_ms"] is None


@pytest.mark.parametrize(
    ("now_ms", "started_ms"),
    [
        # The three cases: a restart between the samples, both samples at one moment, samples that
        # are too far apart.
        (3_000, 2_000),
        (1_000, 1),
        (60_000, 1),
    ],
)
def test_samples_without_an_interval_between_them_have_no_rates(
    now_ms: int, started_ms: int
) -> None:
    assert rates(_description(1_000), _description(now_ms, started_ms)) is None


@pytest.mark.parametrize(
    ("counts", "share", "ms"),
    [
        ([0, 0, 0, 0], 0.5, None),
        ([10, 0, 0, 0], 0.5, 0.05),
        ([0, 10, 0, 0], 0.5, 0.15),
        ([5, 5, 0, 0], 0.5, 0.1),
        ([9, 0, 0, 1], 0.99, 0.4),
        ([90, 0, 10, 0], 0.95, 0.3),
    ],
)
def test_percentiles_lie_within_their_bucket(
    counts: list[int], share: float, ms: float | None
) -> None:
    assert percentile_ms(counts, _BOUNDS_US, share) == ms


def test_recent_requests_are_the_difference_of_two_counts() -> None:
    old = RequestCounts("Fetch", 10, 1, 1_000, [10, 0, 0, 0])
    new = RequestCounts("Fetch", 14, 2, 2_200, [10, 0, 4, 0])
    recent = since(new, old)
    assert recent.counts == [0, 0, 4, 0]
    row = request_row(recent, _BOUNDS_US, 2_000)
    assert (row["requests"], row["errors"], row["per_s"], row["mean_ms"]) == (4, 1, 2.0, 0.3)
    assert row["p50_ms"] == 0.3
    assert since(new, None) == new


def test_steps_of_the_protocol_are_apart_from_errors() -> None:
    old = RequestCounts("Heartbeat", 10, 0, 1, [10], {"REBALANCE_IN_PROGRESS": 2})
    codes = {"REBALANCE_IN_PROGRESS": 5, "GROUP_AUTHORIZATION_FAILED": 1}
    new = RequestCounts("Heartbeat", 20, 1, 2, [20], codes)
    row = request_row(since(new, old), [100], 2_000)
    assert row["errors"] == 1
    assert row["codes"] == [
        ["REBALANCE_IN_PROGRESS", 3, True],
        ["GROUP_AUTHORIZATION_FAILED", 1, False],
    ]


async def test_feeds_have_throughput_and_requests_of_a_broker(
    live_bootstrap: str, unique_topic: str
) -> None:
    session = ConsoleSession({"admin": {"bootstrap_servers": live_bootstrap}})
    try:
        first = await FEEDS["throughput"].poll(session, "")
        assert first["counters"]["connections"] >= 1
        async with Producer(bootstrap_servers=live_bootstrap) as producer:
            await producer.send_and_wait(unique_topic, b"x" * 1_000)
        session.forget()
        second = await FEEDS["throughput"].poll(session, "")
        assert second["sample"]["in_bytes"] > 0
        requests = await FEEDS["requests"].poll(session, "")
        (produce,) = [row for row in requests["rows"] if row["name"] == "Produce"]
        assert produce["total"]["requests"] >= 1
        assert produce["total"]["p99_ms"] > 0
    finally:
        await session.close()


async def test_charts_begin_with_samples_kept_by_the_broker(
    console_client: httpx.AsyncClient,
) -> None:
    """The first answer to a page already has samples, because the broker keeps them."""
    check = deadline_in(60)
    found: list[dict[str, float]] = []
    while not found:
        check("the broker takes two samples")
        await asyncio.sleep(0.5)
        found = (await console_client.get("/api/throughput")).json()["samples"]
    assert found[0]["requests"] >= 0
    assert found[0].keys() >= {"time_ms", "in_bytes", "out_bytes", "errors", "connections"}


async def test_connections_are_listed_in_pages(
    console_client: httpx.AsyncClient, live_bootstrap: str
) -> None:
    async with Admin(bootstrap_servers=live_bootstrap, client_id="only-one-of-these"):
        answer = await console_client.get(
            "/api/connections", params={"filter": "only-one", "limit": 5}
        )
    body = answer.json()
    assert body["total"] == len(body["rows"]) >= 1
    assert {row["client_id"] for row in body["rows"]} == {"only-one-of-these"}
    assert body["rows"][0]["opened_ms"] <= body["now_ms"]


async def test_brokers_without_a_description_of_themselves_are_a_clear_error(
    console_client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unsupported(_self: Admin, *_: object, **__: object) -> None:
        raise UnsupportedByBroker("this broker does not describe itself")

    monkeypatch.setattr(Admin, "describe_broker_status", unsupported)
    answer = await console_client.get("/api/connections")
    assert answer.status_code == 501
    assert "does not describe itself" in answer.json()["error"]["detail"]
    assert (await console_client.get("/api/overview")).status_code == 200
