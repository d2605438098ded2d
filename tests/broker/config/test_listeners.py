"""The listeners of a configuration, compared with Apache Kafka's result for the same
configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from many_cases import looped
from odradek_broker.config.broker import BrokerConfig, BrokerConfigError, parse_config
from odradek_broker.config.listeners import with_plaintext_address

_RECORDED = Path(__file__).parents[2] / "oracle" / "listeners" / "recorded.json"
CASES: list[dict[str, Any]] = json.loads(_RECORDED.read_text("utf-8"))

#: Settings whose result differs from Kafka's, with the reason.
DIFFERENCES = {
    "listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093": "advertises the machine's name",
    "advertised.listeners=PLAINTEXT://[::]:9092": "nobody can connect to ::, as to 0.0.0.0",
    "advertised.listeners=OTHER://h:9092": "there are no other brokers, which PLAINTEXT is for",
    "security.inter.broker.protocol=SSL": "there are no other brokers",
    "listeners=PLAINTEXT://:9092": "there is no separate controller",
    "process.roles=broker": "there is no separate controller",
    "process.roles=controller": "nothing would be served",
    "listener.name.plaintext.max.connections=x": "Kafka finds it when it is used",
    "listeners=PLAINTEXT://h:-1,CONTROLLER://:9093": "no port",
    "listeners=SSL://:9092,CONTROLLER://:9093": "there are no other brokers, which PLAINTEXT is for",
    "ssl.enabled.protocols=TLSv9": "there is no such version; Kafka finds it when it is used",
    "ssl.principal.mapping.rules=RULE:x": "Kafka finds it when it is used",
    "listener.name.plaintext.ssl.client.auth=maybe": "Kafka finds it when it is used",
}
_USUAL = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "log.dirs": "/tmp/none",
    "controller.listener.names": "CONTROLLER",
}


def _differs(settings: dict[str, str]) -> bool:
    asked = {f"{key}={value}" for key, value in settings.items() if _USUAL.get(key) != value}
    return not asked.isdisjoint(DIFFERENCES)


def parsed(settings: dict[str, str]) -> BrokerConfig:
    return parse_config({**settings, "insecure.listeners": "true"})[0]


@looped("case", CASES)
def test_n17_listener_settings_are_accepted_and_refused_as_by_kafka(
    case: dict[str, Any],
) -> None:
    settings = case["settings"]
    try:
        parsed(settings)
    except BrokerConfigError as error:
        refused = str(error)
    else:
        refused = ""
    if (case["kafka"] == "OK") != (not refused):
        assert _differs(settings), f"Kafka: {case['kafka']}; we: {refused or 'OK'}"


def test_n17_listener_names_are_case_insensitive() -> None:
    config = parsed(
        {
            "listeners": "internal://:9092, HOST://127.0.0.1:29092,CONTROLLER://:9093",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,host:plaintext,CONTROLLER:SSL",
            "controller.listener.names": "controller",
            "advertised.listeners": "INTERNAL://broker:9092,HOST://localhost:0",
        }
    )
    assert [(each.name, each.host, each.port) for each in config.broker_listeners] == [
        ("INTERNAL", "", 9092),
        ("HOST", "127.0.0.1", 29092),
    ]
    assert config.advertised_addresses == {"INTERNAL": ("broker", 9092), "HOST": ("localhost", 0)}


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"listeners": "PLAINTEXT://a:1,B://b:1"}, "listeners", "listener.security.protocol.map"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "listeners", "PLAINTEXT is not"),
        ({"listeners": "SASL_SSL://a:1"}, "sasl.enabled.mechanisms", "Kerberos"),
        ({"listener.security.protocol.map": "A"}, "listener.security.protocol.map", "'A'"),
        ({"listener.security.protocol.map": "A:TLS"}, "listener.security.protocol.map", "A:TLS"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners", "0.0.0.0"),
        ({"advertised.listeners": "SSL://h:1"}, "advertised.listeners", "not SSL"),
        ({"inter.broker.listener.name": "SSL"}, "inter.broker.listener.name", "PLAINTEXT"),
        ({"process.roles": "controller"}, "process.roles", "with broker"),
    ],
)
def test_n17_a_refusal_of_listener_settings_names_the_remedy(
    settings: dict[str, str], key: str, words: str
) -> None:
    with pytest.raises(BrokerConfigError) as caught:
        parsed(settings)
    assert caught.value.key == key and words in caught.value.allowed


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "192.0.2.7", "db.example"])
def test_n18_a_public_plaintext_listener_needs_insecure_listeners(host: str) -> None:
    given = {"listeners": f"PLAINTEXT://127.0.0.1:1,SSL://{host}:2"}
    given["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT"
    with pytest.raises(BrokerConfigError) as caught:
        parse_config(given)
    text = str(caught.value)
    assert "--insecure" in text and "insecure.listeners=true" in text and "SSL" in text
    parse_config({**given, "insecure.listeners": "true"})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
def test_n18_a_loopback_plaintext_listener_is_accepted(host: str) -> None:
    parse_config({"listeners": f"PLAINTEXT://{host}:9092"})


def test_settings_of_kafkas_quorum_are_reported_in_a_single_notice() -> None:
    _, notices = parse_config(
        {
            "process.roles": "broker,controller",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093",
        }
    )
    (notice,) = notices
    assert notice.level == "info"
    for text in ("process.roles", "controller.quorum.bootstrap.servers", "CONTROLLER"):
        assert text in notice.text


def test_a_setting_of_an_unknown_listener_is_a_warning() -> None:
    config, notices = parse_config(
        {"listener.name.host.max.connections": "5", "listener.name.plaintext.max.connections": "6"}
    )
    assert [(each.level, "listener.name.host" in each.text) for each in notices] == [
        ("warning", True)
    ]
    assert config.listener_int("PLAINTEXT", "max.connections") == 6
    assert config.listener_int("OTHER", "max.connections") == 2**31 - 1


def test_the_listen_option_changes_the_plaintext_listener_only() -> None:
    assert with_plaintext_address(None, "h:1") == "PLAINTEXT://h:1"
    both = "SSL://a:2,plaintext://b:3"
    assert with_plaintext_address(both, "h:1") == "SSL://a:2,PLAINTEXT://h:1"
    with pytest.raises(BrokerConfigError, match=r"--listen .* listeners has SSL"):
        with_plaintext_address("SSL://a:2", "h:1")
    with pytest.raises(BrokerConfigError, match="--listen"):
        with_plaintext_address(None, "h")


def test_n35_a_public_http_endpoint_needs_tls_and_a_token() -> None:
    given = {"http.listen": "0.0.0.0:8080"}
    both = {"http.security.protocol": "SSL", "http.token": "s3cret"}
    for less in ({}, {"http.token": "s3cret"}, {"http.security.protocol": "SSL"}):
        with pytest.raises(BrokerConfigError) as refused:
            parse_config({**given, **less})
        text = str(refused.value)
        assert "http.token" in text and "insecure.listeners=true" in text and "s3cret" not in text
    parse_config({**given, **both})
    parse_config({**given, "insecure.listeners": "true"})
    for host in ("127.0.0.1", "localhost", "[::1]"):
        parse_config({"http.listen": f"{host}:8080"})
    shown = str(parse_config({**given, **both})[0])
    assert "s3cret" not in shown
