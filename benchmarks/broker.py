"""Comparison of our broker with librdkafka's mock broker, with confluent-kafka as client.

    python -m benchmarks.broker [--rounds 5] [--scale 1.0] [--only produce,consume,latency] [--json]

Produce: one producer, one partition, acks=all; failed deliveries are counted, and the log's end is
checked afterwards. The brokers take turns (ours, mock, ours, mock ...), and each pair of rounds
gives a ratio. The table has the median and the range of the ratios. Further columns help to find
the limiting factor: the broker's processor time for a request, the size of requests, and the load
of broker and client.

Consume: the same topic is read by confluent-kafka, and by a loop over a bare socket that sends a
Fetch and reads the answer without decoding records. The mock is not measured, because it keeps too
few records.

Latency: single records, each acknowledged before the next is produced; acks=all, no linger.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from benchmarks.support import (
    CORES,
    Report,
    Spread,
    Target,
    cpu_s,
    idle_s,
    mock_broker,
    odradek_broker,
    parser,
    per,
    percentile,
    say,
    shown,
)
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import Message, NewTopic

from odradek_protocol import frames
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

DURABILITIES = ("page-cache", "fsync")
TARGET_RATIO = {"page-cache": 0.7, "fsync": 0.6}
TARGET_SYNC_MS = 0.2
_FLUSH_S = 120
_BUSY = 0.9
_IDLE = 0.1
_LARGE_BATCH = 100_000
_FETCH_VERSION = 11
_FETCH_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Load:
    """The load of one row: the sizes and the numbers of records, batches and partitions."""

    record_bytes: int
    batch_bytes: int
    idempotent: bool
    records: int
    partitions: int = 1

    def __str__(self) -> str:
        records = "1 KB" if self.record_bytes == 1000 else f"{self.record_bytes} B"
        batches = "1 MB" if self.batch_bytes == 1_000_000 else "16 KB"
        text = f"{records} in {batches}" + (", idempotent" if self.idempotent else "")
        return text + (f", {self.partitions} partitions" if self.partitions > 1 else "")


#: Partitions of the rows that show the throughput of an idempotent producer. With one partition
#: they would show latency, because librdkafka's idempotent producer has only one request in flight
#: to a partition (librdkafka pull request 4989). The mock broker creates the same number.
_PARTITIONS = 4


def _loads() -> Iterator[Load]:
    for record_bytes, records in ((1000, 200_000), (100, 800_000)):
        for batch_bytes in (1_000_000, 16_384):
            yield Load(record_bytes, batch_bytes, False, records)
            yield Load(record_bytes, batch_bytes, True, records)
            if batch_bytes == 16_384:
                yield Load(record_bytes, batch_bytes, True, records, _PARTITIONS)


LOADS = tuple(_loads())


@dataclass(frozen=True)
class Measured:
    """The result of one run against one broker."""

    mb_per_s: float
    wall_s: float
    client_cpu_s: float
    broker_cpu_s: float | None
    requests: int | None
    #: The idle fraction of the time of all cores.
    idle: float | None

    def busy(self, cpu: float | None) -> float | None:
        return None if cpu is None else cpu / self.wall_s


class Failures:
    """Counts failed deliveries; librdkafka reports them only to this callback."""

    def __init__(self) -> None:
        self.count = 0
        self.last = ""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.count += 1
            self.last = str(error)


def create_topic(bootstrap: str, partitions: int = 1) -> str:
    """Create a topic. Returns its name."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    # The client must stay alive until it has resolved the future.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([name])[name].result(30)


# --- Produce --------------------------------------------------------------------------------------


def produce(target: Target, topic: str, load: Load) -> Measured:
    """Produce the records of one row. Raises SystemExit if a record was not delivered."""
    failures = Failures()
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "acks": "all",
            "enable.idempotence": load.idempotent,
            "linger.ms": 5,
            "batch.size": load.batch_bytes,
            "batch.num.messages": 1_000_000,
            "message.max.bytes": 2_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
            "log_level": 0,
        }
    )
    value = os.urandom(load.record_bytes)
    send = producer.produce
    # The first records are not measured, because they wait for connections, metadata and the
    # producer id.
    partitions = load.partitions
    for partition in range(partitions):
        send(topic, value, partition=partition, on_delivery=failures)
    producer.flush(_FLUSH_S)
    requests = target.requests("Produce")
    broker_cpu, client_cpu, idle = target.cpu_s(), time.process_time(), idle_s()
    started = time.perf_counter()
    for index in range(load.records):
        send(topic, value, partition=index % partitions, on_delivery=failures)
        if index % 1000 == 0:
            producer.poll(0)
    left = producer.flush(_FLUSH_S)
    wall_s = time.perf_counter() - started
    client_cpu = time.process_time() - client_cpu
    after, idle_after = target.cpu_s(), idle_s()
    answered = target.requests("Produce")
    if left or failures.count:
        raise SystemExit(
            f"{target.name}, {load}: {left} not sent, {failures.count} failed: {failures.last}"
        )
    return Measured(
        load.records * load.record_bytes / wall_s / 1e6,
        wall_s,
        client_cpu,
        None if after is None or broker_cpu is None else after - broker_cpu,
        None if answered is None or requests is None else answered - requests,
        None if idle is None or idle_after is None else (idle_after - idle) / wall_s / CORES,
    )


