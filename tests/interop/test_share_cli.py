"""The commands of `odradek share`, and the admin client's calls about share groups, with both
brokers."""

from __future__ import annotations

import pytest

from cli_runner import Commands
from odradek import sync

pytestmark = pytest.mark.full


def test_share_commands_work_with_both_brokers(either: str, unique_topic: str) -> None:
    odradek = Commands(either)
    name = unique_topic
    odradek.run("topic", "create", name, "-n", "2")
    with sync.Producer(bootstrap_servers=either) as producer:
        for number in range(6):
            producer.send_and_wait(name, b"%d" % number, partition=0)
    odradek.run("config", "set", "group", name, "share.auto.offset.reset=earliest")
    consume = ("share", "consume", name, "-g", name)
    assert odradek.run(*consume, "-c", "2") == "0\n1\n"
    (row,) = odradek.rows(*consume, "-c", "1", "--answer", "reject")
    assert (row["payload"], row["delivery_count"]) == ("2", 1)

    assert name in odradek.run("share", "list").split()
    (row,) = odradek.rows("share", "describe", name)
    assert (row["state"], row["members"]) == ("Empty", [])
    # Kafka stores the start offset only with the next change, so the command shows 3 or 2 finished
    # records.
    before, *others = odradek.rows("share", "offsets", name)
    assert before["start_offset"] in (2, 3) and before["lag"] in (3, 4)
    assert [each["start_offset"] for each in others] in ([], [None], [0])

    reset = ("share", "reset-offsets", name, "--topic", name)
    rows = odradek.rows(*reset, "--to-offset", "1")
    assert [(each["partition"], each["new_offset"]) for each in rows] == [(0, 1), (1, 0)]
    assert "nothing was changed" in odradek.stderr
    odradek.run(*reset, "--to-offset", "1", "--execute")
    assert odradek.run(*consume, "-c", "1") == "1\n"

    odradek.run("share", "delete-offsets", name, "-t", "nowhere", code=1)
    odradek.run("share", "delete-offsets", name, "-t", name)
    assert odradek.rows("share", "offsets", name) == []
    odradek.run("share", "delete", name)
    odradek.run("share", "delete", name, code=1)
    assert name in odradek.stderr


def test_offsets_of_a_share_group_with_members_cannot_be_reset(
    either: str, unique_topic: str
) -> None:
    odradek = Commands(either)
    odradek.run("topic", "create", unique_topic)
    with sync.ShareConsumer(
        unique_topic, bootstrap_servers=either, group_id=unique_topic
    ) as consumer:
        while not consumer.assignment():
            consumer.poll(200)
        (row,) = odradek.rows("share", "describe", unique_topic)
        (member,) = row["members"]
        assert member["assignment"] == [{"topic": unique_topic, "partition": 0}]
        reset = ("share", "reset-offsets", unique_topic, "--topic", unique_topic, "--to-latest")
        odradek.run(*reset, "--execute", code=1)
        odradek.run("share", "delete", unique_topic, code=1)
