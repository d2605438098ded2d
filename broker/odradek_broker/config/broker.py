"""The broker's configuration, parsed from texts into one frozen and typed object.

The rows are in `broker_settings.py`; the settings that topics may override are in
`topic_settings.py`. The module opens no file: the caller passes the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from odradek_broker.config.broker_settings import SETTING_OF_KEY, SETTINGS, BrokerSettings
from odradek_broker.config.listener_settings import (
    PER_LISTENER,
    listener_key,
    listener_of,
    listener_setting,
)
from odradek_broker.config.listeners import (
    Listener,
    SecurityProtocol,
    advertised_addresses,
    broker_listeners,
    check_listeners,
    check_reach,
    is_this_machine,
    parse_address,
)
from odradek_broker.config.topic_settings import LOG_SETTINGS, TOPIC_SETTINGS
from odradek_broker.config.types import (
    BrokerConfigError,
    ConfigSource,
    Setting,
    UnknownSettingError,
    Value,
    write_value,
)
from odradek_broker.config.unsupported import (
    IGNORED_KEYS,
    IGNORED_PREFIXES,
    NO_EFFECT_SETTINGS,
    UNSUPPORTED_KEYS,
)
from odradek_broker.emulation.profiles import PROFILES, Profile
from odradek_broker.storage.log_config import LogConfig
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import did_you_mean
from odradek_protocol.tls.settings import TlsSettings, tls_settings

__all__ = [
    "MIN_INSYNC_REPLICAS",
    "BrokerConfig",
    "BrokerConfigError",
    "ConfigSource",
    "Notice",
    "default_config",
    "find_origin",
    "find_setting",
    "is_unsupported",
    "parse_assignments",
    "parse_config",
    "parse_properties",
    "settings_of_every_broker",
    "with_dynamic",
]

_PROTOCOL_MAP = "listener.security.protocol.map"
#: The setting that names the broker to emulate.
EMULATE = "odradek.emulate"
#: The setting that all brokers share, so that it cannot be set for a single broker (N-45).
MIN_INSYNC_REPLICAS = "min.insync.replicas"

#: Settings that describe a node's part in Kafka's controller quorum.
_KRAFT = ("process.roles", "controller.quorum.", "controller.listener.names")

Layers = tuple[tuple[ConfigSource, Mapping[str, str]], ...]


@dataclass(frozen=True)
class Notice:
    """A line for the log about a setting that is accepted."""

    level: str  # "warning", "info" or "debug"
    text: str


#: The error message for members of consumer groups when the consumer protocol is switched off.
CONSUMER_GROUPS_OFF = (
    "The consumer group protocol is switched off: group.coordinator.rebalance.protocols has no"
    " consumer in it."
)


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(BrokerSettings):
    """The parsed and typed value of every setting, and the texts that were given.

    `layers`: the given texts by key for each source, strongest source first.
    """

    layers: Layers = field(default=(), repr=False)

    def value_of(self, row: Setting) -> Value:
        """The value in effect of any setting, including settings that are accepted but not used."""
        if row.name in SETTINGS:
            own: Value = getattr(self, row.attribute)
            return own
        origin = find_origin(row, self.layers)
        if origin is None:
            return row.default
        source, name = origin
        return row.read(dict(self.layers)[source][name], name)

    @property
    def data_dir(self) -> str:
        """The directory of the metadata log; the broker cannot run without it."""
        return self.metadata_log_dir or self.log_dirs[0]

    @property
    def profile(self) -> Profile | None:
        """The broker that is emulated; None without emulation."""
        return PROFILES[self.odradek_emulate] if self.odradek_emulate else None

    @property
    def serves_consumer_groups(self) -> bool:
        """True if groups may speak the consumer protocol (KIP-848)."""
        return "consumer" in self.group_coordinator_rebalance_protocols

    @property
    def broker_listeners(self) -> tuple[Listener, ...]:
        """The listeners, at least one, in the order in which the setting lists them."""
        return broker_listeners(self, map_is_given=self._is_given(_PROTOCOL_MAP))

    @property
    def advertised_addresses(self) -> dict[str, tuple[str, int]]:
        """The (host, port) that clients are given, by listener name, for the listeners that
        advertised.listeners names (N-12)."""
        return advertised_addresses(self, map_is_given=self._is_given(_PROTOCOL_MAP))

    def listener_text(self, listener: str, name: str, mechanism: str = "") -> str | None:
        """The given text of a setting for one listener, or for one mechanism of the listener; None
        if the setting is not given for it, even if it is given for the whole broker."""
        key = listener_key(listener, name, mechanism)
        return next((given[key] for _, given in self.layers if key in given), None)

    def mechanism_value(self, listener: str, mechanism: str, name: str) -> Value:
        """The value of a setting for one mechanism of a listener; if there is none, the value for
        the listener."""
        text = self.listener_text(listener, name, mechanism)
        if text is None:
            return self.listener_value(listener, name)
        return PER_LISTENER[name].read(text)

    def listener_value(self, listener: str, name: str) -> Value:
        """The value of a setting for one listener; if there is none, the broker's value."""
        row = PER_LISTENER[name]
        text = self.listener_text(listener, name)
        return self.value_of(row) if text is None else row.read(text)

    def listener_int(self, listener: str, name: str) -> int:
        """The value of a setting for one listener; if there is none, the setting's default. The
        broker's value is not used, because it limits all listeners together."""
        row = PER_LISTENER[name]
        text = self.listener_text(listener, name)
        value = row.default if text is None else row.read(text)
        assert isinstance(value, int)
        return value

    def tls_settings(self, listener: str) -> TlsSettings:
        names = [name for name in PER_LISTENER if name.startswith("ssl.")]
        values = {name.replace(".", "_"): self.listener_value(listener, name) for name in names}
        if any(each.name == listener and each.protocol.is_sasl for each in self.broker_listeners):
            # For a SASL listener only its own ssl.client.auth is used, not the broker's (KIP-684).
            values["ssl_client_auth"] = self.listener_text(listener, "ssl.client.auth") or "none"
        return tls_settings(values)

    def _is_given(self, name: str) -> bool:
        return any(name in given for _, given in self.layers)

    @property
    def http_address(self) -> tuple[str, int] | None:
        """(host, port) of the HTTP endpoint; None without such an endpoint."""
        if not self.http_listen:
            return None
        return parse_address("http.listen", self.http_listen)

    def default_log_config(self) -> LogConfig:
        """The settings of the logs of topics without settings of their own."""
        values = {
            name: getattr(self, row.broker.attribute)
            for name, row in LOG_SETTINGS.items()
            if row.broker is not None
        }
        values["cleanup_policy"] = frozenset(values["cleanup_policy"])
        return LogConfig(
            **values, durability=self.log_durability, record_validation=self.record_validation
        )


