"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, to detect a truncation (F-13,
K-26)."""

from __future__ import annotations

from odradek_broker.handlers._parts import PartitionParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation, denied_topics
from odradek_broker.slices import paced
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


async def handle(
    node: PartitionParts, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """The end offsets; errors are per partition."""
    denied: frozenset[str] = frozenset()
    # Brokers have CLUSTER_ACTION in place of rights on topics.
    if not node.authorizer.would_allow(context, Operation.CLUSTER_ACTION, CLUSTER):
        names = [asked.topic for asked in request.topics]
        denied = await denied_topics(node.authorizer, context, Operation.DESCRIBE, names)
    answers = []
    async for asked in paced(request.topics):
        if asked.topic in denied:
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            partitions = [_failed(each, refusal) async for each in paced(asked.partitions)]
        else:
            partitions = [
                _partition(node, asked.topic, each) async for each in paced(asked.partitions)
            ]
        answers.append(OffsetForLeaderTopicResult(topic=asked.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=answers)


def _partition(node: PartitionParts, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = node.partition(name, asked.partition)
    if partition is None:
        return _failed(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = partition.check_leader_epoch(asked.current_leader_epoch)
    if error is ErrorCode.NONE and partition.log.offline:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    if error is not ErrorCode.NONE:
        return _failed(asked, error)
    try:
        epoch, end_offset = partition.end_of_epoch(asked.leader_epoch)
    except StorageError as storage_error:
        return _failed(asked, storage_error.error)
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


def _failed(asked: OffsetForLeaderPartition, error: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(error_code=error, partition=asked.partition)
