"""ReadShareGroupStateSummary (key 87): reads epochs and start offsets of share partitions
(H-104)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._share_state import ShareStateParts, TopicResults, ask_each
from odradek_broker.request import RequestContext
from odradek_broker.share_state import ShareKey, StateResult
from odradek_broker.slices import paced
from odradek_protocol.schemas.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    SummaryPartition,
    SummaryPartitionResult,
    SummaryTopicResult,
)


async def handle(
    node: ShareStateParts, context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """The summaries; the answer comes when they are durable."""

    def ask(key: ShareKey, part: SummaryPartition) -> Deferred[StateResult]:
        return node.share_state.read_summary(key, part.leader_epoch)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    results = await ask_each(
        node, context, request.group_id, topics, ask, "read share group state summary"
    )
    return await _response(results)


async def _response(results: TopicResults) -> ReadShareGroupStateSummaryResponse:
    return ReadShareGroupStateSummaryResponse(
        results=[
            SummaryTopicResult(
                topic_id=topic_id,
                partitions=[
                    _partition(index, result) async for index, result in paced(partitions.items())
                ],
            )
            async for topic_id, partitions in paced(results)
        ]
    )


def _partition(index: int, result: StateResult) -> SummaryPartitionResult:
    answer = SummaryPartitionResult(
        partition=index, error_code=result.error, error_message=result.message
    )
    if result.state is not None:
        answer.state_epoch = result.state.state_epoch
        answer.leader_epoch = result.state.leader_epoch
        answer.start_offset = result.state.start_offset
        answer.delivery_complete_count = result.state.delivery_complete_count
    return answer
