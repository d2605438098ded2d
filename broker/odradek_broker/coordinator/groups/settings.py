"""The group coordinator's part of the broker's configuration."""

from __future__ import annotations

from typing import Protocol

from odradek_broker.coordinator.groups.consumer.settings import ConsumerGroupSettings


class GroupSettings(ConsumerGroupSettings, Protocol):
    """The settings of groups of both protocols."""

    @property
    def group_min_session_timeout_ms(self) -> int: ...
    @property
    def group_max_session_timeout_ms(self) -> int: ...
    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...
    @property
    def offset_metadata_max_bytes(self) -> int: ...
    @property
    def offsets_retention_minutes(self) -> int: ...
    @property
    def offsets_retention_check_interval_ms(self) -> int: ...
