"""Consumer, share and streams groups: the events of their replayed records, and their present
state."""

from __future__ import annotations

from functools import partial
from heapq import nsmallest
from typing import Any

from odradek_broker.coordinator.groups.consumer.group import ConsumerMember, MemberState
from odradek_broker.coordinator.groups.events import RecordReplayed
from odradek_broker.coordinator.groups.modern.group import ModernGroup
from odradek_broker.coordinator.groups.partitions import Partitions, Tasks, named
from odradek_broker.coordinator.groups.settings import CoordinatorMetadata
from odradek_broker.coordinator.groups.share.group import (
    ShareGroup,
    ShareMember,
    StatePartitions,
    partitions_in,
)
from odradek_broker.coordinator.groups.streams.group import (
    StreamsGroup,
    StreamsGroupMember,
    StreamsMemberState,
)
from odradek_broker.coordinator.groups.streams.tasks import HeldTasks, TaskSet
from odradek_broker.explain.history import (
    LIST_MAX,
    Fields,
    History,
    SubjectState,
    left_out,
    remark,
)
from odradek_broker.explain.sentences import EventKind, describe_client, duration_text
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import LEAVE_EPOCH

_K = EventKind
Group = ModernGroup[Any, Any]
Member = ConsumerMember | ShareMember | StreamsGroupMember


def record_replayed(history: History, topics: CoordinatorMetadata, event: RecordReplayed) -> None:
    """Add the event of a change that a replayed record has made to a group."""
    group, kind, state = event.group, event.kind.name, event.group.state.value
    after: Member | None = event.after
    add = partial(history.record, group.group_id)
    if kind == "GROUP":
        add(_K.CONSUMER_EPOCH, epoch=group.epoch, state=state)
    elif kind == "TARGET_EPOCH":
        epoch, members = group.assignment_epoch, _assigned(group)
        add(_K.CONSUMER_ASSIGNED, epoch=epoch, members=members, state=state)
    elif kind == "MEMBER" and after is not None:
        joined = event.before is None
        topics_of = _subscription(after)
        add(_K.CONSUMER_JOINED if joined else _K.CONSUMER_CHANGED, _who(after), topics=topics_of)
    elif kind == "CURRENT" and after is not None and after.epoch != 0:
        add(
            _K.CONSUMER_MOVED,
            state=state,
            partitions=_partitions(after.assigned, topics),
            member=after.member_id,
            epoch=after.epoch,
            note=_progress(group, after),
            pending=_pending(after),
        )
    elif kind == "STATE_PARTITIONS" and isinstance(group, ShareGroup) and group.states is not None:
        add(_K.SHARE_STATES, _counts(group.states))


def _who(member: Member) -> Fields:
    return {
        "member": member.member_id,
        "instance": None if isinstance(member, ShareMember) else member.instance_id,
        "client": describe_client(member.client_id, member.client_host),
    }


def _assigned(group: Group) -> tuple[str, ...]:
    """The members with the sizes of their targets, as far as they are shown."""
    ids = list(group.members)
    shown = [f"{each} ({_amount(group.target(each))})" for each in ids[:LIST_MAX]]
    return (*shown, *ids[LIST_MAX:])


def _subscription(member: Member) -> tuple[str, ...] | None:
    """The topics of a member; None for a member of a streams group, because the topics are in the
    group's topology."""
    if isinstance(member, StreamsGroupMember):
        return None
    # A history shows the first names, and the number of the others.
    topics = (*nsmallest(LIST_MAX, member.topics), *[""] * (len(member.topics) - LIST_MAX))
    if isinstance(member, ConsumerMember) and member.pattern:
        return (*topics, f"all that match {member.pattern}")
    return topics


def _amount(target: Partitions | TaskSet) -> str:
    if not isinstance(target, TaskSet):
        return f"{_count(target)} partitions"
    copies = _count(target.standby)
    more = f", {copies} standby" if copies else ""
    return f"{_count(target.active)} active{more} tasks"


def _count(partitions: Partitions | Tasks) -> int:
    return sum(map(len, partitions.values()))


def _pending(member: Member) -> int | None:
    """The number of partitions or tasks that the member has to revoke; None instead of 0."""
    if isinstance(member, ShareMember):
        return None
    if isinstance(member, StreamsGroupMember):
        tasks = member.pending.tasks
        return _count(tasks.active) + _count(tasks.standby) or None
    return _count(member.pending) or None


def _partitions(held: Partitions | HeldTasks, topics: CoordinatorMetadata) -> list[TopicPartition]:
    """The partitions of a member, or its tasks in the form of partitions: `("task 0", 3)` is the
    task of partition 3 in subtopology 0."""
    if not isinstance(held, HeldTasks):
        return named(held, topics)
    kinds = (("task", held.tasks.active), ("standby task", held.tasks.standby))
    shown: list[TopicPartition] = []
    for word, some in kinds:
        for each_id, indexes in sorted(some.items()):
            # A history shows the first tasks, and the number of the others.
            shown += [(f"{word} {each_id}", index) for index in nsmallest(LIST_MAX, indexes)]
            shown += [(f"{word} {each_id}", max(indexes))] * (len(indexes) - LIST_MAX)
    return shown


def _progress(group: Group, member: Member) -> str:
    if isinstance(member, ShareMember):
        if member.epoch != group.epoch:
            return "until there is a new assignment"
    elif member.epoch < LEAVE_EPOCH:
        return "away for a while (static)"
    elif member.state is MemberState.UNREVOKED_PARTITIONS:
        return "to give partitions back first"
    elif member.state is MemberState.UNRELEASED_PARTITIONS:
        return "waiting for partitions that others still hold"
    elif member.state is StreamsMemberState.UNREVOKED_TASKS:
        return "to give tasks back first"
    elif member.state is StreamsMemberState.UNRELEASED_TASKS:
        return "waiting for tasks that others still hold"
    return "with all that it is to have"


def _counts(states: StatePartitions) -> Fields:
    """The numbers of partitions with a state, of partitions without a state yet, and of topics
    whose states are being deleted. The second and third number are None instead of 0."""
    return {
        "made": _count(partitions_in(states.initialized)),
        "making": _count(partitions_in(states.initializing)) or None,
        "deleting": len(states.deleting) or None,
    }


def states_of_modern_group(
    group: Group, topics: CoordinatorMetadata, offsets: int, session_ms: int
) -> list[SubjectState]:
    """The states of the group, of a problem with its topology, and of its first members.
    `session_ms`: the session timeout of members that have no session timeout of their own."""
    fields: Fields = {
        "state": group.state.value,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": len(group.members),
    }
    if isinstance(group, ShareGroup):
        fields |= _counts(group.states or StatePartitions())
        states = [SubjectState.of(_K.NOW_SHARE_GROUP, fields)]
    else:
        states = [SubjectState.of(_K.NOW_CONSUMER_GROUP, fields, offsets=offsets)]
    if isinstance(group, StreamsGroup) and group.configured and group.configured.problem:
        states.append(remark(group.configured.problem.detail))
    for member in list(group.members.values())[:LIST_MAX]:
        timeout_ms = member.own_session_timeout_ms
        state = SubjectState.of(
            _K.NOW_MEMBER,
            _who(member),
            timeout=duration_text(session_ms if timeout_ms is None else timeout_ms),
            note=f"epoch {member.epoch}, {_progress(group, member)}",
            partitions=_partitions(member.assigned, topics),
        )
        states.append(state)
    return [*states, *left_out(len(group.members), "members")]
