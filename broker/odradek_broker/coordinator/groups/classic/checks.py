"""Whether a request comes from a member of its group, and of the current generation (G-29)."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_broker.coordinator.groups.classic.group import ClassicGroup
from odradek_broker.coordinator.groups.classic.states import GroupState
from odradek_broker.coordinator.groups.events import RequestRefused
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.sync_group import SyncGroupRequest


def check_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """UNKNOWN_MEMBER_ID for who is no member, FENCED_INSTANCE_ID for an instance id of another one."""
    if instance_id is not None:
        mapped = group.static_ids.get(instance_id)
        if mapped is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if mapped != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def find_group(
    groups: Mapping[str, ClassicGroup], request: SyncGroupRequest | HeartbeatRequest
) -> tuple[ErrorCode, ClassicGroup | None]:
    """The group, if the request comes from a member of its current generation; else the error."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID, None
    group = groups.get(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, None
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
    error = check_member(group, request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and request.generation_id != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    return error, None if error is not ErrorCode.NONE else group


def request_refused(
    groups: Mapping[str, ClassicGroup],
    name: str,
    request: SyncGroupRequest | HeartbeatRequest,
    error: ErrorCode,
) -> RequestRefused:
    """The event for a request that `find_group` refuses; `name` is the request's in Kafka."""
    return RequestRefused(
        request.group_id,
        name,
        error,
        request.member_id,
        request.group_instance_id,
        groups.get(request.group_id),
        request.generation_id,
    )
