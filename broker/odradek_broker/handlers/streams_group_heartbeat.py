"""StreamsGroupHeartbeat (key 88): the heartbeat of a member of a streams group (rules J-10 to
J-26).

Missing internal topics are created after the heartbeat; the answer names them, and the next
heartbeat finds them, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek_broker.coordinator.groups.streams.heartbeat import (
    StreamsAnswer,
    streams_heartbeat_error,
)
from odradek_broker.coordinator.groups.streams.topology import StreamsStatusCode
from odradek_broker.handlers._parts import GroupParts, TopicParts
from odradek_broker.metadata.cluster import INTERNAL_TOPICS
from odradek_broker.metadata.commit import committed
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics import (
    CreatedSoFar,
    RequestedTopic,
    TopicResult,
    check_topic_name,
    create_topics,
)
from odradek_broker.quotas.managers import NEVER_STRICT
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    Operation,
    denied_topics,
    group,
    may_create_topic,
)
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsTopology,
)

_E = ErrorCode

#: The maximum number of topics that a status lists as not created.
_ERRORS_SHOWN_MAX = 3


class StreamsParts(GroupParts, TopicParts, Protocol):
    """The groups, and the parts that create topics."""


async def handle(
    node: StreamsParts, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """Answer immediately, or when the state that the answer shows is durable."""
    if node.metadata.streams_groups_off:
        return StreamsGroupHeartbeatResponse(error_code=_E.UNSUPPORTED_VERSION)
    if not node.authorizer.allows(context, Operation.READ, group(request.group_id)):
        return StreamsGroupHeartbeatResponse(error_code=_E.GROUP_AUTHORIZATION_FAILED)
    if request.topology is not None:
        names = await topic_names(request.topology)
        problem = await name_problem(names)
        if problem:
            return streams_heartbeat_error(_E.STREAMS_INVALID_TOPOLOGY, problem).response
        if await denied_topics(node.authorizer, context, Operation.DESCRIBE, names):
            return StreamsGroupHeartbeatResponse(error_code=_E.TOPIC_AUTHORIZATION_FAILED)

    # Kafka shows the host of a member in the form of a Java address.
    host = f"/{context.host}"
    answer = await node.groups.streams_heartbeat(request, context.client_id or "", host)
    if answer.missing:
        await _create_missing(node, context, answer)
    return answer.response


async def topic_names(topology: StreamsTopology) -> Sequence[str]:
    """All topics of a topology, each once."""
    names: list[str] = []
    async for each in paced(topology.subtopologies):
        names += each.source_topics
        names += each.repartition_sink_topics
        names += [topic.name for topic in each.repartition_source_topics]
        names += [topic.name for topic in each.state_changelog_topics]
    return list(dict.fromkeys(names))


async def name_problem(names: Sequence[str]) -> str:
    """The reason why a topology cannot have topics of these names (J-25); empty if it can."""
    own = [name for name in names if name in INTERNAL_TOPICS]
    if own:
        return (
            f"Use of Kafka internal topics {','.join(own)} in a Kafka Streams topology is"
            " prohibited."
        )
    illegal = [name async for name in paced(names) if not _is_legal(name)]
    if illegal:
        return f"Topic names {','.join(illegal)} are not valid topic names."
    return ""


def _is_legal(name: str) -> bool:
    try:
        check_topic_name(name)
    except AdminError:
        return False
    return True


async def _create_missing(
    node: StreamsParts, context: RequestContext, answer: StreamsAnswer
) -> None:
    """Create the missing internal topics, if the user may create them; otherwise add the reason to
    the status (J-24)."""
    denied = [
        name
        async for name in paced(answer.missing)
        if not may_create_topic(node.authorizer, context, name)
    ]
    if denied:
        _add_detail(answer, f"; Unauthorized to CREATE on topics {', '.join(denied)}.")
        return
    wanted = [
        RequestedTopic(
            topic.name,
            topic.partitions,
            topic.replicas or -1,
            configs=dict(topic.settings),
        )
        async for topic in paced(answer.missing.values())
    ]
    quota = node.quotas.mutations(context, NEVER_STRICT)
    created = CreatedSoFar(node.metadata)
    failed: list[TopicResult] = []
    # Each has a partition for each of its tasks, so they are created one by one.
    async for topic in paced(wanted, changing=True):
        records, results = create_topics(node.metadata, [topic], quota, created)
        failed += [
            result for result in results if result.error not in (_E.NONE, _E.TOPIC_ALREADY_EXISTS)
        ]
        if records:
            committed(node, records)
            created.recorded()
    if failed:
        _add_detail(answer, f"; Creation failed: {_summary(failed)}.")


def _summary(failed: Sequence[TopicResult]) -> str:
    shown = ", ".join(
        f"{result.name} ({result.message or result.error.name})"
        for result in failed[:_ERRORS_SHOWN_MAX]
    )
    more = len(failed) - _ERRORS_SHOWN_MAX
    return shown if more <= 0 else f"{shown} and {more} more"


def _add_detail(answer: StreamsAnswer, detail: str) -> None:
    for status in answer.response.status or ():
        if status.status_code == StreamsStatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += detail
