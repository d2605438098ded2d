"""OffsetCommit (key 8): a group stores its positions (rules O-03 to O-07, A-14)."""

from __future__ import annotations

from odradek_broker.authorizer import Operation, denied_topics, group
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.groups.offsets import CommitCall, CommitPart
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

#: From this version on, topics go by their ids.
_TOPIC_IDS_SINCE = 10


def handle(
    node: Node, context: RequestContext, request: OffsetCommitRequest
) -> Later[OffsetCommitResponse]:
    """Partitions that do not exist or may not be read get their own error; what is left goes to the
    coordinator."""
    response = OffsetCommitResponse()
    fit: list[tuple[OffsetCommitResponsePartition, CommitPart]] = []
    for topic, (name, refusal) in zip(request.topics, _names(node, context, request), strict=True):
        if name is not None and not topic.partitions:
            continue  # as in Kafka
        answers = []
        for asked in topic.partitions:
            index = asked.partition_index
            answer = OffsetCommitResponsePartition(partition_index=index, error_code=refusal)
            answers.append(answer)
            if name is not None and node.metadata.leader_of(name, index) is not None:
                part = CommitPart(
                    name,
                    index,
                    asked.committed_offset,
                    asked.committed_leader_epoch,
                    asked.committed_metadata or "",
                )
                fit.append((answer, part))
        response.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    if not fit:
        return Later.of(response)
    call = CommitCall(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        api_version=context.api_version,
        retention_ms=request.retention_time_ms,
        parts=[part for _, part in fit],
    )
    later: Later[OffsetCommitResponse] = Later()

    def committed(errors: list[ErrorCode]) -> None:
        for (answer, _), error in zip(fit, errors, strict=True):
            answer.error_code = error
        later.resolve(response)

    node.groups.commit_offsets(call).then(committed)
    return later


def _names(
    node: Node, context: RequestContext, request: OffsetCommitRequest
) -> list[tuple[str | None, ErrorCode]]:
    """For each topic its name, and what its partitions are answered that do not exist; None and an
    error for those of which no position may be stored (A-14)."""
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return [(None, ErrorCode.GROUP_AUTHORIZATION_FAILED)] * len(request.topics)
    names: list[str | None] = [topic.name for topic in request.topics]
    if context.api_version >= _TOPIC_IDS_SINCE:
        names = [node.metadata.topic_name(topic.topic_id) for topic in request.topics]
    denied = denied_topics(
        node.authorizer, context, Operation.READ, (name for name in names if name is not None)
    )
    return [
        (None, ErrorCode.UNKNOWN_TOPIC_ID)
        if name is None
        else (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name in denied
        else (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for name in names
    ]
