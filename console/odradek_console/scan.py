"""The plan of a scan: the remaining offsets of each partition, newest or oldest first.

A scan continues at its cursor, so the server keeps no state between two steps. A scan with the
newest records first reads windows of offsets, from the end to the beginning; each window is read
forwards.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

PARTITIONS_MAX = 256
#: The maximum number of offsets in a window of a partition.
_WINDOW_MAX = 20_000
_OFFSET_MAX = (1 << 63) - 1
_PARTITION_MAX = (1 << 31) - 1
_CURSOR_BYTES_MAX = 64 * 1024


class CursorError(ValueError):
    """An invalid cursor of a scan."""


@dataclass(slots=True)
class ScanRange:
    """The remaining offsets of a partition: those from `at` to before `high`. In a scan with the
    newest records first, those from `floor` to before `low` follow."""

    floor: int
    low: int
    at: int
    high: int

    @property
    def left(self) -> int:
        return max(self.high - self.at, 0) + max(self.low - self.floor, 0)


class Scan:
    """The remaining offsets of a scan by partition. `window`: the number of offsets in a window; 0
    if the oldest records come first."""

    def __init__(self, spans: dict[int, ScanRange], window: int) -> None:
        self.spans = spans
        self.window = window
        for span in spans.values():
            self._turn(span)

    @classmethod
    def forward(cls, ranges: Mapping[int, tuple[int, int]]) -> Scan:
        """A scan with the oldest records first. `ranges`: the first offset of each partition, and
        the last one plus 1."""
        return cls(
            {part: ScanRange(first, first, first, end) for part, (first, end) in ranges.items()}, 0
        )

    @classmethod
    def backward(cls, ranges: Mapping[int, tuple[int, int]], window: int) -> Scan:
        """A scan with the newest records first."""
        return cls(
            {part: ScanRange(first, end, end, end) for part, (first, end) in ranges.items()},
            max(1, min(window, _WINDOW_MAX)),
        )

    @property
    def done(self) -> bool:
        return not any(span.left for span in self.spans.values())

    @property
    def left(self) -> int:
        """The number of remaining offsets."""
        return sum(span.left for span in self.spans.values())

    def wanted(self) -> dict[int, tuple[int, int]]:
        """The offsets to read next, by partition. Partitions without remaining offsets are left
        out."""
        return {
            part: (span.at, span.high) for part, span in self.spans.items() if span.at < span.high
        }

    def took(self, partition: int, next_offset: int) -> None:
        """Called when a partition was read up to `next_offset`, exclusive. The partition becomes
        the last in the order, so that the next fetch begins with the other partitions."""
        span = self.spans.pop(partition)
        self.spans[partition] = span
        span.at = max(span.at, next_offset)
        self._turn(span)

    def give_up(self, partition: int) -> None:
        """Drop the remaining offsets of a partition."""
        span = self.spans[partition]
        span.at = span.high = span.low = span.floor

    def widen(self, factor: float) -> None:
        """Change the size of the windows that follow."""
        if self.window:
            self.window = max(1, min(int(self.window * factor), _WINDOW_MAX))

    def _turn(self, span: ScanRange) -> None:
        """Go to the preceding window, after the present window was read to its end."""
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
        """The scan of a cursor. Raises CursorError for any other text."""
        try:
            packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            # A small compressed text may hold gigabytes.
            plain = zlib.decompressobj().decompress(packed, _CURSOR_BYTES_MAX)
            found = json.loads(plain)
        except (ValueError, zlib.error, RecursionError):
            raise CursorError("the console made no such text") from None
        if not isinstance(found, list) or len(found) != 2 or not isinstance(found[1], list):
            raise CursorError("it must have a window and a list of partitions")
        window, rows = found
        if not _is_whole(window, _WINDOW_MAX):
            raise CursorError(f"its window must be a whole number from 0 to {_WINDOW_MAX:,}")
        if len(rows) > PARTITIONS_MAX:
            raise CursorError(f"{len(rows):,} partitions of {PARTITIONS_MAX} that a scan may have")
        spans: dict[int, ScanRange] = {}
        for number, row in enumerate(rows):
            span = _span_of(row, window)
            if span is None or row[0] in spans:
                raise CursorError(f"entry {number} has no sound offsets of a partition of its own")
            spans[row[0]] = span
        return cls(spans, window)


def _is_whole(number: object, most: int) -> bool:
    return type(number) is int and 0 <= number <= most


def _span_of(row: object, window: int) -> ScanRange | None:
    """The span of a cursor's entry; None if the entry cannot come from a scan."""
    if not isinstance(row, list) or len(row) != 5 or not _is_whole(row[0], _PARTITION_MAX):
        return None
    if not all(_is_whole(offset, _OFFSET_MAX) for offset in row[1:]):
        return None
    span = ScanRange(*row[1:])
    # A scan without windows never goes below `low`.
    in_order = span.floor <= span.low <= span.at <= span.high
    return span if in_order and (window or span.floor == span.low) else None


def last_records(ranges: Mapping[int, tuple[int, int]], count: int) -> dict[int, tuple[int, int]]:
    """The ranges with the last `count` offsets of all partitions together: equally many of each,
    and more of long partitions if others are shorter."""
    left = count
    found: dict[int, tuple[int, int]] = {}
    by_length = sorted(ranges.items(), key=lambda item: (item[1][1] - item[1][0], item[0]))
    for number, (part, (first, end)) in enumerate(by_length):
        share = -(-left // (len(by_length) - number))
        taken = min(end - first, share)
        left -= taken
        found[part] = (end - taken, end)
    return found
