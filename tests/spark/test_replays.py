"""Replays of decided batches, repeated jobs, and other writes that look like replays (S-07,
S-16)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import budget
from odradek.broker import SubprocessBroker
from pyspark_odradek.errors import SinkError, StaleBatch
from pyspark_odradek.exactly_once import ledger
from pyspark_odradek.exactly_once.identity import Writer
from pyspark_odradek.options import parse_sink
from pyspark_odradek.transactional_writer import TransactionalBatchWriter
from sink_query import Job, Query, made, visible

WITH_TOPICS = StructType([StructField("value", StringType()), StructField("topic", StringType())])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"log.durability": "page-cache", "log.retention.ms": "-1"}
    folder = tmp_path_factory.mktemp("broker")
    with SubprocessBroker(data_dir=folder, settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, address: str, unique_topic: str) -> Query:
    return made(monkeypatch, address, unique_topic)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch, query: Query) -> str:
    """The name of a second topic."""
    return made(monkeypatch, query.address, f"{query.topic}-b").topic


class JobWithTopics(Job):
    """A batch write whose rows name their topics. Each value is given as "topic value"."""

    def writer(self) -> Any:
        if not hasattr(self, "_writer"):
            self._writer = TransactionalBatchWriter(parse_sink(self.options), WITH_TOPICS)
        return self._writer

    def rows(self, values: tuple[str, ...]) -> Any:
        pairs = [value.split(" ") for value in values]
        columns = [pa.array([value for _, value in pairs], pa.string())]
        columns.append(pa.array([topic or None for topic, _ in pairs], pa.string()))
        return pa.record_batch(columns, names=["value", "topic"])


def with_topics(query: Query, **options: str) -> JobWithTopics:
    job = JobWithTopics(query._monkeypatch, query.address, "", commitId=query.query, **options)
    del job.options["topic"]
    return job


def forget_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the connector write decisions without target topics, as older connectors did."""
    encode = ledger.encode

    def earlier(record: ledger.LedgerRecord) -> bytes:
        found = json.loads(encode(record))
        found.pop("targets", None)
        return json.dumps(found).encode()

    monkeypatch.setattr(ledger, "encode", earlier)


@pytest.mark.full
def test_s07_an_outdated_checkpoint_is_refused(query: Query) -> None:
    for batch in range(3):
        query.commit(batch, query.tasks(batch, [f"{batch}"]))
    copy = query.restarted()
    with pytest.raises(StaleBatch, match="batch 2 was written already"):
        copy.task(1, 0, "x")
    with pytest.raises(StaleBatch, match="written with 1 rows, and now has 2"):
        copy.commit(2, copy.tasks(2, ["2", "3"]))
    lenient = query.restarted()
    lenient.options = {**query.options, "failOnDataLoss": "false"}
    lenient.commit(2, lenient.tasks(2, ["2", "3"]))
    assert query.visible(3) == ["0", "1", "2"]


