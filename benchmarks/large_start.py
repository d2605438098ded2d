"""Costs of the start of a broker that has much data: after a clean stop, and after a kill.

    python -m benchmarks.large_start [--gigabytes 1] [--partitions 10000] [--rounds 3] [--settle
        130] [--json]

The data is in one topic with a few partitions, in segments of 256 MB. Before the kill, the broker
has `--settle` seconds to flush all but the last records and to write the recovery points, as it
does every minute. In the row "Killed at once" the broker is killed before any recovery point is
written. "Read" is the number of bytes that the process has read from files until it was ready
(rchar in /proc), including code; the row with an empty directory is the lower limit. The many
partitions are created by one request, and each has one record. "Worst wait" is the longest time for
which a small request of another client waited during the creation.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.support import Report, Spread, cpu_s, parser, resident_bytes, say, shown
from benchmarks.waits import others_wait

from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic
from odradek_client.producer.producer import Producer

_TOPIC = "large"
_MANY = "many"
_SPREAD = 8
_VALUE = bytes(range(256)) * 4 * 16
_SETTLE_S = 1.0
_SETTINGS = {"log.durability": "fsync", "log.segment.bytes": str(256 * 1024 * 1024)}
_COLUMNS = ("data directory", "ready ms", "CPU ms", "read MB", "idle MB")


def read_bytes(pid: int) -> int | None:
    """The number of bytes that a process has read so far, including those from the page cache; None
    if there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/io").read_text("ascii")
    except OSError:
        return None
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("rchar")))


def _broker(data_dir: Path) -> SubprocessBroker:
    return SubprocessBroker(data_dir=data_dir, settings=_SETTINGS, timeout_s=300)


async def _write(bootstrap: str, topic: str, size_bytes: int) -> None:
    async with Producer(bootstrap_servers=bootstrap, batch_size=1_000_000, linger_ms=5) as producer:
        for number in range(size_bytes // len(_VALUE)):
            await producer.send(topic, _VALUE, partition=number % _SPREAD)
        await producer.flush()


async def _create(bootstrap: str, name: str, partitions: int) -> None:
    async with Admin(bootstrap_servers=bootstrap, request_timeout_ms=300_000) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1)])


async def _grow(bootstrap: str, name: str, partitions: int) -> None:
    async with Admin(bootstrap_servers=bootstrap, request_timeout_ms=300_000) as admin:
        await admin.create_partitions({name: partitions})


async def _delete(bootstrap: str, name: str) -> None:
    async with Admin(bootstrap_servers=bootstrap, request_timeout_ms=300_000) as admin:
        await admin.delete_topics([name])


async def _write_one_each(bootstrap: str, name: str, partitions: int) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for partition in range(partitions):
            await producer.send(name, b"x" * 100, partition=partition)
        await producer.flush()


def fill(data_dir: Path, size_bytes: int) -> None:
    """Produce `size_bytes` bytes, and then stop the broker cleanly."""
    with _broker(data_dir) as broker:
        asyncio.run(_create(broker.bootstrap, _TOPIC, _SPREAD))
        asyncio.run(_write(broker.bootstrap, _TOPIC, size_bytes))


def start_once(
    data_dir: Path, topic: str, *, settle_s: float | None = None
) -> tuple[float, float | None, float | None, float]:
    """Start the broker, and stop it cleanly. With `settle_s`, instead write a few records, wait
    this number of seconds for the recovery points, write a few more records, and kill the broker.
    Returns (ms until ready, ms of processor time, MB read, MB of memory)."""
    broker = _broker(data_dir)
    started = time.perf_counter()
    with broker:
        ready_ms = (time.perf_counter() - started) * 1000
        assert broker.pid is not None
        spent_s, read = cpu_s(broker.pid), read_bytes(broker.pid)
        time.sleep(_SETTLE_S)
        memory = (resident_bytes(broker.pid) or 0) / 1e6
        if settle_s is not None:
            asyncio.run(_write(broker.bootstrap, topic, _SPREAD * len(_VALUE)))
            time.sleep(settle_s)
            asyncio.run(_write(broker.bootstrap, topic, _SPREAD * len(_VALUE)))
            broker.kill()
    return (
        ready_ms,
        None if spent_s is None else spent_s * 1000,
        None if read is None else read / 1e6,
        memory,
    )


_Start = tuple[float, float | None, float | None, float]


