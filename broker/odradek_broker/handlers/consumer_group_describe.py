"""ConsumerGroupDescribe (key 69): consumer groups with their members (rule G-160)."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.coordinator.groups.administration import consumer_not_described
from odradek_broker.handlers._group_describe import Descriptions, describe_each
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_protocol.schemas.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)


async def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Answer with an entry for every group."""
    descriptions = Descriptions(
        node.groups.describe_consumer_group, consumer_not_described, _topics
    )
    off = node.metadata.consumer_groups_off
    groups = await describe_each(node, context, request, descriptions, is_off=bool(off), off=off)
    return ConsumerGroupDescribeResponse(groups=groups)


def _topics(described: DescribedConsumerGroup) -> Iterator[str]:
    for member in described.members:
        for assignment in (member.assignment, member.target_assignment):
            for part in assignment.topic_partitions:
                yield part.topic_name
