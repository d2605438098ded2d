"""The planned splits are those of Spark's own `kafka` format (field notes C1), and have the
invariants of every split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyspark_odradek.planning import OffsetRange, Partition, divide, split

P0, P1, P2 = (Partition("t", number) for number in range(3))


def sizes(ranges: list[OffsetRange]) -> list[int]:
    return [each.size for each in ranges]


def test_each_partition_with_records_is_a_range_by_default() -> None:
    ranges = [OffsetRange(P0, 0, 10), OffsetRange(P1, 5, 5), OffsetRange(P2, 7, 8)]
    assert split(ranges) == [ranges[0], ranges[2]]


def test_max_records_divides_a_range_evenly_with_the_rest_last() -> None:
    assert divide(OffsetRange(P0, 3, 13), 3) == [
        OffsetRange(P0, 3, 6),
        OffsetRange(P0, 6, 9),
        OffsetRange(P0, 9, 13),
    ]
    assert sizes(split([OffsetRange(P0, 0, 10)], max_records=4)) == [3, 3, 4]
    assert sizes(split([OffsetRange(P0, 0, 8)], max_records=4)) == [4, 4]


def test_min_partitions_divides_large_ranges_and_keeps_small_ones() -> None:
    ranges = [OffsetRange(P0, 0, 1000), OffsetRange(P1, 0, 5)]
    assert sizes(split(ranges, min_partitions=5)) == [250, 250, 250, 250, 5]


def test_min_partitions_below_the_number_of_ranges_has_no_effect() -> None:
    ranges = [OffsetRange(P0, 0, 1000), OffsetRange(P1, 0, 5)]
    assert split(ranges, min_partitions=2) == ranges


def test_max_records_applies_before_min_partitions() -> None:
    ranges = [OffsetRange(P0, 0, 100)]
    assert sizes(split(ranges, max_records=50, min_partitions=2)) == [50, 50]
    assert sizes(split(ranges, max_records=50, min_partitions=4)) == [25, 25, 25, 25]


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**4)), min_size=1, max_size=6),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(50, 10**4),
)
def test_every_offset_is_in_exactly_one_range(
    shapes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    whole = [
        OffsetRange(Partition("t", number), start, start + size)
        for number, (start, size) in enumerate(shapes)
    ]
    parts = split(whole, min_partitions=min_partitions, max_records=max_records)
    assert all(part.size > 0 for part in parts)
    if max_records is not None:
        assert all(part.size <= max_records for part in parts)
    for each in whole:
        mine = [part for part in parts if part.partition == each.partition]
        assert sum(sizes(mine)) == each.size
        position = each.start
        for part in mine:
            assert part.start == position
            position = part.end
