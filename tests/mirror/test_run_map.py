"""The run map, compared with a dictionary of offsets."""

from __future__ import annotations

import contextlib
import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_client.structs import TopicPartition
from odradek_mirror.batches import ConsecutiveOffsets, spans_of
from odradek_mirror.offset_map import (
    RUNS_PER_RECORD,
    MapDamaged,
    MapEntry,
    MappedRun,
    NotCopied,
    PartitionMap,
    Position,
    decode_entry,
    decode_key,
    encode_key,
    encode_value,
    joined,
    runs_of,
)

TP = TopicPartition("orders", 3)
SOURCE_ID, TARGET_ID = UUID(int=1), UUID(int=2)


def a_map(start: int = 0) -> PartitionMap:
    return PartitionMap(start, SOURCE_ID, TARGET_ID)


def copy(found: PartitionMap, runs: list[MappedRun], next_offset: int) -> list[MapEntry]:
    entries = found.entries_after(TP, runs, next_offset)
    for entry in entries:
        found.add(entry)
    return entries


class Model:
    """A source log and a target log, as a dictionary of offsets."""

    def __init__(self, start: int) -> None:
        self.next = start
        self.target_end = 0
        self.target_next = 0
        self.targets: dict[int, int] = {}

    def transaction(self, gaps: list[tuple[int, int]], behind: int) -> tuple[list[MappedRun], int]:
        """Copy a transaction. Each of `gaps` is a pair: the number of offsets without a record, and
        the number of records after them.

        After the last record, `behind` further offsets of the source have no record. Returns the
        runs and the next offset of the source.
        """
        runs = []
        for gap, count in gaps:
            self.next += gap
            runs.append(MappedRun(self.next, self.target_next, count))
            for _ in range(count):
                self.targets[self.next] = self.target_next
                self.next += 1
                self.target_next += 1
            self.target_end = self.target_next
        self.next += behind
        self.target_next += 1  # the marker
        return runs, self.next

    def translate(self, offset: int) -> int:
        behind = [each for each in self.targets if each >= offset]
        return self.targets[min(behind)] if behind else self.target_end


STRETCHES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=4)
TRANSACTIONS = st.lists(st.tuples(STRETCHES, st.integers(0, 3)), max_size=8)


@given(start=st.integers(0, 50), transactions=TRANSACTIONS)
def test_i31_every_offset_is_translated_as_by_a_dictionary(
    start: int, transactions: list[tuple[list[tuple[int, int]], int]]
) -> None:
    model, found = Model(start), a_map(start)
    stored: dict[bytes, bytes] = {}
    for gaps, behind in transactions:
        for entry in copy(found, *model.transaction(gaps, behind)):
            stored[encode_key(TP, entry.start)] = encode_value(entry)
    again = a_map(start)
    for key, value in stored.items():
        again.add(decode_entry(key, value))
    for each in (found, again):
        assert each.position.next == model.next
        assert each.record_count == len(model.targets)
        for offset in range(model.next + 1):
            assert each.translate(offset) == model.translate(offset), offset
        with pytest.raises(NotCopied, match=str(model.next)):
            each.translate(model.next + 1)
    assert list(again.runs()) == list(found.runs())
    assert again.position == found.position


@given(
    offsets=st.sets(st.integers(0, 60), min_size=1, max_size=40),
    cuts=st.sets(st.integers(1, 39), max_size=5),
    gap=st.integers(0, 3),
)
def test_the_runs_of_a_split_batch_map_every_offset(
    offsets: set[int], cuts: set[int], gap: int
) -> None:
    sources = sorted(offsets)
    starts = [0, *sorted(cut for cut in cuts if cut < len(sources))]
    parts = [(start, 100 + start + number * gap) for number, start in enumerate(starts)]
    expected = {}
    for index, source in enumerate(sources):
        start, base = max(part for part in parts if part[0] <= index)
        expected[source] = base + index - start
    runs = runs_of(spans_of(sources), parts)
    assert {
        run.source + at: run.target + at for run in runs for at in range(run.length)
    } == expected
    assert runs == joined(runs), "as few as possible"


def test_spans_are_as_long_as_possible() -> None:
    assert list(spans_of([])) == []
    assert list(spans_of([4, 5, 6, 8, 10, 11])) == [
        ConsecutiveOffsets(4, 3),
        ConsecutiveOffsets(8, 1),
        ConsecutiveOffsets(10, 2),
    ]