def check_end(target: Target, topic: str, load: Load, runs: int = 1) -> None:
    """Check that the topic has exactly the records of `runs` runs and their warm-ups. Raises
    SystemExit."""
    consumer = Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": "benchmark", "log_level": 0}
    )
    found = 0
    try:
        for partition in range(load.partitions):
            where = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(where, timeout=30)
            found += high - low
    finally:
        consumer.close()
    if found != runs * (load.records + load.partitions):
        raise SystemExit(f"{target.name}, {load}: the topic has {found} records")


def limit_of(load: Load, ours: list[Measured]) -> str:
    """The limiting factor of our runs as text, found from the load of broker and client."""
    if load.idempotent and load.partitions == 1 and load.batch_bytes < _LARGE_BATCH:
        # librdkafka spins while it waits, so its processor time does not show the limit.
        return "one request at a time"
    broker = statistics.median(each.busy(each.broker_cpu_s) or 0.0 for each in ours)
    client = statistics.median(each.client_cpu_s / each.wall_s for each in ours)
    if broker >= _BUSY:
        return "broker CPU"
    if client >= _BUSY * (os.cpu_count() or 1) / 2 and client >= 2 * broker:
        return "client CPU"
    if statistics.median(each.idle or 0.0 for each in ours) < _IDLE:
        return "all cores"
    return "waiting for disk or answers"


def measure_produce(report: Report, durability: str, rounds: int, scale: float) -> None:
    """Measure producing, and print the table. `durability`: that of our broker."""
    report.table(
        f"Produce, {durability} (target: at least {TARGET_RATIO[durability]} of the mock)",
        (
            "records",
            "ours MB/s",
            "mock MB/s",
            "ours / mock",
            "broker CPU us/request",
            "KB/request",
            "broker busy",
            "client busy",
            "mock busy",
            "limit",
        ),
    )
    for wanted in LOADS:
        load = replace(wanted, records=int(wanted.records * scale))
        say(f"produce, {durability}, {load}")
        ours: list[Measured] = []
        mocks: list[Measured] = []
        with odradek_broker(durability) as broker, mock_broker() as mock:
            for _ in range(rounds + 1):
                topic = create_topic(broker.bootstrap, load.partitions)
                ours.append(produce(broker, topic, load))
                check_end(broker, topic, load)
                delete_topic(broker.bootstrap, topic)
                mocks.append(produce(mock, "bench", load))
        # The first pair of runs is a warm-up.
        report_produce(report, load, durability, ours[1:], mocks[1:])


def report_produce(
    report: Report, load: Load, durability: str, ours: list[Measured], mocks: list[Measured]
) -> None:
    """Print one row."""
    ratio = Spread.of([a.mb_per_s / b.mb_per_s for a, b in zip(ours, mocks, strict=True)])
    requests = statistics.median(each.requests or 0 for each in ours)
    total_cpu = sum(each.broker_cpu_s or 0.0 for each in ours)
    request_us = per(total_cpu, sum(each.requests or 0 for each in ours))
    total_bytes = load.records * load.record_bytes
    request_kb = total_bytes / requests / 1000 if requests else None
    rate, mock_rate = (statistics.median(each.mb_per_s for each in some) for some in (ours, mocks))
    broker_busy, mock_busy = (
        statistics.median(each.busy(each.broker_cpu_s) or 0.0 for each in some)
        for some in (ours, mocks)
    )
    client_busy = statistics.median(each.client_cpu_s / each.wall_s for each in ours)
    limit = limit_of(load, ours)
    met = ratio.median >= TARGET_RATIO[durability]
    report.row(
        (
            str(load),
            f"{rate:,.0f}",
            f"{mock_rate:,.0f}",
            f"{ratio}" + ("" if met else " **missed**"),
            shown(request_us),
            shown(request_kb, ",.1f"),
            f"{broker_busy:.0%}",
            f"{client_busy:.0%}",
            f"{mock_busy:.0%}",
            limit,
        ),
        durability=durability,
        ours_mb_per_s=round(rate, 1),
        mock_mb_per_s=round(mock_rate, 1),
        ratio=round(ratio.median, 3),
        ratio_low=round(ratio.low, 3),
        ratio_high=round(ratio.high, 3),
        met=met,
        broker_cpu_us_per_request=request_us,
        request_kb=request_kb,
        broker_busy=round(broker_busy, 3),
        client_busy=round(client_busy, 3),
        mock_busy=round(mock_busy, 3),
        limit=limit,
    )


