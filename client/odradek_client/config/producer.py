"""The settings of a producer, and the rules between them (C-01 to C-04)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek_client.config.common import ClientConfig
from odradek_client.config.definition import config, setting
from odradek_client.config.protection import resolve_protection
from odradek_client.errors import ConfigError
from odradek_protocol.settings import INT32_MAX, INT64_MAX, between, one_of

#: The limit of requests in flight with idempotence: with more requests, a broker could not
#: recognize every duplicate (P-05).
IDEMPOTENT_IN_FLIGHT_MAX = 5


@config
class ProducerConfig(ClientConfig):
    """Settings of `Producer`."""

    client_id: str = setting("odradek-producer", doc="A name of this client for the broker's logs.")
    acks: int = setting(
        -1,
        kind="acks",
        doc='The acknowledgement that a record needs. "all" (or -1): of all in-sync replicas; 1: '
        "of the leader; 0: none, the record is only sent.",
    )
    enable_idempotence: bool = setting(
        True, doc="Write every record once and in order in its partition, even after retries."
    )
    retries: int = setting(
        INT32_MAX,
        between(0, INT32_MAX),
        doc="Maximum number of retries of a batch, within delivery_timeout_ms.",
    )
    max_in_flight_requests_per_connection: int = setting(
        5, between(1, INT32_MAX), doc="Maximum number of unanswered Produce requests per broker."
    )
    batch_size: int = setting(
        16_384, between(0, INT32_MAX), doc="Size in bytes at which a batch is full."
    )
    linger_ms: int = setting(
        5, between(0, INT32_MAX), doc="Maximum time that a batch waits for more records."
    )
    buffer_memory: int = setting(
        33_554_432,
        between(1, INT64_MAX),
        doc="Maximum bytes of records that wait to be sent and acknowledged.",
    )
    max_request_size: int = setting(
        1_048_576, between(1, INT32_MAX), doc="Maximum size of a request, and of a record."
    )
    max_block_ms: int = setting(
        60_000,
        between(0, INT32_MAX),
        doc="Maximum time that `send` waits for metadata or for memory.",
    )
    delivery_timeout_ms: int = setting(
        120_000,
        between(1, INT32_MAX),
        doc="Maximum time from `send` to the acknowledgement of a record.",
    )
    compression_type: str = setting(
        "none",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        doc="The compression type of batches.",
    )
    partitioner: str | Callable[[str, bytes | None, int], int] = setting(
        "default",
        kind="partitioner",
        doc='"default" (by key; records without a key: sticky), "round_robin", or f(topic, key, '
        "partitions) -> number.",
    )
    key_serializer: Callable[[Any], bytes | None] | None = setting(
        None, kind="function", doc="A function from keys to bytes."
    )
    value_serializer: Callable[[Any], bytes | None] | None = setting(
        None, kind="function", doc="A function from values to bytes."
    )
    metadata_max_idle_ms: int = setting(
        300_000,
        between(5_000, INT64_MAX),
        doc="Time after which the metadata of an unused topic is dropped.",
    )
    transactional_id: str | None = setting(
        None, kind="str", doc="The name of the producer across restarts; it turns transactions on."
    )
    transaction_timeout_ms: int = setting(
        60_000,
        between(1, INT32_MAX),
        doc="Time after which the broker aborts an open transaction.",
    )
    transaction_two_phase_commit_enable: bool = setting(
        False,
        doc="Transactions do not time out, so that prepared ones are never aborted by a timeout "
        "(KIP-939).",
    )

    @property
    def start_timeout_ms(self) -> int:
        """The limit of the time to start the producer, in ms."""
        return self.max_block_ms

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        resolve_protection(values, given, cls.rows())
        _resolve_idempotence(values, given)
        _resolve_delivery_timeout(values, given)
        _resolve_transactions(values, given)


def _resolve_idempotence(values: dict[str, Any], given: frozenset[str]) -> None:
    """Disable idempotence if other settings exclude it. Raises ConfigError if the user has
    explicitly requested idempotence or transactions, or if the limit of requests in flight is too
    high (C-01, C-02)."""
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
    """Increase the default of delivery_timeout_ms if it is less than the time of one attempt.
    Raises ConfigError if the user has set less than this time (C-04)."""
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
    """Refuse settings that contradict a transactional id or prepared transactions (C-02,
    KIP-939)."""
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
