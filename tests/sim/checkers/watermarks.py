"""Log start <= last stable offset <= high watermark <= log end; none of them decreases while a
broker runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek_broker.node import Node

#: (log start, last stable offset, high watermark, log end)
Offsets = tuple[int, int, int, int]


class WatermarkChecker:
    """Checks every open log of a running broker against the last check."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, bytes], Offsets] = {}
        #: The highest high watermark of earlier runs of the broker, without the runs whose
        #: `log.durability` does not promise to keep the high watermark.
        self._shown: dict[tuple[str, int, bytes], int] = {}

    def restarted(self, *, promised: bool, cut: Collection[str] = ()) -> None:
        """Called when the broker was restarted: a log may now end earlier, but not below its
        earlier high watermark.

        `promised`: True if the last run's `log.durability` promises to keep the high watermark.
        `cut`: the topics of which this does not hold, because records were removed on purpose.
        """
        if promised:
            for key, offsets in self._seen.items():
                self._shown[key] = max(self._shown.get(key, 0), offsets[2])
        self._seen.clear()
        self._shown = {key: mark for key, mark in self._shown.items() if key[0] not in cut}

    def check(self, node: Node) -> Iterator[str]:
        """Yield watermarks that are out of order, or lower than at the last check."""
        for log in node.logs:
            if not log.loaded or log.offline:
                continue
            key = (log.topic, log.partition, log.topic_id)
            now = (
                log.log_start_offset,
                log.last_stable_offset,
                log.high_watermark,
                log.log_end_offset,
            )
            if not now[0] <= now[1] <= now[2] <= now[3]:
                yield f"{log.name}: start, stable, high watermark and end are {now}"
            before = self._seen.get(key)
            if before is not None and any(a < b for a, b in zip(now, before, strict=True)):
                yield f"{log.name}: start, stable, high watermark and end went from {before} to {now}"
            if before is None and now[2] < self._shown.get(key, 0):
                yield (
                    f"{log.name}: readers were shown records up to {self._shown[key]}, and after a"
                    f" restart there are records up to {now[2]}"
                )
            self._seen[key] = now