# --- Reading texts --------------------------------------------------------------------------------


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a file in Kafka's server.properties syntax.

    Raises ConfigError for an invalid escape.
    """
    # Imported here, because the import is slow, and most brokers have no file.
    import javaproperties

    try:
        return dict(javaproperties.loads(text))
    except javaproperties.InvalidUEscapeError as error:
        raise BrokerConfigError(
            "the configuration file", str(error), "without broken escapes"
        ) from None


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Parse "KEY=VALUE" texts; the last text for a key wins. Raises ConfigError for a text without
    "="."""
    given = {}
    for text in assignments:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BrokerConfigError("--set", text, "KEY=VALUE, for example num.partitions=3")
        given[key.strip()] = value
    return given


def parse_config(given: Mapping[str, str]) -> tuple[BrokerConfig, list[Notice]]:
    """The configuration, and notices about unused keys.

    The defaults of an emulated broker are treated as if the user had set them. Raises ConfigError
    for the first bad value.
    """
    given = {**_emulated_defaults(given), **given}
    known = {key: value for key, value in given.items() if find_setting(key) is not None}
    notices = [notice for key in given if key not in known and (notice := _unused(key))]
    ignored = sorted(
        key
        for key in given
        if key not in SETTING_OF_KEY
        and not key.startswith(_KRAFT)
        and listener_setting(key) is None
        and (key in NO_EFFECT_SETTINGS or _is_ignored(key))
    )
    if ignored:
        text = "settings without effect on this broker: " + ", ".join(ignored)
        notices.append(Notice("debug", text))
    config = _build(
        (
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, _of_every_broker(known)),
            (ConfigSource.STATIC_BROKER, known),
        )
    )
    if config.profile is not None:
        title = config.profile.title
        text = f"this broker is for tests: clients find {title} in it (odradek.emulate)"
        notices.append(Notice("warning", text))
    return config, notices + _about_listeners(config, given) + _about_authorizer(config)


