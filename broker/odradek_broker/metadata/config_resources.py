"""Configured resources, Kafka's ConfigResource: topics, brokers, groups, subscriptions to client
metrics.

A kind of resource knows its settings, the conditions of a change and the description of all
settings. `config_changes.py` uses it to make the records of changes; the functions here change no
state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from odradek_broker.config.broker import (
    MIN_INSYNC_REPLICAS,
    BrokerConfig,
    find_setting,
    is_unsupported,
    unknown_setting,
    with_dynamic,
)
from odradek_broker.config.broker_settings import SETTINGS
from odradek_broker.config.client_metrics_settings import METRICS_SETTINGS
from odradek_broker.config.effective import (
    EffectiveSetting,
    SynonymEntry,
    broker_synonyms,
    describe_broker,
    topic_setting,
)
from odradek_broker.config.group_settings import GROUP_SETTINGS, GroupSetting
from odradek_broker.config.listener_settings import listener_of
from odradek_broker.config.topic_settings import MIRROR_SOURCE
from odradek_broker.config.types import (
    BrokerConfigError,
    ConfigSource,
    ConfigType,
    UnknownSettingError,
    has_empty_parts,
    read_value,
    write_value,
)
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_broker.metadata.topics import check_topic_name
from odradek_broker.security.authorizer import CLUSTER, Resource, group, topic
from odradek_protocol.constants import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.settings import trim


class GroupConfigResource:
    """A group by its id. The group need not exist when it gets settings."""

    bad_value = ErrorCode.INVALID_CONFIG

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")

    def check_node(self, metadata: ClusterMetadata, name: str) -> None:
        """Check nothing: a group belongs to no broker."""

    def check_name(self, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")

    def check_key(self, key: str) -> None:
        _group_setting(key)

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> None:
        return None

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        checked = {}
        values = {}
        for key, text in after.items():
            row = _group_setting(key)
            value = row.read(text)
            if row.most is not None:
                _check_bounds(metadata.config, row, text, value)
                values[key] = value
            checked[key] = write_value(value)
        for protocol in ("consumer", "share", "streams"):
            session_ms, interval_ms = (
                values.get(
                    f"{protocol}.{name}",
                    metadata.config.value_of(SETTINGS[f"group.{protocol}.{name}"]),
                )
                for name in ("session.timeout.ms", "heartbeat.interval.ms")
            )
            assert isinstance(session_ms, int) and isinstance(interval_ms, int)
            if values and interval_ms >= session_ms:
                raise BrokerConfigError(
                    f"{protocol}.heartbeat.interval.ms",
                    str(interval_ms),
                    f"less than {protocol}.session.timeout.ms ({session_ms})",
                )
        return checked

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Check nothing: any key may be set or removed."""

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[EffectiveSetting]:
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


def _check_bounds(config: BrokerConfig, row: GroupSetting, text: str | None, value: Any) -> None:
    """Raise ConfigError for a setting of a group outside of the broker's bounds."""
    assert row.most is not None
    most = config.value_of(row.most)
    least = None if row.least is None else config.value_of(row.least)
    assert isinstance(value, int) and isinstance(most, int)
    if value > most or (isinstance(least, int) and value < least):
        wanted = f"at most {row.most.name} ({most})"
        if row.least is not None:
            wanted = f"between {row.least.name} ({least}) and {row.most.name} ({most})"
        raise BrokerConfigError(row.name, text, wanted)


def _group_entry(
    row: GroupSetting, config: BrokerConfig, given: Mapping[str, str]
) -> EffectiveSetting:
    if row.broker is not None:
        inherited = write_value(config.value_of(row.broker))
        synonyms = broker_synonyms(config, row.broker, row.broker.name)
    else:
        inherited = write_value(row.default)
        synonyms = [SynonymEntry(row.synonym, inherited, ConfigSource.DEFAULT)]
    own = given.get(row.name)
    if own is not None:
        synonyms.insert(0, SynonymEntry(row.name, own, ConfigSource.GROUP))
    return EffectiveSetting(
        name=row.name,
        value=inherited if own is None else own,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=False,
        sensitive=False,
        kind=row.kind,
        doc=row.doc,
        synonyms=tuple(synonyms),
    )


_MIB = 1024 * 1024
_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)


