"""Comparison of clients in one run: ours, aiokafka, kafka-python and confluent-kafka.

    python -m benchmarks.clients [--rounds 5] [--records 200000] [--sizes 100,1000]
        [--only produce,consume] [--clients odradek,aiokafka] [--bootstrap HOST:PORT | --mock]
        [--json]

The broker is ours with page-cache durability, unless `--bootstrap` names another broker. With
`--mock` the clients only produce, to librdkafka's mock broker. Clients take turns. Each round gives
a ratio to aiokafka, and the table has the median and the range of the ratios. The result of every
record is checked. "CPU" is the processor time of the client's process.
"""

from __future__ import annotations

import contextlib
import statistics
import time
import uuid
from collections.abc import Callable, Iterator

from benchmarks.client_consume import READERS
from benchmarks.client_produce import CLIENTS
from benchmarks.support import (
    Report,
    Spread,
    mock_broker,
    odradek_broker,
    parser,
    run_on_uvloop,
    say,
)

PARTITIONS = 4
#: (row, the row that it is compared with, the target for the ratio)
PRODUCE_TARGET = ("odradek", "aiokafka", 2.0)
CONSUME_TARGET = ("odradek getmany", "aiokafka getmany", 1.0)
#: Targets for the Arrow API in the same form, for values of ARROW_BYTES. The other row is the
#: fastest API that makes an object for each record.
ARROW_TARGET = ("odradek poll_arrow", "confluent-kafka consume", 1.0)
PRODUCE_ARROW_TARGET = ("odradek produce_arrow", "confluent-kafka", 1.0)
ARROW_BYTES = 100
_ITERATORS = ("odradek async for", "aiokafka async for")


