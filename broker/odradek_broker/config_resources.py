"""What has settings: topics, brokers, groups, subscriptions to client metrics. One class for each kind.

A kind knows which settings there are, what a change must satisfy, and how all of it is described.
`config_admin` decides on changes with it; nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol

from odradek_broker.authorizer import CLUSTER, Resource, group, topic
from odradek_broker.config import BrokerConfig, find_setting, is_foreign, with_dynamic
from odradek_broker.config_types import (
    ANYTHING,
    ConfigError,
    ConfigSource,
    Kind,
    UnknownSettingError,
    read_value,
    write_value,
)
from odradek_broker.group_keys import (
    GROUP_SETTINGS,
    METRICS_SETTINGS,
    GroupSetting,
)
from odradek_broker.metadata import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ClusterMetadata,
)
from odradek_broker.topic_admin import AdminError, check_topic_name
from odradek_broker.topic_config import (
    ConfigEntry,
    SynonymEntry,
    broker_places,
    describe_broker,
    topic_setting,
)
from odradek_protocol.errors import ErrorCode

Texts = Mapping[str, str]
#: So many groups, and so many subscriptions, may have settings: neither has to exist, so that nothing else
#: limits them.
_NAMES_MAX = 10_000
_NAMES_LIMITED = frozenset({RESOURCE_CLIENT_METRICS, RESOURCE_GROUP})


class ResourceKind(Protocol):
    """`bad_value`: the error of a value that is refused. `appends`: may lists be appended to?"""

    bad_value: ErrorCode
    appends: bool

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        """AdminError unless there is such a resource to describe."""
        ...

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        """AdminError unless there is such a resource to change."""
        ...

    def kind_of(self, key: str) -> Kind:
        """The kind of a setting that may be changed. ConfigError or AdminError otherwise."""
        ...

    def present(self, metadata: ClusterMetadata, name: str, key: str) -> str:
        """The text of a setting that counts now."""
        ...

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        """All settings of its own after a change, as they are stored. ConfigError for a bad one."""
        ...

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        """Its settings, or those of `keys` that there are."""
        ...


class _Topics:
    bad_value = ErrorCode.INVALID_CONFIG
    appends = True

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

    def present(self, metadata: ClusterMetadata, name: str, key: str) -> str:
        return metadata.topic_configs.text(key, metadata.topic_overrides(name))

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        return metadata.topic_configs.validate(after, metadata.topic_overrides(name))

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        return metadata.topic_configs.describe(metadata.topic_overrides(name), keys)


class _Brokers:
    """One broker by its id, or all of them by the empty name."""

    bad_value = ErrorCode.INVALID_REQUEST
    appends = True

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        self.check_altered(metadata, name)

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        if name in ("", str(metadata.node_id)):
            return
        if not name.lstrip("-").isdecimal():
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
            )
        raise AdminError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {metadata.node_id} or empty string,"
            f" but received {name}",
        )

    def kind_of(self, key: str) -> Kind:
        row = find_setting(key)
        if row is None and not is_foreign(key):
            raise UnknownSettingError(key, "is no broker setting")
        if row is None or not row.dynamic or key != row.name:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{key}]"
            )
        return row.kind

    def present(self, metadata: ClusterMetadata, name: str, key: str) -> str:
        row = find_setting(key)
        assert row is not None
        return write_value(metadata.config.value_of(row))

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        checked = {}
        for key, text in after.items():
            row = find_setting(key)
            if row is None:
                raise UnknownSettingError(key, "is no broker setting")
            row.read(key, text)
            assert text is not None
            checked[key] = text.strip()
        of_this = checked if name else metadata.broker_overrides(str(metadata.node_id))
        of_all = metadata.broker_overrides("") if name else checked
        with_dynamic(metadata.config, of_this, of_all)
        return checked

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        if name:
            return describe_broker(metadata.config, keys)
        # The empty name means what is set for all brokers, and nothing else.
        given = metadata.broker_overrides("")
        of_all = with_dynamic(metadata.config, {}, given)
        entries = describe_broker(of_all, [key for key in given if keys is None or key in keys])
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        return [
            replace(entry, synonyms=tuple(s for s in entry.synonyms if s.source is source))
            for entry in entries
        ]


class _Groups:
    """A group need not exist: its settings may be there before it."""

    bad_value = ErrorCode.INVALID_CONFIG
    appends = False

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")

    def kind_of(self, key: str) -> Kind:
        return _group_setting(key).kind

    def present(self, metadata: ClusterMetadata, name: str, key: str) -> str:
        raise NotImplementedError(key)

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        checked = {}
        values = {}
        for key, text in after.items():
            row = _group_setting(key)
            value = read_value(key, text, row.kind, row.check)
            if row.least is not None and row.most is not None:
                least = metadata.config.value_of(row.least)
                most = metadata.config.value_of(row.most)
                assert isinstance(value, int) and isinstance(least, int) and isinstance(most, int)
                if not least <= value <= most:
                    raise ConfigError(
                        key,
                        text,
                        f"between {row.least.name} ({least}) and {row.most.name} ({most})",
                    )
                values[key] = value
            checked[key] = write_value(value)
        session_ms = values.get("consumer.session.timeout.ms")
        interval_ms = values.get("consumer.heartbeat.interval.ms")
        config = metadata.config
        if session_ms is None:
            session_ms = config.group_consumer_session_timeout_ms
        if interval_ms is None:
            interval_ms = config.group_consumer_heartbeat_interval_ms
        if values and interval_ms >= session_ms:
            raise ConfigError(
                "consumer.heartbeat.interval.ms",
                str(interval_ms),
                f"less than consumer.session.timeout.ms ({session_ms})",
            )
        return checked

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        given = metadata.overrides(RESOURCE_GROUP, name)
        return [
            _group_entry(row, metadata.config, given)
            for row in GROUP_SETTINGS.values()
            if keys is None or row.name in keys
        ]


def _group_setting(key: str) -> GroupSetting:
    row = GROUP_SETTINGS.get(key)
    if row is None:
        raise UnknownSettingError(key, "is no group setting")
    return row


def _group_entry(row: GroupSetting, config: BrokerConfig, given: Texts) -> ConfigEntry:
    if row.broker is not None:
        inherited = write_value(config.value_of(row.broker))
        places = broker_places(config, row.broker, row.broker.name)
    else:
        inherited = write_value(row.default)
        places = [SynonymEntry(row.synonym, inherited, ConfigSource.DEFAULT)]
    own = given.get(row.name)
    if own is not None:
        places.insert(0, SynonymEntry(row.name, own, ConfigSource.GROUP))
    return ConfigEntry(
        name=row.name,
        value=inherited if own is None else own,
        source=places[0].source if places else ConfigSource.DEFAULT,
        read_only=False,
        sensitive=False,
        kind=row.kind,
        doc=row.doc,
        synonyms=tuple(places),
    )


class _ClientMetrics:
    bad_value = ErrorCode.INVALID_CONFIG
    appends = False

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

    def present(self, metadata: ClusterMetadata, name: str, key: str) -> str:
        raise NotImplementedError(key)

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


_KINDS: dict[int, ResourceKind] = {
    RESOURCE_TOPIC: _Topics(),
    RESOURCE_BROKER: _Brokers(),
    RESOURCE_CLIENT_METRICS: _ClientMetrics(),
    RESOURCE_GROUP: _Groups(),
}


def check_room(metadata: ClusterMetadata, resource_type: int, name: str, added: int) -> None:
    """AdminError if one more name with settings would be too many; `added`: so many more come with
    the same request."""
    if resource_type not in _NAMES_LIMITED:
        return
    names = metadata.configured(resource_type)
    if name not in names and len(names) + added >= _NAMES_MAX:
        raise AdminError(
            ErrorCode.POLICY_VIOLATION,
            f"{_NAMES_MAX} names of this kind have settings already; delete some of them first.",
        )


def configured_resource(resource_type: int, name: str) -> Resource:
    """Whose rights count for its settings."""
    if resource_type == RESOURCE_TOPIC:
        return topic(name)
    if resource_type == RESOURCE_GROUP:
        return group(name)
    return CLUSTER


def resource_kind(resource_type: int) -> ResourceKind:
    """AdminError for what has no settings here."""
    kind = _KINDS.get(resource_type)
    if kind is None:
        raise AdminError(
            ErrorCode.INVALID_REQUEST,
            f"Resources of type {resource_type} have no settings on this broker.",
        )
    return kind
