"""ConsumerGroupHeartbeat: join, live, report and leave (rules G-110 to G-134, KIP-848)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from odradek_broker.coordinator.groups.consumer import records as make
from odradek_broker.coordinator.groups.consumer.advance import (
    Change,
    advance,
    assignor_name,
    assignor_names,
)
from odradek_broker.coordinator.groups.consumer.deadlines import ConsumerDeadlines
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.consumer.partitions import (
    NOTHING,
    Partitions,
    is_within,
    joined,
    partitions_of,
)
from odradek_broker.coordinator.groups.consumer.patterns import PatternError, compile_pattern
from odradek_broker.coordinator.groups.consumer.settings import (
    ConsumerGroupSettings,
    Refusal,
    Topics,
    heartbeat_interval_ms,
)
from odradek_broker.coordinator.groups.consumer.states import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    MemberState,
)
from odradek_broker.coordinator.runtime import Moment, Outcome, Record, Reply
from odradek_broker.history import History
from odradek_broker.history_words import What, describe_client
from odradek_broker.later import Later
from odradek_broker.seams import Randomness
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_heartbeat import (
    AssignedTopicPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
)

#: From this version on, members make their own ids (KIP-1082).
OWN_MEMBER_ID_SINCE = 1

_E = ErrorCode


@dataclass(frozen=True, slots=True)
class HeartbeatCall:
    """A request, and what its connection says about the member."""

    request: ConsumerGroupHeartbeatRequest
    later: Later[ConsumerGroupHeartbeatResponse]
    api_version: int
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The group that a member speaks to. `records` make it out of what was there, and `ending` are
    the end of that (G-150, G-156)."""

    group: ConsumerGroup
    records: list[Record]
    ending: list[Record]


Opener = Callable[[str, bool, Moment, Outcome], Opened | None]
"""(group id, is it a join, now, outcome) -> the group, None if there is none.

Refusal if there is a group of another kind that cannot be turned into one.
"""


Downgrader = Callable[[ConsumerGroup, set[str], Outcome, Moment], bool]
"""(group, members that are going, outcome, now): has it become a classic group without them?"""


def heartbeat_error(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """A refusal."""
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)


