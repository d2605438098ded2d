"""The settings of brokers, as a kind of configured resource."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from odradek_broker.config.broker import (
    MIN_INSYNC_REPLICAS,
    BrokerConfig,
    find_setting,
    is_unsupported,
    with_dynamic,
)
from odradek_broker.config.effective import ConfigEntry, describe_broker
from odradek_broker.config.listener_settings import listener_of
from odradek_broker.config.types import ConfigSource, Kind, UnknownSettingError, write_value
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_protocol.errors import ErrorCode

_MIB = 1024 * 1024
_THREADS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def _check_steps(before: BrokerConfig, after: BrokerConfig) -> None:
    """Refuse with AdminError a change that Kafka refuses although each value by itself is legal."""

    def values(name: str) -> tuple[Any, Any]:
        row = find_setting(name)
        assert row is not None
        return before.value_of(row), after.value_of(row)

    def refuse(name: str, text: str) -> NoReturn:
        raise AdminError(
            ErrorCode.INVALID_REQUEST, f"Invalid value {values(name)[1]} for {name}: {text}"
        )

    for name in _THREADS:
        old, new = values(name)
        if new != old and not max(1, old // 2) <= new <= old * 2:
            refuse(
                name, f"it must be from {max(1, old // 2)} to {old * 2}, half to twice what it is"
            )
    threads = values("log.cleaner.threads")[1]
    old, new = values("log.cleaner.dedupe.buffer.size")
    if new != old and new // threads <= _MIB:
        refuse("log.cleaner.dedupe.buffer.size", "it must be more than 1 MiB for each thread")
    old, new = values("max.connections.per.ip")
    if new != old and new == 0 and not values("max.connections.per.ip.overrides")[1]:
        refuse("max.connections.per.ip", "0 needs max.connections.per.ip.overrides")
    old, new = values("max.connection.creation.rate")
    if new != old and new < 1:
        refuse("max.connection.creation.rate", "it must be at least 1")


def _of_one_broker(key: str) -> bool:
    """True for a setting that each broker has for itself, such as a certificate or a principal."""
    return (".ssl." in key and bool(listener_of(key))) or key.startswith("sasl.kerberos.")


class BrokerConfigResource:
    """A broker by its id, or all of them by the empty name."""

    bad_value = ErrorCode.INVALID_REQUEST

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        self.check_altered(metadata, name)

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        if name in ("", str(metadata.node_id)):
            return
        if not name.lstrip("-").isdecimal():
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
            )
        raise AdminError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {metadata.node_id} or empty string,"
            f" but received {name}",
        )

    def kind_of(self, key: str) -> Kind:
        row = find_setting(key)
        if row is None and not is_unsupported(key):
            raise UnknownSettingError(key, "is no broker setting")
        if row is not None and row.dynamic and key.startswith("ssl."):
            raise AdminError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the"
                f" listener prefix: [{key}]",
            )
        if row is None or not row.dynamic or key != row.name:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{key}]"
            )
        return row.kind

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> str:
        row = find_setting(key)
        assert row is not None
        return write_value(metadata.config.value_of(row))

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        checked = {}
        for key, text in after.items():
            row = find_setting(key)
            if row is None:
                raise UnknownSettingError(key, "is no broker setting")
            if not name and _of_one_broker(key):
                raise AdminError(
                    ErrorCode.INVALID_REQUEST,
                    "Cannot update these configs at default cluster level, broker id must be"
                    f" specified: [{key}]",
                )
            row.read(key, text)
            assert text is not None
            checked[key] = text.strip()
        of_this = checked if name else metadata.broker_overrides(str(metadata.node_id))
        of_all = metadata.broker_overrides("") if name else checked
        changed = with_dynamic(metadata.config, of_this, of_all)
        metadata.check_config(changed)
        _check_steps(metadata.config, changed)
        return checked

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """`min.insync.replicas` is one for all brokers, and always there (N-45)."""
        if name and MIN_INSYNC_REPLICAS in keys:
            raise AdminError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_INSYNC_REPLICAS} is one for all brokers: alter it for the cluster, not for broker {name}.",
            )
        if not name and MIN_INSYNC_REPLICAS not in after:
            raise AdminError(
                ErrorCode.INVALID_CONFIG,
                f"{MIN_INSYNC_REPLICAS} of the cluster can be changed, but not removed.",
            )

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        if name:
            return describe_broker(metadata.config, keys)
        # The empty name means what is set for all brokers, and nothing else.
        given = metadata.broker_overrides("")
        of_all = with_dynamic(metadata.config, {}, given)
        entries = describe_broker(of_all, [key for key in given if keys is None or key in keys])
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        return [
            replace(entry, synonyms=tuple(s for s in entry.synonyms if s.source is source))
            for entry in entries
        ]
