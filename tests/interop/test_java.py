"""Kafka's own Java clients, Streams and Connect, with our broker and with Kafka.

The programs are single files in `java/`; the last line of each program's output has the number of
successful checks.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafka_cluster
from broker_process import BrokerProcess
from kafka_cluster import KafkaCluster
from waiting import wait_until

pytestmark = pytest.mark.kafka

PROGRAMS = Path(__file__).parent / "java"
DEADLINE_S = 300
LINES = 500
#: Kafka's shipped settings that differ from our defaults.
SETTINGS = ("group.initial.rebalance.delay.ms=0", "log.durability=page-cache")


@pytest.fixture(scope="module", params=["ours", "kafka"])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of our broker, then that of Apache Kafka: the run with Apache Kafka shows that
    the programs themselves are right."""
    if request.param == "kafka":
        cluster: KafkaCluster = request.getfixturevalue("kafka")
        yield cluster.bootstrap
        return
    broker = BrokerProcess(tmp_path_factory.mktemp("java"), SETTINGS)
    broker.start()
    yield broker.address
    broker.stop()


def run(class_path: str, program: str, *arguments: str) -> list[str]:
    """Run a program, which must succeed. Returns the lines that it prints."""
    done = subprocess.run(
        [kafka_cluster.java(), "-cp", class_path, str(PROGRAMS / f"{program}.java"), *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("how", ["commit", "abort", "both"])
def test_t65_java_runs_consecutive_transactions_without_being_fenced(
    address: str, how: str
) -> None:
    """The markers of a producer's previous transaction must not fence the producer."""
    printed = run(kafka_cluster.class_path(), "Transactions", address, "100", how)
    assert printed[-1] == "100 of 100 rounds"


def test_java_share_groups_deliver_each_record_until_it_is_finished(address: str) -> None:
    """The records are accepted, released, rejected or renewed, or their member closes without an
    acknowledgement."""
    printed = run(kafka_cluster.class_path(), "Shares", address, "shares", "500")
    assert printed[-1] == "7 of 7 checks", printed


@pytest.mark.parametrize(
    ("codec", "protocol"),
    [
        ("none", "classic"),
        ("gzip", "consumer"),
        ("snappy", "classic"),
        ("lz4", "consumer"),
        ("zstd", "classic"),
        ("zstd", "consumer"),
    ],
)
def test_java_groups_read_every_record_once(address: str, codec: str, protocol: str) -> None:
    printed = run(kafka_cluster.class_path(), "Groups", address, "2000", codec, protocol)
    assert printed[-1] == "2000 of 2000 records"


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_java_share_consumers_work_through_a_queue(address: str, mode: str) -> None:
    printed = run(kafka_cluster.class_path(), "Share", address, "1000", "3", mode)
    assert printed[-1] == "1000 of 1000 records"


def test_q03_q07_java_sets_quotas_and_is_throttled(address: str) -> None:
    printed = run(kafka_cluster.class_path(), "Quotas", address)
    assert printed[-1] == "3 of 3 steps", printed


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_kafka_streams_counts_exactly_once(address: str, protocol: str) -> None:
    printed = run(kafka_cluster.streams_class_path(), "Streams", address, "2000", protocol)
    assert printed[-1] == "2000 of 2000 records"


def test_kafka_connect_copies_a_file(address: str, tmp_path: Path) -> None:
    """Connect's standalone worker copies a file into a topic, and the topic into another file."""
    given, copied = tmp_path / "given", tmp_path / "copied"
    given.write_text("".join(f"line {number}\n" for number in range(LINES)))
    topic = f"connect-{tmp_path.name}"
    connectors = {
        "worker": {
            "bootstrap.servers": address,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            "listeners": "http://127.0.0.1:0",
            "plugin.discovery": "service_load",
        },
        "source": {
            "name": f"{topic}-source",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(given),
            "topic": topic,
        },
        "sink": {
            "name": f"{topic}-sink",
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": str(copied),
            "topics": topic,
        },
    }
    files = []
    for name, properties in connectors.items():
        file = tmp_path / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        files.append(str(file))
    log = tmp_path / "log"
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [kafka_cluster.java(), "-cp", kafka_cluster.streams_class_path(), main, *files],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(
                lambda: (
                    worker.poll() is not None
                    or (copied.is_file() and len(copied.read_bytes()) >= len(given.read_bytes()))
                ),
                "the copy",
                DEADLINE_S,
            )
        finally:
            worker.terminate()
            worker.wait(60)
    assert copied.read_text() == given.read_text(), log.read_text()[-4000:]
