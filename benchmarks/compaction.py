"""Costs of compaction, at our broker and at Kafka: the speed of cleaning, and the waits of other
clients.

    python -m benchmarks.compaction [--gigabytes 5] [--rounds 1] [--no-kafka] [--json]

A topic of one partition is filled with records of 1 KB, two for each key on average, in segments of
64 MB, while settings keep compaction from starting. Then compaction is allowed, and the time is
measured until `cleaner-offset-checkpoint` shows that all closed segments are clean. The benchmark
reads this file once a second. Before and during compaction, one client sends Metadata requests, and
another client sends single records to another topic with acks=all. Both send 200 requests a second.

The brokers take turns: ours with each durability, and Kafka from its jars, if Java and jars (or
Maven) are installed. The last table is for our broker on asyncio's own loop, and names the
callbacks that blocked the loop longest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.loop_watch import LIMIT_MS, Held, watched_broker
from benchmarks.support import Report, parser, percentile, run_on_uvloop, say

from odradek import Admin, NewTopic
from odradek.broker import SubprocessBroker
from odradek_client.admin import ConfigResource
from odradek_protocol.message import Message
from odradek_protocol.records.builder import simple_batch
from odradek_protocol.schemas.metadata import MetadataRequest
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from kafka_cluster import KafkaCluster, KafkaUnavailable, class_path, java
from raw_client import RawClient

_TOPIC, _OTHER = "compacted", "other"
_SEGMENT_BYTES = 64_000_000
_VALUE_BYTES = 1_000
_PERIOD_S = 0.005
_BEFORE_S = 5.0
_CLEANING_MAX_S = 3_600.0
_SETTINGS: dict[str, object] = {"log.cleaner.backoff.ms": 100, "log.segment.bytes": _SEGMENT_BYTES}
#: The last version with topic names.
_PRODUCE_VERSION = 12


@dataclass(frozen=True)
class Side:
    """A running broker with its data directory."""

    name: str
    bootstrap: str
    data_dir: Path

    def cleaned_to(self) -> int:
        """The offset up to which the topic is clean, -1 before the first cleaning."""
        try:
            lines = (self.data_dir / "cleaner-offset-checkpoint").read_text().splitlines()
        except FileNotFoundError:
            return -1
        found = [line.split() for line in lines[2:]]
        return next((int(words[2]) for words in found if words[:2] == [_TOPIC, "0"]), -1)

    def segments(self) -> list[tuple[int, int]]:
        """(base offset, bytes) of each segment, oldest first."""
        paths = sorted((self.data_dir / f"{_TOPIC}-0").glob("*.log"))
        return [(int(path.stem), path.stat().st_size) for path in paths]


@dataclass(frozen=True)
class Waits:
    """The times from requests to their answers, in milliseconds."""

    produce_ms: list[float]
    metadata_ms: list[float]


@dataclass(frozen=True)
class Measured:
    """The result of one cleaning."""

    size_bytes: int
    left_bytes: int
    seconds: float
    before: Waits
    meanwhile: Waits


# --- Brokers --------------------------------------------------------------------------------------


@contextlib.contextmanager
def ours(durability: str) -> Iterator[Side]:
    """Our broker with this durability, in a separate process."""
    settings = {**_SETTINGS, "log.durability": durability}
    with SubprocessBroker(settings=settings) as broker:
        yield Side(f"odradek, {durability}", broker.bootstrap, broker.data_dir)


@contextlib.contextmanager
def kafka() -> Iterator[Side]:
    """Apache Kafka, one node."""
    given = {key: str(value) for key, value in _SETTINGS.items()}
    with (
        tempfile.TemporaryDirectory() as folder,
        KafkaCluster(Path(folder), settings=given) as cluster,
    ):
        yield Side("Apache Kafka", cluster.bootstrap, cluster.nodes[0].data_dir)


def kafka_is_there() -> bool:
    """True if Kafka can be started; prints the reason if not."""
    try:
        java()
        class_path()
    except KafkaUnavailable as missing:
        say(f"without Apache Kafka: {missing}")
        return False
    return True


# --- One cleaning ---------------------------------------------------------------------------------


async def _set_ratio(bootstrap: str, ratio: float) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.alter_configs(
            {ConfigResource.topic(_TOPIC): {"min.cleanable.dirty.ratio": str(ratio)}}
        )


async def _create(bootstrap: str) -> None:
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(_TOPIC, 1, 1, configs=compacted)])
        await admin.create_topics([NewTopic(_OTHER, 1, 1)])


def fill(bootstrap: str, size_bytes: int) -> None:
    """Produce random keys. Raises SystemExit if a record was refused."""
    from confluent_kafka import KafkaError, Producer

    failed: list[str] = []

    def told(error: KafkaError | None, message: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "log_level": 0,
        }
    )
    chance = random.Random(1)
    count = size_bytes // _VALUE_BYTES
    value = chance.randbytes(_VALUE_BYTES)
    for number in range(count):
        key = b"a key of 24 bytes %06x" % chance.randrange(max(1, count // 2))
        while True:
            try:
                producer.produce(_TOPIC, value, key, partition=0, on_delivery=told)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 100:
            producer.poll(0)
    if producer.flush(60) or failed:
        raise SystemExit(f"not delivered: {failed[:1]}")


async def _ask(bootstrap: str, make: Callable[[], Message], version: int, out: list[float]) -> None:
    """Send requests one by one. Each request is sent when it is due, but not before the previous
    request is answered.
    """
    host, _, port = bootstrap.rpartition(":")
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    due_s = time.perf_counter()
    try:
        while True:
            began_s = time.perf_counter()
            await client.call(make(), version)
            out.append((time.perf_counter() - began_s) * 1000)
            due_s = max(due_s + _PERIOD_S, time.perf_counter())
            await asyncio.sleep(due_s - time.perf_counter())
    finally:
        client.close()


def _produce() -> ProduceRequest:
    data = PartitionProduceData(
        index=0, records=simple_batch([(b"k", b"v")], int(time.time() * 1000))
    )
    topic = TopicProduceData(name=_OTHER, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


@contextlib.asynccontextmanager
async def _others(bootstrap: str) -> AsyncIterator[Waits]:
    waits = Waits([], [])
    tasks = [
        asyncio.ensure_future(_ask(bootstrap, _produce, _PRODUCE_VERSION, waits.produce_ms)),
        asyncio.ensure_future(_ask(bootstrap, MetadataRequest, 12, waits.metadata_ms)),
    ]
    try:
        yield waits
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


async def measure(side: Side, size_bytes: int, began: Callable[[], None]) -> Measured:
    """Fill the topic and measure its cleaning. `began` is called when compaction is allowed to
    start."""
    await _create(side.bootstrap)
    await asyncio.to_thread(fill, side.bootstrap, size_bytes)
    *closed, (active, _) = side.segments()
    async with _others(side.bootstrap) as before:
        await asyncio.sleep(_BEFORE_S)
    async with _others(side.bootstrap) as meanwhile:
        began()
        began_s = time.perf_counter()
        await _set_ratio(side.bootstrap, 0.01)
        while side.cleaned_to() < active:
            if time.perf_counter() - began_s > _CLEANING_MAX_S:
                raise SystemExit(f"{side.name} did not clean the topic in {_CLEANING_MAX_S:g} s")
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - began_s
    left_bytes = sum(size for base, size in side.segments() if base < active)
    return Measured(sum(size for _, size in closed), left_bytes, seconds, before, meanwhile)


# --- Tables ---------------------------------------------------------------------------------------


def _waits(values: Sequence[float]) -> str:
    return f"{percentile(values, 0.5):.2f} / {percentile(values, 0.99):.2f} / {max(values):.1f}"


def report_side(report: Report, side: Side, found: Measured) -> None:
    """Print one row."""
    columns = [
        *(found.before.produce_ms, found.meanwhile.produce_ms),
        *(found.before.metadata_ms, found.meanwhile.metadata_ms),
    ]
    speed = found.size_bytes / found.seconds / 1e6
    kept = found.left_bytes / found.size_bytes
    names = ("produce_before", "produce_meanwhile", "metadata_before", "metadata_meanwhile")
    report.row(
        [side.name, f"{speed:.1f}", f"{found.seconds:.1f}", f"{kept:.2f}", *map(_waits, columns)],
        megabytes_per_second=speed,
        seconds=found.seconds,
        kept=kept,
        **{
            f"{name}_p50_ms": percentile(each, 0.5)
            for name, each in zip(names, columns, strict=True)
        },
        **{
            f"{name}_p99_ms": percentile(each, 0.99)
            for name, each in zip(names, columns, strict=True)
        },
        **{f"{name}_max_ms": max(each) for name, each in zip(names, columns, strict=True)},
    )


def report_loop(report: Report, held: dict[str, Held], at_most: int = 12) -> None:
    """Print the callbacks that blocked the loop longest."""
    report.table(
        f"What holds up the loop meanwhile (ms; the limit is {LIMIT_MS:g})",
        ["callback", "calls", "longest, processor", "longest, clock", "beyond the limit"],
    )
    longest = sorted(held.items(), key=lambda item: -item[1].longest_cpu_ms)
    for name, entry in longest[:at_most]:
        report.row(
            [
                f"`{name}`",
                f"{entry.calls:,}",
                f"{entry.longest_cpu_ms:.2f}",
                f"{entry.longest_ms:.2f}",
                str(entry.beyond_limit),
            ],
            calls=entry.calls,
            longest_cpu_ms=entry.longest_cpu_ms,
            longest_ms=entry.longest_ms,
            beyond_limit=entry.beyond_limit,
        )


def _run(arguments: argparse.Namespace) -> None:
    report = Report("compaction", as_json=arguments.json)
    report.machine()
    size_bytes = int(arguments.gigabytes * 1e9)
    sides: list[Callable[[], contextlib.AbstractContextManager[Side]]] = [
        lambda: ours("page-cache"),
        lambda: ours("fsync"),
    ]
    if arguments.kafka and kafka_is_there():
        sides.append(kafka)
    waits = "p50 / p99 / longest, ms"
    report.table(
        f"Compaction of {arguments.gigabytes:g} GB, and what others wait for ({waits})",
        [
            *("broker", "MB/s", "seconds", "kept"),
            *("Produce before", "Produce meanwhile", "Metadata before", "Metadata meanwhile"),
        ],
    )
    for number in range(arguments.rounds):
        for make in sides:
            with make() as side:
                say(f"{side.name}, round {number + 1}")
                report_side(report, side, run_on_uvloop(measure(side, size_bytes, lambda: None)))
    with watched_broker({**_SETTINGS, "log.durability": "fsync"}) as watched:
        say("what holds up the loop")
        side = Side("watched", watched.bootstrap, watched.data_dir)
        try:
            run_on_uvloop(measure(side, size_bytes, watched.begin))
        finally:
            held = watched.end()
    report_loop(report, held)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--gigabytes", type=float, default=5.0)
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--no-kafka", dest="kafka", action="store_false", help="ours alone")
    _run(options.parse_args())


if __name__ == "__main__":
    main()
