"""Produce (key 0): appends batches to partitions.

Versions: 3 has the transactional id and allows only batch format 2; 5 has the log start offset; 7
allows zstd; 8 has errors per record; 10 has the current leader, in a tag; 11 may answer
TRANSACTION_ABORTABLE; 12 is for transactions v2 (KIP-890), in which the broker itself adds the
partition to the transaction; 13 has topic ids.

Of note: 0 is advertised as the lowest version, although requests in versions 0 to 2 close the
connection, because librdkafka turns compression off if the lowest version is above 0 (KAFKA-18659;
Kafka does the same).

Left out: the new leader of a partition that has moved (`current_leader`, `node_endpoints`), because
one node leads all partitions.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, RECORDS, STRING, UUID

#: Before this version a broker takes no zstd (R-09).
ZSTD_SINCE = 7
#: From this version on the client knows TRANSACTION_ABORTABLE (T-62).
TRANSACTION_ABORTABLE_SINCE = 11
#: From this version on the broker itself adds partitions to transactions (T-60, T-61).
TRANSACTIONS_V2_SINCE = 12
#: From this version on topics are given by id, not by name.
TOPIC_IDS_SINCE = 13

Records = bytes | bytearray | memoryview


class PartitionProduceData(Struct):
    index: int = field(INT32)
    records: Records | None = field(RECORDS, nullable="0+")


class TopicProduceData(Struct):
    name: str = field(STRING, "0-12", ignorable=True)
    topic_id: bytes = field(UUID, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))


@api_message(ApiKey.PRODUCE)
class ProduceRequest(Message):
    transactional_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    acks: int = field(INT16)
    timeout_ms: int = field(INT32)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData))


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = field(INT32, "8+")
    batch_index_error_message: str | None = field(STRING, "8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "10+", default=-1)
    leader_epoch: int = field(INT32, "10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16)
    base_offset: int = field(INT64)
    log_append_time_ms: int = field(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage), "8+", ignorable=True
    )
    error_message: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "10+", tag=0, tagged="10+")


class TopicProduceResponse(Struct):
    name: str = field(STRING, "0-12", ignorable=True)
    topic_id: bytes = field(UUID, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "10+")
    host: str = field(STRING, "10+")
    port: int = field(INT32, "10+")
    rack: str | None = field(STRING, "10+", nullable="10+", default=None)


@api_message(ApiKey.PRODUCE)
class ProduceResponse(Message):
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse))
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "10+", tag=0, tagged="10+")
