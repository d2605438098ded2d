"""Commits and fetches of members of consumer groups (KIP-848; O-20 to O-23)."""

from __future__ import annotations

import pytest

from at_once import at_once
from consumer_group_world import (
    FakeMember,
    consumer_group,
    joined,
    settle,
    shard,
    stored,
)
from group_world import GROUP, GroupWorld, part
from odradek_broker.coordinator.groups.consumer.records import current_record
from odradek_broker.coordinator.groups.offsets import CommitCall, CommitPart, FetchingMember
from odradek_broker.coordinator.runtime import ProducerIdentity
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentValue,
    GroupRecordType,
)
from odradek_protocol.stored.modern_groups import decode_value

E = ErrorCode


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_o20_a_member_commits_with_its_epoch(world: GroupWorld) -> None:
    (a,) = joined(world, "a")
    assert world.commit(5, member_id="a", generation=2) is E.NONE
    assert world.committed() == 5
    assert world.commit(6, member_id="a", generation=3) is E.STALE_MEMBER_EPOCH
    assert world.commit(6, member_id="b", generation=1) is E.UNKNOWN_MEMBER_ID
    assert world.commit(6) is E.UNKNOWN_MEMBER_ID, "nobody from outside while there are members"
    assert world.commit(6, member_id="a", generation=2, version=8) is E.UNSUPPORTED_VERSION
    a.leave()
    assert world.commit(7) is E.NONE
    assert world.committed() == 7


def shared(world: GroupWorld) -> tuple[FakeMember, int, int, int]:
    """A member that had all partitions at epoch 2 and has a part of them at epoch 3; 2, a partition
    that the member kept, and one that another member has now."""
    (a,) = joined(world, "a")
    first, everything = a.epoch, a.owned
    b = FakeMember(world, "b")
    b.beat()
    settle(a, b)
    assert (first, a.epoch) == (2, 3)
    ((_, kept), *_), ((_, lost), *_) = sorted(a.owned), sorted(everything - a.owned)
    return a, first, kept, lost


@pytest.mark.parametrize("restarted", [False, True])
def test_o20_a_member_commits_with_an_epoch_in_which_it_had_the_partition(
    world: GroupWorld, restarted: bool
) -> None:
    a, first, kept, lost = shared(world)
    if restarted:
        world.restart()

    def commit(epoch: int, *parts: CommitPart) -> list[ErrorCode]:
        return world.commit_later(*parts, member_id="a", generation=epoch).result()

    def one(epoch: int, partition: int) -> ErrorCode:
        (error,) = commit(epoch, part(5, partition=partition))
        return error

    assert one(first, kept) is E.NONE
    assert one(first, lost) is E.STALE_MEMBER_EPOCH
    assert one(a.epoch, lost) is E.NONE, "with the present epoch a member may commit any partition"
    assert one(first - 1, kept) is E.STALE_MEMBER_EPOCH
    assert one(a.epoch + 1, kept) is E.STALE_MEMBER_EPOCH
    stale = [E.STALE_MEMBER_EPOCH] * 2
    assert commit(first, part(5, partition=kept), part(5, partition=lost)) == stale
    refused = part(5, partition=lost, metadata="x" * 5000)
    assert commit(first, part(5, partition=kept), refused) == [E.NONE, E.OFFSET_METADATA_TOO_LARGE]


def test_o20_a_member_commits_what_it_has_to_revoke(world: GroupWorld) -> None:
    (a,) = joined(world, "a")
    FakeMember(world, "b").beat()
    a.beat()
    (pending, *_) = stored(world, "a").pending[b"T" * 16]
    assert a.epoch == 2, "the revocation is not reported yet"
    committed = world.commit_later(part(5, partition=pending), member_id="a", generation=2)
    assert committed.result() == [E.NONE]


