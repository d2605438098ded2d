"""Metadata (key 3): brokers, topics, leaders; creates topics that clients ask for (A-10, A-11).

In version 0 an empty list of topics means all topics; in later versions null means all. From
version 4 on the client may forbid the creation of topics. From version 12 on topics may be
requested by id, and the name next to an id is then ignored, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._leadership import partition_leadership
from odradek_broker.metadata.cluster import INTERNAL_TOPICS, METADATA_TOPIC, Topic
from odradek_broker.metadata.commit import all_committed, committed
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics import (
    PARTITIONS_PER_REQUEST_MAX,
    RequestedTopic,
    check_topic_name,
    create_topics,
    too_many_partitions,
)
from odradek_broker.node import Node
from odradek_broker.quotas.managers import NEVER_STRICT, TakeQuota
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    UNKNOWN_OPERATIONS,
    Operation,
    authorized_operations,
    cluster_operations,
    denied_topics,
    hidden_topics,
    may_create_topic,
)
from odradek_broker.security.authorizer import topic as topic_resource
from odradek_broker.slices import in_order, in_pieces, let_go, paced
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.metadata import (
    AUTO_CREATION_SWITCH_SINCE,
    NULL_MEANS_ALL_SINCE,
    TOPIC_IDS_SINCE,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek_protocol.stored.cluster_metadata import MetadataRecord


async def handle(node: Node, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """Answer when the state that the answer shows is durable; errors are per topic."""
    answer = _Answer(node, context, request)
    if answer.asks_by_id_too_early():
        return await answer.refused(ErrorCode.INVALID_REQUEST)
    recorded = await answer.create_missing()
    return await answer.respond(durable=await all_committed(recorded))


class _Answer:
    """The answer to one request, under construction."""

    def __init__(self, node: Node, context: RequestContext, request: MetadataRequest) -> None:
        self._node = node
        self._context = context
        self._version = context.api_version
        self._request = request
        topics = request.topics
        self._all = topics is None or (not topics and self._version < NULL_MEANS_ALL_SINCE)
        asked = topics or []
        if self._version >= TOPIC_IDS_SINCE and any(t.topic_id != ZERO_UUID for t in asked):
            asked = [t for t in asked if t.topic_id != ZERO_UUID]
        self._asked = asked
        self._create_errors: dict[str, ErrorCode] = {}

    def asks_by_id_too_early(self) -> bool:
        """True if topics are given by id in a version that has the field, but does not use it
        (KIP-516)."""
        return self._version < TOPIC_IDS_SINCE and any(
            topic.name is None or topic.topic_id != ZERO_UUID for topic in self._asked
        )

    async def refused(self, error: ErrorCode) -> MetadataResponse:
        """The answer with one error for each topic."""
        return MetadataResponse(
            topics=[self._failed(asked, error) async for asked in paced(self._asked)]
        )

    async def create_missing(self) -> list[Deferred[bool]]:
        """Create the topics that are requested and do not exist. The results are true when the
        records are durable."""
        node = self._node
        allowed = (
            self._request.allow_auto_topic_creation or self._version < AUTO_CREATION_SWITCH_SINCE
        )
        if not allowed or not node.config.auto_create_topics_enable:
            return []
        missing: dict[str, None] = {}
        async for some in in_pieces(self._asked):
            missing |= dict.fromkeys(
                topic.name
                for topic in some
                if topic.name is not None
                and topic.topic_id == ZERO_UUID
                and topic.name not in node.metadata.topics
            )
        for name in await self._denied(missing):
            del missing[name]
        wanted: list[str] = []
        async for name in paced(missing):
            if may_create_topic(node.authorizer, self._context, name):
                wanted.append(name)
            else:
                self._create_errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if len(wanted) * node.config.num_partitions > PARTITIONS_PER_REQUEST_MAX:
            self._create_errors |= dict.fromkeys(wanted, too_many_partitions().error)
            return []
        recorded: list[Deferred[bool]] = []
        quota = node.quotas.mutations(self._context, NEVER_STRICT)
        async for batch in paced(in_order(wanted), changing=True):
            records = self._create(batch, quota)
            if records:
                recorded.append(committed(node, records))
        return recorded

    def _create(self, names: Iterable[str], quota: TakeQuota) -> list[MetadataRecord]:
        metadata = self._node.metadata
        records: list[MetadataRecord] = []
        new: list[RequestedTopic] = []
        for name in names:
            if name in INTERNAL_TOPICS:
                records += metadata.internal_topic_records(name)
            elif name != METADATA_TOPIC and name not in metadata.topics:
                new.append(RequestedTopic(name))
        made, results = create_topics(metadata, new, quota)
        for result in results:
            if result.error is not ErrorCode.NONE:
                self._create_errors[result.name] = result.error
        return records + made

    async def _denied(self, names: Iterable[str]) -> frozenset[str]:
        """The topics that this client may not describe (A-10)."""
        return await denied_topics(self._node.authorizer, self._context, Operation.DESCRIBE, names)

    async def respond(self, *, durable: bool) -> MetadataResponse:
        """The answer, when all that it shows is durable. If the disk is too slow, the topics' state
        is unknown, and the error is retriable."""
        node = self._node
        topics = await (self._all_topics() if self._all else self._asked_topics())
        if not (durable and await committed(node)):
            async for topic in paced(topics):
                topic.error_code, topic.partitions = ErrorCode.LEADER_NOT_AVAILABLE, []
        host, port = node.advertised(self._context.listener)
        broker = MetadataResponseBroker(
            node_id=node.node_id, host=host, port=port, rack=node.config.broker_rack or None
        )
        operations = UNKNOWN_OPERATIONS
        if self._request.include_cluster_authorized_operations:
            operations = cluster_operations(node.authorizer, self._context)
        return MetadataResponse(
            brokers=[broker],
            cluster_id=node.cluster_id,
            controller_id=node.node_id,
            topics=topics,
            cluster_authorized_operations=operations,
        )

    async def _all_topics(self) -> list[MetadataResponseTopic]:
        node = self._node
        names = list(node.metadata.topics)
        denied = await hidden_topics(node.authorizer, self._context, names)
        return [
            await self._topic(topic)
            async for name in paced(names)
            if name not in denied and (topic := node.metadata.topics.get(name)) is not None
        ]

    async def _asked_topics(self) -> list[MetadataResponseTopic]:
        answers: dict[tuple[str | None, bytes], MetadataResponseTopic] = {}
        async for asked in paced(self._asked):
            key = (asked.name, asked.topic_id)
            if key not in answers:
                answers[key] = await self._asked_topic(asked)
        # A topic that is requested both by name and by id has one entry.
        found: dict[tuple[str | None, bytes], MetadataResponseTopic] = {}
        async for some in in_pieces(answers.values()):
            found |= {(each.name, each.topic_id): each for each in some}
        topics = list(found.values())
        await let_go(answers, found)
        return topics

    async def _asked_topic(self, asked: MetadataRequestTopic) -> MetadataResponseTopic:
        by_id = asked.topic_id != ZERO_UUID or asked.name is None
        metadata = self._node.metadata
        name = metadata.topic_name(asked.topic_id) if by_id else asked.name
        if name is not None and await self._denied([name]):
            return self._failed(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = None if name is None else metadata.topics.get(name)
        if topic is not None:
            return await self._topic(topic)
        if by_id:
            unnamed = MetadataRequestTopic(topic_id=asked.topic_id, name=None)
            return self._failed(unnamed, ErrorCode.UNKNOWN_TOPIC_ID)
        error = self._missing(name or "")
        failed = self._failed(asked, error)
        if error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            failed.topic_authorized_operations = self._operations(name or "")
        return failed

    def _operations(self, name: str) -> int:
        """The operations that are allowed to this client on a topic, which need not exist; unknown
        unless the request asks for them."""
        if not self._request.include_topic_authorized_operations:
            return UNKNOWN_OPERATIONS
        resource = topic_resource(name)
        return authorized_operations(self._node.authorizer, self._context, resource)

    def _missing(self, name: str) -> ErrorCode:
        error = self._create_errors.get(name)
        if error is not None:
            return error
        try:
            check_topic_name(name)
        except AdminError as bad_name:
            return bad_name.error
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _failed(self, asked: MetadataRequestTopic, error: ErrorCode) -> MetadataResponseTopic:
        name = asked.name
        if name is None and self._version < TOPIC_IDS_SINCE:
            name = ""
        return MetadataResponseTopic(
            error_code=error,
            name=name,
            topic_id=asked.topic_id,
            is_internal=name in INTERNAL_TOPICS,
        )

    async def _topic(self, topic: Topic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[
                self._partition(topic, index) async for index in paced(sorted(topic.partitions))
            ],
            topic_authorized_operations=self._operations(topic.name),
        )

    def _partition(self, topic: Topic, index: int) -> MetadataResponsePartition:
        state = topic.partitions[index]
        shown = partition_leadership(self._node, topic, index)
        return MetadataResponsePartition(
            error_code=shown.error,
            partition_index=index,
            leader_id=shown.leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=shown.isr,
            offline_replicas=shown.offline,
        )
