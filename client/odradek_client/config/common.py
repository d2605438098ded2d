"""The settings that every client has.

Names, defaults and meanings are Kafka's if Kafka has the setting, here and in the modules of the
single clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_client.config.definition import Settings, config, setting
from odradek_client.config.protection import resolve_protection, sasl_of, tls_of
from odradek_client.sasl.settings import SaslSettings
from odradek_protocol.settings import INT32_MAX, INT64_MAX, between, one_of
from odradek_protocol.tls.settings import PROTOCOLS, TlsSettings

_TYPES = "PEM, PKCS12 or JKS, which is taken for PKCS12."
_REFERENCE = "${env:NAME}, ${file:PATH:KEY} and ${dir:FOLDER:FILE} stand for one elsewhere."


@config
class ClientConfig(Settings):
    """The settings that every client has."""

    bootstrap_servers: tuple[str, ...] = setting(
        ("127.0.0.1:9092",),
        kind="addresses",
        doc='Brokers to ask first, "host:port,host:port" or a list; any broker of the cluster does.',
    )
    client_id: str = setting("odradek", doc="A name that the broker shows in logs and metrics.")
    request_timeout_ms: int = setting(
        30_000, between(1, INT32_MAX), doc="The longest wait for the answer to a request."
    )
    default_api_timeout_ms: int = setting(
        60_000,
        between(1, INT32_MAX),
        doc="The timeout of calls that take none of their own.",
    )
    retry_backoff_ms: int = setting(
        100, between(0, INT32_MAX), doc="Wait before the first retry; doubled every time."
    )
    retry_backoff_max_ms: int = setting(
        1_000, between(0, INT32_MAX), doc="The longest wait before a retry."
    )
    reconnect_backoff_ms: int = setting(
        50, between(0, INT32_MAX), doc="Wait before connecting again; doubled every time."
    )
    reconnect_backoff_max_ms: int = setting(
        1_000, between(0, INT32_MAX), doc="The longest wait before connecting again."
    )
    socket_connection_setup_timeout_ms: int = setting(
        10_000, between(1, INT32_MAX), doc="The longest time for making a connection."
    )
    connections_max_idle_ms: int = setting(
        540_000, between(1, INT64_MAX), doc="Close connections that were not used for this time."
    )
    metadata_max_age_ms: int = setting(
        300_000, between(1, INT64_MAX), doc="The longest time between two requests for metadata."
    )
    max_in_flight_requests_per_connection: int = setting(
        100, between(1, INT32_MAX), doc="Unanswered requests on one connection."
    )
    receive_max_bytes: int = setting(
        256 * 1024 * 1024,
        between(1024, INT32_MAX),
        doc="The largest answer that is accepted; a larger one closes the connection.",
    )
    allow_auto_create_topics: bool = setting(
        True, doc="Let the broker create unknown topics that are used, if it does so at all."
    )

    security_protocol: str = setting(
        "PLAINTEXT",
        doc="The protection of connections: TLS with SSL and SASL_SSL, authentication with SASL_PLAINTEXT and"
        " SASL_SSL, none with PLAINTEXT.",
    )
    ssl_truststore_type: str = setting(
        "JKS", doc=f"The kind of store with the authorities: {_TYPES}"
    )
    ssl_truststore_location: str = setting(
        "",
        doc="The file with the authorities whose certificates are trusted; without one those that the "
        "system trusts.",
    )
    ssl_truststore_password: str = setting(
        "", secret=True, doc=f"The password of the truststore. {_REFERENCE}"
    )
    ssl_truststore_certificates: str = setting(
        "", secret=True, doc="The authorities, as PEM text in the place of a file."
    )
    ssl_keystore_type: str = setting(
        "JKS", doc=f"The kind of store with the client's own certificate: {_TYPES}"
    )
    ssl_keystore_location: str = setting(
        "",
        doc="The file with the client's private key and certificates, where brokers ask for one.",
    )
    ssl_keystore_password: str = setting(
        "", secret=True, doc=f"The password of the keystore. {_REFERENCE}"
    )
    ssl_keystore_key: str = setting(
        "", secret=True, doc=f"The private key, as PEM text in the place of a file. {_REFERENCE}"
    )
    ssl_keystore_certificate_chain: str = setting(
        "",
        secret=True,
        doc="The certificate of ssl_keystore_key, and those that lead to its authority, as PEM text.",
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
        doc="The cipher suites that are used, by the names of Java or of OpenSSL; empty: OpenSSL's.",
    )
    ssl_protocol: str = setting(
        "TLSv1.3",
        doc="Accepted without effect: ssl_enabled_protocols has the versions.",
    )

    sasl_mechanism: str = setting(
        "GSSAPI",
        doc="The mechanism of authentication: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER. Kafka's default"
        " is not supported.",
    )
    sasl_jaas_config: str = setting(
        "",
        secret=True,
        doc="Name and password, or options of OAUTHBEARER, as a login module of Java in one line."
        f" {_REFERENCE}",
    )
    sasl_username: str = setting("", doc="The user of PLAIN and SCRAM.")
    sasl_password: str = setting("", secret=True, doc=f"The user's password. {_REFERENCE}")
    sasl_token_auth: bool = setting(
        False,
        doc="The user of SCRAM is the id of a delegation token, and the password its HMAC in base64. In a"
        " sasl_jaas_config the option is tokenauth=true.",
    )
    sasl_oauth_token_provider: Callable[[], Any] | None = setting(
        None,
        kind="function",
        doc="Gives a token of OAUTHBEARER: a function without arguments, async or not, that returns the token and"
        " its end in seconds since the epoch, or a JWT alone.",
    )
    sasl_oauthbearer_method: str = setting(
        "default",
        one_of("default", "oidc"),
        doc="Of librdkafka: oidc wants sasl_oauthbearer_token_endpoint_url.",
    )
    sasl_oauthbearer_token_endpoint_url: str = setting(
        "",
        doc="The endpoint for tokens of OAUTHBEARER, by the client credentials grant; or file:///PATH of a file"
        " with a token.",
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
        doc="Encode id and secret as in URLs, which RFC 6749 demands and few endpoints expect.",
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
        doc="The longest time for connecting to the token endpoint.",
    )
    sasl_login_read_timeout_ms: int = setting(
        10_000, between(1, INT32_MAX), doc="The longest wait for the answer of the token endpoint."
    )
    sasl_login_retry_backoff_ms: int = setting(
        100,
        between(0, INT32_MAX),
        doc="Wait before the token endpoint is asked again; doubled every time.",
    )
    sasl_login_retry_backoff_max_ms: int = setting(
        10_000,
        between(0, INT32_MAX),
        doc="The time for which an overloaded token endpoint is asked again.",
    )
    sasl_login_refresh_window_factor: float = setting(
        0.8, between(0.5, 1.0), doc="The part of its lifetime after which a token is replaced."
    )
    sasl_login_refresh_window_jitter: float = setting(
        0.05,
        between(0.0, 0.25),
        doc="The largest part of its lifetime by which that is delayed at random.",
    )
    sasl_login_refresh_min_period_seconds: int = setting(
        60, between(0, 900), doc="The shortest time between two tokens."
    )
    sasl_login_refresh_buffer_seconds: int = setting(
        300,
        between(0, 3600),
        doc="The shortest time before its end at which a token is replaced.",
    )

    @property
    def start_timeout_ms(self) -> int:
        """The longest time that starting may take, in ms."""
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
