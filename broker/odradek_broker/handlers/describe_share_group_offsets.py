"""DescribeShareGroupOffsets (key 90): start offsets of share groups, and the numbers of records
left to deliver (rule H-24).

If the list of topics is null, the answer has every partition that has a state. A topic or partition
without a state has the start offset -1, and is no error, as in OffsetFetch.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_broker.coordinator.groups.partitions import Partitions, each_partition
from odradek_broker.coordinator.groups.share.requests import DescribedOffset
from odradek_broker.deferred import Deferred, gather
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.handlers._share_offsets import error_text
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

_NO_TOPIC = bytes(16)

Offsets = Mapping[tuple[bytes, int], DescribedOffset]


def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> Deferred[DescribeShareGroupOffsetsResponse]:
    """Answer with an entry for every entry of the request."""
    found = [_group(node, context, asked) for asked in request.groups]
    return gather(found).map(lambda groups: DescribeShareGroupOffsetsResponse(groups=groups))


def _group(
    node: GroupAndMetadataParts,
    context: RequestContext,
    asked: DescribeShareGroupOffsetsRequestGroup,
) -> Deferred[DescribeShareGroupOffsetsResponseGroup]:
    name = asked.group_id
    if node.metadata.share_groups_off:
        return Deferred.of(_answer(name, error=ErrorCode.UNSUPPORTED_VERSION))
    if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
        return Deferred.of(_answer(name, error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    if asked.topics is not None:
        return _some(node, context, name, asked.topics)
    return node.groups.share.initialized_partitions(name).bind(
        lambda found: (
            Deferred.of(_answer(name, error=found[0]))
            if found[0]
            else _all(node, context, name, found[1])
        )
    )


def _answer(
    name: str, *topics: DescribeShareGroupOffsetsResponseTopic, error: ErrorCode = ErrorCode.NONE
) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=name, topics=list(topics), error_code=error
    )


def _all(
    node: GroupAndMetadataParts, context: RequestContext, name: str, partitions: Partitions
) -> Deferred[DescribeShareGroupOffsetsResponseGroup]:
    """All partitions that have a state, of the topics that the client may describe."""
    names = {each: node.metadata.topic_name(each) for each in partitions}
    existing = {topic_id: topic for topic_id, topic in names.items() if topic is not None}
    denied = denied_topics(node.authorizer, context, Operation.DESCRIBE, existing.values())
    shown = {each: topic for each, topic in existing.items() if topic not in denied}
    wanted = [each for each in each_partition(partitions) if each[0] in shown]

    def answer(offsets: Offsets) -> DescribeShareGroupOffsetsResponseGroup:
        topics = [
            _topic(
                topic,
                topic_id,
                {index: offsets[topic_id, index] for index in sorted(partitions[topic_id])},
            )
            for topic_id, topic in shown.items()
        ]
        return _answer(name, *topics)

    return node.groups.share.describe_offsets(name, wanted).map(answer)


def _some(
    node: GroupAndMetadataParts,
    context: RequestContext,
    name: str,
    topics: list[DescribeShareGroupOffsetsRequestTopic],
) -> Deferred[DescribeShareGroupOffsetsResponseGroup]:
    """The partitions of the request, as in Kafka: first those of existing topics, then those of
    missing topics, then those of topics that the client may not describe."""
    denied = denied_topics(
        node.authorizer, context, Operation.DESCRIBE, [topic.topic_name for topic in topics]
    )
    seen = [topic for topic in topics if topic.topic_name not in denied]
    existing = {
        topic.topic_name: node.metadata.topic_id(topic.topic_name)
        for topic in seen
        if node.metadata.partition_count(topic.topic_name)
    }
    wanted = {
        (existing[topic.topic_name], index): None
        for topic in seen
        if topic.topic_name in existing
        for index in topic.partitions
    }

    def answer(offsets: Offsets) -> DescribeShareGroupOffsetsResponseGroup:
        found, missing, hidden = [], [], []
        for topic in topics:
            topic_id = existing.get(topic.topic_name)
            if topic.topic_name in denied:
                refused = DescribedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                hidden.append(_same(topic, refused))
            elif topic_id is None:
                missing.append(_same(topic, DescribedOffset()))
            else:
                described = {index: offsets[topic_id, index] for index in topic.partitions}
                found.append(_topic(topic.topic_name, topic_id, described))
        return _answer(name, *found, *missing, *hidden)

    return node.groups.share.describe_offsets(name, wanted).map(answer)


def _same(
    topic: DescribeShareGroupOffsetsRequestTopic, offset: DescribedOffset
) -> DescribeShareGroupOffsetsResponseTopic:
    return _topic(topic.topic_name, _NO_TOPIC, dict.fromkeys(topic.partitions, offset))


def _topic(
    name: str, topic_id: bytes, offsets: Mapping[int, DescribedOffset]
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic_id,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=offset.start_offset,
                leader_epoch=offset.leader_epoch,
                lag=offset.lag,
                error_code=offset.error,
                error_message=error_text(offset.error),
            )
            for index, offset in offsets.items()
        ],
    )
