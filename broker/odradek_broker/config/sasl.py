"""The SASL settings of a listener, combined: mechanisms, users and validation of tokens.

The module opens no file. The caller resolves references (`${env:NAME}`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Protocol

from odradek_broker.config.listener_settings import listener_key
from odradek_broker.config.listeners import Listener, SecurityProtocol
from odradek_broker.config.sasl_settings import MECHANISMS, UNSECURED_VALIDATOR
from odradek_broker.config.types import BrokerConfigError, Value, write_value
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.sasl.jaas import LOGIN_MODULES, JaasError, LoginModule, parse_jaas
from odradek_protocol.tls.settings import TlsError

_ENABLED = "sasl.enabled.mechanisms"
_JAAS = "sasl.jaas.config"
_USERS_FILE = "sasl.plain.users.file"
_HANDLER = "sasl.server.callback.handler.class"
_REAUTH = "connections.max.reauth.ms"
_JWKS = "sasl.oauthbearer.jwks.endpoint.url"
#: Prefix of PlainLoginModule's options that declare users.
_USER = "user_"


class PerListenerSettings(Protocol):
    """The parsed configuration, reduced to what this module reads."""

    def listener_text(self, listener: str, name: str, mechanism: str = "", /) -> str | None:
        """See `BrokerConfig`."""
        ...

    def listener_value(self, listener: str, name: str, /) -> Value:
        """See `BrokerConfig`."""
        ...

    def mechanism_value(self, listener: str, mechanism: str, name: str, /) -> Value:
        """See `BrokerConfig`."""
        ...


@dataclass(frozen=True)
class UnsecuredTokens:
    """The validation of tokens without a signature. `principal_claim` and `scope_claim` are names
    of claims."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0


@dataclass(frozen=True)
class SignedTokens:
    """The validation of signed tokens."""

    jwks_url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    audiences: tuple[str, ...]
    issuer: str
    scope_claim: str
    subject_claim: str
    clock_skew_s: int
    algorithms: tuple[str, ...]


@dataclass(frozen=True)
class SaslListenerSettings:
    """All SASL settings of one listener. `max_reauth_ms`: by mechanism, the maximum lifetime of a
    session; 0 means no limit."""

    name: str
    mechanisms: tuple[str, ...]
    max_reauth_ms: Mapping[str, int]
    #: Users of PLAIN by name, with their passwords.
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    plain_users_file: str = ""
    tokens: SignedTokens | UnsecuredTokens | None = None


#: Returns the secret to which a text refers; other texts are returned unchanged. Raises TlsError.
Resolve = Callable[[str], str]
_REFERENCE = "${"


def sasl_settings(
    config: PerListenerSettings, listener: str, resolve: Resolve | None = None
) -> SaslListenerSettings:
    """The SASL settings of a listener. Raises ConfigError, which names the setting to change.

    Without `resolve`, a sasl.jaas.config that consists of a reference is not resolved: its users
    are missing, and neither the users nor the login module are checked.
    """
    mechanisms = config.listener_value(listener, _ENABLED)
    assert isinstance(mechanisms, tuple)
    if not set(mechanisms) <= set(MECHANISMS):
        raise BrokerConfigError(
            _ENABLED,
            write_value(mechanisms),
            f"one or more of {', '.join(MECHANISMS)} for the listener {listener}: Kerberos (GSSAPI),"
            " which is Kafka's default, is not served",
        )
    modules = {name: _login_module(config, listener, name, resolve) for name in mechanisms}
    max_reauth_ms = {
        name: _int(config.mechanism_value(listener, name, _REAUTH)) for name in modules
    }
    users: dict[str, str] = {}
    users_file = str(config.listener_value(listener, _USERS_FILE))
    if "PLAIN" in mechanisms:
        users = _plain_users(config, listener, modules["PLAIN"])
        unseen = modules["PLAIN"] is UNSEEN
        if not users and not users_file and not unseen:
            raise BrokerConfigError(
                _USERS_FILE,
                "",
                f"a file with the users of PLAIN; or {listener_key(listener, _JAAS, 'PLAIN')} names them,"
                " or sasl.enabled.mechanisms does without PLAIN",
            )
    tokens = None
    if "OAUTHBEARER" in mechanisms:
        tokens = _tokens(config, listener, modules["OAUTHBEARER"])
    return SaslListenerSettings(
        listener, mechanisms, max_reauth_ms, users, users_file if "PLAIN" in modules else "", tokens
    )


def check_sasl(config: PerListenerSettings, listeners: Iterable[Listener]) -> None:
    """Check that each SASL listener has all its settings. Raises ConfigError, which names the
    setting to change."""
    for each in listeners:
        if each.protocol.is_sasl:
            sasl_settings(config, each.name)


def sasl_warnings(config: PerListenerSettings, listeners: Iterable[Listener]) -> list[str]:
    """Warnings about SASL settings that are accepted but dangerous."""
    found = []
    for each in listeners:
        if not each.protocol.is_sasl:
            continue
        settings = sasl_settings(config, each.name)
        clear = [name for name in settings.mechanisms if name in ("PLAIN", "OAUTHBEARER")]
        if (
            each.protocol is SecurityProtocol.SASL_PLAINTEXT
            and clear
            and not each.this_machine_only
        ):
            found.append(
                f"the listener {each.name} takes passwords or tokens ({', '.join(clear)}) that cross the"
                " network unencrypted: give it the protocol SASL_SSL"
            )
        if isinstance(settings.tokens, UnsecuredTokens):
            found.append(
                f"the listener {each.name} takes tokens without a signature: everybody can be any user"
            )
    return found


