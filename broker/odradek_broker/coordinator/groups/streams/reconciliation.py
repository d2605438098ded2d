"""The reconciliation of a member of a streams group with its target (rules J-30 to J-32): the
member first revokes tasks, and gets further tasks when no other process has them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from enum import Enum, auto

from odradek_broker.coordinator.groups.partitions import (
    Tasks,
    difference,
    intersection,
    partitions_of,
)
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.streams.group import (
    Holders,
    StreamsGroupMember,
    StreamsMemberState,
)
from odradek_broker.coordinator.groups.streams.tasks import (
    NOTHING_HELD,
    HeldTasks,
    TaskSet,
    held_tasks,
)
from odradek_protocol.errors import ErrorCode

_S = StreamsMemberState
_NONE: Mapping[int, str] = {}


class ReconciliationStep(Enum):
    """The steps of a reconciliation."""

    #: The member has to revoke tasks first.
    REVOKE = auto()
    #: The member has all tasks of the target, or can get them now.
    FINISH = auto()
    #: Another process still has some tasks of the target.
    WAIT = auto()


#: The state that a member enters with each step; the state before does not matter (J-30).
STATES: Mapping[ReconciliationStep, StreamsMemberState] = {
    ReconciliationStep.REVOKE: _S.UNREVOKED_TASKS,
    ReconciliationStep.FINISH: _S.STABLE,
    ReconciliationStep.WAIT: _S.UNRELEASED_TASKS,
}


def reconcile(
    member: StreamsGroupMember,
    epoch: int,
    target: TaskSet,
    owned: TaskSet | None,
    holders: Callable[[], Holders],
) -> StreamsGroupMember:
    """The member after its next step towards the target of this epoch; the same member if it must
    wait.

    `owned`: the tasks that the member reports, None if it does not report them.
    """
    if member.is_reconciled(epoch):
        return member
    member_epoch = member.epoch
    if member.state is _S.UNREVOKED_TASKS:
        if owned is None or owned.intersects(member.pending.tasks):
            return member
        member_epoch += 1
    elif member.state is _S.UNKNOWN:
        if owned is None or not owned.is_empty:
            raise Refusal(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its"
                " tasks and rejoin.",
            )
        member_epoch = epoch
    plan = _Plan(member, epoch, target, holders())
    if not plan.revoked.tasks.is_empty and (owned is None or owned.intersects(plan.revoked.tasks)):
        return _moved(member, ReconciliationStep.REVOKE, member_epoch, plan.kept, plan.revoked)
    step = ReconciliationStep.WAIT if plan.waits else ReconciliationStep.FINISH
    return _moved(member, step, epoch, plan.kept.merge(plan.added), NOTHING_HELD)


def _moved(
    member: StreamsGroupMember,
    step: ReconciliationStep,
    epoch: int,
    assigned: HeldTasks,
    pending: HeldTasks,
) -> StreamsGroupMember:
    return replace(
        member,
        state=STATES[step],
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        pending=pending,
    )


class _Plan:
    """The tasks that a member keeps, revokes and gets. `waits`: true if other processes have to
    revoke tasks of the target first."""

    def __init__(
        self, member: StreamsGroupMember, epoch: int, target: TaskSet, holders: Holders
    ) -> None:
        self._holders = holders
        self._process_id = member.process_id
        self.waits = False
        now, epochs = member.assigned.tasks, member.assigned.epochs
        kept = TaskSet(
            intersection(now.active, target.active),
            intersection(now.standby, target.standby),
            intersection(now.warmup, target.warmup),
        )
        revoked = TaskSet(
            difference(now.active, kept.active),
            difference(now.standby, kept.standby),
            difference(now.warmup, kept.warmup),
        )
        active = self._free(difference(target.active, kept.active), self._taken)
        self.kept = held_tasks(kept.active, kept.standby, kept.warmup, epochs)
        self.revoked = held_tasks(revoked.active, revoked.standby, revoked.warmup, epochs)
        self.added = held_tasks(
            active,
            self._free(difference(target.standby, kept.standby), self._own),
            self._free(difference(target.warmup, kept.warmup), self._own),
            {each_id: dict.fromkeys(indexes, epoch) for each_id, indexes in active.items()},
        )

    def _free(self, wanted: Tasks, not_free: Callable[[str], Collection[int]]) -> Tasks:
        """The tasks that no other process has, so that the member can get them."""
        free = partitions_of(
            (each_id, indexes.difference(not_free(each_id), self._copies(each_id)))
            for each_id, indexes in wanted.items()
        )
        self.waits = self.waits or free != wanted
        return free

    def _taken(self, each_id: str) -> Collection[int]:
        """The tasks of a subtopology that a process has as active: nobody else gets them so."""
        return self._holders.active.get(each_id, _NONE)

    def _own(self, each_id: str) -> Collection[int]:
        """The tasks that the member's process has as active: it gets no copy of them."""
        active = self._holders.active.get(each_id, _NONE)
        return [index for index, process in active.items() if process == self._process_id]

    def _copies(self, each_id: str) -> Collection[int]:
        """The tasks that the member's process has as standby or warm-up."""
        return self._holders.copies.get((self._process_id, each_id), ())
