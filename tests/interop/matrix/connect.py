"""Kafka Connect: distributed workers that are killed, and MirrorMaker 2 in both directions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from tests.interop.matrix.row import Check, Place
from tests.interop.matrix.services import DEADLINE_S, Http, Service, check, running, until

from foreign_topics import create_topic, read_committed
from kafka_cluster import free_ports, java

_LINES, _LINES_AT_ONCE = 200, 20
_PARTITIONS = 3
_AT_END = confluent_kafka.KafkaError._PARTITION_EOF
_STRINGS = "org.apache.kafka.connect.storage.StringConverter"
_FILES = "org.apache.kafka.connect.file.FileStream"

#: Settings with which a worker soon notices that another worker has ended.
_IMPATIENT = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "0",
    "offset.flush.interval.ms": "1000",
}


def _worker(classes: Path, main: str, settings: Mapping[str, str], folder: Path) -> Service:
    """A process of Connect with these settings."""
    file = folder / "worker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return Service([java(), "-Xmx512m", "-cp", str(classes), main, str(file)], folder)


class Rest(Http):
    """The REST API of a worker."""

    def create(self, name: str, config: Mapping[str, str]) -> bool:
        """Create a connector. Retries while the worker starts; returns False after the deadline."""
        body = {"name": name, "config": dict(config)}
        return until(lambda: self.json("POST", "/connectors", body) is not None)

    def is_running(self, name: str) -> bool:
        """True if a connector and its only task are running."""
        status = self.json("GET", f"/connectors/{name}/status") or {}
        states = [status.get("connector", {}), *status.get("tasks", [])]
        return [each.get("state") for each in states] == ["RUNNING", "RUNNING"]


def _worker_settings(place: Place, port: int) -> dict[str, str]:
    topics = {
        f"{kind}.storage.{what}": value
        for kind in ("config", "offset", "status")
        for what, value in (("topic", f"{place.name}-{kind}"), ("replication.factor", "1"))
    }
    return {
        "bootstrap.servers": place.address,
        "group.id": f"{place.name}-workers",
        "key.converter": _STRINGS,
        "value.converter": _STRINGS,
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "exactly.once.source.support": "enabled",
        **topics,
        **_IMPATIENT,
    }


class _Lines:
    """A file to which numbered lines are added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: list[str] = []

    def add(self) -> None:
        new = [f"line {len(self.all) + number}" for number in range(_LINES)]
        self.all += new
        for first in range(0, _LINES, _LINES_AT_ONCE):
            with self.path.open("a") as file:
                file.writelines(f"{line}\n" for line in new[first : first + _LINES_AT_ONCE])
            time.sleep(0.02)


def _values(address: str, topic: str, partitions: int, wanted: int) -> list[str]:
    """Read `wanted` committed values of a topic. If they do not arrive in time, return an error
    message instead."""
    try:
        found = read_committed(address, topic, partitions, wanted, DEADLINE_S)
    except AssertionError as failure:
        return [str(failure)]
    return [value for _, value in found]


def distributed(classes: Path, place: Place) -> Iterator[Check]:
    """Copy a file into a topic exactly once, and the topic into another file, while the worker and
    the broker are killed."""
    port = free_ports(1)[0]
    rest, lines = Rest(port), _Lines(place.folder / "given")
    copy, topic = place.folder / "copied", f"{place.name}-lines"
    source, sink = f"{place.name}-source", f"{place.name}-sink"
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    worker = _worker(classes, main, _worker_settings(place, port), place.folder)
    create_topic(place.address, topic)
    lines.add()

    def copied() -> list[str]:
        values = _values(place.address, topic, 1, len(lines.all))
        return [] if values == lines.all else values[-3:] or ["nothing"]

    def is_in_file() -> bool:
        return copy.is_file() and set(lines.all) <= set(copy.read_text().splitlines())

    with running(worker):
        settings = {
            "connector.class": f"{_FILES}SourceConnector",
            "file": str(lines.path),
            "topic": topic,
            "exactly.once.support": "required",
        }
        yield check("a source that has to be exact", rest.create(source, settings), worker.log)
        settings = {
            "connector.class": f"{_FILES}SinkConnector",
            "file": str(copy),
            "topics": topic,
        }
        yield check("a sink", rest.create(sink, settings), worker.log)
        run = until(lambda: rest.is_running(source) and rest.is_running(sink))
        yield check("both run", run, rest.json("GET", f"/connectors/{source}/status"))
        yield check("each line once", not (missing := copied()), missing)
        yield check("the lines are in the sink's file", until(is_in_file), worker.log)

        lines.add()
        time.sleep(0.3)
        worker.kill()
        lines.add()
        worker.start()
        yield check("the worker is killed: each line once", not (missing := copied()), missing)
        lines.add()
        place.restart()
        lines.add()
        yield check("the broker is killed: each line once", not (missing := copied()), missing)
        yield check("the sink goes on", until(is_in_file), worker.log)
        yield from _administered(rest, source, topic, lines)


