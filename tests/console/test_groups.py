"""The list of groups, and a group of each kind, with a real broker."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from groups_of_all_kinds import groups_of_all_kinds
from odradek import Producer
from odradek_client.admin import Admin, NewTopic

KINDS = ("classic", "consumer", "share", "streams")


async def _produce(bootstrap: str, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, b"x", partition=number % 3)


async def _asked(client: httpx.AsyncClient, view: str, **params: Any) -> dict[str, Any]:
    answer = await client.get(f"/api{view}", params=params)
    body: dict[str, Any] = answer.json()
    assert answer.status_code == 200, body
    return body


async def test_groups_of_all_kinds_are_listed_and_shown(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    async with groups_of_all_kinds(live_bootstrap, unique_topic):
        await _produce(live_bootstrap, unique_topic, 4)
        listed = await _asked(console_client, "/groups", filter=unique_topic)
        rows = {row["group"].removeprefix(f"{unique_topic}-"): row for row in listed["rows"]}
        assert [row["type"] for row in listed["rows"]] == list(KINDS)
        assert {row["missing"] for row in rows.values()} == {None}
        assert {row["members"] for row in rows.values()} == {1}
        assert {row["topics"] for row in rows.values()} == {1}
        assert {row["state"] for row in rows.values()} == {"Stable"}
        assert listed["types"].keys() >= set(KINDS)
        for kind in KINDS:
            shown = await _asked(console_client, "/group", id=f"{unique_topic}-{kind}")
            (member,) = shown["members"]
            assert (shown["type"], shown["state"], shown["missing"]) == (kind, "Stable", [])
            assert member["partitions"] == 3, kind
            assert shown["coordinator"]["port"]
            (topic,) = shown["topics"]
            assert (topic["topic"], topic["partitions"]) == (unique_topic, 3)
            ends = [cell[4] for cell in topic["cells"]]
            assert ends == [2, 1, 1]
            owners = [cell[1] for cell in topic["cells"]]
            assert owners == ([[], [], []] if kind == "streams" else [[0], [0], [0]])
            assert shown["history"]["events"]


@pytest.mark.full
async def test_share_groups_have_settings_and_streams_groups_have_tasks(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    async with groups_of_all_kinds(live_bootstrap, unique_topic):
        await _produce(live_bootstrap, unique_topic, 4)
        share = (await _asked(console_client, "/group", id=f"{unique_topic}-share"))["share"]
        assert share["settings"]["share.auto.offset.reset"] == "earliest"
        assert share["settings"]["errors.deadletterqueue.topic.name"] == ""
        assert len(share["partitions"]) == 3
        assert all(each["acquired"].isdecimal() for each in share["partitions"])
        streams = (await _asked(console_client, "/group", id=f"{unique_topic}-streams"))["streams"]
        (subtopology,) = streams["subtopologies"]
        assert (subtopology["name"], subtopology["sources"]) == ("words", [unique_topic])
        (tasks,) = streams["tasks"]
        assert tasks["cells"] == [[number, [0], [0], [], []] for number in range(3)]


async def test_empty_groups_are_listed_by_lag(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=3))
        await _produce(live_bootstrap, unique_topic, 9)
        for lag in range(3):
            await admin.alter_group_offsets(f"{unique_topic}-{lag}", {(unique_topic, 0): 3 - lag})
        params = {"filter": unique_topic, "state": "Empty"}
        up = await _asked(console_client, "/groups", **params, sort="lag")
        down = await _asked(console_client, "/groups", **params, sort="-lag", lag_min="1")
        assert [row["lag"] for row in up["rows"]] == [0, 1, 2]
        ages_ms = [row["lag_ms"] for row in up["rows"]]
        assert ages_ms[0] == 0 < ages_ms[1] <= ages_ms[2]
        assert {row["lag_at_least"] for row in up["rows"]} == {False}
        assert {row["verdict"]["verdict"] for row in up["rows"]} == {"OK"}
        assert up["rows"][0]["verdict"]["text"].startswith("OK: ")
        assert [row["lag"] for row in down["rows"]] == [2, 1]
        assert up["known"] >= 3
        assert (await _asked(console_client, "/groups", **params, type="share"))["total"] == 0
        shown = await _asked(console_client, "/group", id=f"{unique_topic}-2")
        assert (shown["state"], shown["members"]) == ("Empty", [])
        (topic,) = shown["topics"]
        assert topic["cells"][0][2:] == [None, 1, 3, 2]
        assert topic["cells"][1][2:] == [None, None, 3, None]
        _, records, age_ms, at_least = shown["point"]
        assert (records, at_least) == (2, False)
        assert age_ms >= ages_ms[2]
        points = await _asked(console_client, "/group/lag", id=f"{unique_topic}-2")
        assert points["points"][-1] == shown["point"]


@pytest.mark.full
async def test_a_missing_group_and_a_deleted_one_are_distinguished(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    answer = await console_client.get("/api/group", params={"id": unique_topic})
    assert answer.status_code == 404
    assert answer.json()["error"]["title"] == "There is no such group"
    async with groups_of_all_kinds(live_bootstrap, unique_topic):
        pass
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.delete_groups(f"{unique_topic}-classic")
    gone = await _asked(console_client, "/group", id=f"{unique_topic}-classic")
    assert gone["state"] == "Dead"
    assert gone["history"]["events"]


@pytest.mark.parametrize("params", [{"lag_min": "many"}, {"sort": "nothing"}])
async def test_wrong_parameters_are_refused(
    console_client: httpx.AsyncClient, params: dict[str, str]
) -> None:
    answer = await console_client.get("/api/groups", params=params)
    assert answer.status_code == 400
