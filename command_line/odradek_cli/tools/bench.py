"""`odradek bench`: how fast a broker is, seen from our client.

The command works with any Kafka. It writes to a topic of its own, which it deletes at the end. The
benchmarks that compare Odradek with others are in the folder `benchmarks` of the project.
"""

from __future__ import annotations

import json
import random
import string
import sys
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from odradek_cli.commands import fail
from odradek_cli.common import (
    AsJson,
    ClientSettings,
    Compression,
    client_settings,
    connected,
    print_table,
    run,
)
from odradek_cli.options import argument, option
from odradek_cli.say import say
from odradek_protocol.records import native

if TYPE_CHECKING:
    from odradek_client.producer.batch import Delivery
    from odradek_client.producer.producer import Producer

#: The maximum number of deliveries that were not awaited yet. At this number, the oldest delivery
#: is awaited before the next send.
_UNCHECKED_MAX = 100_000
_LATENCY_RECORDS_MAX = 2_000
_WARM_UP_RECORDS = 20
_POLL_RECORDS = 5_000
_PATIENCE_MS = 30_000
#: The number of different values. They repeat, so that batches compress by a realistic ratio.
_VALUES = 64


class What(StrEnum):
    """The measurement to make."""

    PRODUCE = "produce"
    CONSUME = "consume"
    LATENCY = "latency"
    ALL = "all"


class Acks(StrEnum):
    """The brokers that must have a record before it counts as written (`acks`)."""

    ALL = "all"
    LEADER = "1"
    NOBODY = "0"


class Durability(StrEnum):
    """The durability that the temporary broker ensures before it acknowledges."""

    FSYNC = "fsync"
    PAGE_CACHE = "page-cache"


@dataclass(frozen=True)
class Load:
    """The records to send. `settings`: settings of the producer. `client`: settings of all
    clients.
    """

    records: int
    size_bytes: int
    partitions: int
    settings: dict[str, Any]
    client: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Throughput:
    """The throughput of producing or of consuming. MB are millions of bytes of values."""

    measured: str
    records: int
    seconds: float
    records_per_s: float
    mb_per_s: float

    @classmethod
    def of(cls, measured: str, load: Load, seconds: float) -> Throughput:
        rate = load.records / seconds
        return cls(measured, load.records, seconds, rate, rate * load.size_bytes / 1e6)


@dataclass(frozen=True)
class Latency:
    """The times from `send` to the acknowledgement, with one record in flight at a time."""

    measured: str
    records: int
    median_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, times_ms: Sequence[float]) -> Latency:
        ordered = sorted(times_ms)

        def at(share: float) -> float:
            return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

        return cls("latency", len(ordered), at(0.5), at(0.95), at(0.99), ordered[-1])


Result = Throughput | Latency


def _values(size_bytes: int) -> list[bytes]:
    letters = string.ascii_uppercase.encode()
    source = random.Random(size_bytes)
    return [bytes(source.choices(letters, k=size_bytes)) for _ in range(_VALUES)]


async def produce(bootstrap: str, topic: str, load: Load) -> Throughput:
    """Measure producing at the client's full speed, with every delivery checked."""
    from odradek_client.producer.producer import Producer

    values = _values(load.size_bytes)
    async with Producer(
        **load.client | load.settings | {"bootstrap_servers": bootstrap}
    ) as producer:
        await producer.partitions_for(topic)
        started = time.perf_counter()
        await _send_all(producer, topic, values, load.records)
        return Throughput.of("produce", load, time.perf_counter() - started)


async def _send_all(producer: Producer, topic: str, values: list[bytes], records: int) -> None:
    unchecked: deque[Delivery] = deque()
    for index in range(records):
        unchecked.append(await producer.send(topic, values[index % _VALUES]))
        if len(unchecked) >= _UNCHECKED_MAX:
            await unchecked.popleft()
    await producer.flush()
    for delivery in unchecked:
        delivery.result()


async def consume(bootstrap: str, topic: str, load: Load) -> Throughput:
    """Measure consuming all records of the topic."""
    from odradek_client.consumer.consumer import Consumer

    settings = load.client | {"bootstrap_servers": bootstrap}
    async with Consumer(auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([(topic, partition) for partition in range(load.partitions)])
        left = load.records
        started = time.perf_counter()
        while left > 0:
            found = await consumer.getmany(timeout_ms=_PATIENCE_MS, max_records=_POLL_RECORDS)
            count = sum(map(len, found.values()))
            if not count:
                fail(f"{left} of {load.records} records did not come within {_PATIENCE_MS} ms")
            left -= count
        return Throughput.of("consume", load, time.perf_counter() - started)


async def latency(bootstrap: str, topic: str, load: Load) -> Latency:
    """Measure records sent one after the other, each acknowledged before the next is sent."""
    from odradek_client.producer.producer import Producer

    values = _values(load.size_bytes)
    settings = load.client | load.settings | {"linger_ms": 0, "bootstrap_servers": bootstrap}
    times_ms = []
    async with Producer(**settings) as producer:
        for _ in range(_WARM_UP_RECORDS):
            await producer.send_and_wait(topic, values[0])
        for index in range(min(load.records, _LATENCY_RECORDS_MAX)):
            started = time.perf_counter()
            await producer.send_and_wait(topic, values[index % _VALUES])
            times_ms.append((time.perf_counter() - started) * 1000)
    return Latency.of(times_ms)


@asynccontextmanager
async def _own_topic(bootstrap: str, partitions: int, client: dict[str, Any]) -> AsyncIterator[str]:
    from odradek_client.admin import Admin, NewTopic

    name = f"odradek-bench-{uuid.uuid4().hex[:12]}"
    async with connected(Admin, client | {"bootstrap_servers": bootstrap}) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1)])
        try:
            yield name
        finally:
            await admin.delete_topics([name])


