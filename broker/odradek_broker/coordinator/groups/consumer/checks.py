"""Checks of a ConsumerGroupHeartbeat and of its sender (rules G-110 to G-116, G-133)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup, ConsumerMember
from odradek_broker.coordinator.groups.consumer.partitions import Partitions, is_subset, union
from odradek_broker.coordinator.groups.consumer.settings import ConsumerGroupSettings, Refusal
from odradek_broker.coordinator.groups.consumer.target_assignment import (
    assignor_name,
    assignor_names,
)
from odradek_protocol.constants import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.consumer_group_heartbeat import (
    OWN_MEMBER_ID_SINCE,
    ConsumerGroupHeartbeatRequest,
)

_E = ErrorCode


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, config: ConsumerGroupSettings
) -> None:
    """Refusal for a request that no member may send (G-110, G-116)."""
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
    """The refusal of a member that the group does not have (G-113)."""
    return Refusal(_E.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def fenced_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> Refusal:
    """The refusal of a member whose instance id another one has taken (G-133)."""
    return Refusal(
        _E.FENCED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} was fenced in group"
        f" {group.group_id}: another member has taken its place.",
    )


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """Refusal unless the epoch is the member's, or its last one after a lost answer (G-114, G-115).

    A join is always let in: whoever joins owns nothing.
    """
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    may_own = union(member.assigned, member.pending)
    lost_answer = epoch == member.previous_epoch and epoch < member.epoch
    if lost_answer and owned is not None and is_subset(owned, may_own):
        return
    comparison = "greater" if epoch > member.epoch else "smaller"
    raise Refusal(
        _E.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known"
        f" by the group coordinator ({member.epoch}). The member must abandon all its partitions"
        " and rejoin.",
    )


def not_a_consumer_group(group_id: str) -> Refusal:
    """The refusal where there is no group of the name, or one that cannot become a consumer group
    (G-150)."""
    return Refusal(_E.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
