"""StreamsGroupDescribe (key 89): streams groups with their members and tasks (rule J-50)."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.coordinator.groups.streams.groups import streams_not_described
from odradek_broker.handlers._group_describe import Descriptions, describe_each
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_protocol.schemas.streams_group_describe import (
    DescribedStreamsGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


async def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Answer with an entry for every group."""
    descriptions = Descriptions(node.groups.describe_streams_group, streams_not_described, _topics)
    is_off = bool(node.metadata.streams_groups_off)
    groups = await describe_each(node, context, request, descriptions, is_off=is_off)
    return StreamsGroupDescribeResponse(groups=groups)


def _topics(described: DescribedStreamsGroup) -> Iterator[str]:
    subtopologies = described.topology.subtopologies if described.topology else None
    for each in subtopologies or ():
        yield from each.source_topics
        yield from each.repartition_sink_topics
        yield from (topic.name for topic in each.repartition_source_topics)
        yield from (topic.name for topic in each.state_changelog_topics)
