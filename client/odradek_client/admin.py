"""Topics, configurations, partitions, groups and transactions of a cluster.

    async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
        await admin.create_topics(NewTopic("flights", partitions=6))

A call about one thing raises its error. A call about many tries all of them and raises the first
error afterwards, with the others in its notes; with `raise_errors=False` it leaves the errors in
`Results.errors` instead. Changes go to the controller; one that has moved is looked up again.
"""

from __future__ import annotations

import random as random_module
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import TracebackType
from typing import Any, Self, TypeVar

from odradek_client.admin_groups import GroupAdmin
from odradek_client.admin_history import HistoryAdmin
from odradek_client.admin_partitions import EARLIEST, LATEST, PartitionAdmin
from odradek_client.admin_results import Results, settle
from odradek_client.admin_transactions import TransactionAdmin
from odradek_client.cluster import BrokerAddress
from odradek_client.config import AdminConfig
from odradek_client.errors import OdradekError, UnknownTopicOrPartition, error_for
from odradek_client.network import Network
from odradek_client.retry import Backoff
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek_protocol.schemas.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek_protocol.schemas.describe_cluster import DescribeClusterRequest
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek_protocol.schemas.metadata import MetadataResponseTopic

__all__ = ["EARLIEST", "LATEST", "Admin"]

T = TypeVar("T")

_DELETE_BY_STATE_FROM = 6


class ResourceType(IntEnum):
    """What has a configuration."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigOperation(IntEnum):
    """What to do with one setting; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True)
class NewTopic:
    """A topic to create. -1 stands for the broker's own default.

    `assignments`: partition to the node ids of its replicas; then the counts are left at -1.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class CreatedTopic:
    """What became of a new topic; -1 and None where an old broker does not say."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int


@dataclass(frozen=True)
class PartitionDescription:
    """One partition. `leader` is None while there is none."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


@dataclass(frozen=True)
class TopicDescription:
    """One topic."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: list[PartitionDescription]


@dataclass(frozen=True)
class ClusterDescription:
    """The brokers. `controller_id` is None if it is not known."""

    cluster_id: str | None
    controller_id: int | None
    brokers: list[BrokerAddress]


@dataclass(frozen=True)
class BrokerDescription:
    """What a broker can do.

    `apis`: the lowest and highest version of each API, by its name (its number if this client has no
    name for it). `supported_features`: the lowest and highest level that it could have;
    `finalized_features`: the level that is in force in the cluster.
    """

    node_id: int
    apis: dict[str, tuple[int, int]]
    supported_features: dict[str, tuple[int, int]]
    finalized_features: dict[str, int]


@dataclass(frozen=True)
class ConfigResource:
    """A topic, a broker or a group whose configuration is meant. A broker's name is its node id."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None) -> ConfigResource:
        """A broker; None for the default of all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """A consumer group (KIP-848)."""
        return cls(ResourceType.GROUP, group_id)


@dataclass(frozen=True)
class ConfigEntry:
    """One setting. `value` is None if it is sensitive or not set."""

    name: str
    value: str | None
    source: ConfigSource
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None


