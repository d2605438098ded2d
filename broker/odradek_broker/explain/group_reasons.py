"""Why something happened to a group, in words."""

from __future__ import annotations

from odradek_broker.coordinator.groups.events import (
    ConversionReason,
    OffsetDeletion,
    RebalanceCause,
    RebalanceReason,
    Removal,
    RemovalReason,
    RequestRefused,
)
from odradek_broker.coordinator.groups.settings import GroupSettings
from odradek_broker.explain.sentences import duration_text
from odradek_protocol.errors import ErrorCode

#: A member asked for it, and why is for itself to say.
LEAVES = {RemovalReason.LEFT, RemovalReason.LEFT_BY_HEARTBEAT}
#: In the reasons that clients give: Java's says "consumer poll timeout has expired.", ours names
#: the setting.
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
        "static member {instance} came back, and the group had not settled"
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
    OffsetDeletion.REQUESTED: "their deletion was asked for",
    OffsetDeletion.EXPIRED: "unused for offsets.retention.minutes",
}


def why_rebalanced(cause: RebalanceCause) -> str:
    """Why a classic group began a join phase."""
    ids = cause.member_ids
    return _REBALANCES[cause.reason].format(
        members=ids[0] if len(ids) == 1 else f"{len(ids)} members",
        instance=cause.instance_id,
        generation=cause.generation,
        error=cause.error.name,
    )


def why_left(removal: Removal, rebalance_timeout_ms: int) -> tuple[str | None, str | None]:
    """(why a member left, a note in its place where only the client knows).

    `rebalance_timeout_ms`: the member's, which is max.poll.interval.ms in clients (G-72).
    """
    missed = "did not poll within max.poll.interval.ms"
    if rebalance_timeout_ms > 0:
        missed += f" = {duration_text(rebalance_timeout_ms)}"
    if removal.reason is RemovalReason.LEFT_BY_HEARTBEAT:
        return None, f"closed, or {missed}: the consumer protocol does not say which"
    if removal.stated is None:
        return None, f"closed, or {missed}: it did not say which"
    if any(words in removal.stated.lower() for words in _NO_POLL):
        return f"its application {missed}", None
    return None, None


def why_removed(removal: Removal, settings: GroupSettings) -> str:
    """Why a member is gone that did not leave by itself."""
    waited = None if removal.waited_ms is None else duration_text(removal.waited_ms)
    return _REMOVALS[removal.reason].format(
        waited=waited,
        for_waited=f" for {waited}" if waited else "",
        size_max=settings.group_max_size,
    )


def why_refused(event: RequestRefused, settings: GroupSettings) -> str:
    """The reason why a request was refused: the expected value, and the one that came."""
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
        held = group.static_ids[event.instance_id]
        if held != member_id:
            return f"expected member id {held} for this static member: another one took its place"
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
