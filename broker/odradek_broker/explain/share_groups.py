"""Explanations of share groups: the events of their records, and their present state."""

from __future__ import annotations

from odradek_broker.coordinator.groups.events import ShareRecordReplayed
from odradek_broker.coordinator.groups.partitions import each_partition, named
from odradek_broker.coordinator.groups.settings import Topics
from odradek_broker.coordinator.groups.share.group import ShareGroup, ShareMember, StatePartitions
from odradek_broker.coordinator.groups.share.states import partitions_in
from odradek_broker.explain.history import LIST_MAX, CurrentState, History
from odradek_broker.explain.sentences import EventKind, Value, describe_client, duration_text
from odradek_protocol.stored.share_group import ShareRecordType


def record_share_event(history: History, topics: Topics, event: ShareRecordReplayed) -> None:
    """Record what a record of a share group has changed."""
    group, after = event.group, event.after
    if event.kind is ShareRecordType.GROUP:
        history.record(group.group_id, EventKind.CONSUMER_EPOCH, epoch=group.epoch)
    elif event.kind is ShareRecordType.TARGET_EPOCH:
        history.record(
            group.group_id,
            EventKind.CONSUMER_ASSIGNED,
            epoch=group.assignment_epoch,
            members=_shares(group),
            state=group.state.value,
        )
    elif event.kind is ShareRecordType.MEMBER and after is not None:
        joined = event.before is None
        history.record(
            group.group_id,
            EventKind.CONSUMER_JOINED if joined else EventKind.CONSUMER_CHANGED,
            member=after.member_id,
            client=describe_client(after.client_id, after.client_host),
            topics=tuple(sorted(after.topics)),
        )
    elif event.kind is ShareRecordType.CURRENT and after is not None:
        history.record(
            group.group_id,
            EventKind.CONSUMER_MOVED,
            partitions=named(after.assigned, topics),
            member=after.member_id,
            epoch=after.epoch,
            note=_progress(group, after),
        )
    elif event.kind is ShareRecordType.STATE_PARTITIONS and group.states is not None:
        made, making, deleting = _counts(group.states)
        history.record(
            group.group_id, EventKind.SHARE_STATES, made=made, making=making, deleting=deleting
        )


def _shares(group: ShareGroup) -> tuple[str, ...]:
    return tuple(
        f"{member_id} ({len(list(each_partition(group.target(member_id))))} partitions)"
        for member_id in group.members
    )


def _progress(group: ShareGroup, member: ShareMember) -> str:
    if member.epoch == group.epoch:
        return "with all that it is to have"
    return "until there is a new assignment"


def _counts(states: StatePartitions) -> tuple[int, int | None, int | None]:
    """The numbers of partitions with a state, of those that are to get one, and of topics whose
    states are being deleted; None in place of 0 for the latter two."""
    made, making = (
        len(list(each_partition(partitions_in(each))))
        for each in (states.initialized, states.initializing)
    )
    return made, making or None, len(states.deleting) or None


def states_of_share_group(group: ShareGroup, topics: Topics, session_ms: int) -> list[CurrentState]:
    """The group, then its members (the first of them)."""
    made, making, deleting = _counts(group.states or StatePartitions())
    fields: dict[str, Value | None] = {
        "state": group.state.value,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "members": len(group.members),
        "made": made,
        "making": making,
        "deleting": deleting,
    }
    found = [CurrentState.of(EventKind.NOW_SHARE_GROUP, fields)]
    for member in list(group.members.values())[:LIST_MAX]:
        of_member: dict[str, Value | None] = {
            "member": member.member_id,
            "client": describe_client(member.client_id, member.client_host),
            "timeout": duration_text(session_ms),
            "note": f"epoch {member.epoch}, {_progress(group, member)}",
        }
        found.append(
            CurrentState.of(EventKind.NOW_MEMBER, of_member, named(member.assigned, topics))
        )
    return [*found, *members_left_out(len(group.members))]


def members_left_out(count: int) -> list[CurrentState]:
    """A note on the members that the list of members leaves out, if there are so many."""
    if count <= LIST_MAX:
        return []
    return [CurrentState.of(EventKind.NOW_NOTHING, {"reason": f"and {count - LIST_MAX} members"})]