def _row(report: Report, title: str, found: list[_Start]) -> None:
    ready = Spread.of([each[0] for each in found])
    cpu = [each[1] for each in found if each[1] is not None]
    read = [each[2] for each in found if each[2] is not None]
    cpu_ms = Spread.of(cpu).median if cpu else None
    read_mb = Spread.of(read).median if read else None
    memory_mb = Spread.of([each[3] for each in found]).median
    report.row(
        (
            title,
            f"{ready.median:.0f} ({ready.low:.0f}-{ready.high:.0f})",
            shown(cpu_ms),
            shown(read_mb, ".1f"),
            f"{memory_mb:.1f}",
        ),
        ready_ms=round(ready.median, 1),
        cpu_ms=cpu_ms,
        read_mb=read_mb,
        resident_mb=memory_mb,
    )


def measure_stopped(report: Report, title: str, data_dir: Path, rounds: int) -> None:
    """Measure starts after a clean stop. The first start is not used, because it compiles modules
    or recovers logs."""
    say(title)
    start_once(data_dir, _TOPIC)
    _row(report, title, [start_once(data_dir, _TOPIC) for _ in range(rounds)])


def measure_killed(report: Report, title: str, data_dir: Path, topic: str, settle_s: float) -> None:
    """Measure one start after a kill. Afterwards the broker is killed again immediately, so that
    the next start can be measured."""
    say(title)
    start_once(data_dir, topic, settle_s=settle_s)
    _row(report, title, [start_once(data_dir, topic, settle_s=0)])


def measure_unchecked(report: Report, title: str, data_dir: Path, size_bytes: int) -> None:
    """Measure the start after a kill before any recovery point was written."""
    say(title)
    with _broker(data_dir) as broker:
        asyncio.run(_create(broker.bootstrap, _TOPIC, _SPREAD))
        asyncio.run(_write(broker.bootstrap, _TOPIC, size_bytes))
        broker.kill()
    _row(report, title, [start_once(data_dir, _TOPIC)])


def measure_changes(report: Report, data_dir: Path, partitions: int) -> None:
    """Measure how long it takes to create many partitions with one request, to add a tenth of their
    number, and to delete all. Then create the partitions again for later measurements."""
    more = partitions + max(partitions // 10, 1)
    with _broker(data_dir) as broker:
        assert broker.pid is not None
        before = resident_bytes(broker.pid) or 0
        for title, count, change in (
            ("created", partitions, partial(_create, broker.bootstrap, _MANY, partitions)),
            ("added", more - partitions, partial(_grow, broker.bootstrap, _MANY, more)),
            ("deleted", more, partial(_delete, broker.bootstrap, _MANY)),
        ):
            say(f"{count} partitions {title}")
            with others_wait(broker.bootstrap) as waits:
                started = time.perf_counter()
                asyncio.run(change())
                seconds = time.perf_counter() - started
            grown_kb = None
            if title == "created":
                grown_kb = ((resident_bytes(broker.pid) or 0) - before) / 1e3 / count
            report.row(
                (
                    f"{count:,} {title}",
                    f"{seconds:.1f}",
                    f"{seconds * 1e3 / count:.2f}",
                    f"{waits.worst_ms:.0f}",
                    shown(grown_kb, ".1f"),
                ),
                partitions=count,
                seconds=seconds,
                worst_wait_ms=waits.worst_ms,
                kb_each=grown_kb,
            )
        asyncio.run(_create(broker.bootstrap, _MANY, partitions))
        asyncio.run(_write_one_each(broker.bootstrap, _MANY, partitions))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--gigabytes", type=float, default=1.0)
    options.add_argument("--partitions", type=int, default=10_000)
    options.add_argument("--settle", type=float, default=130.0, help="seconds")
    arguments = options.parse_args()
    report = Report("large_start", as_json=arguments.json)
    report.machine()
    size, size_bytes = f"{arguments.gigabytes:g} GB", int(arguments.gigabytes * 1e9)
    with tempfile.TemporaryDirectory() as directory:
        filled = Path(directory) / "filled"
        say(f"writing {size}")
        fill(filled, size_bytes)
        report.table("Start", _COLUMNS)
        measure_stopped(report, "empty", Path(directory) / "empty", arguments.rounds)
        measure_stopped(report, f"{size}, stopped", filled, arguments.rounds)
        measure_killed(report, f"{size}, killed", filled, _TOPIC, arguments.settle)
        shutil.rmtree(filled)
        measure_unchecked(report, f"{size}, killed at once", filled, size_bytes)
        shutil.rmtree(filled)
        many, count = Path(directory) / "many", f"{arguments.partitions:,} partitions"
        report.table("Many partitions", ("partitions", "s", "ms each", "worst wait ms", "KB each"))
        measure_changes(report, many, arguments.partitions)
        report.table("Start with many partitions", _COLUMNS)
        measure_stopped(report, f"{count}, stopped", many, arguments.rounds)
        measure_killed(report, f"{count}, killed", many, _MANY, arguments.settle)


if __name__ == "__main__":
    main()
