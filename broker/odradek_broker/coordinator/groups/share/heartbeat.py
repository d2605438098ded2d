"""ShareGroupHeartbeat: its checks; members join, stay alive, subscribe and leave (rules H-10 to
H-16, KIP-932).

    subscriptions  ->  group epoch  ->  target assignment  ->  current assignment of each member

A member takes up its target with its next heartbeat, in one step: since partitions are shared,
nobody has to give one back first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odradek_broker.coordinator.groups.deadlines import ShareDeadlines
from odradek_broker.coordinator.groups.events import (
    MemberRemoved,
    Observer,
    Removal,
    RemovalReason,
    RequestRefused,
)
from odradek_broker.coordinator.groups.partitions import Partitions, in_order
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.settings import (
    ShareGroupSettings,
    Topics,
    may_assign_again,
    share_assignment_interval_ms,
    share_heartbeat_interval_ms,
)
from odradek_broker.coordinator.groups.share import records as make
from odradek_broker.coordinator.groups.share.assignor import assign_simple
from odradek_broker.coordinator.groups.share.group import (
    ShareGroup,
    ShareMember,
    names_of,
)
from odradek_broker.coordinator.groups.share.states import (
    Initialization,
    initializing,
    is_assignment_pending,
    partitions_in,
    without_state,
)
from odradek_broker.coordinator.groups.topics_hash import topics_hash
from odradek_broker.coordinator.runtime import Instant, Outcome, Record, Reply
from odradek_broker.deferred import Deferred
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_EPOCH, NO_OFFSET
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.schemas.share_group_heartbeat import (
    ShareAssignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    ShareTopicPartitions,
)

_E = ErrorCode

#: The longest member id.
MEMBER_ID_MAX_CHARS = 36


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Refusal of a request that is not valid from any member (H-10)."""
    if not 0 < len(request.member_id) <= MEMBER_ID_MAX_CHARS:
        raise _invalid("Invalid member id in the request.")
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def _invalid(message: str) -> Refusal:
    return Refusal(_E.INVALID_REQUEST, message)