def test_i36_a_map_record_takes_more_runs_until_it_is_full() -> None:
    found = a_map()
    keys = set()
    for number in range(RUNS_PER_RECORD + 1):
        (entry,) = copy(found, [MappedRun(number * 2, number * 2, 1)], number * 2 + 2)
        keys.add(entry.start)
    assert keys == {0, RUNS_PER_RECORD * 2}
    assert found.run_count == RUNS_PER_RECORD + 1


def test_a_transaction_with_many_runs_has_several_map_records() -> None:
    found = a_map()
    count = RUNS_PER_RECORD * 2 + 5
    entries = copy(found, [MappedRun(number * 2, number, 1) for number in range(count)], count * 2)
    assert [len(entry.runs) for entry in entries] == [RUNS_PER_RECORD, RUNS_PER_RECORD, 5]
    assert [entry.start for entry in entries[1:]] == [e.position.next for e in entries[:-1]]
    assert found.translate(count * 2 - 2) == count - 1
    assert found.translate(count * 2) == count


def test_a_transaction_without_records_moves_the_position() -> None:
    found = a_map(7)
    (entry,) = copy(found, [], 9)
    assert (entry.start, entry.runs, entry.position.next) == (7, [], 9)
    assert found.translate(9) == 0
    copy(found, [MappedRun(9, 40, 2)], 11)
    assert (found.translate(9), found.translate(11)) == (40, 42)
    with pytest.raises(ValueError, match="back from 11 to 10"):
        found.entries_after(TP, [], 10)


def test_i36_map_records_below_the_start_of_the_source_are_forgotten() -> None:
    found = a_map()
    for number in range(RUNS_PER_RECORD * 3):
        copy(found, [MappedRun(number * 2, number * 3, 1)], number * 2 + 2)
    length = RUNS_PER_RECORD * 2
    assert found.starts_below(length - 1) == []
    assert found.starts_below(length) == [0]
    found.forget([0])
    assert found.starts_below(length * 5) == [length]
    found.forget([length])
    assert found.start == length * 2
    number = RUNS_PER_RECORD * 2 + 7
    assert found.translate(number * 2) == number * 3
    assert found.translate(0) == RUNS_PER_RECORD * 2 * 3, "the first that is known"
    copy(found, [MappedRun(length * 3, 1000, 1)], length * 3 + 1)
    assert found.translate(length * 3) == 1000


def test_a_map_record_that_does_not_continue_the_last_one_is_refused() -> None:
    found = a_map()
    copy(found, [MappedRun(0, 0, 5)], 5)
    position = Position(12, 9, SOURCE_ID, TARGET_ID)
    with pytest.raises(MapDamaged, match=r"orders-3 from offset 7 does not continue.*ends at 5"):
        found.add(MapEntry(TP, 7, [MappedRun(7, 6, 3)], position))


GOOD = {
    "runs": [[0, 0, 4], [6, 5, 3]],
    "next": 9,
    "target_end": 8,
    "source_topic_id": str(SOURCE_ID),
    "target_topic_id": str(TARGET_ID),
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"runs": [[0, 0]]}, "is no run map"),
        ({"runs": None}, "is no run map"),
        ({"runs": [[0, 0, "4"]]}, "numbers that are no offsets"),
        ({"runs": [[6, 5, 3], [0, 0, 4]]}, "do not rise"),
        ({"runs": [[0, 0, 0]]}, "do not rise"),
        ({"runs": [[0, 0, 4], [3, 4, 1]]}, "do not rise"),
        ({"next": 8}, "beyond its end"),
        ({"next": -1}, "numbers that are no offsets"),
        ({"next": True}, "numbers that are no offsets"),
        ({"target_end": 9}, "beyond its end"),
        ({"target_end": None}, "no end in the target"),
        ({"source_topic_id": "abc"}, "is no run map"),
        ({"target_topic_id": 5}, "is no run map"),
    ],
)
def test_damaged_map_records_are_refused_with_the_reason(
    change: dict[str, object], reason: str
) -> None:
    decode_entry(encode_key(TP, 0), json.dumps(GOOD).encode())
    with pytest.raises(MapDamaged, match=f"orders-3 from offset 0 .*{reason}"):
        decode_entry(encode_key(TP, 0), json.dumps(GOOD | change).encode())


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"x",
        b"[]",
        b"{}",
        b'{"topic":"a","partition":-1,"from":0}',
        b"\xff",
        b"5" * 9999,
        b"[" * 99999,
    ],
)
def test_foreign_map_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(MapDamaged):
        decode_key(key)


@given(st.binary(max_size=40))
def test_any_map_value_is_decoded_or_refused(value: bytes) -> None:
    with contextlib.suppress(MapDamaged):
        decode_entry(encode_key(TP, 0), value)
