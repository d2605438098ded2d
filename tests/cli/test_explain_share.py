"""`odradek explain share` as a process, after records that share consumers have handled."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from cli_runner import Shell
from odradek import Admin, ConfigResource, NewTopic, Producer, ShareConsumer

pytestmark = pytest.mark.own_broker

DEADLINE_S = 60.0


async def handled(bootstrap: str, topic: str) -> None:
    """Let two members with client ids handle four records.

    The first member releases record 0 and rejects record 1. The second member accepts record 0, and
    never gets record 1. When the first member closes, it has acquired records 2 and 3.
    """

    def member(client_id: str) -> ShareConsumer:
        return ShareConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            client_id=client_id,
            share_acknowledgement_mode="explicit",
        )

    async def polled(consumer: ShareConsumer, count: int) -> list[Any]:
        records: list[Any] = []
        while len(records) < count:
            records += await consumer.poll(1_000)
        return records

    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1), NewTopic(f"{topic}-wide", 2)])
        group = ConfigResource.group(topic)
        await admin.alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(4):
            await producer.send(topic, b"%d" % number)
    async with asyncio.timeout(DEADLINE_S), member("second") as second:
        async with member("first") as first:
            records = await polled(first, 4)
            records[1].reject()
            records[0].release()
            await first.commit()
            (again,) = await polled(second, 1)
            again.accept()
            await second.commit()
        left = await polled(second, 2)
        assert [record.delivery_count for record in left] == [2, 2]
        for record in left:
            record.accept()
        await second.commit()


def rows(shell: Shell, *asked: str) -> list[dict[str, Any]]:
    output = shell.run("explain", "share", *asked, "--json")
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.full
def test_h243_h244_h245_explain_share_tells_each_delivery_of_a_record(
    shell: Shell, unique_topic: str
) -> None:
    asyncio.run(handled(shell.environment["ODRADEK_BOOTSTRAP"], unique_topic))
    record = (unique_topic, "--topic", unique_topic, "--offset")
    output = re.sub(r"\n +", " ", shell.run("explain", "share", *record, "0").decode())
    assert output.startswith(f"record 0 of {unique_topic}-0, for share group {unique_topic}\n")
    assert re.search(r"\nfirst +=.* at 127.0.0.1", output)
    expected = (
        r" first acquired it: delivery 1, with a lock for 30.0 s",
        r" first released it, so it is available again after delivery 1",
        r" second acquired it: delivery 2, again because first released it, with a lock",
        r" second accepted it: it is finished\n",
        r"\nnow .* the group is done with it: its start offset is 4",
    )
    places = [re.search(each, output) for each in expected]
    assert all(places), output
    assert sorted(found.start() for found in places if found) == [
        found.start() for found in places if found
    ]

    found = rows(shell, *record, "0", "--partition", "0")
    assert found[0]["subject"] == f"{unique_topic}-0:0:{unique_topic}"
    events = [row for row in found if row["type"] == "event"]
    assert [each["name"] for each in events] == [
        "share_record_acquired",
        "share_record_back",
        "share_record_acquired",
        "share_record_accepted",
    ]
    assert events[0]["details"]["client"] == "client first at 127.0.0.1"
    assert events[2]["details"]["count"] == "2"
    told = [row["text"] for row in rows(shell, *record, "1") if row["type"] == "event"]
    assert told[-1].endswith("rejected it: it is archived, and is not delivered again")


@pytest.mark.full
def test_h243_explain_share_tells_of_a_member_that_left(shell: Shell, unique_topic: str) -> None:
    asyncio.run(handled(shell.environment["ODRADEK_BOOTSTRAP"], unique_topic))
    found = rows(shell, unique_topic, "--topic", unique_topic, "--offset", "2")
    told = [row["text"] for row in found if row["type"] == "event"]
    assert re.search(r" left and closed its session, so it is available again", told[1])
    assert re.search(r"delivery 2, again because \S+ left and closed its session,", told[2])


@pytest.mark.full
def test_h246_missing_records_and_groups_cannot_be_explained(
    shell: Shell, unique_topic: str
) -> None:
    asyncio.run(handled(shell.environment["ODRADEK_BOOTSTRAP"], unique_topic))
    shell.run("explain", "share", unique_topic, "--offset", "0", code=2)
    assert "--topic" in shell.stderr
    wide = f"{unique_topic}-wide"
    shell.run("explain", "share", unique_topic, "--topic", wide, "--offset", "0", code=1)
    assert shell.stderr.endswith("has 2 partitions: name one by --partition\n")
    number = ("--topic", unique_topic, "--partition", "7", "--offset", "0")
    shell.run("explain", "share", unique_topic, *number, code=1)
    assert f"there is no partition {unique_topic}-7" in shell.stderr
    record = ("--topic", unique_topic, "--offset", "0")
    shell.run("explain", "share", "nobody", *record, code=1)
    assert "there is no share group 'nobody'" in shell.stderr


@pytest.mark.full
def test_h245_explain_share_describes_a_share_group(shell: Shell, unique_topic: str) -> None:
    asyncio.run(handled(shell.environment["ODRADEK_BOOTSTRAP"], unique_topic))
    assert shell.run("explain", "share", unique_topic).startswith(b"group " + unique_topic.encode())
    names = [row["name"] for row in rows(shell, unique_topic) if row["type"] == "now"]
    assert names[0] == "now_share_group"
