"""Consumer groups that become classic groups (KIP-848; G-155, G-156), and their history."""

from __future__ import annotations

import copy

import pytest

from classic_member import ALL, ClassicMember, assignment, classic_group, mixed, rest
from consumer_group_world import (
    FakeMember,
    consumer_group,
    joined,
    send,
    shard,
)
from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.coordinator.groups.modern.group import ModernGroupState
from odradek_broker.explain.sentences import EventKind
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.assignment import (
    decode_assignment,
)

E = ErrorCode
S = GroupState


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_g155_a_group_without_consumer_members_becomes_a_classic_group(world: GroupWorld) -> None:
    old, new = mixed(world)
    world.commit(7, member_id="new", generation=new.epoch)
    epoch = consumer_group(world).epoch
    assert new.leave().error_code == E.NONE
    assert not shard(world).consumers
    assert (world.state(), world.group().generation) == (S.PREPARING_REBALANCE, epoch)
    assert decode_assignment(world.group().assignment(old.member_id)) == decode_assignment(
        assignment(old.owned)
    )
    assert old.beat() is E.REBALANCE_IN_PROGRESS
    assert old.join().leader == old.member_id
    assert old.generation == epoch + 1
    assert old.sync(ALL) is E.NONE
    assert world.state() is S.STABLE
    assert world.committed() == 7
    world.restart()
    assert not shard(world).consumers
    assert (world.state(), old.beat()) == (S.STABLE, E.NONE)


def test_g155_the_expiry_of_the_last_consumer_member_downgrades_the_group(
    world: GroupWorld,
) -> None:
    old, _ = mixed(world)
    for _ in range(9):
        world.wait(5_000)
        old.beat()
    assert not shard(world).consumers
    assert old.beat() is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_g155_the_migration_policy_may_forbid_the_downgrade(policy: str) -> None:
    world = GroupWorld(group_consumer_migration_policy=policy)
    (new,) = joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    new.leave()
    assert list(consumer_group(world).members) == [old.member_id]
    rest(old)


def test_g155_a_static_member_that_returns_to_classic_downgrades_the_group(
    world: GroupWorld,
) -> None:
    old = classic_group(world)
    new = FakeMember(world, "new", instance="i")
    new.beat()
    rest(old, new)
    back = ClassicMember(world, instance="i")
    assert back.enter().error_code == E.REBALANCE_IN_PROGRESS
    assert not shard(world).consumers
    parked = world.join("", **back.how())
    again = world.join(old.member_id, **old.how())
    assert parked.result().error_code == again.result().error_code == E.NONE


def test_g155_the_only_member_downgrades_the_group_by_a_classic_join(world: GroupWorld) -> None:
    """If the group stayed a consumer group, no ConsumerGroupHeartbeat would come, and only that
    request resolves the subscribed topics."""
    new = FakeMember(world, "new", instance="i")
    new.beat()
    back = ClassicMember(world, instance="i")
    assert back.enter().error_code == E.REBALANCE_IN_PROGRESS
    assert back.enter().error_code == E.NONE
    assert not shard(world).consumers
    assert back.sync(ALL) is E.NONE
    assert world.state() is S.STABLE


def test_g155_a_refused_append_leaves_the_consumer_group_unchanged(world: GroupWorld) -> None:
    old, new = mixed(world)
    before = copy.deepcopy(shard(world).consumers)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    answer = send(world, member_id="new", member_epoch=-1).result()
    assert answer.error_code == E.NOT_COORDINATOR
    world.log.refuse = E.NONE
    after = copy.deepcopy(shard(world).consumers)
    after[GROUP].topics_version = before[GROUP].topics_version
    assert after == before
    assert not shard(world).groups
    rest(old, new)


def test_g155_a_downgrade_cancels_earlier_rejoin_deadlines(world: GroupWorld) -> None:
    """The group changes its protocol to consumer and back before the deadline of an earlier
    rejoin."""
    old = classic_group(world, session_ms=1_000_000)
    new = FakeMember(world, "new")
    new.beat()
    assert old.beat() is E.REBALANCE_IN_PROGRESS
    new.leave()
    world.wait(30_000)
    old.join()
    old.sync(ALL)
    new.beat()
    rest(old, new)
    for _ in range(4):
        world.wait(20_000)
        new.beat()
    assert old.beat() is E.NONE


def test_g156_a_pending_member_id_does_not_count_as_a_member(world: GroupWorld) -> None:
    old = ClassicMember(world)
    old.member_id = world.new_id(**old.how())
    new = FakeMember(world, "new")
    assert new.beat().error_code == E.NONE
    assert not shard(world).groups
    assert old.join().error_code == E.NONE
    assert old.sync() is E.NONE
    rest(old, new)


def test_g156_an_empty_classic_group_keeps_its_offsets_when_converted(world: GroupWorld) -> None:
    old = classic_group(world)
    world.commit(5, member_id=old.member_id, generation=1)
    world.leave(old.member_id)
    generation = world.group().generation
    new = FakeMember(world, "new")
    assert new.beat().member_epoch == generation + 1
    assert world.committed() == 5
    assert not shard(world).groups
    world.restart()
    assert not shard(world).groups and world.committed() == 5
    assert new.beat().error_code == E.NONE


def test_g156_a_simple_group_keeps_its_offsets_when_converted(world: GroupWorld) -> None:
    world.commit(5)
    assert FakeMember(world, "new").beat().member_epoch == 2
    assert world.committed() == 5
    world.restart()
    assert list(shard(world).consumers) == [GROUP] and not shard(world).groups


def test_g156_an_empty_consumer_group_becomes_a_classic_group_on_a_join(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    world.commit(5, member_id="new", generation=2)
    new.leave()
    old = ClassicMember(world)
    assert old.enter().generation_id == 4, "numbers go on from the group epoch"
    assert not shard(world).consumers
    assert world.committed() == 5
    assert old.sync(ALL) is E.NONE
    world.restart()
    assert (world.state(), old.beat(), world.committed()) == (S.STABLE, E.NONE, 5)


def test_g156_a_refused_append_leaves_the_empty_group_as_it_is(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    new.leave()
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    old = ClassicMember(world)
    answer = world.join("", **old.how()).result()
    assert answer.error_code in (E.NOT_COORDINATOR, E.MEMBER_ID_REQUIRED)
    world.log.refuse = E.NONE
    assert list(shard(world).consumers) == [GROUP]
    assert not shard(world).groups


def test_g155_the_change_of_protocol_is_in_the_history(world: GroupWorld) -> None:
    _, new = mixed(world)
    new.leave()
    events = world.group_history.about(GROUP).events
    told = [event.fields["protocol"] for event in events if event.kind is EventKind.GROUP_CONVERTED]
    assert told == ["consumer", "classic"]


def test_g161_groups_of_both_protocols_are_listed_for_metrics(world: GroupWorld) -> None:
    joined(world, "a", "b")
    world.commit(5, member_id="a", generation=3)
    world.stable(1, group="old")
    seen = {each.group_id: each for each in world.groups.groups()}
    assert seen["old"].state is S.STABLE
    listing = seen[GROUP]
    assert (listing.state, listing.members) == (ModernGroupState.STABLE, 2)
    assert (listing.protocol_type, listing.generation, listing.offsets) == ("consumer", 3, 1)
