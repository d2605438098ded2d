"""ShareGroupHeartbeat (key 76): a member of a share group joins, subscribes, stays alive and leaves
(KIP-932).
"""

from __future__ import annotations

from odradek_protocol.common_structs import GroupAssignment
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, array, field
from odradek_protocol.primitives import INT16, INT32, STRING


@api_message(ApiKey.SHARE_GROUP_HEARTBEAT)
class ShareGroupHeartbeatRequest(Message):
    """The request. `member_epoch` 0 joins, -1 leaves.

    Topics null: unchanged since the last heartbeat.
    """

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable="0+", default=None)


@api_message(ApiKey.SHARE_GROUP_HEARTBEAT)
class ShareGroupHeartbeatResponse(Message):
    """The response. `assignment` null: unchanged since the last answer."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: GroupAssignment | None = field(GroupAssignment, nullable="0+", default=None)
