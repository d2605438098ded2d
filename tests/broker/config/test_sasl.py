"""The settings of SASL: the requirements of each listener, and errors that prevent a start."""

from __future__ import annotations

import pytest

from odradek_broker.config.broker import BrokerConfig, BrokerConfigError, parse_config
from odradek_broker.config.sasl import SignedTokens, UnsecuredTokens, sasl_settings
from odradek_broker.config.sasl_settings import UNSECURED_VALIDATOR, VALIDATOR
from odradek_protocol.tls.files import resolve

PLAIN_KEY = "listener.name.sasl_ssl.plain.sasl.jaas.config"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a\\"b;";'
OAUTH_KEY = "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER_KEY = "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class"
URL = "sasl.oauthbearer.jwks.endpoint.url"


def parsed(*mechanisms: str, **more: str) -> BrokerConfig:
    return parse_config(given(*mechanisms) | more)[0]


def given(*mechanisms: str) -> dict[str, str]:
    return {"listeners": "SASL_SSL://127.0.0.1:1", "sasl.enabled.mechanisms": ",".join(mechanisms)}


def test_a43_kafkas_sasl_settings_are_accepted() -> None:
    config, notices = parse_config(
        {
            "listeners": "CLIENTS://:9092,REST://127.0.0.1:9093",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,REST:SASL_PLAINTEXT",
            "inter.broker.listener.name": "CLIENTS",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.rest.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.clients.plain.sasl.jaas.config": PLAIN,
            "listener.name.clients.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "connections.max.reauth.ms": "5000",
            "listener.name.clients.connections.max.reauth.ms": "6000",
            "listener.name.clients.plain.connections.max.reauth.ms": "7000",
            "sasl.kerberos.service.name": "kafka",
            "sasl.login.refresh.buffer.seconds": "300",
        }
    )
    assert [each.text for each in notices if each.level == "warning"] == []
    clients = sasl_settings(config, "CLIENTS")
    assert clients.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert clients.max_reauth_ms == {"PLAIN": 7000, "SCRAM-SHA-512": 6000}
    assert clients.plain_users == {"alice": 'a"b;'}
    assert sasl_settings(config, "REST").max_reauth_ms == {"SCRAM-SHA-256": 5000}
    assert 'a"b;' not in repr(clients) + repr(config)


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({}, "sasl.plain.users.file", "users of PLAIN"),
        ({PLAIN_KEY: PLAIN[:-1]}, PLAIN_KEY, 'must end with ";"'),
        ({PLAIN_KEY: PLAIN * 2}, PLAIN_KEY, "one login module"),
        ({PLAIN_KEY: OAUTH + ";"}, PLAIN_KEY, "PlainLoginModule"),
        ({PLAIN_KEY: PLAIN.replace("alice", "")}, PLAIN_KEY, "user_NAME"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms", "Kerberos"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-1"}, "sasl.enabled.mechanisms", "SCRAM-SHA-512"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, URL, "file:///"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER", URL: "keys"}, URL, "https://"),
        ({HANDLER_KEY: "com.example.Handler"}, HANDLER_KEY, VALIDATOR),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.algorithms": "HS256"},
            "sasl.oauthbearer.algorithms",
            "RS256",
        ),
    ],
)
def test_a43_the_error_names_the_missing_or_invalid_sasl_setting(
    settings: dict[str, str], key: str, words: str
) -> None:
    with pytest.raises(BrokerConfigError) as raised:
        parse_config(given("PLAIN") | settings)
    assert raised.value.key == key
    assert words in str(raised.value)
    assert 'a"b' not in str(raised.value) and 'a\\"b' not in str(raised.value)


def test_a43_passwords_may_come_from_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAAS_OF_PLAIN", PLAIN)
    config = parsed("PLAIN", **{PLAIN_KEY: "${env:JAAS_OF_PLAIN}"})
    assert list(sasl_settings(config, "SASL_SSL", resolve).plain_users) == ["alice"]
    monkeypatch.setenv("PASSWORD_OF_BOB", "secret;")
    line = PLAIN.rpartition(" ")[0] + ' user_bob="${env:PASSWORD_OF_BOB}";'
    config = parsed("PLAIN", **{PLAIN_KEY: line})
    assert sasl_settings(config, "SASL_SSL", resolve).plain_users["bob"] == "secret;"
    monkeypatch.delenv("JAAS_OF_PLAIN")
    config = parsed("PLAIN", **{PLAIN_KEY: "${env:JAAS_OF_PLAIN}"})
    with pytest.raises(BrokerConfigError, match="JAAS_OF_PLAIN"):
        sasl_settings(config, "SASL_SSL", resolve)


def test_a43_only_a_listeners_own_setting_requests_certificates_with_sasl() -> None:
    config = parsed("SCRAM-SHA-256", **{"ssl.client.auth": "required"})
    assert config.tls_settings("SASL_SSL").client_auth == "none"
    own = {"listener.name.sasl_ssl.ssl.client.auth": "required"}
    assert parsed("SCRAM-SHA-256", **own).tls_settings("SASL_SSL").client_auth == "required"


def test_a46_unsecured_tokens_are_accepted_only_if_configured() -> None:
    unsecured = f'{OAUTH} unsecuredValidatorPrincipalClaimName="name";'
    config, notices = parse_config(given("OAUTHBEARER") | {OAUTH_KEY: unsecured})
    assert sasl_settings(config, "SASL_SSL").tokens == UnsecuredTokens("name")
    assert any("everybody can be any user" in each.text for each in notices)
    config = parsed("OAUTHBEARER", **{HANDLER_KEY: UNSECURED_VALIDATOR})
    assert sasl_settings(config, "SASL_SSL").tokens == UnsecuredTokens()
    # A URL of keys means that signatures are verified.
    config = parsed("OAUTHBEARER", **{OAUTH_KEY: unsecured, URL: "https://keys"})
    assert isinstance(sasl_settings(config, "SASL_SSL").tokens, SignedTokens)


def test_n18_a_sasl_listener_may_bind_public_addresses() -> None:
    settings = {"listeners": "SASL_SSL://:9093", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    assert parse_config(settings)[1] == []
    settings = {"listeners": "SASL_PLAINTEXT://:9093", "sasl.enabled.mechanisms": "PLAIN"}
    users = {"sasl.plain.users.file": "users"}
    _, notices = parse_config(settings | users)
    assert ["unencrypted" in each.text for each in notices] == [True]
    with pytest.raises(BrokerConfigError, match="SASL_SSL"):
        parse_config({"listeners": "PLAINTEXT://:9092"})
