"""The descriptions of consumer groups for tools (KIP-848; G-160, G-161)."""

from __future__ import annotations

import pytest

from consumer_group_world import (
    joined,
)
from group_world import GROUP, GroupWorld
from handler_calls import handled
from odradek_protocol.errors import ErrorCode

E = ErrorCode


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_g160_a_group_is_described_only_by_the_api_of_its_type(world: GroupWorld) -> None:
    joined(world, "a", instance="i", pattern="o.*")
    told = world.groups.describe_consumer_group(GROUP).result()
    assert (told.group_state, told.group_epoch, told.assignment_epoch) == ("Stable", 2, 2)
    assert told.assignor_name == "uniform"
    (member,) = told.members
    assert (member.member_id, member.instance_id, member.member_epoch) == ("a", "i", 2)
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["topic"], "o.*")
    assert member.member_type == 1
    assert member.assignment == member.target_assignment
    parts = {part.topic_name: part.partitions for part in member.assignment.topic_partitions}
    assert parts == {"topic": list(range(10)), "other": list(range(10))}
    classic = world.groups.describe_group(GROUP).result()
    assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    world.stable(1, group="old")
    told = world.groups.describe_consumer_group("old").result()
    assert told.error_code == E.GROUP_ID_NOT_FOUND
    assert "not a consumer group" in (told.error_message or "")
    missing = world.groups.describe_consumer_group("none").result()
    assert missing.error_code == E.GROUP_ID_NOT_FOUND


def test_g161_groups_are_listed_with_their_type(world: GroupWorld) -> None:
    joined(world, "a")
    world.stable(1, group="old")
    _, found = handled(world.groups.list_groups())
    told = {(each.group_id, each.group_type, each.state, each.protocol_type) for each in found}
    assert told == {
        (GROUP, "consumer", "Stable", "consumer"),
        ("old", "classic", "Stable", "consumer"),
    }
