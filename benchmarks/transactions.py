"""Costs of transactions: for the records in them, for a commit, and in memory when idle.

    python -m benchmarks.transactions [--rounds 5] [--transactions 100] [--ids 100000]
        [--only cost,latency,memory] [--json]

Cost: transactions of 1,000 records of 100 B, one after the other, are compared with the same
records from a producer that is only idempotent, and waits after every 1,000 records; both take
turns in every round. Latency: the transaction's single record is flushed first, and then only the
commit is measured. Our client uses transactions v2, confluent-kafka v1. Memory: the growth of the
broker's memory for each idle producer id that has written one batch, and for each idle
transactional id that was initialised. The row with librdkafka's own mock
broker shows the time that librdkafka itself takes: it sends AddPartitionsToTxn only a millisecond
or two after the first use of a partition.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Iterable

from benchmarks.clients import topic_with
from benchmarks.support import (
    Report,
    Spread,
    mock_broker,
    odradek_broker,
    parser,
    percentile,
    resident_bytes,
    run_on_uvloop,
    say,
)

from odradek_protocol import frames
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_protocol.records.builder import BatchBuilder
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

RECORDS = 1_000
VALUE = bytes(range(100))
COST_TARGET = 1.3
MEMORY_TARGET_BYTES = 1_000
DURABILITIES = ("page-cache", "fsync")
#: The number of requests that are sent before their answers are read.
_WINDOW = 200
#: A version of Produce that has topic names, and that every current client supports.
_PRODUCE_VERSION = 9
_SETTLE_S = 0.5
#: The first producer id that the benchmark uses. A new broker assigns only smaller producer ids.
_FIRST_PRODUCER_ID = 1_000_000


class OdradekRun:
    """Runs with our client. A run measures the seconds of `count` rounds of records, with or
    without transactions.
    """

    name = "odradek (v2)"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def transactional(self, topic: str, count: int, records: int) -> tuple[float, list[float]]:
        """(seconds of all rounds together, seconds of each commit)"""
        return run_on_uvloop(self._run(topic, count, records, transactional=True))

    def plain(self, topic: str, count: int, records: int) -> float:
        return run_on_uvloop(self._run(topic, count, records, transactional=False))[0]

    async def _run(
        self, topic: str, count: int, records: int, *, transactional: bool
    ) -> tuple[float, list[float]]:
        from odradek import Producer

        commits = []
        identity = f"cost-{topic}" if transactional else None
        async with Producer(
            bootstrap_servers=self._bootstrap, transactional_id=identity
        ) as producer:
            if transactional:
                await producer.init_transactions()
            for number in range(-1, count):
                if number == 0:
                    started = time.perf_counter()
                if transactional:
                    await producer.begin_transaction()
                sent = [await producer.send(topic, VALUE, partition=0) for _ in range(records)]
                await producer.flush()
                if transactional:
                    asked = time.perf_counter()
                    await producer.commit_transaction()
                    commits.append(time.perf_counter() - asked)
                for delivery in sent:
                    delivery.result()
            return time.perf_counter() - started, commits[1:]


class ConfluentRun:
    """The runs of `OdradekRun`, but with librdkafka."""

    name = "confluent-kafka (v1)"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def transactional(self, topic: str, count: int, records: int) -> tuple[float, list[float]]:
        return self._run(topic, count, records, transactional=True)

    def plain(self, topic: str, count: int, records: int) -> float:
        return self._run(topic, count, records, transactional=False)[0]

    def _run(
        self, topic: str, count: int, records: int, *, transactional: bool
    ) -> tuple[float, list[float]]:
        import confluent_kafka

        settings: dict[str, object] = {
            "bootstrap.servers": self._bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
        }
        if transactional:
            settings["transactional.id"] = f"cost-{topic}"
        producer = confluent_kafka.Producer(settings)
        if transactional:
            producer.init_transactions(30)
        failed: list[object] = []

        def told(error: object, message: object) -> None:
            if error is not None:
                failed.append(error)

        commits = []
        for number in range(-1, count):
            if number == 0:
                started = time.perf_counter()
            if transactional:
                producer.begin_transaction()
            for _ in range(records):
                producer.produce(topic, VALUE, partition=0, on_delivery=told)
            if producer.flush(30):
                raise SystemExit("not delivered within 30 seconds")
            if transactional:
                asked = time.perf_counter()
                producer.commit_transaction(30)
                commits.append(time.perf_counter() - asked)
        took = time.perf_counter() - started
        if failed:
            raise SystemExit(f"a record failed: {failed[0]}")
        return took, commits[1:]


RUNS: tuple[Callable[[str], OdradekRun | ConfluentRun], ...] = (OdradekRun, ConfluentRun)


def cost(report: Report, rounds: int, count: int) -> None:
    """Measure the cost. The runs take turns (plain, transactional, plain, ...), and each round
    gives one ratio."""
    report.table(
        f"Cost of a transaction of {RECORDS:,} records of {len(VALUE)} B "
        f"(target, our client and page-cache: at most {COST_TARGET} x)",
        ("client, durability", "ms with", "ms without", "with / without"),
    )
    for durability in DURABILITIES:
        with odradek_broker(durability, metrics=False) as target:
            for each in RUNS:
                run = each(target.bootstrap)
                aimed = durability == "page-cache" and each is OdradekRun
                cost_row(report, run, durability, rounds, count, aimed=aimed)
    with mock_broker() as target:
        cost_row(report, ConfluentRun(target.bootstrap), "librdkafka's mock", rounds, count)


def cost_row(
    report: Report,
    run: OdradekRun | ConfluentRun,
    where: str,
    rounds: int,
    count: int,
    *,
    aimed: bool = False,
) -> None:
    say(f"cost, {run.name}, {where}")
    found = []
    for number in range(rounds):
        topic = f"cost-{number}"
        without = run.plain(topic, count, RECORDS)
        found.append((run.transactional(topic, count, RECORDS)[0], without))
    ratio = Spread.of([with_ / without for with_, without in found])
    missed = aimed and ratio.median > COST_TARGET
    with_ms, without_ms = (
        statistics.median(each) / count * 1e3 for each in zip(*found, strict=True)
    )
    report.row(
        (
            f"{run.name}, {where}",
            f"{with_ms:.2f}",
            f"{without_ms:.2f}",
            f"{ratio}{' **missed**' if missed else ''}",
        ),
        with_ms=with_ms,
        without_ms=without_ms,
        ratio=ratio.median,
        ratio_low=ratio.low,
        ratio_high=ratio.high,
        met=not missed,
    )


def latency(report: Report, count: int) -> None:
    """Measure only the latency of the commit."""
    report.table(
        "Commit of a transaction of one record that was flushed, ms",
        ("client, durability", "median", "99 %", "most"),
    )
    for durability in DURABILITIES:
        with odradek_broker(durability, metrics=False) as target:
            for run in [each(target.bootstrap) for each in RUNS]:
                say(f"latency, {run.name}, {durability}")
                topic = topic_with(target.bootstrap, 1)
                commits = [each * 1e3 for each in run.transactional(topic, count, 1)[1]]
                middle, late = statistics.median(commits), percentile(commits, 0.99)
                report.row(
                    (
                        f"{run.name}, {durability}",
                        f"{middle:.2f}",
                        f"{late:.2f}",
                        f"{max(commits):.2f}",
                    ),
                    median_ms=middle,
                    p99_ms=late,
                    most_ms=max(commits),
                )


class RawConnection:
    """A connection that sends many requests without waiting for each answer."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._answers = self._socket.makefile("rb")
        self._next_id = 0

    def close(self) -> None:
        self._answers.close()
        self._socket.close()

    def all_of(
        self, requests: Iterable[Message], version: int, code: Callable[[Message], int]
    ) -> None:
        """Send all requests. Every one must be answered with error code 0."""
        waiting = []
        for request in requests:
            waiting.append(api_of(request))
            parts = frames.encode_request(request, version, self._next_id, "benchmark")
            self._socket.sendall(b"".join(parts))
            self._next_id += 1
            if len(waiting) == _WINDOW:
                self._read(waiting, version, code)
                waiting = []
        self._read(waiting, version, code)

    def _read(
        self, waiting: Iterable[object], version: int, code: Callable[[Message], int]
    ) -> None:
        for api in waiting:
            size = int.from_bytes(self._answers.read(4), "big")
            answer = frames.decode_response(api, version, self._answers.read(size))  # type: ignore[arg-type]
            if code(answer):
                raise SystemExit(f"refused: {answer}")


