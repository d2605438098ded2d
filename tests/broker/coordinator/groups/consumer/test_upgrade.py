"""Classic groups that become consumer groups while their members continue (KIP-848; G-150,
G-151)."""

from __future__ import annotations

import copy

import pytest

from classic_member import ALL, ClassicMember, assignment, classic_group, rest
from consumer_group_world import (
    FakeMember,
    assigned,
    consumer_group,
    send,
    shard,
    stored,
)
from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.classic.group import GroupState
from odradek_broker.coordinator.groups.consumer.group import MemberState
from odradek_broker.coordinator.groups.modern.group import ModernGroupState
from odradek_protocol.errors import ErrorCode

E = ErrorCode
S = GroupState


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


@pytest.mark.parametrize("eager", [False, True])
def test_g150_a_classic_group_takes_a_member_of_the_consumer_protocol(
    world: GroupWorld, eager: bool
) -> None:
    old = classic_group(world, eager=eager)
    new = FakeMember(world, "new")
    answer = new.beat()
    assert (answer.error_code, answer.member_epoch, assigned(answer)) == (E.NONE, 2, frozenset())
    assert list(shard(world).groups) == []
    side = stored(world, old.member_id).classic
    assert side is not None and side.session_timeout_ms == 10_000
    assert stored(world, old.member_id).assigned == {b"T" * 16: ALL}
    assert old.beat() is E.REBALANCE_IN_PROGRESS
    rest(old, new)
    assert (len(old.owned), len(new.owned)) == (5, 5)
    assert consumer_group(world).state is ModernGroupState.STABLE
    told = world.groups.describe_consumer_group(GROUP).result()
    assert sorted(member.member_type for member in told.members) == [0, 1]


def test_g150_a_restart_during_an_upgrade_restores_the_same_group(world: GroupWorld) -> None:
    old = classic_group(world)
    new = FakeMember(world, "new")
    new.beat()
    before = copy.deepcopy(shard(world).consumers)
    before[GROUP].topics_version = None
    world.restart()
    assert shard(world).consumers == before
    assert list(shard(world).groups) == []
    rest(old, new)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_g150_the_migration_policy_may_forbid_the_upgrade(policy: str) -> None:
    world = GroupWorld(group_consumer_migration_policy=policy)
    old = classic_group(world)
    assert FakeMember(world, "new").beat().error_code == E.GROUP_ID_NOT_FOUND
    assert world.state() is S.STABLE
    assert old.beat() is E.NONE


def test_g150_a_classic_group_without_consumer_subscriptions_is_not_upgraded(
    world: GroupWorld,
) -> None:
    (connect,) = world.stable(1, protocol_type="connect")
    assert FakeMember(world, "new").beat().error_code == E.GROUP_ID_NOT_FOUND
    world.leave(connect)
    (opaque,) = world.stable(1)
    assert FakeMember(world, "new").beat().error_code == E.GROUP_ID_NOT_FOUND, "no subscription"
    assert world.heartbeat(opaque, world.group().generation) is E.NONE


@pytest.mark.parametrize("again", [False, True])
def test_g150_a_classic_group_with_user_data_in_an_assignment_is_not_upgraded(
    world: GroupWorld, again: bool
) -> None:
    old = ClassicMember(world)
    old.enter()
    answer = world.sync(old.member_id, old.generation, {old.member_id: assignment(ALL, b"data")})
    assert answer.result().error_code == E.NONE
    if again:
        second = ClassicMember(world)
        second.member_id = world.new_id(**second.how())
        world.join(second.member_id, **second.how())
        world.join(old.member_id, **old.how())
        assert world.state() is S.COMPLETING_REBALANCE
    assert FakeMember(world, "new").beat().error_code == E.GROUP_ID_NOT_FOUND
    assert world.state() is (S.COMPLETING_REBALANCE if again else S.STABLE)


@pytest.mark.parametrize("static", [False, True])
def test_g151_a_new_member_with_a_parked_join_is_in_the_consumer_group(
    world: GroupWorld, static: bool
) -> None:
    old = classic_group(world)
    second = ClassicMember(world, instance="i" if static else None)
    if not static:
        second.member_id = world.new_id(**second.how())
    parked = world.join(second.member_id, **second.how())
    assert world.state() is S.PREPARING_REBALANCE and not parked.done
    new = FakeMember(world, "new")
    assert new.beat().error_code == E.NONE
    assert parked.result().error_code == E.REBALANCE_IN_PROGRESS
    assert len(consumer_group(world).members) == 3
    assert second.join().error_code == E.NONE
    rest(old, second, new)
    assert len(consumer_group(world).members) == 3


