"""The plan of a scan: the offsets of each partition that are left to read, newest or oldest first.

A scan goes on where its cursor says, so the server keeps nothing between two steps. Newest first
means windows of offsets from the end to the beginning; each window is read forwards.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

PARTITIONS_MAX = 256
#: The most offsets in a window of a partition.
_WINDOW_MAX = 20_000
_OFFSET_MAX = (1 << 63) - 1
_CURSOR_BYTES_MAX = 64 * 1024


class CursorError(ValueError):
    """A text that is no cursor of a scan."""


@dataclass(slots=True)
class Span:
    """The offsets of a partition that are left: those from `at` up to `high`, and then, newest
    first, those from `floor` up to `low`."""

    floor: int
    low: int
    at: int
    high: int

    @property
    def left(self) -> int:
        return max(self.high - self.at, 0) + max(self.low - self.floor, 0)


class Scan:
    """The spans of a scan by partition. `window`: the offsets of a window, if newest first."""

    def __init__(self, spans: dict[int, Span], window: int) -> None:
        self.spans = spans
        self.window = window
        for span in spans.values():
            self._turn(span)

    @classmethod
    def forward(cls, ranges: Mapping[int, tuple[int, int]]) -> Scan:
        """Oldest first: each partition from its first offset up to its last, exclusive."""
        return cls(
            {part: Span(first, first, first, end) for part, (first, end) in ranges.items()}, 0
        )

    @classmethod
    def backward(cls, ranges: Mapping[int, tuple[int, int]], window: int) -> Scan:
        """Newest first."""
        return cls(
            {part: Span(first, end, end, end) for part, (first, end) in ranges.items()},
            max(1, min(window, _WINDOW_MAX)),
        )

    @property
    def done(self) -> bool:
        return not any(span.left for span in self.spans.values())

    @property
    def left(self) -> int:
        """The number of offsets that are left."""
        return sum(span.left for span in self.spans.values())

    def wanted(self) -> dict[int, tuple[int, int]]:
        """For each partition with something left, the offsets to read next."""
        return {
            part: (span.at, span.high) for part, span in self.spans.items() if span.at < span.high
        }

    def took(self, partition: int, next_offset: int) -> None:
        """Note that a partition was read up to an offset, exclusive. Other partitions come first
        then."""
        span = self.spans.pop(partition)
        self.spans[partition] = span
        span.at = max(span.at, next_offset)
        self._turn(span)

    def give_up(self, partition: int) -> None:
        """Leave out what is left of a partition."""
        span = self.spans[partition]
        span.at = span.high = span.low = span.floor

    def widen(self, factor: float) -> None:
        """Change the size of the windows that follow."""
        if self.window:
            self.window = max(1, min(int(self.window * factor), _WINDOW_MAX))

    def _turn(self, span: Span) -> None:
        """Go to the window before, if one is read to its end."""
        if span.at >= span.high and span.low > span.floor and self.window:
            span.high = span.low
            span.low = span.at = max(span.floor, span.high - self.window)

    # --- cursors ----------------------------------------------------------------------------------

    def cursor(self) -> str:
        """A text from which `resume` makes this scan again."""
        rows = [
            [part, span.floor, span.low, span.at, span.high]
            for part, span in self.spans.items()
            if span.left
        ]
        packed = zlib.compress(json.dumps([self.window, rows], separators=(",", ":")).encode())
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def resume(cls, text: str) -> Scan:
        """The scan of a cursor. CursorError for any other text."""
        try:
            packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            # A small text may hold gigabytes.
            plain = zlib.decompressobj().decompress(packed, _CURSOR_BYTES_MAX)
            window, rows = json.loads(plain)
            spans = {row[0]: Span(*row[1:]) for row in rows}
        except (ValueError, TypeError, IndexError, zlib.error, RecursionError):
            raise CursorError("a scan cannot go on from this text") from None
        numbers = [window, *spans, *(number for row in rows for number in row[1:])]
        if (
            len(spans) > PARTITIONS_MAX
            or not all(type(number) is int and 0 <= number <= _OFFSET_MAX for number in numbers)
            or window > _WINDOW_MAX
        ):
            raise CursorError("a scan cannot go on from this text")
        return cls(spans, window)


def last_records(ranges: Mapping[int, tuple[int, int]], count: int) -> dict[int, tuple[int, int]]:
    """The ranges with the last `count` offsets of all partitions together: the same number of each,
    and more of the long ones if others are shorter."""
    left = count
    found: dict[int, tuple[int, int]] = {}
    by_length = sorted(ranges.items(), key=lambda item: (item[1][1] - item[1][0], item[0]))
    for number, (part, (first, end)) in enumerate(by_length):
        share = -(-left // (len(by_length) - number))
        taken = min(end - first, share)
        left -= taken
        found[part] = (end - taken, end)
    return found
