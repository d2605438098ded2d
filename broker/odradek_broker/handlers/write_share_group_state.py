"""WriteShareGroupState (key 85): changes the stored state of share partitions (H-105)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._share_state import Answer, ShareStateParts, ask_each
from odradek_broker.request import RequestContext
from odradek_broker.share_state import ShareKey, ShareState, StateBatch, StateResult
from odradek_protocol.common_structs import SharePartitionError, ShareTopicErrors
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WrittenPartition,
)

_ANSWER = Answer("write share group state", ShareTopicErrors, SharePartitionError)
#: The most batches of one share partition in a request: they are merged in one piece (N-57).
_BATCHES_MAX = 1_000


async def handle(
    node: ShareStateParts, context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Change states; the answer comes when the changes are durable."""

    def ask(key: ShareKey, part: WrittenPartition) -> Deferred[StateResult]:
        if len(part.state_batches) > _BATCHES_MAX:
            problem = f"More than {_BATCHES_MAX} state batches; write them in several requests."
            return Deferred.of(StateResult(ErrorCode.INVALID_REQUEST, problem))
        return node.share_state.write(key, _change(part))

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    results = await ask_each(node, context, request.group_id, topics, ask, _ANSWER)
    return WriteShareGroupStateResponse(results=results)


def _change(part: WrittenPartition) -> ShareState:
    batches = [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in part.state_batches
    ]
    return ShareState(
        0,
        part.state_epoch,
        part.leader_epoch,
        part.start_offset,
        part.delivery_complete_count,
        tuple(batches),
    )