def _emulated_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of the emulated broker, without the settings that the user has given under any
    of their names."""
    profile = PROFILES.get(given.get(EMULATE, ""))
    if profile is None:
        return {}
    rows = {id(row) for key in given if (row := find_setting(key)) is not None}
    return {
        key: value for key, value in profile.settings.items() if id(SETTING_OF_KEY[key]) not in rows
    }


def default_config() -> BrokerConfig:
    """The configuration in which every setting has its default."""
    return parse_config({})[0]


def with_dynamic(
    config: BrokerConfig, of_this_broker: Mapping[str, str], of_every_broker: Mapping[str, str]
) -> BrokerConfig:
    """The static configuration of `config` with new dynamic settings (IncrementalAlterConfigs).

    Raises ConfigError for a bad value, although the caller should have refused such a value.
    """
    static = tuple(layer for layer in config.layers if layer[0] is ConfigSource.STATIC_BROKER)
    dynamic = (
        (ConfigSource.DYNAMIC_BROKER, dict(of_this_broker)),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, settings_of_every_broker(config, of_every_broker)),
    )
    return _build(dynamic + static)


def settings_of_every_broker(config: BrokerConfig, given: Mapping[str, str]) -> dict[str, str]:
    """The dynamic settings of all brokers: `given`, and the settings that every cluster has from
    its first start."""
    static = dict(config.layers).get(ConfigSource.STATIC_BROKER, {})
    return {**_of_every_broker(static), **given}


def _of_every_broker(static: Mapping[str, str]) -> dict[str, str]:
    """`min.insync.replicas` and its value. In every cluster this is a dynamic setting of all
    brokers, as in Kafka with eligible leader replicas (KIP-966)."""
    row = SETTING_OF_KEY[MIN_INSYNC_REPLICAS]
    return {MIN_INSYNC_REPLICAS: static.get(MIN_INSYNC_REPLICAS, write_value(row.default))}


def find_setting(key: str) -> Setting | None:
    """The row of a key, which may be a synonym or a key for one listener; None without a row."""
    return SETTING_OF_KEY.get(key) or NO_EFFECT_SETTINGS.get(key) or listener_setting(key)


def find_origin(row: Setting, layers: Layers) -> tuple[ConfigSource, str] | None:
    """The (layer, key) that a setting's value comes from; None for its default.

    Layers take precedence over the order of synonyms: a dynamic log.retention.hours overrides a
    static log.retention.ms, as in Kafka.
    """
    for source, given in layers:
        for name in row.names:
            if name in given:
                return source, name
    return None


def _build(layers: Layers) -> BrokerConfig:
    texts = dict(layers)
    values: dict[str, Any] = {}
    rows = [find_setting(key) for _, given in layers for key in given]
    named = {row.name for row in rows if row is not None}
    for row in (*SETTINGS.values(), *NO_EFFECT_SETTINGS.values()):
        if row.name not in named:
            continue
        # Every given text is checked, not only the text that takes effect.
        for _, given in layers:
            for name in row.names:
                if name in given:
                    row.read(given[name], name)
        origin = find_origin(row, layers) if row.name in SETTINGS else None
        if origin is not None:
            source, name = origin
            values[row.attribute] = row.read(texts[source][name], name)
    for _, given in layers:
        for key, text in given.items():
            own = listener_setting(key)
            if own is not None:
                own.read(text)
    config = BrokerConfig(**values, layers=layers)
    _check_together(config)
    return config


#: The name by which the HTTP endpoint gets TLS settings: `listener.name.http.`.
HTTP = "HTTP"


def _has_sasl(config: BrokerConfig) -> bool:
    """True if a listener uses SASL. Otherwise the caller does not import the SASL module, so that
    the broker starts faster."""
    return any(each.protocol.is_sasl for each in config.broker_listeners)


def _check_http(config: BrokerConfig) -> None:
    """Refuse an HTTP endpoint that other machines can use without TLS and a token, unless
    insecure.listeners allows this (N-35)."""
    if config.http_address is None:
        return
    protected = config.http_security_protocol == "SSL" and config.http_token
    host, port = config.http_address
    if not (protected or config.insecure_listeners or is_this_machine(host)):
        raise BrokerConfigError(
            "http.listen",
            config.http_listen,
            f"on this machine only, as 127.0.0.1:{port} is: it shows everybody who can connect the"
            " names of topics, groups and clients. Set http.security.protocol=SSL and http.token, or"
            " (if only trusted machines reach this network) insecure.listeners=true (--insecure)",
        )


def _check_together(config: BrokerConfig) -> None:
    """Check that the settings are consistent. Raises ConfigError, which names the setting to
    change."""
    map_is_given = config._is_given(_PROTOCOL_MAP)
    check_listeners(config, map_is_given=map_is_given)
    known = {
        each.name
        for each in config.broker_listeners
        if each.protocol.is_sasl
        or (
            each.protocol is SecurityProtocol.SSL
            and config.listener_value(each.name, "ssl.client.auth") == "required"
        )
    }
    if _has_sasl(config):
        from odradek_broker.config.sasl import check_sasl

        check_sasl(config, config.broker_listeners)
    check_reach(config, config.broker_listeners, frozenset(known))
    if not config.log_dirs:
        raise BrokerConfigError("log.dirs", "", "at least one directory")
    _check_http(config)
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise BrokerConfigError(
            "group.min.session.timeout.ms",
            str(config.group_min_session_timeout_ms),
            f"at most group.max.session.timeout.ms ({config.group_max_session_timeout_ms})",
        )
    _check_protocols(config)
    _check_group_times(config)
    _check_standby_replicas(config)
    if config.log_cleaner_min_compaction_lag_ms > config.log_cleaner_max_compaction_lag_ms:
        raise BrokerConfigError(
            "log.cleaner.min.compaction.lag.ms",
            str(config.log_cleaner_min_compaction_lag_ms),
            f"at most log.cleaner.max.compaction.lag.ms ({config.log_cleaner_max_compaction_lag_ms})",
        )


def _check_protocols(config: BrokerConfig) -> None:
    protocols = config.group_coordinator_rebalance_protocols
    if "classic" not in protocols:
        raise BrokerConfigError(
            "group.coordinator.rebalance.protocols",
            write_value(protocols),
            "a list with classic, which cannot be switched off",
        )


def _group_times(config: BrokerConfig) -> dict[str, dict[str, tuple[int, int, int]]]:
    """The bounded settings of each group protocol, as (lower bound, value, upper bound)."""
    return {
        "consumer": {
            "session.timeout.ms": (
                config.group_consumer_min_session_timeout_ms,
                config.group_consumer_session_timeout_ms,
                config.group_consumer_max_session_timeout_ms,
            ),
            "heartbeat.interval.ms": (
                config.group_consumer_min_heartbeat_interval_ms,
                config.group_consumer_heartbeat_interval_ms,
                config.group_consumer_max_heartbeat_interval_ms,
            ),
            "assignment.interval.ms": (
                config.group_consumer_min_assignment_interval_ms,
                config.group_consumer_assignment_interval_ms,
                config.group_consumer_max_assignment_interval_ms,
            ),
        },
        "share": {
            "session.timeout.ms": (
                config.group_share_min_session_timeout_ms,
                config.group_share_session_timeout_ms,
                config.group_share_max_session_timeout_ms,
            ),
            "heartbeat.interval.ms": (
                config.group_share_min_heartbeat_interval_ms,
                config.group_share_heartbeat_interval_ms,
                config.group_share_max_heartbeat_interval_ms,
            ),
            "assignment.interval.ms": (
                config.group_share_min_assignment_interval_ms,
                config.group_share_assignment_interval_ms,
                config.group_share_max_assignment_interval_ms,
            ),
            "record.lock.duration.ms": (
                config.group_share_min_record_lock_duration_ms,
                config.group_share_record_lock_duration_ms,
                config.group_share_max_record_lock_duration_ms,
            ),
            "delivery.count.limit": (
                config.group_share_min_delivery_count_limit,
                config.group_share_delivery_count_limit,
                config.group_share_max_delivery_count_limit,
            ),
            "partition.max.record.locks": (
                config.group_share_min_partition_max_record_locks,
                config.group_share_partition_max_record_locks,
                config.group_share_max_partition_max_record_locks,
            ),
        },
        "streams": {
            "session.timeout.ms": (
                config.group_streams_min_session_timeout_ms,
                config.group_streams_session_timeout_ms,
                config.group_streams_max_session_timeout_ms,
            ),
            "heartbeat.interval.ms": (
                config.group_streams_min_heartbeat_interval_ms,
                config.group_streams_heartbeat_interval_ms,
                config.group_streams_max_heartbeat_interval_ms,
            ),
            "assignment.interval.ms": (
                config.group_streams_min_assignment_interval_ms,
                config.group_streams_assignment_interval_ms,
                config.group_streams_max_assignment_interval_ms,
            ),
        },
    }


def _check_group_times(config: BrokerConfig) -> None:
    """Check that timeouts, intervals and limits are within their bounds, and that heartbeat
    intervals are shorter than session timeouts."""
    for protocol, times in _group_times(config).items():
        for name, (least, value, most) in times.items():
            if not least <= value <= most:
                raise BrokerConfigError(
                    f"group.{protocol}.{name}",
                    str(value),
                    f"between group.{protocol}.min.{name} ({least}) and"
                    f" group.{protocol}.max.{name} ({most})",
                )
        interval_ms, session_ms = times["heartbeat.interval.ms"][1], times["session.timeout.ms"][1]
        if interval_ms >= session_ms:
            raise BrokerConfigError(
                f"group.{protocol}.heartbeat.interval.ms",
                str(interval_ms),
                f"less than group.{protocol}.session.timeout.ms ({session_ms})",
            )


def _check_standby_replicas(config: BrokerConfig) -> None:
    replicas = config.group_streams_num_standby_replicas
    if replicas > config.group_streams_max_standby_replicas:
        raise BrokerConfigError(
            "group.streams.num.standby.replicas",
            str(replicas),
            "at most group.streams.max.standby.replicas"
            f" ({config.group_streams_max_standby_replicas})",
        )


# --- Keys without a row -----------------------------------------------------------------------


def _is_ignored(key: str) -> bool:
    return key in IGNORED_KEYS or key.startswith(IGNORED_PREFIXES)


def is_unsupported(key: str) -> bool:
    """True if a key is a setting of Kafka that this broker has no row for."""
    return _is_ignored(key) or key in UNSUPPORTED_KEYS


def _about_listeners(config: BrokerConfig, given: Mapping[str, str]) -> list[Notice]:
    """Notices about accepted settings of the controller, SASL and single listeners."""
    notices = []
    kraft = [f"{key}={given[key]}" for key in sorted(given) if key.startswith(_KRAFT)]
    if kraft:
        text = "this broker is its own controller; taken, and not needed: " + ", ".join(kraft)
        notices.append(Notice("info", text))
    if _has_sasl(config):
        from odradek_broker.config.sasl import sasl_warnings

        texts = sasl_warnings(config, config.broker_listeners)
        notices += [Notice("warning", text) for text in texts]
    names = {listener.name.lower() for listener in config.broker_listeners}
    if config.http_listen:
        names.add(HTTP.lower())
    for key in given:
        name = listener_of(key)
        controllers = {each.lower() for each in config.controller_listener_names}
        if name and name not in names | controllers:
            notices.append(Notice("warning", f"{key} is for a listener that is not in listeners"))
    return notices


def _about_authorizer(config: BrokerConfig) -> list[Notice]:
    """Warnings about incomplete authorization: no user can create ACLs, or settings have no
    effect."""
    if config.authorizer_class_name:
        if config.super_users or config.allow_everyone_if_no_acl_found:
            return []
        text = "super.users is empty: nobody can make the first ACL, nor mend one that is wrong"
        return [Notice("warning", text)]
    without = [
        key
        for key, value in (
            ("super.users", config.super_users),
            ("allow.everyone.if.no.acl.found", config.allow_everyone_if_no_acl_found),
        )
        if value
    ]
    return [
        Notice("warning", f"{key} has no effect without authorizer.class.name") for key in without
    ]


def require_known(given: Iterable[str]) -> None:
    """Raise ConfigError for a key that no setting of a broker has. For programs, which mean each of
    the settings that they give; a file may be for other brokers as well."""
    for key in given:
        if find_setting(key) is None and key not in UNSUPPORTED_KEYS and not _is_ignored(key):
            raise unknown_setting(key)


def unknown_setting(key: str) -> UnknownSettingError:
    """The error about a key that no setting of a broker has, with the nearest known key."""
    nearest = did_you_mean(key, SETTING_OF_KEY)
    return UnknownSettingError(key, _for_topics(key) or f"is no broker setting{nearest}")


def _for_topics(key: str) -> str:
    if key not in TOPIC_SETTINGS:
        return ""
    default = TOPIC_SETTINGS[key].broker_key
    of_broker = f"; the broker's default for it is {default}" if default else ""
    return f"is a setting of topics{of_broker}"


def _unused(key: str) -> Notice | None:
    """The warning for an unused key; None for a key that is ignored without a warning."""
    if _is_ignored(key):
        return None
    if key in UNSUPPORTED_KEYS:
        return Notice("warning", f"{key} is not supported: {UNSUPPORTED_KEYS[key]}")
    if key in TOPIC_SETTINGS:
        return Notice("warning", f"{key} {_for_topics(key)}")
    return Notice("warning", f"unknown setting {key} is ignored{did_you_mean(key, SETTING_OF_KEY)}")
