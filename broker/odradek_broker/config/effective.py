"""Effective values of the settings of topics and of the broker, and their sources.

A topic's own setting takes precedence over the broker's dynamic setting, which takes precedence
over the setting in the broker's file. Without these settings the default is used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from itertools import dropwhile
from typing import Any

from odradek_broker.config.broker import BrokerConfig, find_origin
from odradek_broker.config.broker_settings import SETTINGS
from odradek_broker.config.listener_settings import listener_setting
from odradek_broker.config.topic_settings import LOG_SETTINGS, TOPIC_SETTINGS, TopicSetting
from odradek_broker.config.types import (
    BrokerConfigError,
    ConfigSource,
    ConfigType,
    Setting,
    UnknownSettingError,
    Value,
    write_value,
)
from odradek_broker.config.unsupported import DYNAMIC_ONLY, NO_EFFECT_SETTINGS, WITHOUT_DEFAULT
from odradek_broker.storage.log_config import LogConfig
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.settings import nearest


class SynonymEntry(NamedTuple):
    """A value of a setting, under one of the setting's names (Kafka's ConfigSynonym)."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True)
class EffectiveSetting:
    """A setting as DescribeConfigs shows it.

    `value` is None for a sensitive setting. `synonyms`: all values of the setting, strongest first.
    """

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    kind: ConfigType
    doc: str
    synonyms: tuple[SynonymEntry, ...]


