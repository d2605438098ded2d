"""Metrics that foreign clients push, as shown in /metrics and by `odradek client-metrics show`."""

from __future__ import annotations

import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from prometheus_client.parser import text_string_to_metric_families

import kafka_cluster
from foreign_programs import run
from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.admin import ConfigResource, NewTopic
from odradek_client.admin.telemetry import PushingClient
from waiting import wait_until

pytestmark = pytest.mark.own_broker

HERE = Path(__file__).parent
TOPIC = "measured"
INTERVAL_MS = 500
#: The time in s for which a client works: several push intervals, with their jitter.
SECONDS = "6"
DEADLINE_S = 120


class World:
    """A broker that asks every client for all metrics, by a list of prefixes, because franz-go does
    not know `*`."""

    def __init__(self, broker: SubprocessBroker, http: str) -> None:
        self.bootstrap, self._http = broker.bootstrap, http
        self.admin = sync.Admin(bootstrap_servers=broker.bootstrap)

    def samples(self, name: str) -> list[tuple[dict[str, str], float]]:
        """The samples of a metric in /metrics, with their labels."""
        with urllib.request.urlopen(f"http://{self._http}/metrics") as answer:
            text = answer.read().decode()
        return [
            (dict(sample.labels), sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        ]

    def pushing(self, software: str) -> list[PushingClient]:
        """The clients with this client software name that have pushed metrics."""
        clients = self.admin.list_pushing_clients()
        return [each for each in clients if each.software_name == software and each.pushes]


@pytest.fixture
def world() -> Iterator[World]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        http = f"127.0.0.1:{free.getsockname()[1]}"
    settings = {
        "http.listen": http,
        "log.durability": "page-cache",
        "group.initial.rebalance.delay.ms": 0,
    }
    with SubprocessBroker(settings=settings) as broker:
        world = World(broker, http)
        with world.admin as admin:
            admin.create_topics([NewTopic(TOPIC)])
            wanted = {"metrics": "org.apache.kafka.", "interval.ms": str(INTERVAL_MS)}
            admin.alter_configs({ConfigResource.client_metrics("all"): wanted})
            yield world


@pytest.mark.full
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_m20_librdkafka_pushes_its_metrics(world: World, codec: str) -> None:
    """A producer and a consumer push their metrics; librdkafka compresses metrics with the codecs
    of records."""
    common = {"bootstrap.servers": world.bootstrap, "client.id": "librdkafka-client"}
    producer = confluent_kafka.Producer({**common, "compression.type": codec})
    consumer = confluent_kafka.Consumer(
        {**common, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])

    def both_pushed() -> bool:
        producer.produce(TOPIC, b"value")
        producer.flush(10)
        consumer.poll(0.05)
        found = world.pushing("confluent-kafka-python")
        return len([each for each in found if each.series]) == 2

    wait_until(both_pushed, "pushes of both")
    name = "kafka_client_{}_connection_creation_total"
    ids = set()
    for role in ("producer", "consumer"):
        ((labels, _),) = world.samples(name.format(role))
        assert labels["client_id"] == "librdkafka-client"
        ids.add(labels["client_instance_id"])
    assert ids == {each.client_instance_id for each in world.pushing("confluent-kafka-python")}
    consumer.close()


@pytest.mark.kafka
def test_m20_m21_java_pushes_its_metrics(world: World) -> None:
    """The counters of the Java producer and consumer are exact after the last push of each."""
    program = str(HERE / "java" / "Telemetry.java")
    done = subprocess.run(
        [
            *(kafka_cluster.java(), "-cp", kafka_cluster.class_path(), program),
            *(world.bootstrap, TOPIC, SECONDS),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    producer, consumer, last = done.stdout.splitlines()
    _, sent, _, read = last.split()
    clients = {each.client_instance_id: each for each in world.pushing("apache-kafka-java")}
    assert set(clients) == {producer.split()[1], consumer.split()[1]}
    assert all(each.gone and each.pushes > 1 and not each.left_out for each in clients.values())
    for name, instance, number in (
        ("kafka_client_producer_record_send_total", producer, sent),
        ("kafka_client_consumer_fetch_manager_records_consumed_total", consumer, read),
    ):
        values = {
            labels.get("topic", ""): value
            for labels, value in world.samples(name)
            if labels["client_instance_id"] == instance.split()[1]
        }
        assert values[""] == int(number), (name, values)
    consumed = world.samples("kafka_client_consumer_fetch_manager_records_consumed_total")
    assert {labels.get("group_id") for labels, _ in consumed} == {f"group-{TOPIC}"}


@pytest.mark.kafka
def test_m20_franz_go_pushes_its_metrics(world: World, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go")
    folder = tmp_path / "go"
    shutil.copytree(HERE / "others" / "go_telemetry", folder)
    run(go, "get", "github.com/twmb/franz-go@v1.21.4", folder=folder)
    run(go, "run", ".", world.bootstrap, TOPIC, SECONDS, folder=folder)
    (client,) = world.pushing("kgo")
    assert client.client_id == "franz-go-client" and client.gone and client.pushes > 1
    _, metrics = world.admin.describe_pushing_client(client.client_instance_id)
    assert any(each.value > 0 for each in metrics), metrics
    for metric in metrics:
        assert all(
            labels["client_id"] == "franz-go-client" for labels, _ in world.samples(metric.name)
        )
