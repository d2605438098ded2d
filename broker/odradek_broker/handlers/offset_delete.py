"""OffsetDelete (key 47): deletes committed offsets of a group (KIP-496; O-14, A-16)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.administration import DeletedOffsets
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Deferred[OffsetDeleteResponse]:
    """Delete offsets. Partitions that do not exist get an error; the other partitions get the
    coordinator's result."""
    if not node.authorizer.allows(context, Operation.DELETE, group(request.group_id)):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    response = OffsetDeleteResponse(error_code=ErrorCode.NONE)
    topics: dict[str, OffsetDeleteResponseTopic] = {}
    fit: list[tuple[OffsetDeleteResponsePartition, TopicPartition]] = []
    names = (asked.name for asked in request.topics)
    denied = denied_topics(node.authorizer, context, Operation.READ, names)
    for asked in request.topics:
        # All partitions of a topic are answered in one entry.
        answers = topics.setdefault(
            asked.name, OffsetDeleteResponseTopic(name=asked.name)
        ).partitions
        for part in asked.partitions:
            index = part.partition_index
            error = ErrorCode.NONE
            if asked.name in denied:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif node.metadata.leader_of(asked.name, index) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = OffsetDeleteResponsePartition(partition_index=index, error_code=error)
            answers.append(answer)
            if error is ErrorCode.NONE:
                fit.append((answer, (asked.name, index)))
    response.topics = list(topics.values())

    def deleted(result: DeletedOffsets) -> OffsetDeleteResponse:
        if result.error is not ErrorCode.NONE:
            # After an error of the whole request, Kafka's answer has no partitions.
            return OffsetDeleteResponse(error_code=result.error)
        for (answer, _), code in zip(fit, result.codes, strict=True):
            answer.error_code = code
        return response

    # The coordinator is asked even without an offset to delete, because its answer shows whether
    # the group exists.
    partitions = [partition for _, partition in fit]
    return node.groups.delete_offsets(request.group_id, partitions).map(deleted)
