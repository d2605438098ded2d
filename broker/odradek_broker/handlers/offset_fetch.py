"""OffsetFetch (key 9): a group reads its positions (O-08 to O-10, A-15).

Up to version 7 a request names one group, from 8 on a list; up to 9 topics go by name, from 10 on by
id. Each group is asked for by itself, for each may be in another partition, and the answers are put
together when the last one is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from odradek_broker.authorizer import Operation, denied_topics, group
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.groups.offsets import (
    NOT_A_MEMBER,
    FetchedOffsets,
    FetchedPart,
    FetchingMember,
)
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_TOP_LEVEL_ERROR_SINCE = 2
_GROUPS_SINCE = 8
_TOPIC_IDS_SINCE = 10

_NO_POSITION = -1


def handle(
    node: Node, context: RequestContext, request: OffsetFetchRequest
) -> Later[OffsetFetchResponse]:
    """Reads change nothing, not even a session timer (O-10).

    A group, and a position of it, that is named again is answered once (D11).
    """
    if context.api_version < _GROUPS_SINCE:
        return _one_group(node, context, request)
    later: Later[OffsetFetchResponse] = Later()
    response = OffsetFetchResponse()
    groups = _each_once(request.groups)
    waiting = len(groups)
    if not waiting:
        return Later.of(response)

    def arrived(_: OffsetFetchResponseGroup) -> None:
        nonlocal waiting
        waiting -= 1
        if not waiting:
            response.groups = [answer.result() for answer in answers]
            later.resolve(response)

    by_id = context.api_version >= _TOPIC_IDS_SINCE
    answers = [_group(node, context, asked, request.require_stable, by_id) for asked in groups]
    for answer in answers:
        answer.then(arrived)
    return later


def _each_once(asked: Iterable[OffsetFetchRequestGroup]) -> Collection[OffsetFetchRequestGroup]:
    """With the topics of all its mentions; None, which is all topics, has them too."""
    found: dict[str, OffsetFetchRequestGroup] = {}
    for group_asked in asked:
        known = found.setdefault(group_asked.group_id, group_asked)
        if known is group_asked:
            continue
        if known.topics is None or group_asked.topics is None:
            known.topics = None
        else:
            known.topics += group_asked.topics
    return found.values()


def _fetch(
    node: Node,
    context: RequestContext,
    group_id: str,
    places: list[tuple[str, int]] | None,
    require_stable: bool,
    member: FetchingMember = NOT_A_MEMBER,
) -> Later[FetchedOffsets]:
    """As much as this client may see (A-15): an error for topics that it asks for and may not see,
    silence about others."""

    def denied(topics: Iterable[str]) -> frozenset[str]:
        return denied_topics(node.authorizer, context, Operation.DESCRIBE, topics)

    if not node.authorizer.allows(context, Operation.DESCRIBE, group(group_id)):
        return Later.of(FetchedOffsets(ErrorCode.GROUP_AUTHORIZATION_FAILED, []))
    later: Later[FetchedOffsets] = Later()
    if places is None:

        def all_fetched(found: FetchedOffsets) -> None:
            unseen = denied(part.topic for part in found.parts)
            if unseen:
                seen = [part for part in found.parts if part.topic not in unseen]
                found = FetchedOffsets(found.error, seen)
            later.resolve(found)

        node.groups.fetch_offsets(group_id, None, require_stable, member).then(all_fetched)
        return later
    hidden = denied(name for name, _ in places)
    if not hidden:
        return node.groups.fetch_offsets(group_id, places, require_stable, member)
    refused = [
        FetchedPart(*place, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for place in places
        if place[0] in hidden
    ]
    shown = [place for place in places if place[0] not in hidden]
    node.groups.fetch_offsets(group_id, shown, require_stable, member).then(
        lambda found: later.resolve(FetchedOffsets(found.error, [*found.parts, *refused]))
    )
    return later


# --- One group, by topic names --------------------------------------------------------------------


def _one_group(
    node: Node, context: RequestContext, request: OffsetFetchRequest
) -> Later[OffsetFetchResponse]:
    version = context.api_version
    places = None
    if request.topics is not None:
        named = (
            (topic.name, index) for topic in request.topics for index in topic.partition_indexes
        )
        places = list(dict.fromkeys(named))
    later: Later[OffsetFetchResponse] = Later()

    def fetched(found: FetchedOffsets) -> None:
        parts = found.parts
        if found.error is not ErrorCode.NONE and version < _TOP_LEVEL_ERROR_SINCE:
            parts = [FetchedPart(*place, error=found.error) for place in places or ()]
        response = OffsetFetchResponse(error_code=found.error)
        told = () if found.error is not ErrorCode.NONE else request.topics or ()
        names = [topic.name for topic in told]
        for name, held in _by_topic(names, parts).items():
            answers = [
                OffsetFetchResponsePartition(
                    partition_index=part.partition,
                    committed_offset=part.offset,
                    committed_leader_epoch=part.leader_epoch,
                    metadata=part.metadata,
                    error_code=part.error,
                )
                for part in held
            ]
            response.topics.append(OffsetFetchResponseTopic(name=name, partitions=answers))
        later.resolve(response)

    _fetch(node, context, request.group_id, places, request.require_stable).then(fetched)
    return later


# --- One of many groups, by topic names or ids ----------------------------------------------------


def _group(
    node: Node,
    context: RequestContext,
    asked: OffsetFetchRequestGroup,
    require_stable: bool,
    by_id: bool,
) -> Later[OffsetFetchResponseGroup]:
    places = None
    names: list[str] = []
    unknown = []
    if asked.topics is not None:
        places = []
        for topic in asked.topics:
            name = node.metadata.topic_name(topic.topic_id) if by_id else topic.name
            if name is None:
                unknown.append(_unknown_topic(topic.topic_id, topic.partition_indexes))
            else:
                names.append(name)
                places += [(name, index) for index in topic.partition_indexes]
        places = list(dict.fromkeys(places))
    later: Later[OffsetFetchResponseGroup] = Later()

    def fetched(found: FetchedOffsets) -> None:
        response = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=found.error)
        if found.error is not ErrorCode.NONE:
            later.resolve(response)
            return
        for name, held in _by_topic(names, found.parts).items():
            topic_id = node.metadata.topic_id(name) if by_id else ZERO_UUID
            if by_id and topic_id == ZERO_UUID:
                # Its topic is gone, so there is no way left to name it.
                continue
            response.topics.append(
                OffsetFetchResponseTopics(
                    name="" if by_id else name,
                    topic_id=topic_id,
                    partitions=[_position(part) for part in held],
                )
            )
        response.topics += unknown
        later.resolve(response)

    member = FetchingMember(asked.member_id, asked.member_epoch)
    _fetch(node, context, asked.group_id, places, require_stable, member).then(fetched)
    return later


def _unknown_topic(topic_id: bytes, indexes: Iterable[int]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=_NO_POSITION,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in indexes
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


def _by_topic(names: Iterable[str], parts: Iterable[FetchedPart]) -> dict[str, list[FetchedPart]]:
    """What was asked for by name first, even where no partition of it was, as in Kafka."""
    topics: dict[str, list[FetchedPart]] = {name: [] for name in names}
    for part in parts:
        topics.setdefault(part.topic, []).append(part)
    return topics
