"""The reconciliation of members with their targets (KIP-848; G-120 to G-125)."""

from __future__ import annotations

from itertools import product

import pytest

from at_once import at_once
from consumer_group_world import (
    FakeMember,
    assigned,
    consumer_group,
    joined,
    listed,
    send,
    settle,
    stored,
    topic_id_partitions,
)
from group_world import GroupWorld
from odradek_broker.coordinator.groups.consumer.group import (
    STEPS,
    ConsumerMember,
    MemberState,
    ReportReaction,
    RevocationReport,
)
from odradek_broker.coordinator.groups.consumer.reconciliation import next_assignment
from odradek_broker.coordinator.groups.modern.group import ModernGroupState
from odradek_broker.coordinator.groups.partitions import NO_PARTITIONS, Partitions
from odradek_protocol.errors import ErrorCode

E = ErrorCode
M = MemberState
ALL = topic_id_partitions(*range(10))
TOPIC, OTHER = b"T" * 16, b"O" * 16


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


@pytest.mark.parametrize(
    ("state", "report", "newer"), list(product(M, RevocationReport, (False, True)))
)
def test_g120_each_state_and_report_lead_to_the_step_of_the_table(
    state: MemberState, report: RevocationReport, newer: bool
) -> None:
    """Every state with every report: `next_assignment` takes the step of the table."""
    held: Partitions = {TOPIC: frozenset({0, 1})}
    lost: Partitions = {TOPIC: frozenset({2})}
    pending = lost if state is M.UNREVOKED_PARTITIONS else NO_PARTITIONS
    member = ConsumerMember(
        member_id="a", epoch=5, previous_epoch=4, state=state, assigned=held, pending=pending
    )
    owned: Partitions | None = {
        RevocationReport.SILENT: None,
        RevocationReport.OWNING: {TOPIC: frozenset({0, 1, 2})},
        RevocationReport.RELEASED: held,
    }[report]
    target: Partitions = {TOPIC: frozenset({0, 3})}
    target_epoch = 7 if newer else 5
    after = at_once(
        next_assignment(
            member,
            target_epoch,
            target,
            owned,
            lambda *_: None,
            subscribed=(TOPIC,),
            changed=False,
        )
    )
    step = STEPS[state, report if pending else _without_pending(report), newer]
    if step in (ReportReaction.STAY, ReportReaction.WAIT):
        assert after is member
    else:
        # The member has to revoke partition 1 before it gets partition 3.
        assert after.state is M.UNREVOKED_PARTITIONS
        assert (after.assigned, after.pending) == (
            {TOPIC: frozenset({0})},
            {TOPIC: frozenset({1})},
        )
        assert after.epoch == 5


def _without_pending(report: RevocationReport) -> RevocationReport:
    """The report of a member that has nothing to revoke."""
    return (
        RevocationReport.SILENT if report is RevocationReport.SILENT else RevocationReport.RELEASED
    )


def test_g120_the_table_has_a_step_for_every_state_and_report() -> None:
    assert set(STEPS) == set(product(M, RevocationReport, (False, True)))


def test_g120_a_member_that_has_revoked_and_has_to_revoke_more_keeps_its_epoch(
    world: GroupWorld,
) -> None:
    a, b, c = (FakeMember(world, name) for name in "abc")
    a.beat()
    b.beat()
    told = send(world, **a.request()).result()
    assert c.beat().error_code == E.NONE
    a.take(told)
    assert a.beat().member_epoch == told.member_epoch == 2
    assert stored(world, "a").state is M.UNREVOKED_PARTITIONS
    settle(a, b, c)


@pytest.mark.parametrize("owned", [None, {TOPIC: frozenset({0})}, {OTHER: frozenset({1})}])
@pytest.mark.parametrize("state", [M.STABLE, M.UNREVOKED_PARTITIONS])
def test_g126_a_member_gives_up_topics_when_it_unsubscribes_from_them(
    state: MemberState, owned: Partitions | None
) -> None:
    """The target is the old one, because two assignments are an interval apart (G-143)."""
    held: Partitions = {TOPIC: frozenset({0}), OTHER: frozenset({1})}
    pending: Partitions = NO_PARTITIONS if state is M.STABLE else {TOPIC: frozenset({2})}
    member = ConsumerMember(
        member_id="a",
        epoch=5,
        previous_epoch=4,
        state=state,
        assigned=held,
        pending=pending,
        epochs=dict.fromkeys([(TOPIC, 0), (OTHER, 1), (TOPIC, 2)], 3),
    )
    if pending and owned is not None:
        owned = {**owned, TOPIC: frozenset({0, 2})}
    after = at_once(
        next_assignment(member, 5, held, owned, lambda *_: None, subscribed=(TOPIC,), changed=True)
    )
    assert after.assigned == {TOPIC: frozenset({0})}
    if state is M.STABLE and owned is not None and OTHER not in owned:
        assert (after.state, after.pending) == (M.STABLE, NO_PARTITIONS)
        assert after.epochs == {(TOPIC, 0): 3}
    else:
        assert after.state is M.UNREVOKED_PARTITIONS
        assert after.pending == {OTHER: frozenset({1}), **pending}
    assert (after.epoch, after.previous_epoch) == (5, 5)


