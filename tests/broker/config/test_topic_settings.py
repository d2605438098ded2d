"""Settings of topics: effective values, their sources, and the settings of logs."""

from __future__ import annotations

import re

import pytest

from odradek_broker.config.broker import (
    BrokerConfigError,
    default_config,
    parse_config,
    with_dynamic,
)
from odradek_broker.config.effective import TopicConfigs, describe_broker
from odradek_broker.config.topic_settings import LOG_SETTINGS, TOPIC_SETTINGS
from odradek_broker.config.types import ConfigSource, ConfigType
from odradek_broker.storage.log_config import LogConfig


def topics(**settings: str) -> TopicConfigs:
    return TopicConfigs(
        parse_config({key.replace("_", "."): value for key, value in settings.items()})[0]
    )


def test_defaults_make_the_default_log_config() -> None:
    assert topics().to_log_config({}) == LogConfig()
    assert default_config().default_log_config() == LogConfig()


def test_every_field_of_a_log_config_has_a_setting() -> None:
    assert LogConfig.__dataclass_fields__.keys() == LOG_SETTINGS.keys() | {
        "durability",
        "record_validation",
    }


def test_a_topic_setting_overrides_the_brokers_setting() -> None:
    config = topics(log_retention_ms="1000", log_durability="page-cache", record_validation="full")
    log_config = config.to_log_config({"segment.bytes": "4096", "cleanup.policy": "compact,delete"})
    assert log_config.retention_ms == 1000
    assert log_config.segment_bytes == 4096
    assert log_config.cleanup_policy == {"compact", "delete"}
    assert log_config.durability == "page-cache"
    assert log_config.record_validation == "full"
    assert config.to_log_config({"retention.ms": "-1"}).retention_ms == -1


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("retntion.ms", "1", "retention.ms"),
        ("retention.ms", "soon", "64-bit"),
        ("retention.ms", None, "64-bit"),
        ("cleanup.policy", "burn", "compact"),
        ("segment.bytes", "3", "14"),
        ("compression.type", "brotli", "zstd"),
        ("min.compaction.lag.ms", "9223372036854775807", "64-bit"),
    ],
)
def test_the_error_names_the_invalid_topic_setting(name: str, value: str | None, hint: str) -> None:
    config = topics(log_cleaner_max_compaction_lag_ms="5")
    hint = "max.compaction.lag.ms" if name.startswith("min.comp") else hint
    with pytest.raises(BrokerConfigError) as caught:
        config.validate({name: value})
    assert name in str(caught.value) and hint in str(caught.value)


def test_validation_normalizes_values_as_kafka_does() -> None:
    checked = topics().validate({"preallocate": " TRUE ", "cleanup.policy": " compact, delete"})
    assert checked == {"preallocate": "true", "cleanup.policy": "compact,delete"}


def test_a_topic_setting_is_described_with_source_and_synonyms() -> None:
    static, _ = parse_config({"log.retention.hours": "2"})
    config = with_dynamic(static, {"log.retention.ms": "50"}, {})
    entry = TopicConfigs(config).describe({"retention.ms": "10"}, ["retention.ms"])[0]
    assert (entry.value, entry.source) == ("10", ConfigSource.TOPIC)
    assert [(place.name, place.value, place.source) for place in entry.synonyms] == [
        ("retention.ms", "10", ConfigSource.TOPIC),
        ("log.retention.ms", "50", ConfigSource.DYNAMIC_BROKER),
        ("log.retention.hours", "2", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    unset = TopicConfigs(config).describe({}, ["retention.ms"])[0]
    assert (unset.value, unset.source) == ("50", ConfigSource.DYNAMIC_BROKER)
    by_hours = TopicConfigs(static).describe({}, ["retention.ms"])[0]
    assert (by_hours.value, by_hours.source, by_hours.synonyms) == (
        "7200000",
        ConfigSource.DEFAULT,
        (),
    )


def test_every_topic_setting_is_described() -> None:
    entries = topics().describe({})
    assert [entry.name for entry in entries] == list(TOPIC_SETTINGS) == sorted(TOPIC_SETTINGS)
    assert all(entry.doc for entry in entries)
    assert {entry.name: entry.value for entry in entries}["max.message.bytes"] == "1048588"


def test_every_synonym_of_a_broker_setting_is_described() -> None:
    config, _ = parse_config({"log.retention.minutes": "3"})
    entries = {entry.name: entry for entry in describe_broker(config)}
    assert entries["log.retention.ms"].value is None, "as in Kafka: each key has its own value"
    assert entries["log.retention.ms"].source is ConfigSource.DEFAULT
    assert not entries["log.retention.ms"].read_only
    assert entries["log.retention.minutes"].value == "3"
    assert entries["log.retention.minutes"].kind is ConfigType.INT
    assert entries["log.retention.minutes"].read_only, "only log.retention.ms is dynamic"
    assert entries["log.retention.hours"].value == "168"
    assert entries["log.retention.hours"].source is ConfigSource.DEFAULT
    assert entries["num.partitions"].read_only
    assert not entries["message.max.bytes"].read_only
    assert list(entries) == sorted(entries)
    assert entries["num.io.threads"].value == "8" and not entries["num.io.threads"].read_only


def test_an_alias_of_a_broker_setting_is_described_with_its_value() -> None:
    config, _ = parse_config({"node.id": "7", "log.dirs": "/x"})
    entries = {entry.name: entry for entry in describe_broker(config)}
    for key, value in (("broker.id", "7"), ("log.dir", "/x"), ("node.id", "7")):
        assert (entries[key].value, entries[key].source) == (value, ConfigSource.STATIC_BROKER)


def test_topic_settings_without_effect_are_accepted_and_described() -> None:
    given = {
        "compression.gzip.level": "5",
        "compression.zstd.level": "-7",
        "local.retention.ms": "-2",
        "remote.log.copy.disable": "true",
        "remote.storage.enable": "false",
        "leader.replication.throttled.replicas": "0:1,1:1",
    }
    checked = topics().validate(given)
    assert checked == given
    entries = {entry.name: entry for entry in topics().describe(checked)}
    assert {key: entries[key].value for key in given} == given
    assert entries["compression.lz4.level"].value == "9"
    assert entries["remote.storage.enable"].synonyms[0].source is ConfigSource.TOPIC


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.zstd.level", "23"),
        ("local.retention.bytes", "-3"),
        ("remote.storage.enable", "true"),
        ("follower.replication.throttled.replicas", "x"),
    ],
)
def test_topic_settings_without_effect_are_validated(name: str, value: str) -> None:
    with pytest.raises(BrokerConfigError, match=re.escape(name)):
        topics().validate({name: value})


def test_a_topic_may_have_an_empty_cleanup_policy() -> None:
    checked = topics().validate({"cleanup.policy": ""})
    assert checked == {"cleanup.policy": ""}
    config = topics().to_log_config(checked)
    assert (config.cleanup_policy, config.compacted) == (frozenset(), False)
    assert topics().validate({"cleanup.policy": "delete,delete"}) == {"cleanup.policy": "delete"}
