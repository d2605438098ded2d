"""DescribeTopicPartitions (key 75): topics in the order of their names, a page of partitions at a
time (N-36)."""

from __future__ import annotations

from typing import Protocol

from odradek_broker.handlers._leadership import partition_leadership
from odradek_broker.handlers._parts import MetadataChangeParts, PartitionAndMetadataParts
from odradek_broker.metadata.cluster import Topic
from odradek_broker.metadata.commit import committed
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics import check_topic_name
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    Operation,
    authorized_operations,
    denied_topics,
    hidden_topics,
)
from odradek_broker.security.authorizer import topic as topic_resource
from odradek_broker.slices import each_once, in_pieces, in_sorted_order, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

#: The maximum number of partitions per page: Kafka's default of `max.request.partition.size.limit`.
PAGE_PARTITIONS_MAX = 2_000


class _Parts(PartitionAndMetadataParts, MetadataChangeParts, Protocol):
    """The parts of the node that this handler needs."""


async def handle(
    node: _Parts, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Answer when the state that the answer shows is durable; errors are per topic."""
    answer = await _Page(node, context, request).respond()
    if not await committed(node):
        for topic in answer.topics:
            topic.error_code, topic.partitions = ErrorCode.REQUEST_TIMED_OUT, []
    return answer


def _failed(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name)


class _Page:
    """The answer to one request, under construction."""

    def __init__(
        self, node: _Parts, context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> None:
        self._node = node
        self._context = context
        self._request = request
        self._left = max(1, min(request.response_partition_limit, PAGE_PARTITIONS_MAX))
        self._next: Cursor | None = None

    async def respond(self) -> DescribeTopicPartitionsResponse:
        request, node = self._request, self._node
        named = [each.name async for some in in_pieces(request.topics) for each in some]
        asked = (await each_once(named)).keys() or node.metadata.topics.keys()
        cursor = request.cursor
        names = await in_sorted_order(
            [
                name
                async for some in in_pieces(asked)
                for name in some
                if cursor is None or name >= cursor.topic_name
            ]
        )
        if cursor is not None and (
            cursor.partition_index < 0 or (request.topics and names[:1] != [cursor.topic_name])
        ):
            return DescribeTopicPartitionsResponse(
                topics=[
                    _failed(each.name, ErrorCode.INVALID_REQUEST)
                    async for each in paced(request.topics)
                ]
            )
        topics, denied = [], []
        if request.topics:
            refused = await denied_topics(node.authorizer, self._context, Operation.DESCRIBE, names)
            denied = [
                _failed(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                async for name in paced(names)
                if name in refused
            ]
        else:
            refused = await hidden_topics(node.authorizer, self._context, names)
        async for name in paced(names):
            if name in refused:
                continue
            if not self._left:
                self._next = Cursor(topic_name=name, partition_index=0)
                break
            topics.append(self._topic(name))
            if self._next is not None:
                break
        return DescribeTopicPartitionsResponse(topics=topics + denied, next_cursor=self._next)

    def _topic(self, name: str) -> DescribeTopicPartitionsResponseTopic:
        topic = self._node.metadata.topics.get(name)
        operations = authorized_operations(
            self._node.authorizer, self._context, topic_resource(name)
        )
        if topic is None:
            answer = _failed(name, _missing(name))
        else:
            answer = DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=self._partitions(topic),
            )
        answer.topic_authorized_operations = operations
        return answer

    def _partitions(self, topic: Topic) -> list[DescribeTopicPartitionsResponsePartition]:
        """The partitions for which the page has room; sets the next cursor if there are more."""
        cursor = self._request.cursor
        first = 0
        if cursor is not None and cursor.topic_name == topic.name:
            first = cursor.partition_index
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        shown = indexes[: self._left]
        self._left -= len(shown)
        if len(shown) < len(indexes):
            self._next = Cursor(topic_name=topic.name, partition_index=indexes[len(shown)])
        return [self._partition(topic, index) for index in shown]

    def _partition(self, topic: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
        state = topic.partitions[index]
        shown = partition_leadership(self._node, topic, index)
        return DescribeTopicPartitionsResponsePartition(
            error_code=shown.error,
            partition_index=index,
            leader_id=shown.leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=shown.isr,
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=shown.offline,
        )


def _missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except AdminError as bad_name:
        return bad_name.error
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
