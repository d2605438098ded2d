"""Topics and regular expressions that consumer groups are subscribed to (KIP-848; G-145, G-146)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from at_once import at_once
from consumer_group_world import (
    consumer_group,
    grow,
    joined,
    settle,
    stored,
    topic_id_partitions,
)
from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.consumer.group import MemberState
from odradek_broker.coordinator.groups.consumer.records import member_record
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored.consumer_group import ConsumerGroupCurrentMemberAssignmentValue

M = MemberState
ALL = topic_id_partitions(*range(10))


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_g145_assignments_follow_topics_that_are_created_grown_and_deleted(
    world: GroupWorld,
) -> None:
    (a,) = joined(world, "a", topics=["later"])
    assert a.owned == frozenset()
    world.metadata.ids["later"] = b"L" * 16
    grow(world, "later", 2)
    settle(a)
    assert a.owned == topic_id_partitions(0, 1, topic=b"L" * 16)
    world.metadata.ids["later"] = b"M" * 16
    grow(world, "later", 2)
    settle(a)
    assert a.owned == topic_id_partitions(0, 1, topic=b"M" * 16), "the same name, another topic"
    grow(world, "later", 0)
    settle(a)
    assert a.owned == frozenset()


def test_g146_a_regular_expression_matches_topics_that_are_created_later(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b", topics=None, pattern="t.*|n.*")
    assert consumer_group(world).patterns == {"t.*|n.*": frozenset({"topic"})}
    world.metadata.ids["new"] = b"N" * 16
    grow(world, "new", 4)
    settle(a, b)
    assert a.owned | b.owned == ALL | topic_id_partitions(0, 1, 2, 3, topic=b"N" * 16)
    a.leave()
    assert "t.*|n.*" in consumer_group(world).patterns
    b.beat(subscribed_topic_regex="", subscribed_topic_names=["topic"])
    assert consumer_group(world).patterns == {}


def test_g146_a_stored_expression_that_cannot_be_compiled_matches_no_topic(
    world: GroupWorld,
) -> None:
    """Kafka, which accepts more expressions, may have written the log."""
    a, b = joined(world, "a", "b")
    foreign = replace(stored(world, "b"), pattern=r"\p{Lu}.*", topics=frozenset())
    world.log.append_internal([at_once(member_record(GROUP, foreign))], 0)
    world.restart()
    grow(world, "topic", 11)
    settle(a, b)
    assert a.owned == topic_id_partitions(*range(11))


def test_g100_a_member_record_with_an_unknown_state_is_refused(world: GroupWorld) -> None:
    joined(world, "a")
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=1, state=99)
    with pytest.raises(DecodeError, match="99"):
        consumer_group(world).replay_current("a", value)
