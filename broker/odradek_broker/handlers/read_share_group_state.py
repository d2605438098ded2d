"""ReadShareGroupState (key 84): reads the stored state of share partitions (H-104)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._share_state import ShareStateParts, TopicResults, ask_each
from odradek_broker.request import RequestContext
from odradek_broker.share_state import ShareKey, StateResult
from odradek_broker.slices import paced
from odradek_protocol.schemas.read_share_group_state import (
    ReadBatch,
    ReadPartition,
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
    results = await ask_each(node, context, request.group_id, topics, ask, "read share group state")
    return await _response(results)


async def _response(results: TopicResults) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(
        results=[
            ReadTopicResult(
                topic_id=topic_id,
                partitions=[
                    _partition(index, result) async for index, result in paced(partitions.items())
                ],
            )
            async for topic_id, partitions in paced(results)
        ]
    )


def _partition(index: int, result: StateResult) -> ReadPartitionResult:
    answer = ReadPartitionResult(
        partition=index, error_code=result.error, error_message=result.message
    )
    if result.state is not None:
        answer.state_epoch = result.state.state_epoch
        answer.start_offset = result.state.start_offset
        answer.state_batches = [
            ReadBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=each.delivery_state,
                delivery_count=each.delivery_count,
            )
            for each in result.state.batches
        ]
    return answer
