"""The settings of brokers, as a kind of configured resource."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from odradek_broker.config.broker import find_setting, is_unsupported, with_dynamic
from odradek_broker.config.effective import ConfigEntry, describe_broker
from odradek_broker.config.listener_settings import listener_of
from odradek_broker.config.types import ConfigSource, Kind, UnknownSettingError, write_value
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_protocol.errors import ErrorCode


def _of_one_broker(key: str) -> bool:
    """Whether each broker has its own, as a certificate."""
    return ".ssl." in key and bool(listener_of(key))


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
        metadata.check_config(with_dynamic(metadata.config, of_this, of_all))
        return checked

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
