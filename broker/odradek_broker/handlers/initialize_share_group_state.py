"""InitializeShareGroupState (key 83): replaces the stored state of share partitions by a new state
(H-103)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._share_state import ShareStateParts, TopicResults, ask_each
from odradek_broker.request import RequestContext
from odradek_broker.share_state import ShareKey, StateResult
from odradek_broker.slices import paced
from odradek_protocol.schemas.initialize_share_group_state import (
    InitializedPartition,
    InitializedPartitionResult,
    InitializedTopicResult,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)


async def handle(
    node: ShareStateParts, context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Store new states; the answer comes when they are durable."""

    def ask(key: ShareKey, part: InitializedPartition) -> Deferred[StateResult]:
        return node.share_state.initialize(key, part.state_epoch, part.start_offset)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    results = await ask_each(
        node,
        context,
        request.group_id,
        topics,
        ask,
        "initialize share group state",
        needs_partitions=False,
    )
    return await _response(results)


async def _response(results: TopicResults) -> InitializeShareGroupStateResponse:
    return InitializeShareGroupStateResponse(
        results=[
            InitializedTopicResult(
                topic_id=topic_id,
                partitions=[
                    InitializedPartitionResult(
                        partition=index, error_code=result.error, error_message=result.message
                    )
                    async for index, result in paced(partitions.items())
                ],
            )
            async for topic_id, partitions in paced(results)
        ]
    )