@dataclass(frozen=True)
class ConfigChange:
    """One setting to change."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


class Admin(TransactionAdmin, GroupAdmin, PartitionAdmin, HistoryAdmin):
    """Administers a cluster. Settings are the rows of `AdminConfig`.

    Use it with `async with`, or call `start` and `close`. Every call tries for
    `default_api_timeout_ms` at most.
    """

    def __init__(self, *, random: random_module.Random | None = None, **settings: Any) -> None:
        self.config = AdminConfig.from_settings(settings)
        rng = random or random_module.Random()
        self._network = Network(self.config, random=rng)
        self._backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, rng)
        self._created = OrderedDict()

    # --- life -------------------------------------------------------------------------------------

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connect. MetadataTimeout if no broker can be reached within `timeout_ms`
        (default_api_timeout_ms if None).
        """
        await self._network.start(timeout_ms)

    async def close(self) -> None:
        """Close. May be called again."""
        await self._network.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- topics -----------------------------------------------------------------------------------

    async def create_topics(
        self,
        topics: NewTopic | Iterable[NewTopic],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, CreatedTopic]:
        """Create topics; what became of each, by name.

        It returns when the controller has made them, as Kafka's own admin does: of a cluster's other
        nodes some may hear of them a moment later. Calls of this object about these topics wait for
        that, and so do producers and consumers. Raises TopicAlreadyExists, InvalidTopic, InvalidPartitions, InvalidReplicationFactor,
        InvalidConfig, PolicyViolation, ClusterAuthorizationFailed.
        """
        wanted = {
            t.name: t for t in _each(topics, NewTopic, "topics", "NewTopic(name, partitions)")
        }
        results: Results[str, CreatedTopic] = Results()

        async def ask(names: list[str]) -> dict[str, OdradekError]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=self.config.request_timeout_ms,
                validate_only=validate_only,
            )
            response = await self._to_controller(request)
            errors = {}
            for topic in response.topics:
                if topic.error_code:
                    errors[topic.name] = _error(topic, f"topic {topic.name!r}")
                else:
                    results[topic.name] = CreatedTopic(
                        topic.name, topic.topic_id, topic.num_partitions, topic.replication_factor
                    )
                there = topic.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
                if there and not validate_only:
                    count = topic.num_partitions if not topic.error_code else -1
                    self._remember_created(topic.name, count if count > 0 else None)
            return errors

        errors = await self._all(list(wanted), ask)
        return settle(results, errors, raise_errors)

    async def delete_topics(
        self, topics: str | Iterable[str], *, raise_errors: bool = True
    ) -> Results[str, None]:
        """Delete topics, with everything in them; by name.

        Raises UnknownTopicOrPartition, TopicAuthorizationFailed, Refused (deletion is disabled).
        """
        names = _each(topics, str, "topics", "the names of topics")
        results: Results[str, None] = Results()

        async def ask(names: list[str]) -> dict[str, OdradekError]:
            request = DeleteTopicsRequest(
                topic_names=names,
                topics=[DeleteTopicState(name=name) for name in names],
                timeout_ms=self.config.request_timeout_ms,
            )
            response = await self._to_controller(request, shape=_shape_delete_topics)
            errors = {}
            for topic in response.responses:
                name = topic.name or ""
                if topic.error_code:
                    errors[name] = _error(topic, f"topic {name!r}")
                else:
                    results[name] = None
                self._created.pop(name, None)
            return errors

        errors = await self._all(names, ask, final=(UnknownTopicOrPartition,))
        return settle(results, errors, raise_errors)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, in order; Kafka's own ones too if `internal`."""
        response = await self._metadata(None)
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
        names = _each(topics, str, "topics", "the names of topics")
        results: Results[str, TopicDescription] = Results()

        async def ask(names: list[str]) -> dict[str, OdradekError]:
            response = await self._metadata(names)
            errors: dict[str, OdradekError] = {}
            for topic in response.topics:
                name = topic.name or ""
                if topic.error_code:
                    errors[name] = error_for(topic.error_code, about=f"topic {name!r}")
                else:
                    results[name] = _described(topic)
            return errors

        errors = await self._all(names, ask, place_of=lambda name: (name, 0), patient=False)
        return settle(results, errors, raise_errors)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[str, None]:
        """Raise the number of partitions of topics to the counts given; by name.

        Keyed records go to other partitions from then on. Raises InvalidPartitions,
        UnknownTopicOrPartition, TopicAuthorizationFailed.
        """
        results: Results[str, None] = Results()

        async def ask(names: list[str]) -> dict[str, OdradekError]:
            request = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(
                        name=name,
                        count=_number(counts[name], f"the count of {name!r}"),
                        assignments=None,
                    )
                    for name in names
                ],
                timeout_ms=self.config.request_timeout_ms,
                validate_only=validate_only,
            )
            response = await self._to_controller(request)
            errors = {}
            for topic in response.results:
                if topic.error_code:
                    errors[topic.name] = _error(topic, f"topic {topic.name!r}")
                else:
                    results[topic.name] = None
                    if not validate_only:
                        self._remember_created(topic.name, counts[topic.name])
            return errors

        errors = await self._all(list(counts), ask, final=(UnknownTopicOrPartition,))
        return settle(results, errors, raise_errors)

    # --- configurations ---------------------------------------------------------------------------

    async def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        documentation: bool = False,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of topics, brokers and groups; all of them, or those named.

        Raises UnknownTopicOrPartition, TopicAuthorizationFailed, ClusterAuthorizationFailed.
        """
        wanted = _each(resources, ConfigResource, "resources", 'ConfigResource.topic("name")')
        keys = None if names is None else list(names)
        results: Results[ConfigResource, dict[str, ConfigEntry]] = Results()

        async def ask(asked: list[ConfigResource]) -> dict[ConfigResource, OdradekError]:
            errors = {}
            for node_id, group in (await self._by_home(asked)).items():
                request = DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(
                            resource_type=r.type, resource_name=r.name, configuration_keys=keys
                        )
                        for r in group
                    ],
                )
                version = await self._network.version_for(node_id, ApiKey.DESCRIBE_CONFIGS)
                request.include_documentation = documentation and version >= 3
                response = await self._network.send(node_id, request, max_version=version)
                for result in response.results:
                    resource = ConfigResource(
                        ResourceType(result.resource_type), result.resource_name
                    )
                    if result.error_code:
                        errors[resource] = _error(result, _named(resource))
                    else:
                        results[resource] = {c.name: _entry(c) for c in result.configs}
            return errors

        errors = await self._all(wanted, ask, place_of=lambda resource: (resource.name, 0))
        return settle(results, errors, raise_errors)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None] | Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, None]:
        """Change single settings and leave the others (KIP-339); by resource.

        Changes are name to value, None going back to the default, or `ConfigChange`s. Raises
        InvalidConfig, UnknownTopicOrPartition, TopicAuthorizationFailed, PolicyViolation.
        """
        results: Results[ConfigResource, None] = Results()
        _each(changes, ConfigResource, "changes", 'ConfigResource.topic("name")')
        wanted = {resource: _changes(resource, given) for resource, given in changes.items()}

        async def ask(asked: list[ConfigResource]) -> dict[ConfigResource, OdradekError]:
            errors = {}
            for node_id, group in (await self._by_home(asked)).items():
                request = IncrementalAlterConfigsRequest(
                    resources=[
                        AlterConfigsResource(
                            resource_type=r.type, resource_name=r.name, configs=wanted[r]
                        )
                        for r in group
                    ],
                    validate_only=validate_only,
                )
                response = await self._network.send(node_id, request)
                for result in response.responses:
                    resource = ConfigResource(
                        ResourceType(result.resource_type), result.resource_name
                    )
                    if result.error_code:
                        errors[resource] = _error(result, _named(resource))
                    else:
                        results[resource] = None
            return errors

        errors = await self._all(list(wanted), ask, final=(UnknownTopicOrPartition,))
        return settle(results, errors, raise_errors)

    # --- the cluster --------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers, the controller and the cluster's id."""

        async def ask() -> ClusterDescription:
            node_id = await self._network.least_loaded_node()
            try:
                await self._network.version_for(node_id, ApiKey.DESCRIBE_CLUSTER)
            except OdradekError:
                # Before Kafka 2.8 metadata says the same.
                await self._network.refresh_metadata()
                view = self._network.cluster
                brokers = sorted(view.brokers.values(), key=lambda broker: broker.node_id)
                return ClusterDescription(view.cluster_id, view.controller_id, brokers)
            response = await self._network.send(node_id, DescribeClusterRequest())
            if response.error_code:
                raise error_for(response.error_code, response.error_message, about="cluster")
            brokers = [
                BrokerAddress(b.broker_id, b.host, b.port, b.rack)
                for b in sorted(response.brokers, key=lambda broker: broker.broker_id)
            ]
            controller = response.controller_id if response.controller_id >= 0 else None
            return ClusterDescription(response.cluster_id, controller, brokers)

        return await self._retrying(ask)

    async def describe_broker(self, node_id: int) -> BrokerDescription:
        """Which APIs and features a broker has. ConnectionLost for a node that is not there."""
        request = ApiVersionsRequest(client_software_name="odradek", client_software_version="0")
        response = await self._retrying(lambda: self._network.send(node_id, request))
        if response.error_code:
            raise error_for(response.error_code, about=f"node {node_id}")
        return BrokerDescription(
            node_id,
            {
                _api_name(api.api_key): (api.min_version, api.max_version)
                for api in response.api_keys
            },
            {
                each.name: (each.min_version, each.max_version)
                for each in response.supported_features
            },
            {each.name: each.max_version_level for each in response.finalized_features},
        )

    async def _by_home(
        self, resources: Iterable[ConfigResource]
    ) -> dict[int, list[ConfigResource]]:
        """Which node to ask: a broker about itself, any about topics."""
        homes: dict[int, list[ConfigResource]] = {}
        for resource in resources:
            if resource.type is ResourceType.BROKER and resource.name:
                node_id = int(resource.name)
            else:
                node_id = await self._network.least_loaded_node()
            homes.setdefault(node_id, []).append(resource)
        return homes


