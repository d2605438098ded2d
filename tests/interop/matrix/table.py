"""The rows of the matrix."""

from __future__ import annotations

from tests.interop.matrix import toolchains
from tests.interop.matrix.programs import compared, java, program
from tests.interop.matrix.row import Row

_FRANZ_GO = "1.22.3"

_JAVA_PROGRAMS = (
    *(("Transactions", "100", how) for how in ("commit", "abort", "both")),
    ("Groups", "2000", "gzip", "classic"),
    ("Groups", "2000", "zstd", "classic"),
    ("Groups", "2000", "lz4", "consumer"),
)

ROWS = (
    Row(
        "java-3.9",
        "Java clients",
        "3.9.1",
        "transactions right behind each other, committed and aborted; three members that come and "
        "go read each record once, classic and consumer protocol",
        toolchains.kafka("3.9.1"),
        java(*_JAVA_PROGRAMS),
    ),
    Row(
        "sarama",
        "sarama",
        "1.61.1",
        "its admin client, an idempotent and a transactional producer, a group: each call's result",
        toolchains.go("sarama", "github.com/IBM/sarama@v1.61.1"),
        compared(),
    ),
    Row(
        "kafka-go",
        "kafka-go",
        "0.4.51",
        "its client's calls, writer and reader: each call's result",
        toolchains.go("kafka_go", "github.com/segmentio/kafka-go@v0.4.51"),
        compared(),
    ),
    Row(
        "kadm",
        "franz-go with kadm",
        f"{_FRANZ_GO}, 1.20.0",
        "kadm's calls, transactions, groups of both protocols: each call's result",
        toolchains.go(
            "kadm",
            f"github.com/twmb/franz-go@v{_FRANZ_GO}",
            "github.com/twmb/franz-go/pkg/kadm@v1.20.0",
        ),
        compared(),
        differs="kadm deduces Kafka's version from the APIs, and InitProducerId 6 puzzles it",
    ),
    Row(
        "kafkajs",
        "kafkajs",
        "2.2.4",
        "topics, codecs, two members of a group, commits, transactions with offsets, groups and "
        "records deleted",
        toolchains.node("kafkajs", "kafkajs@2.2.4"),
        program("node", "{tool}"),
    ),
)
