"""The last stable offset of a partition, where read_committed stops, and the transactions that hold
it back (L-10, L-12, T-45).

Log start <= last stable offset <= high watermark <= log end, always.
"""

from __future__ import annotations

from collections import OrderedDict


def last_stable_offset(
    high_watermark: int, log_start_offset: int, first_unstable_offset: int | None
) -> int:
    """The high watermark, or the first offset of a transaction that is undecided below it. That
    transaction may have begun below the log start (DeleteRecords)."""
    if first_unstable_offset is None or first_unstable_offset >= high_watermark:
        return high_watermark
    return max(first_unstable_offset, log_start_offset)


class OpenTransactions:
    """Open transactions, and finished ones whose marker is still above the high watermark.

    Both are keyed by the transaction's first offset on this partition.
    """

    __slots__ = ("_above_high_watermark", "_open")

    def __init__(self) -> None:
        # In the order of first offsets, because appends come in that order; the ordered dict gives
        # its first key in constant time however many were removed in front.
        self._open: OrderedDict[int, int] = OrderedDict()
        self._above_high_watermark: dict[int, int] = {}

    def __len__(self) -> int:
        """The number of open transactions."""
        return len(self._open)

    def begin(self, first_offset: int, producer_id: int) -> None:
        """Add an open transaction. ValueError unless it starts behind all that are open."""
        last = next(reversed(self._open), -1)
        if first_offset <= last:
            raise ValueError(
                f"a transaction cannot begin at offset {first_offset}: one that began at"
                f" {last} is open"
            )
        self._open[first_offset] = producer_id

    def finish(self, first_offset: int, last_offset: int) -> int:
        """End a transaction with the marker at `last_offset`.

        Returns the last stable offset that the partition has when the high watermark passes the
        marker: the next open transaction's first offset, else the offset behind the marker (L-04).
        KeyError if none began at `first_offset`.
        """
        del self._open[first_offset]
        self._above_high_watermark[first_offset] = last_offset
        first_open = self.first_open_offset
        return last_offset + 1 if first_open is None else first_open

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Drop the finished transactions whose marker lies below."""
        if self._above_high_watermark:
            self._above_high_watermark = {
                first: last
                for first, last in self._above_high_watermark.items()
                if last >= high_watermark
            }

    @property
    def first_open(self) -> tuple[int, int] | None:
        """(first offset, producer id) of the earliest open transaction."""
        return next(iter(self._open.items()), None)

    @property
    def first_open_offset(self) -> int | None:
        return next(iter(self._open), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the earliest transaction that is open, or finished above the high
        watermark."""
        if not self._open and not self._above_high_watermark:
            return None
        first_open = self.first_open_offset
        if not self._above_high_watermark:
            return first_open
        first_finished = min(self._above_high_watermark)
        return first_finished if first_open is None else min(first_open, first_finished)
