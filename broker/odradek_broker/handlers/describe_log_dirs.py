"""DescribeLogDirs (key 35): the data directories, and the size of each partition in them (A-18,
L-42).

The metadata log is left out, as in Kafka. Its directory is left out too, unless it is one of
log.dirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from odradek_broker.handlers._parts import LogParts, PartitionAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.slices import paced
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log_directory import LogDirectory
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

#: The partitions by topic.
Described = dict[str, list[DescribeLogDirsPartition]]


class _Parts(LogParts, PartitionAndMetadataParts, Protocol):
    """The parts of the node that this handler needs."""


async def handle(
    node: _Parts, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """The directories with their partitions. Partitions that do not exist or are offline are left
    out, as in Kafka."""
    if not node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    found: dict[LogDirectory, Described] = {each: {} for each in node.logs.directories}
    async for name, index in paced(await _asked(node, request)):
        _describe(node, name, index, found)
    results = [
        _result(directory, topics)
        for directory, topics in found.items()
        if topics or directory in node.logs.log_dirs
    ]
    return DescribeLogDirsResponse(results=results)


def _result(directory: LogDirectory, topics: Described) -> DescribeLogDirsResult:
    failed = DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory.absolute_path
    )
    if directory.failure:
        return failed
    try:
        volume = directory.volume()
    except OSError as problem:
        directory.disk.doubt(problem)
        return failed
    return DescribeLogDirsResult(
        log_dir=directory.absolute_path,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
        total_bytes=volume.total_bytes,
        usable_bytes=volume.usable_bytes,
    )


async def _asked(node: _Parts, request: DescribeLogDirsRequest) -> Iterable[tuple[str, int]]:
    """The requested partitions, without repetitions."""
    if request.topics is None:
        topics = node.metadata.topics.values()
        return [(topic.name, index) async for topic in paced(topics) for index in topic.partitions]
    return {
        (topic.topic, index): None
        async for topic in paced(request.topics)
        async for index in paced(topic.partitions)
    }


def _describe(node: _Parts, name: str, index: int, found: Mapping[LogDirectory, Described]) -> None:
    partition = node.partition(name, index)
    if partition is None:
        return
    log = partition.log
    try:
        size_bytes = log.size_bytes
    except StorageError:
        return
    described = DescribeLogDirsPartition(
        partition_index=index,
        partition_size=size_bytes,
        offset_lag=max(0, log.log_end_offset - log.high_watermark),
    )
    found[node.logs.directory_of(log)].setdefault(name, []).append(described)
