"""The rows of tools that run on a Java virtual machine, except plain clients."""

from __future__ import annotations

from tests.interop.matrix import connect, kafdrop, kafka_tools, programs, streams, toolchains
from tests.interop.matrix.row import Row

from kafka_cluster import SPARK_KAFKA_VERSION, VERSION, mirror_class_path, streams_class_path

_SPRING = "4.1.2"
_KAFDROP = "4.2.0"
_FLINK, _FLINK_CONNECTOR = "2.2.1", "5.0.0-2.2"
#: Flink's serializer needs access to the classes of these packages.
_OPEN = tuple(
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "time", "util")
)

JVM_ROWS = (
    Row(
        "kafka-tools",
        "Kafka's command line tools",
        VERSION,
        "topics, records, groups of each kind, transactions, settings, ACLs, quotas, "
        "reassignments, elections, features, metrics of clients, the quorum, performance tools, and "
        "what `kafka-dump-log` reads from the broker's files",
        toolchains.kafka(VERSION),
        kafka_tools.run,
    ),
    Row(
        "kafka-streams",
        "Kafka Streams",
        VERSION,
        "a word count, a join of a stream and a table, and a join of two tables, exactly once (v2), in "
        "a classic and a streams group; the broker is killed, and the state directory is deleted",
        toolchains.jars(streams_class_path),
        streams.run,
    ),
    Row(
        "connect",
        "Kafka Connect, distributed",
        VERSION,
        "a file copied to a topic exactly once, the topic copied to a file, the offsets and states in "
        "its REST API; the worker and the broker are killed",
        toolchains.jars(streams_class_path),
        connect.distributed,
    ),
    Row(
        "mirror-maker",
        "MirrorMaker 2",
        VERSION,
        "copies from Kafka to the broker and from the broker to Kafka, exactly once, with the offsets "
        "of groups; MirrorMaker is killed halfway",
        toolchains.jars(mirror_class_path),
        connect.mirror_maker,
    ),
    Row(
        "spring-kafka",
        "spring-kafka",
        _SPRING,
        "listener containers, dead letters, transactions that are rolled back, batches, requests "
        "with replies, retry topics, a share group; the broker is killed twice",
        toolchains.java_program(
            "SpringKafka", ("org.springframework.kafka", "spring-kafka", _SPRING)
        ),
        programs.java_told("SpringKafka"),
    ),
    Row(
        "flink",
        "Flink",
        f"{_FLINK}, connector {_FLINK_CONNECTOR}",
        "its source and its exactly-once sink with both ways to name transactions: a job fails, "
        "the broker is killed, and the job continues from a savepoint; each record once",
        toolchains.java_program(
            "FlinkSink",
            ("org.apache.flink", "flink-connector-kafka", _FLINK_CONNECTOR),
            ("org.apache.flink", "flink-clients", _FLINK),
            ("org.apache.flink", "flink-connector-base", _FLINK),
        ),
        programs.java_told("FlinkSink", *_OPEN),
    ),
    Row(
        "spark-kafka",
        "Spark's own format",
        SPARK_KAFKA_VERSION,
        "batches with keys, headers, offsets and times, streams that continue from a checkpoint; "
        "the broker is killed",
        toolchains.spark,
        programs.spark("spark_kafka"),
    ),
    Row(
        "kafdrop",
        "Kafdrop",
        _KAFDROP,
        "its pages and JSON: the cluster, topics with offsets and settings, messages (codecs, "
        "headers, tombstones, compacted, aborted and open transactions), search, groups of both "
        "protocols and their lag, ACLs; topics created and deleted, a message sent; the broker "
        "is killed",
        toolchains.release_jar(
            "kafdrop",
            _KAFDROP,
            "ODRADEK_KAFDROP_JAR",
            "https://github.com/obsidiandynamics/kafdrop/releases",
        ),
        kafdrop.run,
    ),
)
