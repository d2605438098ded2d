"""The assertion of odradek.testing passes for exactly-once writes, and fails for other writes."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from odradek_testkit.spark_testing import INTERRUPTIONS, ExactlyOnceCheck, interruptions, verdict

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

AT_LEAST_ONCE = {"semantics": "at_least_once"}


@pytest.fixture
def odradek_spark(spark: SparkSession) -> SparkSession:
    """Replace the plugin's fixture by the session of these tests, as users may do."""
    return spark


def doubled(frame: DataFrame) -> DataFrame:
    """Double every number, and use its last digit as the key; odd numbers are left out."""
    numbers = frame.selectExpr("CAST(CAST(value AS STRING) AS INT) AS n").where("n % 2 = 0")
    return numbers.selectExpr("CAST(n % 10 AS STRING) AS key", "CAST(2 * n AS STRING) AS value")


def distinct(frame: DataFrame) -> DataFrame:
    """Keep only the first occurrence of each value, with a stateful operation."""
    return frame.select("value").dropDuplicates(["value"])


def numbers(count: int) -> list[str]:
    return [str(n) for n in range(count)]


@pytest.mark.full
def test_an_exactly_once_query_passes_with_every_interruption(
    assert_exactly_once: ExactlyOnceCheck,
) -> None:
    report = assert_exactly_once(doubled, numbers(120), seed=1)
    assert report.rows == 60
    assert {each.split()[0] for each in report.interruptions} == set(INTERRUPTIONS)
    assert report.restarts >= len(INTERRUPTIONS)
    assert report.batches > len(INTERRUPTIONS)


@pytest.mark.parametrize("kind", ["batch", "commit"])
@pytest.mark.full
def test_at_least_once_fails_if_interrupted_between_write_and_commit(
    assert_exactly_once: ExactlyOnceCheck, kind: str
) -> None:
    with pytest.raises(AssertionError, match=r"\d+ repeated:\n.*2 times instead of 1") as caught:
        assert_exactly_once(doubled, numbers(40), interruptions=[kind], write_options=AT_LEAST_ONCE)
    assert f"interrupted by: {kind}" in str(caught.value)


@pytest.mark.full
def test_a_query_with_state_is_compared_with_the_expected_rows(
    assert_exactly_once: ExactlyOnceCheck,
) -> None:
    records = [str(n % 15) for n in range(40)]
    report = assert_exactly_once(distinct, records, expected=numbers(15), interruptions=["commit"])
    assert report.rows == 15
    with pytest.raises(ValueError, match="keeps state"):
        assert_exactly_once(distinct, numbers(10), interruptions=[])


@pytest.mark.full
def test_missing_and_unexpected_rows_are_named(assert_exactly_once: ExactlyOnceCheck) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_exactly_once(
            lambda frame: frame.select("value"), ["a", "b"], expected=["a", "c"], interruptions=[]
        )
    assert "1 missing:\n  b'c' (0 times instead of 1)" in str(caught.value)
    assert "1 there and not expected:\n  b'b' (1 times instead of 0)" in str(caught.value)


@pytest.mark.full
def test_a_failure_of_the_query_itself_is_raised_unchanged(
    assert_exactly_once: ExactlyOnceCheck,
) -> None:
    def fragile(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("CAST(raise_error('a bug of the query') AS STRING) AS value")

    with pytest.raises(Exception, match="a bug of the query"):
        assert_exactly_once(fragile, numbers(10), interruptions=["stop"])


def test_invalid_arguments_of_the_check_are_refused(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    class Elsewhere:
        bootstrap = "127.0.0.1:1"

    check = ExactlyOnceCheck(spark, Elsewhere(), tmp_path_factory.mktemp("check"))
    with pytest.raises(ValueError, match="cannot be killed"):
        check(doubled, numbers(10), interruptions=["broker"])
    with pytest.raises(ValueError, match="no interruption flood; there are stop, "):
        check(doubled, numbers(10), interruptions=["flood"])
    with pytest.raises(ValueError, match="9 records are too few for 4 interruptions"):
        check(doubled, numbers(9))
    with pytest.raises(TypeError, match="7 is no key or value"):
        check(doubled, [7])
    with pytest.raises(ValueError, match="mixes"):
        check(doubled, ["a"], expected=["a", ("k", "a")])


# --- Without Spark --------------------------------------------------------------------------------


def test_a_seed_decides_the_order_and_times_of_interruptions() -> None:
    kinds = list(INTERRUPTIONS)
    plans = {seed: interruptions.plan(seed, kinds) for seed in range(50)}
    assert all(interruptions.plan(seed, kinds) == plans[seed] for seed in plans)
    assert all({each.kind for each in planned} == set(kinds) for planned in plans.values())
    assert len({tuple(each.kind for each in planned) for planned in plans.values()}) > 20
    stops = {
        (each.batch, each.after_others) for p in plans.values() for each in p if each.kind == "stop"
    }
    assert stops == {(0, False), (1, False), (0, True)}


def test_differences_count_repeated_rows_and_are_limited() -> None:
    rows = verdict.Rows({(b"%03d" % n,): 1 for n in range(30)})
    assert verdict.differences(rows, rows) == []
    told = verdict.differences(verdict.Rows(), rows)
    assert told[0] == "30 missing:"
    assert told[-1] == "  and 20 more"
    twice = verdict.Rows({(b"k", b"v"): 3})
    once = verdict.Rows({(b"k", b"v"): 1})
    assert verdict.differences(twice, once) == [
        "2 repeated:",
        "  (b'k', b'v') (3 times instead of 1)",
    ]
    assert verdict.differences(once, twice)[0] == "2 missing:"
