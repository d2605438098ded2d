"""DeleteRecords (key 21): delete the oldest records of partitions (rules L-10 to L-12, A-17)."""

from __future__ import annotations

from typing import Protocol

from odradek_broker.handlers._parts import LogParts, PartitionAndMetadataParts
from odradek_broker.metadata.cluster import INTERNAL_TOPICS
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, topic
from odradek_broker.slices import in_order, paced
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import NO_OFFSET
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


class _Parts(LogParts, PartitionAndMetadataParts, Protocol):
    """The parts of the node that this handler needs."""


async def handle(
    node: _Parts, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Delete records; errors are per partition. The answer comes when the new log start offsets are
    on disk.

    If a partition is named several times, the last offset is used, as in Kafka.
    """
    offsets: dict[str, dict[int, int]] = {}
    async for asked in paced(request.topics):
        if not asked.partitions:
            continue
        given = offsets.setdefault(asked.name, {})
        async for part in paced(asked.partitions):
            given[part.partition_index] = part.offset
    answers = []
    fit: list[tuple[DeleteRecordsPartitionResult, TopicPartition, int]] = []
    async for name, wanted in paced(offsets.items()):
        refusal = _refusal(node, context, name)
        results = []
        async for index, offset in paced(wanted.items()):
            result = DeleteRecordsPartitionResult(
                partition_index=index, low_watermark=NO_OFFSET, error_code=refusal
            )
            results.append(result)
            if refusal is ErrorCode.NONE:
                fit.append((result, (name, index), offset))
        answers.append(DeleteRecordsTopicResult(name=name, partitions=results))
    async for batch in paced(in_order(fit), changing=True):
        existing: list[tuple[DeleteRecordsPartitionResult, PartitionLog, int]] = []
        for result, key, offset in batch:
            partition = node.partition(*key)
            if partition is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                existing.append((result, partition.log, offset))
        done = node.logs.delete_records([(log, offset) for _, log, offset in existing])
        for (result, _, _), found in zip(existing, done, strict=True):
            if isinstance(found, StorageError):
                result.error_code = found.error
            else:
                result.low_watermark = found
    return DeleteRecordsResponse(topics=answers)


def _refusal(node: _Parts, context: RequestContext, name: str) -> ErrorCode:
    """The error for all partitions of a topic (A-20, L-11, I-02), or NONE."""
    if not node.authorizer.allows(context, Operation.DELETE, topic(name)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.INVALID_REQUEST if node.metadata.is_mirror(name) else ErrorCode.NONE
