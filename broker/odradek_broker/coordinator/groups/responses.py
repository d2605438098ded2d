"""The answers of the membership APIs, made from the state of a group."""

from __future__ import annotations

from odradek_broker.coordinator.groups.classic.group import ClassicGroup, Member
from odradek_broker.coordinator.groups.events import MemberRemovalReason, Removal
from odradek_broker.coordinator.runtime import Reply
from odradek_broker.deferred import Deferred
from odradek_broker.slices import in_pieces
from odradek_protocol.constants import NO_GENERATION
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatResponse
from odradek_protocol.schemas.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek_protocol.schemas.leave_group import (
    MEMBERS_SINCE,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek_protocol.schemas.sync_group import SyncGroupResponse


def join_error(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """The JoinGroup answer with an error, valid in every version."""
    return JoinGroupResponse(
        error_code=error, generation_id=NO_GENERATION, protocol_name=None, member_id=member_id
    )


def join_refused(
    deferred: Deferred[JoinGroupResponse], error: ErrorCode, member_id: str
) -> Reply[JoinGroupResponse]:
    """The JoinGroup answer with an error. If the records of the decision cannot be appended, the
    error of the append replaces `error`."""
    return Reply(deferred, join_error(error, member_id), lambda other: join_error(other, member_id))


async def list_members(group: ClassicGroup, protocol: str | None) -> list[JoinGroupResponseMember]:
    """The members of a generation, for its leader only (G-43)."""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(protocol),
        )
        async for some in in_pieces(group.members.values())
        for member in some
    ]


async def join_answer(
    group: ClassicGroup, member: Member, generation: int, protocol: str | None
) -> JoinGroupResponse:
    """The answer to a member of a completed join phase; the leader gets the list of members."""
    leads = group.leader_id == member.member_id
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=await list_members(group, protocol) if leads else [],
    )


def join_reply(
    deferred: Deferred[JoinGroupResponse], response: JoinGroupResponse
) -> Reply[JoinGroupResponse]:
    """The answer to a JoinGroup. If the records of the decision cannot be appended, an error
    replaces the answer."""
    return Reply(deferred, response, lambda error: join_error(error, response.member_id))


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """The SyncGroup answer with an error, valid in every version."""
    return SyncGroupResponse(error_code=error)


def sync_refused(
    deferred: Deferred[SyncGroupResponse], error: ErrorCode
) -> Reply[SyncGroupResponse]:
    """The SyncGroup answer with an error. If the records of the decision cannot be appended, the
    error of the append replaces `error`."""
    return Reply(deferred, sync_error(error), sync_error)


def sync_reply(
    deferred: Deferred[SyncGroupResponse], group: ClassicGroup, member: Member
) -> Reply[SyncGroupResponse]:
    """A member's assignment, or an error if the group's record cannot be appended."""
    response = SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=group.assignment(member.member_id),
    )
    return Reply(deferred, response, sync_error)


def heartbeat_reply(
    deferred: Deferred[HeartbeatResponse], error: ErrorCode
) -> Reply[HeartbeatResponse]:
    """The answer to a heartbeat. If earlier records cannot be made durable, the storage error
    replaces `error`."""
    return Reply(
        deferred,
        HeartbeatResponse(error_code=error),
        lambda other: HeartbeatResponse(error_code=other),
    )


def leave_refused(
    deferred: Deferred[LeaveGroupResponse], error: ErrorCode
) -> Reply[LeaveGroupResponse]:
    """The answer with an error for the whole request."""
    return Reply(
        deferred,
        LeaveGroupResponse(error_code=error),
        lambda other: LeaveGroupResponse(error_code=other),
    )


def leaving_members(request: LeaveGroupRequest, api_version: int) -> list[MemberIdentity]:
    """The members that leave: before version 3 a single member id, from version 3 on any number of
    members."""
    if api_version >= MEMBERS_SINCE:
        return request.members
    return [MemberIdentity(member_id=request.member_id)]


def removal_of(identity: MemberIdentity) -> Removal:
    """The reason why a LeaveGroup removes a member. A LeaveGroup that gives only the instance id of
    the member comes from an administrator (G-80)."""
    by_admin = not identity.member_id and identity.group_instance_id is not None
    reason = MemberRemovalReason.REMOVED_BY_ADMIN if by_admin else MemberRemovalReason.LEFT
    return Removal(reason, stated=identity.reason or None)


async def leave_reply(
    deferred: Deferred[LeaveGroupResponse],
    leaving: list[MemberIdentity],
    errors: list[ErrorCode],
    api_version: int,
) -> Reply[LeaveGroupResponse]:
    """The answer to a LeaveGroup, with one error for each of `leaving`."""
    response = LeaveGroupResponse(error_code=ErrorCode.NONE)
    if api_version >= MEMBERS_SINCE:
        response.members = [
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=error,
            )
            async for some in in_pieces(zip(leaving, errors, strict=True))
            for identity, error in some
        ]
    else:
        response.error_code = errors[0]
    return Reply(deferred, response, lambda error: LeaveGroupResponse(error_code=error))