def _each(given: Any, kind: type[T], what: str, give: str) -> list[T]:
    """One thing, or several, as a list. TypeError for anything else, before it is sent."""
    try:
        items: list[Any] = [given] if isinstance(given, kind | str) else list(given)
    except TypeError:
        items = [given]
    for item in items:
        if not isinstance(item, kind):
            raise TypeError(f"{what}: {item!r} is {type(item).__name__}; give {give}")
    return items


def _number(given: Any, what: str) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{what} is {type(given).__name__}; give a whole number")
    return given


def _text(given: Any, what: str) -> str | None:
    if given is not None and not isinstance(given, str):
        raise TypeError(f"{what} is {type(given).__name__}; give a string, as {str(given)!r}")
    return given


def _api_name(key: int) -> str:
    try:
        return APIS[ApiKey(key)].name
    except (KeyError, ValueError):
        return str(key)


def _error(item: Any, about: str) -> OdradekError:
    return error_for(item.error_code, getattr(item, "error_message", None), about=about)


def _named(resource: ConfigResource) -> str:
    return f"{resource.type.name.lower()} {resource.name!r}"


def _creatable(topic: NewTopic) -> CreatableTopic:
    named = f"of topic {topic.name!r}"
    partitions = _number(topic.partitions, f"partitions {named}")
    replication_factor = _number(topic.replication_factor, f"replication_factor {named}")
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.assignments else partitions,
        replication_factor=-1 if topic.assignments else replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
            for index, nodes in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=_text(value, f"{name} {named}"))
            for name, value in topic.configs.items()
        ],
    )


def _shape_delete_topics(request: DeleteTopicsRequest, version: int) -> None:
    """Names go in another field from version 6 on."""
    if version >= _DELETE_BY_STATE_FROM:
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


def _entry(config: Any) -> ConfigEntry:
    try:
        source = ConfigSource(config.config_source)
    except ValueError:
        source = ConfigSource.UNKNOWN
    return ConfigEntry(
        config.name,
        config.value,
        source,
        source is ConfigSource.DEFAULT or config.is_default,
        config.read_only,
        config.is_sensitive,
        config.documentation,
    )


def _changes(
    resource: ConfigResource, given: Mapping[str, str | None] | Iterable[ConfigChange]
) -> list[AlterableConfig]:
    if isinstance(given, Mapping):
        given = [
            ConfigChange(
                name, value, ConfigOperation.DELETE if value is None else ConfigOperation.SET
            )
            for name, value in given.items()
        ]
    return [
        AlterableConfig(
            name=c.name,
            config_operation=c.operation,
            value=_text(c.value, f"{c.name} of {_named(resource)}"),
        )
        for c in given
    ]