def test_g151_members_in_a_join_phase_have_to_join_again(world: GroupWorld) -> None:
    first = classic_group(world)
    second = ClassicMember(world)
    second.member_id = world.new_id(**second.how())
    parked = world.join(second.member_id, **second.how())
    again = world.join(first.member_id, **first.how())
    first.generation = again.result().generation_id
    assert parked.result().error_code == E.NONE
    second.generation = parked.result().generation_id
    waiting = world.sync(second.member_id, second.generation)
    assert not waiting.done and world.state() is S.COMPLETING_REBALANCE
    new = FakeMember(world, "new")
    assert new.beat().error_code == E.NONE
    assert waiting.result().error_code == E.REBALANCE_IN_PROGRESS
    assert stored(world, first.member_id).assigned == {b"T" * 16: ALL}, "it says that it has them"
    assert stored(world, second.member_id).assigned == {}
    rest(first, second, new)


def test_g151_a_refused_heartbeat_leaves_the_join_phase_alone() -> None:
    world = GroupWorld(group_consumer_max_size=1)
    old = classic_group(world)
    second = ClassicMember(world)
    parked = world.join("", version=3, **second.how())
    assert world.state() is S.PREPARING_REBALANCE
    assert FakeMember(world, "new").beat().error_code == E.GROUP_MAX_SIZE_REACHED
    assert not parked.done
    assert world.join(old.member_id, **old.how()).result().error_code == E.NONE
    assert parked.result().error_code == E.NONE
    assert world.state() is S.COMPLETING_REBALANCE


def test_g151_an_upgrade_discards_an_assignment_that_is_being_written(world: GroupWorld) -> None:
    old = ClassicMember(world)
    old.enter()
    world.log.hold = True
    given = {old.member_id: assignment(ALL)}
    waiting = world.sync(old.member_id, old.generation, given)
    new = FakeMember(world, "new")
    later = send(world, **new.request())
    world.log.hold = False
    world.log.flush()
    assert waiting.result().error_code == E.REBALANCE_IN_PROGRESS
    new.take(later.result())
    assert stored(world, old.member_id).assigned == {}
    rest(old, new)


def test_g151_a_cooperative_member_revokes_its_old_partitions_first(world: GroupWorld) -> None:
    first = classic_group(world)
    second = ClassicMember(world)
    second.member_id = world.new_id(**second.how())
    parked = world.join(second.member_id, **second.how())
    first.join()
    second.generation = parked.result().generation_id
    given = {first.member_id: assignment(frozenset({0, 1, 2}))}
    world.sync(first.member_id, first.generation, given)
    new = FakeMember(world, "new")
    new.beat()
    assert stored(world, first.member_id).state is MemberState.UNREVOKED_PARTITIONS
    assert stored(world, first.member_id).pending == {b"T" * 16: frozenset(range(3, 10))}
    new.beat()
    assert not new.owned
    rest(first, second, new)


def test_g151_revoked_partitions_are_assigned_when_a_static_member_is_replaced(
    world: GroupWorld,
) -> None:
    """The replacement of a static member is by itself no reason for a new assignment."""
    first = classic_group(world, instance="one")
    second = ClassicMember(world, instance="two")
    parked = world.join("", **second.how())
    first.join()
    second.member_id = parked.result().member_id
    second.generation = parked.result().generation_id
    given = {first.member_id: assignment(frozenset({0, 1, 2}))}
    world.sync(first.member_id, first.generation, given, instance="one")
    assert first.sync() is E.NONE
    world.join(
        first.member_id, **first.how()
    )  # the first member has revoked the other partitions, which have no owner now
    new = FakeMember(world, "new", instance="two")
    assert new.beat().error_code == E.NONE
    rest(first, new)


@pytest.mark.parametrize("owned", [ALL, frozenset()])
def test_g151_a_join_raises_the_epoch_once(world: GroupWorld, owned: frozenset[int]) -> None:
    """The epoch rises by 1 in total, as in Kafka: partitions without an owner do not raise it a
    second time."""
    old = ClassicMember(world)
    old.enter()
    assert old.sync(owned) is E.NONE
    assert FakeMember(world, "new").beat().member_epoch == old.generation + 1
    assert consumer_group(world).epoch == old.generation + 1
