"""The reconciliation of members of streams groups with their targets (J-30 to J-32)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest

from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.streams.group import (
    Holders,
    StreamsGroupMember,
    StreamsMemberState,
)
from odradek_broker.coordinator.groups.streams.reconciliation import reconcile
from odradek_broker.coordinator.groups.streams.tasks import (
    NO_TASK_SET,
    NOTHING_HELD,
    HeldTasks,
    TaskSet,
)
from odradek_broker.coordinator.groups.uses import Uses
from odradek_protocol.errors import ErrorCode

S = StreamsMemberState
FREE = Holders({}, {})


def active(*indexes: int, standby: Iterable[int] = ()) -> TaskSet:
    tasks = {"0": frozenset(indexes)} if indexes else {}
    copies = {"0": frozenset(standby)} if standby else {}
    return TaskSet(tasks, copies)


def held(*indexes: int, epoch: int = 5, standby: Iterable[int] = ()) -> HeldTasks:
    return HeldTasks(
        active(*indexes, standby=standby), {"0": dict.fromkeys(indexes, epoch)} if indexes else {}
    )


def member(
    state: S = S.STABLE, assigned: HeldTasks = NOTHING_HELD, pending: HeldTasks = NOTHING_HELD
) -> StreamsGroupMember:
    return StreamsGroupMember(
        member_id="m",
        process_id="p",
        state=state,
        epoch=5,
        previous_epoch=4,
        assigned=assigned,
        pending=pending,
    )


def step(
    before: StreamsGroupMember,
    target: TaskSet,
    owned: TaskSet | None = None,
    holders: Holders = FREE,
    epoch: int = 7,
) -> StreamsGroupMember:
    return reconcile(before, epoch, target, owned, lambda: holders)


def test_j30_a_member_at_its_target_stays_unchanged() -> None:
    before = member(assigned=held(0))
    assert step(before, active(0), epoch=5) is before


def test_j30_tasks_without_an_owner_are_assigned_at_once() -> None:
    after = step(member(assigned=held(0)), active(0, 1))
    assert (after.state, after.epoch, after.previous_epoch) == (S.STABLE, 7, 5)
    assert after.assigned == HeldTasks(active(0, 1), {"0": {0: 5, 1: 7}})


def test_j30_a_member_revokes_tasks_before_it_gets_new_ones() -> None:
    after = step(member(assigned=held(0, 1)), active(0, 2))
    assert (after.state, after.epoch, after.previous_epoch) == (S.UNREVOKED_TASKS, 5, 5)
    assert (after.assigned, after.pending) == (held(0), held(1))


def test_j32_a_member_that_no_longer_owns_tasks_need_not_revoke_them() -> None:
    after = step(member(assigned=held(0, 1)), active(0), owned=active(0))
    assert (after.state, after.epoch, after.pending) == (S.STABLE, 7, NOTHING_HELD)


@pytest.mark.parametrize("owned", [None, active(0, 1), active(1)])
def test_j32_a_member_stays_unrevoked_until_it_reports_its_tasks_revoked(
    owned: TaskSet | None,
) -> None:
    before = member(S.UNREVOKED_TASKS, held(0), held(1))
    assert step(before, active(0, 2), owned) is before


def test_j30_a_member_reaches_its_target_once_its_tasks_are_revoked() -> None:
    before = member(S.UNREVOKED_TASKS, held(0), held(1))
    after = step(before, active(0, 2), active(0))
    assert (after.state, after.epoch, after.previous_epoch) == (S.STABLE, 7, 5)
    assert after.assigned.tasks == active(0, 2)


def test_j30_a_new_target_may_make_a_member_revoke_more_tasks() -> None:
    before = member(S.UNREVOKED_TASKS, held(0), held(1))
    after = step(before, active(2), active(0))
    assert (after.state, after.epoch, after.pending) == (S.UNREVOKED_TASKS, 6, held(0))


def test_j31_a_member_waits_for_a_task_that_another_process_holds() -> None:
    taken = Holders({"0": {1: "q"}}, {})
    after = step(member(), active(0, 1), holders=taken)
    assert (after.state, after.epoch) == (S.UNRELEASED_TASKS, 7)
    assert after.assigned.tasks == active(0)
    assert step(after, active(0, 1), holders=taken).assigned.tasks == active(0)
    assert step(after, active(0, 1)).state is S.STABLE


def test_j31_a_standby_task_in_another_process_delays_no_member() -> None:
    copies = Holders({}, {("q", "0"): Uses({0: 1})})
    assert step(member(), active(0), holders=copies).state is S.STABLE
    standby = step(member(), active(standby=[0]), holders=Holders({"0": {0: "q"}}, copies.copies))
    assert standby.state is S.STABLE and standby.assigned.tasks == active(standby=[0])


@pytest.mark.parametrize("target", [active(0), active(standby=[0])])
def test_j31_a_process_never_holds_the_same_task_twice(target: TaskSet) -> None:
    for holders in (Holders({"0": {0: "p"}}, {}), Holders({}, {("p", "0"): Uses({0: 1})})):
        after = step(member(), target, holders=holders)
        assert after.state is S.UNRELEASED_TASKS and after.assigned.tasks.is_empty


def test_a_member_in_an_unknown_state_must_join_again() -> None:
    before = member(S.UNKNOWN, held(0))
    for owned in (None, active(0)):
        with pytest.raises(Refusal) as refusal:
            step(before, active(0), owned)
        assert refusal.value.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert step(before, active(0), NO_TASK_SET).state is S.STABLE


@pytest.mark.parametrize(("state", "waits"), list(product(S, (False, True))))
def test_j30_no_step_assigns_a_task_outside_of_the_target(state: S, waits: bool) -> None:
    holders = Holders({"0": {3: "q"}}, {}) if waits else FREE
    target = active(0, 3)
    after = step(member(state, held(0, 1), held(2)), target, NO_TASK_SET, holders)
    assert after.assigned.tasks.is_subset(target)
    assert after.state is (S.UNRELEASED_TASKS if waits else S.STABLE)
