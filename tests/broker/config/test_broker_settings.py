"""The broker's settings: reading, checking, synonyms, layers, and the page about them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from many_cases import looped
from odradek_broker.config.broker import (
    BrokerConfig,
    BrokerConfigError,
    default_config,
    parse_assignments,
    parse_config,
    parse_properties,
    with_dynamic,
)
from odradek_broker.config.broker_settings import SETTING_OF_KEY, SETTINGS
from odradek_broker.config.listeners import parse_address
from odradek_broker.config.topic_settings import LOG_SETTINGS, TOPIC_SETTINGS
from odradek_broker.config.types import ConfigSource, ConfigType, Setting, write_value
from odradek_broker.config.unsupported import IGNORED_KEYS, IGNORED_PREFIXES, NO_EFFECT_SETTINGS


def parsed(**settings: str) -> BrokerConfig:
    return parse_config({key.replace("_", "."): value for key, value in settings.items()})[0]


def test_an_empty_configuration_has_every_default() -> None:
    config = default_config()
    for row in SETTINGS.values():
        assert getattr(config, row.attribute) == row.default


@looped("row", SETTINGS.values(), ids=lambda row: row.name)
def test_every_default_passes_its_own_check(row: object) -> None:
    setting = SETTINGS[row.name]  # type: ignore[attr-defined]
    assert setting.read(write_value(setting.default)) == setting.default
    assert setting.doc.endswith(".")


def test_defaults_are_those_of_kafka() -> None:
    config = default_config()
    assert config.message_max_bytes == 1_048_588
    assert config.log_retention_ms == 7 * 24 * 3_600_000
    assert config.group_initial_rebalance_delay_ms == 0, "Kafka's shipped server.properties"
    assert config.offsets_topic_num_partitions == 50
    assert config.socket_request_max_bytes == 104_857_600
    assert config.log_message_timestamp_after_max_ms == 3_600_000


def test_a_file_in_kafkas_properties_syntax_is_read() -> None:
    text = (
        "# a comment\nnum.partitions = 3\nlog.dirs=/tmp/a\\\n  b\nlisteners: PLAINTEXT://h\\:1:7\n"
    )
    given_texts = parse_properties(text)
    assert given_texts["num.partitions"] == "3"
    assert given_texts["log.dirs"] == "/tmp/ab"


def test_a_broken_escape_in_a_file_is_an_error() -> None:
    with pytest.raises(BrokerConfigError, match="escape"):
        parse_properties("a=\\u00g1\n")


def test_kafkas_server_properties_for_kraft_are_accepted() -> None:
    text = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
    given_texts = parse_properties(text)
    with pytest.raises(BrokerConfigError, match="--insecure"):
        parse_config(given_texts)
    config, notices = parse_config({**given_texts, "insecure.listeners": "true"})
    assert [notice.level for notice in notices] == ["debug", "info"]
    assert "socket.send.buffer.bytes" in notices[0].text
    assert "process.roles" in notices[1].text
    assert [(each.name, each.host, each.port) for each in config.broker_listeners] == [
        ("PLAINTEXT", "", 9092)
    ]
    assert config.advertised_addresses == {"PLAINTEXT": ("localhost", 9092)}


def test_an_unknown_key_names_the_nearest_known_one() -> None:
    _, notices = parse_config({"num.partitons": "3"})
    assert notices[0].level == "warning"
    assert "num.partitons" in notices[0].text and "num.partitions" in notices[0].text


def test_the_warning_for_a_topic_setting_names_the_brokers_setting() -> None:
    _, notices = parse_config({"retention.ms": "3"})
    assert "log.retention.ms" in notices[0].text


def test_an_ignored_security_setting_is_a_warning() -> None:
    for key in ("ssl.engine.factory.class", "client.quota.callback.class"):
        _, notices = parse_config({key: "x"})
        assert [notice.level for notice in notices] == ["warning"]


def test_ignored_keys_are_no_settings_of_ours() -> None:
    assert not IGNORED_KEYS & (SETTING_OF_KEY.keys() | NO_EFFECT_SETTINGS.keys())
    assert not NO_EFFECT_SETTINGS.keys() & SETTING_OF_KEY.keys()
    assert all(prefix.strip(".") for prefix in IGNORED_PREFIXES)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "three"),
        ("num.partitions", "1_000"),
        ("log.cleaner.min.cleanable.ratio", "0.1_0"),
        ("log.cleaner.min.cleanable.ratio", "\uff11"),
        ("num.partitions", ""),
        ("num.partitions", "2147483648"),
        ("log.durability", "sometimes"),
        ("auto.create.topics.enable", "yes"),
        ("log.cleanup.policy", "delete,burn"),
        ("log.cleaner.min.cleanable.ratio", "nan"),
        ("log.retention.hours", "-2"),
        ("log.roll.hours", "0"),
        ("listeners", "localhost:9092"),
        ("listeners", "PLAINTEXT://localhost"),
        ("listeners", "PLAINTEXT://localhost:65536"),
        ("listeners", "PLAINTEXT://::1:9092"),
        ("listeners", "PLAINTEXT://a:1,PLAINTEXT://b:2"),
        ("listeners", ""),
        ("advertised.listeners", "PLAINTEXT://0.0.0.0:9092"),
        ("log.dirs", ","),
        ("http.listen", "9090"),
        ("group.min.session.timeout.ms", "1800001"),
        ("group.share.session.timeout.ms", "44999"),
        ("group.share.session.timeout.ms", "60001"),
        ("group.share.heartbeat.interval.ms", "4999"),
        ("group.share.heartbeat.interval.ms", "15001"),
        ("group.share.assignment.interval.ms", "15001"),
        ("group.share.max.size", "1001"),
        ("group.share.assignors", "other"),
        ("replication.factor.policy", "shrug"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(key: str, value: str) -> None:
    with pytest.raises(BrokerConfigError) as caught:
        parse_config({key: value})
    error = caught.value
    assert key in str(error)
    assert error.allowed
    assert error.value is not None and repr(error.value) in str(error)


def test_an_overridden_synonym_is_checked_too() -> None:
    with pytest.raises(BrokerConfigError, match=r"log\.retention\.hours"):
        parse_config({"log.retention.ms": "5", "log.retention.hours": "soon"})


def test_synonyms_override_each_other_in_kafkas_order() -> None:
    assert parsed(log_retention_hours="1").log_retention_ms == 3_600_000
    assert parsed(log_retention_hours="1", log_retention_minutes="2").log_retention_ms == 120_000
    assert (
        parsed(
            log_retention_hours="1", log_retention_minutes="2", log_retention_ms="3"
        ).log_retention_ms
        == 3
    )
    assert parsed(log_retention_hours="-1").log_retention_ms == -1
    assert parsed(log_roll_hours="2").log_roll_ms == 7_200_000
    assert parsed(broker_id="4").node_id == 4
    assert parsed(broker_id="4", node_id="5").node_id == 5
    assert parsed(log_dir="/x").data_dir == "/x"
    assert parsed(log_dirs="/a, /b").log_dirs == ("/a", "/b")
    assert parsed(log_dirs="/a,/b").data_dir == "/a"
    assert parsed(log_dirs="/a,/b", metadata_log_dir="/b").data_dir == "/b"


def test_blanks_around_values_are_ignored() -> None:
    config = parsed(num_partitions=" 3 ", log_cleanup_policy=" compact , delete ")
    assert config.num_partitions == 3
    assert config.log_cleanup_policy == ("compact", "delete")


def test_set_assignments_are_parsed_and_the_last_one_counts() -> None:
    assert parse_assignments(["a=1", "b=x=y", "a=2"]) == {"a": "2", "b": "x=y"}
    for bad in ("a", "=1", ""):
        with pytest.raises(BrokerConfigError, match="--set"):
            parse_assignments([bad])


def test_addresses_are_parsed_with_ipv6_and_empty_hosts() -> None:
    assert parse_address("k", "[::1]:9092") == ("::1", 9092)
    assert parse_address("k", ":0") == ("", 0)
    assert parse_address("k", "a.b:1") == ("a.b", 1)
    (listener,) = parsed(listeners="PLAINTEXT://[::1]:9092").broker_listeners
    assert (listener.host, listener.port) == ("::1", 9092)
    assert listener.address == "[::1]:9092"


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_a_config_error(text: str) -> None:
    try:
        host, port = parse_address("k", text)
    except BrokerConfigError:
        return
    assert 0 <= port <= 65_535
    assert " " not in host


@given(st.sampled_from(sorted(SETTING_OF_KEY)), st.text(max_size=30))
def test_any_text_is_a_value_or_a_config_error(key: str, text: str) -> None:
    try:
        config, _ = parse_config({key: text})
    except BrokerConfigError as error:
        assert str(error)
    else:
        assert isinstance(config, BrokerConfig)


def test_dynamic_settings_override_the_settings_file() -> None:
    static = parsed(log_retention_ms="100", message_max_bytes="2000")
    both = with_dynamic(
        static, {"message.max.bytes": "3000"}, {"message.max.bytes": "4000", "log.roll.ms": "7"}
    )
    assert both.message_max_bytes == 3000
    assert both.log_roll_ms == 7
    assert both.log_retention_ms == 100
    assert [source for source, _ in both.layers] == [
        ConfigSource.DYNAMIC_BROKER,
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
        ConfigSource.STATIC_BROKER,
    ]
    assert with_dynamic(both, {}, {}) == with_dynamic(static, {}, {})


def test_a_dynamic_synonym_overrides_a_static_setting() -> None:
    static = parsed(log_retention_ms="100")
    assert with_dynamic(static, {}, {"log.retention.hours": "1"}).log_retention_ms == 3_600_000


def test_only_settings_that_take_effect_at_once_are_dynamic() -> None:
    """A dynamic setting takes effect immediately: through LogConfig, or because it is read at each
    use."""
    followed = {row.broker_key for row in TOPIC_SETTINGS.values()} - NO_EFFECT_SETTINGS.keys()
    cleaner = (
        "backoff.ms",
        "dedupe.buffer.size",
        "io.buffer.load.factor",
        "io.max.bytes.per.second",
    )
    asked = {"max.connections", "transaction.partition.verification.enable"}
    asked |= {"max.connections.per.ip", "max.connections.per.ip.overrides"}
    asked |= {"max.connection.creation.rate", "producer.id.expiration.ms"}
    asked |= {f"log.cleaner.{name}" for name in cleaner}
    asked |= {"authorizer.log.allowed", "metrics.internal.topics.enable"}
    asked |= {f"group.{kind}.assignment.interval.ms" for kind in ("consumer", "share", "streams")}
    stores: tuple[str, ...] = (
        "keystore.type",
        "keystore.location",
        "keystore.password",
        "keystore.key",
    )
    stores += ("keystore.certificate.chain", "key.password", "truststore.type")
    stores += ("truststore.location", "truststore.password", "truststore.certificates")
    asked |= {f"ssl.{name}" for name in stores}
    assert {name for name, row in SETTINGS.items() if row.dynamic} == followed - {""} | asked


@looped("row", NO_EFFECT_SETTINGS.values(), ids=lambda row: row.name)
def test_dynamic_settings_without_effect_are_checked_and_kept(row: Setting) -> None:
    assert row.dynamic and not row.effective and row.read(write_value(row.default)) is not None
    config, notices = parse_config({row.name: write_value(row.default)})
    assert [notice.level for notice in notices] == ["debug"], "it is said to have no effect"
    assert config.value_of(row) == row.default
    assert dict(config.layers)[ConfigSource.STATIC_BROKER] == {row.name: write_value(row.default)}
    if row.kind not in (ConfigType.STRING, ConfigType.LIST):
        with pytest.raises(BrokerConfigError, match=re.escape(row.name)):
            parse_config({row.name: "x"})


def test_every_effective_setting_is_read_in_the_code() -> None:
    root = Path(__file__).parents[3]
    sources = [
        *(root / "broker").rglob("*.py"),
        root / "command_line/odradek_cli/broker/serving.py",
    ]
    code = "".join(path.read_text("utf-8") for path in sources if path.name != "broker_settings.py")
    words = set(re.findall(r"\w+", code))
    through_logs = {row.broker_key for row in LOG_SETTINGS.values()}
    unread = [
        name
        for name, row in SETTINGS.items()
        if row.effective and name not in through_logs and row.attribute not in words
    ]
    assert unread == []


def test_setting_types_have_the_numbers_of_describe_configs() -> None:
    assert {kind.name: int(kind) for kind in ConfigType} == {
        "BOOLEAN": 1,
        "STRING": 2,
        "INT": 3,
        "SHORT": 4,
        "LONG": 5,
        "DOUBLE": 6,
        "LIST": 7,
        "PASSWORD": 9,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0.0"), (0.9, "0.9"), (0.5, "0.5"), (1.0, "1.0"), (123456.75, "123456.75")),
        *((1e7, "1.0E7"), (12345678.0, "1.2345678E7"), (1e-4, "1.0E-4"), (-2.5e10, "-2.5E10")),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert write_value(value) == text
    assert float(text) == value
