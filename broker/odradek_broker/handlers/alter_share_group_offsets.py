"""AlterShareGroupOffsets (key 91): set start offsets of a share group without members (rule
H-25)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.share.requests import AlteredOffsets
from odradek_broker.handlers._share_offsets import ShareOffsetParts, error_text, tell_reset
from odradek_broker.handlers.offset_commit import one_entry_each
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_broker.slices import paced, pause_in_change
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

_E = ErrorCode


def _failed(error: ErrorCode, message: str | None = None) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(
        error_code=error, error_message=error_text(error, message)
    )


async def handle(
    node: ShareOffsetParts, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Answer when the new start offsets are durable; an error of the group is for the whole
    request, any other error for one partition."""
    if node.metadata.share_groups_off:
        return _failed(_E.UNSUPPORTED_VERSION)
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return _failed(_E.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _failed(_E.INVALID_GROUP_ID)
    denied = await denied_topics(
        node.authorizer, context, Operation.READ, [topic.topic_name for topic in request.topics]
    )
    codes = dict.fromkeys(denied, _E.TOPIC_AUTHORIZATION_FAILED)
    async for topic in paced(request.topics):
        if not node.metadata.partition_count(topic.topic_name):
            codes.setdefault(topic.topic_name, _E.UNKNOWN_TOPIC_OR_PARTITION)
    offsets: dict[str, dict[int, int]] = {}
    async for topic in paced(request.topics):
        if topic.topic_name not in codes:
            starts = offsets.setdefault(topic.topic_name, {})
            async for partition in paced(topic.partitions):
                starts[partition.partition_index] = partition.start_offset

    await pause_in_change()
    altered = await node.groups.share.alter_offsets(request.group_id, offsets)
    if altered.error:
        return _failed(altered.error, altered.message)
    async for (topic_id, index), result in paced(altered.results.items()):
        name = node.metadata.topic_name(topic_id)
        if not result.error and name is not None:
            tell_reset(node, request.group_id, topic_id, index, offsets[name][index])
    refused = [topic for topic in request.topics if topic.topic_name in codes]
    others = [topic for topic in request.topics if topic.topic_name not in codes]
    responses = [
        await _topic(node, topic, altered, codes.get(topic.topic_name))
        async for topic in paced((*refused, *others))
    ]
    return AlterShareGroupOffsetsResponse(
        responses=await one_entry_each(responses, lambda topic: topic.topic_name)
    )


async def _topic(
    node: ShareOffsetParts,
    topic: AlterShareGroupOffsetsRequestTopic,
    altered: AlteredOffsets,
    code: ErrorCode | None,
) -> AlterShareGroupOffsetsResponseTopic:
    topic_id = bytes(16)
    if node.metadata.partition_count(topic.topic_name):
        topic_id = node.metadata.topic_id(topic.topic_name)
    partitions = []
    async for partition in paced(topic.partitions):
        index = partition.partition_index
        result = altered.results.get((topic_id, index))
        error, message = code, None
        if error is None:
            error = _E.UNKNOWN_TOPIC_OR_PARTITION if result is None else result.error
            message = None if result is None else result.message
        partitions.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=index,
                error_code=error,
                error_message=error_text(error, message),
            )
        )
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=topic_id, partitions=partitions
    )
