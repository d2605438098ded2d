"""The client's settings: rules C-01 to C-04, and the errors of wrong settings."""

from __future__ import annotations

import dataclasses
import inspect
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import odradek
from odradek import AdminSettings, ConsumerSettings, ProducerSettings, sync
from odradek_client.config.admin import AdminConfig
from odradek_client.config.common import ClientConfig
from odradek_client.config.consumer import ConsumerConfig
from odradek_client.config.definition import split_address
from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import ConfigError, OdradekError


def producer(**settings: Any) -> ProducerConfig:
    return ProducerConfig.from_settings(settings)


def test_c03_producer_defaults_are_those_of_kafka() -> None:
    config = producer()
    assert (config.acks, config.retries, config.batch_size) == (-1, 2**31 - 1, 16384)
    assert (config.linger_ms, config.buffer_memory) == (5, 33554432)
    assert (config.max_request_size, config.request_timeout_ms) == (1048576, 30000)
    assert (config.delivery_timeout_ms, config.max_block_ms) == (120000, 60000)
    assert (config.retry_backoff_ms, config.retry_backoff_max_ms) == (100, 1000)
    assert (config.transaction_timeout_ms, config.metadata_max_age_ms) == (60000, 300000)
    assert config.max_in_flight_requests_per_connection == 5
    assert config.enable_idempotence
    assert config.bootstrap_servers == ("127.0.0.1:9092",)


@pytest.mark.parametrize("settings", [{"acks": 1}, {"acks": "0"}, {"retries": 0}])
def test_c01_settings_that_conflict_with_idempotence_turn_it_off_or_fail(
    settings: dict[str, Any],
) -> None:
    assert not producer(**settings).enable_idempotence
    with pytest.raises(ConfigError, match="enable_idempotence"):
        producer(enable_idempotence=True, **settings)


def test_c01_more_than_five_in_flight_is_an_error_even_by_default() -> None:
    with pytest.raises(ConfigError, match="at most 5"):
        producer(max_in_flight_requests_per_connection=6)
    relaxed = producer(max_in_flight_requests_per_connection=6, enable_idempotence=False)
    assert relaxed.max_in_flight_requests_per_connection == 6


@pytest.mark.parametrize("settings", [{"enable_idempotence": False}, {"acks": 1}, {"retries": 0}])
def test_c02_transactions_need_idempotence(settings: dict[str, Any]) -> None:
    assert producer(transactional_id="t").enable_idempotence
    with pytest.raises(ConfigError, match="transactional_id"):
        producer(transactional_id="t", **settings)