class ConsumerProtocol:
    """The requests. `groups` is the shard's; `open_group` finds or makes the one that is asked."""

    def __init__(
        self,
        config: ConsumerGroupSettings,
        groups: dict[str, ConsumerGroup],
        topics: Topics,
        deadlines: ConsumerDeadlines,
        random: Randomness,
        history: History,
        open_group: Opener,
        downgrade: Downgrader,
    ) -> None:
        self._history = history
        self._config = config
        self._groups = groups
        self._topics = topics
        self._deadlines = deadlines
        self._random = random
        self._open = open_group
        self._downgrade = downgrade

    # --- Heartbeat ---

    def heartbeat(self, call: HeartbeatCall, moment: Moment) -> Outcome:
        """G-110 to G-134."""
        out = Outcome()
        try:
            check_request(call.request, call.api_version, self._config)
            if call.request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                response = self._leave(call.request, out, moment)
            else:
                response = self._live(call, out, moment)
        except Refusal as refusal:
            # Nothing is written; what was parked on the way is answered all the same.
            response = heartbeat_error(refusal.error, refusal.message)
            out.records.clear()
            self._tell_refused(call, refusal)
        out.replies.append(Reply(call.later, response, heartbeat_error))
        return out

    def _tell_refused(self, call: HeartbeatCall, refusal: Refusal) -> None:
        self._history.record(
            call.request.group_id,
            What.GROUP_REFUSED,
            error=refusal.error,
            request="ConsumerGroupHeartbeat",
            member=call.request.member_id or None,
            instance=call.request.instance_id,
            client=describe_client(call.client_id, call.client_host),
            reason=refusal.message,
        )

    def _live(
        self, call: HeartbeatCall, out: Outcome, moment: Moment
    ) -> ConsumerGroupHeartbeatResponse:
        request = call.request
        joins = request.member_epoch == JOIN_EPOCH
        opened = self._open(request.group_id, joins, moment, out)
        if opened is None:
            raise not_a_consumer_group(request.group_id)
        group = opened.group
        member_id = request.member_id or str(UUID(bytes=self._random.uuid()))
        self.check_room(group, member_id, request.instance_id)
        change = self._subscribe(group, member_id, request)
        before = change.member
        out.records += opened.records
        change.member = _updated(before, call)
        self._check_pattern(change)
        member = advance(change, self._config, self._topics, moment)
        out.records += [*change.records, *opened.ending]
        self.guard(group, out)
        if change.replaced is not None:
            self._deadlines.forget(group, change.replaced.member_id)
        self._deadlines.heard(group, member, moment)
        if member != before or change.before is None:
            self._deadlines.stepped(group, member, moment)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=heartbeat_interval_ms(self._config, self._topics, group.group_id),
        )
        if _is_full(request) or member.assigned != before.assigned:
            response.assignment = heartbeat_assignment(member.assigned)
        return response

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """G-112."""
        size_max = self._config.group_consumer_max_size
        known = member_id in group.members or (instance_id or "") in group.static_ids
        if not known and len(group.members) >= size_max:
            raise Refusal(
                _E.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    def _subscribe(
        self, group: ConsumerGroup, member_id: str, request: ConsumerGroupHeartbeatRequest
    ) -> Change:
        """Who speaks: G-113 to G-115, G-130, G-131."""
        joins = request.member_epoch == JOIN_EPOCH
        owned = owned_partitions(request)
        if request.instance_id is None:
            member = group.members.get(member_id)
        else:
            member = group.static_member(request.instance_id)
            if member is not None and member.member_id != member_id:
                if not joins:
                    raise fenced_instance(group, member_id, request.instance_id)
                return take_over(group, member, member_id, owned)
        if member is None:
            if not joins:
                raise unknown_member(member_id, group.group_id)
            if member_id in group.members:
                # A dynamic member does not become a static one on the way.
                member = group.members[member_id]
            else:
                fresh = ConsumerMember(member_id=member_id, instance_id=request.instance_id)
                return Change(group, None, fresh, owned)
        if member.classic is None:
            check_epoch(member, request.member_epoch, owned)
        elif not joins:
            # The member speaks the classic protocol, under an id of its own.
            raise unknown_member(member_id, group.group_id)
        if member.epoch == LEAVE_STATIC_EPOCH:
            # It is back under its own id: as if another one took its place.
            return Change(group, member, replace(member, epoch=0, previous_epoch=0), owned)
        return Change(group, member, member, owned)

    def _check_pattern(self, change: Change) -> None:
        """G-117."""
        pattern = change.member.pattern
        if not pattern or (change.before is not None and change.before.pattern == pattern):
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
        self, request: ConsumerGroupHeartbeatRequest, out: Outcome, moment: Moment
    ) -> ConsumerGroupHeartbeatResponse:
        """G-125, G-132."""
        group = self._groups.get(request.group_id)
        if group is None:
            raise not_a_consumer_group(request.group_id)
        if request.instance_id is None:
            member = group.members.get(request.member_id)
        else:
            member = group.static_member(request.instance_id)
            if member is not None and member.member_id != request.member_id:
                raise fenced_instance(group, request.member_id, request.instance_id)
        if member is None:
            raise unknown_member(request.member_id, request.group_id)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            away = replace(
                member,
                epoch=LEAVE_STATIC_EPOCH,
                previous_epoch=member.epoch,
                state=MemberState.STABLE,
                pending=NOTHING,
            )
            out.records.append(make.current_record(group.group_id, away))
            self._deadlines.stepped(group, away, moment)
        else:
            self.remove(group, [member], out, moment)
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch
        )

    def remove(
        self,
        group: ConsumerGroup,
        members: list[ConsumerMember],
        out: Outcome,
        moment: Moment,
        why: str | None = None,
    ) -> None:
        """Members are gone: their partitions are free, and the group epoch grows once (G-101).

        `why` is for people; None if they left by themselves.
        """
        gone = {member.member_id for member in members}
        for member in members:
            self._history.record(
                group.group_id,
                What.MEMBER_LEFT if why is None else What.MEMBER_REMOVED,
                member=member.member_id,
                instance=member.instance_id,
                client=describe_client(member.client_id, member.client_host),
                reason=why,
            )
            self._deadlines.forget(group, member.member_id)
        if self._downgrade(group, gone, out, moment):
            return
        for member in members:
            out.records += make.member_tombstones(group.group_id, member.member_id)
        for pattern in sorted({member.pattern for member in members if member.pattern}):
            if gone.issuperset(group.subscribers_of(pattern)):
                out.records.append(make.pattern_tombstone(group.group_id, pattern))
        out.records.append(make.group_record(group.group_id, group.epoch + 1))
        self.guard(group, out)

    def guard(self, group: ConsumerGroup, out: Outcome) -> None:
        """Should the records be refused, nothing has happened: what is soft must not think so."""

        def settled(error: ErrorCode, then: Moment) -> Outcome:
            if error is not _E.NONE:
                group.seen_version = None
                if self._groups.get(group.group_id) is group:
                    self._deadlines.restored(group, then)
            return Outcome()

        if out.records:
            out.settled = settled


