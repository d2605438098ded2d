"""JoinGroup (key 11): a member enters the join phase of a classic group.

Versions: 1 has a rebalance timeout; 4 may answer MEMBER_ID_REQUIRED (KIP-394); 5 has static members
(KIP-345); the answer of 7 has the protocol type; 8 has a reason; the answer of 9 has
skip_assignment.

Of note: version 0 is served, as in Kafka since 4.1 (KAFKA-19444).
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, BYTES, INT16, INT32, STRING

#: From this version on a dynamic member first requests a member id (G-25).
MEMBER_ID_REQUIRED_SINCE = 4
#: From this version on the name of the protocol may be null.
NULL_PROTOCOL_SINCE = 7
#: From this version on the answer can tell a leader not to compute an assignment (G-28).
SKIP_ASSIGNMENT_SINCE = 9


class JoinGroupRequestProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@api_message(ApiKey.JOIN_GROUP)
class JoinGroupRequest(Message):
    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = field(BYTES)


@api_message(ApiKey.JOIN_GROUP)
class JoinGroupResponse(Message):
    throttle_time_ms: int = field(INT32, "2+", ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, nullable="7+")
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOL, "9+")
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
