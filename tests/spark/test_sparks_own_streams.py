"""Streams with Spark's own `kafka` format and with ours, from our broker and from Apache Kafka.

pytest --kafka tests/spark/test_sparks_own_streams.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from foreign_topics import (
    add_partitions,
    delete_records,
    delete_topic,
    open_transaction,
    send_records,
)
from odradek.testing import make_unique_topic
from spark_stream import T0, Stream, numbered, until
from two_formats import COMMITTED, OURS, REFUSED, THEIRS, make_topic, of_both, outcome, spans

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

NewStream = Callable[..., "Trial"]
Spans = dict[int, tuple[int, int, int]]


class Trial:
    """A topic, and a stream with one of the formats that reads it."""

    def __init__(self, query: Stream, partitions: int) -> None:
        self.bootstrap = query.bootstrap
        self.topic = make_unique_topic()
        self.query = query
        make_topic(self.bootstrap, self.topic, partitions)
        if not {"subscribe", "subscribePattern", "assign"} & query.options.keys():
            query.options["subscribe"] = self.topic

    def send(self, *records: list[tuple[Any, ...]]) -> None:
        for some in records:
            send_records(self.bootstrap, self.topic, some)

    def read(self) -> list[Spans]:
        """Run the stream once more. Returns the offsets that each batch has read, without empty
        batches."""
        self.query.run_anew()
        return [spans(places) for _, places in self.query.batches if places]

    def read_or_refuse(self) -> Any:
        return outcome(self.read)

    def recreate_topic(self) -> None:
        delete_topic(self.bootstrap, self.topic)
        make_topic(self.bootstrap, self.topic)


@pytest.fixture
def trial(spark: SparkSession, either_broker: str, tmp_path: Path) -> NewStream:
    """Return a function `trial(kind, partitions, option=...)`; each trial has its own
    checkpoint."""
    made: list[Trial] = []

    def make(
        kind: str, partitions: int = 1, dotted: dict[str, str] | None = None, **options: str
    ) -> Trial:
        given = {"startingOffsets": "earliest"} | options | (dotted or {})
        checkpoint = tmp_path / f"checkpoint-{len(made)}"
        made.append(Trial(Stream(spark, either_broker, checkpoint, given, kind), partitions))
        return made[-1]

    return make


def test_streams_of_both_formats_continue_from_their_checkpoint(trial: NewStream) -> None:
    """If the record of a batch's commit is lost, the batch is run again, and reads the same
    records."""

    def run(kind: str) -> Any:
        one = trial(kind, 2)
        one.send(numbered(0, 30), numbered(1, 20))
        found = [one.read(), one.read()]
        one.send(numbered(1, 5, start=20))
        found.append(one.read())
        one.query.forget_last_commit()
        one.send(numbered(0, 2, start=30))
        return [*found, one.read()]

    theirs, ours = of_both(run)
    assert theirs == ours
    assert ours[3] == [{1: (20, 24, 5)}, {0: (30, 31, 2)}]


STARTS: list[dict[str, str]] = [
    {"startingOffsets": "latest"},
    {"startingOffsets": '{"TOPIC": {"0": 3, "1": -1}}'},
    {"startingOffsets": '{"TOPIC": {"0": 3}}'},
    {"startingTimestamp": str(T0 + 3_000)},
    {"startingTimestamp": str(T0 + 30_000)},
    {"startingTimestamp": str(T0 + 30_000), "startingOffsetsByTimestampStrategy": "latest"},
    {"startingOffsetsByTimestamp": f'{{"TOPIC": {{"0": {T0}, "1": {T0 + 4_000}}}}}'},
    {"endingOffsets": "latest"},
    {"minOffsetsPerTrigger": "10"},
]


@pytest.mark.parametrize("options", STARTS, ids=str)
def test_streams_of_both_formats_begin_at_the_same_offsets(
    trial: NewStream, options: dict[str, str]
) -> None:
    def run(kind: str) -> Any:
        one = trial(kind, 2)
        named = {name: text.replace("TOPIC", one.topic) for name, text in options.items()}
        one.query.options |= named
        one.send(numbered(0, 5), numbered(1, 5))
        first = one.read()
        one.send(numbered(0, 2, start=5))
        return first, one.read()

    theirs, ours = of_both(run)
    assert theirs == ours


def test_only_our_format_uses_up_max_offsets_per_trigger(trial: NewStream) -> None:
    def run(kind: str) -> Any:
        one = trial(kind, 3, maxOffsetsPerTrigger="40")
        one.send(numbered(0, 75), numbered(1, 25), numbered(2, 1))
        return [sum(count for _, _, count in batch.values()) for batch in one.read()]

    assert of_both(run) == ([39, 39, 23], [40, 40, 21])


def test_both_formats_wait_for_min_offsets_per_trigger(trial: NewStream) -> None:
    def run(kind: str) -> Any:
        one = trial(kind, 1, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
        one.send(numbered(0, 5))
        query = one.query.start(processingTime="0 seconds")
        try:
            until(lambda: one.query.sizes == [5], query)
            one.send(numbered(0, 4, start=5), numbered(0, 6, start=9))
            until(lambda: len(one.query.places) == 15, query)
            return one.query.places[-1], one.query.sizes[0]
        finally:
            query.stop()

    theirs, ours = of_both(run)
    assert theirs == ours == ((0, 14), 5)


@pytest.mark.parametrize("count", [4, 15], ids=["fewer records", "more records"])
@pytest.mark.parametrize("fails", ["true", "false"])
def test_only_our_format_detects_any_topic_recreated_between_runs(
    trial: NewStream, fails: str, count: int
) -> None:
    """Spark's own format keeps no topic ids: if the new topic has more records, it does not notice
    the change, and misses the first records. With fewer, it begins at the end."""

    def run(kind: str) -> Any:
        one = trial(kind, 1, failOnDataLoss=fails)
        one.send(numbered(0, 10))
        one.read()
        one.recreate_topic()
        one.send(numbered(0, count))
        found = one.read_or_refuse()
        one.send(numbered(0, 3, start=count))
        return found, one.read_or_refuse()

    theirs, ours = of_both(run)
    if count == 15:
        assert theirs == ([{0: (10, 14, 5)}], [{0: (15, 17, 3)}])
    else:
        assert theirs == ((REFUSED, REFUSED) if fails == "true" else ([], [{0: (4, 6, 3)}]))
    if fails == "true":
        assert ours == (REFUSED, REFUSED)
    else:
        assert ours == ([{0: (0, count - 1, count)}], [{0: (count, count + 2, 3)}])


@pytest.mark.parametrize("fails", ["true", "false"])
def test_only_our_format_detects_a_topic_recreated_during_a_query(
    trial: NewStream, fails: str
) -> None:
    """Our format knows the topic's id. It reads the new topic from its beginning, or fails."""

    def run(kind: str) -> Any:
        one = trial(kind, 1, failOnDataLoss=fails)
        one.send(numbered(0, 10))
        query = one.query.start(processingTime="0 seconds")
        try:
            until(lambda: one.query.sizes == [10], query)
            one.recreate_topic()
            one.send(numbered(0, 15))
            until(lambda: len(one.query.sizes) > 1 and one.query.places[-1] == (0, 14), query)
            return len(one.query.places) - 10
        finally:
            query.stop()

    theirs, ours = of_both(run)
    # Usually Spark's own format misses the first ten records. It notices the change only if it
    # looks while no topic exists, or while the new topic has fewer records than the old one.
    assert theirs in (5, 15, REFUSED)
    assert ours == (REFUSED if fails == "true" else 15)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_both_formats_treat_records_deleted_between_runs_alike(
    trial: NewStream, fails: str
) -> None:
    def run(kind: str) -> Any:
        one = trial(kind, 1, failOnDataLoss=fails)
        one.send(numbered(0, 10))
        one.read()
        one.send(numbered(0, 10, start=10))
        delete_records(one.bootstrap, one.topic, 0, 15)
        return one.read_or_refuse()

    theirs, ours = of_both(run)
    assert theirs == ours == (REFUSED if fails == "true" else [{0: (15, 19, 5)}])


