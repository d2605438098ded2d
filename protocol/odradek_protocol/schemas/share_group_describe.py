"""ShareGroupDescribe (key 77): share groups with their members (KIP-932)."""

from __future__ import annotations

from odradek_protocol.common_structs import DescribedAssignment
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, STRING


@api_message(ApiKey.SHARE_GROUP_DESCRIBE)
class ShareGroupDescribeRequest(Message):
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL)


class DescribedShareMember(Struct):
    member_id: str = field(STRING)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    assignment: DescribedAssignment = field(DescribedAssignment)


class DescribedShareGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[DescribedShareMember] = field(array(DescribedShareMember))
    authorized_operations: int = field(INT32, default=-2147483648)


@api_message(ApiKey.SHARE_GROUP_DESCRIBE)
class ShareGroupDescribeResponse(Message):
    throttle_time_ms: int = field(INT32)
    groups: list[DescribedShareGroup] = field(array(DescribedShareGroup))
