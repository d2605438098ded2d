"""Subscriptions to client metrics, as a kind of configured resource (KIP-714)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from odradek_broker.config.effective import ConfigEntry, SynonymEntry
from odradek_broker.config.group_settings import METRICS_SETTINGS
from odradek_broker.config.types import (
    ANYTHING,
    ConfigError,
    ConfigSource,
    Kind,
    read_value,
    write_value,
)
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.errors import AdminError
from odradek_protocol.constants import RESOURCE_CLIENT_METRICS
from odradek_protocol.errors import ErrorCode


class ClientMetricsConfigResource:
    """A subscription to client metrics by its name; it need not exist."""

    bad_value = ErrorCode.INVALID_CONFIG

    def check_described(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
            )

    def check_altered(self, metadata: ClusterMetadata, name: str) -> None:
        if not name:
            raise AdminError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")

    def kind_of(self, key: str) -> Kind:
        row = METRICS_SETTINGS.get(key)
        if row is None:
            raise AdminError(
                ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}"
            )
        return row.kind

    def present_list(self, metadata: ClusterMetadata, name: str, key: str) -> None:
        return None

    def check(
        self, metadata: ClusterMetadata, name: str, after: Mapping[str, str | None]
    ) -> dict[str, str]:
        checked = {}
        for key, text in after.items():
            kind = self.kind_of(key)
            row = METRICS_SETTINGS[key]
            value = read_value(key, text, kind, ANYTHING)
            try:
                read_value(key, text, kind, row.check)
            except ConfigError as error:
                if kind is Kind.INT:
                    raise AdminError(ErrorCode.INVALID_REQUEST, str(error)) from error
                raise
            checked[key] = write_value(value)
        return checked

    def check_named(self, name: str, keys: Collection[str], after: Mapping[str, str]) -> None:
        """Nothing more is asked of these."""

    def describe(
        self, metadata: ClusterMetadata, name: str, keys: Collection[str] | None
    ) -> list[ConfigEntry]:
        given = metadata.overrides(RESOURCE_CLIENT_METRICS, name)
        return [
            ConfigEntry(
                name=row.name,
                value=given.get(row.name, write_value(row.default)),
                source=(ConfigSource.CLIENT_METRICS if row.name in given else ConfigSource.DEFAULT),
                read_only=False,
                sensitive=False,
                kind=row.kind,
                doc=row.doc,
                synonyms=(
                    (SynonymEntry(row.name, given[row.name], ConfigSource.CLIENT_METRICS),)
                    if row.name in given
                    else ()
                ),
            )
            for row in METRICS_SETTINGS.values()
            if keys is None or row.name in keys
        ]
