"""OffsetDelete (key 47): deletes committed offsets of a group (KIP-496; O-14, A-16)."""

from __future__ import annotations

from odradek_broker.explain.texts import origin_of
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.handlers.offset_commit import one_entry_each
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_broker.slices import paced
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.common_structs import PartitionError, TopicErrors
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)


async def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Delete offsets. Partitions that do not exist get an error; the other partitions get the
    coordinator's result."""
    if not node.authorizer.allows(context, Operation.DELETE, group(request.group_id)):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    response = OffsetDeleteResponse(error_code=ErrorCode.NONE)
    fit: list[tuple[PartitionError, TopicPartition]] = []
    count = 0
    names = [asked.name for asked in request.topics]
    denied = await denied_topics(node.authorizer, context, Operation.READ, names)
    async for asked in paced(request.topics):
        if not asked.partitions and node.metadata.partition_count(asked.name):
            continue
        count += len(asked.partitions)
        answers: list[PartitionError] = []
        response.topics.append(TopicErrors(name=asked.name, partitions=answers))
        async for part in paced(asked.partitions):
            index = part.partition_index
            error = ErrorCode.NONE
            if asked.name in denied:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif node.metadata.leader_of(asked.name, index) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = PartitionError(partition_index=index, error_code=error)
            answers.append(answer)
            if error is ErrorCode.NONE:
                fit.append((answer, (asked.name, index)))
    if len(fit) < count:
        response.topics = await one_entry_each(response.topics, lambda topic: topic.name)

    # The coordinator is asked even without an offset to delete, because its answer shows whether
    # the group exists.
    partitions = [partition for _, partition in fit]
    result = await node.groups.delete_offsets(request.group_id, partitions, origin_of(context))
    if result.error is not ErrorCode.NONE:
        # After an error of the whole request, Kafka's answer has no partitions.
        return OffsetDeleteResponse(error_code=result.error)
    async for (answer, _), code in paced(zip(fit, result.codes, strict=True)):
        answer.error_code = code
    return response
