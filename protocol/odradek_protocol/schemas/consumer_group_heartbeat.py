"""ConsumerGroupHeartbeat (key 68): a member of a consumer group joins, stays alive, reports its
partitions and leaves (KIP-848).

Versions: in 1 members may subscribe to a regular expression, and make their own ids (KIP-1082).
"""

from __future__ import annotations

from odradek_protocol.common_structs import GroupAssignment, PartitionsOfTopicId
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, array, field
from odradek_protocol.primitives import INT16, INT32, STRING

#: From this version on members make their own ids (KIP-1082).
OWN_MEMBER_ID_SINCE = 1
#: From this version on a member may subscribe to a regular expression.
REGULAR_EXPRESSION_SINCE = 1


@api_message(ApiKey.CONSUMER_GROUP_HEARTBEAT)
class ConsumerGroupHeartbeatRequest(Message):
    """The request. Null fields, and the timeout -1, mean unchanged since the last heartbeat.

    `member_epoch`: 0 to join, -1 to leave, -2 for a static member that leaves and will return.
    """

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable="0+", default=None)
    subscribed_topic_regex: str | None = field(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = field(STRING, nullable="0+", default=None)
    topic_partitions: list[PartitionsOfTopicId] | None = field(
        array(PartitionsOfTopicId), nullable="0+", default=None
    )


@api_message(ApiKey.CONSUMER_GROUP_HEARTBEAT)
class ConsumerGroupHeartbeatResponse(Message):
    """The response. `assignment` null: unchanged since the last answer."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: GroupAssignment | None = field(GroupAssignment, nullable="0+", default=None)
