"""The command line against Apache Kafka: output and exit code of each command."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_runner import Commands
from kafka_cluster import KafkaCluster
from odradek import sync

pytestmark = pytest.mark.kafka


@pytest.fixture
def odradek(kafka: KafkaCluster) -> Commands:
    return Commands(kafka.bootstrap)


@pytest.fixture
def topic(kafka: KafkaCluster, odradek: Commands, unique_topic: str) -> str:
    """Two partitions, three records in the first, and a group that has read them."""
    odradek.run("topic", "create", unique_topic, "-n", "2")
    with sync.Producer(bootstrap_servers=kafka.bootstrap) as producer:
        for number in range(3):
            producer.send_and_wait(unique_topic, b"%d" % number, partition=0)
    reset = ("group", "reset-offsets", unique_topic, "--topic", unique_topic)
    odradek.run(*reset, "--to-latest", "--execute")
    return unique_topic


def test_topic_commands_work_with_apache_kafka(odradek: Commands, topic: str) -> None:
    assert [topic, "2", "1"] in odradek.table("topic", "list")
    (row,) = odradek.rows("topic", "describe", topic)
    assert [each["log_end_offset"] for each in row["partitions"]] == [3, 0]
    odradek.run("topic", "alter", topic, "-n", "3")
    (row,) = odradek.rows("topic", "trim", f"{topic}:0", "--to-offset", "2", "--execute")
    assert (row["new_start_offset"], row["gone"]) == (2, 2)
    odradek.run("topic", "trim", f"{topic}:0", "--to-offset", "9", "--execute", code=1)
    assert f"{topic}-0 ends at 3" in odradek.stderr
    odradek.run("topic", "create", topic, code=1)
    odradek.run("topic", "delete", topic)
    odradek.run("topic", "delete", topic, code=1)


def test_cluster_and_config_commands_work_with_apache_kafka(odradek: Commands, topic: str) -> None:
    (found,) = odradek.rows("cluster")
    assert found["features"]["transaction.version"]["level"] == 2
    (node,) = found["nodes"]
    assert node["log_dirs"][0]["size_bytes"] > 0 and "Produce" in node["apis"]
    odradek.run("config", "set", "topic", topic, "retention.ms=86400000")
    rows = odradek.rows("config", "describe", "topic", topic)
    assert ("retention.ms", "86400000", "dynamic-topic") in [
        (row["name"], row["value"], row["source"]) for row in rows
    ]
    odradek.run("config", "delete", "topic", topic, "retention.ms")
    odradek.run("config", "set", "topic", topic, "nonsense=1", code=1)
    assert "Unknown topic config name: nonsense" in odradek.stderr
    odradek.run("config", "set", "broker", "default", "log.retention.ms=99999999")
    (row,) = odradek.rows("config", "describe", "broker", "default", "-k", "log.retention.ms")
    assert row["source"] == "dynamic-default-broker"
    odradek.run("config", "delete", "broker", "default", "log.retention.ms")
    odradek.run("config", "set", "group", topic, "consumer.session.timeout.ms=50000")
    (row,) = odradek.rows("config", "describe", "group", topic)
    assert (row["value"], row["source"]) == ("50000", "group")


def test_group_commands_work_with_apache_kafka(
    odradek: Commands, topic: str, tmp_path: Path
) -> None:
    assert topic in odradek.run("group", "list").split()
    (row,) = odradek.rows("group", "describe", topic)
    assert row["verdict"] is None, "Kafka keeps no history of a group"
    assert [(each["current_offset"], each["lag"]) for each in row["partitions"]] == [(3, 0), (0, 0)]
    odradek.run("group", "delete-offsets", topic, "-t", f"{topic}:1")
    odradek.run("group", "delete-offsets", topic, "-t", "nowhere", code=1)
    odradek.run("group", "delete", topic)
    odradek.run("group", "describe", topic, code=1)
    assert "no such group" in odradek.stderr


def test_features_that_apache_kafka_lacks_are_named(odradek: Commands, topic: str) -> None:
    for words in (("txn", "x"), ("producer", "7"), ("group", topic)):
        odradek.run("explain", *words, code=1)
        assert "Apache Kafka has nothing like it" in odradek.stderr
    odradek.run("txn", "describe", "nobody", code=1)
    odradek.run("txn", "list")
    odradek.run("consume", f"{topic}x", "-e", code=1)
    assert f"is it {topic!r}?" in odradek.stderr
    assert f"{topic}x" not in odradek.run("topic", "list", "--names").split()
