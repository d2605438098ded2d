"""WriteShareGroupState (key 85): changes the stored state of share partitions (H-105)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._share_state import Answer, ShareStateParts, ask_each
from odradek_broker.request import RequestContext
from odradek_broker.share_state import ShareKey, ShareState, StateBatch, StateResult
from odradek_broker.slices import paced
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.schemas.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WrittenPartition,
    WrittenPartitionResult,
    WrittenTopicResult,
)

_ANSWER = Answer("write share group state", WrittenTopicResult, WrittenPartitionResult)


async def handle(
    node: ShareStateParts, context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Change states; the answer comes when the changes are durable."""

    def ask(key: ShareKey, change: _Change) -> Deferred[StateResult]:
        return node.share_state.write(key, change.state)

    topics = [
        (topic.topic_id, [await _change(part) async for part in paced(topic.partitions)])
        async for topic in paced(request.topics)
    ]
    results = await ask_each(node, context, request.group_id, topics, ask, _ANSWER)
    return WriteShareGroupStateResponse(results=results)


class _Change(NamedTuple):
    """The change of the state of a partition."""

    partition: int
    state: ShareState


async def _change(part: WrittenPartition) -> _Change:
    batches = [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        async for each in paced(part.state_batches)
    ]
    return _Change(
        part.partition,
        ShareState(
            0,
            part.state_epoch,
            part.leader_epoch,
            part.start_offset,
            part.delivery_complete_count,
            tuple(batches),
        ),
    )
