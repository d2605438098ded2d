"""The settings of the clients: one row each (rules C-01 to C-04).

Names, defaults and meanings are Kafka's where Kafka has the setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_client.assignors import Assignor
from odradek_client.assignors import resolve as resolve_assignors
from odradek_client.consumer.reset import parse_reset
from odradek_client.errors import ConfigError
from odradek_client.settings import INT32_MAX, INT64_MAX, Settings, config, setting

#: With more than this in flight a broker could not recognize duplicates (P-05).
IDEMPOTENT_IN_FLIGHT_MAX = 5


@config
class ClientConfig(Settings):
    """What every client has."""

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
        _resolve_protection(values)


def _resolve_protection(values: dict[str, Any]) -> None:
    protocol = values["security_protocol"]
    if protocol.strip().upper() != "PLAINTEXT":
        raise ConfigError(
            f"security_protocol={protocol!r} is not supported: this client speaks neither TLS nor "
            f"SASL so far; use a PLAINTEXT listener of the cluster, or another client"
        )


@config
class AdminConfig(ClientConfig):
    """Settings of `Admin`."""

    client_id: str = setting("odradek-admin", doc="A name that the broker shows in its logs.")
    allow_auto_create_topics: bool = setting(
        False, doc="Whether asking about an unknown topic may create it."
    )


@config
class ConsumerConfig(ClientConfig):
    """Settings of `Consumer`."""

    client_id: str = setting("odradek-consumer", doc="A name that the broker shows in its logs.")
    group_id: str | None = setting(
        None, kind="str", doc="The group that shares the partitions and keeps the offsets."
    )
    group_instance_id: str | None = setting(
        None, kind="str", doc="Names a static member, which may restart without a rebalance."
    )
    group_protocol: str = setting(
        "classic",
        choices=("classic", "consumer"),
        doc='How the group is run: "classic", by its members; "consumer", by the broker (KIP-848).',
    )
    group_remote_assignor: str | None = setting(
        None,
        kind="str",
        doc='With group_protocol="consumer": how the broker divides partitions, "uniform" or '
        '"range"; None for what it prefers.',
    )
    auto_offset_reset: Any = setting(
        "latest",
        kind="object",
        doc="Where to begin without a committed offset (O-16): earliest, latest, none (raise), or "
        "by_duration:PT1H (in Python also a timedelta) for the records of the last hour.",
    )
    enable_auto_commit: bool = setting(
        True, doc="Commit in the background what earlier polls returned (K-39)."
    )
    auto_commit_interval_ms: int = setting(
        5_000, at_least=0, at_most=INT32_MAX, doc="How often to commit in the background."
    )
    session_timeout_ms: int = setting(
        45_000, at_least=1, at_most=INT32_MAX, doc="The group drops a member silent for so long."
    )
    heartbeat_interval_ms: int = setting(
        3_000, at_least=1, at_most=INT32_MAX, doc="How often a member says that it is alive."
    )
    max_poll_interval_ms: int = setting(
        300_000, at_least=1, at_most=INT32_MAX, doc="The longest pause between two polls (K-35)."
    )
    max_poll_records: int = setting(
        500, at_least=1, at_most=INT32_MAX, doc="The most records one poll returns (K-07)."
    )
    fetch_min_bytes: int = setting(
        1, at_least=0, at_most=INT32_MAX, doc="The broker waits until it has so much to send."
    )
    fetch_max_wait_ms: int = setting(
        500, at_least=0, at_most=INT32_MAX, doc="But no longer than this."
    )
    fetch_max_bytes: int = setting(
        52_428_800, at_least=0, at_most=INT32_MAX, doc="Bytes of one fetch, over all partitions."
    )
    max_partition_fetch_bytes: int = setting(
        1_048_576, at_least=0, at_most=INT32_MAX, doc="Bytes of one fetch, of one partition."
    )
    check_crcs: bool = setting(True, doc="Check that batches arrived undamaged (K-16).")
    isolation_level: str = setting(
        "read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        doc="Whether records of open and aborted transactions are left out (F-10).",
    )
    partition_assignment_strategy: tuple[str | Assignor, ...] = setting(
        ("range", "cooperative-sticky"),
        kind="assignors",
        doc="How partitions are divided, best first: range, roundrobin, sticky, cooperative-sticky, "
        "or Assignor objects of your own.",
    )
    exclude_internal_topics: bool = setting(
        True, doc="Whether patterns pass over the broker's own topics."
    )
    key_deserializer: Callable[[bytes], Any] | None = setting(
        None, kind="function", doc="Makes keys of bytes; not called for null."
    )
    value_deserializer: Callable[[bytes], Any] | None = setting(
        None, kind="function", doc="Makes values of bytes; not called for null."
    )

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        """K-35, K-54. A group without a name is none."""
        _resolve_protection(values)
        for name in ("group_id", "group_instance_id"):
            if values[name] == "":
                raise ConfigError(f"{name} is empty; leave it out or give a name")
        _resolve_group_protocol(values, given)
        try:
            parse_reset(values["auto_offset_reset"])
        except ValueError as error:
            raise ConfigError(str(error)) from None
        heartbeat_ms, session_ms = values["heartbeat_interval_ms"], values["session_timeout_ms"]
        if heartbeat_ms >= session_ms:
            raise ConfigError(
                f"heartbeat_interval_ms={heartbeat_ms} must be below "
                f"session_timeout_ms={session_ms}; a third of it is usual"
            )
        try:
            resolve_assignors(values["partition_assignment_strategy"])
        except ValueError as error:
            raise ConfigError(str(error)) from None


#: What the broker decides for groups of the next protocol.
_BROKERS_SAY = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "partition_assignment_strategy",
)


def _resolve_group_protocol(values: dict[str, Any], given: frozenset[str]) -> None:
    """KIP-848."""
    if values["group_protocol"] != "consumer":
        if values["group_remote_assignor"] is not None:
            raise ConfigError('group_remote_assignor needs group_protocol="consumer"')
        return
    for name in _BROKERS_SAY:
        if name in given:
            raise ConfigError(
                f'{name} cannot go with group_protocol="consumer", where the broker decides it; '
                f"leave it out"
            )


@config
class ProducerConfig(ClientConfig):
    """Settings of `Producer` (C-03)."""

    client_id: str = setting("odradek-producer", doc="A name that the broker shows in its logs.")
    acks: int = setting(
        -1,
        kind="acks",
        doc='When a record counts as written: "all" (or -1), 1 by the leader, 0 when sent.',
    )
    enable_idempotence: bool = setting(
        True, doc="Every record once and in order per partition, whatever is retried (C-05)."
    )
    retries: int = setting(
        INT32_MAX, at_least=0, at_most=INT32_MAX, doc="Retries of a batch within its time."
    )
    max_in_flight_requests_per_connection: int = setting(
        5, at_least=1, at_most=INT32_MAX, doc="Unanswered produce requests per broker."
    )
    batch_size: int = setting(
        16_384, at_least=0, at_most=INT32_MAX, doc="Bytes of a batch that is full."
    )
    linger_ms: int = setting(
        5, at_least=0, at_most=INT32_MAX, doc="How long a record may wait for others."
    )
    buffer_memory: int = setting(
        33_554_432, at_least=1, at_most=INT64_MAX, doc="Bytes of records that wait for the broker."
    )
    max_request_size: int = setting(
        1_048_576, at_least=1, at_most=INT32_MAX, doc="The largest request, and the largest record."
    )
    max_block_ms: int = setting(
        60_000,
        at_least=0,
        at_most=INT32_MAX,
        doc="How long `send` may wait for metadata or for room (C-11).",
    )
    delivery_timeout_ms: int = setting(
        120_000,
        at_least=1,
        at_most=INT32_MAX,
        doc="How long a record may take from `send` to its answer (C-40).",
    )
    compression_type: str = setting(
        "none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        doc="How batches are compressed.",
    )
    partitioner: str | Callable[[str, bytes | None, int], int] = setting(
        "default",
        kind="partitioner",
        doc='"default" (by key, else sticky), "round_robin", or f(topic, key, partitions) -> number.',
    )
    key_serializer: Callable[[Any], bytes | None] | None = setting(
        None, kind="function", doc="Makes bytes of keys."
    )
    value_serializer: Callable[[Any], bytes | None] | None = setting(
        None, kind="function", doc="Makes bytes of values."
    )
    metadata_max_idle_ms: int = setting(
        300_000, at_least=5_000, at_most=INT64_MAX, doc="Forget topics that were not used so long."
    )
    transactional_id: str | None = setting(
        None, kind="str", doc="Names the producer across restarts; turns transactions on."
    )
    transaction_timeout_ms: int = setting(
        60_000, at_least=1, at_most=INT32_MAX, doc="When the broker aborts an open transaction."
    )
    transaction_two_phase_commit_enable: bool = setting(
        False, doc="Let no transaction time out, so that prepared ones are safe (KIP-939)."
    )

    @property
    def start_timeout_ms(self) -> int:
        """How long starting may take."""
        return self.max_block_ms

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        _resolve_protection(values)
        _resolve_idempotence(values, given)
        _resolve_delivery_timeout(values, given)
        _resolve_transactions(values, given)


def _resolve_idempotence(values: dict[str, Any], given: frozenset[str]) -> None:
    """C-01, C-02."""
    in_the_way = []
    if values["acks"] != -1:
        in_the_way.append('acks must be "all"')
    if values["retries"] == 0:
        in_the_way.append("retries must be above 0")
    transactional = values["transactional_id"] is not None
    if values["enable_idempotence"] and in_the_way:
        if "enable_idempotence" in given:
            raise ConfigError(f"enable_idempotence=True: {' and '.join(in_the_way)}")
        values["enable_idempotence"] = False
    if transactional and not values["enable_idempotence"]:
        reason = " and ".join(in_the_way) or "enable_idempotence must not be False"
        raise ConfigError(f"transactional_id is set, which needs idempotence: {reason}")
    in_flight = values["max_in_flight_requests_per_connection"]
    if values["enable_idempotence"] and in_flight > IDEMPOTENT_IN_FLIGHT_MAX:
        raise ConfigError(
            f"max_in_flight_requests_per_connection={in_flight}: with idempotence at most "
            f"{IDEMPOTENT_IN_FLIGHT_MAX} are possible; lower it or set enable_idempotence=False"
        )


def _resolve_delivery_timeout(values: dict[str, Any], given: frozenset[str]) -> None:
    """C-04."""
    needed = min(values["linger_ms"] + values["request_timeout_ms"], INT32_MAX)
    if values["delivery_timeout_ms"] >= needed:
        return
    if "delivery_timeout_ms" in given:
        raise ConfigError(
            f"delivery_timeout_ms={values['delivery_timeout_ms']} is too small; it must be at "
            f"least linger_ms + request_timeout_ms = {needed}"
        )
    values["delivery_timeout_ms"] = needed


def _resolve_transactions(values: dict[str, Any], given: frozenset[str]) -> None:
    """C-02, KIP-939."""
    if values["transactional_id"] == "":
        raise ConfigError("transactional_id is empty; leave it out or give a name")
    if not values["transaction_two_phase_commit_enable"]:
        return
    if values["transactional_id"] is None:
        raise ConfigError("transaction_two_phase_commit_enable=True needs a transactional_id")
    if "transaction_timeout_ms" in given:
        raise ConfigError(
            "transaction_timeout_ms cannot go with transaction_two_phase_commit_enable=True, which "
            "lets no transaction time out; leave one of them out"
        )