def test_c04_delivery_timeout_covers_linger_and_one_request() -> None:
    assert producer(request_timeout_ms=200_000, linger_ms=7).delivery_timeout_ms == 200_007
    with pytest.raises(ConfigError, match="at least linger_ms"):
        producer(delivery_timeout_ms=1000, request_timeout_ms=999, linger_ms=2)
    assert producer(delivery_timeout_ms=1001, request_timeout_ms=999, linger_ms=2)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lingr_ms": 1}, "did you mean linger_ms"),
        ({"linger_ms": -1}, "linger_ms=-1 is too small"),
        ({"linger_ms": "soon"}, "no whole number"),
        ({"linger_ms": None}, "may not be None"),
        ({"acks": 2}, "acks=2"),
        ({"acks": True}, "acks=True"),
        ({"compression_type": "zst"}, "did you mean 'zstd'"),
        ({"bootstrap_servers": ""}, "bootstrap_servers is empty"),
        ({"bootstrap_servers": "host:port"}, "'port' is no port"),
        ({"bootstrap_servers": ["::1"]}, "brackets"),
        ({"bootstrap_servers": 9092}, "bootstrap_servers=9092"),
        ({"enable_idempotence": "maybe"}, "true or false"),
        ({"partitioner": "random"}, "partitioner='random'"),
        ({"key_serializer": "utf-8"}, "cannot be called"),
        ({"linger.ms": 1, "linger_ms": 2}, "given twice"),
        ({"completely": "different"}, "odradek.ProducerSettings has all"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        producer(**settings)
    assert words in str(caught.value)
    assert isinstance(caught.value, ValueError | OdradekError)


def test_settings_may_be_texts_with_dotted_names() -> None:
    config = producer(**{"linger.ms": "20", "acks": "ALL", "enable.idempotence": "false"})
    assert (config.linger_ms, config.acks, config.enable_idempotence) == (20, -1, False)
    assert producer(linger_ms=3.0).linger_ms == 3


def test_bootstrap_addresses_are_parsed() -> None:
    config = producer(bootstrap_servers="a:1, b ,PLAINTEXT://c:3,[::1]:4")
    assert [split_address(a) for a in config.bootstrap_servers] == [
        ("a", 1),
        ("b", 9092),
        ("c", 3),
        ("::1", 4),
    ]


@pytest.mark.parametrize("cls", [ClientConfig, AdminConfig, ConsumerConfig, ProducerConfig])
def test_every_setting_is_documented_and_has_a_legal_default(cls: type[ClientConfig]) -> None:
    config = cls.from_settings({})
    for name, row in cls.rows().items():
        assert row.doc.endswith("."), name
        if row.default is not None:
            assert cls.from_settings({name: getattr(config, name)})
    assert "request_timeout_ms = 30000" in cls.describe()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.client_id = "other"  # type: ignore[misc]


def test_the_consumer_protocol_refuses_settings_that_the_broker_has() -> None:
    settings = ConsumerConfig.from_settings({"group.protocol": "consumer", "group_id": "g"})
    assert settings.group_protocol == "consumer"
    for name, value in (
        ("session_timeout_ms", 10_000),
        ("heartbeat_interval_ms", 100),
        ("partition_assignment_strategy", "range"),
    ):
        with pytest.raises(ConfigError, match=f"{name} cannot go with group_protocol"):
            ConsumerConfig.from_settings({"group_protocol": "consumer", name: value})
    with pytest.raises(ConfigError, match='group_remote_assignor needs group_protocol="consumer"'):
        ConsumerConfig.from_settings({"group_remote_assignor": "range"})


CLASSES: list[tuple[Any, Any, Any]] = [
    (odradek.Producer, ProducerSettings, ProducerConfig),
    (odradek.Consumer, ConsumerSettings, ConsumerConfig),
    (odradek.Admin, AdminSettings, AdminConfig),
    (sync.Producer, ProducerSettings, ProducerConfig),
    (sync.Consumer, ConsumerSettings, ConsumerConfig),
    (sync.Admin, AdminSettings, AdminConfig),
]


@pytest.mark.parametrize(("client", "keywords", "config"), CLASSES)
def test_a_client_takes_its_settings_as_keyword_arguments_only(
    client: Any, keywords: Any, config: Any
) -> None:
    signature = inspect.signature(client)
    named = {"settings": inspect.Parameter.VAR_KEYWORD, "topics": inspect.Parameter.VAR_POSITIONAL}
    assert all(each.kind is named[each.name] for each in signature.parameters.values())
    assert signature.parameters["settings"].annotation == f"Unpack[{keywords.__name__}]"
    assert get_type_hints(keywords).keys() == config.rows().keys()
    assert keywords.__required_keys__ == frozenset()


@pytest.mark.parametrize(("client", "keywords", "config"), CLASSES)
def test_every_default_has_its_declared_type(client: Any, keywords: Any, config: Any) -> None:
    for name, hint in get_type_hints(keywords).items():
        row = config.rows()[name]
        default = row.default
        if get_origin(hint) is Literal:
            assert default in get_args(hint), name
            assert not row.check.choices or get_args(hint) == row.check.choices, name
            continue
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        assert isinstance(default, tuple(get_origin(each) or each for each in kinds)), name


@pytest.mark.parametrize(("client", "keywords", "config"), CLASSES)
def test_clients_take_dotted_names_from_a_dictionary(
    client: Any, keywords: Any, config: Any
) -> None:
    given: dict[str, Any] = {"bootstrap.servers": "example.org:9", "request.timeout.ms": "7000"}
    made = client(**given)
    found = getattr(made, "inner", made).config
    assert found.bootstrap_servers == ("example.org:9",)
    assert found.request_timeout_ms == 7_000
    with pytest.raises(ConfigError, match="given twice, with dots and with underscores"):
        client(**given, bootstrap_servers="example.org:9")
    with pytest.raises(ConfigError, match=r"has no setting 'client\.ids'; did you mean client_id"):
        client(**{"client.ids": "x"})


@pytest.mark.parametrize("kind", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_unsupported_security_protocols_are_refused(kind: Any) -> None:
    assert kind.from_settings({"security.protocol": "plaintext"}).security_protocol == "plaintext"
    assert kind.from_settings({"security.protocol": "ssl"}).tls is not None
    for value in ("SASL_PLAINTEXT", "SASL_SSL"):
        with pytest.raises(ConfigError, match="sasl_mechanism='GSSAPI' is not supported"):
            kind.from_settings({"security_protocol": value})
    for name in ("sasl.mechanism", "sasl_username"):
        with pytest.raises(ConfigError, match="set security_protocol=SASL_SSL or SASL_PLAINTEXT"):
            kind.from_settings({name: "x"})
    with pytest.raises(ConfigError, match="does not speak Kerberos"):
        kind.from_settings({"sasl.kerberos.service.name": "kafka"})
    with pytest.raises(ConfigError, match="set security_protocol=SSL"):
        kind.from_settings({"ssl.keystore.location": "x"})