def _administered(rest: Rest, source: str, topic: str, lines: _Lines) -> Iterator[Check]:
    """Use the REST API to administer a source connector that keeps its offsets in a topic."""
    size = lines.path.stat().st_size

    def offset() -> Any:
        found = (rest.json("GET", f"/connectors/{source}/offsets") or {}).get("offsets") or [{}]
        return found[0].get("offset", {}).get("position")

    def state() -> Any:
        return (
            (rest.json("GET", f"/connectors/{source}/status") or {})
            .get("connector", {})
            .get("state")
        )

    yield check("the source's offset", until(lambda: offset() == size), offset())
    rest.json("PUT", f"/connectors/{source}/pause")
    yield check("pause", until(lambda: state() == "PAUSED"), state())
    rest.json("PUT", f"/connectors/{source}/resume")
    yield check("resume", until(lambda: rest.is_running(source)), state())
    rest.json("PUT", f"/connectors/{source}/stop")
    yield check("stop", until(lambda: state() == "STOPPED"), state())
    reset = until(lambda: rest.json("DELETE", f"/connectors/{source}/offsets") is not None)
    yield check("offsets are reset", reset and until(lambda: offset() is None), offset())
    topics = (rest.json("GET", f"/connectors/{source}/topics") or {}).get(source, {}).get("topics")
    yield check("the source's topics", topics == [topic], topics)
    gone = until(lambda: rest.json("DELETE", f"/connectors/{source}") is not None)
    yield check(
        "delete", gone and until(lambda: source not in rest.json("GET", "/connectors")), gone
    )


# --- MirrorMaker 2 --------------------------------------------------------------------------------


def _numbered(first: int, end: int) -> list[str]:
    return sorted(f"v{number}" for number in range(first, end))


def _produced(address: str, topic: str, first: int, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "log_level": 0})
    for number in range(first, first + count):
        producer.produce(topic, f"v{number}", f"k{number}", partition=number % _PARTITIONS)
    producer.flush(DEADLINE_S)


def _code(message: confluent_kafka.Message) -> int | None:
    error = message.error()
    return None if error is None else error.code()


class _Group:
    """A group without members that has committed positions in a topic."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self._settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
        self._topic = topic

    def _at(self, offsets: Sequence[int]) -> list[confluent_kafka.TopicPartition]:
        return [
            confluent_kafka.TopicPartition(self._topic, partition, offset)
            for partition, offset in enumerate(offsets)
        ]

    def commit(self, offsets: Sequence[int]) -> None:
        consumer = confluent_kafka.Consumer(self._settings)
        consumer.commit(offsets=self._at(offsets), asynchronous=False)
        consumer.close()

    def unread(self) -> list[str] | None:
        """The values after the group's positions; None if a partition has no position."""
        consumer = confluent_kafka.Consumer(self._settings)
        try:
            committed = consumer.committed(self._at([-1001] * _PARTITIONS), timeout=30)
            offsets = [each.offset for each in committed]
            if min(offsets) < 0:
                return None
            consumer.assign(self._at(offsets))
            found, ended, end = [], set[int](), time.monotonic() + DEADLINE_S
            while len(ended) < _PARTITIONS and time.monotonic() < end:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    found.append((message.value() or b"").decode())
                elif message is not None and _code(message) == _AT_END:
                    ended.add(message.partition() or 0)
            return sorted(found)
        finally:
            consumer.close()


