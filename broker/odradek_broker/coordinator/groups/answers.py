"""The answers of the membership APIs, put together from the state of a group."""

from __future__ import annotations

from odradek_broker.coordinator.groups.group import ClassicGroup, Member
from odradek_broker.coordinator.runtime import Reply
from odradek_broker.later import Later
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.heartbeat import HeartbeatResponse
from odradek_protocol.schemas.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek_protocol.schemas.leave_group import LeaveGroupResponse
from odradek_protocol.schemas.sync_group import SyncGroupResponse

NO_GENERATION = -1


def join_error(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """A refusal, in the form of every version."""
    return JoinGroupResponse(
        error_code=error, generation_id=NO_GENERATION, protocol_name=None, member_id=member_id
    )


def join_refused(later: Later[JoinGroupResponse], error: ErrorCode, member_id: str) -> Reply:
    """An error is the same whatever becomes of the records."""
    return Reply(later, join_error(error, member_id), lambda other: join_error(other, member_id))


def list_members(group: ClassicGroup, protocol: str | None) -> list[JoinGroupResponseMember]:
    """What the leader, and nobody else, is given (G-43)."""
    return [
        JoinGroupResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(protocol),
        )
        for member in group.members.values()
    ]


def join_answer(
    group: ClassicGroup, member: Member, generation: int, protocol: str | None
) -> JoinGroupResponse:
    """The answer to a member of a completed join phase; its leader gets all members."""
    leads = group.leader_id == member.member_id
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol,
        leader=group.leader_id or "",
        member_id=member.member_id,
        members=list_members(group, protocol) if leads else [],
    )


def join_reply(later: Later[JoinGroupResponse], response: JoinGroupResponse) -> Reply:
    """An answer that turns into an error if its records cannot be appended."""
    return Reply(later, response, lambda error: join_error(error, response.member_id))


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """A refusal, in the form of every version."""
    return SyncGroupResponse(error_code=error)


def sync_refused(later: Later[SyncGroupResponse], error: ErrorCode) -> Reply:
    """An error is the same whatever becomes of the records."""
    return Reply(later, sync_error(error), sync_error)


def sync_reply(later: Later[SyncGroupResponse], group: ClassicGroup, member: Member) -> Reply:
    """A member's assignment, or an error if the group's record cannot be appended."""
    response = SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=group.assignment(member.member_id),
    )
    return Reply(later, response, sync_error)


def heartbeat_reply(later: Later[HeartbeatResponse], error: ErrorCode) -> Reply:
    """The answer to a heartbeat, once the records before it are durable."""
    return Reply(
        later,
        HeartbeatResponse(error_code=error),
        lambda other: HeartbeatResponse(error_code=other),
    )


def leave_refused(later: Later[LeaveGroupResponse], error: ErrorCode) -> Reply:
    """The request as a whole has failed."""
    return Reply(
        later,
        LeaveGroupResponse(error_code=error),
        lambda other: LeaveGroupResponse(error_code=other),
    )
