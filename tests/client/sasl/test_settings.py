"""The settings of SASL: the results of valid settings, and the errors of wrong settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek import Producer
from odradek_client.config.admin import AdminConfig
from odradek_client.errors import ConfigError
from odradek_client.sasl.exchanges import Password
from odradek_client.sasl.settings import TokenSource, credentials
from odradek_protocol.tls.files import resolve

PLAIN: dict[str, Any] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
SCRAM = PLAIN | {"sasl.mechanism": "scram-sha-512", "security.protocol": "sasl_ssl"}
BEARER = PLAIN | {"sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = BEARER | {"sasl.oauthbearer.token.endpoint.url": "https://user:pw@idp/token?x=y"}
CLIENT = {
    "sasl.oauthbearer.client.credentials.client.id": "me",
    "sasl.oauthbearer.client.credentials.client.secret": "secret",
}
_MODULES = "org.apache.kafka.common.security"
PLAIN_LINE = f'{_MODULES}.plain.PlainLoginModule required username="alice" password="secret";'
BEARER_LINE = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "


def come_to(settings: dict[str, Any]) -> Password | TokenSource:
    sasl = AdminConfig.from_settings(settings).sasl
    assert sasl is not None
    return credentials(sasl, resolve)


@pytest.mark.parametrize(
    "given",
    [
        {"sasl.username": "alice", "sasl.password": "secret"},
        {"sasl.username": "alice", "sasl.password": "${env:THE_PASSWORD}"},
        {"sasl.jaas.config": PLAIN_LINE},
        {"sasl.jaas.config": PLAIN_LINE.replace('"secret"', '"${env:THE_PASSWORD}"')},
        {"sasl.jaas.config": PLAIN_LINE.replace(_MODULES, "kafkashaded.x")},
        {"sasl.jaas.config": "${env:THE_LINE}"},
    ],
)
def test_c77_a_password_may_be_given_directly_or_by_reference(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_PASSWORD", "secret")
    monkeypatch.setenv("THE_LINE", PLAIN_LINE)
    found = come_to(PLAIN | given)
    assert isinstance(found, Password)
    assert (found.username, found.password) == ("alice", "secret")
    assert "secret" not in repr(found)


def test_c77_a_password_may_be_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("bob=x\nalice=secret\n", "utf-8")
    reference = f"${{file:{tmp_path}/passwords:alice}}"
    found = come_to(SCRAM | {"sasl.username": "alice", "sasl.password": reference})
    assert isinstance(found, Password) and found.password == "secret"
    with pytest.raises(ConfigError, match="the environment has no variable NONE"):
        Producer(**PLAIN, sasl_username="alice", sasl_password="${env:NONE}")


def test_a_delegation_token_is_read_from_the_jaas_configuration() -> None:
    line = f'{_MODULES}.scram.ScramLoginModule required username="id" password="hmac" tokenauth="true";'
    found = come_to(SCRAM | {"sasl.jaas.config": line})
    assert isinstance(found, Password) and found.is_delegation_token
    assert found.who == "delegation token 'id'"


def test_tokens_come_from_an_endpoint_a_file_or_a_function() -> None:
    found = come_to(ENDPOINT | CLIENT | {"sasl.oauthbearer.scope": "kafka"})
    assert isinstance(found, TokenSource) and found.endpoint is not None
    assert (found.endpoint.client_id, found.endpoint.scope) == ("me", "kafka")
    assert found.place == "https://idp/token" and "secret" not in repr(found)
    line = (
        BEARER_LINE + 'clientId="me" clientSecret="s" scope="kafka" extension_logicalCluster="lkc";'
    )
    old = come_to(ENDPOINT | {"sasl.jaas.config": line, "sasl.oauthbearer.method": "OIDC"})
    assert isinstance(old, TokenSource) and old.endpoint is not None
    assert (old.endpoint.client_id, old.endpoint.client_secret) == ("me", "s")
    assert old.extensions == {"logicalCluster": "lkc"}
    handler = f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"
    file = {"sasl.oauthbearer.token.endpoint.url": "file:///a/token"}
    read = come_to(BEARER | file | {"sasl.login.callback.handler.class": handler})
    assert isinstance(read, TokenSource) and read.place == "file:///a/token"
    given = come_to(BEARER | {"sasl.oauth.token.provider": lambda: "t"})
    assert isinstance(given, TokenSource) and given.endpoint is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"security.protocol": "SASL"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "'GSSAPI' is not supported; set it to one of PLAIN"),
        ({"sasl.mechanism": "PLAIN"}, "set security_protocol=SASL_SSL or SASL_PLAINTEXT"),
        ({"security.protocol": "SSL", "sasl.username": "a"}, "set security_protocol=SASL_SSL"),
        (PLAIN | {"ssl.truststore.location": "x"}, "set security_protocol=SASL_SSL"),
        (PLAIN, "needs a username: set sasl_username"),
        (PLAIN | {"sasl.username": "alice"}, "needs a password"),
        (PLAIN | {"sasl.username": "alice", "sasl.password": "secret\0"}, "NUL"),
        (PLAIN | {"sasl.jaas.config": PLAIN_LINE, "sasl.username": "bob"}, "leave one out"),
        (PLAIN | {"sasl.jaas.config": PLAIN_LINE * 2}, "2 login modules; it must have one"),
        (PLAIN | {"sasl.jaas.config": PLAIN_LINE[:-1]}, 'must end with ";"'),
        (SCRAM | {"sasl.jaas.config": PLAIN_LINE}, "wants a ScramLoginModule"),
        (PLAIN | {"sasl.plain.username": "alice"}, "here it is sasl_username"),
        (PLAIN | {"sasl.mechanisms": "PLAIN"}, "here it is sasl_mechanism"),
        (PLAIN | {"sasl.kerberos.service.name": "kafka"}, "does not speak Kerberos"),
        (BEARER, "needs either sasl_oauthbearer_token_endpoint_url or"),
        (BEARER | {"sasl.oauthbearer.method": "oidc"}, "oidc needs sasl_oauthbearer_token"),
        (ENDPOINT | CLIENT | {"sasl.oauth.token.provider": str}, "needs either"),
        (ENDPOINT, "client_credentials_client_id"),
        (ENDPOINT | {next(iter(CLIENT)): "me"}, "client_credentials_client_secret"),
        (BEARER | {"sasl.oauthbearer.token.endpoint.url": "idp/token"}, "must begin with https://"),
        (BEARER | {"sasl.oauth.token.provider": "f"}, "cannot be called"),
        (
            BEARER | {"sasl.jaas.config": BEARER_LINE + 'unsecuredLoginStringClaim_sub="a";'},
            "without a signature",
        ),
        (
            ENDPOINT | CLIENT | {"sasl.jaas.config": BEARER_LINE + 'extension_a1="secret";'},
            "extension 'a1' must have letters",
        ),
        (BEARER | {"sasl.login.callback.handler.class": "my.Handler"}, "Java cannot run here"),
        (BEARER | {"sasl.login.refresh.window.factor": "1.1"}, "must be at most 1.0"),
        (BEARER | {"sasl.login.refresh.window.factor": "much"}, "is no number"),
        (BEARER | {"sasl.login.refresh.window.factor": "nan"}, "is no number"),
    ],
)
def test_c77_unusable_sasl_settings_are_refused_before_any_connection(
    given: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Producer(**given)
    assert '"secret' not in str(caught.value) and "=secret" not in str(caught.value)
