"""Configured resources, Kafka's ConfigResource: topics, brokers, groups, subscriptions to client metrics.

A kind of resource knows which settings there are, what a change must satisfy and how all of it is
described. `changes.py` decides on changes with it; nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from odradek_broker.config.effective import ConfigEntry
from odradek_broker.config.types import Kind
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.configs.brokers import BrokerConfigResource
from odradek_broker.metadata.configs.client_metrics import ClientMetricsConfigResource
from odradek_broker.metadata.configs.groups import GroupConfigResource
from odradek_broker.metadata.configs.topics import TopicConfigResource
from odradek_broker.metadata.errors import AdminError
from odradek_broker.security.authorizer import CLUSTER, Resource, group, topic
from odradek_protocol.constants import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from odradek_protocol.errors import ErrorCode

#: Groups, and subscriptions, that may have settings. Neither has to exist, so that nothing else limits
#: their number.
_NAMES_MAX = 10_000
_NAMES_LIMITED = frozenset({RESOURCE_CLIENT_METRICS, RESOURCE_GROUP})


class ResourceKind(Protocol):
    """One kind of resource.

    `bad_value`: the error of a value that is refused.
    """

    bad_value: ErrorCode

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        """AdminError unless there is such a resource to describe."""
        ...

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        """AdminError unless there is such a resource to change."""
        ...

    def kind_of(self, key: str) -> Kind:
        """The kind of a setting that may be changed. ConfigError or AdminError otherwise."""
        ...

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> str | None:
        """The effective value of a list, as text; None if lists are set only as a whole here."""
        ...

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        """Its own settings after a change, as they are stored. ConfigError for a bad one."""
        ...

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """AdminError where a request that names these keys, and leaves these settings, may not."""
        ...

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        """Its settings; with `keys` only those."""
        ...


_KINDS: dict[int, ResourceKind] = {
    RESOURCE_TOPIC: TopicConfigResource(),
    RESOURCE_BROKER: BrokerConfigResource(),
    RESOURCE_CLIENT_METRICS: ClientMetricsConfigResource(),
    RESOURCE_GROUP: GroupConfigResource(),
}


def check_name_limit(metadata: ClusterMetadata, resource_type: int, name: str, added: int) -> None:
    """AdminError if a resource more with settings would be too many.

    `added`: names that the same request has brought before.
    """
    if resource_type not in _NAMES_LIMITED:
        return
    names = metadata.configured(resource_type)
    if name not in names and len(names) + added >= _NAMES_MAX:
        raise AdminError(
            ErrorCode.POLICY_VIOLATION,
            f"{_NAMES_MAX} names of this kind have settings already; delete some of them first.",
        )


def configured_resource(resource_type: int, name: str) -> Resource:
    """The resource whose rights count for its settings."""
    if resource_type == RESOURCE_TOPIC:
        return topic(name)
    if resource_type == RESOURCE_GROUP:
        return group(name)
    return CLUSTER


def resource_kind(resource_type: int) -> ResourceKind:
    """The kind of a resource. AdminError for a type that has no settings here."""
    kind = _KINDS.get(resource_type)
    if kind is None:
        raise AdminError(
            ErrorCode.INVALID_REQUEST,
            f"Resources of type {resource_type} have no settings on this broker.",
        )
    return kind
