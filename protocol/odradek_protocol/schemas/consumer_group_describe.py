"""ConsumerGroupDescribe (key 69): consumer groups with their members (KIP-848).

Versions: 1 has the protocol that each member uses (KIP-1099).
"""

from __future__ import annotations

from odradek_protocol.common_structs import DescribedAssignment
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT8, INT16, INT32, STRING


@api_message(ApiKey.CONSUMER_GROUP_DESCRIBE)
class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL)


class DescribedConsumerMember(Struct):
    """A member. `member_type`: the protocol that it uses; -1 unknown, 0 classic, 1 consumer."""

    member_id: str = field(STRING)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+", default=None)
    assignment: DescribedAssignment = field(DescribedAssignment)
    target_assignment: DescribedAssignment = field(DescribedAssignment)
    member_type: int = field(INT8, "1+", default=-1, ignorable=True)


class DescribedConsumerGroup(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    group_epoch: int = field(INT32)
    assignment_epoch: int = field(INT32)
    assignor_name: str = field(STRING)
    members: list[DescribedConsumerMember] = field(array(DescribedConsumerMember))
    authorized_operations: int = field(INT32, default=-2147483648)


@api_message(ApiKey.CONSUMER_GROUP_DESCRIBE)
class ConsumerGroupDescribeResponse(Message):
    throttle_time_ms: int = field(INT32)
    groups: list[DescribedConsumerGroup] = field(array(DescribedConsumerGroup))
