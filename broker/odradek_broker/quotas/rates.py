"""Measures of usage over time, as in Kafka: rates over sampled windows, and a token bucket.

All functions are pure: quota and time are arguments of each call.
"""

from __future__ import annotations

from collections import deque
from math import floor, inf

from odradek_protocol.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Windows:
    """The time over which a rate is measured: `count` windows of `size_ms`, including the one that
    is being filled."""

    count: int
    size_ms: int

    @property
    def whole_s(self) -> float:
        """The seconds of the complete windows: a client without earlier usage may immediately use
        as much as its quota allows in this time."""
        return (self.count - 1) * self.size_ms / 1000


@dataclass(slots=True)
class _Sample:
    start_ms: int
    last_ms: int
    total: float = 0.0


class SampledRate:
    """The usage per second. Old windows drop out as a whole (Q-05)."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque(maxlen=windows.count + 1)

    def record(self, amount: float, now_ms: int) -> None:
        """Count an amount that is used at this time; a negative amount undoes an earlier amount."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._windows.size_ms:
            samples.append(_Sample(now_ms, now_ms))
        sample = samples[-1]
        sample.total += amount
        sample.last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        span_ms = self._span_ms(now_ms)
        return sum(sample.total for sample in self._samples) / (span_ms / 1000)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """The time until the rate falls to `limit` without further usage, in ms; 0 if the rate is
        not above `limit`."""
        span_ms = self._span_ms(now_ms)
        rate = sum(sample.total for sample in self._samples) / (span_ms / 1000)
        if rate <= limit:
            return 0
        return floor((rate - limit) / limit * span_ms + 0.5)

    def _span_ms(self, now_ms: int) -> int:
        """The time that the samples cover. The time is at least that of all complete windows, so
        that the first usage of a client does not count as a very high rate.
        """
        samples, windows = self._samples, self._windows
        expired_ms = now_ms - windows.count * windows.size_ms
        while samples and samples[0].last_ms <= expired_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = windows.count - 1 - elapsed_ms // windows.size_ms
        return max(elapsed_ms + max(missing, 0) * windows.size_ms, 1)


class TokenBucket:
    """Tokens that are refilled at the rate of the quota. The bucket holds as many tokens as are
    refilled during all windows (KIP-599).

    The bucket is full at first. A client may take tokens while the level is not below zero, even
    more tokens than there are. Below zero, clients have to wait.
    """

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        self._updated_ms = 0

    def take(self, tokens: float, rate: float, now_ms: int) -> None:
        """Take tokens; the bucket may fall below zero."""
        self._tokens = self._refilled(rate, now_ms) - tokens

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """The time until the bucket is at zero again, in ms; 0 if it is not below zero."""
        tokens = self._refilled(rate, now_ms)
        self._tokens = tokens
        return 0 if tokens >= 0 else floor(-tokens / rate * 1000 + 0.5)

    def _refilled(self, rate: float, now_ms: int) -> float:
        most = self._windows.count * self._windows.size_ms / 1000 * rate
        tokens = self._tokens
        if tokens is None or rate == inf:
            tokens = most
        else:
            tokens = min(most, tokens + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return tokens
