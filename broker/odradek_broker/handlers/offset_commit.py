"""OffsetCommit (key 8): stores the committed offsets of a group (rules O-03 to O-07, A-14)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from odradek_broker.coordinator.groups.offsets import CommitCall, CommitPart
from odradek_broker.deferred import Deferred
from odradek_broker.explain.texts import origin_of
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_broker.slices import in_order, paced
from odradek_protocol.common_structs import PartitionError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_commit import (
    TOPIC_IDS_SINCE,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)

#: The most offsets that are committed together; those of a larger request follow in batches.
COMMITTED_AT_ONCE = 200

Fit = list[tuple[PartitionError, CommitPart]]


async def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Commit offsets. Partitions that do not exist or that the client may not read get an error;
    the other partitions get the coordinator's result."""
    response = OffsetCommitResponse()
    fit: Fit = []
    committed: list[tuple[Fit, Deferred[list[ErrorCode]]]] = []
    names = await _names(node, context, request)
    count = 0
    async for topic, (name, refusal) in paced(zip(request.topics, names, strict=True)):
        count += len(topic.partitions)
        if name is not None and not topic.partitions:
            continue  # As in Kafka, the answer does not have such a topic.
        answers = []
        async for asked in paced(topic.partitions):
            index = asked.partition_index
            answer = PartitionError(partition_index=index, error_code=refusal)
            answers.append(answer)
            if name is not None:
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
    stored = 0
    async for batch in paced(in_order(fit, COMMITTED_AT_ONCE), changing=True):
        existing = [each for each in batch if still_exists(node.metadata, each[1])]
        stored += len(existing)
        committed.append((existing, _commit(node, context, request, existing)))
    of_group = (None, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if of_group not in names and stored < count:
        response.topics = await one_entry_each(
            response.topics, lambda topic: topic.name or topic.topic_id
        )
    async for existing, errors in paced(committed):
        for (answer, _), error in zip(existing, await errors, strict=True):
            answer.error_code = error
    return response


def still_exists(metadata: ClusterMetadata, part: CommitPart) -> bool:
    """True if the partition exists. Its topic may have been deleted since the request was read, and
    no offset may be stored for a topic that does not exist, or for another one of its name."""
    exists = metadata.leader_of(part.topic, part.partition) is not None
    return exists and metadata.topic_id(part.topic) == part.topic_id


def _commit(
    node: GroupAndMetadataParts, context: RequestContext, request: OffsetCommitRequest, fit: Fit
) -> Deferred[list[ErrorCode]]:
    """Pass offsets to the group coordinator. The result has an error for each of them."""
    if not fit:
        return Deferred.of([])
    is_member = request.member_id or request.generation_id_or_member_epoch >= 0
    return node.groups.commit_offsets(
        CommitCall(
            group_id=request.group_id,
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            api_version=context.api_version,
            retention_ms=request.retention_time_ms,
            parts=[part for _, part in fit],
            origin="" if is_member else origin_of(context),
        )
    )


class AnsweredTopic(Protocol):
    """A topic in the answer, with its partitions."""

    partitions: list[Any]


T = TypeVar("T", bound=AnsweredTopic)


async def one_entry_each(topics: Iterable[T], key: Callable[[T], object]) -> list[T]:
    """The topics, with all entries of one topic joined into one entry. Kafka joins the entries if a
    partition is refused before the coordinator decides."""
    entries: dict[object, T] = {}
    async for topic in paced(topics):
        entry = entries.setdefault(key(topic), topic)
        if entry is not topic:
            entry.partitions += topic.partitions
    return list(entries.values())


async def _names(
    node: GroupAndMetadataParts, context: RequestContext, request: OffsetCommitRequest
) -> list[tuple[str | None, ErrorCode]]:
    """For each topic, its name and the error for partitions that do not exist. If no offset of the
    topic may be stored, the name is None, and the error is for all partitions (A-14)."""
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return [(None, ErrorCode.GROUP_AUTHORIZATION_FAILED)] * len(request.topics)
    names: list[str | None] = [topic.name for topic in request.topics]
    if context.api_version >= TOPIC_IDS_SINCE:
        names = [node.metadata.topic_name(topic.topic_id) async for topic in paced(request.topics)]
    known = dict.fromkeys([name for name in names if name is not None])
    denied = await denied_topics(node.authorizer, context, Operation.READ, known)
    return [
        (None, ErrorCode.UNKNOWN_TOPIC_ID)
        if name is None
        else (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name in denied
        else (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for name in names
    ]
