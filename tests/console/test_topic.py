"""The view of one topic: partitions, settings, and the groups that read it."""

from __future__ import annotations

from typing import Any

import httpx

from odradek import Producer
from odradek_client.admin import Admin, NewTopic


async def _get(client: httpx.AsyncClient, path: str, **params: Any) -> Any:
    answer = await client.get(f"/api/topic{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_topic_page_shows_partitions_and_an_open_transaction(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=3))
    async with Producer(
        bootstrap_servers=live_bootstrap, transactional_id=unique_topic
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        for _ in range(4):
            await producer.send_and_wait(unique_topic, b"x", partition=1)
        found = await _get(console_client, "", name=unique_topic)
        assert (found["partitions"], found["offsets"], found["held"]) == (3, 4, 4)
        assert (found["held_partitions"], found["leaderless"], found["missing"]) == (1, 0, [])
        assert found["size_bytes"] > 0
        page = await _get(console_client, "/partitions", name=unique_topic, sort="-held", limit=1)
        (row,) = page["rows"]
        assert (row["partition"], row["start"], row["end"], row["stable"]) == (1, 0, 4, 0)
        assert (row["leader"], row["replicas"], page["total"]) == (
            row["in_sync"][0],
            row["in_sync"],
            3,
        )
        await producer.abort_transaction()


async def test_settings_set_for_the_topic_come_first(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(
            NewTopic(unique_topic, partitions=1, configs={"segment.bytes": "1234567"})
        )
    rows = (await _get(console_client, "/settings", name=unique_topic))["rows"]
    assert (rows[0]["name"], rows[0]["value"], rows[0]["source"], rows[0]["is_default"]) == (
        "segment.bytes",
        "1234567",
        "this topic",
        False,
    )
    assert rows[0]["documentation"]
    assert rows[-1]["source"] == "default"
    assert len(rows) > 20


async def test_a_topic_page_lists_its_groups_with_their_lag(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(unique_topic, partitions=2), NewTopic(f"{unique_topic}-other", partitions=1)]
        )
        async with Producer(bootstrap_servers=live_bootstrap) as producer:
            for number in range(10):
                await producer.send_and_wait(unique_topic, b"x", partition=number % 2)
        await admin.alter_group_offsets(f"{unique_topic}-a", {(unique_topic, 0): 1})
        await admin.alter_group_offsets(
            f"{unique_topic}-b", {(unique_topic, 0): 0, (unique_topic, 1): 2}
        )
        await admin.alter_group_offsets(f"{unique_topic}-c", {(f"{unique_topic}-other", 0): 0})
    found = await _get(console_client, "/groups", name=unique_topic)
    assert [(row["group"], row["lag"], row["partitions"]) for row in found["rows"]] == [
        (f"{unique_topic}-b", 8, 2),
        (f"{unique_topic}-a", 4, 1),
    ]
    assert found["rows"][0]["state"] == "Empty"
    assert (found["looked_at"], found["missing"]) == (found["groups"], [])


async def test_a_topic_that_does_not_exist_is_refused(
    console_client: httpx.AsyncClient, unique_topic: str
) -> None:
    for path in ("", "/partitions", "/settings", "/groups"):
        answer = await console_client.get(f"/api/topic{path}", params={"name": unique_topic})
        assert answer.status_code == 404, path
