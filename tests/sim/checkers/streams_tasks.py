"""Tasks of streams groups: an active task has one member, its standby tasks are in other processes,
and the coordinator's assignments obey the same rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from tests.sim.checkers.assignment import shards_of

from odradek_broker.coordinator.groups.partitions import each_partition
from odradek_broker.coordinator.groups.streams.group import StreamsGroup
from odradek_broker.node import Node

#: Subtopology id and partition.
Task = tuple[str, int]


@dataclass(slots=True)
class Tasks:
    """The tasks that a member runs."""

    active: set[Task] = field(default_factory=set)
    standby: set[Task] = field(default_factory=set)


class TaskOwners:
    """The tasks that members run, as far as the members know.

    `is_current`: True if the coordinator still has the member, with the tasks that it was given.
    """

    def __init__(self, is_current: Callable[[str], bool]) -> None:
        self._is_current = is_current
        self._process: dict[str, str] = {}
        self._held: dict[str, Tasks] = {}

    def runs(self, member: str, process: str, tasks: Tasks) -> Iterator[str]:
        """Called when a member runs exactly these tasks from now on. Yields violations."""
        self._process[member] = process
        self._held[member] = Tasks(set(tasks.active), set(tasks.standby))
        if not self._is_current(member):
            return
        for other, held in self._held.items():
            if other == member or not self._is_current(other):
                continue
            for task in sorted(tasks.active & held.active):
                yield f"{_name(task)} is active in {member} and in {other}"
            if self._process[other] == process:
                yield from _copies(member, tasks, other, held)
        yield from _copies(member, tasks, member, tasks)

    def ended(self, member: str) -> None:
        """Called when a member no longer runs any task: the member has left, has given up or was
        killed."""
        self._held.pop(member, None)


def _copies(member: str, tasks: Tasks, other: str, held: Tasks) -> Iterator[str]:
    for task in sorted((tasks.active & held.standby) | (tasks.standby & held.active)):
        yield f"{_name(task)} is active and standby in the process of {member} and {other}"


def _name(task: Task) -> str:
    return f"{task[0]}_{task[1]}"


def check_streams_groups(node: Node) -> Iterator[str]:
    """Check the groups of a running node; may be called at any time."""
    for shard in shards_of(node):
        for group in shard.streams.values():
            for problem in _check(group):
                yield f"streams group {group.group_id}: {problem}"


def _check(group: StreamsGroup) -> Iterator[str]:
    if group.assignment_epoch > group.epoch:
        yield f"the assignment of epoch {group.assignment_epoch} is ahead of epoch {group.epoch}"
    for what, sets in (
        ("target", [(each, target) for each, target in group.targets.items()]),
        ("member", [(each, member.assigned.tasks) for each, member in group.members.items()]),
    ):
        actives: dict[Task, str] = {}
        for member_id, tasks in sets:
            for task in each_partition(tasks.active):
                other = actives.setdefault(task, member_id)
                if other != member_id:
                    yield f"{_name(task)} is active for the {what}s {other} and {member_id}"
        for member_id, tasks in sets:
            member = group.members.get(member_id)
            for task in each_partition(tasks.standby):
                active = group.members.get(actives.get(task, ""))
                if member and active and member.process_id == active.process_id:
                    yield f"{_name(task)} is standby for the {what} {member_id}, beside the active"


def missing_tasks(node: Node, group_id: str, expected: Collection[Task]) -> str:
    """The reason why a group does not run all of its tasks; empty if it does."""
    for shard in shards_of(node):
        group = shard.streams.get(group_id)
        if group is None:
            continue
        if group.state.value != "Stable":
            return f"the group is {group.state.value}"
        running = sorted(
            task
            for member in group.members.values()
            for task in each_partition(member.assigned.tasks.active)
        )
        if running != sorted(expected):
            return f"{running} are active of {sorted(expected)}"
        return ""
    return "there is no group"
