"""The settings of SASL, and the password or the source of tokens that they select. Without I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek_client.errors import ConfigError
from odradek_client.sasl.exchanges import Password
from odradek_client.sasl.tokens import RefreshWindow
from odradek_protocol.sasl import oauthbearer
from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.sasl.jaas import LOGIN_MODULES, JaasError, parse_jaas
from odradek_protocol.sasl.oauthbearer import check_extensions
from odradek_protocol.tls.settings import TlsSettings, tls_settings

_EXTENSION = "extension_"
_UNSECURED = "unsecuredLogin"
_SCRAM_MODULE = "ScramLoginModule"
_FILE = "file:///"
_URL = re.compile(
    r"(?P<scheme>https?)://(?:[^/?#@\s]*@)?(?P<at>(?:\[[0-9A-Fa-f:.]+\]|[^/?#@:\s]+)(?::[0-9]{1,5})?)"
    r"(?P<path>(?:/[^?#\s]*)?)(?:\?[^#\s]*)?"
)

#: Returns a secret. The argument is the secret itself, or a reference to it.
Resolve = Callable[[str], str]


@dataclass(frozen=True, kw_only=True)
class SaslSettings:
    """The SASL settings of one client as they were given. Secrets may be given as references."""

    mechanism: str
    jaas_config: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    token_auth: bool = False
    token_provider: Callable[[], Any] | None = field(default=None, repr=False)
    token_endpoint_url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    header_urlencode: bool = False
    login_connect_timeout_ms: int = 10_000
    login_read_timeout_ms: int = 10_000
    login_retry_backoff_ms: int = 100
    login_retry_backoff_max_ms: int = 10_000
    refresh: RefreshWindow = field(default_factory=RefreshWindow)


@dataclass(frozen=True, kw_only=True)
class TokenEndpoint:
    """The endpoint of tokens, with the client's own credentials (RFC 6749, section 4.4), or a file
    with a token."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    header_urlencode: bool = False
    tls: TlsSettings | None = None

    @property
    def shown(self) -> str:
        """The address without parts that may be secret."""
        found = _URL.fullmatch(self.url)
        return self.url if found is None else f"{found['scheme']}://{found['at']}{found['path']}"


@dataclass(frozen=True)
class TokenSource:
    """The source of OAUTHBEARER tokens, a provider or an endpoint, and the extensions of every
    token."""

    provider: Callable[[], Any] | None
    endpoint: TokenEndpoint | None
    extensions: Mapping[str, str] = field(repr=False)

    @property
    def place(self) -> str:
        """The setting of the provider, or the address of the endpoint, for error messages."""
        return "sasl_oauth_token_provider" if self.endpoint is None else self.endpoint.shown


def credentials(settings: SaslSettings, resolve: Resolve) -> Password | TokenSource:
    """The password or token source to authenticate with. ConfigError names a missing or conflicting
    setting; TlsError (raised by `resolve`) names an invalid reference."""
    options = _jaas_options(settings, resolve)
    if settings.mechanism == oauthbearer.MECHANISM:
        return _token_source(settings, options, resolve)
    return _password(settings, options, resolve)


def _jaas_options(settings: SaslSettings, resolve: Resolve) -> Mapping[str, str] | None:
    """The options of the login module in sasl.jaas.config; None if that setting is empty."""
    if not settings.jaas_config.strip():
        return None
    try:
        modules = parse_jaas(resolve(settings.jaas_config))
    except JaasError as error:
        raise ConfigError(f"sasl_jaas_config: {error}") from None
    if len(modules) != 1:
        raise ConfigError(f"sasl_jaas_config has {len(modules)} login modules; it must have one")
    wanted = LOGIN_MODULES[settings.mechanism]
    if modules[0].short_name != wanted:
        raise ConfigError(
            f"sasl_jaas_config has a {modules[0].short_name}, and sasl_mechanism="
            f"{settings.mechanism} wants a {wanted}"
        )
    return {name: resolve(value) for name, value in modules[0].options.items()}


def _password(
    settings: SaslSettings, options: Mapping[str, str] | None, resolve: Resolve
) -> Password:
    given = bool(settings.username or settings.password)
    if options is not None:
        if given:
            raise ConfigError(
                "sasl_jaas_config and sasl_username or sasl_password are given; leave one out"
            )
        username, password = options.get("username", ""), options.get("password", "")
        place = "username and password in sasl.jaas.config"
        is_token = options.get("tokenauth", "").strip().lower() == "true"
    else:
        username, password = resolve(settings.username), resolve(settings.password)
        place, is_token = "sasl.username and sasl.password", settings.token_auth
    if not username or not password:
        missing = "username" if not username else "password"
        raise ConfigError(
            f"sasl_mechanism={settings.mechanism} needs a {missing}: set sasl_username and"
            f" sasl_password, or sasl_jaas_config with a {LOGIN_MODULES[settings.mechanism]}"
        )
    if settings.token_auth and LOGIN_MODULES[settings.mechanism] != _SCRAM_MODULE:
        raise ConfigError(
            f"sasl_token_auth needs a mechanism of SCRAM, and sasl_mechanism is {settings.mechanism}"
        )
    if "\0" in username + password:
        raise ConfigError("sasl_username and sasl_password cannot have a NUL character")
    return Password(username, password, place, is_token)


def _token_source(
    settings: SaslSettings, given: Mapping[str, str] | None, resolve: Resolve
) -> TokenSource:
    options = given or {}
    if any(name.startswith(_UNSECURED) for name in options):
        raise ConfigError(
            "sasl_jaas_config asks for tokens without a signature, which are not made here: set"
            " sasl_oauthbearer_token_endpoint_url or sasl_oauth_token_provider"
        )
    extensions = {
        name.removeprefix(_EXTENSION): value
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    }
    try:
        check_extensions(extensions)
    except SaslMessageError as error:
        raise ConfigError(f"sasl_jaas_config: {error}") from None
    url = settings.token_endpoint_url.strip()
    if (settings.token_provider is None) == (not url):
        raise ConfigError(
            "sasl_mechanism=OAUTHBEARER needs either sasl_oauthbearer_token_endpoint_url or"
            " sasl_oauth_token_provider, to get its tokens from"
        )
    endpoint = None if not url else _endpoint(settings, url, options, resolve)
    return TokenSource(settings.token_provider, endpoint, extensions)


def _endpoint(
    settings: SaslSettings, url: str, options: Mapping[str, str], resolve: Resolve
) -> TokenEndpoint:
    if url.startswith(_FILE):
        return TokenEndpoint(url=url)
    if _URL.fullmatch(url) is None:
        raise ConfigError(
            f"sasl_oauthbearer_token_endpoint_url={url!r} must begin with https:// and a host, or be"
            " file:///PATH"
        )
    client_id = resolve(settings.client_id) or options.get("clientId", "")
    secret = resolve(settings.client_secret) or options.get("clientSecret", "")
    if not client_id or not secret:
        missing = "id" if not client_id else "secret"
        raise ConfigError(
            f"the token endpoint needs the client's credentials: set"
            f" sasl_oauthbearer_client_credentials_client_{missing}"
        )
    tls = {name.replace(".", "_"): each for name, each in options.items() if name[:4] == "ssl."}
    return TokenEndpoint(
        url=url,
        client_id=client_id,
        client_secret=secret,
        scope=settings.scope or options.get("scope", ""),
        header_urlencode=settings.header_urlencode,
        tls=tls_settings(tls) if tls else None,
    )