def first_batches(topic: str, ids: int) -> Iterable[Message]:
    """Requests with one record from each of `ids` producer ids."""
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, b"record")
    for number in range(ids):
        batch = builder.build(
            producer_id=_FIRST_PRODUCER_ID + number, producer_epoch=0, base_sequence=0
        )
        partition = PartitionProduceData(index=0, records=batch)
        yield ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[partition])],
        )


def initialisations(ids: int) -> Iterable[Message]:
    """Requests that initialise `ids` transactional ids, with names of a usual length."""
    for number in range(ids):
        yield InitProducerIdRequest(
            transactional_id=f"transactional-id-{number:08d}",
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )


def memory(report: Report, ids: int) -> None:
    """Measure the resident memory that `ids` idle ids add to the broker."""
    report.table(
        f"Broker memory per idle id, {ids:,} of them (target: under {MEMORY_TARGET_BYTES:,} B)",
        ("kind", "bytes each", "in target"),
    )
    kinds: dict[str, Callable[[RawConnection, str, int], None]] = {
        "producer id that wrote one batch": lambda connection, topic, count: connection.all_of(
            first_batches(topic, count),
            _PRODUCE_VERSION,
            lambda answer: int(answer.responses[0].partition_responses[0].error_code),  # type: ignore[attr-defined]
        ),
        "transactional id, initialised": lambda connection, topic, count: connection.all_of(
            initialisations(count),
            4,
            lambda answer: int(answer.error_code),  # type: ignore[attr-defined]
        ),
    }
    for kind, fill in kinds.items():
        say(f"memory, {kind}")
        with odradek_broker("page-cache", metrics=False) as target:
            topic = topic_with(target.bootstrap, 1)
            # The memory for the internal topic and the first pools is not part of the memory for
            # the ids.
            OdradekRun(target.bootstrap).transactional(topic, 1, 1)
            connection = RawConnection(target.bootstrap)
            try:
                time.sleep(_SETTLE_S)
                before = resident_bytes(target.pid)
                fill(connection, topic, ids)
                time.sleep(_SETTLE_S)
                after = resident_bytes(target.pid)
            finally:
                connection.close()
        if before is None or after is None:
            report.note("memory cannot be read on this system")
            return
        each = (after - before) / ids
        met = each < MEMORY_TARGET_BYTES
        report.row((kind, f"{each:,.0f}", "yes" if met else "**no**"), bytes_each=each, met=met)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--transactions", type=int, default=100, help="in a round")
    options.add_argument("--ids", type=int, default=100_000)
    options.add_argument("--only", default="cost,latency,memory", help="parts, with commas")
    arguments = options.parse_args()
    report = Report("transactions", as_json=arguments.json)
    report.machine()
    parts = arguments.only.split(",")
    if "cost" in parts:
        cost(report, arguments.rounds, arguments.transactions)
    if "latency" in parts:
        latency(report, max(arguments.transactions, 500))
    if "memory" in parts:
        memory(report, arguments.ids)


if __name__ == "__main__":
    main()