class Turns:
    """The results of clients that take turns. A client that fails takes no more turns."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.cpu_s: dict[str, list[float]] = {}
        self.refused: dict[str, str] = {}

    def take(self, name: str, call: Callable[[], float]) -> None:
        if name in self.refused:
            return
        spent = time.process_time()
        try:
            seconds = call()
        except Exception as error:  # noqa: BLE001 - whatever a foreign client raises is its result
            self.refused[name] = f"{type(error).__name__}: {error}"
            return
        self.seconds.setdefault(name, []).append(seconds)
        self.cpu_s.setdefault(name, []).append(time.process_time() - spent)


def topic_with(bootstrap: str, partitions: int) -> str:
    """Create a topic. Returns its name."""
    from odradek import Admin, NewTopic

    name = f"clients-{uuid.uuid4().hex[:8]}"

    async def main() -> str:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(name, partitions, 1)])
        return name

    return run_on_uvloop(main())


def delete(bootstrap: str, topic: str) -> None:
    from odradek import Admin

    async def main() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.delete_topics([topic])

    run_on_uvloop(main())


def fill(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Produce records evenly to the partitions, in batches of 16 KB."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.messages": 2_000_000,
            "batch.size": 16_384,
            "linger.ms": 20,
            "log_level": 0,
        }
    )
    for index, value in enumerate(values):
        producer.produce(topic, value, partition=index % PARTITIONS)
        if index % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the topic could not be filled within two minutes")


def values_of(size: int, records: int) -> list[bytes]:
    """Values that all differ in their first bytes."""
    rest = bytes(index % 251 for index in range(size - 12))
    return [b"%012d" % index + rest for index in range(records)]


def tell(
    report: Report, turns: Turns, size: int, records: int, target: tuple[str, str, float]
) -> None:
    """Print the rows of one table, fastest first."""
    wanted_row, reference, wanted = target
    for name, seconds in sorted(turns.seconds.items(), key=lambda item: min(item[1])):
        rate = records / statistics.median(seconds)
        cpu_us = statistics.median(turns.cpu_s[name]) / records * 1e6
        beside = _ITERATORS[1] if name in _ITERATORS else reference
        base = turns.seconds.get(beside)
        ratio = Spread.of([b / a for a, b in zip(seconds, base, strict=True)]) if base else None
        missed = name == wanted_row and ratio is not None and ratio.median < wanted
        report.row(
            (
                name,
                f"{rate:,.0f}",
                f"{rate * size / 1e6:,.1f}",
                f"{statistics.median(seconds) / records * 1e6:.2f}",
                f"{cpu_us:.2f}",
                "-" if ratio is None else str(ratio) + (" **missed**" if missed else ""),
            ),
            size_bytes=size,
            records_per_s=round(rate),
            client_cpu_us_per_record=round(cpu_us, 3),
            ratio=None if ratio is None else round(ratio.median, 3),
            ratio_low=None if ratio is None else round(ratio.low, 3),
            ratio_high=None if ratio is None else round(ratio.high, 3),
            met=not missed,
        )
    for name, reason in turns.refused.items():
        report.note(f"{name} cannot use this broker: {reason}")


COLUMNS = ("client", "records/s", "MB/s", "us/record", "CPU us/record", "x aiokafka")


def chosen(names: list[str], wanted: str) -> list[str]:
    """The names that contain one of the words; all names if there are no words."""
    words = [word.strip() for word in wanted.split(",") if word.strip()]
    return [name for name in names if not words or any(word in name for word in words)]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--records", type=int, default=200_000)
    options.add_argument("--sizes", default="100,1000", help="bytes of a value, with commas")
    options.add_argument("--only", default="produce,consume", help="parts, with commas")
    options.add_argument("--clients", default="", help="parts of names, with commas")
    where = options.add_mutually_exclusive_group()
    where.add_argument("--bootstrap", help="a running broker instead of our own")
    where.add_argument("--mock", action="store_true", help="produce to librdkafka's mock broker")
    arguments = options.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    if min(sizes) < 12:
        options.error("--sizes: a value has at least 12 bytes")
    report = Report("clients", as_json=arguments.json)
    report.machine()
    parts = arguments.only.split(",")
    for size in sizes:
        with broker(arguments.bootstrap, arguments.mock) as bootstrap:
            values = values_of(size, arguments.records)
            if "produce" in parts:
                produce(report, bootstrap, values, arguments.clients, arguments.rounds)
            if "consume" in parts and not arguments.mock:
                consume(report, bootstrap, values, arguments.clients, arguments.rounds)


@contextlib.contextmanager
def broker(bootstrap: str | None, mock: bool) -> Iterator[str]:
    """The address of the broker to measure."""
    if bootstrap is not None:
        yield bootstrap
    elif mock:
        with mock_broker() as target:
            yield target.bootstrap
    else:
        with odradek_broker("page-cache", metrics=False) as target:
            yield target.bootstrap


def produce(report: Report, bootstrap: str, values: list[bytes], wanted: str, rounds: int) -> None:
    size = len(values[0])
    say(f"produce, {size} B")
    turns = Turns()
    for _ in range(rounds):
        for name in chosen(list(CLIENTS), wanted):
            topic = topic_with(bootstrap, 1)
            turns.take(name, lambda name=name, topic=topic: CLIENTS[name](bootstrap, topic, values))  # type: ignore[misc]
            delete(bootstrap, topic)
    report.table(
        f"Produce {len(values):,} records of {size} B, one partition, batches of 16 KB"
        f" (target: {PRODUCE_TARGET[2]} x aiokafka)",
        COLUMNS,
    )
    tell(report, turns, size, len(values), PRODUCE_TARGET)
    tell_arrow(report, turns, size, PRODUCE_ARROW_TARGET)


def consume(report: Report, bootstrap: str, values: list[bytes], wanted: str, rounds: int) -> None:
    size = len(values[0])
    say(f"consume, {size} B")
    topic = topic_with(bootstrap, PARTITIONS)
    fill(bootstrap, topic, values)
    turns = Turns()
    for _ in range(rounds):
        for name in chosen(list(READERS), wanted):
            turns.take(
                name,
                lambda name=name: READERS[name](bootstrap, topic, len(values), PARTITIONS),  # type: ignore[misc]
            )
    report.table(
        f"Consume {len(values):,} records of {size} B, {PARTITIONS} partitions"
        f" (target: {CONSUME_TARGET[2]} x aiokafka)",
        COLUMNS,
    )
    tell(report, turns, size, len(values), CONSUME_TARGET)
    tell_arrow(report, turns, size, ARROW_TARGET)


def tell_arrow(report: Report, turns: Turns, size: int, target: tuple[str, str, float]) -> None:
    """Print the table that compares Arrow with the fastest API that makes an object for each
    record."""
    ours, foreign = (turns.seconds.get(name) for name in target[:2])
    if ours and foreign:
        ratio = Spread.of([b / a for a, b in zip(ours, foreign, strict=True)])
        wanted = f" (target: {target[2]})" if size == ARROW_BYTES else ""
        missed = " **missed**" if wanted and ratio.median < target[2] else ""
        report.note(f"{target[0]} / {target[1]}: {ratio}{wanted}{missed}")


if __name__ == "__main__":
    main()
