"""Sets of tasks of Kafka Streams: the present and the target assignments of members of streams
groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Protocol

from odradek_broker.coordinator.groups.partitions import (
    Tasks,
    in_order,
    intersects,
    is_subset,
    partitions_of,
    union,
)
from odradek_protocol.common_structs import StreamsTaskIds
from odradek_protocol.lazy_dataclass import dataclass

Task = tuple[str, int]
"""Subtopology id and partition index."""

# A member may have ten thousand tasks of one subtopology, so no task costs a call or a tuple.
TaskEpochs = Mapping[str, Mapping[int, int]]
"""Subtopology id to a group epoch for each partition index."""


class TaskIds(Protocol):
    """Tasks of one subtopology, in a message or a record."""

    subtopology_id: str
    partitions: list[int]


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Tasks by kind: active ones process records, standby ones keep a copy of the state of a task
    of another client, and warm-up ones prepare to become active."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def intersects(self, other: TaskSet) -> bool:
        """True if the sets have a task of the same kind in common."""
        return (
            intersects(self.active, other.active)
            or intersects(self.standby, other.standby)
            or intersects(self.warmup, other.warmup)
        )

    def is_subset(self, whole: TaskSet) -> bool:
        """True if `whole` has every task of this set, under the same kind."""
        return (
            is_subset(self.active, whole.active)
            and is_subset(self.standby, whole.standby)
            and is_subset(self.warmup, whole.warmup)
        )


NO_TASK_SET = TaskSet()


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """Tasks that a member has or must revoke. `epochs`: the group epoch in which the member got
    each active task."""

    tasks: TaskSet = NO_TASK_SET
    epochs: TaskEpochs = field(default_factory=dict)

    def merge(self, other: HeldTasks) -> HeldTasks:
        mine, theirs = self.tasks, other.tasks
        return HeldTasks(
            TaskSet(
                union(mine.active, theirs.active),
                union(mine.standby, theirs.standby),
                union(mine.warmup, theirs.warmup),
            ),
            {
                each_id: {**self.epochs.get(each_id, {}), **other.epochs.get(each_id, {})}
                for each_id in self.epochs.keys() | other.epochs.keys()
            },
        )


NOTHING_HELD = HeldTasks()


def task_ids(tasks: Tasks) -> list[StreamsTaskIds]:
    """The tasks in the form of messages and records, sorted."""
    return [
        StreamsTaskIds(subtopology_id=each_id, partitions=indexes)
        for each_id, indexes in in_order(tasks)
    ]


def tasks_of(ids: Iterable[TaskIds] | None) -> Tasks:
    """The tasks in a list of a message or a record."""
    return partitions_of((each.subtopology_id, each.partitions) for each in ids or ())


def held_tasks(active: Tasks, standby: Tasks, warmup: Tasks, epochs: TaskEpochs) -> HeldTasks:
    """Held tasks with the epochs of the active tasks; other entries of `epochs` are ignored."""
    kept = {
        each_id: {index: epochs[each_id][index] for index in indexes}
        for each_id, indexes in active.items()
    }
    return HeldTasks(TaskSet(active, standby, warmup), kept)
