"""LeaveGroup (key 13): members leave a classic group.

Versions: 3 has a list of members, and an error for each; 4 is flexible; 5 has a reason.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, STRING

#: From this version on members and errors are lists (G-80).
MEMBERS_SINCE = 3
#: From this version on members send a reason (KIP-800).
REASON_SINCE = 5


class MemberIdentity(Struct):
    member_id: str = field(STRING, "3+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    reason: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


@api_message(ApiKey.LEAVE_GROUP)
class LeaveGroupRequest(Message):
    group_id: str = field(STRING)
    member_id: str = field(STRING, "0-2")
    members: list[MemberIdentity] = field(array(MemberIdentity), "3+")


class MemberResponse(Struct):
    member_id: str = field(STRING, "3+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+")
    error_code: int = field(INT16, "3+")


@api_message(ApiKey.LEAVE_GROUP)
class LeaveGroupResponse(Message):
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(array(MemberResponse), "3+")
