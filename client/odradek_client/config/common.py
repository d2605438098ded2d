"""The settings that every client has.

Names, defaults and meanings are Kafka's where Kafka has the setting, here and beside this.
"""

from __future__ import annotations

from typing import Any

from odradek_client.config.definition import INT32_MAX, INT64_MAX, Settings, config, setting
from odradek_client.errors import ConfigError


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
        "PLAINTEXT",
        doc="How connections are protected. Only PLAINTEXT is supported so far: no TLS, no SASL.",
    )

    @property
    def start_timeout_ms(self) -> int:
        """How long starting may take."""
        return self.default_api_timeout_ms

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        resolve_protection(values)


def resolve_protection(values: dict[str, Any]) -> None:
    """ConfigError for a security_protocol other than PLAINTEXT."""
    protocol = values["security_protocol"]
    if protocol.strip().upper() != "PLAINTEXT":
        raise ConfigError(
            f"security_protocol={protocol!r} is not supported: this client speaks neither TLS nor "
            f"SASL so far; use a PLAINTEXT listener of the cluster, or another client"
        )
