"""The settings of a share consumer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek_client.config.common import ClientConfig
from odradek_client.config.definition import config, setting
from odradek_client.config.protection import resolve_protection
from odradek_client.errors import ConfigError
from odradek_protocol.settings import INT32_MAX, between, one_of

#: Settings of a `Consumer` that a share consumer does not have, and the replacement for each.
_INSTEAD = {
    "auto_offset_reset": "the group's setting share.auto.offset.reset applies",
    "isolation_level": "the group's setting share.isolation.level applies to all members",
    "enable_auto_commit": "records are acknowledged; see share_acknowledgement_mode",
    "session_timeout_ms": "the group's setting share.session.timeout.ms applies",
    "heartbeat_interval_ms": "the group's setting share.heartbeat.interval.ms applies",
    "group_instance_id": "share groups have no static members",
    "group_protocol": "share groups have a protocol of their own",
    "group_remote_assignor": "the broker assigns the partitions",
    "partition_assignment_strategy": "the broker assigns the partitions",
    "max_partition_fetch_bytes": "fetch_max_bytes limits a fetch from all partitions",
}


@config
class ShareConsumerConfig(ClientConfig):
    """Settings of `ShareConsumer`."""

    client_id: str = setting(
        "odradek-share-consumer", doc="A name of this client for the broker's logs."
    )
    group_id: str | None = setting(
        None, kind="str", doc="The share group, whose members share the records. Required."
    )
    client_rack: str = setting(
        "", doc="The rack of this client, which the group's assignor may use."
    )
    share_acknowledgement_mode: str = setting(
        "implicit",
        one_of("implicit", "explicit"),
        doc="implicit: the next poll accepts the records that earlier polls returned, except those "
        "that are acknowledged already or are in `async with record`; explicit: every record "
        "needs an acknowledgement of its own.",
    )
    share_acquire_mode: str = setting(
        "batch_optimized",
        one_of("batch_optimized", "record_limit"),
        doc="batch_optimized: the broker returns whole batches, so that the client may buffer more "
        "records than it requested; record_limit: it never returns more records than "
        "requested, and the client fetches from one broker at a time.",
    )
    max_poll_records: int = setting(
        500, between(1, INT32_MAX), doc="Maximum number of records that a poll returns."
    )
    max_in_flight: int = setting(
        2_000,
        between(1, INT32_MAX),
        doc="Maximum number of records that the application has received and not acknowledged; "
        "polls wait at this limit.",
    )
    max_poll_interval_ms: int = setting(
        300_000,
        between(1, INT32_MAX),
        doc="Maximum time between two polls, and maximum time for which the lock of a record is "
        "renewed.",
    )
    renew_locks: bool = setting(
        True,
        doc="Renew the lock of a record while it is in `async with record`, if the group's setting "
        "share.renew.acknowledge.enable allows it.",
    )
    unreadable_records: str = setting(
        "release",
        one_of("release", "reject"),
        doc="The acknowledgement of records that cannot be read, because of the deserializer or a "
        "damaged batch. release: they are delivered again, up to the group's delivery limit, "
        "because another version of the program may be able to read them; reject: they are not "
        "delivered again.",
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
        52_428_800, between(1, INT32_MAX), doc="Maximum bytes of one fetch from all partitions."
    )
    check_crcs: bool = setting(True, doc="Verify the checksums of batches.")
    key_deserializer: Callable[[bytes], Any] | None = setting(
        None, kind="function", doc="A function from bytes to keys; it is not called for null."
    )
    value_deserializer: Callable[[bytes], Any] | None = setting(
        None, kind="function", doc="A function from bytes to values; it is not called for null."
    )

    @classmethod
    def _instead(cls) -> Mapping[str, str]:
        return _INSTEAD

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        resolve_protection(values, given, cls.rows())
        if not values["group_id"]:
            raise ConfigError("a share consumer needs a group; set group_id")
