"""Commits and fetches of members of consumer groups (KIP-848; O-20 to O-23)."""

from __future__ import annotations

import pytest

from consumer_group_world import (
    joined,
    shard,
)
from group_world import GROUP, GroupWorld, part
from odradek_broker.coordinator.groups.offsets import CommitCall, FetchingMember
from odradek_protocol.errors import ErrorCode

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
        return world.groups.commit_in_transaction(call, 7, 0).result()[0]

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
