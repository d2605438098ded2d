"""OffsetFetch (key 9): reads the committed offsets of a group (O-08 to O-10, A-15).

A request has one group up to version 7, and a list of groups from version 8 on. Topics are given by
name up to version 9, and by id from version 10 on. Each group is read separately, since it may
belong to another partition, and the response is sent when the last group is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from odradek_broker.coordinator.groups.offsets import (
    NOT_A_MEMBER,
    FetchedOffsets,
    FetchedPart,
    FetchingMember,
)
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    Operation,
    denied_topics,
    group,
    hidden_topics,
)
from odradek_broker.slices import paced
from odradek_protocol.constants import NO_OFFSET
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.offset_fetch import (
    GROUPS_SINCE,
    TOP_LEVEL_ERROR_SINCE,
    TOPIC_IDS_SINCE,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


async def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Read committed offsets. No state changes, not even a session timer (O-10).

    A group or a partition that is named several times is answered once (D11).
    """
    if context.api_version < GROUPS_SINCE:
        return await _one_group(node, context, request)
    by_id = context.api_version >= TOPIC_IDS_SINCE
    return OffsetFetchResponse(
        groups=[
            await _group(node, context, asked, request.require_stable, by_id)
            async for asked in paced(await _each_once(request.groups))
        ]
    )


async def _each_once(
    asked: Iterable[OffsetFetchRequestGroup],
) -> Collection[OffsetFetchRequestGroup]:
    """The groups without repetitions, with the topics of all their entries; None stands for all
    topics."""
    found: dict[str, OffsetFetchRequestGroup] = {}
    async for group_asked in paced(asked):
        known = found.setdefault(group_asked.group_id, group_asked)
        if known is group_asked:
            continue
        if known.topics is None or group_asked.topics is None:
            known.topics = None
        else:
            known.topics += group_asked.topics
    return found.values()


async def _fetch(
    node: GroupAndMetadataParts,
    context: RequestContext,
    group_id: str,
    partitions: list[tuple[str, int]] | None,
    require_stable: bool,
    member: FetchingMember = NOT_A_MEMBER,
) -> FetchedOffsets:
    """The offsets that this client may see (A-15). A topic that the client may not see is answered
    with an error if the request names the topic, and is left out if the request is for all
    topics."""
    authorizer, groups = node.authorizer, node.groups
    if not authorizer.allows(context, Operation.DESCRIBE, group(group_id)):
        return FetchedOffsets(ErrorCode.GROUP_AUTHORIZATION_FAILED, [])
    if partitions is None:
        found = await groups.fetch_offsets(group_id, None, require_stable, member)
        topics = dict.fromkeys(part.topic for part in found.parts)
        hidden = await hidden_topics(authorizer, context, topics)
        if not hidden:
            return found
        shown = [part async for part in paced(found.parts) if part.topic not in hidden]
        return FetchedOffsets(found.error, shown)
    topics = dict.fromkeys(name for name, _ in partitions)
    denied = await denied_topics(authorizer, context, Operation.DESCRIBE, topics)
    if not denied:
        return await groups.fetch_offsets(group_id, partitions, require_stable, member)
    refused = [
        FetchedPart(*partition, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async for partition in paced(partitions)
        if partition[0] in denied
    ]
    allowed = [partition for partition in partitions if partition[0] not in denied]
    found = await groups.fetch_offsets(group_id, allowed, require_stable, member)
    return FetchedOffsets(found.error, [*found.parts, *refused])


# --- One group, by topic names --------------------------------------------------------------------


async def _one_group(
    node: GroupAndMetadataParts, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    version = context.api_version
    partitions = None
    if request.topics is not None:
        named = (
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        )
        partitions = list(dict.fromkeys(named))

    found = await _fetch(node, context, request.group_id, partitions, request.require_stable)
    parts = found.parts
    if found.error is not ErrorCode.NONE and version < TOP_LEVEL_ERROR_SINCE:
        parts = [FetchedPart(*partition, error=found.error) for partition in partitions or ()]
    response = OffsetFetchResponse(error_code=found.error)
    topics = () if found.error is not ErrorCode.NONE else request.topics or ()
    names = [topic.name for topic in topics]
    async for name, of_topic in paced((await _by_topic(names, parts)).items()):
        answers = [
            OffsetFetchResponsePartition(
                partition_index=part.partition,
                committed_offset=part.offset,
                committed_leader_epoch=part.leader_epoch,
                metadata=part.metadata,
                error_code=part.error,
            )
            async for part in paced(of_topic)
        ]
        response.topics.append(OffsetFetchResponseTopic(name=name, partitions=answers))
    return response


# --- One of many groups, by topic names or ids ----------------------------------------------------


async def _group(
    node: GroupAndMetadataParts,
    context: RequestContext,
    asked: OffsetFetchRequestGroup,
    require_stable: bool,
    by_id: bool,
) -> OffsetFetchResponseGroup:
    partitions = None
    names: list[str] = []
    unknown = []
    if asked.topics is not None:
        partitions = []
        async for topic in paced(asked.topics):
            name = node.metadata.topic_name(topic.topic_id) if by_id else topic.name
            if name is None:
                unknown.append(await _unknown_topic(topic.topic_id, topic.partition_indexes))
            else:
                names.append(name)
                partitions += [(name, index) for index in topic.partition_indexes]
        partitions = list(dict.fromkeys(partitions))

    member = FetchingMember(asked.member_id, asked.member_epoch)
    found = await _fetch(node, context, asked.group_id, partitions, require_stable, member)
    response = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=found.error)
    if found.error is not ErrorCode.NONE:
        return response
    async for name, of_topic in paced((await _by_topic(names, found.parts)).items()):
        topic_id = node.metadata.topic_id(name) if by_id else ZERO_UUID
        if by_id and topic_id == ZERO_UUID:
            # The topic was deleted, so the answer cannot name it.
            continue
        response.topics.append(
            OffsetFetchResponseTopics(
                name="" if by_id else name,
                topic_id=topic_id,
                partitions=[_position(part) async for part in paced(of_topic)],
            )
        )
    response.topics += unknown
    return response


async def _unknown_topic(topic_id: bytes, indexes: Iterable[int]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            async for index in paced(indexes)
        ],
    )


def _position(part: FetchedPart) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=part.partition,
        committed_offset=part.offset,
        committed_leader_epoch=part.leader_epoch,
        metadata=part.metadata,
        error_code=part.error,
    )


async def _by_topic(
    names: Iterable[str], parts: Iterable[FetchedPart]
) -> dict[str, list[FetchedPart]]:
    """The partitions by topic. The named topics come first, even if they have no partitions, as in
    Kafka."""
    topics: dict[str, list[FetchedPart]] = {name: [] for name in names}
    async for part in paced(parts):
        topics.setdefault(part.topic, []).append(part)
    return topics
