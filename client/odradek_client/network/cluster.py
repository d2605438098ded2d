"""The client's view of the cluster: brokers, leaders, epochs, topic ids, and their age.

A partition may have any leader, or none (D8).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from odradek_protocol.constants import NO_LEADER_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.metadata import (
    AUTO_CREATION_SWITCH_SINCE,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

#: The errors of a topic for which another request does not help.
TOPIC_REFUSALS = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(slots=True)
class PartitionInfo:
    """A partition in the metadata. `leader` is a node id, or None while there is no leader."""

    index: int
    leader: int | None
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: list[int] = field(default_factory=list)
    in_sync: list[int] = field(default_factory=list)
    offline: list[int] = field(default_factory=list)


@dataclass(slots=True)
class TopicInfo:
    """A topic in the metadata; `partitions` by index. `topic_id` is zero if the broker has none."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]


class ClusterView:
    """The newest metadata, and the topics whose metadata is requested.

    `version` grows with every change, so that data derived from the view can be cached.
    `needs_update`: true if an answer has contradicted the view.
    """

    def __init__(self, max_age_ms: int) -> None:
        self._max_age_ms = max_age_ms
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.topic_errors: dict[str, ErrorCode] = {}
        self.topic_names: dict[bytes, str] = {}
        self.controller_id: int | None = None
        self.cluster_id: str | None = None
        self.version = 0
        self.updated_ms: float | None = None
        self.all_topics = False
        self.needs_update = True
        self._wanted: dict[str, float | None] = {}
        #: The topics of the last request; None for all topics.
        self._requested: frozenset[str] | None = frozenset()

    # --- the requested topics ---

    @property
    def wanted_topics(self) -> Collection[str]:
        """The topics whose metadata is requested."""
        return self._wanted.keys()

    def want(self, topics: Iterable[str], *, until_ms: float | None = None) -> bool:
        """Add topics to the wanted topics; True if one of the added topics is not known yet.

        `until_ms`: the time after which `forget_expired` drops the topics; None: never.
        """
        news = False
        for topic in topics:
            news = news or topic not in self.topics
            if topic not in self._wanted:
                self._wanted[topic] = until_ms
            else:
                before_ms = self._wanted[topic]
                if before_ms is not None:
                    self._wanted[topic] = until_ms if until_ms is None else max(before_ms, until_ms)
        self.needs_update = self.needs_update or (news and not self.all_topics)
        return news

    @property
    def has_new_topics(self) -> bool:
        """True if some wanted topics were not in the last metadata request."""
        if self._requested is None:
            return False
        return self.all_topics or not self._requested.issuperset(self._wanted)

    def unwant(self, topics: Iterable[str]) -> None:
        """Stop requesting these topics; their metadata is dropped with the next answer."""
        for topic in topics:
            self._wanted.pop(topic, None)

    def set_wanted(self, topics: Iterable[str]) -> bool:
        """Replace the wanted topics by `topics`; True if one of `topics` is not known yet."""
        topics = list(topics)
        self.unwant(set(self._wanted) - set(topics))
        return self.want(topics)

    def forget_expired(self, now_ms: float) -> None:
        """Drop the topics whose time has passed."""
        self.unwant(
            [t for t, until in self._wanted.items() if until is not None and until <= now_ms]
        )

    def set_all_topics(self, wanted: bool) -> None:
        """Request all topics, for a subscription by pattern."""
        if wanted and not self.all_topics:
            self.needs_update = True
        self.all_topics = wanted

    # --- the metadata ---

    def partitions_of(self, topic: str) -> list[int] | None:
        """The numbers of the partitions, sorted; None if the topic is not known."""
        info = self.topics.get(topic)
        return None if info is None else sorted(info.partitions)

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        info = self.topics.get(topic)
        return None if info is None else info.partitions.get(partition)

    def leader_of(self, topic: str, partition: int) -> int | None:
        """The leader of a partition; None if it is not known or there is none."""
        info = self.partition(topic, partition)
        return None if info is None else info.leader

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        """The epoch of the leader; -1 if it is not known."""
        info = self.partition(topic, partition)
        return NO_LEADER_EPOCH if info is None else info.leader_epoch

    def topic_id(self, topic: str) -> bytes:
        """The topic's id; 16 zero bytes if the broker has none."""
        info = self.topics.get(topic)
        return ZERO_UUID if info is None else info.topic_id

    def is_stale(self, now_ms: float) -> bool:
        """True if it is time to request metadata again."""
        return (
            self.needs_update
            or self.updated_ms is None
            or now_ms - self.updated_ms >= self._max_age_ms
        )

    def stale_at_ms(self, now_ms: float) -> float:
        """The time of the next request for metadata."""
        if self.needs_update or self.updated_ms is None:
            return now_ms
        return self.updated_ms + self._max_age_ms

    # --- requests and answers ---

    def request(self, version: int, *, allow_auto_create: bool) -> MetadataRequest:
        """The request for the topics, to a broker that serves `version`."""
        self._requested = None if self.all_topics else frozenset(self._wanted)
        topics: list[MetadataRequestTopic] | None
        if self.all_topics:
            topics = [] if version == 0 else None
        else:
            topics = [MetadataRequestTopic(name=name) for name in self._wanted]
        if version < AUTO_CREATION_SWITCH_SINCE or self.all_topics:
            allow_auto_create = True
        return MetadataRequest(topics=topics, allow_auto_topic_creation=allow_auto_create)

    def update(self, response: MetadataResponse, now_ms: float) -> bool:
        """Take over an answer; True if anything except the age of the metadata changed.

        Brokers, topics and errors are replaced as a whole. Only a partition with an older leader
        epoch in the answer keeps its known state, because a broker with old metadata must not
        direct the client to an old leader (KIP-320).
        """
        brokers = {
            broker.node_id: BrokerAddress(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        topics: dict[str, TopicInfo] = {}
        errors: dict[str, ErrorCode] = {}
        for answer in response.topics:
            if answer.name is None:
                continue
            if answer.error_code:
                errors[answer.name] = ErrorCode.of(answer.error_code)
            elif not _is_whole(answer):
                errors[answer.name] = ErrorCode.INVALID_PARTITIONS
            else:
                topics[answer.name] = self._topic(answer, self.topics.get(answer.name))
        controller = response.controller_id if response.controller_id >= 0 else None
        news = (brokers, topics, errors, controller)
        changed = news != (self.brokers, self.topics, self.topic_errors, self.controller_id)
        self.brokers, self.topics, self.topic_errors, self.controller_id = news
        self.topic_names = {
            info.topic_id: name for name, info in topics.items() if info.topic_id != ZERO_UUID
        }
        self.cluster_id = response.cluster_id or self.cluster_id
        self.updated_ms = now_ms
        self.needs_update = self._incomplete(topics, errors)
        if changed:
            self.version += 1
        return changed

    def update_leader(
        self, topic: str, partition: int, leader: int, epoch: int, node: BrokerAddress | None = None
    ) -> bool:
        """Take over a new leader that the answer to another request names (KIP-951). True if the
        leader was new."""
        if node is not None and node.node_id not in self.brokers:
            self.brokers[node.node_id] = node
        info = self.partition(topic, partition)
        if info is None or leader not in self.brokers or epoch <= info.leader_epoch:
            return False
        info.leader, info.leader_epoch = leader, epoch
        self.version += 1
        return True

    def add_broker(self, broker: BrokerAddress) -> None:
        """Take over an address from the answer to another request, such as FindCoordinator."""
        if self.brokers.get(broker.node_id) != broker:
            self.brokers[broker.node_id] = broker
            self.version += 1

    def _topic(self, answer: MetadataResponseTopic, known: TopicInfo | None) -> TopicInfo:
        if known is not None and known.topic_id != answer.topic_id:
            known = None  # the topic was created again, with epochs from 0 on
        partitions = {}
        for part in sorted(answer.partitions, key=lambda part: part.partition_index):
            index = part.partition_index
            before = None if known is None else known.partitions.get(index)
            if before is not None and 0 <= part.leader_epoch < before.leader_epoch:
                partitions[index] = before
                continue
            partitions[index] = PartitionInfo(
                index,
                part.leader_id if part.leader_id >= 0 else None,
                part.leader_epoch,
                part.replica_nodes,
                part.isr_nodes,
                part.offline_replicas,
            )
        return TopicInfo(answer.name or "", answer.topic_id, answer.is_internal, partitions)

    def _incomplete(self, topics: Mapping[str, TopicInfo], errors: Mapping[str, ErrorCode]) -> bool:
        """True if a requested topic is missing and was not refused by the broker, so that another
        request may soon find it."""
        for name in self._wanted:
            if name not in topics and errors.get(name) not in TOPIC_REFUSALS:
                return True
        return False


def _is_whole(topic: MetadataResponseTopic) -> bool:
    """True if the partitions are those from 0 to their number. Any other answer is wrong, and might
    let a client make a queue for each of two billion partitions."""
    found = {each.partition_index for each in topic.partitions}
    return bool(found) and min(found) == 0 and max(found) == len(found) - 1
