"""DescribeGroups (key 15): classic groups with their members.

Versions: 3 has authorized operations; 4 has static members; 5 is flexible; 6 has an error message,
and GROUP_ID_NOT_FOUND for a group that does not exist, in place of the state Dead (KIP-1043).
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, BYTES, INT16, INT32, STRING

#: From this version on a group that does not exist is answered with an error and a message; in
#: earlier versions, it is answered with the state Dead (KIP-1043).
GROUP_ID_NOT_FOUND_SINCE = 6


@api_message(ApiKey.DESCRIBE_GROUPS)
class DescribeGroupsRequest(Message):
    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, "3+")


class DescribedGroupMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


class DescribedGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "6+", nullable="6+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, "3+", default=-2147483648)


@api_message(ApiKey.DESCRIBE_GROUPS)
class DescribeGroupsResponse(Message):
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
