"""The calls of the admin client about topics: create, delete, list, describe, and add
partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek_client.admin.arguments import each_of, text, whole_number
from odradek_client.admin.requests import AdminPart
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import OdradekError, UnknownTopicOrPartition, error_for
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from odradek_protocol.schemas.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek_protocol.schemas.delete_topics import (
    TOPIC_STATES_SINCE,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek_protocol.schemas.metadata import MetadataResponseTopic


@dataclass(frozen=True)
class NewTopic:
    """A topic to create. -1 stands for the broker's default.

    `assignments`: for each partition, the node ids of its replicas. With assignments, `partitions`
    and `replication_factor` must be -1.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class CreatedTopic:
    """A created topic. For values that an old broker does not return: counts of -1, and a
    `topic_id` of 16 zero bytes."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


@dataclass(frozen=True)
class PartitionDescription:
    """A partition of a topic. `leader` is None while the partition has none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


@dataclass(frozen=True)
class TopicDescription:
    """A topic with its partitions."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionDescription]


class TopicAdmin(AdminPart):
    """The calls about topics."""

    async def create_topics(
        self,
        topics: NewTopic | Iterable[NewTopic],
        *more: NewTopic,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, CreatedTopic]:
        """Create topics, given one by one or as a list; returns results by name.

        Like Kafka's own admin client, the call returns when the controller has created the topics;
        other nodes may learn of them a moment later. Later calls of this object, and producers and
        consumers, wait until the nodes know the topics. Raises TopicAlreadyExists, InvalidTopic,
        InvalidPartitions, InvalidReplicationFactor, InvalidConfig, PolicyViolation,
        ClusterAuthorizationFailed.
        """
        given = [
            each
            for some in (topics, *more)
            for each in each_of(some, NewTopic, "topics", "NewTopic(name, partitions)")
        ]
        wanted = {topic.name: topic for topic in given}

        async def ask(names: list[str]) -> Outcomes[str, CreatedTopic]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=self.config.request_timeout_ms,
                validate_only=validate_only,
            )
            response: CreateTopicsResponse = await self.requests.to_controller(request)
            outcomes: Outcomes[str, CreatedTopic] = {}
            for topic in response.topics:
                if topic.error_code:
                    outcomes[topic.name] = _error(topic.name, topic.error_code, topic.error_message)
                else:
                    outcomes[topic.name] = CreatedTopic(
                        topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor
                    )
                there = topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
                if there and not validate_only:
                    count = topic.num_partitions if not topic.error_code else -1
                    self.requests.remember_created(topic.name, count if count > 0 else None)
            return outcomes

        return await self.requests.for_each(wanted, ask, raise_errors)

    async def delete_topics(
        self, topics: str | Iterable[str], *more: str, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete topics, given one by one or as a list, with all their records; returns results by
        name.

        Raises UnknownTopicOrPartition, TopicAuthorizationFailed, Refused (deletion is disabled).
        """
        wanted = [*each_of(topics, str, "topics", "the names of topics"), *more]

        async def ask(names: list[str]) -> Outcomes[str, None]:
            request = DeleteTopicsRequest(
                topic_names=names,
                topics=[DeleteTopicState(name=name) for name in names],
                timeout_ms=self.config.request_timeout_ms,
            )
            response: DeleteTopicsResponse = await self.requests.to_controller(
                request, adapt=_name_topics
            )
            outcomes: Outcomes[str, None] = {}
            for topic in response.responses:
                name = topic.name or ""
                outcomes[name] = (
                    _error(name, topic.error_code, topic.error_message)
                    if topic.error_code
                    else None
                )
                self.requests.forget_created(name)
            return outcomes

        return await self.requests.for_each(
            wanted, ask, raise_errors, final=(UnknownTopicOrPartition,)
        )

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted. Kafka's internal topics are included only with
        `internal`."""
        response = await self.requests.metadata(None)
        return sorted(
            topic.name
            for topic in response.topics
            if topic.name is not None and (internal or not topic.is_internal)
        )

    async def describe_topics(
        self, topics: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, TopicDescription]:
        """Partitions, leaders and replicas of topics, by name.

        Raises UnknownTopicOrPartition, InvalidTopic, TopicAuthorizationFailed.
        """
        wanted = each_of(topics, str, "topics", "the names of topics")

        async def ask(names: list[str]) -> Outcomes[str, TopicDescription]:
            response = await self.requests.metadata(names)
            return {
                topic.name or "": _error(topic.name or "", topic.error_code)
                if topic.error_code
                else _described(topic)
                for topic in response.topics
            }

        return await self.requests.for_each(
            wanted, ask, raise_errors, partition_of=lambda name: (name, 0), patient=False
        )

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Raise the number of partitions of topics to the given counts; returns results by name.

        Afterwards, records with a key may be sent to another partition than before. Raises
        InvalidPartitions, UnknownTopicOrPartition, TopicAuthorizationFailed.
        """

        async def ask(names: list[str]) -> Outcomes[str, None]:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(
                        name=name,
                        count=whole_number(counts[name], f"the count of {name!r}"),
                        assignments=None,
                    )
                    for name in names
                ],
                timeout_ms=self.config.request_timeout_ms,
                validate_only=validate_only,
            )
            response: CreatePartitionsResponse = await self.requests.to_controller(request)
            outcomes: Outcomes[str, None] = {}
            for topic in response.results:
                if topic.error_code:
                    outcomes[topic.name] = _error(topic.name, topic.error_code, topic.error_message)
                    continue
                outcomes[topic.name] = None
                if not validate_only:
                    self.requests.remember_created(topic.name, counts[topic.name])
            return outcomes

        return await self.requests.for_each(
            counts, ask, raise_errors, final=(UnknownTopicOrPartition,)
        )


def _error(topic: str, code: int, message: str | None = None) -> OdradekError:
    return error_for(code, message, about=f"topic {topic!r}")


def _creatable(topic: NewTopic) -> CreatableTopic:
    named = f"of topic {topic.name!r}"
    partitions = whole_number(topic.partitions, f"partitions {named}")
    replication_factor = whole_number(topic.replication_factor, f"replication_factor {named}")
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else partitions,
        replication_factor=-1 if topic.assignments else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
            for index, nodes in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=text(value, f"{name} {named}"))
            for name, value in topic.configs.items()
        ],
    )


def _name_topics(request: DeleteTopicsRequest, version: int) -> None:
    """Keep the topic names only in the field that the version has: `topics` from version 6 on,
    `topic_names` before."""
    if version >= TOPIC_STATES_SINCE:
        request.topic_names = []
    else:
        request.topics = []


def _described(topic: MetadataResponseTopic) -> TopicDescription:
    return TopicDescription(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        [
            PartitionDescription(
                part.partition_index,
                part.leader_id if part.leader_id >= 0 else None,
                part.leader_epoch,
                part.replica_nodes,
                part.isr_nodes,
                part.offline_replicas,
            )
            for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        ],
    )
