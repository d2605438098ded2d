"""Fetch (key 1): reads batches from partitions.

Versions: 4 has isolation levels; 5 has the log start offset; 7 has sessions (KIP-227); 9 has leader
epochs; 10 allows zstd; 11 has racks; 12 is flexible and detects divergence; 13 has topic ids; 15
has the replica id in a tag; 16 has node endpoints; 17 and 18 are for followers.

Left out: fetches of followers, which are answered NOT_LEADER_OR_FOLLOWER; fetches of snapshots;
preferred read replicas (racks); the new leader of a partition that has moved.

Of note: an isolation level that does not exist is UNKNOWN_SERVER_ERROR, before the session and the
partitions are looked at; Kafka looks at them first.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID

#: From this version on the answer has an error code for the whole request.
TOP_LEVEL_ERROR_SINCE = 7
#: From this version on there are sessions (KIP-227).
SESSIONS_SINCE = 7
#: Before this version the client does not know OFFSET_NOT_AVAILABLE.
OFFSET_NOT_AVAILABLE_SINCE = 11
#: From this version on topics are given by id, not by name.
TOPIC_IDS_SINCE = 13
#: From this version on requests have the epoch of the last record, and answers have the epoch and
#: the offset at which the logs diverge.
DIVERGENCE_SINCE = 12
#: From this version on requests have a field that only followers use.
FOLLOWERS_SINCE = 17

Records = bytes | bytearray | memoryview


class ReplicaState(Struct):
    replica_id: int = field(INT32, "15+", default=-1)
    replica_epoch: int = field(INT64, "15+", default=-1)


class FetchPartition(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "17+", tag=0, tagged="17+", ignorable=True)
    high_watermark: int = field(
        INT64, "18+", tag=1, tagged="18+", default=9223372036854775807, ignorable=True
    )


class FetchTopic(Struct):
    topic: str = field(STRING, "0-12", ignorable=True)
    topic_id: bytes = field(UUID, "13+", ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Struct):
    topic: str = field(STRING, "7-12", ignorable=True)
    topic_id: bytes = field(UUID, "13+", ignorable=True)
    partitions: list[int] = field(array(INT32), "7+")


@api_message(ApiKey.FETCH)
class FetchRequest(Message):
    cluster_id: str | None = field(
        STRING, "12+", nullable="12+", tag=0, tagged="12+", default=None, ignorable=True
    )
    replica_id: int = field(INT32, "0-14", default=-1)
    replica_state: ReplicaState = field(ReplicaState, "15+", tag=1, tagged="15+")
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, "3+", default=2147483647, ignorable=True)
    isolation_level: int = field(INT8, "4+", ignorable=True)
    session_id: int = field(INT32, "7+", ignorable=True)
    session_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "7+")
    rack_id: str = field(STRING, "11+", ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = field(INT32, "12+", default=-1)
    end_offset: int = field(INT64, "12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32, "12+", default=-1)
    leader_epoch: int = field(INT32, "12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Struct):
    producer_id: int = field(INT64, "4+")
    first_offset: int = field(INT64, "4+")


class PartitionData(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, "12+", tag=0, tagged="12+")
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "12+", tag=1, tagged="12+")
    snapshot_id: SnapshotId = field(SnapshotId, "12+", tag=2, tagged="12+")
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    records: Records | None = field(RECORDS, nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = field(STRING, "0-12", ignorable=True)
    topic_id: bytes = field(UUID, "13+", ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "16+")
    host: str = field(STRING, "16+")
    port: int = field(INT32, "16+")
    rack: str | None = field(STRING, "16+", nullable="16+", default=None)


@api_message(ApiKey.FETCH)
class FetchResponse(Message):
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16, "7+", ignorable=True)
    session_id: int = field(INT32, "7+")
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "16+", tag=0, tagged="16+")
