"""DescribeProducers (key 61): producers that have written to partitions.

Versions: only 0.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING


class TopicRequest(Struct):
    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


@api_message(ApiKey.DESCRIBE_PRODUCERS)
class DescribeProducersRequest(Message):
    topics: list[TopicRequest] = field(array(TopicRequest))


class ProducerState(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)


class PartitionResponse(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    active_producers: list[ProducerState] = field(array(ProducerState))


class TopicResponse(Struct):
    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(array(PartitionResponse))


@api_message(ApiKey.DESCRIBE_PRODUCERS)
class DescribeProducersResponse(Message):
    throttle_time_ms: int = field(INT32)
    topics: list[TopicResponse] = field(array(TopicResponse))
