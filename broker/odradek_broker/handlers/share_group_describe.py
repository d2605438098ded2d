"""ShareGroupDescribe (key 77): share groups with their members (rule H-05)."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.coordinator.groups.share.groups import share_not_described
from odradek_broker.handlers._group_describe import Descriptions, describe_each
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_protocol.schemas.share_group_describe import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


async def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Answer with an entry for every group."""
    descriptions = Descriptions(
        node.groups.share.describe,
        share_not_described,
        _topics,
        "The group has described topic(s) that the client is not authorized to describe.",
    )
    is_off = bool(node.metadata.share_groups_off)
    groups = await describe_each(node, context, request, descriptions, is_off=is_off)
    return ShareGroupDescribeResponse(groups=groups)


def _topics(described: DescribedShareGroup) -> Iterator[str]:
    for member in described.members:
        for part in member.assignment.topic_partitions:
            yield part.topic_name
