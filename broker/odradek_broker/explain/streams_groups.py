"""Explanations of streams groups: the events of their records, and their present state."""

from __future__ import annotations

from odradek_broker.coordinator.groups.events import StreamsRecordReplayed
from odradek_broker.coordinator.groups.partitions import Tasks, each_partition
from odradek_broker.coordinator.groups.streams.group import (
    StreamsGroup,
    StreamsMember,
    StreamsMemberState,
)
from odradek_broker.coordinator.groups.streams.tasks import TaskSet
from odradek_broker.explain.history import LIST_MAX, CurrentState, History
from odradek_broker.explain.sentences import EventKind, Value, describe_client, duration_text
from odradek_broker.explain.share_groups import members_left_out
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.stored.streams_group import StreamsRecordType


def record_streams_event(history: History, event: StreamsRecordReplayed) -> None:
    """Record what a record of a streams group has changed."""
    group, after = event.group, event.after
    if event.kind is StreamsRecordType.GROUP:
        history.record(
            group.group_id, EventKind.CONSUMER_EPOCH, epoch=group.epoch, state=group.state.value
        )
    elif event.kind is StreamsRecordType.TARGET_EPOCH:
        history.record(
            group.group_id,
            EventKind.CONSUMER_ASSIGNED,
            epoch=group.assignment_epoch,
            members=_targets(group),
            state=group.state.value,
        )
    elif event.kind is StreamsRecordType.MEMBER and after is not None:
        joined = event.before is None
        history.record(
            group.group_id,
            EventKind.CONSUMER_JOINED if joined else EventKind.CONSUMER_CHANGED,
            member=after.member_id,
            client=describe_client(after.client_id, after.client_host),
        )
    elif event.kind is StreamsRecordType.CURRENT and after is not None:
        history.record(
            group.group_id,
            EventKind.CONSUMER_MOVED,
            state=group.state.value,
            partitions=_tasks(after.assigned.tasks),
            member=after.member_id,
            epoch=after.epoch,
            note=_progress(after),
            pending=len(_tasks(after.pending.tasks)) or None,
        )


def _targets(group: StreamsGroup) -> tuple[str, ...]:
    found = []
    for member_id in group.members:
        target = group.target(member_id)
        copies = _count(target.standby)
        more = f", {copies} standby" if copies else ""
        found.append(f"{member_id} ({_count(target.active)} active{more} tasks)")
    return tuple(found)


def _count(tasks: Tasks) -> int:
    return len(list(each_partition(tasks)))


def _tasks(tasks: TaskSet) -> list[TopicPartition]:
    """The tasks in the form of partitions: task 0-3 is that of partition 3 in subtopology 0."""
    kinds = (("task", tasks.active), ("standby task", tasks.standby))
    return [
        (f"{word} {each_id}", index)
        for word, some in kinds
        for each_id, index in sorted(each_partition(some))
    ]


def _progress(member: StreamsMember) -> str:
    if member.state is StreamsMemberState.UNREVOKED_TASKS:
        return "to give tasks back first"
    if member.state is StreamsMemberState.UNRELEASED_TASKS:
        return "waiting for tasks that others still hold"
    return "with all that it is to have"


def states_of_streams_group(
    group: StreamsGroup, offsets: int, session_ms: int
) -> list[CurrentState]:
    """The group with its obstacles, then its members (the first of them)."""
    fields: dict[str, Value | None] = {
        "state": group.state.value,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": len(group.members),
        "offsets": offsets,
    }
    states = [CurrentState.of(EventKind.NOW_CONSUMER_GROUP, fields)]
    problem = None if group.configured is None else group.configured.problem
    if problem is not None:
        states.append(CurrentState.of(EventKind.NOW_NOTHING, {"reason": problem.detail}))
    for member in list(group.members.values())[:LIST_MAX]:
        of_member: dict[str, Value | None] = {
            "member": member.member_id,
            "client": describe_client(member.client_id, member.client_host),
            "timeout": duration_text(session_ms),
            "note": f"epoch {member.epoch}, {_progress(member)}",
        }
        tasks = _tasks(member.assigned.tasks)
        states.append(CurrentState.of(EventKind.NOW_MEMBER, of_member, tasks))
    return [*states, *members_left_out(len(group.members))]
