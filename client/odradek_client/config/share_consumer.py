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
    "auto_offset_reset": "the group's setting share.auto.offset.reset says where a group begins",
    "isolation_level": "the group's setting share.isolation.level says it for all members",
    "enable_auto_commit": "records are acknowledged; see share_acknowledgement_mode",
    "session_timeout_ms": "the group's setting share.session.timeout.ms says it",
    "heartbeat_interval_ms": "the group's setting share.heartbeat.interval.ms says it",
    "group_instance_id": "share groups have no static members",
    "group_protocol": "share groups have a protocol of their own",
    "group_remote_assignor": "the broker assigns the partitions",
    "partition_assignment_strategy": "the broker assigns the partitions",
    "max_partition_fetch_bytes": "fetch_max_bytes is for all partitions",
}


@config
class ShareConsumerConfig(ClientConfig):
    """Settings of `ShareConsumer`."""

    client_id: str = setting(
        "odradek-share-consumer", doc="A name that the broker shows in its logs."
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
        doc="implicit: the next poll accepts what earlier polls returned, except for records that "
        "have an answer or are in `async with record`; explicit: only answers count.",
    )
    share_acquire_mode: str = setting(
        "batch_optimized",
        one_of("batch_optimized", "record_limit"),
        doc="batch_optimized: the broker lends whole batches, so perhaps more records than asked "
        "for, which wait here; record_limit: never more than asked for, from one broker at a time.",
    )
    max_poll_records: int = setting(
        500, between(1, INT32_MAX), doc="The most records one poll returns."
    )
    max_in_flight: int = setting(
        2_000,
        between(1, INT32_MAX),
        doc="The most records that the application has without having answered them; polls wait "
        "while it has so many.",
    )
    max_poll_interval_ms: int = setting(
        300_000,
        between(1, INT32_MAX),
        doc="The longest pause between two polls, and the longest time for which the lock of a "
        "record is renewed.",
    )
    renew_locks: bool = setting(
        True,
        doc="Renew the lock of a record while it is in `async with record`, if the group's setting "
        "share.renew.acknowledge.enable allows it.",
    )
    unreadable_records: str = setting(
        "release",
        one_of("release", "reject"),
        doc="The answer to records that a deserializer or a damaged batch makes unreadable. "
        "release: they are delivered again, since another version of the program may read them, and "
        "the group's delivery limit ends the retries; reject: they are not delivered again.",
    )
    fetch_min_bytes: int = setting(
        1, between(0, INT32_MAX), doc="The broker waits until it has so much to send."
    )
    fetch_max_wait_ms: int = setting(500, between(0, INT32_MAX), doc="But no longer than this.")
    fetch_max_bytes: int = setting(
        52_428_800, between(1, INT32_MAX), doc="Bytes of one fetch, over all partitions."
    )
    check_crcs: bool = setting(True, doc="Check that batches arrived undamaged.")
    key_deserializer: Callable[[bytes], Any] | None = setting(
        None, kind="function", doc="Makes keys of bytes; not called for null."
    )
    value_deserializer: Callable[[bytes], Any] | None = setting(
        None, kind="function", doc="Makes values of bytes; not called for null."
    )

    @classmethod
    def _instead(cls) -> Mapping[str, str]:
        return _INSTEAD

    @classmethod
    def _resolve(cls, values: dict[str, Any], given: frozenset[str]) -> None:
        resolve_protection(values, given, cls.rows())
        if not values["group_id"]:
            raise ConfigError("a share consumer needs a group; set group_id")
