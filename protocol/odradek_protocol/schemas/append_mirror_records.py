"""AppendMirrorRecords (key 10003): appends batches of another cluster at the same offsets to
mirror topics.

Versions: only 0.

Of note: this API is Odradek's own, for `odradek mirror`. Batches are stored as they are sent, with
base offset, leader epoch, producer and timestamps. The topic must have the id and the source that
the request names, so that no topic gets the records of two sources. A request with null records
appends nothing; the answer has the log end offset. If the decompressed batches exceed the limit of
one request, only the first batches are appended, and the client has to send the remaining batches
again.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT16, INT32, INT64, RECORDS, STRING, UUID

Records = bytes | bytearray | memoryview
#: The `expected_end_offset` of a request that only asks for the log end offset.
ANY_END = -1


class MirroredPartition(Struct):
    """Consecutive batches of one partition, and the state of the partition at its source.

    `expected_end_offset`: the log end offset in the last answer to the sender; nothing is written
    if the log has another end offset. A request that only asks for the log end offset has -1 here,
    and null records. `fetch_offset`: the offset of the fetch that returned the batches. If a fetch
    returned more batches than one request can have, each further request has the offset after the
    batches of the request before.
    """

    partition_index: int = field(INT32)
    expected_end_offset: int = field(INT64, default=ANY_END)
    fetch_offset: int = field(INT64, default=-1)
    source_leader_epoch: int = field(INT32, default=-1)
    source_log_start_offset: int = field(INT64, default=-1)
    source_high_watermark: int = field(INT64, default=-1)
    records: Records | None = field(RECORDS, nullable="0+", default=None)


class MirroredTopic(Struct):
    """The partitions of one mirror topic. `topic_id`: the id of the mirror topic. `source`: the
    cluster and topic from which the batches are, in the form of the setting mirror.source."""

    name: str = field(STRING)
    topic_id: bytes = field(UUID)
    source: str = field(STRING)
    partitions: list[MirroredPartition] = field(array(MirroredPartition))


@api_message(ApiKey.APPEND_MIRROR_RECORDS)
class AppendMirrorRecordsRequest(Message):
    timeout_ms: int = field(INT32)
    topics: list[MirroredTopic] = field(array(MirroredTopic))


class MirroredPartitionResult(Struct):
    """The result for one partition. Unknown offsets are -1.

    `log_end_offset`: the durable end of the log, given even after an error. `last_leader_epoch`:
    the newest leader epoch of the log, -1 if it has none.
    """

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    log_start_offset: int = field(INT64, default=-1)
    log_end_offset: int = field(INT64, default=-1)
    last_leader_epoch: int = field(INT32, default=-1)


class MirroredTopicResult(Struct):
    name: str = field(STRING)
    partitions: list[MirroredPartitionResult] = field(array(MirroredPartitionResult))


@api_message(ApiKey.APPEND_MIRROR_RECORDS)
class AppendMirrorRecordsResponse(Message):
    """The response. It is sent once the accepted batches are durable."""

    throttle_time_ms: int = field(INT32)
    topics: list[MirroredTopicResult] = field(array(MirroredTopicResult))
