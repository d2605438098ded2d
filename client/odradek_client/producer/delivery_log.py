"""The log lines of a producer about records that are refused or have failed: one for many of them (C-81)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek_client.errors import OdradekError
from odradek_client.producer.batch import ProducerBatch
from odradek_client.words import counted

#: Failures that come within this time of the first are told together with it.
GATHERED_MS = 1_000.0
#: From the second line on; and how often it is told that records are still refused.
NEXT_LINE_MS = 30_000.0
#: For how long records are refused and sent again before anybody hears of it.
PATIENCE_MS = 5_000.0

log = logging.getLogger("odradek.client.producer")


class _Failures:
    __slots__ = ("first_error", "partitions", "records")

    def __init__(self) -> None:
        self.records = 0
        self.partitions: set[tuple[str, int]] = set()
        self.first_error: BaseException | None = None

    def add(self, batch: ProducerBatch) -> None:
        self.records += batch.record_count
        self.partitions.add(batch.tp)
        self.first_error = self.first_error or batch.error_of(0)


class DeliveryLog:
    """A line for each batch would bury everything else. `call_at(at_ms, tell)` calls `tell` at that time, of a
    clock that only rises, in milliseconds."""

    def __init__(self, call_at: Callable[[float, Callable[[], None]], None]) -> None:
        self._call_at = call_at
        # Of records that are not written, and of those that may be.
        self._failures = {False: _Failures(), True: _Failures()}
        self._next_line_ms = 0.0
        self._refused_since_ms: float | None = None
        self._refusal_line_ms = 0.0

    def failed(self, batches: list[ProducerBatch], now_ms: float) -> None:
        """These are given up. Nobody may be looking at their deliveries."""
        if not batches:
            return
        if not any(failures.records for failures in self._failures.values()):
            line_ms = max(now_ms + GATHERED_MS, self._next_line_ms)
            self._next_line_ms = line_ms + NEXT_LINE_MS
            self._call_at(line_ms, self.tell)
        for batch in batches:
            self._failures[batch.unknown_fate].add(batch)

    def tell(self) -> None:
        """A line about all records that have failed since the last line; two, if some of them may be written."""
        for unknown, failures in self._failures.items():
            if failures.records:
                log.warning(
                    "%s for %s %s: %s",
                    counted(failures.records, "record"),
                    _names(sorted(failures.partitions)),
                    "may be written or not" if unknown else "not written",
                    failures.first_error,
                )
                self._failures[unknown] = _Failures()

    def answered(self, trouble: OdradekError | None, now_ms: float) -> None:
        """Batches were acknowledged (None), or refused and will be sent again, for the last reason."""
        if trouble is None:
            self._refused_since_ms = None
            return
        if self._refused_since_ms is None:
            self._refused_since_ms = now_ms
        waited_ms = now_ms - self._refused_since_ms
        if waited_ms >= PATIENCE_MS and now_ms >= self._refusal_line_ms:
            self._refusal_line_ms = now_ms + NEXT_LINE_MS
            log.warning(
                "no record has been acknowledged for %.0f s, and they are sent again: %s",
                waited_ms / 1000,
                trouble,
            )


def _names(partitions: list[tuple[str, int]]) -> str:
    (topic, index), *others = partitions
    more = f" and {counted(len(others), 'other partition')}" if others else ""
    return f"{topic}-{index}{more}"