def _check_steps(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise AdminError for a change that Kafka refuses although each single value is legal."""

    def values(name: str) -> tuple[Any, Any]:
        row = find_setting(name)
        assert row is not None
        return before.value_of(row), after.value_of(row)

    def refuse(name: str, text: str) -> NoReturn:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Invalid value {values(name)[1]} for {name}: {text}"
        )

    for name in _THREADS:
        old, new = values(name)
        if new != old and not max(1, old // 2) <= new <= old * 2:
            refuse(
                name, f"it must be from {max(1, old // 2)} to {old * 2}, half to twice what it is"
            )
    threads = values("log.cleaner.threads")[1]
    old, new = values("log.cleaner.dedupe.buffer.size")
    if new != old and new // threads <= _MIB:
        refuse("log.cleaner.dedupe.buffer.size", "it must be more than 1 MiB for each thread")
    old, new = values("max.connections.per.ip")
    if new != old and new == 0 and not values("max.connections.per.ip.overrides")[1]:
        refuse("max.connections.per.ip", "0 needs max.connections.per.ip.overrides")
    old, most = values("log.retention.ms")
    if most != old and most == 0:
        refuse("log.retention.ms", "it must be at least 1, or -1")
    old, new = values("log.local.retention.ms")
    if new not in (old, -2) and most != -1 and not 0 <= new <= most:
        refuse("log.local.retention.ms", f"it must be at most log.retention.ms ({most})")
    old, new = values("max.connection.creation.rate")
    if new != old and new < 1:
        refuse("max.connection.creation.rate", "it must be at least 1")


def _of_one_broker(key: str) -> bool:
    """True for a setting of Kerberos and for a TLS setting of one listener: these can only be set
    for a single broker."""
    return (".ssl." in key and bool(listener_of(key))) or key.startswith("sasl.kerberos.")


class BrokerConfigResource:
    """A broker by its id, or all brokers by the empty name."""

    bad_value = ErrorCode.INVALID_REQUEST

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        self.check_node(metadata, name)

    def check_node(self, metadata: ClusterMetadata, name: str) -> None:
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

    def check_name(self, name: str) -> None:
        """Check nothing: `check_node` has checked the name."""

    def check_key(self, key: str) -> None:
        row = find_setting(key)
        if row is None and not is_unsupported(key):
            raise unknown_setting(key)
        if row is not None and row.dynamic and key.startswith("ssl."):
            raise AdminError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the"
                f" listener prefix: [{key}]",
            )
        if row is None or not row.dynamic or key != row.name:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{key}]"
            )

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> str | None:
        row = find_setting(key)
        if row is None and is_unsupported(key):
            # The setting has no row, so its type is unknown; `check_key` refuses every change of
            # it.
            self.check_key(key)
        if row is None or row.kind is not ConfigType.LIST:
            return None
        return write_value(metadata.config.value_of(row))

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        checked = {}
        stored = metadata.broker_overrides(name)
        for key, text in after.items():
            row = find_setting(key)
            if row is None:
                raise unknown_setting(key)
            if not name and _of_one_broker(key):
                raise AdminError(
                    ErrorCode.INVALID_REQUEST,
                    "Cannot update these configs at default cluster level, broker id must be"
                    f" specified: [{key}]",
                )
            row.read(text, key)
            assert text is not None
            if text != stored.get(key):
                row.check_parts(text)
            checked[key] = trim(text)
        of_this = checked if name else metadata.broker_overrides(str(metadata.node_id))
        of_all = metadata.broker_overrides("") if name else checked
        changed = with_dynamic(metadata.config, of_this, of_all)
        metadata.check_config(changed)
        _check_steps(metadata.config, changed)
        return checked

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Raise AdminError if `min.insync.replicas` is set for a single broker, or removed
        (N-45)."""
        if name and MIN_INSYNC_REPLICAS in keys:
            raise AdminError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_INSYNC_REPLICAS} is one for all brokers: alter it for the cluster, not for broker {name}.",
            )
        if not name and MIN_INSYNC_REPLICAS not in after:
            raise AdminError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_INSYNC_REPLICAS} of the cluster can be changed, but not removed.",
            )

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[EffectiveSetting]:
        if name:
            return describe_broker(metadata.config, keys)
        # The description of the empty name has only the settings of all brokers.
        given = metadata.broker_overrides("")
        of_all = with_dynamic(metadata.config, {}, given)
        entries = describe_broker(of_all, [key for key in given if keys is None or key in keys])
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        return [
            replace(entry, synonyms=tuple(s for s in entry.synonyms if s.source is source))
            for entry in entries
        ]


