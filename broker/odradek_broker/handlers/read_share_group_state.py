"""ReadShareGroupState (key 84): reads the stored state of share partitions (H-104)."""

from __future__ import annotations

from typing import Any

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._share_state import Answer, ShareStateParts, ask_each
from odradek_broker.request import RequestContext
from odradek_broker.share_state import ShareKey, ShareState, StateResult
from odradek_broker.slices import in_pieces
from odradek_protocol.common_structs import ReadPartition, ShareStateBatch
from odradek_protocol.schemas.read_share_group_state import (
    ReadPartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadTopicResult,
)


async def handle(
    node: ShareStateParts, context: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """The states; the answer comes when they are durable."""

    def ask(key: ShareKey, part: ReadPartition) -> Deferred[StateResult]:
        return node.share_state.read(key, part.leader_epoch)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    results = await ask_each(node, context, request.group_id, topics, ask, _ANSWER)
    return ReadShareGroupStateResponse(results=results)


async def _state(state: ShareState) -> dict[str, Any]:
    batches = [
        ShareStateBatch(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.delivery_state,
            delivery_count=each.delivery_count,
        )
        async for some in in_pieces(state.batches)
        for each in some
    ]
    fields = {"state_epoch": state.state_epoch, "start_offset": state.start_offset}
    return {**fields, "state_batches": batches}


_ANSWER = Answer("read share group state", ReadTopicResult, ReadPartitionResult, _state)
