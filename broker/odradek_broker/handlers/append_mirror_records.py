"""AppendMirrorRecords (key 10003, Odradek's own): appends batches of another cluster to mirror
topics (I-03 to I-09, A-24)."""

from __future__ import annotations

from odradek_broker.deferred import Deferred
from odradek_broker.mirror.appends import MirrorAppend
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    AppendMirrorRecordsResponse,
    MirroredPartitionResult,
    MirroredTopicResult,
)

#: The minimum wait for the disk. A shorter timeout in a request is raised to this.
_WAIT_MS_MIN = 1_000


def handle(
    node: Node, context: RequestContext, request: AppendMirrorRecordsRequest
) -> AppendMirrorRecordsResponse | Deferred[AppendMirrorRecordsResponse]:
    """Append the batches, and answer when they are durable; errors are per partition."""
    counts = [(topic.name, len(topic.partitions)) for topic in request.topics]
    wanted = [
        MirrorAppend(topic.name, topic.topic_id, topic.source, part)
        for topic in request.topics
        for part in topic.partitions
    ]
    indexes = [each.part.partition_index for each in wanted]
    if not node.authorizer.allows(context, Operation.CLUSTER_ACTION, CLUSTER):
        return _response(counts, _all(indexes, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    done = node.mirrors.append(wanted)
    if done.done:
        return _response(counts, done.result())
    answer: Deferred[AppendMirrorRecordsResponse] = Deferred()

    def late() -> None:
        if not answer.done:
            answer.resolve(_response(counts, _all(indexes, ErrorCode.REQUEST_TIMED_OUT)))

    timer = node.scheduler.call_later(max(request.timeout_ms, _WAIT_MS_MIN), late)

    def appended(results: list[MirroredPartitionResult]) -> None:
        if not answer.done:
            timer.cancel()
            answer.resolve(_response(counts, results))

    done.then(appended)
    return answer


def _all(indexes: list[int], error: ErrorCode) -> list[MirroredPartitionResult]:
    return [MirroredPartitionResult(partition_index=index, error_code=error) for index in indexes]


def _response(
    counts: list[tuple[str, int]], results: list[MirroredPartitionResult]
) -> AppendMirrorRecordsResponse:
    """The results of all partitions, topic by topic. `counts`: the topics of the request, and the
    number of their partitions."""
    left = iter(results)
    return AppendMirrorRecordsResponse(
        topics=[
            MirroredTopicResult(name=name, partitions=[next(left) for _ in range(count)])
            for name, count in counts
        ]
    )