def test_only_our_format_drops_a_deleted_topic_without_fail_on_data_loss(
    trial: NewStream,
) -> None:
    def run(kind: str) -> Any:
        one, other = trial(kind, failOnDataLoss="false"), trial(kind)
        one.query.options["subscribe"] = f"{one.topic},{other.topic}"
        one.send(numbered(0, 3))
        other.send(numbered(0, 2))
        one.read()
        delete_topic(other.bootstrap, other.topic)
        one.send(numbered(0, 4, start=3))
        return one.read_or_refuse()

    assert of_both(run) == (REFUSED, [{0: (3, 6, 4)}])


def test_both_formats_read_added_partitions_and_topics_from_the_beginning(trial: NewStream) -> None:
    """Our format reads added partitions only in the batch after the one that finds them, so that a
    replay reads the same records."""

    def run(kind: str) -> Any:
        one, other = trial(kind), trial(kind)
        one.query.options["subscribePattern"] = f"^{one.query.options.pop('subscribe')}$"
        one.send(numbered(0, 3))
        one.read()
        add_partitions(one.bootstrap, one.topic, 3)
        one.send(numbered(0, 1, start=3), numbered(1, 4))
        grown = one.read()
        one.query.options["subscribePattern"] += f"|^{other.topic}$"
        other.send(numbered(0, 2))
        return grown, one.read()

    theirs, ours = of_both(run)
    assert theirs == ([{0: (3, 3, 1), 1: (0, 3, 4)}], [{0: (0, 1, 2)}])
    assert ours == ([{0: (3, 3, 1)}, {1: (0, 3, 4)}], [{0: (0, 1, 2)}])


