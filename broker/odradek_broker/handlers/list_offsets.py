"""ListOffsets (key 2): the ends of a partition, and offsets by time (rules L-15, L-16, F-11,
A-10)."""

from __future__ import annotations

from odradek_broker.handlers._parts import PartitionParts
from odradek_broker.partition import Partition
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics
from odradek_broker.slices import paced
from odradek_broker.storage.errors import IndexesBeingRebuilt, StorageError
from odradek_broker.storage.large_batches import search
from odradek_broker.storage.reading import Known
from odradek_protocol.constants import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    READ_UNCOMMITTED,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.list_offsets import (
    LEADER_EPOCH_SINCE,
    OFFSET_NOT_AVAILABLE_SINCE,
    TIMESTAMPS_SINCE,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


async def handle(
    node: PartitionParts, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse:
    """The offsets; errors are per partition, and a partition that is named twice is refused
    once."""
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return await _refused(request)
    seen: dict[tuple[str, int], int] = {}
    async for topic in paced(request.topics):
        async for asked in paced(topic.partitions):
            key = (topic.name, asked.partition_index)
            seen[key] = seen.get(key, 0) + 1
    denied = await denied_topics(
        node.authorizer, context, Operation.DESCRIBE, [topic.name for topic in request.topics]
    )
    answers: dict[str, ListOffsetsTopicResponse] = {}
    async for topic in paced(request.topics):
        if not topic.partitions:
            continue
        answers.setdefault(topic.name, ListOffsetsTopicResponse(name=topic.name))
        partitions = answers[topic.name].partitions
        async for asked in paced(topic.partitions):
            times = seen.pop((topic.name, asked.partition_index), 0)
            if not times:
                continue
            if topic.name in denied:
                answer = _failed(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif times > 1:
                answer = _failed(asked, ErrorCode.INVALID_REQUEST)
            else:
                answer = await _partition(node, context, request.isolation_level, topic.name, asked)
            partitions.append(answer)
    return ListOffsetsResponse(topics=list(answers.values()))


async def _refused(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """The answer to an unknown isolation level, with all entries of the request, as in Kafka."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_failed(asked, error) async for asked in paced(topic.partitions)],
            )
            async for topic in paced(request.topics)
        ]
    )


def _failed(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=error, timestamp=-1, offset=-1
    )


async def _partition(
    node: PartitionParts,
    context: RequestContext,
    isolation_level: int,
    topic: str,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    timestamp = asked.timestamp
    if timestamp < 0 and context.api_version < TIMESTAMPS_SINCE.get(timestamp, 1 << 15):
        return _failed(asked, ErrorCode.UNSUPPORTED_VERSION)
    partition = node.partition(topic, asked.partition_index)
    if partition is None:
        return _failed(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = partition.check_leader_epoch(asked.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return _failed(asked, error)
    if partition.log.offline:
        return _failed(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    try:
        found = await search(
            node.slices, lambda known: _find(partition, timestamp, isolation_level, known)
        )
    except IndexesBeingRebuilt as deferred:
        known = context.api_version >= OFFSET_NOT_AVAILABLE_SINCE
        return _failed(asked, deferred.error if known else ErrorCode.LEADER_NOT_AVAILABLE)
    except StorageError as storage_error:
        return _failed(asked, storage_error.error)
    answer = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, timestamp=-1, offset=-1
    )
    if found is not None:
        answer.offset, answer.timestamp = found
        if context.api_version >= LEADER_EPOCH_SINCE:
            answer.leader_epoch = partition.leader_epoch
    return answer


def _find(
    partition: Partition, timestamp: int, isolation_level: int, known: Known
) -> tuple[int, int] | None:
    """(offset, timestamp); None if no offset matches."""
    log = partition.log
    bound = log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
    if timestamp == LATEST_TIMESTAMP:
        return bound, -1
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return log.log_start_offset, -1
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return None
    if timestamp == MAX_TIMESTAMP:
        # The record with the largest timestamp may be in an open transaction: then there is none.
        largest = log.max_timestamp_offset(log.high_watermark, known)
        return largest if largest is not None and largest[0] < bound else None
    return log.offset_for_timestamp(timestamp, bound, known)
