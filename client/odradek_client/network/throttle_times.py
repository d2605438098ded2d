"""The throttle times that brokers imposed on a client (quotas): the average and the maximum of the
last minute, as in Kafka's clients."""

from __future__ import annotations

import math

SAMPLE_MS = 30_000.0
SAMPLES = 2


class _Sample:
    __slots__ = ("began_ms", "count", "longest_ms", "total_ms")

    def __init__(self, began_ms: float) -> None:
        self.began_ms = began_ms
        self.count = 0
        self.total_ms = 0.0
        self.longest_ms = 0.0


class ThrottleTimes:
    """The `throttle_time_ms` of every answer (0 for answers without one). The times are kept in two
    samples of 30 s; when a third sample begins, the oldest is dropped."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: list[_Sample] = []

    def record(self, throttle_ms: int, now_ms: float) -> None:
        """Add an answer; `now_ms`: a monotonic time."""
        if not self._samples or now_ms - self._samples[-1].began_ms >= SAMPLE_MS:
            self._samples = [*self._samples[1 - SAMPLES :], _Sample(now_ms)]
        sample = self._samples[-1]
        sample.count += 1
        sample.total_ms += throttle_ms
        sample.longest_ms = max(sample.longest_ms, throttle_ms)

    def metrics(self, prefix: str, now_ms: float) -> dict[str, float]:
        """`PREFIX-throttle-time-avg` and `-max`, in milliseconds; NaN without a recent answer."""
        live = [each for each in self._samples if now_ms - each.began_ms < SAMPLES * SAMPLE_MS]
        count = sum(each.count for each in live)
        total_ms = sum(each.total_ms for each in live)
        return {
            f"{prefix}-throttle-time-avg": total_ms / count if count else math.nan,
            f"{prefix}-throttle-time-max": max(
                (each.longest_ms for each in live), default=math.nan
            ),
        }
