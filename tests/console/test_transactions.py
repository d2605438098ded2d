"""Transactions and producers in the console, with a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from odradek import Producer
from odradek_client.admin import Admin, NewTopic


@pytest.fixture
async def open_one(live_bootstrap: str, unique_topic: str) -> AsyncIterator[str]:
    """A transactional id with an open transaction in the topic of the same name.

    Partition 0 has two records of another producer, then the three records of the transaction.
    """
    async with (
        Admin(bootstrap_servers=live_bootstrap) as admin,
        Producer(bootstrap_servers=live_bootstrap) as plain,
        Producer(bootstrap_servers=live_bootstrap, transactional_id=unique_topic) as producer,
    ):
        await admin.create_topics(NewTopic(unique_topic, partitions=2))
        for _ in range(2):
            await plain.send_and_wait(unique_topic, b"x", partition=0)
        await producer.init_transactions()
        await producer.begin_transaction()
        for _ in range(3):
            await producer.send_and_wait(unique_topic, b"x", partition=0)
        yield unique_topic
        if (await admin.describe_transactions(unique_topic))[unique_topic].is_open:
            await admin.abort_transaction(unique_topic)


async def _asked(client: httpx.AsyncClient, view: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(f"/api{view}", params=params)
    body: dict[str, Any] = answer.json()
    assert answer.status_code == 200, body
    return body


async def test_an_open_transaction_is_listed_first_with_its_hidden_records(
    console_client: httpx.AsyncClient, live_bootstrap: str, open_one: str
) -> None:
    done_id = f"{open_one}-a-done"
    async with Producer(bootstrap_servers=live_bootstrap, transactional_id=done_id) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(open_one, b"x", partition=1)
    async with Admin(bootstrap_servers=live_bootstrap) as admin, asyncio.timeout(30):
        # A commit is answered before its markers are written, and until then the console counts
        # the transaction as open.
        state = ""
        while state != "CompleteCommit":
            await asyncio.sleep(0.01)
            state = (await admin.describe_transactions(done_id))[done_id].state
    body = await _asked(console_client, "/transactions", filter=open_one)
    assert [row["transactional_id"] for row in body["rows"]] == [open_one, done_id]
    first, done = body["rows"]
    assert (first["state"], first["partitions"], first["hidden"]) == ("Ongoing", 1, 3)
    assert body["now_ms"] >= first["start_ms"] > 0
    assert (done["start_ms"], done["hidden"]) == (None, None)
    assert body["open"] >= 1
    only = await _asked(console_client, "/transactions", filter=open_one, state="open")
    assert only["total"] == 1


async def test_a_transaction_has_its_partitions_and_events(
    console_client: httpx.AsyncClient, open_one: str
) -> None:
    body = await _asked(console_client, "/transaction", id=open_one)
    assert (body["state"], body["open"], body["epoch"]) == ("Ongoing", True, 0)
    (partition,) = body["partitions"]
    assert (partition["topic"], partition["partition"]) == (open_one, 0)
    assert (partition["stable"], partition["end"], partition["hidden"]) == (2, 5, 3)
    assert body["history"]["missing"] is None
    assert "Ongoing" in body["history"]["states"][0]["text"]


async def test_a_transaction_of_two_phases_has_no_timeout(
    console_client: httpx.AsyncClient, live_bootstrap: str, open_one: str
) -> None:
    assert (await _asked(console_client, "/transaction", id=open_one))["has_timeout"]
    name = f"{open_one}-two-phases"
    settings: Any = {"transactional_id": name, "transaction_two_phase_commit_enable": True}
    async with Producer(bootstrap_servers=live_bootstrap, **settings) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait(open_one, b"x", partition=1)
        assert not (await _asked(console_client, "/transaction", id=name))["has_timeout"]
        listed = await _asked(console_client, "/transactions", filter=open_one)
        assert {row["transactional_id"]: row["has_timeout"] for row in listed["rows"]} == {
            open_one: True,
            name: False,
        }


async def test_producers_of_a_partition_are_listed_and_shown(
    console_client: httpx.AsyncClient, live_bootstrap: str, open_one: str
) -> None:
    body = await _asked(console_client, "/producers", topic=open_one, partition=0)
    assert (body["stable"], body["end"], body["hidden"], body["total"]) == (2, 5, 3, 2)
    (row,) = [row for row in body["rows"] if row["transactional_id"] == open_one]
    assert (row["transaction_start_offset"], row["last_sequence"]) == (2, 2)
    assert row["hanging"] is False
    (plain,) = [row for row in body["rows"] if row["transactional_id"] is None]
    assert (plain["transaction_start_offset"], plain["hanging"]) == (None, False)
    shown = await _asked(console_client, "/producer", id=row["producer_id"])
    assert (shown["transactional_id"], shown["state"]) == (open_one, "Ongoing")
    assert [each["partition"] for each in shown["rows"]] == [0]
    assert shown["history"]["events"]
    other = await _asked(
        console_client, "/producer", id=plain["producer_id"], topic=open_one, partition=0
    )
    assert (other["transactional_id"], len(other["rows"])) == (None, 1)


@pytest.mark.parametrize(
    ("view", "params", "status"),
    [
        ("/transaction", {"id": "there is no such id"}, 404),
        ("/producer", {"id": "987654321"}, 404),
        ("/producer", {"id": "x"}, 400),
        ("/producers", {"topic": "there-is-no-such-topic", "partition": "0"}, 404),
        ("/producers", {"topic": "t", "partition": "-1"}, 400),
        ("/producers", {"partition": "0"}, 400),
    ],
)
async def test_missing_transactions_and_producers_are_errors(
    console_client: httpx.AsyncClient, view: str, params: dict[str, str], status: int
) -> None:
    answer = await console_client.get(f"/api{view}", params=params)
    assert answer.status_code == status, answer.json()
    assert answer.json()["error"]["title"]
