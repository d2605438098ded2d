"""The tested clients, and the results of foreign programs with Kafka and with our broker.

docs/compatibility.md has both as tables; `python -m tests.oracle page` writes them there.
"""

from __future__ import annotations

from typing import NamedTuple


class TestedClient(NamedTuple):
    """A client of the default suite. `package`: its name in constraints.txt; None for our own
    client."""

    name: str
    package: str | None
    what: str


class Run(NamedTuple):
    """A foreign program, with the numbers of passed and of all checks. `client`: the name with the
    version."""

    client: str
    what: str
    kafka: str
    ours: str


_EVERYTHING = "all features below, including the admin client"

CLIENTS = (
    TestedClient("confluent-kafka (librdkafka)", "confluent-kafka", _EVERYTHING),
    TestedClient("aiokafka", "aiokafka", _EVERYTHING),
    TestedClient("kafka-python", "kafka-python", _EVERYTHING),
    TestedClient(
        "Odradek's own client", None, "its own test suites, which can also run against any Kafka"
    ),
)

_JAVA, _FRANZ_GO = "Java 4.3.0", "franz-go 1.22.3"
_SPARK = 'Spark 4.3.0, `format("odradek")`'

RUNS = (
    Run(
        _JAVA,
        "Kafka Streams, three instances with standby tasks: a word count, a join of a stream and a table, "
        "and a join of two tables; an instance and the broker are killed, or the application starts "
        "again (`tests/interop/test_streams_instances.py`). Each result is written once",
        "2 of 2",
        "2 of 2",
    ),
    Run(
        _JAVA,
        "VerifiableShareConsumer with each way to acknowledge, and with a killed member and a killed "
        "broker (`tests/interop/test_verifiable_share.py`). Each record is acknowledged once",
        "4 of 4",
        "4 of 4",
    ),
    Run(
        _JAVA,
        "share consumers and their administration: acquire modes, isolation, resets, late members, "
        "gaps, compaction, codecs, a topic that is created again, locks, limits (`tests/interop/test_share_cases.py`)",
        "17 of 17",
        "17 of 17",
    ),
    Run(
        _JAVA,
        "Connect, standalone: lines that are copied from a file to a topic, and from the topic to a file",
        "500 of 500",
        "500 of 500",
    ),
    Run(
        _FRANZ_GO,
        "share groups: records accepted, released, rejected and renewed beyond their lock; two "
        "members, one of which leaves; a broker that is killed (`tests/interop/test_go_share.py`)",
        "9 of 9",
        "9 of 9",
    ),
    Run(
        _SPARK,
        "batches that are written and read; jobs with a `commitId`, each of which creates its decision "
        "log and is repeated; a stream whose last batch is run again",
        "18 of 18",
        "in the default suite",
    ),
    Run(_SPARK, "the same on three nodes", "18 of 18", ""),
    Run(
        _SPARK,
        "three nodes, each killed (signal 9) in turn while batches are written, exactly once and at "
        "least once, by the calls that Spark makes (`tests/spark/test_kafka_batches.py`). The writes "
        "succeed",
        "6 of 6",
        "one node: `kill -9` in the default suite",
    ),
)
