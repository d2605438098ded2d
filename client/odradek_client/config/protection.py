"""The checks of `security_protocol`, TLS and SASL settings against each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek_client.config.definition import ClientSetting
from odradek_client.errors import ConfigError
from odradek_client.sasl.settings import SaslSettings
from odradek_client.sasl.tokens import RefreshWindow
from odradek_protocol.sasl.jaas import LOGIN_MODULES
from odradek_protocol.tls.settings import STORE_TYPES, TlsSettings, tls_settings

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: Java classes that configurations of OAUTHBEARER name. This client does the work of these classes
#: itself.
_BUILT_IN = {
    "sasl_login_callback_handler_class": ("", "OAuthBearerLoginCallbackHandler"),
    "sasl_oauthbearer_jwt_retriever_class": (
        "",
        "DefaultJwtRetriever",
        "ClientCredentialsJwtRetriever",
        "FileJwtRetriever",
    ),
}


def resolve_protection(
    values: Mapping[str, Any], given: frozenset[str], rows: Mapping[str, ClientSetting]
) -> None:
    """Raise ConfigError for an unknown security_protocol or mechanism, and for settings of TLS or
    SASL that would have no effect."""
    protocol = _protocol(values["security_protocol"])
    if protocol not in _PROTOCOLS:
        raise ConfigError(
            f"security_protocol={values['security_protocol']!r} must be one of"
            f" {', '.join(_PROTOCOLS)}"
        )
    set_ = sorted(name for name in given if values[name] != rows[name].default)
    _refuse_unused(protocol, set_, "ssl_", "SSL")
    _refuse_unused(protocol, set_, "sasl_", "SASL")
    for name in ("ssl_truststore_type", "ssl_keystore_type"):
        if values[name].strip().upper() not in STORE_TYPES:
            raise ConfigError(f"{name}={values[name]!r} must be one of {', '.join(STORE_TYPES)}")
    if protocol.startswith("SASL_"):
        _check_sasl(values)


def _protocol(text: str) -> str:
    return text.strip().upper()


def _refuse_unused(protocol: str, set_: list[str], prefix: str, part: str) -> None:
    unused = [name for name in set_ if name.startswith(prefix)]
    if not unused or part in protocol.split("_"):
        return
    both = "SASL_SSL" if protocol != "PLAINTEXT" else "SSL" if part == "SSL" else "SASL_SSL"
    instead = " or SASL_PLAINTEXT" if part == "SASL" and protocol == "PLAINTEXT" else ""
    raise ConfigError(
        f"{unused[0]} is set, and connections are {protocol}: set security_protocol={both}{instead},"
        " or leave it out"
    )


def _check_sasl(values: Mapping[str, Any]) -> None:
    mechanism = _protocol(values["sasl_mechanism"])
    if mechanism not in LOGIN_MODULES:
        raise ConfigError(
            f"sasl_mechanism={values['sasl_mechanism']!r} is not supported; set it to one of"
            f" {', '.join(LOGIN_MODULES)}"
        )
    for name, classes in _BUILT_IN.items():
        if values[name].strip().rpartition(".")[2] not in classes:
            raise ConfigError(
                f"{name}={values[name]!r}: classes of Java cannot run here; give a function as"
                " sasl_oauth_token_provider instead"
            )
    if (
        values["sasl_oauthbearer_method"] == "oidc"
        and not (values["sasl_oauthbearer_token_endpoint_url"])
    ):
        raise ConfigError("sasl_oauthbearer_method=oidc needs sasl_oauthbearer_token_endpoint_url")


def tls_of(config: Any) -> TlsSettings | None:
    """The TLS settings of a client; None without TLS."""
    if _protocol(config.security_protocol) not in ("SSL", "SASL_SSL"):
        return None
    names = [name for name in type(config).rows() if name.startswith("ssl_")]
    return tls_settings({name: getattr(config, name) for name in names})


def sasl_of(config: Any) -> SaslSettings | None:
    """The SASL settings of a client; None if it does not authenticate."""
    if not _protocol(config.security_protocol).startswith("SASL_"):
        return None
    return SaslSettings(
        mechanism=_protocol(config.sasl_mechanism),
        jaas_config=config.sasl_jaas_config,
        username=config.sasl_username,
        password=config.sasl_password,
        token_auth=config.sasl_token_auth,
        token_provider=config.sasl_oauth_token_provider,
        token_endpoint_url=config.sasl_oauthbearer_token_endpoint_url,
        client_id=config.sasl_oauthbearer_client_credentials_client_id,
        client_secret=config.sasl_oauthbearer_client_credentials_client_secret,
        scope=config.sasl_oauthbearer_scope,
        header_urlencode=config.sasl_oauthbearer_header_urlencode,
        login_connect_timeout_ms=config.sasl_login_connect_timeout_ms,
        login_read_timeout_ms=config.sasl_login_read_timeout_ms,
        login_retry_backoff_ms=config.sasl_login_retry_backoff_ms,
        login_retry_backoff_max_ms=config.sasl_login_retry_backoff_max_ms,
        refresh=RefreshWindow(
            config.sasl_login_refresh_window_factor,
            config.sasl_login_refresh_window_jitter,
            config.sasl_login_refresh_min_period_seconds * 1000,
            config.sasl_login_refresh_buffer_seconds * 1000,
        ),
    )
