"""StreamsGroupDescribe (key 89): streams groups with their members and tasks (rule J-50)."""

from __future__ import annotations

from odradek_broker.coordinator.groups.streams.groups import streams_not_described
from odradek_broker.deferred import Deferred, gather
from odradek_broker.handlers._parts import GroupAndMetadataParts
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    Operation,
    authorized_operations,
    denied_topics,
    group,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.streams_group_describe import (
    DescribedStreamsGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)


def handle(
    node: GroupAndMetadataParts, context: RequestContext, request: StreamsGroupDescribeRequest
) -> Deferred[StreamsGroupDescribeResponse]:
    """Answer with an entry for every group, in the order of the request and without repetition
    (D11)."""

    def answer(groups: list[DescribedStreamsGroup]) -> StreamsGroupDescribeResponse:
        shown = [_shown(node, context, request, described) for described in groups]
        return StreamsGroupDescribeResponse(groups=shown)

    found = [_describe(node, context, name) for name in dict.fromkeys(request.group_ids)]
    return gather(found).map(answer)


def _describe(
    node: GroupAndMetadataParts, context: RequestContext, name: str
) -> Deferred[DescribedStreamsGroup]:
    if node.metadata.streams_groups_off:
        return Deferred.of(streams_not_described(name, ErrorCode.UNSUPPORTED_VERSION))
    if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
        return Deferred.of(streams_not_described(name, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    if not name:
        return Deferred.of(streams_not_described(name, ErrorCode.INVALID_GROUP_ID))
    return node.groups.describe_streams_group(name)


def _shown(
    node: GroupAndMetadataParts,
    context: RequestContext,
    request: StreamsGroupDescribeRequest,
    described: DescribedStreamsGroup,
) -> DescribedStreamsGroup:
    """The group; a group with topics that the client may not see is not shown at all, as in
    Kafka."""
    if described.error_code:
        return described
    names: set[str] = set()
    subtopologies = described.topology.subtopologies if described.topology else None
    for each in subtopologies or ():
        names.update(each.source_topics)
        names.update(each.repartition_sink_topics)
        names.update(topic.name for topic in each.repartition_source_topics)
        names.update(topic.name for topic in each.state_changelog_topics)
    if denied_topics(node.authorizer, context, Operation.DESCRIBE, names):
        return streams_not_described(
            described.group_id,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The described group uses topics that the client is not authorized to describe.",
        )
    if request.include_authorized_operations:
        described.authorized_operations = authorized_operations(
            node.authorizer, context, group(described.group_id)
        )
    return described
