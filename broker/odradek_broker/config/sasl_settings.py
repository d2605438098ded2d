"""The settings of authentication at listeners of SASL_PLAINTEXT and SASL_SSL, by Kafka's names.

Most of the settings may be given for one listener (`listener.name.NAME.KEY`), and some for one
mechanism of a listener (`listener.name.NAME.MECHANISM.KEY`). NAME and MECHANISM are in lower case.
"""

from __future__ import annotations

from typing import Any

from odradek_broker.config.types import ConfigType, setting
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.sasl.jaas import LOGIN_MODULES
from odradek_protocol.settings import INT32_MAX, INT64_MAX, Check, any_of, at_least, between, one_of

#: The SASL mechanisms that this broker serves.
MECHANISMS = tuple(LOGIN_MODULES)

#: Names of Kafka's classes that are accepted in settings; this broker runs its own code instead.
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
UNSECURED_VALIDATOR = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
_OLD_VALIDATOR = (
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler"
)

_DAY_MS = 86_400_000

INITIAL_USERS = "sasl.scram.initial.users"
#: The prefixes of a source for the password of an initial user: an environment variable or a file.
USER_SOURCES = ("env:", "file:")


def _are_users(texts: tuple[str, ...]) -> bool:
    return all(
        equals and name and source.startswith(USER_SOURCES) and not source.endswith(":")
        for name, equals, source in (text.partition("=") for text in texts)
    )


_OF_ONE = " May be set for one listener."
_OF_MECHANISM = " May be set for one mechanism of one listener."