def _mirror_settings(place: Place, port: int) -> dict[str, str]:
    """Settings for mirroring in both directions between Kafka (`a`) and the row's broker (`b`),
    exactly once."""
    both = {"a": place.kafka, "b": place.address}
    factors = (
        "replication.factor",
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
        "offset-syncs.topic.replication.factor",
        "offset.storage.replication.factor",
        "config.storage.replication.factor",
        "status.storage.replication.factor",
    )
    settings = {"clusters": "a, b", "dedicated.mode.enable.internal.rest": "true"}
    settings |= {"listeners": f"http://127.0.0.1:{port}"} | dict.fromkeys(factors, "1")
    for here, there in (("a", "b"), ("b", "a")):
        flow = f"{here}->{there}"
        settings |= {
            f"{here}.bootstrap.servers": both[here],
            f"{here}.exactly.once.source.support": "enabled",
            f"{flow}.enabled": "true",
            f"{flow}.topics": f"{place.name}-from-{here}",
            f"{flow}.groups": f"{place.name}-group-{here}",
            f"{flow}.sync.group.offsets.enabled": "true",
            f"{flow}.sync.group.offsets.interval.seconds": "1",
            f"{flow}.emit.checkpoints.interval.seconds": "1",
            f"{flow}.refresh.topics.interval.seconds": "3",
            f"{flow}.refresh.groups.interval.seconds": "3",
            f"{flow}.sync.topic.configs.interval.seconds": "3",
            f"{flow}.offset.lag.max": "0",
            # In the comparison run both clusters are the same Apache Kafka, where heartbeats would
            # be mirrored endlessly.
            f"{flow}.emit.heartbeats.enabled": "false",
            f"{flow}.heartbeats.replication.enabled": "false",
        }
    return settings | {"scheduled.rebalance.max.delay.ms": "0"}


def mirror_maker(classes: Path, place: Place) -> Iterator[Check]:
    """Mirror records and groups' offsets in both directions; the mirror is killed and started
    again."""
    address = {"a": place.kafka, "b": place.address}
    flows = {here: (f"{place.name}-from-{here}", there) for here, there in ("ab", "ba")}
    for here, (topic, _) in flows.items():
        create_topic(address[here], topic, _PARTITIONS, retention_ms="7200000")
        _produced(address[here], topic, 0, _LINES)
    settings = _mirror_settings(place, free_ports(1)[0])
    main = "org.apache.kafka.connect.mirror.MirrorMaker"
    worker = _worker(classes, main, settings, place.folder)

    groups = {
        here: _Group(address[there], f"{place.name}-group-{here}", f"{here}.{topic}")
        for here, (topic, there) in flows.items()
    }
    flow = {"a": "Kafka to the broker", "b": "the broker to Kafka"}

    def wrong(here: str, wanted: int) -> list[str]:
        topic, there = flows[here]
        found = sorted(_values(address[there], f"{here}.{topic}", _PARTITIONS, wanted))
        return [] if found == _numbered(0, wanted) else found[-3:] or ["nothing"]

    with running(worker):
        for here, (topic, _) in flows.items():
            missing = wrong(here, _LINES)
            yield check(f"{flow[here]}: each record once", not missing, [missing, worker.log])
            # MirrorMaker can translate the end offsets even if it discovers the group late.
            ends = [len(range(each, _LINES, _PARTITIONS)) for each in range(_PARTITIONS)]
            _Group(address[here], f"{place.name}-group-{here}", topic).commit(ends)
        for here in flows:
            synced = until(lambda group=groups[here]: group.unread() == [])  # type: ignore[misc]
            yield check(f"{flow[here]}: a group's positions", synced, groups[here].unread())
        for here, (topic, _) in flows.items():
            _produced(address[here], topic, _LINES, _LINES)
        time.sleep(0.5)
        worker.kill()
        for here, (topic, _) in flows.items():
            _produced(address[here], topic, 2 * _LINES, _LINES)
        worker.start()
        for here in flows:
            missing = wrong(here, 3 * _LINES)
            yield check(f"{flow[here]}: it is killed, each record once", not missing, missing)
            found = groups[here].unread() or []
            well = found == _numbered(_LINES, 3 * _LINES)
            yield check(f"{flow[here]}: the group goes on where it was", well, found[:3])