def test_both_formats_read_partitions_added_during_a_query(trial: NewStream) -> None:
    def run(kind: str) -> Any:
        one = trial(kind)
        one.send(numbered(0, 3))
        query = one.query.start(processingTime="0 seconds")
        try:
            until(lambda: one.query.sizes == [3], query)
            add_partitions(one.bootstrap, one.topic, 3)
            one.send(numbered(1, 4), numbered(2, 2))
            until(lambda: len(one.query.places) >= 9, query)
            return one.query.places
        finally:
            query.stop()

    theirs, ours = of_both(run)
    assert (
        theirs
        == ours
        == [(0, n) for n in range(3)]
        + [(1, n) for n in range(4)]
        + [
            (2, 0),
            (2, 1),
        ]
    )


@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": "3"}], ids=str)
def test_both_formats_read_committed_records_only(trial: NewStream, limit: dict[str, str]) -> None:
    def run(kind: str) -> Any:
        one = trial(kind, 1, COMMITTED, **limit)
        for count, end in ((3, "commit"), (4, "abort"), (3, "commit")):
            getattr(open_transaction(one.bootstrap, one.topic, count), f"{end}_transaction")(30)
        is_open = open_transaction(one.bootstrap, one.topic, 2)
        open_transaction(one.bootstrap, one.topic, 2).commit_transaction(30)
        before = one.read()
        is_open.commit_transaction(30)
        return before, one.read()

    theirs, ours = of_both(run)
    assert theirs == ours
    assert sum(count for batch in ours[0] for _, _, count in batch.values()) == 6


@pytest.mark.parametrize("fails", ["true", "false"])
def test_only_our_format_waits_after_a_change_to_read_committed(
    trial: NewStream, fails: str
) -> None:
    """Our format waits for open transactions. Spark's own format reports lost data at each later
    start, or reads records twice."""

    def run(kind: str) -> Any:
        one = trial(kind, failOnDataLoss=fails)
        one.send(numbered(0, 3))
        is_open = open_transaction(one.bootstrap, one.topic, 2)
        one.read()
        one.query.options |= COMMITTED
        found = one.read_or_refuse()
        is_open.commit_transaction(30)
        one.send(numbered(0, 2, start=6))
        return found, one.read_or_refuse()

    theirs, ours = of_both(run)
    assert ours == ([], [{0: (6, 7, 2)}])
    assert theirs == ((REFUSED, REFUSED) if fails == "true" else ([], [{0: (3, 7, 4)}]))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_both_formats_treat_another_topic_at_a_restart_alike(trial: NewStream, fails: str) -> None:
    def run(kind: str) -> Any:
        one, other = trial(kind, failOnDataLoss=fails), trial(kind)
        one.send(numbered(0, 3))
        other.send(numbered(0, 4))
        one.read()
        one.query.options["subscribe"] = other.topic
        return one.read_or_refuse()

    theirs, ours = of_both(run)
    assert theirs == ours == (REFUSED if fails == "true" else [{0: (0, 3, 4)}])


def test_both_formats_ignore_starting_offsets_with_a_checkpoint(trial: NewStream) -> None:
    def run(kind: str) -> Any:
        one = trial(kind)
        one.send(numbered(0, 5))
        one.read()
        one.query.options["startingOffsets"] = json.dumps({one.topic: {"0": 2}})
        one.send(numbered(0, 2, start=5))
        return one.read()

    theirs, ours = of_both(run)
    assert theirs == ours == [{0: (5, 6, 2)}]


@pytest.mark.parametrize(("first", "second"), [(THEIRS, OURS), (OURS, THEIRS)])
def test_each_format_continues_from_a_checkpoint_of_the_other(
    trial: NewStream, first: str, second: str
) -> None:
    one = trial(first, 2)
    one.send(numbered(0, 5), numbered(1, 5))
    one.read()
    one.send(numbered(0, 2, start=5))
    one.query = replace(one.query, kind=second)
    assert one.read() == [{0: (5, 6, 2)}]
    # The commit of a batch is lost, and the batch is repeated by the first format.
    one.query.forget_last_commit()
    one.query = replace(one.query, kind=first)
    assert one.read() == [{0: (5, 6, 2)}]
