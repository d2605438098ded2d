"""The settings of groups, as a kind of configured resource (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek_broker.config.broker import BrokerConfig
from odradek_broker.config.effective import ConfigEntry, SynonymEntry, broker_synonyms
from odradek_broker.config.group_settings import GROUP_SETTINGS, GroupSetting
from odradek_broker.config.types import (
    ConfigError,
    ConfigSource,
    Kind,
    UnknownSettingError,
    read_value,
    write_value,
)
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_protocol.constants import RESOURCE_GROUP
from odradek_protocol.errors import ErrorCode


class GroupConfigResource:
    """A group by its id. It need not exist: its settings may be there before it."""

    bad_value = ErrorCode.INVALID_CONFIG

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")

    def kind_of(self, key: str) -> Kind:
        return _group_setting(key).kind

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> None:
        return None

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

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Nothing more is asked of these."""

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


def _group_entry(row: GroupSetting, config: BrokerConfig, given: Mapping[str, str]) -> ConfigEntry:
    if row.broker is not None:
        inherited = write_value(config.value_of(row.broker))
        synonyms = broker_synonyms(config, row.broker, row.broker.name)
    else:
        inherited = write_value(row.default)
        synonyms = [SynonymEntry(row.synonym, inherited, ConfigSource.DEFAULT)]
    own = given.get(row.name)
    if own is not None:
        synonyms.insert(0, SynonymEntry(row.name, own, ConfigSource.GROUP))
    return ConfigEntry(
        name=row.name,
        value=inherited if own is None else own,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=False,
        sensitive=False,
        kind=row.kind,
        doc=row.doc,
        synonyms=tuple(synonyms),
    )
