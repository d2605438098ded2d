"""OffsetDelete (key 47): a group forgets positions that it does not use (KIP-496; O-14, A-16)."""

from __future__ import annotations

from odradek_broker.authorizer import Operation, denied_topics, group
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.groups.administration import DeletedOffsets
from odradek_broker.coordinator.groups.offsets import Place
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    node: Node, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Later[OffsetDeleteResponse]:
    """Partitions that do not exist get their own error; what is left goes to the coordinator."""
    if not node.authorizer.allows(context, Operation.DELETE, group(request.group_id)):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    response = OffsetDeleteResponse(error_code=ErrorCode.NONE)
    told: dict[str, OffsetDeleteResponseTopic] = {}
    fit: list[tuple[OffsetDeleteResponsePartition, Place]] = []
    names = (asked.name for asked in request.topics)
    denied = denied_topics(node.authorizer, context, Operation.READ, names)
    for asked in request.topics:
        # All that is asked of a topic is answered in one place.
        answers = told.setdefault(asked.name, OffsetDeleteResponseTopic(name=asked.name)).partitions
        for part in asked.partitions:
            index = part.partition_index
            error = ErrorCode.NONE
            if asked.name in denied:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif node.metadata.leader_of(asked.name, index) is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answer = OffsetDeleteResponsePartition(partition_index=index, error_code=error)
            answers.append(answer)
            if error is ErrorCode.NONE:
                fit.append((answer, (asked.name, index)))
    response.topics = list(told.values())
    later: Later[OffsetDeleteResponse] = Later()

    def deleted(result: DeletedOffsets) -> None:
        if result.error is not ErrorCode.NONE:
            # It speaks for the whole request: Kafka answers no partitions then.
            later.resolve(OffsetDeleteResponse(error_code=result.error))
            return
        for (answer, _), code in zip(fit, result.codes, strict=True):
            answer.error_code = code
        later.resolve(response)

    # Also with nothing left to delete: whether the group exists is told all the same.
    node.groups.delete_offsets(request.group_id, [place for _, place in fit]).then(deleted)
    return later
