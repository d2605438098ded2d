"""ReadShareGroupStateSummary (key 87): reads epochs and start offsets of share partitions
(KIP-932).

Versions: the answer of 1 has the number of completely delivered records (KIP-1226).
"""

from __future__ import annotations

from odradek_protocol.common_structs import ReadTopic
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING, UUID


@api_message(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
class ReadShareGroupStateSummaryRequest(Message):
    group_id: str = field(STRING)
    topics: list[ReadTopic] = field(array(ReadTopic))


class SummaryPartitionResult(Struct):
    partition: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    state_epoch: int = field(INT32)
    leader_epoch: int = field(INT32)
    start_offset: int = field(INT64)
    delivery_complete_count: int = field(INT32, "1+", default=-1, ignorable=True)


class SummaryTopicResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[SummaryPartitionResult] = field(array(SummaryPartitionResult))


@api_message(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
class ReadShareGroupStateSummaryResponse(Message):
    results: list[SummaryTopicResult] = field(array(SummaryTopicResult))
