"""The list of topics, and the overview, with a real broker."""

from __future__ import annotations

import httpx
import pytest

from odradek import Producer
from odradek_client.admin import Admin, NewTopic
from odradek_client.errors import OdradekError
from odradek_console.sessions import ConsoleSession
from odradek_console.topics import topic_table


@pytest.fixture
async def made(live_bootstrap: str, unique_topic: str) -> str:
    """Create three topics, the last of which has five records; returns the common prefix of the
    names."""
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(f"{unique_topic}-{n}", partitions=n) for n in (1, 2, 3)]
        )
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        for number in range(5):
            await producer.send_and_wait(f"{unique_topic}-3", b"x", partition=number % 3)
    return unique_topic


async def test_topics_are_listed_in_pages_with_partitions_offsets_and_size(
    console_client: httpx.AsyncClient, made: str
) -> None:
    answer = await console_client.get(
        "/api/topics", params={"filter": made.upper(), "sort": "-partitions", "limit": 2}
    )
    body = answer.json()
    assert [(row["name"], row["partitions"], row["offsets"]) for row in body["rows"]] == [
        (f"{made}-3", 3, 5),
        (f"{made}-2", 2, 0),
    ]
    assert (body["total"], body["missing"]) == (3, [])
    assert body["total_unfiltered"] >= 3
    assert body["rows"][0]["size_bytes"] > body["rows"][1]["size_bytes"] == 0


async def test_internal_topics_are_listed_on_request(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
        await admin.alter_group_offsets(unique_topic, {(unique_topic, 0): 0})
    for internal, count in (("", 0), ("1", 1)):
        answer = await console_client.get(
            "/api/topics", params={"filter": "__consumer_offsets", "internal": internal}
        )
        names = [row["name"] for row in answer.json()["rows"]]
        assert names.count("__consumer_offsets") == count


async def test_the_overview_counts_topics_and_partitions(
    console_client: httpx.AsyncClient, made: str
) -> None:
    body = (await console_client.get("/api/overview")).json()
    assert body["topics"]["topics"] >= 3
    assert body["topics"]["partitions"] >= 6
    assert body["topics"]["leaderless"] == 0
    assert body["cluster"]["nodes"]
    assert body["disks"]
    assert body["missing"] == []


async def test_topics_are_listed_without_sizes_if_the_broker_refuses_them(
    live_bootstrap: str, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_self: Admin, **_: object) -> None:
        raise OdradekError("needs Describe on the cluster")

    monkeypatch.setattr(Admin, "describe_log_dirs", refused)
    session = ConsoleSession({"admin": {"bootstrap_servers": live_bootstrap}})
    try:
        table = await topic_table(session)
    finally:
        await session.close()
    assert table.missing == ["Sizes: needs Describe on the cluster"]
    (row,) = [row for row in table.rows if row.name == f"{made}-3"]
    assert (row.partitions, row.size_bytes) == (3, None)
