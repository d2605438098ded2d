"""ConsumerGroupHeartbeat: the checks of the request, and members that join, stay alive, report
their partitions and leave (rules G-110 to G-133, KIP-848)."""

from __future__ import annotations

from collections.abc import Collection, Container
from dataclasses import replace
from itertools import chain
from uuid import UUID

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from odradek_broker.coordinator.groups.consumer.pattern_subscriptions import NO_MATCHES
from odradek_broker.coordinator.groups.consumer.reconciliation import (
    MemberUpdate,
    assignor_name,
    assignor_names,
    replace_static_member,
    subscription_metadata,
    update_member,
)
from odradek_broker.coordinator.groups.conversion import GroupConversion
from odradek_broker.coordinator.groups.deadlines import GroupTimerName
from odradek_broker.coordinator.groups.events import MemberRemovalReason, Observer, Removal
from odradek_broker.coordinator.groups.modern.groups import HeartbeatCall, ModernGroups
from odradek_broker.coordinator.groups.partitions import (
    NO_PARTITIONS,
    Partitions,
    each_partition,
    listed,
    partitions_of_many,
)
from odradek_broker.coordinator.groups.refusals import (
    Refusal,
    check_not_empty,
    invalid_request,
    missing_group,
    unknown_member,
)
from odradek_broker.coordinator.groups.settings import CoordinatorMetadata, GroupSettings
from odradek_broker.coordinator.runtime import CoreOutcome, Instant, Record
from odradek_broker.coordinator.timers import Timers
from odradek_broker.patterns import PatternError, compile_pattern
from odradek_broker.platform.seams import Randomness
from odradek_protocol.common_structs import GroupAssignment
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_heartbeat import (
    OWN_MEMBER_ID_SINCE,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_E = ErrorCode


ConsumerHeartbeatCall = HeartbeatCall[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]


def heartbeat_error(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """The answer that refuses a request."""
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


def invalid_expression(error: PatternError) -> ConsumerGroupHeartbeatResponse:
    """The answer that refuses a regular expression (G-117)."""
    message = f"SubscribedTopicRegex is not a valid regular expression: {error}."
    return heartbeat_error(_E.INVALID_REGULAR_EXPRESSION, message)


class ConsumerGroups(
    ModernGroups[ConsumerGroup, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse]
):
    """The consumer groups of a shard, and the requests of members that use the consumer
    protocol."""

    group_class = ConsumerGroup
    refused = staticmethod(heartbeat_error)

    def __init__(
        self,
        config: GroupSettings,
        topics: CoordinatorMetadata,
        observer: Observer,
        groups: dict[str, ConsumerGroup],
        timers: Timers[GroupTimerName],
        others: Container[str],
        random: Randomness,
        conversion: GroupConversion,
    ) -> None:
        super().__init__(config, topics, observer, groups, timers, others)
        self._random = random
        self._conversion = conversion

    # --- Heartbeat ---

    def check_request(self, call: ConsumerHeartbeatCall) -> None:
        """Raise Refusal for a request that no member may send (G-110, G-116)."""
        request = call.request
        epoch = request.member_epoch
        own_id = call.api_version >= OWN_MEMBER_ID_SINCE or epoch != JOIN_EPOCH
        check_not_empty(
            ("GroupId", request.group_id),
            ("MemberId", request.member_id if own_id else None),
            ("InstanceId", request.instance_id),
            ("RackId", request.rack_id),
        )
        if epoch == JOIN_EPOCH:
            if request.rebalance_timeout_ms == -1:
                raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise invalid_request("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise invalid_request(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
                    " (re-)joining."
                )
        elif epoch == LEAVE_STATIC_EPOCH:
            if request.instance_id is None:
                raise invalid_request("InstanceId can't be null.")
        elif epoch < LEAVE_STATIC_EPOCH:
            raise invalid_request(f"MemberEpoch is {epoch}; it is invalid.")
        assignor = request.server_assignor
        if assignor is not None and assignor_name(assignor) not in assignor_names(self._config):
            raise Refusal(
                _E.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {assignor} is not supported. Supported assignors: "
                f"{', '.join(assignor_names(self._config))}.",
            )

    async def _heartbeat(
        self, call: ConsumerHeartbeatCall, out: CoreOutcome, now: Instant
    ) -> ConsumerGroupHeartbeatResponse:
        request = call.request
        joins = request.member_epoch == JOIN_EPOCH
        opened = await self._conversion.open(request.group_id, now, joins=joins)
        if opened is None:
            raise self.missing(request.group_id)
        group = opened.group
        member_id = request.member_id or str(UUID(bytes=self._random.uuid()))
        self.check_group_size(group, member_id, request.instance_id)
        update = await self._subscribe(group, member_id, request)
        before = update.member
        out.records += opened.records
        update.member, update.matches = _updated(before, call), call.matches or NO_MATCHES
        self._check_pattern(update)
        member = await update_member(update, self._config, self._topics, now)
        out.replies += await opened.convert()
        out.records += [*update.records, *opened.ending]
        self.undo_if_refused(group, out, member_id)
        if update.replaced is not None:
            self.deadlines.forget(group, update.replaced.member_id)
        self.deadlines.restart_session(group, member, now)
        if member != before or update.before is None:
            self.deadlines.update_revocation(group, member, now)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.heartbeat_interval_ms(group),
        )
        if _is_full_request(request) or member.assigned != before.assigned:
            response.assignment = GroupAssignment(topic_partitions=await listed(member.assigned))
        return response

    def check_group_size(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> None:
        """Raise Refusal if the member is new and the group is full (G-112)."""
        if member_id not in group.members and (instance_id or "") not in group.static_ids:
            self.check_size(group)

    async def _subscribe(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest
    ) -> MemberUpdate:
        """The member that sends the request, known or new (G-113 to G-115, G-130, G-131)."""
        joins = request.member_epoch == JOIN_EPOCH
        owned = await owned_partitions(request)
        if request.instance_id is None:
            member = group.members.get(member_id)
        else:
            member = group.static_member(request.instance_id)
            if member is not None and member.member_id != member_id:
                if not joins:
                    raise group.fenced_instance(member_id, request.instance_id)
                return await replace_static_member(group, member, member_id, owned)
        if member is None:
            if not joins:
                raise unknown_member(member_id, group.group_id)
            # A join may change the instance id of a known member, or give it an instance id for the
            # first time.
            member = group.members.get(member_id)
            if member is None:
                fresh = ConsumerMember(member_id=member_id, instance_id=request.instance_id)
                return MemberUpdate(group, None, fresh, owned)
        if member.classic is None:
            self.check_epoch(member, request.member_epoch, owned)
        elif not joins:
            # The member with this id uses the classic protocol.
            raise unknown_member(member_id, group.group_id)
        if member.epoch == LEAVE_STATIC_EPOCH:
            # The member has returned with its old id, and is treated as if another member replaced
            # it.
            return MemberUpdate(group, member, replace(member, epoch=0, previous_epoch=0), owned)
        return MemberUpdate(group, member, member, owned)

    def _check_pattern(self, update: MemberUpdate) -> None:
        """Refuse a new regular expression that cannot be parsed (G-117)."""
        pattern = update.member.pattern
        if not pattern or (update.before is not None and update.before.pattern == pattern):
            return
        try:
            compile_pattern(pattern)
        except PatternError as error:
            refused = invalid_expression(error)
            raise Refusal(_E.INVALID_REGULAR_EXPRESSION, refused.error_message or "") from error

    def missing(self, group_id: str, name: str = "Group") -> Refusal:
        """The refusal for a group that does not exist, or that cannot become a consumer group
        (G-150)."""
        message = missing_group(group_id, self.group_type, exists=True)
        return Refusal(_E.GROUP_ID_NOT_FOUND, message)

    # --- Leave ---

    async def _leave(
        self, request: ConsumerGroupHeartbeatRequest, out: CoreOutcome, now: Instant
    ) -> ConsumerGroupHeartbeatResponse:
        """Remove a member, or note that a static member has left temporarily (G-125, G-132)."""
        group = self.find(request.group_id)
        member = group.find_member(request.member_id, request.instance_id)
        if member is None:
            raise unknown_member(request.member_id, request.group_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            away = replace(
                member,
                epoch=LEAVE_STATIC_EPOCH,
                previous_epoch=member.epoch,
                state=MemberState.STABLE,
                pending=NO_PARTITIONS,
                # Whoever returns under the instance id commits with an epoch of its own.
                epochs=dict.fromkeys(each_partition(member.assigned), 0),
            )
            out.records.append(await make.current_record(group.group_id, away))
            self.deadlines.update_revocation(group, away, now)
        else:
            removal = Removal(MemberRemovalReason.LEFT_BY_HEARTBEAT)
            await self.remove(group, {member.member_id: removal}, out, now)
        return self._left(member.member_id, request.member_epoch)

    @staticmethod
    def _left(member_id: str, epoch: int) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)

    async def _converts_without(
        self, group: ConsumerGroup, gone: set[str], out: CoreOutcome, now: Instant
    ) -> bool:
        converted = await self._conversion.downgrade(group, gone, now)
        if converted is None:
            return False
        out.records += converted.records
        out.replies += converted.replies
        out.after_append = converted.after_append
        return True

    async def _records_without(self, group: ConsumerGroup, gone: Collection[str]) -> list[Record]:
        theirs = [group.members[each] for each in gone]
        left = group.pattern_uses.keys_after((each.pattern for each in theirs if each.pattern), ())
        unused = group.pattern_uses.keys() - left
        names = group.subscribers.keys_after(chain.from_iterable(m.topics for m in theirs), ())
        matched = (group.patterns.get(pattern, ()) for pattern in left)
        topics = await subscription_metadata(names.union(*matched), self._topics)
        records = [make.pattern_tombstone(group.group_id, each) for each in sorted(unused)]
        if topics != group.topics:
            records.append(await make.topics_record(group.group_id, topics))
        return [*records, make.group_record(group.group_id, group.epoch + 1)]


async def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """The partitions that the member reports as owned; None if the heartbeat does not report
    them."""
    if request.topic_partitions is None:
        return None
    return await partitions_of_many(
        [(part.topic_id, part.partitions) for part in request.topic_partitions]
    )


def _updated(member: ConsumerMember, call: ConsumerHeartbeatCall) -> ConsumerMember:
    """The member with the fields of the request; fields that are not given keep their value."""
    request = call.request
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    pattern, assignor = request.subscribed_topic_regex, request.server_assignor
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
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
        request.rebalance_timeout_ms != -1 and subscribed and request.topic_partitions is not None
    )
