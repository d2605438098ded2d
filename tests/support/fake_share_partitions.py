"""A `SharePartitions` without share partitions, for test worlds without logs."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.share.events import ShareEvent
from odradek_broker.share.in_flight import ShareLimits
from odradek_broker.share.led_partition import LedPartition
from odradek_broker.share.statistics import ShareStatistics


class FakeSharePartitions:
    """The part of `SharePartitions` that metrics, explanations and administration use. `told`: the
    events that were reported."""

    def __init__(self) -> None:
        self.statistics = ShareStatistics()
        self.told: list[ShareEvent] = []

    def loaded(self) -> Iterator[LedPartition]:
        return iter(())

    def of_group(self, group_id: str) -> list[LedPartition]:
        return []

    def settings(self, group_id: str) -> ShareLimits:
        return ShareLimits(30_000, 5, 2_000, renew=True)

    def tell(self, event: ShareEvent) -> None:
        self.told.append(event)
