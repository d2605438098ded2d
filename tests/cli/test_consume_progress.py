"""The progress that `odradek consume --exit` shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek_cli.common import RecordCounter
from odradek_cli.records.consume import ConsumeProgress
from odradek_client.structs import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class Shown(RecordCounter):
    """A progress bar that remembers the last numbers."""

    def __init__(self) -> None:
        super().__init__("", None)
        self.last: tuple[int, int | None] = (0, None)

    def show(self, completed: int, total: int | None = None) -> None:
        self.last = (completed, total)


def records(*offsets: int) -> list[Any]:
    return [SimpleNamespace(offset=offset) for offset in offsets]


def test_progress_counts_offsets_without_records() -> None:
    shown = Shown()
    reading = ConsumeProgress(lambda record: b"", shown, None, ends={ONE: 10, TWO: 5})
    reading.starts = {ONE: 2, TWO: 5}
    reading.finished.add(TWO)
    reading.show()
    assert shown.last == (0, 8)
    reading.take(ONE, records(2, 3, 5))
    reading.show()
    assert shown.last == (4, 8), "offset 4 is no record, and is behind us all the same"
    # The last offset is that of a marker, which poll() does not return.
    reading.finished.add(ONE)
    reading.show()
    assert shown.last == (8, 8)


def test_records_after_the_end_offset_are_not_counted() -> None:
    shown = Shown()
    reading = ConsumeProgress(lambda record: b"", shown, None, ends={ONE: 3}, starts={ONE: 0})
    reading.take(ONE, records(0, 1, 2, 3, 4))
    reading.show()
    assert shown.last == (3, 3) and reading.count == 3


def test_progress_without_an_end_or_with_a_count_shows_the_record_count() -> None:
    for ends, left in ((None, None), ({ONE: 100}, 5)):
        shown = Shown()
        reading = ConsumeProgress(lambda record: b"", shown, left, ends=ends)
        reading.take(ONE, records(0, 1))
        reading.show()
        assert shown.last == (2, None)