class ClientMetricsConfigResource:
    """A subscription to client metrics by its name; it need not exist."""

    bad_value = ErrorCode.INVALID_CONFIG

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
            )

    def check_node(self, metadata: ClusterMetadata, name: str) -> None:
        """Check nothing: a subscription belongs to no broker."""

    def check_name(self, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")

    def check_key(self, key: str) -> None:
        if key not in METRICS_SETTINGS:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}"
            )

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> None:
        return None

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        checked = {}
        for key, text in after.items():
            self.check_key(key)
            row = METRICS_SETTINGS[key]
            value = read_value(key, text, row.kind)
            if row.kind is ConfigType.LIST and has_empty_parts(text or ""):
                raise BrokerConfigError(key, text, "a list without empty parts")
            try:
                row.read(text)
            except BrokerConfigError as error:
                if row.kind is ConfigType.INT:
                    raise AdminError(ErrorCode.INVALID_REQUEST, str(error)) from error
                raise
            checked[key] = write_value(value)
        return checked

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Check nothing: any key may be set or removed."""

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[EffectiveSetting]:
        given = metadata.overrides(RESOURCE_CLIENT_METRICS, name)
        return [
            EffectiveSetting(
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
    """The settings of a topic, which must exist."""

    bad_value = ErrorCode.INVALID_CONFIG

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        check_topic_name(name)
        if name not in metadata.topics:
            raise AdminError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )

    def check_node(self, metadata: ClusterMetadata, name: str) -> None:
        """Check nothing: the settings of a topic belong to no broker."""

    def check_name(self, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_topic_name(name)

    def check_key(self, key: str) -> None:
        topic_setting(key)

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> str | None:
        if topic_setting(key).kind is not ConfigType.LIST:
            return None
        return metadata.topic_configs.text(key, metadata.topic_overrides(name))

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        present = metadata.topic_overrides(name)
        if after.get(MIRROR_SOURCE, "") != present.get(MIRROR_SOURCE, ""):
            raise AdminError(
                ErrorCode.INVALID_CONFIG,
                f"{MIRROR_SOURCE} is set when a topic is created and cannot be changed; `odradek"
                f" mirror promote --topics {name}` makes a mirror topic an ordinary one",
            )
        checked = metadata.topic_configs.validate(after, present)
        self.check_described(metadata, name)
        return checked

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Check nothing: any key may be set or removed."""

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[EffectiveSetting]:
        return metadata.topic_configs.describe(metadata.topic_overrides(name), keys)


#: The maximum number of groups with settings, and of client metrics subscriptions. Nothing else
#: limits these numbers, because neither a group nor a subscription has to exist before it gets
#: settings.
_NAMES_MAX = 10_000
_NAMES_LIMITED = frozenset({RESOURCE_CLIENT_METRICS, RESOURCE_GROUP})


class ResourceKind(Protocol):
    """A kind of resource.

    `bad_value`: the error code for a value that is refused.
    """

    bad_value: ErrorCode

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        """Raise AdminError unless the resource exists and may be described."""
        ...

    def check_node(self, metadata: ClusterMetadata, name: str) -> None:
        """Raise AdminError if the resource belongs to another broker."""
        ...

    def check_name(self, name: str) -> None:
        """Raise AdminError unless a resource of this name may be changed."""
        ...

    def check_key(self, key: str) -> None:
        """Raise ConfigError or AdminError unless the setting exists and may be changed."""
        ...

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> str | None:
        """The effective value of a list, as text; None if the setting is no list, or if lists of
        this kind of resource can only be set as a whole."""
        ...

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        """The resource's own settings after a change, in their stored form. Raises ConfigError for
        an invalid value, and then AdminError unless the resource exists."""
        ...

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Raise AdminError if `keys` has a key that must not be changed, or if a required setting
        is missing in `after`."""
        ...

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[EffectiveSetting]:
        """The resource's settings, or only those in `keys`."""
        ...


_KINDS: dict[int, ResourceKind] = {
    RESOURCE_TOPIC: TopicConfigResource(),
    RESOURCE_BROKER: BrokerConfigResource(),
    RESOURCE_CLIENT_METRICS: ClientMetricsConfigResource(),
    RESOURCE_GROUP: GroupConfigResource(),
}


def check_name_limit(metadata: ClusterMetadata, resource_type: int, name: str, added: int) -> None:
    """Raise AdminError if settings for the resource `name` would exceed the limit of names with
    settings.

    `added`: the number of names that the same request has already added.
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
    """The resource on which a client needs rights for these settings."""
    if resource_type == RESOURCE_TOPIC:
        return topic(name)
    if resource_type == RESOURCE_GROUP:
        return group(name)
    return CLUSTER


def resource_kind(resource_type: int) -> ResourceKind:
    """The kind of a resource. Raises AdminError for a type that has no settings here."""
    kind = _KINDS.get(resource_type)
    if kind is None:
        raise AdminError(
            ErrorCode.INVALID_REQUEST,
            f"Resources of type {resource_type} have no settings on this broker.",
        )
    return kind
