"""The comparison of a mirror with its source: equal records, and the differences that it names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek_mirror.comparison import (
    ComparedBatch,
    Difference,
    MappedOffsets,
    PartitionComparison,
    Places,
    SameOffsets,
    Side,
)
from odradek_mirror.offset_map import MappedRun
from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import iter_batches, stamp
from odradek_protocol.records.builder import BatchBuilder

#: Key, value, headers and timestamp of a record.
Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]

TEN: list[Content] = [(b"k%d" % n, b"v%d" % n, (("h", b"%d" % n),), 1000 + n) for n in range(10)]


def batch(
    base: int, rows: Sequence[Content], codec: Codec = Codec.NONE, epoch: int = 0
) -> ComparedBatch:
    builder = BatchBuilder(codec)
    for key, value, headers, timestamp_ms in rows:
        builder.append(timestamp_ms, key, value, headers)
    octets = builder.build()
    stamp(octets, 0, base, epoch)
    ((_, header),) = iter_batches(octets)
    return ComparedBatch(header, memoryview(octets))


def batches(rows: Sequence[Content], size: int = 3, base: int = 0) -> list[ComparedBatch]:
    return [batch(base + at, rows[at : at + size]) for at in range(0, len(rows), size)]


def compared(
    source: list[ComparedBatch],
    target: list[ComparedBatch],
    places: Places | None = None,
    *,
    ends: tuple[int, int] = (10, 10),
    starts: tuple[int, int] = (0, 0),
    compacted: bool = False,
) -> PartitionComparison:
    """Compare both sides. Whenever the comparison requests batches of a side, it gets one batch."""
    made = PartitionComparison(
        places or SameOffsets(*ends),
        range(starts[0], ends[0]),
        range(starts[1], ends[1]),
        same_offsets=places is None,
        compacted=compacted,
    )
    left = [list(source), list(target)]
    while not made.done:
        wanted = [side for side in Side if made.wants(side)]
        assert wanted
        for side in wanted:
            if left[side]:
                made.add(side, [left[side].pop(0)])
            else:
                made.end(side)
    assert left == [[], []]
    return made


def test_identical_batches_have_no_differences() -> None:
    made = compared(batches(TEN), batches(TEN))
    assert (made.differences, made.records) == ([], [10, 10])


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ((b"other", b"v4", (("h", b"4"),), 1004), "key"),
        ((b"k4", None, (("h", b"4"),), 1004), "value"),
        ((b"k4", b"v4", (("h", b"4"), ("h", b"4")), 1004), "headers"),
        ((b"k4", b"v4", (("h", b"4"),), 1005), "timestamp"),
        ((b"k4", b"", (), 1004), "value, headers"),
    ],
)
def test_a_changed_record_is_named_with_its_offsets_and_differing_fields(
    changed: Content, kind: str
) -> None:
    other = [*TEN[:4], changed, *TEN[5:]]
    made = compared(batches(TEN), batches(other))
    assert made.differences == [Difference(kind, 1, 4, 4)]
    # The difference is found although the batches of the two sides have different sizes.
    places = MappedOffsets([MappedRun(0, 0, 10)])
    made = compared(batches(TEN), batches(other, 4), places)
    assert made.differences == [Difference(kind, 1, 4, 4)]
    assert made.records == [10, 10]


def test_exchanged_records_differ_at_both_offsets() -> None:
    made = compared(batches(TEN), batches([*TEN[:6], TEN[7], TEN[6], *TEN[8:]]))
    assert made.differences == [Difference("key, value, headers, timestamp", 2, 6, 6)]


def test_missing_records_are_found_in_the_middle_and_at_the_end() -> None:
    made = compared(batches(TEN), [batch(0, TEN[:3]), batch(6, TEN[6:8])], ends=(10, 8))
    (found,) = made.differences
    assert found == Difference("missing", 5, 3, 3)
    assert str(found) == "missing: source offset 3, target offset 3 and 4 more"
    assert made.records == [10, 5]


def test_records_after_the_end_of_the_source_are_extra() -> None:
    made = compared(batches(TEN[:9]), batches(TEN), ends=(9, 10))
    assert made.differences == [Difference("extra", 1, None, 9)]


def test_only_offsets_of_both_sides_are_compared() -> None:
    other = [(b"other", None, (), 1), *TEN[1:]]
    assert compared(batches(TEN), batches(other, 4), starts=(2, 2)).records == [8, 8]
    made = compared(batches(TEN), batches(other), starts=(1, 1))
    # The range begins within a batch. The batches differ because their first records differ.
    assert [each.kind.partition(" ")[0] for each in made.differences] == ["batch"]


def test_equal_records_in_other_batches_differ_with_the_same_offsets_only() -> None:
    for other in (batches(TEN, 4), [batch(0, TEN, Codec.GZIP)], [batch(0, TEN, epoch=3)]):
        places = MappedOffsets([MappedRun(0, 0, 10)])
        assert compared(batches(TEN), other, places).differences == []
    (found,) = compared([batch(0, TEN)], [batch(0, TEN, epoch=3)]).differences
    assert found == Difference("batch (leader epoch)", 1, 0, 0)
    (found,) = compared(batches(TEN), batches(TEN, 4)).differences
    assert found.kind.startswith("batch (size bytes")


def test_compacted_topics_may_lack_records_on_either_side_but_not_differ() -> None:
    first = [batch(0, TEN[:1]), batch(2, TEN[2:5]), batch(5, TEN[5:])]
    second = [batch(1, TEN[1:3]), batch(5, TEN[5:])]
    made = compared(first, second, compacted=True)
    assert (made.differences, made.compacted_records) == ([], 4)
    second[1] = batch(5, [*TEN[5:9], TEN[0]])
    made = compared(first, second, compacted=True)
    assert made.differences == [Difference("key, value, headers, timestamp", 1, 9, 9)]
    made = compared(first, [batch(0, TEN[:1])], ends=(10, 1), compacted=True)
    assert made.differences == [Difference("missing", 8, 2, None)]


def test_records_are_compared_at_the_offsets_of_the_offset_map() -> None:
    runs = [MappedRun(0, 0, 4), MappedRun(6, 5, 4)]
    source = [batch(0, TEN[:4]), batch(6, TEN[6:])]
    target = [batch(0, TEN[:4]), batch(5, TEN[6:])]
    places = MappedOffsets(runs)
    made = compared(source, target, places)
    assert (made.differences, made.records) == ([], [8, 8])
    lost = compared(source, [target[0], batch(5, TEN[6:9])], places)
    assert lost.differences == [Difference("missing", 1, 9, 8)]
    foreign = compared(source, [target[0], batch(4, TEN[4:5]), target[1]], places)
    assert foreign.differences == [Difference("extra", 1, None, 4)]
    behind = compared([*source, batch(10, TEN[:2])], target, places, ends=(12, 10))
    assert behind.differences == [Difference("missing", 2, 10, None)]
    shifted = compared(source, [target[0], batch(5, TEN[5:9])], places)
    assert shifted.differences == [Difference("key, value, headers, timestamp", 4, 6, 5)]


def test_deleted_records_are_no_difference_with_an_offset_map() -> None:
    places = MappedOffsets([MappedRun(0, 0, 10)])
    made = compared(batches(TEN), batches(TEN[5:], base=5), places, starts=(0, 5))
    assert (made.differences, made.deleted_at_target) == ([], 5)
    made = compared(batches(TEN[5:], base=5), batches(TEN), places, starts=(5, 0))
    assert (made.differences, made.records) == ([], [5, 5])


def test_records_copied_after_the_ends_were_listed_are_not_compared() -> None:
    places = MappedOffsets([MappedRun(0, 0, 10)])
    made = compared(batches(TEN), batches(TEN[:6]), places, ends=(10, 6))
    assert (made.differences, made.records) == ([], [6, 6])