def test_g121_a_partition_is_reassigned_only_after_its_owner_has_revoked_it(
    world: GroupWorld,
) -> None:
    a = FakeMember(world, "a")
    b = FakeMember(world, "b")
    assert assigned(a.beat()) == ALL
    assert assigned(b.beat()) == frozenset()
    told = send(world, **a.request()).result()
    assert stored(world, "a").state is M.UNREVOKED_PARTITIONS
    assert (told.member_epoch, assigned(told)) == (2, topic_id_partitions(0, 1, 2, 3, 4))
    assert assigned(b.beat()) is None, "a has not said so yet"
    assert stored(world, "b").state is M.UNRELEASED_PARTITIONS
    a.take(told)
    assert a.beat().member_epoch == 3
    assert assigned(b.beat()) == topic_id_partitions(5, 6, 7, 8, 9)
    assert stored(world, "b").state is M.STABLE


def test_g122_a_member_that_still_owns_a_revoked_partition_stays_unrevoked(
    world: GroupWorld,
) -> None:
    a, b = FakeMember(world, "a"), FakeMember(world, "b")
    a.beat()
    b.beat()
    a.beat()
    send(
        world, member_id="a", member_epoch=2, topic_partitions=listed(topic_id_partitions(0, 1, 9))
    ).result()
    assert stored(world, "a").state is M.UNREVOKED_PARTITIONS
    assert assigned(b.beat()) is None
    send(
        world, member_id="a", member_epoch=2, topic_partitions=listed(topic_id_partitions(0, 1))
    ).result()
    assert stored(world, "a").epoch == 3
    assert assigned(b.beat()) == topic_id_partitions(5, 6, 7, 8, 9)


def test_g122_a_member_may_join_while_another_revokes_partitions(world: GroupWorld) -> None:
    a, b, c = (FakeMember(world, name) for name in "abc")
    a.beat()
    b.beat()
    a.beat()
    c.beat()
    settle(a, b, c)
    assert sorted(map(len, (a.owned, b.owned, c.owned))) == [3, 3, 4]
    assert a.owned | b.owned | c.owned == ALL


def test_g123_a_member_that_does_not_revoke_in_time_is_removed(world: GroupWorld) -> None:
    a, b = FakeMember(world, "a", rebalance_ms=7_000), FakeMember(world, "b")
    a.beat()
    b.beat()
    a.beat()
    a.told = True
    for _ in range(3):
        world.wait(2_000)
        assert a.beat().error_code == b.beat().error_code == E.NONE
    world.wait(1_000)
    assert list(consumer_group(world).members) == ["b"]
    assert a.beat().error_code == E.UNKNOWN_MEMBER_ID
    assert assigned(b.beat()) == ALL


def test_g123_the_revocation_deadline_restarts_with_the_broker(world: GroupWorld) -> None:
    a, b = FakeMember(world, "a", rebalance_ms=7_000), FakeMember(world, "b")
    a.beat()
    b.beat()
    a.beat()
    world.restart()
    world.wait(6_999)
    assert list(consumer_group(world).members) == ["a", "b"]
    world.wait(1)
    assert list(consumer_group(world).members) == ["b"]


def test_g124_a_member_without_heartbeats_is_removed_after_its_session_timeout(
    world: GroupWorld,
) -> None:
    _a, b = joined(world, "a", "b")
    world.wait(44_999)
    b.beat()
    world.wait(1)
    assert list(consumer_group(world).members) == ["b"]
    settle(b)
    assert b.owned == ALL
    world.wait(45_000)
    assert consumer_group(world).state is ModernGroupState.EMPTY


@pytest.mark.parametrize("jump_ms", [-3_600_000, 86_400_000])
def test_g124_setting_the_wall_clock_neither_ends_nor_extends_a_session(
    world: GroupWorld, jump_ms: int
) -> None:
    """The wall clock is set back by an hour, then forward by a day."""
    joined(world, "a")
    world.clock.jump(jump_ms)
    world.wait(44_999)
    assert "a" in consumer_group(world).members
    world.wait(1)
    assert not consumer_group(world).members


def test_g124_a_restart_gives_every_member_a_whole_session(world: GroupWorld) -> None:
    joined(world, "a")
    world.wait(40_000)
    world.restart()
    world.wait(44_999)
    assert "a" in consumer_group(world).members
    world.wait(1)
    assert not consumer_group(world).members


def test_g125_a_leaving_member_is_removed_at_once(world: GroupWorld) -> None:
    a, b = joined(world, "a", "b")
    answer = a.leave()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, "a", -1)
    assert assigned(b.beat()) == ALL
    assert a.leave().error_code == E.UNKNOWN_MEMBER_ID
