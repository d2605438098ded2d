"""InitializeShareGroupState (key 83): replaces the stored state of share partitions by a new state
(H-103)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._share_state import Answer, ShareStateParts, ask_each
from odradek_broker.request import RequestContext
from odradek_broker.share_state import ShareKey, StateResult
from odradek_protocol.common_structs import SharePartitionError, ShareTopicErrors
from odradek_protocol.schemas.initialize_share_group_state import (
    InitializedPartition,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)

_ANSWER = Answer(
    "initialize share group state",
    ShareTopicErrors,
    SharePartitionError,
    needs_partitions=False,
)


async def handle(
    node: ShareStateParts, context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Store new states; the answer comes when they are durable."""

    def ask(key: ShareKey, part: InitializedPartition) -> Deferred[StateResult]:
        return node.share_state.initialize(key, part.state_epoch, part.start_offset)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    results = await ask_each(node, context, request.group_id, topics, ask, _ANSWER)
    return InitializeShareGroupStateResponse(results=results)
