"""DescribeShareGroupOffsets (key 90): start offsets of share groups, and the numbers of records
left to deliver (rule H-24).

If the list of topics is null, the answer has every partition that has a state. A topic or partition
without a state has the start offset -1, and is no error, as in OffsetFetch.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_broker.coordinator.groups.partitions import Partitions, each_partition
from odradek_broker.coordinator.groups.share.requests import DescribedOffset
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.handlers._share_offsets import error_text
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, denied_topics, group
from odradek_broker.slices import paced
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


async def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Answer with an entry for every entry of the request."""
    groups = [await _group(node, context, asked) async for asked in paced(request.groups)]
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _group(
    node: GroupAndMetadataParts,
    context: RequestContext,
    asked: DescribeShareGroupOffsetsRequestGroup,
) -> DescribeShareGroupOffsetsResponseGroup:
    name = asked.group_id
    if node.metadata.share_groups_off:
        return _answer(name, error=ErrorCode.UNSUPPORTED_VERSION)
    if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
        return _answer(name, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if asked.topics is not None:
        return await _some(node, context, name, asked.topics)
    error, partitions = await node.groups.share.initialized_partitions(name)
    return _answer(name, error=error) if error else await _all(node, context, name, partitions)


def _answer(
    name: str, *topics: DescribeShareGroupOffsetsResponseTopic, error: ErrorCode = ErrorCode.NONE
) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=name, topics=list(topics), error_code=error
    )


async def _all(
    node: GroupAndMetadataParts, context: RequestContext, name: str, partitions: Partitions
) -> DescribeShareGroupOffsetsResponseGroup:
    """All partitions that have a state, of the topics that the client may describe."""
    names = {each: node.metadata.topic_name(each) async for each in paced(partitions)}
    existing = {topic_id: topic for topic_id, topic in names.items() if topic is not None}
    denied = await denied_topics(node.authorizer, context, Operation.DESCRIBE, existing.values())
    shown = {each: topic for each, topic in existing.items() if topic not in denied}
    wanted = [each async for each in paced(each_partition(partitions)) if each[0] in shown]
    offsets = await node.groups.share.describe_offsets(name, wanted)
    topics = [
        await _topic(
            topic,
            topic_id,
            {index: offsets[topic_id, index] for index in sorted(partitions[topic_id])},
        )
        async for topic_id, topic in paced(shown.items())
    ]
    return _answer(name, *topics)


async def _some(
    node: GroupAndMetadataParts,
    context: RequestContext,
    name: str,
    topics: list[DescribeShareGroupOffsetsRequestTopic],
) -> DescribeShareGroupOffsetsResponseGroup:
    """The partitions of the request, as in Kafka: first those of existing topics, then those of
    missing topics, then those of topics that the client may not describe."""
    denied = await denied_topics(
        node.authorizer, context, Operation.DESCRIBE, [topic.topic_name for topic in topics]
    )
    existing: dict[str, bytes] = {}
    indexes: dict[bytes, dict[int, None]] = {}
    wanted: dict[tuple[bytes, int], None] = {}
    async for topic in paced(topics):
        topic_name = topic.topic_name
        if topic_name not in denied and node.metadata.partition_count(topic_name):
            topic_id = existing.setdefault(topic_name, node.metadata.topic_id(topic_name))
            indexes.setdefault(topic_id, {}).update(dict.fromkeys(topic.partitions))
            async for index in paced(topic.partitions):
                wanted[topic_id, index] = None
    offsets = await node.groups.share.describe_offsets(name, wanted)
    found, missing, hidden = [], [], []
    async for topic in paced(topics):
        known_id = existing.get(topic.topic_name)
        if topic.topic_name in denied:
            refused = DescribedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            hidden.append(await _same(topic, refused))
        elif known_id is None:
            missing.append(await _same(topic, DescribedOffset()))
        elif known_id in indexes:
            described = {index: offsets[known_id, index] for index in indexes.pop(known_id)}
            found.append(await _topic(topic.topic_name, known_id, described))
    return _answer(name, *found, *missing, *hidden)


async def _same(
    topic: DescribeShareGroupOffsetsRequestTopic, offset: DescribedOffset
) -> DescribeShareGroupOffsetsResponseTopic:
    return await _topic(topic.topic_name, _NO_TOPIC, dict.fromkeys(topic.partitions, offset))


async def _topic(
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
            async for index, offset in paced(offsets.items())
        ],
    )
