"""Filters that are pushed down never exclude a record that the query needs, and Spark's result is
the same with and without them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_odradek.planning import OffsetRange, Partition
from pyspark_odradek.pushdown import Restriction, is_offered, restriction_of

T0 = 1_700_000_000_000
TIME = datetime.fromtimestamp(T0 / 1000, UTC)
P0, P1, P2 = (Partition("t", number) for number in range(3))
RANGES = [OffsetRange(each, 10, 100) for each in (P0, P1, P2)]


def cut(*filters: Filter, **found: int | None) -> list[OffsetRange]:
    at_time = {Partition("t", int(name[1:])): offset for name, offset in found.items()}
    return restriction_of(filters).cut(RANGES, at_time)


def test_filters_on_partition_and_topic_leave_out_ranges() -> None:
    assert cut(EqualTo(("partition",), 1)) == [OffsetRange(P1, 10, 100)]
    assert cut(In(("partition",), (0, 2, 7))) == [RANGES[0], RANGES[2]]
    assert cut(EqualTo(("topic",), "t")) == RANGES
    assert cut(EqualTo(("topic",), "u")) == []
    assert cut(In(("partition",), (0, 1)), EqualTo(("partition",), 2)) == []


@pytest.mark.parametrize(
    ("each", "first", "end"),
    [
        (EqualTo(("offset",), 50), 50, 51),
        (In(("offset",), (20, 30)), 20, 31),
        (GreaterThan(("offset",), 50), 51, 100),
        (GreaterThanOrEqual(("offset",), 50), 50, 100),
        (LessThan(("offset",), 50), 10, 50),
        (LessThanOrEqual(("offset",), 50), 10, 51),
        (GreaterThan(("offset",), 2), 10, 100),
    ],
)
def test_filters_on_offset_cut_both_ends_of_a_range(each: Filter, first: int, end: int) -> None:
    assert cut(each) == [OffsetRange(part, first, end) for part in (P0, P1, P2)]


def test_a_range_that_a_filter_empties_is_left_out() -> None:
    assert cut(GreaterThan(("offset",), 60), LessThan(("offset",), 40)) == []
    assert cut(GreaterThanOrEqual(("offset",), 100)) == []


def test_filters_on_timestamp_cut_the_start_of_a_range_only() -> None:
    later = GreaterThanOrEqual(("timestamp",), TIME)
    assert restriction_of([later]).time_ms == T0 - 1
    # Partition 2 has no record with that timestamp or a later timestamp.
    assert cut(later, p0=40, p1=5, p2=None) == [OffsetRange(P0, 40, 100), RANGES[1]]
    assert cut(LessThan(("timestamp",), TIME)) == RANGES
    both = [later, GreaterThan(("timestamp",), TIME + timedelta(seconds=1))]
    assert restriction_of(both).time_ms == T0 + 999


@pytest.mark.parametrize("before_ms", [0, 1, 5, 86_400_000])
def test_a_filter_that_records_without_timestamp_satisfy_cuts_no_range(before_ms: int) -> None:
    """A record without a timestamp has the timestamp -1, so it satisfies a filter for the last
    millisecond of 1969. Brokers can look up only times from 0 on."""
    time = datetime.fromtimestamp(0, UTC) - timedelta(milliseconds=before_ms)
    for each in (
        GreaterThanOrEqual(("timestamp",), time),
        GreaterThan(("timestamp",), time),
        EqualTo(("timestamp",), time),
        In(("timestamp",), (time, TIME)),
    ):
        assert restriction_of([each]).time_ms is None


@pytest.mark.parametrize(
    "each",
    [
        Not(EqualTo(("partition",), 1)),
        IsNotNull(("offset",)),
        EqualTo(("value",), b"x"),
        GreaterThan(("partition",), 1),
        GreaterThan(("offset",), "5"),
        EqualTo(("timestamp",), 5),
    ],
)
def test_unsupported_filters_cut_no_range(each: Filter) -> None:
    assert restriction_of([each]).cut(RANGES, {}) == RANGES
    assert restriction_of([]) == Restriction()


def test_pushdown_is_offered_in_sparks_planning_process_only() -> None:
    assert not is_offered()


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


@pytest.mark.full
@pytest.mark.spark
def test_c3_pushed_down_filters_leave_the_result_unchanged(
    spark: SparkSession,
    spark_broker: str,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    request: pytest.FixtureRequest,
) -> None:
    topic = new_topic(2)
    produce(topic, [(n % 2, None, b"%d" % n, T0 + n * 1000, []) for n in range(40)])

    def frame() -> DataFrame:
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", spark_broker)
        return reader.option("subscribe", topic).load()

    conditions = {
        "partition": F.col("partition") == 1,
        "offset": F.col("offset").between(5, 7),
        "timestamp": F.col("timestamp") >= F.lit(TIME + timedelta(seconds=30)),
        "upper": F.col("timestamp") < F.lit(TIME + timedelta(seconds=3)),
    }

    def answers() -> dict[str, tuple[list[Any], int]]:
        found = {}
        for name, condition in conditions.items():
            filtered = frame().where(condition)
            rows = sorted(filtered.select("partition", "offset").collect())
            found[name] = rows, filtered.rdd.getNumPartitions()
        return found

    without = answers()
    request.getfixturevalue("pushing")
    pushed = answers()
    assert {name: rows for name, (rows, _) in pushed.items()} == {
        name: rows for name, (rows, _) in without.items()
    }
    # With the filter pushed down, one of the two partitions was not planned.
    assert without["partition"][1] == 2
    assert pushed["partition"][1] == 1
