"""Progress of a mirror: counts, rates, lag and failures, and a limit of the mirror's bytes per
second.

Time is an argument: the module neither waits nor reads a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from odradek_client.structs import TopicPartition

#: The time over which rates are averaged.
_WINDOW_S = 10.0
_SAMPLES_MAX = 100
#: The maximum number of names in one line of progress.
_NAMED_MAX = 3


class RateLimit:
    """A limit of bytes per second, as a budget that fills up to the bytes of one second."""

    def __init__(self, max_bytes_per_s: int) -> None:
        if max_bytes_per_s <= 0:
            raise ValueError(f"a rate of {max_bytes_per_s} bytes per second copies nothing")
        self._per_s = max_bytes_per_s
        self._budget = float(max_bytes_per_s)
        self._at_s: float | None = None

    def spend(self, size_bytes: int, now_s: float) -> None:
        """Note bytes that were read; the budget may go below zero."""
        self._fill(now_s)
        self._budget -= size_bytes

    def wait_s(self, now_s: float) -> float:
        """The time in seconds until more may be read."""
        self._fill(now_s)
        return max(-self._budget / self._per_s, 0.0)

    def _fill(self, now_s: float) -> None:
        if self._at_s is not None:
            self._budget += (now_s - self._at_s) * self._per_s
        self._budget = min(self._budget, float(self._per_s))
        self._at_s = now_s


@dataclass(slots=True)
class PartitionProgress:
    """The state of one partition. All offsets are those of the source.

    `copied`: all records before this offset are durable at the target. `timestamp_ms`: the newest
    timestamp of the last copied batch, -1 before the first.
    """

    copied: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    timestamp_ms: int = -1

    @property
    def lag(self) -> int:
        """The number of offsets that are not copied yet; never negative."""
        return max(self.high_watermark - self.copied, 0)


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The progress at one time. `lag_s`: the age of a partition's newest copied record, in the
    partition where this age is highest; 0 if there is no lag, None if no record was copied yet.
    `eta_s`: the expected time to the end, None without progress. `groups`: the number of groups
    with all offsets at the target. `groups_left`: the groups that lack offsets at the target, with
    reasons. `troubles`: transient problems. `failed`: partitions that are not copied.
    `waiting_for`: the operation for which the whole mirror has waited for `waiting_s`."""

    seconds: float
    records: int
    bytes: int
    records_per_s: float
    bytes_per_s: float
    partitions: int
    lag: int
    lag_s: float | None
    eta_s: float | None
    groups: int
    groups_left: dict[str, str] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    waiting_for: str | None = None
    waiting_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The values for a line of JSON."""
        return {"type": "progress", **asdict(self)}

    def line(self) -> str:
        """The progress in one line for people."""
        parts = [
            f"{self.records:,} records",
            f"{_size(self.bytes)}",
            f"{self.records_per_s:,.0f} records/s",
            f"{_size(self.bytes_per_s)}/s",
            f"lag {self.lag:,}" + (f" ({_time(self.lag_s)})" if self.lag and self.lag_s else ""),
        ]
        if self.lag and self.eta_s is not None:
            parts.append(f"ready in {_time(self.eta_s)}")
        if self.groups or self.groups_left:
            left = f" ({len(self.groups_left)} not complete)" if self.groups_left else ""
            parts.append(f"{self.groups} groups{left}")
        if self.waiting_for is not None:
            parts.append(f"waiting for {self.waiting_for} since {_time(self.waiting_s)}")
        parts += _told("trying again", self.troubles)
        parts += _told("FAILED:", self.failed)
        return ", ".join(parts)


class Progress:
    """The counts of a mirror's work. Copiers call `seen`, `copied` and `failed`; the display calls
    `snapshot`."""

    def __init__(self, now_s: float) -> None:
        self._begun_s = now_s
        self.partitions: dict[TopicPartition, PartitionProgress] = {}
        self.failures: dict[TopicPartition, str] = {}
        self.troubles: dict[str, str] = {}
        self.groups = 0
        self.groups_left: dict[str, str] = {}
        self.records = 0
        self.bytes = 0
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=_SAMPLES_MAX)
        self._samples.append((now_s, 0, 0))

    def begin(self, tp: TopicPartition, copied: int, high_watermark: int) -> None:
        """Note a partition that is copied from `copied` on. If it had failed, it stays failed until
        `seen` is called."""
        self.partitions[tp] = PartitionProgress(copied, high_watermark)

    def seen(self, tp: TopicPartition, high_watermark: int, last_stable_offset: int) -> None:
        """Note the ends of a partition at the source. The partition no longer counts as failed."""
        state = self.partitions[tp]
        self.failures.pop(tp, None)
        state.high_watermark, state.last_stable_offset = high_watermark, last_stable_offset

    def copied(
        self,
        tp: TopicPartition,
        next_offset: int,
        *,
        records: int,
        size_bytes: int,
        timestamp_ms: int = -1,
    ) -> None:
        """Called when all records before `next_offset` are durable at the target."""
        state = self.partitions[tp]
        state.copied = next_offset
        if timestamp_ms >= 0:
            state.timestamp_ms = timestamp_ms
        self.records += records
        self.bytes += size_bytes

    def failed(self, tp: TopicPartition, why: str) -> None:
        """Called when a partition is no longer copied."""
        self.failures[tp] = why

    def snapshot(self, now_s: float, now_ms: int) -> ProgressSnapshot:
        """The progress at this time."""
        while len(self._samples) > 1 and now_s - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()
        since_s, records, size_bytes = self._samples[0]
        passed_s = max(now_s - since_s, 0.001)
        self._samples.append((now_s, self.records, self.bytes))
        records_per_s = (self.records - records) / passed_s
        behind = [each for each in self.partitions.values() if each.lag]
        lag = sum(each.lag for each in behind)
        known = [now_ms - each.timestamp_ms for each in behind if each.timestamp_ms >= 0]
        lag_s = max(max(known), 0) / 1000 if known else None if behind else 0.0
        return ProgressSnapshot(
            seconds=round(now_s - self._begun_s, 3),
            records=self.records,
            bytes=self.bytes,
            records_per_s=round(records_per_s, 1),
            bytes_per_s=round((self.bytes - size_bytes) / passed_s, 1),
            partitions=len(self.partitions),
            lag=lag,
            lag_s=lag_s,
            eta_s=round(lag / records_per_s, 1) if records_per_s > 0 else None,
            groups=self.groups,
            groups_left=dict(self.groups_left),
            troubles=dict(self.troubles),
            failed={f"{tp.topic}-{tp.partition}": why for tp, why in self.failures.items()},
        )


def _told(begin: str, causes: Mapping[str, str]) -> list[str]:
    if not causes:
        return []
    named = [f"{name}: {why}" for name, why in list(causes.items())[:_NAMED_MAX]]
    more = len(causes) - len(named)
    return [f"{begin} {'; '.join(named)}" + (f"; and {more} more" if more else "")]


def _size(size_bytes: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
