"""Bento: YAML pipelines from one topic to another, with each of Bento's two Kafka components."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.matrix.row import Check, Place

from foreign_topics import create_topic

RECORDS = 200
PARTITIONS = 2
_WAIT_S = 90.0
_STOP_S = 30.0

#: By component: its input and output. `kafka` uses sarama, `kafka_franz` uses franz-go.
_PIPELINES = {
    "kafka": """
input:
  kafka:
    addresses: [{address}]
    topics: [{name}-in]
    consumer_group: {name}-group
    start_from_oldest: true
    commit_period: 200ms
output:
  kafka:
    addresses: [{address}]
    topic: {name}-out
    key: ${{! meta("kafka_key") }}
    ack_replicas: true
""",
    "kafka_franz": """
input:
  kafka_franz:
    seed_brokers: [{address}]
    topics: [{name}-in]
    consumer_group: {name}-group
    start_from_oldest: true
    commit_period: 200ms
output:
  kafka_franz:
    seed_brokers: [{address}]
    topic: {name}-out
    key: ${{! meta("kafka_key") }}
""",
}
_COMMON = """
http: {enabled: false}
logger: {level: WARN}
pipeline:
  processors:
  - mapping: root = content().uppercase()
"""


def pipelines(tool: Path, place: Place) -> Iterator[Check]:
    """Send records through a pipeline, before and after a kill of the broker."""
    for component, text in _PIPELINES.items():
        name = f"{place.name}-{component.replace('_', '-')}"
        config = place.folder / f"{component}.yaml"
        config.write_text(text.format(address=place.address, name=name) + _COMMON)
        for end in ("in", "out"):
            create_topic(place.address, f"{name}-{end}", PARTITIONS)
        with (place.folder / f"{component}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(tool), "-c", str(config)], stdout=log, stderr=subprocess.STDOUT
            )
        try:
            _produce(place, name, 0)
            found = _read(place, name, RECORDS)
            yield Check(f"{component}: each record once", _problem(found, RECORDS, once=True))
            place.restart()
            _produce(place, name, RECORDS)
            found = _read(place, name, 2 * RECORDS)
            yield Check(
                f"{component}: a broker that is killed loses none", _problem(found, 2 * RECORDS)
            )
            process.send_signal(signal.SIGTERM)
            code = process.wait(_STOP_S)
            yield Check(f"{component}: it ends well", f"ended with {code}" if code else "")
            behind = _lag(place, name)
            yield Check(f"{component}: all is committed", f"the lag is {behind}" if behind else "")
        finally:
            process.kill()
            process.wait(_STOP_S)


def _produce(place: Place, name: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": place.address, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce(f"{name}-in", f"v-{number}", f"k{number}", partition=number % PARTITIONS)
    producer.flush(_WAIT_S)


def _read(place: Place, name: str, distinct: int) -> list[tuple[str, str]]:
    """Read the keys and values that the pipeline wrote, until `distinct` different pairs are
    found."""
    consumer = Consumer({"bootstrap.servers": place.address, "group.id": f"{name}-reader"})
    consumer.assign([TopicPartition(f"{name}-out", each, 0) for each in range(PARTITIONS)])
    found: list[tuple[str, str]] = []
    end = time.monotonic() + _WAIT_S
    while len(set(found)) < distinct and time.monotonic() < end:
        for message in consumer.consume(500, 0.5):
            if message.error() is None:
                found.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
    consumer.close()
    return found


def _problem(found: list[tuple[str, str]], count: int, *, once: bool = False) -> str:
    expected = {(f"k{number}", f"V-{number}") for number in range(count)}
    missing = expected - set(found)
    strange = set(found) - expected
    doubled = len(found) - len(set(found)) if once else 0
    if missing or strange or doubled:
        return f"missing {len(missing)}, strange {sorted(strange)[:3]}, doubled {doubled}"
    return ""


def _lag(place: Place, name: str) -> int:
    """The number of records after the group's positions."""
    consumer = Consumer({"bootstrap.servers": place.address, "group.id": f"{name}-group"})
    try:
        asked = [TopicPartition(f"{name}-in", each) for each in range(PARTITIONS)]
        positions = consumer.committed(asked, _WAIT_S)
        return sum(
            consumer.get_watermark_offsets(each, _WAIT_S)[1] - max(each.offset, 0)
            for each in positions
        )
    finally:
        consumer.close()