def _oauth(kind: ConfigType, default: object, doc: str, *check: Any) -> Any:
    return setting(kind, default, doc + _OF_ONE, *check)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class BrokerSaslSettings:
    """Every setting of SASL, parsed and typed."""

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ConfigType.LIST,
        ("GSSAPI",),
        "The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER. GSSAPI is Kafka's default, and is not supported here." + _OF_ONE,
        any_of("GSSAPI", *MECHANISMS),
    )
    sasl_jaas_config: str = setting(
        ConfigType.PASSWORD,
        "",
        "The users of a mechanism, in Kafka's format: for PLAIN, PlainLoginModule with an "
        'option user_NAME="PASSWORD" for each user. It has an effect only for one mechanism of '
        "one listener: listener.name.NAME.plain.sasl.jaas.config.",
        secret=True,
    )
    sasl_plain_users_file: str = setting(
        ConfigType.STRING,
        "",
        "A file with the PLAIN users and the hashes of their passwords, one NAME:HASH in each "
        "line. It is read again when it changes." + _OF_ONE,
        ours=True,
    )
    sasl_scram_initial_users: tuple[str, ...] = setting(
        ConfigType.LIST,
        (),
        "SCRAM users that are created at the start if they have no password yet, so that one "
        "of them can create the others: NAME=env:VARIABLE or NAME=file:PATH, the place of the "
        "password. `odradek serve --user` adds one.",
        Check("a list of NAME=env:VARIABLE or NAME=file:PATH", _are_users),
        ours=True,
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        ConfigType.STRING,
        "GSSAPI",
        "Accepted for compatibility: there are no other brokers.",
        effective=False,
    )
    sasl_mechanism_controller_protocol: str = setting(
        ConfigType.STRING,
        "GSSAPI",
        "Accepted for compatibility: this broker is its own controller.",
        effective=False,
    )
    sasl_server_max_receive_size: int = setting(
        ConfigType.INT,
        524_288,
        "Maximum size of a request before the client is authenticated.",
        between(1, INT32_MAX),
    )
    sasl_server_callback_handler_class: str = setting(
        ConfigType.STRING,
        "",
        "The validation of tokens. Kafka's class OAuthBearerValidatorCallbackHandler selects "
        "signed tokens, OAuthBearerUnsecuredValidatorCallbackHandler tokens without a "
        "signature, which are for development only. It has an effect only for the mechanism "
        "oauthbearer of a listener.",
        one_of("", VALIDATOR, _OLD_VALIDATOR, UNSECURED_VALIDATOR),
    )
    delegation_token_secret_key: str = setting(
        ConfigType.PASSWORD,
        "",
        "The secret key from which the HMACs of delegation tokens are computed. It must be the "
        "same at every start: with another key, nobody can use the earlier tokens. Empty: "
        "there are no delegation tokens.",
        secret=True,
    )
    delegation_token_max_lifetime_ms: int = setting(
        ConfigType.LONG,
        7 * _DAY_MS,
        "Maximum lifetime of a delegation token, however often it is renewed.",
        at_least(1),
    )
    delegation_token_expiry_time_ms: int = setting(
        ConfigType.LONG,
        _DAY_MS,
        "Time after which a delegation token expires unless it is renewed.",
        at_least(1),
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        ConfigType.LONG,
        3_600_000,
        "Time between two checks for expired delegation tokens to remove. An expired token is "
        "refused even before it is removed.",
        at_least(1),
    )
    connections_max_reauth_ms: int = setting(
        ConfigType.LONG,
        0,
        "Time after which a client has to authenticate again; one that does not is "
        "disconnected at its next request. 0: no limit, or until its token expires."
        + _OF_MECHANISM,
        between(0, INT64_MAX),
    )
    connection_failed_authentication_delay_ms: int = setting(
        ConfigType.INT,
        100,
        "Delay before the broker answers a failed authentication and closes the connection. It "
        "is longer after several failures from one address.",
        between(0, 600_000),
    )
    sasl_authentication_timeout_ms: int = setting(
        ConfigType.INT,
        30_000,
        "Maximum time of an authentication, after which the client is disconnected.",
        between(1, 600_000),
        ours=True,
    )
    max_sasl_authentications_per_ip: int = setting(
        ConfigType.INT,
        200,
        "Maximum number of connections of one IP address that have not authenticated; for a "
        "further one, its oldest is closed.",
        at_least(1),
        ours=True,
    )
    max_sasl_authentications: int = setting(
        ConfigType.INT,
        2_000,
        "Maximum number of connections that have not authenticated, of all addresses together; "
        "for a further one, the oldest is closed.",
        at_least(1),
        ours=True,
    )
    sasl_oauthbearer_jwks_endpoint_url: str = _oauth(
        ConfigType.STRING,
        "",
        "The URL of the public keys that verify the signatures of tokens, as JWKS: "
        "https://..., or file:///... for a file.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = _oauth(
        ConfigType.LONG,
        3_600_000,
        "Time after which the keys are read again.",
        between(1_000, INT64_MAX),
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = _oauth(
        ConfigType.LONG,
        100,
        "Time until the next attempt to read the keys after a failure.",
        at_least(1),
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = _oauth(
        ConfigType.LONG,
        10_000,
        "Maximum time until the next attempt to read the keys, after several failures.",
        at_least(1),
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = _oauth(
        ConfigType.LIST, (), "The audiences of which a token must name one; empty: any."
    )
    sasl_oauthbearer_expected_issuer: str = _oauth(
        ConfigType.STRING, "", "The issuer that a token must have; empty: any."
    )
    sasl_oauthbearer_scope_claim_name: str = _oauth(
        ConfigType.STRING, "scope", "The claim of a token that holds its scopes."
    )
    sasl_oauthbearer_sub_claim_name: str = _oauth(
        ConfigType.STRING, "sub", "The claim of a token that holds the name of the user."
    )
    sasl_oauthbearer_clock_skew_seconds: int = _oauth(
        ConfigType.INT,
        30,
        "Maximum difference between the clocks of the broker and of the issuer of tokens.",
        between(0, 3_600),
    )
    sasl_oauthbearer_algorithms: tuple[str, ...] = setting(
        ConfigType.LIST,
        ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"),
        "The algorithms with which tokens may be signed." + _OF_ONE,
        any_of(
            *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
            *("ES256", "ES384", "ES512", "EdDSA"),
        ),
        ours=True,
    )


#: The settings that may be given for one mechanism of one listener.
PER_MECHANISM = (
    "sasl.jaas.config",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def is_of_listeners(name: str, *, effective: bool) -> bool:
    """True if a setting of SASL may be given for one listener."""
    return effective and (
        (name.startswith("sasl.") and name not in _OF_THE_BROKER)
        or name == "connections.max.reauth.ms"
    )


_OF_THE_BROKER = frozenset(
    {"sasl.server.max.receive.size", "sasl.authentication.timeout.ms", INITIAL_USERS}
)