@pytest.mark.full
def test_a_commit_id_makes_a_repeated_job_write_once(
    monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    for version in (0, 0, 1, 1):
        options = {"commitId": query.query, "commitVersion": str(version)}
        job = Job(monkeypatch, query.address, query.topic, **options)
        job.commit(0, job.tasks(0, [f"{version}a"], [f"{version}b"]))
    assert query.visible(4) == ["0a", "0b", "1a", "1b"]
    options = {"commitId": query.query, "commitVersion": "0"}
    stale = Job(monkeypatch, query.address, query.topic, **options)
    with pytest.raises(StaleBatch):
        stale.task(0, 0, "late")


@pytest.mark.full
def test_s16_a_commit_id_for_two_topics_writes_to_both(
    monkeypatch: pytest.MonkeyPatch, query: Query
) -> None:
    other = f"{query.topic}-b"
    made(monkeypatch, query.address, other)
    for _ in range(2):
        for topic in (query.topic, other):
            job = Job(monkeypatch, query.address, topic, commitId=query.query)
            job.commit(0, job.tasks(0, ["a"], ["b"]))
    assert query.visible(2) == visible(query.address, other, 2) == ["a", "b"]


@pytest.mark.full
def test_s16_a_decision_of_an_older_connector_applies_to_every_topic(
    monkeypatch: pytest.MonkeyPatch, query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    """The older connector decided version 3, the present connector decides version 4. A decision of
    the present connector applies only to its topic."""
    with monkeypatch.context() as patch:
        forget_targets(patch)
        earlier = query.restarted()
        earlier.query = f"commit:{query.query}"
        earlier.decide(3, earlier.tasks(3, ["3"]))
    for version in ("3", "4"):
        options = {"commitId": query.query, "commitVersion": version}
        job = Job(monkeypatch, query.address, query.topic, **options)
        job.commit(0, job.tasks(0, [version]))
    assert query.visible(2) == ["3", "4"]
    assert "commitVersion 3 was decided without a topic" in caplog.text
    options = {"commitId": query.query, "commitVersion": "3"}
    job = Job(monkeypatch, query.address, query.topic, **options)
    with pytest.raises(StaleBatch, match="and now has 2"):
        job.commit(0, job.tasks(0, ["3"], ["x"]))


@pytest.mark.full
@pytest.mark.parametrize("rows_name_topics_first", budget.of_which([True, False], [True]))
def test_s16_writes_by_column_topic_and_by_option_topic_are_separate(
    query: Query, other: str, rows_name_topics_first: bool
) -> None:
    for _ in range(2):
        named = with_topics(query)
        job = Job(query._monkeypatch, query.address, other, commitId=query.query)
        steps: list[tuple[Job, str]] = [(named, f"{query.topic} a"), (job, "b")]
        for each, row in steps if rows_name_topics_first else reversed(steps):
            each.commit(0, each.tasks(0, [row]))
    assert query.visible(1) == ["a"]
    assert visible(query.address, other, 1) == ["b"]


@pytest.mark.parametrize(
    "there", budget.of_which(["{b} x|{b} y", "{a} x|{b} y", "{b} x|{b} y|"], ["{a} x|{b} y"])
)
def test_s07_a_replay_with_rows_for_other_topics_is_refused(
    query: Query, other: str, caplog: pytest.LogCaptureFixture, there: str
) -> None:
    first = with_topics(query)
    first.commit(0, first.tasks(0, [f"{query.topic} x", f"{query.topic} y"]))
    parts = there.format(a=query.topic, b=other).split("|")
    rows = [[part] if part else [] for part in parts]
    second = with_topics(query)
    with pytest.raises(StaleBatch, match="2 rows for other topics than the 2 rows that it has"):
        second.commit(0, second.tasks(0, *rows))
    assert query.visible(2) == ["x", "y"]
    lenient = with_topics(query, failOnDataLoss="false")
    lenient.commit(0, lenient.tasks(0, *rows))
    assert "for other topics" in caplog.text
    assert query.visible(2) == ["x", "y"]
    assert visible(query.address, other, 0) == []


@pytest.mark.full
def test_s07_a_replay_may_distribute_its_rows_to_other_tasks(query: Query, other: str) -> None:
    first = with_topics(query)
    first.commit(0, first.tasks(0, [f"{query.topic} x", f"{other} y"], [f"{other} z"], []))
    again = with_topics(query)
    messages = again.tasks(0, [f"{other} z"], [], [f"{other} y"], [f"{query.topic} x"])
    assert [each.outcome.participant for each in messages] == [None] * 4
    again.commit(0, messages)
    assert query.visible(1) == ["x"]
    assert visible(query.address, other, 2) == ["y", "z"]


def test_s07_a_row_without_a_topic_is_refused_by_a_replay_too(query: Query) -> None:
    first = with_topics(query)
    first.commit(0, first.tasks(0, [f"{query.topic} x"]))
    with pytest.raises(SinkError, match="a row has no topic"):
        with_topics(query).task(0, 0, " x")


@pytest.mark.full
def test_s07_a_stream_restarted_with_another_topic_fails_and_loses_no_batch(
    query: Query, other: str
) -> None:
    """The batch was decided for the old topic, and Spark has not recorded the commit of the
    batch."""
    query.commit(0, query.tasks(0, ["a"]))
    moved = query.restarted()
    moved.options = {**query.options, "topic": other}
    with pytest.raises(StaleBatch, match="1 rows for other topics than the 1 rows that it has"):
        moved.commit(0, moved.tasks(0, ["a"]))
    again = moved.restarted()
    again.options = {**moved.options, "failOnDataLoss": "false"}
    again.commit(0, again.tasks(0, ["a"]))
    again.commit(1, again.tasks(1, ["b"]))
    assert query.visible(1) == ["a"]
    assert visible(query.address, other, 1) == ["b"]


def test_s07_a_replay_of_an_older_connectors_batch_is_compared_by_row_count(
    query: Query, other: str
) -> None:
    with query._monkeypatch.context() as patch:
        forget_targets(patch)
        query.commit(0, query.tasks(0, ["a"]))
    assert query.state().targets is None
    again = query.restarted()
    again.options = {**query.options, "topic": other}
    again.commit(0, again.tasks(0, ["a"]))
    again.commit(1, again.tasks(1, ["b"]))
    assert again.state().targets is not None
    assert visible(query.address, other, 1) == ["b"]


def test_s12_a_revoked_decision_keeps_its_target_topics() -> None:
    """Without its target topics, the decision would apply to every topic."""
    participant = ledger.Participant("w-0", 7, 3, 2, 0, 1)
    state = ledger.LedgerState("r1", (), 4, "r1", 1, True)
    decided = ledger.commit(state, Writer("q", "r1"), 5, 1, "t", (participant,)).state
    assert ledger.revoke(decided, "r1").state.targets is not None
