"""The settings that every client has.

In all modules of this package, a setting that Kafka has keeps Kafka's name, default and meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_client.config.definition import Settings, config, setting
from odradek_client.config.protection import resolve_protection, sasl_of, tls_of
from odradek_client.sasl.settings import SaslSettings
from odradek_protocol.settings import INT32_MAX, INT64_MAX, between, one_of
from odradek_protocol.tls.settings import PROTOCOLS, TlsSettings

_TYPES = "PEM, PKCS12 or JKS, which is read as PKCS12."
_REFERENCE = "It may be a reference: ${env:NAME}, ${file:PATH:KEY} or ${dir:FOLDER:FILE}."


@config
class ClientConfig(Settings):
    """The settings that every client has."""

    bootstrap_servers: tuple[str, ...] = setting(
        ("127.0.0.1:9092",),
        kind="addresses",
        doc='The first brokers to connect to, "host:port,host:port" or a list; one broker of the '
        "cluster is enough.",
    )
    client_id: str = setting(
        "odradek", doc="A name of this client for the broker's logs and metrics."
    )
    request_timeout_ms: int = setting(
        30_000, between(1, INT32_MAX), doc="Maximum time to wait for the response to a request."
    )
    default_api_timeout_ms: int = setting(
        60_000,
        between(1, INT32_MAX),
        doc="The timeout of calls that are made without one of their own.",
    )
    retry_backoff_ms: int = setting(
        100, between(0, INT32_MAX), doc="Wait before the first retry; it doubles with each retry."
    )
    retry_backoff_max_ms: int = setting(
        1_000, between(0, INT32_MAX), doc="Maximum wait before a retry."
    )
    reconnect_backoff_ms: int = setting(
        50,
        between(0, INT32_MAX),
        doc="Wait before the first reconnection; it doubles with each attempt.",
    )
    reconnect_backoff_max_ms: int = setting(
        1_000, between(0, INT32_MAX), doc="Maximum wait before a reconnection."
    )
    socket_connection_setup_timeout_ms: int = setting(
        10_000, between(1, INT32_MAX), doc="Maximum time for opening a connection."
    )
    connections_max_idle_ms: int = setting(
        540_000, between(1, INT64_MAX), doc="Time after which an unused connection is closed."
    )
    metadata_max_age_ms: int = setting(
        300_000,
        between(1, INT64_MAX),
        doc="Maximum age of metadata, after which it is requested again.",
    )
    max_in_flight_requests_per_connection: int = setting(
        100, between(1, INT32_MAX), doc="Maximum number of unanswered requests on one connection."
    )
    receive_max_bytes: int = setting(
        256 * 1024 * 1024,
        between(1024, INT32_MAX),
        doc="Maximum size of a response; a larger one closes the connection.",
    )
    allow_auto_create_topics: bool = setting(
        True,
        doc="Let the broker create unknown topics that the client uses, if its own settings allow "
        "that.",
    )

    security_protocol: str = setting(
        "PLAINTEXT",
        doc="The protection of connections: TLS with SSL and SASL_SSL, authentication with SASL_PLAINTEXT and"
        " SASL_SSL, none with PLAINTEXT.",
    )
    ssl_truststore_type: str = setting(
        "JKS", doc=f"The type of the store with the certificate authorities: {_TYPES}"
    )
    ssl_truststore_location: str = setting(
        "",
        doc="The file with the trusted certificate authorities; if not set, those that the system "
        "trusts.",
    )
    ssl_truststore_password: str = setting(
        "", secret=True, doc=f"The password of the truststore. {_REFERENCE}"
    )
    ssl_truststore_certificates: str = setting(
        "", secret=True, doc="The certificate authorities as PEM text, instead of a file."
    )
    ssl_keystore_type: str = setting(
        "JKS", doc=f"The type of the store with the client's certificate: {_TYPES}"
    )
    ssl_keystore_location: str = setting(
        "",
        doc="The file with the client's private key and certificates, for brokers that require a "
        "client certificate.",
    )
    ssl_keystore_password: str = setting(
        "", secret=True, doc=f"The password of the keystore. {_REFERENCE}"
    )
    ssl_keystore_key: str = setting(
        "", secret=True, doc=f"The private key as PEM text, instead of a file. {_REFERENCE}"
    )
    ssl_keystore_certificate_chain: str = setting(
        "",
        secret=True,
        doc="The certificate of ssl_keystore_key and the chain of its issuers, as PEM text.",
    )
    ssl_key_password: str = setting(
        "", secret=True, doc=f"The password of an encrypted private key. {_REFERENCE}"
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        one_of("https", ""),
        doc="https: the broker's certificate must have the name that the client connects to; empty: "
        "any name.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        PROTOCOLS, one_of(*PROTOCOLS), kind="names", doc="The versions of TLS that may be used."
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (),
        kind="names",
        doc="The cipher suites that may be used, by their names in Java or OpenSSL; empty: "
        "OpenSSL's default.",
    )
    ssl_protocol: str = setting(
        "TLSv1.3",
        doc="Accepted without effect: ssl_enabled_protocols has the versions of TLS.",
    )

    sasl_mechanism: str = setting(
        "GSSAPI",
        doc="The SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Kafka's "
        "default, GSSAPI, is not supported.",
    )
    sasl_jaas_config: str = setting(
        "",
        secret=True,
        doc="The name and password, or the options of OAUTHBEARER, in one line, as a login module "
        f"of Java. {_REFERENCE}",
    )
    sasl_username: str = setting("", doc="The name of the user, for PLAIN and SCRAM.")
    sasl_password: str = setting("", secret=True, doc=f"The user's password. {_REFERENCE}")
    sasl_token_auth: bool = setting(
        False,
        doc="True: the SCRAM user is the id of a delegation token, and the password is its HMAC in "
        "base64. In a sasl_jaas_config the option is tokenauth=true.",
    )
    sasl_oauth_token_provider: Callable[[], Any] | None = setting(
        None,
        kind="function",
        doc="A function that returns an OAUTHBEARER token. It has no arguments, may be async, and "
        "returns the token with its expiry in seconds since the epoch, or a JWT alone.",
    )
    sasl_oauthbearer_method: str = setting(
        "default",
        one_of("default", "oidc"),
        doc="A setting of librdkafka: oidc needs sasl_oauthbearer_token_endpoint_url.",
    )
    sasl_oauthbearer_token_endpoint_url: str = setting(
        "",
        doc="The endpoint that gives OAUTHBEARER tokens for client credentials; or file:///PATH of "
        "a file with a token.",
    )
    sasl_oauthbearer_client_credentials_client_id: str = setting(
        "", doc=f"The client's id at the token endpoint. {_REFERENCE}"
    )
    sasl_oauthbearer_client_credentials_client_secret: str = setting(
        "", secret=True, doc=f"The client's secret at the token endpoint. {_REFERENCE}"
    )
    sasl_oauthbearer_scope: str = setting(
        "", doc="The scope that is requested at the token endpoint."
    )
    sasl_oauthbearer_header_urlencode: bool = setting(
        False,
        doc="URL-encode the client's id and secret, which RFC 6749 requires and few endpoints "
        "expect.",
    )
    sasl_oauthbearer_jwt_retriever_class: str = setting(
        "", doc="Accepted without effect if it is one of Kafka's classes that are built in here."
    )
    sasl_login_callback_handler_class: str = setting(
        "", doc="Accepted without effect if it is Kafka's OAuthBearerLoginCallbackHandler."
    )
    sasl_login_connect_timeout_ms: int = setting(
        10_000,
        between(1, INT32_MAX),
        doc="Maximum time for connecting to the token endpoint.",
    )
    sasl_login_read_timeout_ms: int = setting(
        10_000,
        between(1, INT32_MAX),
        doc="Maximum time to wait for the response of the token endpoint.",
    )
    sasl_login_retry_backoff_ms: int = setting(
        100,
        between(0, INT32_MAX),
        doc="Wait before the first retry at the token endpoint; it doubles with each retry.",
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        10_000,
        between(0, INT32_MAX),
        doc="Maximum time for retries at an overloaded token endpoint.",
    )
    sasl_login_refresh_window_factor: float = setting(
        0.8,
        between(0.5, 1.0),
        doc="The part of a token's lifetime after which the token is replaced.",
    )
    sasl_login_refresh_window_jitter: float = setting(
        0.05,
        between(0.0, 0.25),
        doc="Maximum random delay of the replacement, as a part of the token's lifetime.",
    )
    sasl_login_refresh_min_period_seconds: int = setting(
        60, between(0, 900), doc="Minimum time between two replacements of the token."
    )
    sasl_login_refresh_buffer_seconds: int = setting(
        300,
        between(0, 3600),
        doc="Minimum time before a token's expiry at which the token is replaced.",
    )

    @property
    def start_timeout_ms(self) -> int:
        """The limit of the time to start the client, in ms."""
        return self.default_api_timeout_ms

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        resolve_protection(values, given, cls.rows())

    @property
    def tls(self) -> TlsSettings | None:
        """The settings of TLS; None without TLS."""
        return tls_of(self)

    @property
    def sasl(self) -> SaslSettings | None:
        """The settings of SASL; None without SASL."""
        return sasl_of(self)
