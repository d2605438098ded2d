"""ReadShareGroupStateSummary (key 87): reads epochs and start offsets of share partitions
(H-104)."""

from __future__ import annotations

from typing import Any

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._share_state import Answer, ShareStateParts, ask_each
from odradek_broker.request import RequestContext
from odradek_broker.share_state import ShareKey, ShareState, StateResult
from odradek_protocol.common_structs import ReadPartition
from odradek_protocol.schemas.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    SummaryPartitionResult,
    SummaryTopicResult,
)


async def handle(
    node: ShareStateParts, context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """The summaries; the answer comes when they are durable."""

    def ask(key: ShareKey, part: ReadPartition) -> Deferred[StateResult]:
        return node.share_state.read_summary(key, part.leader_epoch)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    results = await ask_each(node, context, request.group_id, topics, ask, _ANSWER)
    return ReadShareGroupStateSummaryResponse(results=results)


async def _state(state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.delivery_complete_count,
    }


_ANSWER = Answer(
    "read share group state summary", SummaryTopicResult, SummaryPartitionResult, _state
)
