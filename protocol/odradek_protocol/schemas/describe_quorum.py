"""DescribeQuorum (key 55): the leader of the metadata quorum, and the log end of each voter and
observer (KIP-595).

Versions: 1 has times of fetches; 2 has texts of errors, directory ids, and the addresses of
controllers.

Of note: the quorum is that of partition 0 of `__cluster_metadata`.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, STRING, UINT16, UUID

#: From this version on the answer has the nodes of the quorum.
NODES_SINCE = 2


class PartitionData(Struct):
    partition_index: int = field(INT32)


class TopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


@api_message(ApiKey.DESCRIBE_QUORUM)
class DescribeQuorumRequest(Message):
    topics: list[TopicData] = field(array(TopicData))


class ReplicaState(Struct):
    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "2+")
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)


class QuorumPartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "2+", nullable="2+", ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[ReplicaState] = field(array(ReplicaState))
    observers: list[ReplicaState] = field(array(ReplicaState))


class QuorumTopic(Struct):
    topic_name: str = field(STRING)
    partitions: list[QuorumPartition] = field(array(QuorumPartition))


class QuorumListener(Struct):
    name: str = field(STRING, "2+")
    host: str = field(STRING, "2+")
    port: int = field(UINT16, "2+")


class QuorumNode(Struct):
    node_id: int = field(INT32, "2+")
    listeners: list[QuorumListener] = field(array(QuorumListener), "2+")


@api_message(ApiKey.DESCRIBE_QUORUM)
class DescribeQuorumResponse(Message):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "2+", nullable="2+", ignorable=True)
    topics: list[QuorumTopic] = field(array(QuorumTopic))
    nodes: list[QuorumNode] = field(array(QuorumNode), "2+")
