"""Heartbeat (key 12): reports that a member of a classic group is alive.

Versions: 3 has static members; 4 is flexible.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, field
from odradek_protocol.primitives import INT16, INT32, STRING


@api_message(ApiKey.HEARTBEAT)
class HeartbeatRequest(Message):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)


@api_message(ApiKey.HEARTBEAT)
class HeartbeatResponse(Message):
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16)
