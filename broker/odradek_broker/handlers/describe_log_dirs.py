"""DescribeLogDirs (key 35): the data directory, and how many bytes each partition has there (A-18).

Kafka describes each of its directories; here there is one. The metadata log is not told of: in Kafka it
lies in a directory of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.authorizer import CLUSTER, Operation
from odradek_broker.context import RequestContext
from odradek_broker.node import Node
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    node: Node, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Partitions that are not here, or offline, are left out, as in Kafka; a name counts once."""
    if not node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        volume = node.logs.volume()
    except OSError:
        failed = DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=node.logs.data_dir
        )
        return DescribeLogDirsResponse(results=[failed])
    topics = [
        DescribeLogDirsTopic(name=name, partitions=found)
        for name, indexes in _asked(node, request).items()
        if (found := [told for index in indexes if (told := _partition(node, name, index))])
    ]
    result = DescribeLogDirsResult(
        log_dir=volume.directory,
        topics=topics,
        total_bytes=volume.total_bytes,
        usable_bytes=volume.usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


def _asked(node: Node, request: DescribeLogDirsRequest) -> dict[str, Iterable[int]]:
    """The partitions to look for, by topic, each of them once."""
    if request.topics is None:
        return {topic.name: topic.partitions for topic in node.metadata.topics.values()}
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    return dict(asked)


def _partition(node: Node, name: str, index: int) -> DescribeLogDirsPartition | None:
    partition = node.partition(name, index)
    if partition is None:
        return None
    log = partition.log
    try:
        size_bytes = log.size_bytes
    except StorageError:
        return None
    return DescribeLogDirsPartition(
        partition_index=index,
        partition_size=size_bytes,
        offset_lag=max(0, log.log_end_offset - log.high_watermark),
    )