class TopicConfigs:
    """The settings of topics, with the broker's configuration as the default.

    No value is cached, because `config` may be replaced while the broker runs.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config

    def value(self, name: str, overrides: Mapping[str, str]) -> Value:
        """The effective value of a setting for a topic whose own settings are `overrides`. Raises
        KeyError for an unknown setting."""
        row = TOPIC_SETTINGS[name]
        if name in overrides:
            return row.read(overrides[name])
        if row.broker is None:
            return row.default
        return self.config.value_of(row.broker)

    def text(self, name: str, overrides: Mapping[str, str]) -> str:
        """The effective value as text. A topic's own value is returned as it was stored, even if it
        would be refused now. Raises KeyError for an unknown setting."""
        own = overrides.get(name)
        return write_value(self.value(name, overrides)) if own is None else own

    def to_log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """The settings of the topic's partition logs."""
        values: dict[str, Any] = {
            field: self.value(row.name, overrides)
            for field, row in LOG_SETTINGS.items()
            if row.name in overrides
        }
        if "cleanup_policy" in values:
            values["cleanup_policy"] = frozenset(values["cleanup_policy"])
        return dataclasses.replace(self.config.default_log_config(), **values)

    def validate(
        self, overrides: Mapping[str, str | None], stored: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The given settings of a topic, checked and normalized. Raises ConfigError, which names
        the first bad setting (INVALID_CONFIG).

        `stored`: the topic's present settings. Unchanged values are not checked again, because a
        check that became stricter would prevent changes of the topic's other settings.
        """
        stored = stored or {}
        checked = {}
        for name, text in overrides.items():
            if text is not None and text == stored.get(name):
                checked[name] = text
                continue
            row = topic_setting(name)
            checked[name] = write_value(row.read(text))
            row.check_parts(text)
        lag_ms = self.value("min.compaction.lag.ms", checked)
        most_ms = self.value("max.compaction.lag.ms", checked)
        assert isinstance(lag_ms, int) and isinstance(most_ms, int)
        if lag_ms > most_ms:
            raise BrokerConfigError(
                "min.compaction.lag.ms", str(lag_ms), f"at most max.compaction.lag.ms ({most_ms})"
            )
        return checked

    def describe(
        self, overrides: Mapping[str, str], keys: Collection[str] | None = None
    ) -> list[EffectiveSetting]:
        """Describe the settings in `keys` that exist, or all settings if `keys` is None, for a
        topic whose own settings are `overrides`.
        """
        return [
            self._describe_one(row, overrides)
            for row in TOPIC_SETTINGS.values()
            if keys is None or row.name in keys
        ]

    def origin(self, name: str, overrides: Mapping[str, str]) -> ConfigSource:
        """The source of the effective value, under whichever of the setting's names it was given:
        CreateTopics answers with it, and DescribeConfigs with that of the name itself."""
        row = TOPIC_SETTINGS[name]
        if name in overrides:
            return ConfigSource.TOPIC
        found = row.broker and find_origin(row.broker, self.config.layers)
        return found[0] if found else ConfigSource.DEFAULT

    def _describe_one(self, row: TopicSetting, overrides: Mapping[str, str]) -> EffectiveSetting:
        synonyms = []
        if row.name in overrides:
            synonyms.append(SynonymEntry(row.name, overrides[row.name], ConfigSource.TOPIC))
        if row.broker is not None:
            synonyms += broker_synonyms(self.config, row.broker, row.broker.name)
        return EffectiveSetting(
            name=row.name,
            value=self.text(row.name, overrides),
            # As in Kafka, the source is DEFAULT if the broker's value was given under another name
            # of the setting (log.retention.hours, for example).
            source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            read_only=False,
            sensitive=False,
            kind=row.kind,
            doc=row.doc,
            synonyms=tuple(synonyms),
        )


def topic_setting(name: str) -> TopicSetting:
    """The row of a topic setting. Raises UnknownSettingError if there is none."""
    row = TOPIC_SETTINGS.get(name)
    if row is not None:
        return row
    near = nearest(name, TOPIC_SETTINGS)
    hint = f" (did you mean {near}?)" if near else ""
    raise UnknownSettingError(name, f"is no topic setting{hint}")


# --- The broker's own settings --------------------------------------------------------------------


def describe_broker(
    config: BrokerConfig, keys: Collection[str] | None = None
) -> list[EffectiveSetting]:
    """Describe all settings of the broker, with a separate entry for every synonym. `keys`: only
    these names; None for all."""
    entries = []
    given_names = {name for _, given in config.layers for name in given}
    for row in (*SETTINGS.values(), *NO_EFFECT_SETTINGS.values()):
        if row.name in DYNAMIC_ONLY and row.name not in given_names:
            continue
        for name in row.names:
            if keys is None or name in keys:
                entries.append(_describe_broker_one(config, row, name))
    for name in given_names:
        own = listener_setting(name)
        if own is not None and (keys is None or name in keys):
            entries.append(_describe_broker_one(config, own, name))
    return sorted(entries, key=lambda entry: entry.name)


def _describe_broker_one(config: BrokerConfig, row: Setting, name: str) -> EffectiveSetting:
    """Describe a setting under one of its names. As in Kafka, a name that was not given shows its
    own default, even if the setting was given under another name. A synonym that has the same unit
    and no default of its own (`broker.id`) shows the setting's value."""
    synonyms = broker_synonyms(config, row, name)
    synonym = next((each for each in row.synonyms if each.name == name), None)
    if synonyms:
        value, source = synonyms[0].value, synonyms[0].source
    elif synonym is not None and synonym.default is None and synonym.factor == 1:
        origin = find_origin(row, config.layers)
        value = write_value(config.value_of(row))
        source = ConfigSource.DEFAULT if origin is None else origin[0]
    else:
        value, source = None, ConfigSource.DEFAULT
    return EffectiveSetting(
        name=name,
        value=None if row.secret else value,
        source=source,
        read_only=not row.dynamic or synonym is not None,
        sensitive=row.secret,
        kind=ConfigType.INT if synonym is not None and synonym.factor > 1 else row.kind,
        doc=row.doc,
        synonyms=tuple(synonyms),
    )


def broker_synonyms(config: BrokerConfig, row: Setting, key: str) -> list[SynonymEntry]:
    """The values of a broker setting, strongest first, its default last. As in Kafka, the values
    before the first value under the name `key` are left out."""
    synonyms = [
        SynonymEntry(name, given[name], source)
        for source, given in config.layers
        for name in row.names
        if name in given
    ]
    defaults = [
        SynonymEntry(synonym.name, synonym.default, ConfigSource.DEFAULT)
        for synonym in row.synonyms
        if synonym.default is not None
    ]
    own = SynonymEntry(row.name, write_value(row.default), ConfigSource.DEFAULT)
    if row.name not in WITHOUT_DEFAULT:
        synonyms += defaults or [own]
    if row.secret:
        synonyms = [entry._replace(value=None) for entry in synonyms]
    return list(dropwhile(lambda entry: entry.name != key, synonyms))
