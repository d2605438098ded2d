"""OffsetCommit (key 8): stores the committed offsets of a group (rules O-03 to O-07, A-14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from odradek_broker.coordinator.groups.offsets import CommitCall, CommitPart
from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_commit import (
    TOPIC_IDS_SINCE,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: OffsetCommitRequest
) -> Deferred[OffsetCommitResponse]:
    """Commit offsets. Partitions that do not exist or that the client may not read get an error;
    the other partitions get the coordinator's result."""
    response = OffsetCommitResponse()
    fit: list[tuple[OffsetCommitResponsePartition, CommitPart]] = []
    names = _names(node, context, request)
    for topic, (name, refusal) in zip(request.topics, names, strict=True):
        if name is not None and not topic.partitions:
            continue  # As in Kafka, the answer does not have such a topic.
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
                    node.metadata.topic_id(name),
                )
                fit.append((answer, part))
        response.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    of_group = (None, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if of_group not in names and len(fit) < sum(len(topic.partitions) for topic in request.topics):
        response.topics = one_entry_each(
            response.topics, lambda topic: topic.name or topic.topic_id
        )
    if not fit:
        return Deferred.of(response)
    call = CommitCall(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        api_version=context.api_version,
        retention_ms=request.retention_time_ms,
        parts=[part for _, part in fit],
    )

    def committed(errors: list[ErrorCode]) -> OffsetCommitResponse:
        for (answer, _), error in zip(fit, errors, strict=True):
            answer.error_code = error
        return response

    return node.groups.commit_offsets(call).map(committed)


class AnsweredTopic(Protocol):
    """A topic in the answer, with its partitions."""

    partitions: list[Any]


T = TypeVar("T", bound=AnsweredTopic)


def one_entry_each(topics: Iterable[T], key: Callable[[T], object]) -> list[T]:
    """The topics, with all entries of one topic joined into one entry. Kafka joins the entries if a
    partition is refused before the coordinator decides."""
    entries: dict[object, T] = {}
    for topic in topics:
        entry = entries.setdefault(key(topic), topic)
        if entry is not topic:
            entry.partitions += topic.partitions
    return list(entries.values())


def _names(
    node: GroupAndMetadataParts, context: RequestContext, request: OffsetCommitRequest
) -> list[tuple[str | None, ErrorCode]]:
    """For each topic, its name and the error for partitions that do not exist. If no offset of the
    topic may be stored, the name is None, and the error is for all partitions (A-14)."""
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return [(None, ErrorCode.GROUP_AUTHORIZATION_FAILED)] * len(request.topics)
    names: list[str | None] = [topic.name for topic in request.topics]
    if context.api_version >= TOPIC_IDS_SINCE:
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
