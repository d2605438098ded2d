"""The three scenarios of a group that grows, and lost answers, step by step (G-95 to G-99)."""

from __future__ import annotations

import pytest

from group_world import GroupWorld
from odradek_broker.coordinator.groups.states import GroupState
from odradek_broker.later import Later
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.join_group import JoinGroupResponse
from odradek_protocol.schemas.sync_group import SyncGroupResponse

E = ErrorCode
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
EMPTY = GroupState.EMPTY


class Consumer:
    """A client that does what the protocol asks of it, one step at a time."""

    def __init__(self, world: GroupWorld) -> None:
        self.world = world
        self.member_id = world.new_id()
        self.generation = -1
        self.joins = 0
        self.revoked = 0
        self.assigned: list[bytes] = []
        self.joining: Later[JoinGroupResponse] | None = None
        self.syncing: Later[SyncGroupResponse] | None = None
        self.members: list[str] = []
        self.leads = False

    def join(self) -> Consumer:
        """Joining gives up what is held, once for each rebalance that the listener sees."""
        if self.joins == 0 or (self.syncing is not None and self._synced()):
            self.revoked += 1
        self.joins += 1
        self.syncing = None
        self.joining = self.world.join(self.member_id)
        return self

    def _synced(self) -> bool:
        assert self.syncing is not None
        return self.syncing.done and self.syncing.result().error_code == E.NONE

    def joined(self) -> Consumer:
        """Take the answer to the join."""
        assert self.joining is not None
        answer = self.joining.result()
        assert answer.error_code == E.NONE
        assert answer.member_id == self.member_id
        self.generation = answer.generation_id
        self.leads = answer.leader == self.member_id
        self.members = [member.member_id for member in answer.members]
        assert bool(self.members) == self.leads
        self.joining = None
        return self

    def sync(self) -> Consumer:
        """Followers send nothing; the leader deals three partitions to its members in turn."""
        given = {}
        if self.leads:
            given = {
                member_id: bytes(range(3)[at :: len(self.members)])
                for at, member_id in enumerate(self.members)
            }
        self.syncing = self.world.sync(self.member_id, self.generation, given)
        return self

    def synced(self) -> ErrorCode:
        """Take the answer to the sync."""
        assert self.syncing is not None
        answer = self.syncing.result()
        if answer.error_code == E.NONE:
            self.assigned.append(answer.assignment)
        return ErrorCode(answer.error_code)

    def heartbeat(self) -> ErrorCode:
        return self.world.heartbeat(self.member_id, self.generation)

    def leave(self) -> None:
        assert self.world.leave(self.member_id) == [E.NONE]


def _whole_rebalance(*consumers: Consumer) -> None:
    for consumer in consumers:
        consumer.joined()
    for consumer in consumers:
        consumer.sync()
    for consumer in consumers:
        assert consumer.synced() is E.NONE


def _all_leave(world: GroupWorld, *consumers: Consumer) -> None:
    """They leave in turn; each time the others rejoin or leave too."""
    world.states.clear()
    for consumer in consumers:
        consumer.leave()
    assert world.state() is EMPTY
    assert world.states == [PREPARING, EMPTY]


def test_g95_three_at_once_are_one_rebalance_to_their_listeners() -> None:
    world = GroupWorld()
    three = Consumer(world)
    assert world.state() is EMPTY
    three.join().joined()
    assert world.states == [PREPARING, COMPLETING]
    assert (three.generation, three.leads, three.members) == (1, True, [three.member_id])
    two = Consumer(world).join()
    assert world.states == [PREPARING, COMPLETING, PREPARING]
    one = Consumer(world).join()
    assert not two.joining.done and not one.joining.done  # type: ignore[union-attr]
    assert three.sync().synced() is E.REBALANCE_IN_PROGRESS
    three.join()
    assert world.states == [PREPARING, COMPLETING, PREPARING, COMPLETING]
    _whole_rebalance(three, two, one)
    assert world.states == [PREPARING, COMPLETING, PREPARING, COMPLETING, STABLE]
    assert {consumer.generation for consumer in (one, two, three)} == {2}
    assert three.leads
    assert (one.joins, two.joins, three.joins) == (1, 1, 2)
    for consumer in (one, two, three):
        assert consumer.revoked == 1
        assert len(consumer.assigned) == 1
    assert sorted(b"".join(c.assigned[0] for c in (one, two, three))) == [0, 1, 2]
    _all_leave(world, one, two, three)


