"""Groups that change their protocol while their members go on (KIP-848; G-150 to G-156)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest

from consumer_group_world import (
    FakeMember,
    Places,
    assigned,
    consumer_group,
    joined,
    places,
    send,
    settle,
    shard,
    stored,
)
from group_world import GROUP, GroupWorld
from odradek_broker.coordinator.groups.consumer.states import ConsumerGroupState, MemberState
from odradek_broker.coordinator.groups.states import GroupState
from odradek_broker.history_words import What
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.join_group import JoinGroupResponse
from odradek_protocol.schemas.leave_group import MemberIdentity
from odradek_protocol.stored.assignment import (
    AssignedPartitions,
    ConsumerAssignment,
    decode_assignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import (
    ConsumerSubscription,
    OwnedPartitions,
    encode_subscription,
)

E = ErrorCode
S = GroupState
ALL = frozenset(range(10))


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


@dataclass
class ClassicMember:
    """A client of the classic protocol. `eager`: it gives up everything before it joins."""

    world: GroupWorld
    instance: str | None = None
    eager: bool = False
    member_id: str = ""
    generation: int = -1
    owned: frozenset[int] = field(default_factory=frozenset)
    session_ms: int = 10_000

    @property
    def protocols(self) -> list[tuple[str, bytes]]:
        owned = [OwnedPartitions(topic="topic", partitions=sorted(self.owned))]
        subscription = ConsumerSubscription(
            topics=["topic"], owned_partitions=[] if self.eager or not self.owned else owned
        )
        return [("range", encode_subscription(subscription))]

    def how(self) -> dict[str, Any]:
        return {
            "protocols": self.protocols,
            "instance": self.instance,
            "session_ms": self.session_ms,
        }

    def enter(self) -> JoinGroupResponse:
        """Join as a new member, of a classic group as of a consumer group."""
        if self.instance is None:
            self.member_id = self.world.new_id(**self.how())
        return self.join()

    def join(self) -> JoinGroupResponse:
        if self.eager:
            self.owned = frozenset()
        answer = self.world.join(self.member_id, **self.how()).result()
        if answer.error_code == E.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, give: frozenset[int] | None = None) -> ErrorCode:
        """`give`: the leader of a classic group gives itself this."""
        given = {self.member_id: assignment(give)} if give is not None else {}
        answer = self.world.sync(
            self.member_id, self.generation, given, instance=self.instance
        ).result()
        if answer.error_code == E.NONE:
            parts = decode_assignment(answer.assignment).assigned_partitions
            self.owned = frozenset(index for part in parts for index in part.partitions)
        return ErrorCode(answer.error_code)

    def beat(self) -> ErrorCode:
        return self.world.heartbeat(self.member_id, self.generation, instance=self.instance)

    def go_on(self) -> None:
        """A heartbeat, and whatever it asks for."""
        before = self.owned
        if self.beat() is E.REBALANCE_IN_PROGRESS:
            assert self.join().error_code == E.NONE
            assert self.sync() is E.NONE
            if not self.eager and before - self.owned:
                # Cooperative: what it lost is given back, and it joins again.
                assert self.join().error_code == E.NONE
                assert self.sync() is E.NONE

    @property
    def places(self) -> Places:
        return places(*self.owned)


def assignment(indexes: frozenset[int]) -> bytes:
    part = AssignedPartitions(topic="topic", partitions=sorted(indexes))
    return encode_assignment(ConsumerAssignment(assigned_partitions=[part]))


def classic_group(world: GroupWorld, **how: Any) -> ClassicMember:
    """A stable classic group of one member that has everything."""
    member = ClassicMember(world, **how)
    assert member.enter().error_code == E.NONE
    assert member.sync(ALL) is E.NONE
    assert world.state() is S.STABLE
    return member


def rest(*members: ClassicMember | FakeMember) -> None:
    """Until nothing moves any more, with nothing owned twice at any moment."""
    for _ in range(12):
        for member in members:
            if isinstance(member, ClassicMember):
                member.go_on()
            else:
                assert member.beat().error_code == E.NONE
            held = [
                place
                for other in members
                for place in (other.places if isinstance(other, ClassicMember) else other.owned)
            ]
            assert len(held) == len(set(held))
    assert len(held) == 10


# --- Up (G-150, G-151) ---


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
    assert consumer_group(world).state is ConsumerGroupState.STABLE
    told = world.groups.describe_consumer_group(GROUP).result()
    assert sorted(member.member_type for member in told.members) == [0, 1]


def test_g150_a_restart_in_the_middle_changes_nothing(world: GroupWorld) -> None:
    old = classic_group(world)
    new = FakeMember(world, "new")
    new.beat()
    before = copy.deepcopy(shard(world).consumers)
    before[GROUP].seen_version = None
    world.restart()
    assert shard(world).consumers == before
    assert list(shard(world).groups) == []
    rest(old, new)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_g150_the_policy_may_forbid_it(policy: str) -> None:
    world = GroupWorld(group_consumer_migration_policy=policy)
    old = classic_group(world)
    assert FakeMember(world, "new").beat().error_code == E.GROUP_ID_NOT_FOUND
    assert world.state() is S.STABLE
    assert old.beat() is E.NONE


def test_g150_a_group_that_is_no_consumers_stays_what_it_is(world: GroupWorld) -> None:
    (connect,) = world.stable(1, protocol_type="connect")
    assert FakeMember(world, "new").beat().error_code == E.GROUP_ID_NOT_FOUND
    world.leave(connect)
    (opaque,) = world.stable(1)
    assert FakeMember(world, "new").beat().error_code == E.GROUP_ID_NOT_FOUND, "no subscription"
    assert world.heartbeat(opaque, world.group().generation) is E.NONE


def test_g151_members_in_a_join_phase_are_told_to_join_again(world: GroupWorld) -> None:
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


def test_g151_an_assignment_that_is_being_written_reaches_nobody(world: GroupWorld) -> None:
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


def test_g151_what_a_cooperative_member_still_holds_is_given_back_first(world: GroupWorld) -> None:
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


# --- Classic members of a consumer group (G-152 to G-154) ---


def test_g152_a_classic_member_joins_a_consumer_group(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    old = ClassicMember(world)
    answer = old.enter()
    assert (answer.error_code, answer.protocol_type, answer.protocol_name) == (
        E.NONE,
        "consumer",
        "range",
    )
    assert (answer.generation_id, answer.leader, answer.members) == (3, "", [])
    assert old.sync() is E.NONE
    rest(old, new)


def test_g152_who_may_not_join(world: GroupWorld) -> None:
    joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    how = {**old.how(), "protocol_type": "connect"}
    assert world.join("x", **how).result().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    how = {**old.how(), "protocols": [("sticky", b"")]}
    assert world.join("x", **how).result().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    how = {**old.how(), "protocols": [("range", b"\x00")]}
    assert world.join("x", **how).result().error_code == E.UNKNOWN_SERVER_ERROR
    how = {**old.how(), "session_ms": 1}
    assert world.join("x", **how).result().error_code == E.INVALID_SESSION_TIMEOUT


def test_g152_static_members_change_the_protocol_and_keep_their_place(world: GroupWorld) -> None:
    """As in a rolling restart: the old process is dead, and left no word."""
    old = classic_group(world, instance="i")
    new = FakeMember(world, "new", instance="i")
    assert assigned(new.beat()) == places(*range(10))
    assert list(consumer_group(world).members) == ["new"]
    assert old.beat() is E.FENCED_INSTANCE_ID
    other = FakeMember(world, "other")
    other.beat()
    settle(new, other)
    back = ClassicMember(world, instance="i")
    assert back.enter().error_code == E.NONE
    assert set(consumer_group(world).members) == {back.member_id, "other"}
    assert back.sync() is E.NONE
    rest(back, other)


def test_g152_a_member_may_change_the_protocol_under_its_id(world: GroupWorld) -> None:
    joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    same = FakeMember(world, old.member_id)
    assert same.beat().error_code == E.NONE
    assert stored(world, old.member_id).classic is None
    for _ in range(4):
        world.wait(20_000)
        assert same.beat().error_code == E.NONE, "it is no more waited for with a SyncGroup"


def test_g153_sync_refuses_what_is_not_its_own(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    assert world.sync("x", 2).result().error_code == E.UNKNOWN_MEMBER_ID
    assert world.sync("new", new.epoch).result().error_code == E.UNKNOWN_MEMBER_ID
    assert world.sync(old.member_id, 1).result().error_code == E.ILLEGAL_GENERATION
    other = world.sync(old.member_id, 3, protocol_name="sticky").result()
    assert other.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    third = FakeMember(world, "third")
    third.beat()
    assert old.sync() is E.REBALANCE_IN_PROGRESS, "the group has moved on"
    rest(old, new, third)


def test_g153_whoever_does_not_sync_is_out(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    old = ClassicMember(world, session_ms=100_000)
    old.enter()
    world.wait(40_000)
    new.beat()
    world.wait(20_000)
    assert list(consumer_group(world).members) == ["new"]
    assert old.beat() is E.UNKNOWN_MEMBER_ID


def test_g154_a_heartbeat_says_when_to_join_again(world: GroupWorld) -> None:
    (new,) = joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    old.sync()
    assert old.beat() is E.NONE, "new has still to give back: nothing to be had by joining"
    new.beat()
    assert old.beat() is E.NONE
    new.beat()
    assert old.beat() is E.REBALANCE_IN_PROGRESS, "now there is"
    old.join()
    old.sync()
    assert len(old.owned) == 5
    assert old.beat() is E.NONE


def test_g154_whoever_does_not_join_again_is_out(world: GroupWorld) -> None:
    old = classic_group(world, session_ms=100_000)
    new = FakeMember(world, "new")
    new.beat()
    for _ in range(4):
        world.wait(20_000)
        new.beat()
        assert old.beat() in (E.REBALANCE_IN_PROGRESS, E.UNKNOWN_MEMBER_ID)
    assert list(consumer_group(world).members) == ["new"]
    settle(new)
    assert len(new.owned) == 10


def test_g154_a_classic_member_has_a_session_of_its_own(world: GroupWorld) -> None:
    joined(world, "new")
    old = ClassicMember(world, session_ms=10_000)
    old.enter()
    world.wait(9_999)
    assert old.member_id in consumer_group(world).members
    world.wait(1)
    assert list(consumer_group(world).members) == ["new"]


def test_g154_classic_members_commit_with_their_generation(world: GroupWorld) -> None:
    joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    how = {"member_id": old.member_id, "version": 7}
    assert world.commit(5, generation=3, **how) is E.NONE
    assert world.commit(5, generation=2, **how) is E.ILLEGAL_GENERATION


def test_g154_classic_members_leave_one_by_one(world: GroupWorld) -> None:
    joined(world, "new")
    old, static = ClassicMember(world), ClassicMember(world, instance="i")
    old.enter()
    static.enter()
    epoch = consumer_group(world).epoch
    codes = world.leave_as(
        MemberIdentity(member_id=old.member_id),
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id="new"),
        MemberIdentity(member_id=old.member_id),
    )
    assert codes == [E.NONE, E.NONE, E.NONE, E.UNKNOWN_MEMBER_ID], "whatever it speaks"
    assert consumer_group(world).epoch == epoch + 1
    assert not consumer_group(world).members


# --- Down (G-155) ---


def mixed(world: GroupWorld) -> tuple[ClassicMember, FakeMember]:
    old, new = classic_group(world), FakeMember(world, "new")
    new.beat()
    rest(old, new)
    return old, new


def test_g155_without_its_last_consumer_member_it_is_a_classic_group(world: GroupWorld) -> None:
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


def test_g155_a_session_that_ends_does_the_same(world: GroupWorld) -> None:
    old, _ = mixed(world)
    for _ in range(9):
        world.wait(5_000)
        old.beat()
    assert not shard(world).consumers
    assert old.beat() is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_g155_the_policy_may_forbid_it(policy: str) -> None:
    world = GroupWorld(group_consumer_migration_policy=policy)
    (new,) = joined(world, "new")
    old = ClassicMember(world)
    old.enter()
    new.leave()
    assert list(consumer_group(world).members) == [old.member_id]
    rest(old)


def test_g155_a_static_member_that_goes_back_takes_the_group_with_it(world: GroupWorld) -> None:
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


def test_g155_a_refused_append_leaves_the_consumer_group(world: GroupWorld) -> None:
    old, new = mixed(world)
    before = copy.deepcopy(shard(world).consumers)
    world.log.refuse = E.KAFKA_STORAGE_ERROR
    answer = send(world, member_id="new", member_epoch=-1).result()
    assert answer.error_code == E.NOT_COORDINATOR
    world.log.refuse = E.NONE
    after = copy.deepcopy(shard(world).consumers)
    after[GROUP].seen_version = before[GROUP].seen_version
    assert after == before
    assert not shard(world).groups
    rest(old, new)


def test_g155_what_was_waited_for_before_is_forgotten(world: GroupWorld) -> None:
    """There, back and there again, within the time in which it was to join again."""
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


# --- Empty groups (G-156) ---


def test_g156_an_id_that_was_handed_out_is_no_member(world: GroupWorld) -> None:
    old = ClassicMember(world)
    old.member_id = world.new_id(**old.how())
    new = FakeMember(world, "new")
    assert new.beat().error_code == E.NONE
    assert not shard(world).groups
    assert old.join().error_code == E.NONE
    assert old.sync() is E.NONE
    rest(old, new)


def test_g156_an_empty_classic_group_keeps_its_offsets(world: GroupWorld) -> None:
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


def test_g156_offsets_without_a_group_keep_as_well(world: GroupWorld) -> None:
    world.commit(5)
    assert FakeMember(world, "new").beat().member_epoch == 2
    assert world.committed() == 5
    world.restart()
    assert list(shard(world).consumers) == [GROUP] and not shard(world).groups


def test_g156_an_empty_consumer_group_becomes_a_classic_one(world: GroupWorld) -> None:
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


# --- For people and for metrics ---


def test_g155_the_change_of_protocol_is_told(world: GroupWorld) -> None:
    _, new = mixed(world)
    new.leave()
    events = world.groups.history.about(GROUP).events
    told = [event.fields["protocol"] for event in events if event.what is What.GROUP_CONVERTED]
    assert told == ["consumer", "classic"]


def test_g161_metrics_see_groups_of_both_kinds(world: GroupWorld) -> None:
    joined(world, "a", "b")
    world.commit(5, member_id="a", generation=3)
    world.stable(1, group="old")
    seen = {each.group_id: each for each in world.groups.groups()}
    assert seen["old"].state is S.STABLE
    listing = seen[GROUP]
    assert (listing.state, listing.members) == (ConsumerGroupState.STABLE, 2)
    assert (listing.protocol_type, listing.generation, listing.offsets) == ("consumer", 3, 1)