async def measure(bootstrap: str, what: What, load: Load) -> AsyncIterator[Result]:
    """Run the measurements on a temporary topic, and yield each result as soon as it is known."""
    if what is not What.LATENCY:
        async with _own_topic(bootstrap, load.partitions, load.client) as topic:
            _say(f"producing {load.records:,} records of {load.size_bytes:,} bytes")
            written = await produce(bootstrap, topic, load)
            if what is not What.CONSUME:
                yield written
            if what is not What.PRODUCE:
                _say("consuming them")
                yield await consume(bootstrap, topic, load)
    if what in (What.LATENCY, What.ALL):
        async with _own_topic(bootstrap, 1, load.client) as topic:
            _say("waiting for single records")
            yield await latency(bootstrap, topic, load)


def _check(settings: dict[str, Any]) -> None:
    """Refuse options that cannot be used together, before a broker is started."""
    from odradek_client.config.producer import ProducerConfig
    from odradek_client.errors import ConfigError

    try:
        ProducerConfig.from_settings(settings)
    except ConfigError as error:
        fail(str(error), 2)


def _say(text: str) -> None:
    if sys.stderr.isatty():
        say(f"{text} ...", err=True)


@contextmanager
def _broker(bootstrap: str | None, durability: Durability) -> Iterator[str]:
    """The address that the user gave, or that of a temporary broker."""
    if bootstrap is not None:
        yield bootstrap
        return
    from odradek_testkit.broker import Broker, BrokerFailed

    _say(f"starting a temporary broker (durability {durability.value})")
    try:
        with Broker.subprocess(settings={"log.durability": durability.value}) as broker:
            yield broker.bootstrap
    except BrokerFailed as error:
        fail(str(error))


def _print(results: list[Result]) -> None:
    throughputs = [each for each in results if isinstance(each, Throughput)]
    latencies = [each for each in results if isinstance(each, Latency)]
    if throughputs:
        print_table(
            ["MEASURED", "RECORDS", "SECONDS", "RECORDS/S", "MB/S"],
            [
                [
                    each.measured,
                    f"{each.records}",
                    f"{each.seconds:.2f}",
                    f"{each.records_per_s:.0f}",
                    f"{each.mb_per_s:.1f}",
                ]
                for each in throughputs
            ],
        )
    if latencies:
        if throughputs:
            say()
        print_table(
            ["MEASURED", "RECORDS", "MEDIAN-MS", "P95-MS", "P99-MS", "MAX-MS"],
            [
                [
                    each.measured,
                    f"{each.records}",
                    *(
                        f"{value:.3f}"
                        for value in (each.median_ms, each.p95_ms, each.p99_ms, each.max_ms)
                    ),
                ]
                for each in latencies
            ],
        )


def bench(
    what: Annotated[
        What, argument("WHAT", "What to measure: produce, consume, latency or all.")
    ] = What.ALL,
    bootstrap: Annotated[
        str | None,
        option(
            "--bootstrap -b HOST:PORT,...",
            "The brokers to measure, of any Kafka; without it a temporary broker is started.",
            envvar="ODRADEK_BOOTSTRAP",
            show_default=False,
        ),
    ] = None,
    records: Annotated[int, option("--records -n N", "Number of records.", min=1)] = 200_000,
    size_bytes: Annotated[int, option("--size BYTES", "Size of a value in bytes.", min=0)] = 100,
    partitions: Annotated[int, option("--partitions N", min=1, max=1000)] = 1,
    batch_size: Annotated[
        int, option("--batch-size BYTES", "Size of the producer's batches in bytes.", min=0)
    ] = 16_384,
    linger_ms: Annotated[int, option("--linger MS", "Maximum wait to fill a batch.", min=0)] = 5,
    acks: Annotated[
        Acks, option("--acks", "Acknowledgements; all makes the producer idempotent.")
    ] = Acks.ALL,
    compression: Compression = "none",
    durability: Annotated[
        Durability, option("--durability", "log.durability of the temporary broker.")
    ] = Durability.FSYNC,
    as_json: AsJson = False,
    setting: ClientSettings = None,
) -> None:
    """Measure a broker with our client: records a second, and the latency of single records.

    Writes to a topic of its own and deletes it at the end.
    """
    settings = {
        "batch_size": batch_size,
        "linger_ms": linger_ms,
        "acks": acks.value,
        "enable_idempotence": acks is Acks.ALL,
        "compression_type": compression,
    }
    _check(settings)
    client: dict[str, Any] = {}
    if bootstrap is not None:
        client = client_settings(bootstrap, setting)
    elif setting:
        fail("-X is for the broker of --bootstrap, and there is none", 2)
    load = Load(records, size_bytes, partitions, settings, client)
    results: list[Result] = []

    async def main(address: str) -> None:
        async for result in measure(address, what, load):
            results.append(result)
            if as_json:
                say(json.dumps(asdict(result)))

    with _broker(bootstrap, durability) as address:
        run(main(address), fast=True)
    if not as_json:
        _print(results)
        say(f"record codec: {native.describe()}", err=True)
