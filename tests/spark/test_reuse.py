"""The warnings and errors in tasks of later queries of a DataFrame, without Spark: the calls that
Spark makes, with the local properties that it gives to tasks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark import TaskContext

from foreign_topics import add_partitions
from odradek.broker import SubprocessBroker
from pyspark_odradek import reuse
from pyspark_odradek.batch_reader import BatchReader
from pyspark_odradek.errors import DataLoss
from pyspark_odradek.options import parse_source
from pyspark_odradek.schema import row_schema
from pyspark_odradek.task_properties import BATCH_PROPERTY, EXECUTION_PROPERTY, QUERY_PROPERTY
from spark_stream import T0, numbered
from spark_task import Context

Produce = Callable[..., None]


@dataclass
class Executor:
    """The reads of an executor with one worker. `blocks`: the folder of its blocks."""

    monkeypatch: pytest.MonkeyPatch
    caplog: pytest.LogCaptureFixture
    bootstrap: str
    blocks: Path
    told: list[str] = field(default_factory=list)

    def reader(self, **options: str) -> BatchReader:
        given = {"kafka.bootstrap.servers": self.bootstrap, **options}
        return BatchReader(parse_source(given), row_schema(False))

    def read(self, reader: BatchReader, **properties: str) -> list[tuple[int, int]]:
        """The (partition, offset) of all rows that tasks with these local properties read."""
        context = Context(0, properties)
        self.monkeypatch.setattr(TaskContext, "get", lambda: context)
        self.caplog.clear()
        found = []
        for partition in reader.partitions():
            for batch in reader.read(partition):
                rows = batch.select(["partition", "offset"]).to_pylist()
                found += [(row["partition"], row["offset"]) for row in rows]
        # The client may warn about the connection to a broker that was killed.
        self.told = [
            each.getMessage() for each in self.caplog.records if each.name == "odradek.spark"
        ]
        return sorted(found)

    def query(self, reader: BatchReader, number: int) -> list[tuple[int, int]]:
        return self.read(reader, **{EXECUTION_PROPERTY: str(number)})

    def batch(self, reader: BatchReader, number: int) -> list[tuple[int, int]]:
        """Read in a batch of a stream."""
        return self.read(
            reader,
            **{QUERY_PROPERTY: "q", BATCH_PROPERTY: str(number), EXECUTION_PROPERTY: str(number)},
        )

    def start_another_worker(self) -> None:
        reuse._uses.clear()


@pytest.fixture
def executor(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    spark_broker: str,
    tmp_path: Path,
) -> Executor:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/none")
    monkeypatch.setattr(reuse, "_uses", type(reuse._uses)())
    return Executor(monkeypatch, caplog, spark_broker, tmp_path)


@pytest.fixture
def topic(new_topic: Callable[..., str], produce: Produce) -> str:
    name = new_topic()
    produce(name, numbered(0, 2))
    return name


TWO = [(0, 0), (0, 1)]


def test_s21_only_later_queries_are_told_and_only_of_new_records(
    executor: Executor, topic: str, produce: Produce
) -> None:
    reader = executor.reader(subscribe=topic)
    assert executor.query(reader, 1) == TWO
    assert executor.query(reader, 2) == TWO
    assert executor.told == []
    produce(topic, numbered(0, 2, start=2))
    # A task of the first query is run again.
    assert executor.query(reader, 1) == TWO
    assert executor.told == []
    assert executor.query(reader, 3) == TWO
    (told,) = executor.told
    assert f"leaves out what was written since: offsets from 2 to 3 of {topic}-0." in told
    assert "call load() again" in told
    # Nothing is said twice.
    assert executor.query(reader, 4) == TWO
    assert executor.told == []
    assert len(executor.query(executor.reader(subscribe=topic), 4)) == 4
    assert executor.told == []


def test_s21_every_attempt_in_a_later_batch_of_a_stream_fails(
    executor: Executor, topic: str, produce: Produce
) -> None:
    strict = executor.reader(subscribe=topic)
    lenient = executor.reader(subscribe=topic, failOnDataLoss="false")
    assert executor.batch(strict, 1) == executor.batch(lenient, 1) == TWO
    produce(topic, numbered(0, 1, start=2))
    assert executor.batch(strict, 1) == TWO
    for _ in range(2):
        with pytest.raises(DataLoss, match=r"offsets from 2 to 2 .*load\(\) it in foreachBatch"):
            executor.batch(strict, 2)
    assert executor.batch(lenient, 2) == TWO
    assert len(executor.told) == 1


def test_s21_new_partitions_and_topics_are_named(
    executor: Executor, topic: str, produce: Produce, new_topic: Callable[..., str]
) -> None:
    reader = executor.reader(subscribePattern=f"^{topic}$|^later-")
    executor.query(reader, 1)
    add_partitions(executor.bootstrap, topic, 3)
    later = new_topic(prefix="later")
    produce(topic, numbered(2, 1))
    produce(later, numbered(0, 1))
    executor.query(reader, 2)
    (told,) = executor.told
    assert f"offsets from 0 to 0 of {later}-0, offsets from 0 to 0 of {topic}-2." in told


def test_s21_a_topic_that_was_created_again_is_named(
    executor: Executor, new_topic: Callable[..., str], recreate_topic: Callable[[str], None]
) -> None:
    empty = new_topic()
    reader = executor.reader(subscribe=empty)
    # Spark adds a partition to an empty plan.
    executor.monkeypatch.setattr(reader, "_partitions", [None])
    assert executor.query(reader, 1) == []
    recreate_topic(empty)
    assert executor.query(reader, 2) == []
    (told,) = executor.told
    assert f"topic '{empty}', which was created again" in told


@pytest.mark.parametrize(
    "end", [{"endingOffsets": '{"TOPIC": {"0": 2}}'}, {"endingTimestamp": str(T0 + 1_500)}], ids=str
)
def test_s21_nothing_is_left_out_after_an_end_that_the_options_name(
    executor: Executor, topic: str, produce: Produce, end: dict[str, str]
) -> None:
    produce(topic, numbered(0, 1, start=2))
    named = {name: value.replace("TOPIC", topic) for name, value in end.items()}
    reader = executor.reader(subscribe=topic, **named)
    assert executor.batch(reader, 1) == TWO
    produce(topic, numbered(0, 2, start=3))
    assert executor.batch(reader, 2) == TWO
    assert executor.told == []


def test_s21_the_workers_of_an_executor_share_what_the_first_query_was(
    executor: Executor, topic: str, produce: Produce
) -> None:
    reader = executor.reader(subscribe=topic)
    executor.query(reader, 1)
    produce(topic, numbered(0, 1, start=2))
    executor.start_another_worker()
    executor.query(reader, 2)
    assert len(executor.told) == 1


def test_s21_without_a_folder_of_blocks_a_worker_has_its_own_memory(
    executor: Executor, topic: str, produce: Produce
) -> None:
    executor.monkeypatch.setenv("SPARK_LOCAL_DIRS", str(executor.blocks / "missing"))
    reader = executor.reader(subscribe=topic)
    executor.query(reader, 1)
    produce(topic, numbered(0, 1, start=2))
    executor.query(reader, 2)
    assert len(executor.told) == 1


def test_s21_the_memory_of_plans_is_limited(
    executor: Executor, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    monkeypatch.setattr(reuse, "_PLANS_MAX", 3)
    for _ in range(5):
        executor.query(executor.reader(subscribe=topic), 1)
    assert len(reuse._uses) == 3
    assert len(os.listdir(executor.blocks / "odradek-plans")) == 3


def test_s21_a_query_succeeds_if_what_it_leaves_out_cannot_be_found(
    odradek_broker: SubprocessBroker, executor: Executor, unique_topic: str
) -> None:
    executor.bootstrap = odradek_broker.bootstrap
    with pytest.raises(Exception, match="there is no topic"):
        executor.reader(subscribe=unique_topic)
    reader = executor.reader(subscribePattern=f"^{unique_topic}")
    executor.monkeypatch.setattr(reader, "_partitions", [None])
    executor.query(reader, 1)
    odradek_broker.kill()
    executor.monkeypatch.setattr(reuse, "_CHECK_TIMEOUT_S", 0.1)
    assert executor.query(reader, 2) == []
    assert executor.told == []