def _int(value: Value) -> int:
    assert isinstance(value, int)
    return value


#: The placeholder for a login module that is given as a reference (`${env:NAME}`) that was not
#: resolved.
UNSEEN = LoginModule("", {})


def _login_module(
    config: PerListenerSettings, listener: str, mechanism: str, resolve: Resolve | None
) -> LoginModule | None:
    """The login module that sasl.jaas.config names for a mechanism; None if the setting is not
    given, UNSEEN if it is a reference and there is no `resolve`."""
    key = listener_key(listener, _JAAS, mechanism)
    text = config.listener_text(listener, _JAAS, mechanism)
    if text is None:
        return None
    if resolve is None and text.strip().startswith(_REFERENCE):
        return UNSEEN
    try:
        modules = parse_jaas(text if resolve is None else resolve(text))
        if resolve is not None:
            modules = [
                LoginModule(
                    each.name, {name: resolve(value) for name, value in each.options.items()}
                )
                for each in modules
            ]
    except JaasError as error:
        raise BrokerConfigError(
            key, "(hidden)", f"a login module and its options: {error}"
        ) from None
    except TlsError as error:
        raise BrokerConfigError(key, "(hidden)", str(error)) from None
    wanted = LOGIN_MODULES[mechanism]
    if len(modules) != 1 or modules[0].short_name != wanted:
        raise BrokerConfigError(key, "(hidden)", f"one login module, {wanted}")
    return modules[0]


def _plain_users(
    config: PerListenerSettings, listener: str, module: LoginModule | None
) -> dict[str, str]:
    options = {} if module is None else module.options
    users = {name[len(_USER) :]: text for name, text in options.items() if name.startswith(_USER)}
    key = listener_key(listener, _JAAS, "PLAIN")
    for name, password in users.items():
        if not name or not password:
            raise BrokerConfigError(
                key, "(hidden)", 'a list of users with passwords: user_NAME="PASSWORD"'
            )
    return users


def _tokens(
    config: PerListenerSettings, listener: str, module: LoginModule | None
) -> SignedTokens | UnsecuredTokens:
    options = {} if module is None else module.options
    handler = config.listener_text(listener, _HANDLER, "OAUTHBEARER")
    url = str(config.listener_value(listener, _JWKS))
    if module is UNSEEN and handler is None and not url:
        return UnsecuredTokens()
    unsecured = [name for name in options if name.startswith("unsecured")]
    if handler == UNSECURED_VALIDATOR or (handler is None and unsecured and not url):
        return _unsecured(listener, options)
    if not url:
        raise BrokerConfigError(
            _JWKS,
            "",
            "the address of the keys that tokens of OAUTHBEARER are signed with, https://... or"
            " file:///...; for tokens without a signature, in development,"
            f" {listener_key(listener, _HANDLER, 'OAUTHBEARER')}={UNSECURED_VALIDATOR}",
        )
    if not url.startswith(("https://", "http://", "file://")):
        raise BrokerConfigError(
            _JWKS, url, "an address that begins with https://, http:// or file://"
        )
    value = config.listener_value

    def texts(name: str) -> tuple[str, ...]:
        found = value(listener, f"sasl.oauthbearer.{name}")
        assert isinstance(found, tuple)
        return found

    return SignedTokens(
        jwks_url=url,
        refresh_ms=_int(value(listener, "sasl.oauthbearer.jwks.endpoint.refresh.ms")),
        retry_backoff_ms=_int(value(listener, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms")),
        retry_backoff_max_ms=_int(
            value(listener, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")
        ),
        audiences=texts("expected.audience"),
        issuer=str(value(listener, "sasl.oauthbearer.expected.issuer")),
        scope_claim=str(value(listener, "sasl.oauthbearer.scope.claim.name")),
        subject_claim=str(value(listener, "sasl.oauthbearer.sub.claim.name")),
        clock_skew_s=_int(value(listener, "sasl.oauthbearer.clock.skew.seconds")),
        algorithms=texts("algorithms"),
    )


def _unsecured(listener: str, options: Mapping[str, str]) -> UnsecuredTokens:
    """The validation that the options of Kafka's unsecured validator describe."""
    skew = options.get("unsecuredValidatorAllowableClockSkewMs", "0")
    if not skew.isdecimal() or int(skew) > 86_400_000:
        raise BrokerConfigError(
            listener_key(listener, _JAAS, "OAUTHBEARER"),
            "(hidden)",
            "with at most 86400000 as unsecuredValidatorAllowableClockSkewMs",
        )
    return UnsecuredTokens(
        options.get("unsecuredValidatorPrincipalClaimName", "sub"),
        options.get("unsecuredValidatorScopeClaimName", "scope"),
        tuple(options.get("unsecuredValidatorRequiredScope", "").split()),
        int(skew),
    )