def test_g96_one_then_two_more_are_two_rebalances() -> None:
    world = GroupWorld()
    one = Consumer(world).join()
    _whole_rebalance(one)
    assert one.assigned == [bytes([0, 1, 2])]
    assert world.states == [PREPARING, COMPLETING, STABLE]
    world.wait(1_000)
    two = Consumer(world).join()
    three = Consumer(world).join()
    assert world.states == [PREPARING, COMPLETING, STABLE, PREPARING]
    assert one.heartbeat() is E.REBALANCE_IN_PROGRESS
    one.join()
    _whole_rebalance(one, two, three)
    assert world.states == [PREPARING, COMPLETING, STABLE, PREPARING, COMPLETING, STABLE]
    assert {consumer.generation for consumer in (one, two, three)} == {2}
    assert one.leads
    assert [len(part) for part in one.assigned] == [3, 1]
    assert (one.revoked, two.revoked, three.revoked) == (2, 1, 1)
    assert (len(one.assigned), len(two.assigned), len(three.assigned)) == (2, 1, 1)
    assert (one.joins, two.joins, three.joins) == (2, 1, 1)
    _all_leave(world, one, two, three)


def test_g97_one_after_the_other_are_three_rebalances() -> None:
    world = GroupWorld()
    one = Consumer(world).join()
    _whole_rebalance(one)
    world.wait(1_000)
    two = Consumer(world).join()
    assert one.heartbeat() is E.REBALANCE_IN_PROGRESS
    one.join()
    _whole_rebalance(one, two)
    world.wait(2_000)
    three = Consumer(world).join()
    for consumer in (one, two):
        assert consumer.heartbeat() is E.REBALANCE_IN_PROGRESS
        consumer.join()
    _whole_rebalance(one, two, three)
    assert world.states == [PREPARING, COMPLETING, STABLE] * 3
    assert world.group().generation == 3
    assert (one.revoked, two.revoked, three.revoked) == (3, 2, 1)
    assert [len(part) for part in one.assigned] == [3, 2, 1]
    assert [len(part) for part in two.assigned] == [1, 1]
    assert [len(part) for part in three.assigned] == [1]
    _all_leave(world, one, two, three)


def test_g98_with_the_initial_delay_three_at_once_join_once_each() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=3_000)
    consumers = [Consumer(world).join() for _ in range(3)]
    world.wait(2_999)
    assert world.states == [PREPARING]
    # Two came during the wait, which therefore goes on for another 3 s.
    world.wait(1)
    assert world.states == [PREPARING]
    world.wait(3_000)
    assert world.states == [PREPARING, COMPLETING]
    _whole_rebalance(*consumers)
    assert world.states == [PREPARING, COMPLETING, STABLE]
    assert world.group().generation == 1
    assert [consumer.joins for consumer in consumers] == [1, 1, 1]
    assert consumers[0].leads
    _all_leave(world, *consumers)


def _three_joined(world: GroupWorld) -> list[Consumer]:
    """Three members whose second generation has been answered, the first one leading."""
    leader = Consumer(world).join()
    _whole_rebalance(leader)
    others = [Consumer(world).join() for _ in range(2)]
    leader.join()
    world.states.clear()
    return [leader, *others]


def test_g99a_a_follower_that_lost_its_join_answer_catches_up() -> None:
    world = GroupWorld()
    leader, second, third = _three_joined(world)
    leader.joined()
    second.joined().sync()
    assert leader.sync().synced() is E.NONE
    assert second.synced() is E.NONE
    assert world.states == [STABLE]
    third.join().joined()
    assert third.generation == 2
    assert third.sync().synced() is E.NONE
    assert world.states == [STABLE]
    assert world.group().generation == 2


def test_g99b_a_leader_that_lost_its_join_answer_is_waited_for() -> None:
    world = GroupWorld()
    leader, second, third = _three_joined(world)
    second.joined().sync()
    third.joined().sync()
    assert world.state() is COMPLETING
    leader.join().joined()
    assert (leader.generation, leader.leads, len(leader.members)) == (2, True, 3)
    assert leader.sync().synced() is E.NONE
    assert second.synced() is third.synced() is E.NONE
    assert world.states == [STABLE]
    assert world.group().generation == 2


def test_g99c_syncs_may_come_before_with_and_after_the_leaders() -> None:
    world = GroupWorld()
    leader, second, third = _three_joined(world)
    for consumer in (leader, second, third):
        consumer.joined()
    second.sync()
    assert second.syncing is not None
    assert not second.syncing.done
    leader.sync()
    assert leader.synced() is second.synced() is E.NONE
    assert world.states == [STABLE]
    assert third.sync().synced() is E.NONE
    assert sorted(b"".join(c.assigned[-1] for c in (leader, second, third))) == [0, 1, 2]


@pytest.mark.parametrize("lost", ["join", "sync"])
def test_g99_a_lost_answer_across_a_restart_costs_at_most_one_rebalance(lost: str) -> None:
    world = GroupWorld()
    consumers = _three_joined(world)
    if lost == "sync":
        for consumer in consumers:
            consumer.joined().sync()
    world.restart()
    if lost == "sync":
        assert world.state() is STABLE
        for consumer in consumers:
            assert consumer.sync().synced() is E.NONE
        assert world.group().generation == 2
    else:
        for consumer in consumers:
            consumer.join()
        _whole_rebalance(*consumers)
        assert world.group().generation == 3
