"""Batch reads with Spark's own `kafka` format and with ours, from our broker and from Apache Kafka.

pytest --kafka tests/spark/test_sparks_own_reads.py
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import max as largest
from pyspark.sql.functions import min as smallest
from pyspark.sql.functions import spark_partition_id

from foreign_topics import delete_records, open_transaction, send_records
from kafka_cluster import KafkaCluster
from spark_stream import T0, numbered
from two_formats import COMMITTED, REFUSED, load, make_topic, of_both, outcome, rows_of, spans

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

MIXED, STAMPED, NUMBERS = "own-mixed", "own-stamped", "own-numbers"
EMPTY, TRANSACTIONS, TRIMMED = "own-empty", "own-transactions", "own-trimmed"
#: Spark's own format would wait two minutes for missing records.
SHORT = {"kafkaConsumer.pollTimeoutMs": "3000"}


def offsets(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(numbers)}})


def of_numbers(**options: str) -> dict[str, str]:
    return {"subscribe": NUMBERS} | options


def of_transactions(**options: str) -> dict[str, str]:
    return {"subscribe": TRANSACTIONS} | COMMITTED | SHORT | options


@pytest.fixture
def broker(either_broker: str) -> str:
    """The address of a broker that has the topics of this file."""
    return filled(either_broker)


_FILLED: set[str] = set()


def filled(bootstrap: str) -> str:
    """Create the topics of this file in a broker, unless it has them. Returns its address."""
    if bootstrap not in _FILLED:
        _fill(bootstrap)
        _FILLED.add(bootstrap)
    return bootstrap


def _fill(bootstrap: str) -> None:
    make_topic(bootstrap, MIXED, 3)
    headers = [("h", b"1"), ("h", b"2"), ("null", None), ("empty", b""), ("ü", b"x")]
    send_records(
        bootstrap,
        MIXED,
        [
            (0, b"k", b"v", T0, headers),
            (0, None, b"v", T0 + 1, []),
            (0, b"k", None, T0 + 2, []),
            (1, b"", b"", T0 + 3, [("a", b"b")]),
            (1, None, b"\x00\xff", T0 + 5000, []),
            (2, "ü".encode(), b"z", T0 + 2000, []),
        ],
        compression_type="zstd",
    )
    make_topic(bootstrap, STAMPED, 1, message_timestamp_type="LogAppendTime")
    send_records(bootstrap, STAMPED, numbered(0, 3))
    make_topic(bootstrap, NUMBERS, 2)
    send_records(bootstrap, NUMBERS, numbered(0, 100) + numbered(1, 20), batch_num_messages=10)
    make_topic(bootstrap, EMPTY, 2)
    make_topic(bootstrap, TRIMMED)
    send_records(bootstrap, TRIMMED, numbered(0, 20))
    delete_records(bootstrap, TRIMMED, 0, 8)
    make_topic(bootstrap, TRANSACTIONS)
    # Offsets 0 to 2, 4 to 6 (aborted) and 8 to 10 are each followed by a marker. Offsets 12 and 13
    # are in an open transaction; 14 and 15, which come after them, are committed.
    for count, end in ((3, "commit"), (3, "abort"), (3, "commit"), (2, ""), (2, "commit")):
        producer = open_transaction(bootstrap, TRANSACTIONS, count)
        if end:
            getattr(producer, f"{end}_transaction")(30)
        else:
            _OPEN.append(producer)


#: The producers of open transactions are kept: a garbage-collected producer would end its
#: transaction.
_OPEN: list[Any] = []


@pytest.mark.parametrize("headers", ["false", "true"])
@pytest.mark.parametrize("topics", [MIXED, STAMPED, f"{MIXED}, {EMPTY}"])
def test_both_formats_read_the_same_schema_and_rows(
    spark: SparkSession, broker: str, topics: str, headers: str
) -> None:
    def read(kind: str) -> Any:
        frame = load(spark, kind, broker, subscribe=topics, includeHeaders=headers)
        return frame.schema.json(), rows_of(frame)

    theirs, ours = of_both(read)
    assert theirs == ours
    assert len(theirs[1]) == (3 if topics == STAMPED else 6)


SAME: list[dict[str, str]] = [
    {"subscribePattern": "^own-num.*"},
    {"subscribePattern": "n-numb"},
    {"subscribePattern": "no-such-.*"},
    {"subscribePattern": "^__"},
    {"assign": json.dumps({NUMBERS: [0]})},
    {"subscribe": "no-such-topic"},
    {"subscribe": "no-such-topic", "failOnDataLoss": "false"},
    {},
    of_numbers(subscribePattern=NUMBERS),
    of_numbers(startingOffsets="earliest", endingOffsets="latest"),
    of_numbers(startingOffsets=offsets(NUMBERS, 90, -2)),
    of_numbers(startingOffsets=offsets(NUMBERS, 100, 0)),
    of_numbers(endingOffsets=offsets(NUMBERS, 10, -1)),
    of_numbers(startingOffsets=offsets(NUMBERS, 90)),
    of_numbers(startingOffsets=offsets(NUMBERS, 90, 0, 0)),
    of_numbers(startingOffsets=json.dumps({NUMBERS: {"0": 9, "1": 0}, "other": {"0": 1}})),
    of_numbers(startingOffsets="latest"),
    of_numbers(startingOffsets=offsets(NUMBERS, -1, 0)),
    of_numbers(startingOffsets=offsets(NUMBERS, -3, 0)),
    of_numbers(endingOffsets="earliest"),
    of_numbers(endingOffsets=offsets(NUMBERS, -2, 3)),
    of_numbers(startingOffsets=offsets(NUMBERS, 50, 0), endingOffsets=offsets(NUMBERS, 10, 5)),
    of_numbers(startingOffsets=offsets(NUMBERS, 150, 0)),
    of_numbers(endingOffsets=offsets(NUMBERS, 150, 5), **SHORT),
    of_numbers(endingOffsets=offsets(NUMBERS, 150, 5), failOnDataLoss="false", **SHORT),
    of_numbers(startingTimestamp=str(T0 + 10_500)),
    of_numbers(startingTimestamp=str(T0 + 10_500), startingOffsets="earliest"),
    of_numbers(startingTimestamp=str(T0 + 50_000)),
    of_numbers(startingTimestamp=str(T0 + 50_000), startingOffsetsByTimestampStrategy="latest"),
    of_numbers(startingOffsetsByTimestamp=offsets(NUMBERS, T0 + 95_000, T0)),
    of_numbers(startingOffsetsByTimestamp=offsets(NUMBERS, T0 + 95_000)),
    of_numbers(endingTimestamp=str(T0 + 10_000)),
    of_numbers(endingOffsetsByTimestamp=offsets(NUMBERS, T0 + 5_000, T0 + 10**9)),
    of_numbers(startingTimestamp=str(T0 + 10_000), endingTimestamp=str(T0 + 5_000)),
    of_numbers(**{"kafka.auto.offset.reset": "earliest"}),
    {"subscribe": EMPTY},
    {"subscribe": TRANSACTIONS},
    of_transactions(),
    of_transactions(minPartitions="4"),
    of_transactions(endingOffsets=offsets(TRANSACTIONS, 14)),
    of_transactions(
        startingOffsets=offsets(TRANSACTIONS, 4), endingOffsets=offsets(TRANSACTIONS, 7)
    ),
    {"subscribe": TRIMMED},
    {"subscribe": TRIMMED, "startingOffsets": offsets(TRIMMED, 3)},
    {"subscribe": TRIMMED, "startingOffsets": offsets(TRIMMED, 3), "failOnDataLoss": "false"},
    {
        "subscribe": TRIMMED,
        "startingOffsets": offsets(TRIMMED, 2),
        "endingOffsets": offsets(TRIMMED, 5),
        "failOnDataLoss": "false",
    },
]
ALL_NUMBERS = {0: (0, 99, 100), 1: (0, 19, 20)}
#: (options, result of Spark's format, result of ours); docs/compatibility.md has the reason of each
#: difference.
DIFFERENT: list[tuple[dict[str, str], Any, Any]] = [
    ({"assign": json.dumps({NUMBERS: [0, 9]})}, {0: (0, 99, 100)}, REFUSED),
    (of_numbers(startingOffset="latest"), ALL_NUMBERS, REFUSED),
    (
        of_numbers(startingOffsets=offsets(NUMBERS, 150, 0), failOnDataLoss="false"),
        REFUSED,
        {1: (0, 19, 20)},
    ),
]


def places(spark: SparkSession, kind: str, broker: str, options: dict[str, str]) -> Any:
    frame = load(spark, kind, broker, **options).select("partition", "offset")
    return spans([(row.partition, row.offset) for row in frame.collect()])


@pytest.mark.parametrize("options", SAME, ids=str)
def test_both_formats_read_or_refuse_the_same_records(
    spark: SparkSession, broker: str, options: dict[str, str]
) -> None:
    theirs, ours = of_both(lambda kind: places(spark, kind, broker, options))
    assert theirs == ours


def test_both_formats_read_records_with_a_group_id_of_the_user(
    spark: SparkSession, broker: str
) -> None:
    options = of_numbers(**{"kafka.group.id": f"group-of-{broker}"})
    found = of_both(lambda kind: places(spark, kind, broker, options))
    assert found == (ALL_NUMBERS, ALL_NUMBERS)


def test_sparks_own_format_refuses_a_group_id_at_a_second_broker(
    spark: SparkSession, spark_broker: str, kafka: KafkaCluster
) -> None:
    """Spark's own format keeps consumers by group id and partition, even if they belong to another
    broker."""
    options = of_numbers(**{"kafka.group.id": "group-of-two-brokers"})

    def read(bootstrap: str) -> tuple[Any, Any]:
        return of_both(lambda kind: places(spark, kind, filled(bootstrap), options))

    assert read(kafka.bootstrap) == (ALL_NUMBERS, ALL_NUMBERS)
    assert read(spark_broker) == (REFUSED, ALL_NUMBERS)


@pytest.mark.parametrize(("options", "theirs", "ours"), DIFFERENT, ids=str)
def test_known_differences_of_the_formats_are_as_listed(
    spark: SparkSession, broker: str, options: dict[str, str], theirs: Any, ours: Any
) -> None:
    found = of_both(lambda kind: places(spark, kind, broker, options))
    assert found == (theirs, ours)


def test_only_our_format_reads_a_named_internal_topic(spark: SparkSession, broker: str) -> None:
    topic = "__transaction_state"
    theirs, ours = of_both(lambda kind: load(spark, kind, broker, subscribe=topic).count())
    assert theirs == 0 < ours


def test_only_our_format_plans_a_frame_once(spark: SparkSession, broker: str) -> None:
    def counts(kind: str) -> list[Any]:
        topic = f"own-again-{kind}"
        make_topic(broker, topic)
        send_records(broker, topic, numbered(0, 2))
        frame = load(spark, kind, broker, subscribe=topic)
        found = [outcome(frame.count)]
        send_records(broker, topic, numbered(0, 1, start=2))
        found.append(outcome(frame.count))
        delete_records(broker, topic, 0, 1)
        return [*found, outcome(frame.count)]

    assert of_both(counts) == ([2, 3, 2], [2, 2, REFUSED])


@pytest.mark.parametrize("bounds", ["edges", "offsets"])
@pytest.mark.parametrize(
    "split",
    [
        {"minPartitions": "1"},
        {"minPartitions": "3"},
        {"minPartitions": "7"},
        {"minPartitions": "50"},
        {"maxRecordsPerPartition": "30"},
        {"minPartitions": "7", "maxRecordsPerPartition": "30"},
        {"minPartitions": "0"},
    ],
    ids=str,
)
def test_tasks_of_both_formats_have_the_same_ranges(
    spark: SparkSession, broker: str, split: dict[str, str], bounds: str
) -> None:
    options = of_numbers(**split)
    if bounds == "offsets":
        options |= {
            "startingOffsets": offsets(NUMBERS, 0, 0),
            "endingOffsets": offsets(NUMBERS, 100, 20),
        }

    def ranges(kind: str) -> Any:
        frame = load(spark, kind, broker, **options)
        parts = frame.groupBy(spark_partition_id(), "partition")
        found = parts.agg(smallest("offset"), largest("offset")).collect()
        return frame.rdd.getNumPartitions(), sorted(tuple(row)[1:] for row in found)

    theirs, ours = of_both(ranges)
    if bounds == "edges" and split == {"maxRecordsPerPartition": "30"}:
        # Spark's own format computes the sizes of ranges before it knows their start and end
        # offsets, so it splits no range.
        assert (theirs[0], ours[0]) == (2, 5)
    else:
        assert theirs == ours
