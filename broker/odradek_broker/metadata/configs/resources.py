"""Configured resources, Kafka's ConfigResource: topics, brokers, groups, subscriptions to client
metrics.

A kind of resource knows which settings there are, what a change must satisfy and how all of it is
described. `changes.py` decides on changes with it; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from odradek_broker.config.effective import ConfigEntry, SynonymEntry, topic_setting
from odradek_broker.config.group_settings import METRICS_SETTINGS
from odradek_broker.config.types import (
    ANYTHING,
    ConfigError,
    ConfigSource,
    Kind,
    read_value,
    write_value,
)
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.configs.brokers import BrokerConfigResource
from odradek_broker.metadata.configs.groups import GroupConfigResource
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics.checks import check_topic_name
from odradek_broker.security.authorizer import CLUSTER, Resource, group, topic
from odradek_protocol.constants import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from odradek_protocol.errors import ErrorCode


class ClientMetricsConfigResource:
    """A subscription to client metrics by its name; it need not exist."""

    bad_value = ErrorCode.INVALID_CONFIG

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
            )

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")

    def kind_of(self, key: str) -> Kind:
        row = METRICS_SETTINGS.get(key)
        if row is None:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}"
            )
        return row.kind

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> None:
        return None

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        checked = {}
        for key, text in after.items():
            kind = self.kind_of(key)
            row = METRICS_SETTINGS[key]
            value = read_value(key, text, kind, ANYTHING)
            try:
                read_value(key, text, kind, row.check)
            except ConfigError as error:
                if kind is Kind.INT:
                    raise AdminError(ErrorCode.INVALID_REQUEST, str(error)) from error
                raise
            checked[key] = write_value(value)
        return checked

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Nothing more is asked of these."""

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        given = metadata.overrides(RESOURCE_CLIENT_METRICS, name)
        return [
            ConfigEntry(
                name=row.name,
                value=given.get(row.name, write_value(row.default)),
                source=(ConfigSource.CLIENT_METRICS if row.name in given else ConfigSource.DEFAULT),
                read_only=False,
                sensitive=False,
                kind=row.kind,
                doc=row.doc,
                synonyms=(
                    (SynonymEntry(row.name, given[row.name], ConfigSource.CLIENT_METRICS),)
                    if row.name in given
                    else ()
                ),
            )
            for row in METRICS_SETTINGS.values()
            if keys is None or row.name in keys
        ]


class TopicConfigResource:
    """A topic by its name; it must exist."""

    bad_value = ErrorCode.INVALID_CONFIG

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        check_topic_name(name)
        if name not in metadata.topics:
            raise AdminError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        self.check_described(metadata, name)

    def kind_of(self, key: str) -> Kind:
        return topic_setting(key).kind

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> str:
        return metadata.topic_configs.text(key, metadata.topic_overrides(name))

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        return metadata.topic_configs.validate(after, metadata.topic_overrides(name))

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Nothing more is asked of these."""

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        return metadata.topic_configs.describe(metadata.topic_overrides(name), keys)


#: Groups, and subscriptions, that may have settings. Neither has to exist, so that nothing else
#: limits their number.
_NAMES_MAX = 10_000
_NAMES_LIMITED = frozenset({RESOURCE_CLIENT_METRICS, RESOURCE_GROUP})


class ResourceKind(Protocol):
    """A kind of resource.

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
        """The resource's own settings after a change, as they are stored. Raises ConfigError for a
        bad one."""
        ...

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """AdminError where a request that names these keys, and leaves these settings, may not."""
        ...

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        """The resource's settings; with `keys` only those."""
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
