"""ShareFetch (key 78): acquires and fetches records for a member of a share group (KIP-932).

Versions: 2 has acquire modes (KIP-1206) and can renew locks (KIP-1222).
"""

from __future__ import annotations

from odradek_protocol.common_structs import (
    AcknowledgementBatch,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionsOfTopicId,
)
from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import BOOL, INT8, INT16, INT32, INT64, RECORDS, STRING, UUID

Records = bytes | bytearray | memoryview


class ShareFetchPartition(Struct):
    partition_index: int = field(INT32)
    partition_max_bytes: int = field(INT32, "0")
    acknowledgement_batches: list[AcknowledgementBatch] = field(array(AcknowledgementBatch))


class ShareFetchTopic(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ShareFetchPartition] = field(array(ShareFetchPartition))


@api_message(ApiKey.SHARE_FETCH)
class ShareFetchRequest(Message):
    """The request. `share_session_epoch` 0 opens the share session, -1 closes it.

    `share_acquire_mode` 0 acquires whole batches, 1 at most `max_records` records.
    """

    group_id: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+")
    share_session_epoch: int = field(INT32)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=2147483647)
    max_records: int = field(INT32, "1+")
    batch_size: int = field(INT32, "1+")
    share_acquire_mode: int = field(INT8, "2+", ignorable=True)
    is_renew_ack: bool = field(BOOL, "2+")
    topics: list[ShareFetchTopic] = field(array(ShareFetchTopic))
    forgotten_topics_data: list[PartitionsOfTopicId] = field(array(PartitionsOfTopicId))


class AcquiredRecords(Struct):
    first_offset: int = field(INT64)
    last_offset: int = field(INT64)
    delivery_count: int = field(INT16)


class ShareFetchedPartition(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    acknowledge_error_code: int = field(INT16)
    acknowledge_error_message: str | None = field(STRING, nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch)
    records: Records = field(RECORDS)
    acquired_records: list[AcquiredRecords] = field(array(AcquiredRecords))


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[ShareFetchedPartition] = field(array(ShareFetchedPartition))


@api_message(ApiKey.SHARE_FETCH)
class ShareFetchResponse(Message):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = field(INT32, "1+")
    responses: list[ShareFetchableTopicResponse] = field(array(ShareFetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint))
