"""The brokers of the race: each is started once and warmed up, and becomes idle between runs."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.broker import Load, consume_confluent, create_topic, delete_topic, produce
from benchmarks.support import Target, mock_broker, odradek_broker, say

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
from kafka_cluster import SHIPPED_HEAP, KafkaCluster, KafkaUnavailable, class_path, java

OURS_PAGE_CACHE = "ours, page cache"
OURS_FSYNC = "ours, fsync"
KAFKA_PAGE_CACHE = "Kafka, page cache"
KAFKA_FLUSHING = "Kafka, flushing"
MOCK = "mock"
ALL = (MOCK, OURS_PAGE_CACHE, OURS_FSYNC, KAFKA_PAGE_CACHE, KAFKA_FLUSHING)
OURS = (OURS_PAGE_CACHE, OURS_FSYNC)

#: Loads of 400 MB that each broker handles before the first row, so that the JVM has compiled the
#: frequently used code.
_WARMING = (
    Load(1000, 16_384, False, 200_000, 4),
    Load(1000, 16_384, True, 100_000, 4),
    Load(1000, 1_000_000, False, 100_000),
)
_REST_S = 1.5
_LOOK_S = 0.1
_AT_REST = 0.2
_MOCK_TOPIC = "bench"
#: Deleted topics free their disk space immediately.
_DELETED_AT_ONCE = {"log.segment.delete.delay.ms": "0"}


@contextlib.contextmanager
def started(folder: Path, *, only_ours: bool) -> Iterator[list[Target]]:
    """Start all brokers that can run on this machine, with their data below `folder`. Returns them
    in the order of their turns.

    Prints the reason if Apache Kafka is missing.
    """
    with contextlib.ExitStack() as held:
        targets = []
        for name, durability in zip(OURS, ("page-cache", "fsync"), strict=True):
            say(f"starting {name}")
            broker = odradek_broker(durability, metrics=False, data_dir=folder / durability)
            targets.append(replace(held.enter_context(broker), name=name))
        if not only_ours:
            if kafka_is_there():
                for name, settings in (
                    (KAFKA_PAGE_CACHE, {}),
                    (KAFKA_FLUSHING, {"log.flush.interval.messages": "1"}),
                ):
                    say(f"starting {name}")
                    targets.append(held.enter_context(_kafka(name, folder, settings)))
            say(f"starting {MOCK}")
            targets.append(held.enter_context(mock_broker()))
        yield targets


def kafka_is_there() -> bool:
    """True if Kafka can be started; prints the reason if not."""
    try:
        java()
        class_path()
    except KafkaUnavailable as missing:
        say(f"without Apache Kafka: {missing}")
        return False
    return True


def kafka_tool(name: str) -> list[str]:
    """The command that runs one of Kafka's own programs. Raises KafkaUnavailable."""
    return [java(), "-Xmx512m", "-cp", class_path(), f"org.apache.kafka.tools.{name}"]


@contextlib.contextmanager
def _kafka(name: str, folder: Path, settings: Mapping[str, str]) -> Iterator[Target]:
    """Start Kafka with the settings and memory limits of Kafka's own scripts."""
    where = folder / name.replace(", ", "-").replace(" ", "-")
    cluster = KafkaCluster(where, settings={**_DELETED_AT_ONCE, **settings}, heap=SHIPPED_HEAP)
    with cluster:
        yield Target(name, cluster.bootstrap, cluster.nodes[0].pid)


def warm(target: Target, scale: float) -> None:
    """Produce some hundred megabytes to a broker, and consume them."""
    for load in _WARMING:
        given = replace(load, records=max(1, int(load.records * scale)))
        with topic_at(target, given.partitions) as topic:
            produce(target, topic, given)
            if target.name != MOCK and given.partitions == 1:
                consume_confluent(target, topic, given.records)


@contextlib.contextmanager
def topic_at(target: Target, partitions: int = 1) -> Iterator[str]:
    """Create a topic, and delete it at the end of the block. For the mock broker, the block instead
    uses one fixed topic, which is never deleted.
    """
    if target.name == MOCK:
        yield _MOCK_TOPIC
        return
    name = create_topic(target.bootstrap, partitions)
    try:
        yield name
    finally:
        delete_topic(target.bootstrap, name)


def rest(targets: Sequence[Target]) -> None:
    """Wait until all brokers are idle, but only a few seconds, so that the deletions of one broker
    do not slow down another."""
    end_s = time.monotonic() + _REST_S
    while time.monotonic() < end_s:
        before = [target.cpu_s() or 0.0 for target in targets]
        time.sleep(_LOOK_S)
        after = [target.cpu_s() or 0.0 for target in targets]
        if sum(after) - sum(before) < _AT_REST * _LOOK_S:
            return
