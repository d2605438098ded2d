"""Kafka's own tools for share groups print the same lines with our broker and with Apache Kafka."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

import kafka_cluster
from broker_process import BrokerProcess
from foreign_topics import create_topic
from kafka_cluster import KafkaCluster

pytestmark = pytest.mark.kafka

DEADLINE_S = 120
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
TOPIC, GROUP = "tools-queue", "tools-group"


@pytest.fixture(scope="module", params=["ours", "kafka"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "kafka":
        with KafkaCluster(tmp_path_factory.mktemp("share-tools"), 1) as cluster:
            yield cluster.bootstrap
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("share-tools"), ["log.durability=page-cache"])
    broker.start()
    yield broker.address
    broker.stop()


def test_kafkas_tools_read_and_administer_a_share_group(address: str) -> None:
    def tool(name: str, *options: str, given: str = "") -> list[str]:
        """The words of each line that a tool prints, without empty lines."""
        command = [kafka_cluster.java(), "-cp", kafka_cluster.class_path(), name]
        done = subprocess.run(
            [*command, "--bootstrap-server", address, *options],
            input=given,
            check=True,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        return [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]

    def groups(*options: str) -> list[str]:
        return tool(SHARE_GROUPS, *options)

    create_topic(address, TOPIC)
    tool(
        *("kafka.admin.ConfigCommand", "--alter", "--entity-type", "groups"),
        *("--entity-name", GROUP, "--add-config", "share.auto.offset.reset=earliest"),
    )
    lines = [f"line {number}" for number in range(20)]
    tool("org.apache.kafka.tools.ConsoleProducer", "--topic", TOPIC, given="\n".join(lines))
    read = ("--topic", TOPIC, "--group", GROUP, "--timeout-ms", "60000", "--max-messages")
    assert tool(SHARE_CONSUMER, *read, "5") == lines[:5]
    assert tool(SHARE_CONSUMER, *read, "3", "--reject") == lines[5:8]
    assert tool(SHARE_CONSUMER, *read, "2", "--release") == lines[8:10]
    assert tool(SHARE_CONSUMER, *read, "1") == lines[8:9]

    assert groups("--list") == [GROUP]
    assert groups("--list", "--state") == ["GROUP STATE", f"{GROUP} Empty"]
    assert groups("--describe", "--group", GROUP) == [
        "GROUP TOPIC PARTITION START-OFFSET LAG",
        f"{GROUP} {TOPIC} 0 8 11",
    ]
    reset = ("--reset-offsets", "--group", GROUP, "--topic", TOPIC)
    new_offset = "GROUP TOPIC PARTITION NEW-OFFSET"
    assert groups(*reset, "--to-earliest", "--dry-run") == [new_offset, f"{GROUP} {TOPIC} 0 0"]
    assert groups(*reset, "--to-latest", "--execute") == [new_offset, f"{GROUP} {TOPIC} 0 20"]
    assert groups("--describe", "--group", GROUP, "--offsets", "--verbose") == [
        "GROUP TOPIC PARTITION LEADER-EPOCH START-OFFSET LAG",
        f"{GROUP} {TOPIC} 0 0 20 0",
    ]
    deleted = groups("--delete-offsets", "--group", GROUP, "--topic", TOPIC)
    assert deleted == ["TOPIC STATUS", f"{TOPIC} Successful"]
    assert groups("--delete", "--group", GROUP) == [
        f"Deletion of requested share groups ('{GROUP}') was successful."
    ]
    assert groups("--list") == []
