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
    GroupStabilized,
    MemberIdExpired,
    MemberIdGiven,
    MemberJoined,
    MemberRejoined,
    MemberRemoved,
    MemberReplaced,
    OffsetDeletion,
    OffsetsDeleted,
    RebalanceCause,
    RebalanceReason,
    RebalanceStarted,
    RecordReplayed,
    Removal,
    RemovalReason,
    RequestRefused,
)
from odradek_broker.coordinator.groups.modern.group import ModernMember
from odradek_broker.coordinator.groups.settings import GroupSettings, Topics
from odradek_broker.explain.history import LIST_MAX, CurrentState, History
from odradek_broker.explain.modern_groups import members_left_out, record_replayed
from odradek_broker.explain.sentences import EventKind, Value, describe_client, duration_text
from odradek_protocol.errors import ErrorCode

#: The removal reasons of members that left at their own request. Only the client knows the cause.
LEAVES = {RemovalReason.LEFT, RemovalReason.LEFT_BY_HEARTBEAT}

#: Parts of the reasons that clients send when they leave because they did not poll in time: Java's
#: client sends "consumer poll timeout has expired.", and ours names the setting.
_NO_POLL = ("poll timeout", "max.poll.interval")

_REMOVALS = {
    RemovalReason.REMOVED_BY_ADMIN: "an administrator removed it by its instance id",
    RemovalReason.GROUP_FULL: "the group is full (group.max.size={size_max})",
    RemovalReason.SESSION_TIMEOUT: "nothing was heard of it{for_waited} (session timeout)",
    RemovalReason.NO_JOIN_IN_JOIN_PHASE: "it did not join again within {waited}",
    RemovalReason.NO_SYNC_IN_GENERATION: "it sent no SyncGroup within {waited}",
    RemovalReason.REPLACED_BY_CLASSIC: "its successor is classic",
    RemovalReason.REVOCATION_TIMEOUT: (
        "it did not give its partitions back in time (rebalance timeout)"
    ),
    RemovalReason.REJOIN_TIMEOUT: "it did not join again in time (rebalance timeout)",
    RemovalReason.SYNC_TIMEOUT: "it sent no SyncGroup in time (rebalance timeout)",
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


def why_left(removal: Removal, rebalance_timeout_ms: int) -> tuple[str | None, str | None]:
    """(the reason why a member left, a note if only the client knows the reason).

    `rebalance_timeout_ms`: the rebalance timeout of the member; clients send their
    max.poll.interval.ms (G-72).
    """
    missed = "did not poll within max.poll.interval.ms"
    if rebalance_timeout_ms > 0:
        missed += f" = {duration_text(rebalance_timeout_ms)}"
    if removal.reason is RemovalReason.LEFT_BY_HEARTBEAT:
        return None, f"closed, or {missed}: its protocol does not say which"
    if removal.stated is None:
        return None, f"closed, or {missed}: it did not say which"
    if any(words in removal.stated.lower() for words in _NO_POLL):
        return f"its application {missed}", None
    return None, None


def why_removed(removal: Removal, settings: GroupSettings) -> str:
    """The reason for the removal of a member that did not leave by itself."""
    waited = None if removal.waited_ms is None else duration_text(removal.waited_ms)
    return _REMOVALS[removal.reason].format(
        waited=waited,
        for_waited=f" for {waited}" if waited else "",
        size_max=settings.group_max_size,
    )


def why_refused(event: RequestRefused, settings: GroupSettings) -> str:
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


def _why_join_refused(event: RequestRefused, settings: GroupSettings) -> str:
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

    def __init__(self, history: History, topics: Topics, settings: GroupSettings) -> None:
        self._history = history
        self._topics = topics
        self._settings = settings

    def record(self, event: GroupEvent) -> None:
        """Record an event, with its reason as text."""
        match event:
            case GroupLoaded():
                self._loaded(event.group)
            case MemberIdGiven():
                self._member_id_given(event)
            case MemberIdExpired(group_id, member_id):
                self._history.record(group_id, EventKind.MEMBER_ID_UNUSED, member=member_id)
            case MemberJoined(group_id, member):
                self._joined(group_id, member)
            case MemberRejoined():
                self._rejoined(event)
            case MemberReplaced():
                self._replaced(event)
            case MemberRemoved():
                self._removed(event)
            case RebalanceStarted():
                self._rebalance_started(event)
            case GenerationStarted():
                self._generation_started(event)
            case GroupStabilized():
                self._stabilized(event)
            case GroupEmptied():
                self._emptied(event)
            case RecordReplayed():
                record_replayed(self._history, self._topics, event)
            case RequestRefused():
                self._refused(event)
            case GroupConverted(group_id, protocol, reason):
                words = CONVERSIONS[reason]
                self._history.record(
                    group_id, EventKind.GROUP_CONVERTED, protocol=protocol, reason=words
                )
            case OffsetsDeleted(group_id, partitions, deletion):
                words = OFFSET_DELETIONS[deletion]
                self._history.record(
                    group_id, EventKind.OFFSETS_DELETED, partitions=partitions, reason=words
                )
            case GroupRemoved(group_id):
                words = "it has neither members nor offsets"
                self._history.record(group_id, EventKind.GROUP_GONE, reason=words)
            case _:
                assert_never(event)

    # --- Members ---

    def _member_id_given(self, event: MemberIdGiven) -> None:
        self._history.record(
            event.group_id,
            EventKind.MEMBER_ID_GIVEN,
            client=describe_client(event.call.client_id, event.call.client_host),
            member=event.member_id,
        )

    def _joined(self, group_id: str, member: Member) -> None:
        self._history.record(
            group_id,
            EventKind.MEMBER_JOINED,
            member=member.member_id,
            instance=member.instance_id,
            client=_client(member),
            protocols=tuple(name for name, _ in member.protocols),
        )

    def _rejoined(self, event: MemberRejoined) -> None:
        self._history.record(
            event.group_id,
            EventKind.MEMBER_REJOINED,
            member=event.member_id,
            waited=duration_text(event.waited_ms) if event.waited_ms > 0 else None,
        )

    def _replaced(self, event: MemberReplaced) -> None:
        member = event.member
        self._history.record(
            event.group_id,
            EventKind.MEMBER_REPLACED,
            client=_client(member),
            instance=member.instance_id,
            member=member.member_id,
            fenced_member=event.fenced_member_id,
        )

    def _removed(self, event: MemberRemoved) -> None:
        member, removal = event.member, event.removal
        left = removal.reason in LEAVES
        if left:
            reason, note = why_left(removal, getattr(member, "rebalance_timeout_ms", 0))
        else:
            reason, note = why_removed(removal, self._settings), None
        self._history.record(
            event.group_id,
            EventKind.MEMBER_LEFT if left else EventKind.MEMBER_REMOVED,
            member=member.member_id,
            instance=getattr(member, "instance_id", None),
            client=_client(member),
            reason=reason,
            note=note,
            stated=removal.stated,
        )

    def _refused(self, event: RequestRefused) -> None:
        if event.error is ErrorCode.INVALID_GROUP_ID:
            return  # There is no group for which the event could be recorded.
        self._history.record(
            event.group_id,
            EventKind.GROUP_REFUSED,
            error=event.error,
            request=event.request,
            member=event.member_id or None,
            instance=event.instance_id,
            client=None if event.client is None else describe_client(*event.client),
            reason=why_refused(event, self._settings),
        )

    # --- Classic groups ---

    def _loaded(self, group: ClassicGroup) -> None:
        self._history.record(
            group.group_id,
            EventKind.GROUP_RESTORED,
            generation=group.generation,
            state=group.state.value,
            protocol=group.protocol,
            leader=group.leader_id,
            members=tuple(group.members),
        )

    def _rebalance_started(self, event: RebalanceStarted) -> None:
        awaited: Sequence[str] = event.awaited
        if event.before is GroupState.EMPTY and event.timeout_ms > 0:
            awaited = ["more members (group.initial.rebalance.delay.ms)"]
        self._history.record(
            event.group.group_id,
            EventKind.REBALANCE_BEGAN,
            before=event.before.value,
            after=event.group.state.value,
            reason=why_rebalanced(event.cause),
            waiting_for=tuple(awaited) or None,
            timeout=duration_text(event.timeout_ms) if awaited else None,
        )

    def _generation_started(self, event: GenerationStarted) -> None:
        group, last = event.group, None
        if event.last_to_join is not None:
            member_id, after_ms = event.last_to_join
            last = f"{member_id}, {duration_text(after_ms)} after the rebalance had begun"
        self._history.record(
            group.group_id,
            EventKind.GENERATION_BEGAN,
            generation=event.generation,
            waited=duration_text(event.waited_ms),
            before=event.before.value,
            after=group.state.value,
            leader=group.leader_id,
            protocol=event.protocol,
            members=tuple(group.members),
            last=last,
        )

    def _stabilized(self, event: GroupStabilized) -> None:
        self._history.record(
            event.group.group_id,
            EventKind.GROUP_STABLE,
            leader=event.group.leader_id,
            before=event.before.value,
            after=event.group.state.value,
            generation=event.generation,
        )

    def _emptied(self, event: GroupEmptied) -> None:
        self._history.record(
            event.group.group_id,
            EventKind.GROUP_EMPTIED,
            before=event.before.value,
            after=event.group.state.value,
            generation=event.generation,
        )


# --- Current states -------------------------------------------------------------------------------


def states_of_group(group: ClassicGroup | None, offsets: int, wall_ms: int) -> list[CurrentState]:
    """The states of the group, of its first members, and of the member ids that have not joined."""
    if group is None:
        return [CurrentState(EventKind.NOW_NOTHING, {"reason": "there is no such group"})]
    fields: dict[str, Value | None] = {
        "state": group.state.value,
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader_id if group.members else None,
        "members": len(group.members),
        "offsets": offsets,
        # A group that has only committed offsets has never changed its state.
        "updated": duration_text(wall_ms - group.state_since_ms) if group.state_since_ms else None,
    }
    states = [CurrentState.of(EventKind.NOW_GROUP, fields)]
    members = list(group.members.values())
    states += [_state_of_member(group, member) for member in members[:LIST_MAX]]
    states += members_left_out(len(members))
    if group.pending:
        first, *others = group.pending
        reason = f"{len(group.pending)} ids were handed out and have not joined: {first}"
        states.append(CurrentState.of(EventKind.NOW_NOTHING, {"reason": (reason, *others)}))
    return states


def _state_of_member(group: ClassicGroup, member: Member) -> CurrentState:
    note = None
    if group.state is GroupState.PREPARING_REBALANCE:
        note = "has joined, and waits for the others"
        if member.parked_join is None:
            note = "has not joined again yet"
    elif member.parked_sync is not None:
        note = "waits for its assignment"
    elif member.member_id in group.pending_syncs:
        note = "has not requested its assignment yet"
    fields: dict[str, Value | None] = {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": _client(member),
        "timeout": duration_text(member.session_timeout_ms),
        "note": note,
    }
    return CurrentState.of(EventKind.NOW_MEMBER, fields)


def _client(member: Member | ModernMember) -> str:
    return describe_client(member.client_id, member.client_host)
