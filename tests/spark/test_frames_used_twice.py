"""A DataFrame that is loaded once and used by several queries: its filters, and what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from foreign_topics import delete_records
from spark_stream import T0, numbered
from two_formats import OURS, THEIRS, load

pytestmark = pytest.mark.spark

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(params=["false", "true"])
def pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs a test without and with Spark's setting that offers filters to sources in Python."""
    spark.conf.set(FILTER_PUSHDOWN, request.param)
    yield
    spark.conf.unset(FILTER_PUSHDOWN)


@pytest.mark.usefixtures("pushdown")
def test_s20_filters_of_one_query_take_no_rows_from_another(
    spark: SparkSession,
    spark_broker: str,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
) -> None:
    topic = new_topic(2)
    produce(topic, numbered(0, 10) + numbered(1, 10))

    def part(whole: DataFrame, number: int) -> DataFrame:
        return whole.filter(F.col("partition") == number)

    def joined(whole: DataFrame) -> DataFrame:
        return (
            part(whole, 0).alias("a").join(part(whole, 1).alias("b"), F.expr("a.value = b.value"))
        )

    one = load(spark, OURS, spark_broker, subscribe=topic)
    assert part(one, 0).union(part(one, 1)).count() == 20
    assert joined(one).count() == 10
    assert part(one, 0).count() == 10
    assert one.count() == 20


def test_s21_a_second_query_warns_of_what_it_leaves_out(
    spark: SparkSession,
    spark_log: Path,
    spark_broker: str,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
) -> None:
    topic = new_topic(2)
    produce(topic, numbered(0, 2))
    frame = load(spark, OURS, spark_broker, subscribe=topic)
    assert frame.count() == 2
    assert frame.count() == 2
    assert topic not in spark_log.read_text()
    produce(topic, numbered(0, 1, start=2) + numbered(1, 4))
    assert frame.count() == 2
    told = spark_log.read_text()
    assert f"offsets from 2 to 2 of {topic}-0" in told
    assert f"offsets from 0 to 3 of {topic}-1" in told
    assert "load() again" in told
    assert load(spark, OURS, spark_broker, subscribe=topic).count() == 7


def test_s21_records_deleted_after_the_first_query_are_an_error_that_names_load(
    spark: SparkSession,
    spark_broker: str,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
) -> None:
    topic = new_topic()
    produce(topic, numbered(0, 5))
    frame = load(spark, OURS, spark_broker, subscribe=topic)
    assert frame.count() == 5
    delete_records(spark_broker, topic, 0, 3)
    with pytest.raises(Exception, match=r"offsets 0 to 2 .* are gone[^\n]*load\(\) again"):
        frame.count()
    assert load(spark, OURS, spark_broker, subscribe=topic).count() == 2


@dataclass
class Joined:
    """A stream that is joined with a static topic. `found`: the keys of the joined rows, in the
    order of the batches."""

    spark: SparkSession
    bootstrap: str
    produce: Callable[..., None]
    facts: str
    names: str
    checkpoint: Path
    kind: str = OURS
    found: list[str] = field(default_factory=list)

    def write(self, key: str) -> None:
        for topic in (self.names, self.facts):
            self.produce(topic, [(0, key.encode(), key.encode(), T0, [])])

    def names_now(self, **options: str) -> DataFrame:
        return load(self.spark, self.kind, self.bootstrap, subscribe=self.names, **options)

    def keep(self, frame: DataFrame) -> None:
        rows = frame.selectExpr("CAST(key AS STRING) AS key").collect()
        self.found += sorted(row.key for row in rows)

    def start(self, names: DataFrame | None) -> StreamingQuery:
        """Start the stream; `names`: the static side, or None to load it in each batch."""
        facts = self.spark.readStream.format(self.kind).option("subscribe", self.facts)
        facts = facts.option("kafka.bootstrap.servers", self.bootstrap)
        stream = facts.option("startingOffsets", "earliest").load().select("key")
        if names is not None:
            stream = stream.join(names.select("key"), "key")

        def each_batch(frame: DataFrame, batch: int) -> None:
            self.keep(frame if names else frame.join(self.names_now().select("key"), "key"))

        writer = stream.writeStream.foreachBatch(each_batch)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def run(self, names: DataFrame | None, keys: Sequence[str]) -> None:
        """Write each key into both topics, in a batch of its own."""
        self.write(keys[0])
        query = self.start(names)
        try:
            query.processAllAvailable()
            for key in keys[1:]:
                self.write(key)
                query.processAllAvailable()
        finally:
            query.stop()


@pytest.fixture
def joined(
    spark: SparkSession,
    spark_broker: str,
    new_topic: Callable[..., str],
    produce: Callable[..., None],
    tmp_path: Path,
) -> Joined:
    return Joined(spark, spark_broker, produce, new_topic(), new_topic(), tmp_path / "checkpoint")


def test_s21_a_stream_fails_if_a_static_topic_has_grown_since_it_was_loaded(
    joined: Joined,
) -> None:
    with pytest.raises(StreamingQueryException, match=r"offsets from 1 to 1 .*load\(\) it in"):
        joined.run(joined.names_now(), "abc")
    assert joined.found == ["a"]


@pytest.mark.full
def test_s21_a_stream_with_fail_on_data_loss_off_keeps_its_static_rows(joined: Joined) -> None:
    joined.run(joined.names_now(failOnDataLoss="false"), "abc")
    assert joined.found == ["a"]


@pytest.mark.full
def test_s21_a_stream_with_named_ends_keeps_its_static_rows(joined: Joined) -> None:
    joined.produce(joined.names, [(0, b"a", b"a", T0, [])])
    joined.run(joined.names_now(endingOffsets=f'{{"{joined.names}": {{"0": 1}}}}'), "abc")
    assert joined.found == ["a"]


@pytest.mark.full
def test_s21_a_frame_that_is_loaded_in_each_batch_has_the_later_keys(joined: Joined) -> None:
    joined.run(None, "abc")
    assert joined.found == list("abc")


@pytest.mark.full
@pytest.mark.parametrize("pushdown", ["true"], indirect=True)
@pytest.mark.usefixtures("pushdown")
def test_s21_with_pushdown_of_filters_spark_plans_a_joined_read_for_each_batch(
    joined: Joined,
) -> None:
    joined.run(joined.names_now(), "abc")
    assert joined.found == list("abc")


@pytest.mark.kafka
def test_s21_sparks_own_format_plans_a_joined_read_for_each_batch(joined: Joined) -> None:
    joined.kind = THEIRS
    joined.run(joined.names_now(), "abc")
    assert joined.found == list("abc")
