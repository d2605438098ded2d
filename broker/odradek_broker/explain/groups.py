"""Groups: the records of their events, and their current states (`odradek explain group`).

The coordinator reports its decisions as a `GroupEvent`; this module turns it into a kind of event
with fields and text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from odradek_broker.coordinator.groups.classic.group import ClassicGroup, GroupState, Member
from odradek_broker.coordinator.groups.events import (
    ConversionReason,
    GenerationStarted,
    GroupConverted,
    GroupEmptied,
    GroupEvent,
    GroupLoaded,
    GroupRemoved,
    GroupRequestRefused,
    GroupStabilized,
    MemberIdExpired,
    MemberIdGiven,
    MemberJoined,
    MemberRejoined,
    MemberRemovalReason,
    MemberRemoved,
    MemberReplaced,
    OffsetDeletion,
    OffsetsDeleted,
    OffsetsMoved,
    RebalanceCause,
    RebalanceReason,
    RebalanceStarted,
    RecordReplayed,
    Removal,
)
from odradek_broker.coordinator.groups.modern.group import ModernMember
from odradek_broker.coordinator.groups.settings import CoordinatorMetadata, GroupSettings
from odradek_broker.explain.history import (
    LIST_MAX,
    Fields,
    History,
    SubjectState,
    left_out,
    remark,
)
from odradek_broker.explain.modern_groups import record_replayed
from odradek_broker.explain.sentences import EventKind, describe_client, duration_text
from odradek_protocol.errors import ErrorCode

_K = EventKind

#: The removal reasons of members that left at their own request. Only the client knows the cause.
LEAVES = {MemberRemovalReason.LEFT, MemberRemovalReason.LEFT_BY_HEARTBEAT}

#: Parts of the reasons that clients send when they leave because they did not poll in time: Java's
#: client sends "consumer poll timeout has expired.", and ours names the setting.
_NO_POLL = ("poll timeout", "max.poll.interval")

_REMOVALS = {
    MemberRemovalReason.REMOVED_BY_ADMIN: "an administrator removed it by its instance id",
    MemberRemovalReason.GROUP_FULL: "the group is full (group.max.size={size_max})",
    MemberRemovalReason.SESSION_TIMEOUT: "nothing was heard of it{for_waited} (session timeout)",
    MemberRemovalReason.NO_JOIN_IN_JOIN_PHASE: "it did not join again within {waited}",
    MemberRemovalReason.NO_SYNC_IN_GENERATION: "it sent no SyncGroup within {waited}",
    MemberRemovalReason.REPLACED_BY_CLASSIC: "its successor is classic",
    MemberRemovalReason.REVOCATION_TIMEOUT: (
        "it did not give its partitions back in time (rebalance timeout)"
    ),
    MemberRemovalReason.REJOIN_TIMEOUT: "it did not join again in time (rebalance timeout)",
    MemberRemovalReason.SYNC_TIMEOUT: "it sent no SyncGroup in time (rebalance timeout)",
}

_REBALANCES = {
    RebalanceReason.MEMBER_ADDED: "{members} is new",
    RebalanceReason.MEMBER_CHANGED: (
        "{members} joined with another subscription or other protocols"
    ),
    RebalanceReason.LEADER_REJOINED: "{members} joined again, and it is the leader",
    RebalanceReason.STATIC_MEMBER_CHANGED: "static member {instance} came back with other protocols",
    RebalanceReason.STATIC_MEMBER_RETURNED: (
        "static member {instance} came back, and the group was not Stable"
    ),
    RebalanceReason.MEMBER_REMOVED: "{members} was removed",
    RebalanceReason.MEMBER_TIMED_OUT: "{members} timed out",
    RebalanceReason.MEMBERS_LEFT: "{members} left",
    RebalanceReason.NO_SYNC: "{members} did not fetch the assignment of generation {generation}",
    RebalanceReason.ASSIGNMENT_NOT_WRITTEN: "the assignment could not be recorded ({error})",
    RebalanceReason.GENERATION_NOT_WRITTEN: (
        "generation {generation} could not be recorded ({error})"
    ),
    RebalanceReason.DOWNGRADED: "the group speaks the classic protocol again",
}

CONVERSIONS = {
    ConversionReason.GROUP_EMPTY: "nobody was in it when a member joined with it",
    ConversionReason.MEMBER_JOINED: "a member joined with it",
    ConversionReason.LAST_CONSUMER_MEMBER_GONE: (
        "the last member that spoke the consumer protocol is gone"
    ),
}

OFFSET_DELETIONS = {
    OffsetDeletion.TOPIC_DELETED: "the topic was deleted",
    OffsetDeletion.TOPIC_MISSING: "the topic does not exist",
    OffsetDeletion.GROUP_DELETED: "the group was deleted",
    OffsetDeletion.REQUESTED: "their deletion was requested",
    OffsetDeletion.EXPIRED: "unused for offsets.retention.minutes",
}


def why_rebalanced(cause: RebalanceCause) -> str:
    """The reason for the join phase of a classic group."""
    ids = cause.member_ids
    return _REBALANCES[cause.reason].format(
        members=ids[0] if len(ids) == 1 else f"{len(ids)} members",
        instance=cause.instance_id,
        generation=cause.generation,
        error=cause.error.name,
    )


def why_left(removal: Removal, rebalance_timeout_ms: int) -> Fields:
    """The reason why a member left, or a note if only the client knows the reason.

    `rebalance_timeout_ms`: the rebalance timeout of the member; clients send their
    max.poll.interval.ms (G-72).
    """
    missed = "did not poll within max.poll.interval.ms"
    if rebalance_timeout_ms > 0:
        missed += f" = {duration_text(rebalance_timeout_ms)}"
    if removal.reason is MemberRemovalReason.LEFT_BY_HEARTBEAT:
        return {"note": f"closed, or {missed}: its protocol does not say which"}
    if removal.stated is None:
        return {"note": f"closed, or {missed}: it did not say which"}
    if any(words in removal.stated.lower() for words in _NO_POLL):
        return {"reason": f"its application {missed}"}
    return {}


def why_removed(removal: Removal, settings: GroupSettings) -> str:
    """The reason for the removal of a member that did not leave by itself."""
    waited = None if removal.waited_ms is None else duration_text(removal.waited_ms)
    return _REMOVALS[removal.reason].format(
        waited=waited,
        for_waited=f" for {waited}" if waited else "",
        size_max=settings.group_max_size,
    )


def why_refused(event: GroupRequestRefused, settings: GroupSettings) -> str:
    """The reason why a request was refused, for example with the expected value."""
    if event.message is not None:
        return event.message
    if event.join is not None and event.error in _JOIN_REFUSALS:
        return _why_join_refused(event, settings)
    group, member_id = event.group, event.member_id
    if event.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL and group is not None:
        return f"expected protocol {group.protocol}"
    if group is None:
        return "there is no such group"
    if event.instance_id is not None and event.instance_id in group.static_ids:
        holder_id = group.static_ids[event.instance_id]
        if holder_id != member_id:
            return f"expected member id {holder_id} for this static member: another one replaced it"
    if member_id not in group.members:
        return "it is not a member: it never joined, left, or was removed"
    if event.generation is not None and event.generation != group.generation:
        return f"expected generation {group.generation}, got {event.generation}"
    return f"the group is {group.state.value}"


_JOIN_REFUSALS = (
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
)


def _why_join_refused(event: GroupRequestRefused, settings: GroupSettings) -> str:
    assert event.join is not None
    if event.error is ErrorCode.INVALID_SESSION_TIMEOUT:
        return (
            f"its session timeout is {event.join.request.session_timeout_ms} ms; from"
            f" {settings.group_min_session_timeout_ms} to {settings.group_max_session_timeout_ms}"
            " are taken (group.min.session.timeout.ms, group.max.session.timeout.ms)"
        )
    if event.error is ErrorCode.GROUP_MAX_SIZE_REACHED:
        return f"group.max.size={settings.group_max_size}"
    theirs = ", ".join(name for name, _ in event.join.protocols) or "nothing"
    ours = "nothing" if event.group is None else ", ".join(sorted(event.group.candidates()))
    return f"it speaks {theirs}; all members of the group speak {ours or 'anything'}"


# --- Events ---------------------------------------------------------------------------------------


class GroupRecorder:
    """Records the events of groups in a history, by group id."""

    def __init__(
        self, history: History, topics: CoordinatorMetadata, settings: GroupSettings
    ) -> None:
        self._history = history
        self._topics = topics
        self._settings = settings

    def record(self, event: GroupEvent) -> None:
        add, settings = self._history.record, self._settings
        match event:
            case RecordReplayed():
                record_replayed(self._history, self._topics, event)
            case MemberIdGiven(group_id, member_id, call):
                client = describe_client(call.client_id, call.client_host)
                add(group_id, _K.MEMBER_ID_GIVEN, client=client, member=member_id)
            case MemberIdExpired(group_id, member_id):
                add(group_id, _K.MEMBER_ID_UNUSED, member=member_id)
            case MemberJoined(group_id, member):
                protocols = tuple(name for name, _ in member.protocols)
                add(group_id, _K.MEMBER_JOINED, _who(member), protocols=protocols)
            case MemberRejoined(group_id, member_id, waited_ms):
                waited = duration_text(waited_ms) if waited_ms > 0 else None
                add(group_id, _K.MEMBER_REJOINED, member=member_id, waited=waited)
            case MemberReplaced(group_id, member, fenced_id):
                add(
                    group_id,
                    _K.MEMBER_REPLACED,
                    client=describe_client(member.client_id, member.client_host),
                    instance=member.instance_id,
                    member=member.member_id,
                    fenced_member=fenced_id,
                )
            case MemberRemoved(group_id, member, removal) if removal.reason in LEAVES:
                why = why_left(removal, getattr(member, "rebalance_timeout_ms", 0))
                add(group_id, _K.MEMBER_LEFT, _who(member) | why, stated=removal.stated)
            case MemberRemoved(group_id, member, removal):
                reason, stated = why_removed(removal, settings), removal.stated
                add(group_id, _K.MEMBER_REMOVED, _who(member), reason=reason, stated=stated)
            case GroupRequestRefused():
                # Without a valid group id there is no group for which the event could be recorded.
                if event.error is not ErrorCode.INVALID_GROUP_ID:
                    fields = _of_refused(event, settings)
                    add(event.group_id, _K.GROUP_REFUSED, fields, error=event.error)
            case GroupConverted(group_id, protocol, conversion):
                reason = CONVERSIONS[conversion]
                add(group_id, _K.GROUP_CONVERTED, protocol=protocol, reason=reason)
            case OffsetsDeleted(group_id, partitions, deletion, origin):
                fields = {"reason": OFFSET_DELETIONS[deletion], "origin": origin}
                add(group_id, _K.OFFSETS_DELETED, fields, partitions=partitions)
            case OffsetsMoved(group_id, partitions, back, ahead, origin):
                records = {"back": back or None, "ahead": ahead or None}
                add(group_id, _K.OFFSETS_RESET, records, origin=origin, partitions=partitions)
            case GroupRemoved(group_id):
                add(group_id, _K.GROUP_GONE, reason="it has neither members nor offsets")
            case GroupLoaded(group):
                add(group.group_id, _K.GROUP_RESTORED, _of_loaded(group))
            case RebalanceStarted():
                add(event.group.group_id, _K.REBALANCE_BEGAN, _of_rebalance(event))
            case GenerationStarted():
                add(event.group.group_id, _K.GENERATION_BEGAN, _of_generation(event))
            case GroupStabilized(group, before, generation):
                change = {"leader": group.leader_id} | _change(before, group)
                add(group.group_id, _K.GROUP_STABLE, change, generation=generation)
            case GroupEmptied(group, before, generation):
                add(group.group_id, _K.GROUP_EMPTIED, _change(before, group), generation=generation)
            case _:
                assert_never(event)


def _who(member: Member | ModernMember) -> Fields:
    return {
        "member": member.member_id,
        "instance": getattr(member, "instance_id", None),
        "client": describe_client(member.client_id, member.client_host),
    }


def _change(before: GroupState, group: ClassicGroup) -> Fields:
    return {"before": before.value, "after": group.state.value}


def _of_refused(event: GroupRequestRefused, settings: GroupSettings) -> Fields:
    return {
        "request": event.request,
        "member": event.member_id or None,
        "instance": event.instance_id,
        "client": None if event.client is None else describe_client(*event.client),
        "reason": why_refused(event, settings),
    }


def _of_loaded(group: ClassicGroup) -> Fields:
    return {
        "generation": group.generation,
        "state": group.state.value,
        "protocol": group.protocol,
        "leader": group.leader_id,
        "members": tuple(group.members),
    }


def _of_rebalance(event: RebalanceStarted) -> Fields:
    awaited: Sequence[str] = event.awaited
    if event.before is GroupState.EMPTY and event.timeout_ms > 0:
        awaited = ["more members (group.initial.rebalance.delay.ms)"]
    return _change(event.before, event.group) | {
        "reason": why_rebalanced(event.cause),
        "waiting_for": tuple(awaited) or None,
        "timeout": duration_text(event.timeout_ms) if awaited else None,
    }


def _of_generation(event: GenerationStarted) -> Fields:
    last = None
    if event.last_to_join is not None:
        member_id, after_ms = event.last_to_join
        last = f"{member_id}, {duration_text(after_ms)} after the rebalance had begun"
    return {
        "generation": event.generation,
        "waited": duration_text(event.waited_ms),
        **_change(event.before, event.group),
        "leader": event.group.leader_id,
        "protocol": event.protocol,
        "members": tuple(event.group.members),
        "last": last,
    }


# --- Current states -------------------------------------------------------------------------------


def states_of_group(group: ClassicGroup | None, offsets: int, wall_ms: int) -> list[SubjectState]:
    """The states of the group, of its first members, and of the member ids that have not joined."""
    if group is None:
        return [remark("there is no such group")]
    members = list(group.members.values())
    state = SubjectState.of(
        _K.NOW_GROUP,
        state=group.state.value,
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id if members else None,
        members=len(members),
        offsets=offsets,
        # A group that has only committed offsets has never changed its state.
        updated=duration_text(wall_ms - group.state_since_ms) if group.state_since_ms else None,
    )
    states = [state, *(_state_of_member(group, member) for member in members[:LIST_MAX])]
    states += left_out(len(members), "members")
    if group.pending:
        first, *others = group.pending
        reason = f"{len(group.pending)} ids were handed out and have not joined: {first}"
        states.append(remark((reason, *others)))
    return states


def _state_of_member(group: ClassicGroup, member: Member) -> SubjectState:
    note = None
    if group.state is GroupState.PREPARING_REBALANCE:
        note = "has joined, and waits for the others"
        if member.parked_join is None:
            note = "has not joined again yet"
    elif member.parked_sync is not None:
        note = "waits for its assignment"
    elif member.member_id in group.pending_syncs:
        note = "has not requested its assignment yet"
    timeout = duration_text(member.session_timeout_ms)
    return SubjectState.of(_K.NOW_MEMBER, _who(member), timeout=timeout, note=note)
