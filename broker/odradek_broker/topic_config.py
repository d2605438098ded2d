"""Which value a setting has, for a topic and for the broker, and where it comes from.

A topic's own setting comes before the broker's, the broker's dynamic one before that of its file,
and that before the default.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from odradek_broker.config import BrokerConfig, find_origin
from odradek_broker.config_keys import SETTING_OF_KEY, SETTINGS
from odradek_broker.config_types import (
    ConfigError,
    ConfigSource,
    Kind,
    Setting,
    UnknownSettingError,
    Value,
    read_value,
    write_value,
)
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.topic_keys import LOG_SETTINGS, TOPIC_SETTINGS, TopicSetting


@dataclass(frozen=True)
class SynonymEntry:
    """One place where a setting has a value, strongest first in a `ConfigEntry`."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True)
class ConfigEntry:
    """All that is known of one setting. `value` is None for a sensitive one."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    kind: Kind
    doc: str
    synonyms: tuple[SynonymEntry, ...]


class TopicConfigs:
    """The broker's configuration, seen from topics.

    `config` may be replaced while the broker runs; nothing is remembered of the old one.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config

    def value(self, name: str, overrides: Mapping[str, str]) -> Value:
        """The value that counts for a topic with these settings of its own. KeyError if unknown."""
        row = TOPIC_SETTINGS[name]
        if name in overrides:
            return read_value(name, overrides[name], row.kind, row.check)
        if row.broker is None:
            return row.default
        found: Value = getattr(self.config, row.broker.attribute)
        return found

    def to_log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """What the partition logs of such a topic are given."""
        values: dict[str, Any] = {
            field: self.value(row.name, overrides)
            for field, row in LOG_SETTINGS.items()
            if row.name in overrides
        }
        if "cleanup_policy" in values:
            values["cleanup_policy"] = frozenset(values["cleanup_policy"])
        return dataclasses.replace(self.config.default_log_config(), **values)

    def validate(self, overrides: Mapping[str, str | None]) -> dict[str, str]:
        """The same settings, checked. ConfigError names the first bad one (INVALID_CONFIG)."""
        checked = {}
        for name, text in overrides.items():
            row = topic_setting(name)
            value = read_value(name, text, row.kind, row.check)
            checked[name] = write_value(value)
        lag_ms = self.value("min.compaction.lag.ms", checked)
        most_ms = self.value("max.compaction.lag.ms", checked)
        assert isinstance(lag_ms, int) and isinstance(most_ms, int)
        if lag_ms > most_ms:
            raise ConfigError(
                "min.compaction.lag.ms", str(lag_ms), f"at most max.compaction.lag.ms ({most_ms})"
            )
        return checked

    def describe(
        self, overrides: Mapping[str, str], keys: Collection[str] | None = None
    ) -> list[ConfigEntry]:
        """Every setting of such a topic, or those of `keys` that exist."""
        return [
            self._describe_one(row, overrides)
            for row in TOPIC_SETTINGS.values()
            if keys is None or row.name in keys
        ]

    def _describe_one(self, row: TopicSetting, overrides: Mapping[str, str]) -> ConfigEntry:
        places = []
        if row.name in overrides:
            places.append(SynonymEntry(row.name, overrides[row.name], ConfigSource.TOPIC))
        if row.broker is not None:
            places += _places(self.config, row.broker)
        else:
            places.append(SynonymEntry(row.name, write_value(row.default), ConfigSource.DEFAULT))
        return ConfigEntry(
            name=row.name,
            value=write_value(self.value(row.name, overrides)),
            source=places[0].source,
            read_only=False,
            sensitive=False,
            kind=row.kind,
            doc=row.doc,
            synonyms=tuple(places),
        )


def topic_setting(name: str) -> TopicSetting:
    """The row of a topic setting. UnknownSettingError if there is none."""
    row = TOPIC_SETTINGS.get(name)
    if row is not None:
        return row
    nearest = difflib.get_close_matches(name, TOPIC_SETTINGS, n=1, cutoff=0.6)
    hint = f" (did you mean {nearest[0]}?)" if nearest else ""
    raise UnknownSettingError(name, f"is no topic setting{hint}")


# --- The broker's own settings ----------------------------------------------------------------------


def describe_broker(config: BrokerConfig, keys: Collection[str] | None = None) -> list[ConfigEntry]:
    """Every setting of the broker, synonyms of their own included, or those of `keys`."""
    entries = []
    for row in SETTINGS.values():
        for name in row.names:
            if keys is None or name in keys:
                entries.append(_describe_broker_one(config, row, name))
    return sorted(entries, key=lambda entry: entry.name)


def validate_dynamic(name: str, text: str | None) -> str:
    """A dynamic broker setting, checked. ConfigError if it is unknown, bad, or not dynamic."""
    row = SETTING_OF_KEY.get(name)
    if row is None:
        raise UnknownSettingError(name, "is no broker setting")
    if not row.dynamic:
        raise UnknownSettingError(name, "cannot be changed while the broker runs")
    row.read(name, text)
    assert text is not None
    return text.strip()


def _describe_broker_one(config: BrokerConfig, row: Setting, name: str) -> ConfigEntry:
    places = _places(config, row)
    if name == row.name:
        value: str | None = write_value(getattr(config, row.attribute))
        origin = find_origin(row, config.layers)
        source = origin[0] if origin else ConfigSource.DEFAULT
    else:
        own = [place for place in places if place.name == name]
        value = own[0].value if own else None
        source = own[0].source if own else ConfigSource.DEFAULT
    return ConfigEntry(
        name=name,
        value=None if row.sensitive else value,
        source=source,
        read_only=not row.dynamic,
        sensitive=row.sensitive,
        kind=row.kind,
        doc=row.doc,
        synonyms=tuple(places),
    )


def _places(config: BrokerConfig, row: Setting) -> list[SynonymEntry]:
    """Where a broker setting has a value, strongest first, the default last."""
    places = [
        SynonymEntry(name, None if row.sensitive else given[name], source)
        for source, given in config.layers
        for name in row.names
        if name in given
    ]
    shown = next((synonym for synonym in row.synonyms if synonym.default is not None), None)
    if shown is not None:
        places.append(SynonymEntry(shown.name, shown.default, ConfigSource.DEFAULT))
    else:
        places.append(SynonymEntry(row.name, write_value(row.default), ConfigSource.DEFAULT))
    return places
