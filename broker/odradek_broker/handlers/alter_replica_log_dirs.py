"""AlterReplicaLogDirs (key 34): moves of partitions between data directories (A-18, L-44).

No partition is moved while the broker runs: a partition is in the requested directory already, or
the move is refused.
"""

from __future__ import annotations

from typing import Protocol

from odradek_broker.handlers._parts import LogParts, PartitionAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.slices import paced
from odradek_broker.storage.log_directory import LogDirectory
from odradek_protocol.common_structs import PartitionError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

#: The maximum length of a directory's name.
_NAME_LENGTH_MAX = 255
#: The length of the suffix that Kafka appends to the directory name TOPIC-INDEX of a replica that
#: is being moved.
_FUTURE_SUFFIX_LENGTH = len(".") + 32 + len("-future")


class _Parts(LogParts, PartitionAndMetadataParts, Protocol):
    """The parts of the node that this handler needs."""


async def handle(
    node: _Parts, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """A single answer for each partition, even if the request names several directories for the
    partition. The answer is then about the last directory."""
    asked = {
        (topic.name, index): wanted.path
        async for wanted in paced(request.dirs)
        async for topic in paced(wanted.topics)
        async for index in paced(topic.partitions)
    }
    allowed = node.authorizer.allows(context, Operation.ALTER, CLUSTER)
    results: dict[str, list[PartitionError]] = {}
    async for (name, index), path in paced(asked.items()):
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if allowed:
            error = _check(node, name, index, path)
        results.setdefault(name, []).append(PartitionError(partition_index=index, error_code=error))
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows)
            async for name, rows in paced(results.items())
        ]
    )


def _check(node: _Parts, name: str, index: int, path: str) -> ErrorCode:
    """The error of one move, checked in Kafka's order."""
    if len(f"{name}-{index}") + _FUTURE_SUFFIX_LENGTH > _NAME_LENGTH_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    wanted = next((each for each in node.logs.log_dirs if each.absolute_path == path), None)
    if wanted is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not _works(wanted):
        return ErrorCode.KAFKA_STORAGE_ERROR
    if node.metadata.leader_of(name, index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = node.partition(name, index)
    if partition is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    if partition.log.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if node.logs.directory_of(partition.log) is not wanted:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _works(directory: LogDirectory) -> bool:
    try:
        directory.volume()
    except OSError:
        return False
    return not directory.failure
