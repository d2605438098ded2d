"""The settings of a consumer, and the rules between them (K-35, K-54)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from odradek_client.config.common import ClientConfig
from odradek_client.config.definition import config, setting
from odradek_client.config.protection import resolve_protection
from odradek_client.consumer.assignors import Assignor
from odradek_client.consumer.assignors import resolve as resolve_assignors
from odradek_client.consumer.offset_reset import parse_reset
from odradek_client.errors import ConfigError
from odradek_protocol.settings import INT32_MAX, between, one_of


@config
class ConsumerConfig(ClientConfig):
    """Settings of `Consumer`."""

    client_id: str = setting("odradek-consumer", doc="A name of this client for the broker's logs.")
    group_id: str | None = setting(
        None,
        kind="str",
        doc="The consumer group, whose members share the partitions and commit offsets.",
    )
    group_instance_id: str | None = setting(
        None, kind="str", doc="The name of a static member, which may restart without a rebalance."
    )
    group_protocol: str = setting(
        "classic",
        one_of("classic", "consumer"),
        doc='The protocol of the group. "classic": a member assigns the partitions; "consumer": '
        "the broker assigns them (KIP-848).",
    )
    group_remote_assignor: str | None = setting(
        None,
        kind="str",
        doc='The assignor of the broker for group_protocol="consumer": "uniform" or "range"; None: '
        "the broker's default.",
    )
    auto_offset_reset: str | timedelta = setting(
        "latest",
        kind="object",
        doc="The start position without a committed offset: earliest, latest, none (an error is "
        "raised), or by_duration:PT1H (in Python also a timedelta) for the records of the last "
        "hour.",
    )
    enable_auto_commit: bool = setting(
        True, doc="Commit the offsets of earlier polls in the background."
    )
    auto_commit_interval_ms: int = setting(
        5_000, between(0, INT32_MAX), doc="Time between two commits in the background."
    )
    session_timeout_ms: int = setting(
        45_000,
        between(1, INT32_MAX),
        doc="Time without a heartbeat after which the group removes a member.",
    )
    heartbeat_interval_ms: int = setting(
        3_000, between(1, INT32_MAX), doc="Time between two heartbeats."
    )
    max_poll_interval_ms: int = setting(
        300_000,
        between(1, INT32_MAX),
        doc="Maximum time between two polls, after which the member leaves the group.",
    )
    max_poll_records: int = setting(
        500, between(1, INT32_MAX), doc="Maximum number of records that a poll returns."
    )
    fetch_min_bytes: int = setting(
        1,
        between(0, INT32_MAX),
        doc="Minimum bytes of records for which the broker waits before it answers a fetch.",
    )
    fetch_max_wait_ms: int = setting(
        500, between(0, INT32_MAX), doc="Maximum time that the broker waits for fetch_min_bytes."
    )
    fetch_max_bytes: int = setting(
        52_428_800, between(0, INT32_MAX), doc="Maximum bytes of one fetch from all partitions."
    )
    max_partition_fetch_bytes: int = setting(
        1_048_576, between(0, INT32_MAX), doc="Maximum bytes of one fetch from one partition."
    )
    check_crcs: bool = setting(True, doc="Verify the checksums of batches.")
    isolation_level: str = setting(
        "read_uncommitted",
        one_of("read_uncommitted", "read_committed"),
        doc="read_committed: the consumer gets no records of open or aborted transactions.",
    )
    partition_assignment_strategy: tuple[str | Assignor, ...] = setting(
        ("range", "cooperative-sticky"),
        kind="assignors",
        doc="The assignors in the order of preference: range, roundrobin, sticky, "
        "cooperative-sticky, or your own Assignor objects.",
    )
    exclude_internal_topics: bool = setting(
        True, doc="Exclude internal topics from pattern subscriptions."
    )
    key_deserializer: Callable[[bytes], Any] | None = setting(
        None, kind="function", doc="A function from bytes to keys; it is not called for null."
    )
    value_deserializer: Callable[[bytes], Any] | None = setting(
        None, kind="function", doc="A function from bytes to values; it is not called for null."
    )

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        """Check the rules K-35 and K-54. Raises ConfigError if a rule is broken, or if a group id
        is empty."""
        resolve_protection(values, given, cls.rows())
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


#: The settings that the broker decides with group_protocol="consumer".
_BROKERS_SAY = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "partition_assignment_strategy",
)


def _resolve_group_protocol(values: dict[str, Any], given: frozenset[str]) -> None:
    """Refuse settings that contradict the chosen group protocol (KIP-848)."""
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
