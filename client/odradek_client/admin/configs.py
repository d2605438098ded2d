"""The calls of the admin client about configurations of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeVar

from odradek_client.admin.arguments import each_of, text
from odradek_client.admin.requests import AdminPart
from odradek_client.admin.results import Outcomes, Results
from odradek_client.errors import (
    OdradekError,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
    error_for,
)
from odradek_protocol.common_structs import AlterConfigsResourceResponse
from odradek_protocol.constants import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.describe_configs import (
    DOCUMENTATION_SINCE,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek_protocol.schemas.list_config_resources import (
    RESOURCE_TYPES_SINCE,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


class ResourceType(IntEnum):
    """The types of resources that have a configuration."""

    TOPIC = RESOURCE_TOPIC
    BROKER = RESOURCE_BROKER
    BROKER_LOGGER = RESOURCE_BROKER_LOGGER
    CLIENT_METRICS = RESOURCE_CLIENT_METRICS
    GROUP = RESOURCE_GROUP


class ConfigSource(IntEnum):
    """The source of a setting's value."""

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
class ConfigResource:
    """A resource with a configuration: a topic, a broker, a broker's loggers, a group or a
    subscription to client metrics. The name of a broker is its node id."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None) -> ConfigResource:
        """A broker by its node id. None: the defaults of all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def broker_logger(cls, node_id: int) -> ConfigResource:
        """The loggers of a broker: each logger is a setting, whose value is the log level
        (KIP-412)."""
        return cls(ResourceType.BROKER_LOGGER, str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """A consumer group (KIP-848)."""
        return cls(ResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """A subscription to metrics of clients (KIP-714)."""
        return cls(ResourceType.CLIENT_METRICS, name)


@dataclass(frozen=True)
class ConfigEntry:
    """A setting in the broker's description. `value` is None if it is sensitive or not set."""

    name: str
    value: str | None
    source: ConfigSource
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None = None


@dataclass(frozen=True)
class ConfigChange:
    """A change of a single setting."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


class ConfigAdmin(AdminPart):
    """The calls about configurations."""

    async def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        documentation: bool = False,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of topics, brokers and groups: all settings of each, or only the named
        settings.

        Raises UnknownTopicOrPartition, TopicAuthorizationFailed, ClusterAuthorizationFailed.
        """
        wanted = each_of(resources, ConfigResource, "resources", 'ConfigResource.topic("name")')
        keys = None if names is None else list(names)

        async def ask(
            node_id: int, some: list[ConfigResource]
        ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=r.type, resource_name=r.name, configuration_keys=keys
                    )
                    for r in some
                ],
            )
            version = await self.network.version_for(node_id, ApiKey.DESCRIBE_CONFIGS)
            request.include_documentation = documentation and version >= DOCUMENTATION_SINCE
            response: DescribeConfigsResponse = await self.network.send(
                node_id, request, max_version=version
            )
            outcomes: Outcomes[ConfigResource, dict[str, ConfigEntry]] = {}
            for result, resource in _known(response.results):
                outcomes[resource] = (
                    _error(resource, result)
                    if result.error_code
                    else {config.name: _entry(config) for config in result.configs}
                )
            return outcomes

        async def ask_nodes(
            asked: list[ConfigResource],
        ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
            return await self.requests.ask_nodes(await self._by_node(asked), ask)

        return await self.requests.for_each(
            wanted, ask_nodes, raise_errors, partition_of=lambda resource: (resource.name, 0)
        )

    async def list_config_resources(
        self, types: ResourceType | Iterable[ResourceType] = ()
    ) -> list[ConfigResource]:
        """The resources of these types that have settings, by default of all types (KIP-1142). All
        topics and brokers are among them; groups and subscriptions only if they have settings of
        their own. The result is sorted by type and name.

        With brokers before Kafka 4.1, every request except for CLIENT_METRICS raises
        UnsupportedByBroker. Also raises ClusterAuthorizationFailed.
        """
        wanted = each_of(types, ResourceType, "types", "ResourceType")

        async def ask() -> list[ConfigResource]:
            node_id = await self.network.least_loaded_node()
            version = await self.network.version_for(node_id, ApiKey.LIST_CONFIG_RESOURCES)
            request = ListConfigResourcesRequest()
            if version >= RESOURCE_TYPES_SINCE:
                request.resource_types = [int(each) for each in wanted]
            elif set(wanted) != {ResourceType.CLIENT_METRICS}:
                raise UnsupportedByBroker("the broker lists subscriptions to metrics only")
            answer: ListConfigResourcesResponse = await self.network.send(
                node_id, request, max_version=version
            )
            if answer.error_code:
                raise error_for(answer.error_code, None, about="the resources with settings")
            return sorted(
                (resource for _, resource in _known(answer.config_resources)),
                key=lambda each: (each.type, each.name),
            )

        return await self.requests.retrying(ask)

    async def list_client_metrics(self) -> list[str]:
        """The names of all subscriptions to metrics of clients, sorted.

        Raises ClusterAuthorizationFailed.
        """
        return [each.name for each in await self.list_config_resources(ResourceType.CLIENT_METRICS)]

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None] | Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Results[ConfigResource, None]:
        """Change single settings and leave the others (KIP-339); returns results by resource.

        Changes are `ConfigChange`s, or a mapping of names to new values, in which None restores the
        default. Raises InvalidConfig, UnknownTopicOrPartition, TopicAuthorizationFailed,
        PolicyViolation.
        """
        each_of(changes, ConfigResource, "changes", 'ConfigResource.topic("name")')
        wanted = {resource: _changes(resource, given) for resource, given in changes.items()}

        async def ask(node_id: int, some: list[ConfigResource]) -> Outcomes[ConfigResource, None]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=r.type, resource_name=r.name, configs=wanted[r]
                    )
                    for r in some
                ],
                validate_only=validate_only,
            )
            response: IncrementalAlterConfigsResponse = await self.network.send(node_id, request)
            outcomes: Outcomes[ConfigResource, None] = {}
            for result, resource in _known(response.responses):
                outcomes[resource] = _error(resource, result) if result.error_code else None
            return outcomes

        async def ask_nodes(asked: list[ConfigResource]) -> Outcomes[ConfigResource, None]:
            return await self.requests.ask_nodes(await self._by_node(asked), ask)

        return await self.requests.for_each(
            wanted, ask_nodes, raise_errors, final=(UnknownTopicOrPartition,)
        )

    async def _by_node(
        self, resources: Iterable[ConfigResource]
    ) -> dict[int, list[ConfigResource]]:
        """The resources, grouped by the node that gets the request: the broker itself for a
        broker's settings, any broker for other settings."""
        by_node: dict[int, list[ConfigResource]] = {}
        for resource in resources:
            if resource.type in _OF_ONE_BROKER and resource.name:
                node_id = int(resource.name)
            else:
                node_id = await self.network.least_loaded_node()
            by_node.setdefault(node_id, []).append(resource)
        return by_node


_RESOURCE_TYPES = frozenset(map(int, ResourceType))
_OF_ONE_BROKER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)


class _OfResource(Protocol):
    resource_type: int
    resource_name: str


_Listed = TypeVar("_Listed", bound=_OfResource)


def _known(listed: Iterable[_Listed]) -> Iterator[tuple[_Listed, ConfigResource]]:
    """The parts of an answer with their resources, without those of types that this client does not
    know."""
    for each in listed:
        if each.resource_type in _RESOURCE_TYPES:
            yield each, ConfigResource(ResourceType(each.resource_type), each.resource_name)


def _error(
    resource: ConfigResource, result: DescribeConfigsResult | AlterConfigsResourceResponse
) -> OdradekError:
    return error_for(result.error_code, result.error_message, about=_named(resource))


def _named(resource: ConfigResource) -> str:
    return f"{resource.type.name.lower()} {resource.name!r}"


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
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
            value=text(c.value, f"{c.name} of {_named(resource)}"),
        )
        for c in given
    ]
