"""The settings that every client has.

Names, defaults and meanings are Kafka's where Kafka has the setting, here and beside this.
"""

from __future__ import annotations

from typing import Any

from odradek_client.config.definition import INT32_MAX, INT64_MAX, Settings, config, setting
from odradek_client.errors import ConfigError
from odradek_protocol.tls.settings import PROTOCOLS, STORE_TYPES, TlsSettings, tls_settings

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
        30_000, at_least=1, at_most=INT32_MAX, doc="How long to wait for the answer to a request."
    )
    default_api_timeout_ms: int = setting(
        60_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="How long calls that take no timeout of their own may try.",
    )
    retry_backoff_ms: int = setting(
        100, at_least=0, at_most=INT32_MAX, doc="Wait before the first retry; doubled every time."
    )
    retry_backoff_max_ms: int = setting(
        1_000, at_least=0, at_most=INT32_MAX, doc="The longest wait before a retry."
    )
    reconnect_backoff_ms: int = setting(
        50, at_least=0, at_most=INT32_MAX, doc="Wait before connecting again; doubled every time."
    )
    reconnect_backoff_max_ms: int = setting(
        1_000, at_least=0, at_most=INT32_MAX, doc="The longest wait before connecting again."
    )
    socket_connection_setup_timeout_ms: int = setting(
        10_000, at_least=1, at_most=INT32_MAX, doc="How long a connection may take to be made."
    )
    connections_max_idle_ms: int = setting(
        540_000, at_least=1, at_most=INT64_MAX, doc="Close connections that were not used so long."
    )
    metadata_max_age_ms: int = setting(
        300_000, at_least=1, at_most=INT64_MAX, doc="Ask for metadata at least so often."
    )
    max_in_flight_requests_per_connection: int = setting(
        100, at_least=1, at_most=INT32_MAX, doc="Unanswered requests on one connection."
    )
    receive_max_bytes: int = setting(
        256 * 1024 * 1024,
        at_least=1024,
        at_most=INT32_MAX,
        doc="The largest answer taken; a larger one closes the connection.",
    )
    allow_auto_create_topics: bool = setting(
        True, doc="Let the broker create unknown topics that are used, if it does so at all."
    )

    security_protocol: str = setting(
        "PLAINTEXT", doc="How connections are protected: PLAINTEXT, or SSL for TLS. No SASL so far."
    )
    ssl_truststore_type: str = setting(
        "JKS", doc=f"The kind of store with the authorities: {_TYPES}"
    )
    ssl_truststore_location: str = setting(
        "",
        doc="The file with the authorities whose certificates are taken; without one those that the "
        "system trusts.",
    )
    ssl_truststore_password: str = setting("", secret=True, doc=f"Its password. {_REFERENCE}")
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
    ssl_keystore_password: str = setting("", secret=True, doc=f"Its password. {_REFERENCE}")
    ssl_keystore_key: str = setting(
        "", secret=True, doc=f"The private key, as PEM text in the place of a file. {_REFERENCE}"
    )
    ssl_keystore_certificate_chain: str = setting(
        "", secret=True, doc="The certificate of that key, and those that lead to its authority."
    )
    ssl_key_password: str = setting(
        "", secret=True, doc=f"The password of an encrypted private key. {_REFERENCE}"
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        choices=("https", ""),
        doc="https: the certificate has to be for the name that is connected to; empty: for any.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        PROTOCOLS, kind="names", choices=PROTOCOLS, doc="The versions of TLS that are spoken."
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (),
        kind="names",
        doc="The cipher suites that are used, by the names of Java or of OpenSSL; empty: OpenSSL's.",
    )
    ssl_protocol: str = setting(
        "TLSv1.3",
        doc="Taken, without effect: ssl_enabled_protocols says which versions are spoken.",
    )

    @property
    def start_timeout_ms(self) -> int:
        """How long starting may take."""
        return self.default_api_timeout_ms

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        resolve_protection(values, given)

    @property
    def tls(self) -> TlsSettings | None:
        """The settings of TLS; None where there is none."""
        if self.security_protocol.strip().upper() != "SSL":
            return None
        names = [name for name in type(self).rows() if name.startswith("ssl_")]
        return tls_settings({name: getattr(self, name) for name in names})


def resolve_protection(values: dict[str, Any], given: frozenset[str]) -> None:
    """ConfigError for a security_protocol other than PLAINTEXT and SSL, and for TLS that is not used."""
    protocol = values["security_protocol"].strip().upper()
    if protocol not in ("PLAINTEXT", "SSL"):
        raise ConfigError(
            f"security_protocol={values['security_protocol']!r} is not supported: PLAINTEXT and SSL "
            f"are, SASL is not so far; use such a listener of the cluster, or another client"
        )
    rows = ClientConfig.rows()
    useless = sorted(
        name for name in given if name.startswith("ssl_") and values[name] != rows[name].default
    )
    if protocol == "PLAINTEXT" and useless:
        raise ConfigError(
            f"{useless[0]} is set, and connections are PLAINTEXT: set security_protocol=SSL, or leave "
            "it out"
        )
    for name in ("ssl_truststore_type", "ssl_keystore_type"):
        if values[name].strip().upper() not in STORE_TYPES:
            raise ConfigError(f"{name}={values[name]!r} must be one of {', '.join(STORE_TYPES)}")
