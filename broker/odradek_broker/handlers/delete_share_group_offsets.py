"""DeleteShareGroupOffsets (key 92): remove topics from a share group without members (rule
H-26)."""

from __future__ import annotations

from odradek_broker.handlers._share_offsets import ShareOffsetParts, error_text, tell_reset
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_broker.slices import each_once, paced, pause_in_change
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

_E = ErrorCode


def _failed(error: ErrorCode, message: str | None = None) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(
        error_code=error, error_message=error_text(error, message)
    )


async def handle(
    node: ShareOffsetParts, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Answer when the deletion is durable; an error of the group is for the whole request, any
    other error for one topic."""
    if node.metadata.share_groups_off:
        return _failed(_E.UNSUPPORTED_VERSION)
    if not node.authorizer.allows(context, Operation.DELETE, group(request.group_id)):
        return _failed(_E.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return _failed(_E.INVALID_GROUP_ID)
    names = await each_once(topic.topic_name for topic in request.topics)
    denied = await denied_topics(node.authorizer, context, Operation.READ, names)

    allowed = [name for name in names if name not in denied]
    await pause_in_change()
    deleted = await node.groups.share.delete_offsets(request.group_id, allowed)
    if deleted.error:
        return _failed(deleted.error, deleted.message)
    async for name, code in paced(deleted.codes.items()):
        for index in range(0 if code else node.metadata.partition_count(name)):
            topic_id = node.metadata.topic_id(name)
            tell_reset(node, request.group_id, topic_id, index, start_offset=-1)
    refused = {name: _E.TOPIC_AUTHORIZATION_FAILED for name in names if name in denied}
    return DeleteShareGroupOffsetsResponse(
        responses=[
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=_topic_id(node, name, code),
                error_code=code,
                error_message=error_text(code),
            )
            async for name, code in paced({**refused, **deleted.codes}.items())
        ]
    )


def _topic_id(node: ShareOffsetParts, name: str, code: ErrorCode) -> bytes:
    """The id of the topic; as in Kafka, zeros for an unknown topic and for a topic without
    authorization."""
    known = code not in (_E.TOPIC_AUTHORIZATION_FAILED, _E.UNKNOWN_TOPIC_OR_PARTITION)
    return node.metadata.topic_id(name) if known else bytes(16)
