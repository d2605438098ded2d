"""Which value a setting has, for a topic and for the broker, and where it comes from.

A topic's own setting comes before the broker's, the broker's dynamic one before that of its file,
and that before the default.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, NamedTuple

from odradek_broker.config import BrokerConfig, find_origin
from odradek_broker.config_foreign import FOREIGN_SETTINGS
from odradek_broker.config_keys import SETTINGS
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


class SynonymEntry(NamedTuple):
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
        return self.config.value_of(row.broker)

    def text(self, name: str, overrides: Mapping[str, str]) -> str:
        """What is shown of a setting: the topic's own as it is stored, whether or not it would be
        taken today. KeyError if unknown."""
        own = overrides.get(name)
        return write_value(self.value(name, overrides)) if own is None else own

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

    def validate(
        self, overrides: Mapping[str, str | None], stored: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The same settings, checked. ConfigError names the first bad one (INVALID_CONFIG).

        `stored`: what the topic has already. A value that stays is not looked at again: rules that
        became stricter would keep everything else of the topic from being changed.
        """
        stored = stored or {}
        checked = {}
        for name, text in overrides.items():
            if text is not None and text == stored.get(name):
                checked[name] = text
                continue
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
            places += broker_places(self.config, row.broker, row.broker.name)
        return ConfigEntry(
            name=row.name,
            value=self.text(row.name, overrides),
            # As in Kafka, what the broker has under another name of its setting (hours, say) counts as
            # a default here.
            source=places[0].source if places else ConfigSource.DEFAULT,
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
    for row in (*SETTINGS.values(), *FOREIGN_SETTINGS.values()):
        for name in row.names:
            if keys is None or name in keys:
                entries.append(_describe_broker_one(config, row, name))
    return sorted(entries, key=lambda entry: entry.name)


def _describe_broker_one(config: BrokerConfig, row: Setting, name: str) -> ConfigEntry:
    """What is known of one key. As in Kafka, a key that was not given has its own default and not the
    value of a synonym, unless it means the very same (`broker.id`)."""
    places = broker_places(config, row, name)
    synonym = next((each for each in row.synonyms if each.name == name), None)
    if places:
        value, source = places[0].value, places[0].source
    elif synonym is not None and synonym.default is None and synonym.factor == 1:
        origin = find_origin(row, config.layers)
        value = write_value(config.value_of(row))
        source = ConfigSource.DEFAULT if origin is None else origin[0]
    else:
        value, source = None, ConfigSource.DEFAULT
    return ConfigEntry(
        name=name,
        value=None if row.sensitive else value,
        source=source,
        read_only=not row.dynamic or synonym is not None,
        sensitive=row.sensitive,
        kind=Kind.INT if synonym is not None and synonym.factor > 1 else row.kind,
        doc=row.doc,
        synonyms=tuple(places),
    )


def broker_places(config: BrokerConfig, row: Setting, key: str) -> list[SynonymEntry]:
    """Where a broker setting has a value, strongest first, its default last; from the first place on that
    has it under `key`, as in Kafka."""
    places = [
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
    places += defaults or [own]
    if row.sensitive:
        places = [place._replace(value=None) for place in places]
    return list(dropwhile(lambda place: place.name != key, places))