# --- Checks ---------------------------------------------------------------------------------------


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, config: ConsumerGroupSettings
) -> None:
    """G-110, G-116: is it one that a member may send at all?"""
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


def unknown_member(member_id: str, group_id: str) -> Refusal:
    """G-113."""
    return Refusal(_E.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def fenced_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> Refusal:
    """Another member goes by this instance id (G-133)."""
    return Refusal(
        _E.FENCED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} was fenced in group"
        f" {group.group_id}: another member has taken its place.",
    )


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """G-114, G-115. A join is always let in: whoever joins owns nothing."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    may_own = joined(member.assigned, member.pending)
    lost_answer = epoch == member.previous_epoch and epoch < member.epoch
    if lost_answer and owned is not None and is_within(owned, may_own):
        return
    comparison = "greater" if epoch > member.epoch else "smaller"
    raise Refusal(
        _E.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known"
        f" by the group coordinator ({member.epoch}). The member must abandon all its partitions"
        " and rejoin.",
    )


def take_over(
    group: ConsumerGroup,
    old: ConsumerMember,
    member_id: str,
    owned: Partitions | None,
    *,
    classic: bool = False,
) -> Change:
    """G-130, G-131: another member comes with the instance id of one that is there.

    It gets what that one was to have, without a new epoch. Between two members that speak the
    consumer protocol the old one must have left for a while; the classic protocol knows no such
    leave, and there the newer one counts.
    """
    if old.epoch != LEAVE_STATIC_EPOCH and old.classic is None and not classic:
        raise Refusal(
            _E.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {old.instance_id} cannot join the group"
            f" {group.group_id}: the instance id is in use by another member.",
        )
    if member_id in group.members:
        raise Refusal(
            _E.INVALID_REQUEST, f"Member {member_id} is in group {group.group_id} already."
        )
    fresh = replace(
        old,
        member_id=member_id,
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        pending=NOTHING,
    )
    change = Change(group, None, fresh, owned, replaced=old)
    change.records += make.member_tombstones(group.group_id, old.member_id)
    change.records.append(
        make.target_record(group.group_id, member_id, group.target(old.member_id))
    )
    return change


def owned_partitions(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    """What the member says that it owns; None if it does not say."""
    if request.topic_partitions is None:
        return None
    return partitions_of((part.topic_id, part.partitions) for part in request.topic_partitions)


def _updated(member: ConsumerMember, call: HeartbeatCall) -> ConsumerMember:
    """The member with what it says now; what it does not say is as before."""
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
        # An empty expression takes the subscription back.
        pattern=member.pattern if pattern is None else pattern or None,
        assignor=member.assignor if assignor is None else assignor_name(assignor),
        classic=None,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """G-118: does the member say everything, so that it must be told everything?"""
    subscribed = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms >= 0 and subscribed and request.topic_partitions is not None
    )


def heartbeat_assignment(assigned: Partitions) -> HeartbeatAssignment:
    """What the member may use from now on."""
    return HeartbeatAssignment(
        topic_partitions=[
            AssignedTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(assigned.items())
        ]
    )


def not_a_consumer_group(group_id: str) -> Refusal:
    """There is no group of the name, or one of another kind that cannot become one (G-150)."""
    return Refusal(_E.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
