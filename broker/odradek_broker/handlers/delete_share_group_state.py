"""DeleteShareGroupState (key 86): deletes the stored state of share partitions (H-103)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._share_state import Answer, ShareStateParts, ask_each
from odradek_broker.request import RequestContext
from odradek_broker.share_state import ShareKey, StateResult
from odradek_protocol.common_structs import SharePartitionError, ShareTopicErrors
from odradek_protocol.schemas.delete_share_group_state import (
    DeletedPartition,
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)

_ANSWER = Answer("delete share group state", ShareTopicErrors, SharePartitionError)


async def handle(
    node: ShareStateParts, context: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Delete states; the answer comes when the deletions are durable."""

    def ask(key: ShareKey, part: DeletedPartition) -> Deferred[StateResult]:
        return node.share_state.delete(key)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    results = await ask_each(node, context, request.group_id, topics, ask, _ANSWER)
    return DeleteShareGroupStateResponse(results=results)