def test_o20_a_partition_that_returns_has_the_epoch_of_its_return(world: GroupWorld) -> None:
    a, first, kept, lost = shared(world)
    second = a.epoch
    b = FakeMember(world, "b", epoch=second)
    b.leave()
    settle(a)
    epochs = stored(world, "a").epochs
    assert (epochs[b"T" * 16, kept], epochs[b"T" * 16, lost]) == (first, a.epoch)
    assert a.epoch > second
    for epoch in (first, second):
        late = world.commit_later(part(5, partition=lost), member_id="a", generation=epoch)
        assert late.result() == [E.STALE_MEMBER_EPOCH]


def test_o20_a_static_member_that_returns_commits_with_its_new_epoch(world: GroupWorld) -> None:
    (a,) = joined(world, "a", instance="i")
    a.leave(epoch=-2)
    assert set(stored(world, "a").epochs.values()) == {0}
    b = FakeMember(world, "b", instance="i")
    b.beat()
    assert world.commit(5, member_id="b", generation=b.epoch) is E.NONE


def test_o20_records_without_epochs_have_that_of_the_member(world: GroupWorld) -> None:
    """A Kafka before 4.3 wrote them."""
    joined(world, "a")
    member = stored(world, "a")
    _, data = at_once(current_record(GROUP, member))
    value = decode_value(GroupRecordType.CURRENT, data or b"")
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    for each in value.assigned_partitions:
        each.assignment_epochs = None
    group = consumer_group(world)
    group.replay_current("a", value)
    assert stored(world, "a") == member
    assert set(member.epochs.values()) == {member.epoch}


def test_o21_a_member_fetches_with_its_epoch(world: GroupWorld) -> None:
    joined(world, "a")
    world.commit(5, member_id="a", generation=2)

    def fetch(member_id: str | None, epoch: int) -> ErrorCode:
        member = FetchingMember(member_id, epoch)
        return world.groups.fetch_offsets(GROUP, [("topic", 0)], False, member).result().error

    assert fetch("a", 2) is E.NONE
    assert fetch(None, -1) is E.NONE
    assert fetch("", -1) is E.UNKNOWN_MEMBER_ID
    assert fetch("a", 3) is E.STALE_MEMBER_EPOCH
    assert fetch("b", 1) is E.UNKNOWN_MEMBER_ID


def test_o22_a_transactional_commit_with_a_wrong_epoch_gets_illegal_generation(
    world: GroupWorld,
) -> None:
    joined(world, "a")

    def commit(member_id: str, epoch: int) -> ErrorCode:
        call = CommitCall(GROUP, epoch, member_id, None, 5, -1, [part(3)])
        return world.groups.commit_offsets(call, ProducerIdentity(7, 0)).result()[0]

    assert commit("a", 2) is E.NONE
    assert commit("a", 3) is E.ILLEGAL_GENERATION
    assert commit("b", 1) is E.UNKNOWN_MEMBER_ID
    assert commit("", -1) is E.NONE


def test_o23_offsets_of_unsubscribed_topics_expire() -> None:
    world = GroupWorld(offsets_retention_minutes=2, offsets_retention_check_interval_ms=10_000)
    (a,) = joined(world, "a")
    world.commit_later(part(1), part(2, topic="other"), member_id="a", generation=2)
    for _ in range(4):
        world.wait(30_000)
        assert a.beat().error_code == E.NONE
    world.wait(10_000)
    assert set(shard(world).offsets.of_group(GROUP)) == {("topic", 0)}
    world.wait(300_000)
    assert GROUP not in shard(world).consumers, "nobody and nothing is left"
    assert set(latest(world).values()) == {None}


def latest(world: GroupWorld) -> dict[bytes, bytes | None]:
    """The records that remain after compaction."""
    return {key: value for key, value in world.log.records if key is not None}


def test_o14_a_consumer_group_is_deleted_when_it_has_no_members(world: GroupWorld) -> None:
    (a,) = joined(world, "a", topics=None, pattern="t.*")
    world.commit(5, member_id="a", generation=2)
    assert world.groups.delete_group(GROUP).result() is E.NON_EMPTY_GROUP
    a.leave()
    assert world.groups.delete_group(GROUP).result() is E.NONE
    assert GROUP not in shard(world).consumers
    assert set(latest(world).values()) == {None}
    world.restart()
    assert not shard(world).consumers and not shard(world).groups
