"""ShareAcknowledge (key 79): acknowledges records that were acquired by ShareFetch (KIP-932).

Versions: 2 can renew locks (KIP-1222).
"""

from __future__ import annotations

from odradek_protocol.common_structs import (
    AcknowledgementBatch,
    LeaderIdAndEpoch,
    NodeEndpoint,
)
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT16, INT32, STRING, UUID

#: The version of ShareAcknowledge, and also of ShareFetch, from which on locks can be renewed.
RENEW_SINCE = 2


class AcknowledgePartition(Struct):
    partition_index: int = field(INT32)
    acknowledgement_batches: list[AcknowledgementBatch] = field(array(AcknowledgementBatch))


class AcknowledgeTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[AcknowledgePartition] = field(array(AcknowledgePartition))


@api_message(ApiKey.SHARE_ACKNOWLEDGE)
class ShareAcknowledgeRequest(Message):
    group_id: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+")
    share_session_epoch: int = field(INT32)
    is_renew_ack: bool = field(BOOL, "2+")
    topics: list[AcknowledgeTopic] = field(array(AcknowledgeTopic))


class AcknowledgedPartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[AcknowledgedPartition] = field(array(AcknowledgedPartition))


@api_message(ApiKey.SHARE_ACKNOWLEDGE)
class ShareAcknowledgeResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(INT32, "2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field(array(ShareAcknowledgeTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint))
