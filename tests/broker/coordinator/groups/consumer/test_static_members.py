"""Static members of consumer groups (KIP-848; G-130 to G-133)."""

from __future__ import annotations

import pytest

from consumer_group_world import (
    FakeMember,
    assigned,
    consumer_group,
    joined,
    send,
    settle,
    stored,
    topic_id_partitions,
)
from group_world import GroupWorld
from odradek_protocol.errors import ErrorCode

E = ErrorCode
ALL = topic_id_partitions(*range(10))


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_g130_an_instance_id_in_use_is_refused_to_another_member(world: GroupWorld) -> None:
    (a,) = joined(world, "a", instance="i")
    other = FakeMember(world, "b", instance="i")
    assert other.beat().error_code == E.UNRELEASED_INSTANCE_ID
    assert a.beat().error_code == E.NONE


def test_g131_a_returning_static_member_gets_its_partitions_without_a_rebalance(
    world: GroupWorld,
) -> None:
    a, b = joined(world, "a", "b", instance=None)
    s = FakeMember(world, "s1", instance="i")
    s.beat()
    settle(a, b, s)
    owned, epoch = s.owned, consumer_group(world).epoch
    answer = s.leave(-2)
    assert (answer.error_code, answer.member_epoch) == (E.NONE, -2)
    assert stored(world, "s1").epoch == -2
    settle(a, b)
    successor = FakeMember(world, "s2", instance="i")
    assert assigned(successor.beat()) == owned
    assert (successor.epoch, consumer_group(world).epoch) == (epoch, epoch)
    assert set(consumer_group(world).members) == {"a", "b", "s2"}
    settle(a, b, successor)


def test_g132_a_static_member_that_does_not_return_is_removed_after_its_session(
    world: GroupWorld,
) -> None:
    (s,) = joined(world, "s", instance="i")
    s.leave(-2)
    world.wait(44_999)
    assert "s" in consumer_group(world).members
    world.wait(1)
    assert not consumer_group(world).members


def test_g132_a_static_member_may_return_under_its_old_id(world: GroupWorld) -> None:
    (s,) = joined(world, "s", instance="i")
    s.leave(-2)
    again = FakeMember(world, "s", instance="i")
    assert assigned(again.beat()) == ALL
    assert again.epoch == 2


def test_g133_the_replaced_static_member_is_fenced(world: GroupWorld) -> None:
    (a,) = joined(world, "a", instance="i")
    a.leave(-2)
    FakeMember(world, "b", instance="i").beat()
    for epoch in (1, -1, -2):
        answer = send(world, member_id="a", member_epoch=epoch, instance_id="i").result()
        assert answer.error_code == E.FENCED_INSTANCE_ID
