"""Changes from pages: their plans, effects and refusals, and their lines in the audit log."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from console_changes import WRITE, ChangingPage, changing_page
from odradek import Consumer, Producer
from odradek_client.admin import Admin, NewTopic
from odradek_console import access, cluster_changes, writes


@pytest.fixture
async def page(live_bootstrap: str) -> AsyncIterator[ChangingPage]:
    async with changing_page(live_bootstrap) as page:
        yield page


@pytest.fixture
async def topic(live_bootstrap: str, unique_topic: str) -> str:
    """A topic of two partitions; the first has five records."""
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=2))
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        for number in range(5):
            await producer.send_and_wait(
                unique_topic, b"x", partition=0, timestamp_ms=1_000 + number
            )
    return unique_topic


async def _records(bootstrap: str, topic: str) -> list[Any]:
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), (topic, 1)])
        ends = await consumer.end_offsets((topic, 0), (topic, 1))
        found: list[Any] = []
        for place, end in ends.items():
            while await consumer.position(place) < end:
                found += await consumer.poll(1_000)
        return found


async def test_a_read_only_console_accepts_no_changes(
    console_client: httpx.AsyncClient,
) -> None:
    families = (access, cluster_changes, writes)
    for path in {path for family in families for path in family.CHANGES}:
        answer = await console_client.post(f"/api{path}", json={}, headers=WRITE)
        assert answer.status_code in (404, 405)


async def test_a_record_is_planned_then_written_and_logged_without_its_content(
    page: ChangingPage, live_bootstrap: str, topic: str
) -> None:
    body = {
        "topic": topic,
        "partition": 1,
        "key": base64.b64encode(b"\xff\x00").decode(),
        "value": None,
        "headers": [["name", "secret-header"]],
        "encoding": "base64",
    }
    planned = await page.plan("record", body)
    assert planned["plan"] == {
        "topic": topic,
        "partition": 1,
        "key_bytes": 2,
        "value_bytes": None,
        "headers": 1,
    }
    assert len(await _records(live_bootstrap, topic)) == 5
    with capture_logs() as lines:
        result = await page.do("record", body)
    assert (result["partition"], result["offset"]) == (1, 0)
    (record,) = [each for each in await _records(live_bootstrap, topic) if each.partition == 1]
    assert (record.key, record.value) == (b"\xff\x00", None)
    assert list(record.headers) == [("name", b"secret-header")]
    (line,) = [each for each in lines if each.get("change") == "/change/record"]
    assert (line["event"], line["of"]["topic"]) == ("a change was made", topic)
    assert "secret-header" not in str(line)


async def test_records_before_an_offset_or_a_time_are_deleted(
    page: ChangingPage, live_bootstrap: str, topic: str
) -> None:
    planned = await page.plan("deletion", {"topic": topic, "to": "time", "value": 1_003})
    assert planned["plan"]["rows"] == [{"partition": 0, "start": 0, "new_start": 3, "records": 3}]
    await page.do("deletion", {"topic": topic, "to": "time", "value": 1_003})
    assert [each.offset for each in await _records(live_bootstrap, topic)] == [3, 4]
    # The plan replaces "end" by an offset, so records that arrive after the plan are kept.
    planned = await page.plan("deletion", {"topic": topic, "to": "end", "partition": 0})
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        await producer.send_and_wait(topic, b"new", partition=0)
    status, _ = await page.post("deletion", planned["send"])
    assert status == 200
    assert [each.offset for each in await _records(live_bootstrap, topic)] == [5]
    assert await page.refused("deletion", {"topic": topic, "to": "offset", "value": 1}) == (
        422,
        "There is nothing to delete",
    )


async def test_the_offsets_of_a_stopped_group_are_moved(
    page: ChangingPage, live_bootstrap: str, topic: str
) -> None:
    group = f"group-{topic}"
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.alter_group_offsets(group, {(topic, 0): 4})
        planned = await page.plan("offsets", {"group": group, "to": "shift", "value": -3})
        assert planned["plan"]["rows"] == [{"topic": topic, "partition": 0, "from": 4, "to": 1}]
        result = await page.do("offsets", {"group": group, "to": "shift", "value": -3})
        assert result["text"] == "Moved in 1 partition"
        found = await admin.list_group_offsets(group)
        assert [each.offset for each in found.values() if each] == [1]
        # The offsets have changed since the plan was made.
        status, answer = await page.post("offsets", planned["send"])
        assert (status, answer["error"]["what_to_do"]) == (409, "Look at the new plan.")


async def test_offsets_of_a_group_with_members_are_not_moved(
    page: ChangingPage, live_bootstrap: str, topic: str
) -> None:
    group = f"group-{topic}"
    async with Consumer(
        bootstrap_servers=live_bootstrap, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])
        while not await consumer.poll(1_000):
            pass
        assert await page.refused("offsets", {"group": group, "to": "start"}) == (
            409,
            "The group has members",
        )


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("record", {"topic": 1}, 400),
        ("record", {"value": "x"}, 400),
        ("record", {"key": "!", "encoding": "base64"}, 400),
        ("record", {"partition": 7}, 404),
        ("record", {"partition": True}, 400),
        ("record", {"headers": [["a"]]}, 400),
        ("deletion", {"to": "shift"}, 400),
        ("deletion", {"to": "offset", "value": "x"}, 400),
        ("deletion", {"to": "offset", "value": -1}, 400),
        ("deletion", {"to": "offsets", "offsets": [["other", 0, 1]]}, 400),
        ("offsets", {"group": "", "to": "end"}, 400),
        ("offsets", {"group": "g", "to": "offsets", "offsets": [[1]]}, 400),
        ("offsets", {"group": "g", "to": "offset", "value": 2**70}, 400),
    ],
)
async def test_a_wrong_change_is_refused(
    page: ChangingPage, topic: str, what: str, body: dict[str, Any], status: int
) -> None:
    given = {"topic": topic, **body} if "value" not in body or what != "record" else body
    answered, _ = await page.refused(what, given)
    assert answered == status