def not_a_share_group(group_id: str) -> Refusal:
    """The refusal for a group of another type (H-30)."""
    return Refusal(_E.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")


def unknown_share_member(member_id: str, group_id: str) -> Refusal:
    """The refusal of a member that the group does not have (H-12)."""
    return Refusal(_E.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Refusal unless the epoch is the member's, or its last one after a lost answer (H-13)."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        compared, more = "greater", "."
    elif epoch != member.previous_epoch:
        compared = "smaller"
        more = f", and it does not match the previous member epoch ({member.previous_epoch})."
    else:
        return
    raise Refusal(
        _E.FENCED_MEMBER_EPOCH,
        f"The share group member has a {compared} member epoch ({epoch}) than the one known by"
        f" the group coordinator ({member.epoch}){more} The member must abandon all its"
        " partitions and rejoin.",
    )


@dataclass(frozen=True, slots=True)
class ShareHeartbeatCall:
    """A ShareGroupHeartbeat, with the data of its connection."""

    request: ShareGroupHeartbeatRequest
    deferred: Deferred[ShareGroupHeartbeatResponse]
    client_id: str
    client_host: str


def share_heartbeat_error(
    error: ErrorCode, message: str | None = None
) -> ShareGroupHeartbeatResponse:
    """The answer that refuses a request."""
    return ShareGroupHeartbeatResponse(error_code=error, error_message=message)


class ShareProtocol:
    """The requests of members of share groups. `groups`: those of the shard.

    `is_other` is true for the id of a group of another type. `initialize` is called with the states
    that a heartbeat has noted as initializing, when the note is durable.
    """

    def __init__(
        self,
        config: ShareGroupSettings,
        groups: dict[str, ShareGroup],
        topics: Topics,
        deadlines: ShareDeadlines,
        observer: Observer,
        is_other: Callable[[str], bool],
        initialize: Callable[[Initialization], None],
    ) -> None:
        self._config = config
        self._groups = groups
        self._topics = topics
        self._deadlines = deadlines
        self._observer = observer
        self._is_other = is_other
        self._initialize = initialize

    def heartbeat(self, call: ShareHeartbeatCall, now: Instant) -> Outcome:
        """Answer a heartbeat; a refusal writes nothing."""
        out = Outcome()
        try:
            check_request(call.request)
            if call.request.member_epoch == LEAVE_EPOCH:
                response = self._leave(call.request, out, now)
            else:
                response = self._heartbeat(call, out, now)
        except Refusal as refusal:
            response = share_heartbeat_error(refusal.error, refusal.message)
            self._observe_refusal(call, refusal)
        out.replies.append(Reply(call.deferred, response, share_heartbeat_error))
        return out

    def _observe_refusal(self, call: ShareHeartbeatCall, refusal: Refusal) -> None:
        self._observer(
            RequestRefused(
                call.request.group_id,
                "ShareGroupHeartbeat",
                refusal.error,
                call.request.member_id,
                None,
                client=(call.client_id, call.client_host),
                message=refusal.message,
            )
        )

    def _heartbeat(
        self, call: ShareHeartbeatCall, out: Outcome, now: Instant
    ) -> ShareGroupHeartbeatResponse:
        request = call.request
        joins = request.member_epoch == JOIN_EPOCH
        group = self._open(request.group_id, joins=joins)
        known = group.members.get(request.member_id)
        self._check_group_size(group, known)
        if known is None and not joins:
            raise unknown_share_member(request.member_id, request.group_id)
        before = known or ShareMember(member_id=request.member_id)
        check_epoch(before, request.member_epoch)
        member = _updated(before, call)
        if known is None or member != before:
            out.records.append(make.member_record(group.group_id, member))
        members = {**group.members, member.member_id: member}
        now_at = (group.changes, self._topics.topics_version)
        epoch, wanted = group.epoch, None
        if group.steady_at != now_at or out.records:
            epoch = self._next_epoch(group, before, members, out.records)
        after = self._reconciled(group, member, members, epoch, now, out.records)
        if group.steady_at != now_at or out.records:
            wanted = self._note_missing_states(group, members, epoch, now, out.records)
            making = group.states is not None and group.states.initializing
            group.steady_at = None if out.records or making else now_at
        self._finish(group, after, wanted, out, now)
        response = ShareGroupHeartbeatResponse(
            member_id=after.member_id,
            member_epoch=after.epoch,
            heartbeat_interval_ms=share_heartbeat_interval_ms(
                self._config, self._topics, group.group_id
            ),
        )
        full = joins or request.subscribed_topic_names is not None
        if full or after.assigned != before.assigned:
            response.assignment = _assignment(after.assigned)
        return response

    def _open(self, group_id: str, *, joins: bool) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is not None:
            return group
        if self._is_other(group_id):
            raise not_a_share_group(group_id)
        if not joins:
            raise Refusal(_E.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return ShareGroup(group_id)

    def _check_group_size(self, group: ShareGroup, known: ShareMember | None) -> None:
        """Refusal if the member is new and the group full (H-11)."""
        size_max = self._config.group_share_max_size
        if known is None and len(group.members) >= size_max:
            raise Refusal(
                _E.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size_max} members.",
            )

    def _next_epoch(
        self,
        group: ShareGroup,
        before: ShareMember,
        members: dict[str, ShareMember],
        records: list[Record],
    ) -> int:
        """The group epoch after the heartbeat (H-02, H-03, H-07)."""
        changed = members[before.member_id].topics != before.topics
        if group.assignment_epoch >= group.epoch:
            changed |= is_assignment_pending(group)
        if not changed and group.topics_version == self._topics.topics_version:
            return group.epoch
        hashed = topics_hash(names_of(members.values()), self._topics)
        group.topics_version = self._topics.topics_version
        if not changed and hashed == group.hashed:
            return group.epoch
        records.append(make.group_record(group.group_id, group.epoch + 1, hashed))
        return group.epoch + 1

    def _reconciled(
        self,
        group: ShareGroup,
        member: ShareMember,
        members: dict[str, ShareMember],
        epoch: int,
        now: Instant,
        records: list[Record],
    ) -> ShareMember:
        """The member with what it may have after the heartbeat (H-08)."""
        target, target_epoch = group.target(member.member_id), group.assignment_epoch
        if target_epoch < epoch and self._may_assign(group, now):
            target = self._assign_targets(group, member, members, records)
            target_epoch = epoch
            records.append(make.target_epoch_record(group.group_id, epoch, now.wall_ms))
        own = {
            topic_id: indexes
            for topic_id, indexes in target.items()
            if self._topics.topic_name(topic_id) in member.topics
        }
        after = member
        if member.epoch != target_epoch:
            after = member.at_epoch(target_epoch, own)
        elif epoch != group.epoch:
            after = replace(member, assigned=own)
        if after != member:
            records.append(make.current_record(group.group_id, after))
        return after

    def _may_assign(self, group: ShareGroup, now: Instant) -> bool:
        """True unless the last assignment is younger than the interval between assignments
        (H-09)."""
        interval_ms = share_assignment_interval_ms(self._topics, group.group_id)
        return may_assign_again(group.assignment_ms, interval_ms, now.wall_ms)

    def _assign_targets(
        self,
        group: ShareGroup,
        member: ShareMember,
        members: dict[str, ShareMember],
        records: list[Record],
    ) -> Partitions:
        """Add the targets that have changed; returns the target of the member itself."""
        topics = self._topics
        available = partitions_in(group.states.initialized) if group.states else {}
        targets = assign_simple(
            {
                member_id: frozenset(
                    topics.topic_id(name) for name in each.topics if topics.partition_count(name)
                )
                for member_id, each in members.items()
            },
            group.targets,
            available,
        )
        for member_id, target in targets.items():
            if group.targets.get(member_id) != target:
                records.append(make.target_record(group.group_id, member_id, target))
        return targets[member.member_id]

    def _note_missing_states(
        self,
        group: ShareGroup,
        members: dict[str, ShareMember],
        epoch: int,
        now: Instant,
        records: list[Record],
    ) -> Initialization | None:
        """Note subscribed partitions without a state as initializing (H-21)."""
        names = names_of(members.values())
        missing = without_state(group, names, self._topics, now.monotonic_ms)
        if not missing:
            return None
        records.append(make.states_record(group.group_id, initializing(group.states, missing)))
        return Initialization(
            group.group_id,
            epoch,
            {
                (topic_id, index): NO_OFFSET
                for topic_id, topic in missing.items()
                for index in sorted(topic.partitions)
            },
        )

    def _finish(
        self,
        group: ShareGroup,
        member: ShareMember,
        wanted: Initialization | None,
        out: Outcome,
        now: Instant,
    ) -> None:
        """Begin the session anew; when the records are durable, have the states made. If the
        records are refused, undo the changes of soft state."""
        self._deadlines.restart_session(group, member.member_id, now)

        def after_append(error: ErrorCode, then: Instant) -> Outcome:
            if error is _E.NONE:
                if wanted is not None:
                    self._initialize(wanted)
                return Outcome()
            group.topics_version = None
            if member.member_id not in group.members:
                self._deadlines.forget(group, member.member_id)
            return Outcome()

        if out.records:
            out.after_append = after_append

    # --- Leave ---

    def _leave(
        self, request: ShareGroupHeartbeatRequest, out: Outcome, now: Instant
    ) -> ShareGroupHeartbeatResponse:
        group = self._groups.get(request.group_id)
        if group is None:
            if self._is_other(request.group_id):
                raise not_a_share_group(request.group_id)
            raise Refusal(_E.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        if request.member_id not in group.members:
            raise unknown_share_member(request.member_id, request.group_id)
        self.remove(group, request.member_id, Removal(RemovalReason.LEFT_BY_HEARTBEAT), out, now)
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def remove(
        self, group: ShareGroup, member_id: str, removal: Removal, out: Outcome, now: Instant
    ) -> None:
        """Remove a member; the group epoch grows (H-15, H-16)."""
        member = group.members[member_id]
        self._observer(MemberRemoved(group.group_id, member, removal))
        self._deadlines.forget(group, member_id)
        left = [each for each in group.members.values() if each is not member]
        hashed = topics_hash(names_of(left), self._topics)
        out.records += group.member_tombstones(member_id)
        out.records.append(make.group_record(group.group_id, group.epoch + 1, hashed))

        def after_append(error: ErrorCode, then: Instant) -> Outcome:
            if error is not _E.NONE and self._groups.get(group.group_id) is group:
                self._deadlines.restored(group, then)
            return Outcome()

        out.after_append = after_append


def _updated(member: ShareMember, call: ShareHeartbeatCall) -> ShareMember:
    """The member with the fields of the request; fields that are not given keep their value."""
    request, names = call.request, call.request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        topics=member.topics if names is None else frozenset(names),
    )


def _assignment(assigned: Partitions) -> ShareAssignment:
    return ShareAssignment(
        topic_partitions=[
            ShareTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in in_order(assigned)
        ]
    )
