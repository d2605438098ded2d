"""AppendMirrorRecords (key 10003, Odradek's own): appends batches of another cluster to mirror
topics (I-03 to I-09, A-24)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice

from odradek_broker.deferred import Deferred, gather
from odradek_broker.mirror.appends import MirrorAppend
from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.slices import in_order, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    AppendMirrorRecordsResponse,
    MirroredPartitionResult,
    MirroredTopicResult,
)

#: The minimum wait for the disk. A shorter timeout in a request is raised to this.
_WAIT_MS_MIN = 1_000
#: The most batches that are appended together; those of a larger request follow.
_APPENDED_AT_ONCE = 64


async def handle(
    node: Node, context: RequestContext, request: AppendMirrorRecordsRequest
) -> AppendMirrorRecordsResponse:
    """Append the batches, and answer when they are durable; errors are per partition."""
    if not node.authorizer.allows(context, Operation.CLUSTER_ACTION, CLUSTER):
        return await _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = [
        MirrorAppend(topic.name, topic.topic_id, topic.source, part)
        async for topic in paced(request.topics)
        async for part in paced(topic.partitions)
    ]
    appended = [
        node.mirrors.append(batch)
        async for batch in paced(in_order(wanted, _APPENDED_AT_ONCE), changing=True)
    ]
    results = await _in_time(node, appended, request.timeout_ms)
    if results is None:
        return await _refused(request, ErrorCode.REQUEST_TIMED_OUT)
    left = chain.from_iterable(results)
    return AppendMirrorRecordsResponse(
        topics=[
            MirroredTopicResult(
                name=topic.name, partitions=list(islice(left, len(topic.partitions)))
            )
            async for topic in paced(request.topics)
        ]
    )


_Results = list[list[MirroredPartitionResult]]


def _in_time(
    node: Node, appended: Sequence[Deferred[list[MirroredPartitionResult]]], timeout_ms: int
) -> Deferred[_Results | None]:
    """The results when all batches are durable; None when the time is over."""
    answer: Deferred[_Results | None] = Deferred()

    def end(results: _Results | None = None) -> None:
        timer.cancel()
        if not answer.done:
            answer.resolve(results)

    timer = node.scheduler.call_later(max(timeout_ms, _WAIT_MS_MIN), end)
    gather(appended).then(end)
    return answer


async def _refused(
    request: AppendMirrorRecordsRequest, error: ErrorCode
) -> AppendMirrorRecordsResponse:
    return AppendMirrorRecordsResponse(
        topics=[
            MirroredTopicResult(
                name=topic.name,
                partitions=[
                    MirroredPartitionResult(partition_index=part.partition_index, error_code=error)
                    async for part in paced(topic.partitions)
                ],
            )
            async for topic in paced(request.topics)
        ]
    )
