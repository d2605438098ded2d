"""ConsumerGroupHeartbeat: its checks; members join, stay alive, report and leave (rules G-110 to
G-133, KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from odradek_broker.coordinator.groups.consumer.reconciliation import (
    MemberUpdate,
    assignor_name,
    assignor_names,
    replace_static_member,
    update_member,
)
from odradek_broker.coordinator.groups.conversion import GroupConversion
from odradek_broker.coordinator.groups.deadlines import ConsumerDeadlines
from odradek_broker.coordinator.groups.events import (
    MemberRemoved,
    Observer,
    Removal,
    RemovalReason,
    RequestRefused,
)
from odradek_broker.coordinator.groups.fencing import (
    check_epoch,
    fenced_instance,
    find_member,
    unknown_member,
)
from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    in_order,
    partitions_from,
)
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.settings import (
    ConsumerGroupSettings,
    Topics,
    Visible,
    every_topic,
    heartbeat_interval_ms,
)
from odradek_broker.coordinator.runtime import Instant, Outcome, Reply
from odradek_broker.deferred import Deferred
from odradek_broker.platform.seams import Randomness
from odradek_broker.re2 import PatternError, compile_pattern
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.schemas.consumer_group_heartbeat import (
    OWN_MEMBER_ID_SINCE,
    AssignedTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
)

_E = ErrorCode


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, config: ConsumerGroupSettings
) -> None:
    """Refusal of a request that is not valid from any member (G-110, G-116)."""
    epoch = request.member_epoch
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    own_id = api_version >= OWN_MEMBER_ID_SINCE or epoch != JOIN_EPOCH
    if own_id and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms < 0:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
                " (re-)joining."
            )
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}; it is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor_name(assignor) not in assignor_names(config):
        raise Refusal(
            _E.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(assignor_names(config))}.",
        )


def _invalid(message: str) -> Refusal:
    return Refusal(_E.INVALID_REQUEST, message)


def not_a_consumer_group(group_id: str) -> Refusal:
    """The refusal for a group that does not exist, or that cannot become a consumer group
    (G-150)."""
    return Refusal(_E.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")


@dataclass(frozen=True, slots=True)
class HeartbeatCall:
    """A ConsumerGroupHeartbeat, with the data of its connection and the topics that its user may
    see."""

    request: ConsumerGroupHeartbeatRequest
    deferred: Deferred[ConsumerGroupHeartbeatResponse]
    api_version: int
    client_id: str
    client_host: str
    visible: Visible = every_topic


def heartbeat_error(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """The answer that refuses a request."""
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


class ConsumerProtocol:
    """The requests of members that use the consumer protocol. `groups`: the groups of the shard."""

    def __init__(
        self,
        config: ConsumerGroupSettings,
        groups: dict[str, ConsumerGroup],
        topics: Topics,
        deadlines: ConsumerDeadlines,
        random: Randomness,
        observer: Observer,
        conversion: GroupConversion,
    ) -> None:
        self._observer = observer
        self._config = config
        self._groups = groups
        self._topics = topics
        self._deadlines = deadlines
        self._random = random
        self._conversion = conversion

    # --- Heartbeat ---

    def heartbeat(self, call: HeartbeatCall, now: Instant) -> Outcome:
        """Answer a heartbeat; a refusal writes nothing."""
        out = Outcome()
        try:
            check_request(call.request, call.api_version, self._config)
            if call.request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                response = self._leave(call.request, out, now)
            else:
                response = self._heartbeat(call, out, now)
        except Refusal as refusal:
            # Nothing is written; requests that were parked on the way are answered nevertheless.
            response = heartbeat_error(refusal.error, refusal.message)
            out.records.clear()
            self._observe_refusal(call, refusal)
        out.replies.append(Reply(call.deferred, response, heartbeat_error))
        return out

    def _observe_refusal(self, call: HeartbeatCall, refusal: Refusal) -> None:
        self._observer(
            RequestRefused(
                call.request.group_id,
                "ConsumerGroupHeartbeat",
                refusal.error,
                call.request.member_id,
                call.request.instance_id,
                client=(call.client_id, call.client_host),
                message=refusal.message,
            )
        )

    def _heartbeat(
        self, call: HeartbeatCall, out: Outcome, now: Instant
    ) -> ConsumerGroupHeartbeatResponse:
        request = call.request
        joins = request.member_epoch == JOIN_EPOCH
        opened = self._conversion.open(request.group_id, now, joins=joins)
        if opened is None:
            raise not_a_consumer_group(request.group_id)
        group = opened.group
        out.replies += opened.replies
        member_id = request.member_id or str(UUID(bytes=self._random.uuid()))
        self.check_group_size(group, member_id, request.instance_id)
        update = self._subscribe(group, member_id, request)
        before = update.member
        out.records += opened.records
        update.member, update.visible = _updated(before, call), call.visible
        self._check_pattern(update)
        member = update_member(update, self._config, self._topics, now)
        out.records += [*update.records, *opened.ending]
        self.undo_if_refused(group, out, member_id)
        if update.replaced is not None:
            self._deadlines.forget(group, update.replaced.member_id)
        self._deadlines.restart_session(group, member, now)
        if member != before or update.before is None:
            self._deadlines.update_revocation(group, member, now)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=heartbeat_interval_ms(self._config, self._topics, group.group_id),
        )
        if _is_full_request(request) or member.assigned != before.assigned:
            response.assignment = heartbeat_assignment(member.assigned)
        return response

    def check_group_size(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> None:
        """Refusal if the member is new and the group full (G-112)."""
        size_max = self._config.group_consumer_max_size
        known = member_id in group.members or (instance_id or "") in group.static_ids
        if not known and len(group.members) >= size_max:
            raise Refusal(
                _E.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    def _subscribe(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest
    ) -> MemberUpdate:
        """The member that sends the request, known or new (G-113 to G-115, G-130, G-131)."""
        joins = request.member_epoch == JOIN_EPOCH
        owned = owned_partitions(request)
        if request.instance_id is None:
            member = group.members.get(member_id)
        else:
            member = group.static_member(request.instance_id)
            if member is not None and member.member_id != member_id:
                if not joins:
                    raise fenced_instance(group, member_id, request.instance_id)
                return replace_static_member(group, member, member_id, owned)
        if member is None:
            if not joins:
                raise unknown_member(member_id, group.group_id)
            if member_id in group.members:
                # A dynamic member does not become a static one with a heartbeat.
                member = group.members[member_id]
            else:
                fresh = ConsumerMember(member_id=member_id, instance_id=request.instance_id)
                return MemberUpdate(group, None, fresh, owned)
        if member.classic is None:
            check_epoch(member, request.member_epoch, owned)
        elif not joins:
            # The member uses the classic protocol, under an id of its own.
            raise unknown_member(member_id, group.group_id)
        if member.epoch == LEAVE_STATIC_EPOCH:
            # The member has returned under its own id: treated as if another member replaced it.
            return MemberUpdate(group, member, replace(member, epoch=0, previous_epoch=0), owned)
        return MemberUpdate(group, member, member, owned)

    def _check_pattern(self, update: MemberUpdate) -> None:
        """Refusal for a new regular expression that cannot be read (G-117)."""
        pattern = update.member.pattern
        if not pattern or (update.before is not None and update.before.pattern == pattern):
            return
        try:
            compile_pattern(pattern)
        except PatternError as error:
            raise Refusal(
                _E.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex is not a valid regular expression: {error}.",
            ) from error

    # --- Leave ---

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, out: Outcome, now: Instant
    ) -> ConsumerGroupHeartbeatResponse:
        """Remove a member, or note that a static member is away for a while (G-125, G-132)."""
        group = self._groups.get(request.group_id)
        if group is None:
            raise not_a_consumer_group(request.group_id)
        member = find_member(group, request.member_id, request.instance_id)
        if member is None:
            raise unknown_member(request.member_id, request.group_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            away = replace(
                member,
                epoch=LEAVE_STATIC_EPOCH,
                previous_epoch=member.epoch,
                state=MemberState.STABLE,
                pending=NO_PARTITIONS,
            )
            out.records.append(make.current_record(group.group_id, away))
            self._deadlines.update_revocation(group, away, now)
        else:
            removal = Removal(RemovalReason.LEFT_BY_HEARTBEAT)
            self.remove(group, {member.member_id: removal}, out, now)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    def remove(
        self,
        group: ConsumerGroup,
        removals: Mapping[str, Removal],
        out: Outcome,
        now: Instant,
    ) -> None:
        """Remove members: their partitions become free, and the group epoch grows once (G-101).

        `removals`: the reasons by member id.
        """
        gone = set(removals)
        members = [group.members[member_id] for member_id in removals]
        for member in members:
            self._observer(MemberRemoved(group.group_id, member, removals[member.member_id]))
            self._deadlines.forget(group, member.member_id)
        converted = self._conversion.downgrade(group, gone, now)
        if converted is not None:
            out.records += converted.records
            out.replies += converted.replies
            out.after_append = converted.after_append
            return
        for member in members:
            out.records += group.member_tombstones(member.member_id)
        for pattern in sorted({member.pattern for member in members if member.pattern}):
            if gone.issuperset(group.subscribers_of(pattern)):
                out.records.append(make.pattern_tombstone(group.group_id, pattern))
        out.records.append(make.group_record(group.group_id, group.epoch + 1))
        self.undo_if_refused(group, out)

    def undo_if_refused(self, group: ConsumerGroup, out: Outcome, member_id: str = "") -> None:
        """Undo the changes of soft state if the records are refused: then nothing has changed, and
        the member `member_id` has not joined."""

        def after_append(error: ErrorCode, then: Instant) -> Outcome:
            if error is not _E.NONE:
                group.topics_version = None
                if member_id not in group.members:
                    self._deadlines.forget(group, member_id)
                if self._groups.get(group.group_id) is group:
                    self._deadlines.restored(group, then)
            return Outcome()

        if out.records:
            out.after_append = after_append


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """The partitions that the member reports as owned; None if the heartbeat does not report
    them."""
    if request.topic_partitions is None:
        return None
    return partitions_from(request.topic_partitions)


def _updated(member: ConsumerMember, call: HeartbeatCall) -> ConsumerMember:
    """The member with the fields of the request; fields that are not given keep their value."""
    request = call.request
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    pattern, assignor = request.subscribed_topic_regex, request.server_assignor
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        topics=member.topics if names is None else frozenset(names),
        # An empty expression ends the subscription.
        pattern=member.pattern if pattern is None else pattern or None,
        assignor=member.assignor if assignor is None else assignor_name(assignor),
        classic=None,
    )


def _is_full_request(request: ConsumerGroupHeartbeatRequest) -> bool:
    """True if all fields are given, so that the answer must have the assignment (G-118)."""
    subscribed = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms >= 0 and subscribed and request.topic_partitions is not None
    )


def heartbeat_assignment(assigned: Partitions) -> HeartbeatAssignment:
    """The assignment, in the form of the answer."""
    return HeartbeatAssignment(
        topic_partitions=[
            AssignedTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in in_order(assigned)
        ]
    )