# --- Consume --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """The clocks at one moment."""

    wall_s: float
    client_cpu_s: float
    broker_cpu_s: float
    requests: int

    @classmethod
    def now(cls, target: Target) -> Mark:
        return cls(
            time.perf_counter(),
            time.process_time(),
            target.cpu_s() or 0.0,
            target.requests("Fetch") or 0,
        )


def consume_confluent(target: Target, topic: str, records: int) -> tuple[Mark, Mark]:
    """Consume all records, including their values. The time is measured from the first record to
    the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "check.crcs": False,
            # librdkafka pauses for a second when this number of records waits for the application.
            # The number is so high that no pause occurs.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_048_576,
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        started, left = Mark.now(target), records
        while left > 0:
            found = consumer.consume(min(left, 10_000) if left < records else 1, 30.0)
            if left == records:
                started = Mark.now(target)
            if not found:
                raise SystemExit(f"{target.name}: {left} records did not come")
            for message in found:
                if message.error():
                    raise SystemExit(f"{target.name}: {message.error()}")
                message.value()
            left -= len(found)
        return started, Mark.now(target)
    finally:
        consumer.close()


def consume_raw(target: Target, topic: str, records: int) -> tuple[Mark, Mark]:
    """Send Fetch requests for up to 1 MB, one at a time, and parse only the headers of batches."""
    api = APIS[ApiKey.FETCH]
    host, _, port = target.bootstrap.rpartition(":")
    buffer = bytearray(_FETCH_BYTES + 65_536)
    view = memoryview(buffer)
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        offset, started = 0, Mark.now(target)
        while offset < records:
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                topics=[
                    FetchTopic(
                        topic=topic,
                        partitions=[
                            FetchPartition(
                                partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
                            )
                        ],
                    )
                ],
            )
            parts = frames.encode_request(request, _FETCH_VERSION, 1, "raw")
            connection.sendall(b"".join(parts))
            _receive(connection, view[:4])
            size = int.from_bytes(view[:4], "big")
            _receive(connection, view[:size])
            answer = frames.decode_response(api, _FETCH_VERSION, view[:size])
            assert isinstance(answer, FetchResponse)
            partition = answer.responses[0].partitions[0]
            if partition.error_code or not partition.records:
                raise SystemExit(f"error {partition.error_code} at offset {offset}")
            for _, header in iter_batches(partition.records):
                offset = header.next_offset
        return started, Mark.now(target)


def _receive(connection: socket.socket, into: memoryview) -> None:
    got = 0
    while got < len(into):
        count = connection.recv_into(into[got:])
        if not count:
            raise SystemExit("the broker closed the connection")
        got += count


Reader = Callable[[Target, str, int], tuple[Mark, Mark]]


def _consumed(read: Reader, target: Target, topic: str, load: Load) -> Measured:
    began, ended = read(target, topic, load.records)
    wall_s = ended.wall_s - began.wall_s
    return Measured(
        load.records * load.record_bytes / wall_s / 1e6,
        wall_s,
        ended.client_cpu_s - began.client_cpu_s,
        ended.broker_cpu_s - began.broker_cpu_s,
        ended.requests - began.requests,
        None,
    )


def measure_consume(report: Report, rounds: int, scale: float) -> None:
    """Measure reading from the page cache, and print the table."""
    report.table(
        "Consume",
        (
            "records",
            "confluent-kafka MB/s",
            "raw socket MB/s",
            "confluent / raw",
            "broker CPU us/fetch, confluent",
            "raw",
            "KB/fetch, confluent",
            "raw",
            "broker busy, confluent",
            "raw",
        ),
    )
    readers: dict[str, Reader] = {"confluent": consume_confluent, "raw": consume_raw}
    for wanted in (each for each in LOADS if not each.idempotent):
        load = replace(wanted, records=int(wanted.records * scale))
        say(f"consume, {load}")
        runs: dict[str, list[Measured]] = {name: [] for name in readers}
        with odradek_broker("page-cache") as broker:
            topic = create_topic(broker.bootstrap)
            produce(broker, topic, load)
            for _ in range(rounds + 1):
                for name, read in readers.items():
                    runs[name].append(_consumed(read, broker, topic, load))
        found, raw = (some[1:] for some in runs.values())
        ratio = Spread.of([a.mb_per_s / b.mb_per_s for a, b in zip(found, raw, strict=True)])
        cells = [str(load)]
        numbers: dict[str, float | None] = {}
        rates, costs, sizes, busy = [], [], [], []
        for name, some in (("confluent", found), ("raw", raw)):
            rate = statistics.median(each.mb_per_s for each in some)
            count = sum(each.requests or 0 for each in some)
            cost = per(sum(each.broker_cpu_s or 0.0 for each in some), count)
            size = load.records * load.record_bytes * len(some) / count / 1000 if count else None
            share = statistics.median(each.busy(each.broker_cpu_s) or 0.0 for each in some)
            rates.append(f"{rate:,.0f}")
            costs.append(shown(cost))
            sizes.append(shown(size, ",.0f"))
            busy.append(f"{share:.0%}")
            numbers[f"{name}_mb_per_s"] = round(rate, 1)
            numbers[f"{name}_broker_cpu_us_per_fetch"] = cost
            numbers[f"{name}_fetch_kb"] = size
        report.row(
            [*cells, *rates, str(ratio), *costs, *sizes, *busy], ratio=ratio.median, **numbers
        )


# --- Latency --------------------------------------------------------------------------------------


def latencies_ms(producer: Producer, topic: str, count: int) -> list[float]:
    """The latencies of single records in milliseconds; each record is acknowledged before the next
    is sent."""
    value = os.urandom(100)
    out = []
    for _ in range(count):
        started = time.perf_counter()
        producer.produce(topic, value, partition=0)
        producer.flush(_FLUSH_S)
        out.append((time.perf_counter() - started) * 1000)
    return out


def disk_sync_ms(count: int = 200) -> list[float]:
    """The time in milliseconds in which the disk of the data directory writes 200 bytes and syncs
    them (fdatasync)."""
    out = []
    sync = getattr(os, "fdatasync", os.fsync)
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(count):
            started = time.perf_counter()
            os.write(file.fileno(), bytes(200))
            sync(file.fileno())
            out.append((time.perf_counter() - started) * 1000)
    return out


def measure_latency(report: Report, rounds: int, scale: float) -> None:
    """Measure the latency of single records, and print the table."""
    say("latency")
    report.table(
        f"One acknowledged record of 100 B (target: under {TARGET_SYNC_MS} ms with page-cache)",
        ("broker", "median ms", "p99 ms", "lowest median of a round", "broker CPU us/record"),
    )
    count = max(50, int(500 * scale))
    found: dict[str, list[list[float]]] = {}
    cost: dict[str, float] = {}
    with (
        odradek_broker("page-cache") as page_cache,
        odradek_broker("fsync") as fsync,
        mock_broker() as mock,
    ):
        producers = {
            target: Producer(
                {
                    "bootstrap.servers": target.bootstrap,
                    "acks": "all",
                    "linger.ms": 0,
                    "log_level": 0,
                }
            )
            for target in (page_cache, fsync, mock)
        }
        topics = {
            target: "bench" if target is mock else create_topic(target.bootstrap)
            for target in producers
        }
        for target, producer in producers.items():
            latencies_ms(producer, topics[target], 50)
        for _ in range(rounds):
            for target, producer in producers.items():
                before = cpu_s(target.pid) or 0.0
                found.setdefault(target.name, []).append(
                    latencies_ms(producer, topics[target], count)
                )
                spent = (cpu_s(target.pid) or 0.0) - before
                cost[target.name] = cost.get(target.name, 0.0) + spent
            found.setdefault("the disk alone", []).append(disk_sync_ms())
    for name, parts in found.items():
        every = [each for part in parts for each in part]
        median, p99 = percentile(every, 0.5), percentile(every, 0.99)
        lowest = min(percentile(part, 0.5) for part in parts)
        record_us = per(cost.get(name), len(every))
        met = name != "page-cache" or median < TARGET_SYNC_MS
        report.row(
            (
                name if name in ("mock", "the disk alone") else f"ours, {name}",
                f"{median:.3f}" + ("" if met else " **missed**"),
                f"{p99:.3f}",
                f"{lowest:.3f}",
                shown(record_us),
            ),
            median_ms=round(median, 4),
            p99_ms=round(p99, 4),
            broker_cpu_us=record_us,
            met=met,
        )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5, help="pairs that count")
    options.add_argument("--scale", type=float, default=1.0, help="of the number of records")
    options.add_argument("--only", default="produce,consume,latency", help="parts, with commas")
    arguments = options.parse_args()
    wanted = [part.strip() for part in arguments.only.split(",")]
    report = Report("broker", as_json=arguments.json)
    report.machine()
    if "produce" in wanted:
        for durability in DURABILITIES:
            measure_produce(report, durability, arguments.rounds, arguments.scale)
    if "consume" in wanted:
        measure_consume(report, arguments.rounds, arguments.scale)
    if "latency" in wanted:
        measure_latency(report, arguments.rounds, arguments.scale)


if __name__ == "__main__":
    main()
