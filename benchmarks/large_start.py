"""Start of a broker on much data: after a clean stop, and after a kill.

    python -m benchmarks.large_start [--gigabytes 1] [--partitions 10000] [--rounds 3] [--json]

The bytes are in one topic of a few partitions, in segments of 256 MB. After the kill they were flushed and the
recovery points written, as they are every minute, but for the last records. "Read" is what the process
had the kernel read until it was ready (rchar of /proc), code included; an empty directory is the floor. The
partitions of the second table are made by one request and hold a record each.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.support import Report, Spread, cpu_s, parser, resident_bytes, say, shown

from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic
from odradek_client.producer.producer import Producer

_TOPIC = "large"
_SPREAD = 8
_VALUE = bytes(range(256)) * 4 * 16
_SETTLE_S = 1.0
#: Longer than the interval in which the broker writes its recovery points.
_CHECKPOINT_S = 62.0
_SETTINGS = {"log.durability": "page-cache", "log.segment.bytes": str(256 * 1024 * 1024)}
_COLUMNS = ("data directory", "ready ms", "CPU ms", "read MB", "idle MB")


def read_bytes(pid: int) -> int | None:
    """What a process has read so far, from the page cache too; None where nobody counts."""
    try:
        text = Path(f"/proc/{pid}/io").read_text("ascii")
    except OSError:
        return None
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("rchar")))


def _broker(data_dir: Path) -> SubprocessBroker:
    return SubprocessBroker(data_dir=data_dir, settings=_SETTINGS, timeout_s=300)


async def _write(bootstrap: str, size_bytes: int) -> None:
    async with Producer(bootstrap_servers=bootstrap, batch_size=1_000_000, linger_ms=5) as producer:
        for number in range(size_bytes // len(_VALUE)):
            await producer.send(_TOPIC, _VALUE, partition=number % _SPREAD)
        await producer.flush()


async def _create(bootstrap: str, name: str, partitions: int) -> float:
    async with Admin(bootstrap_servers=bootstrap, request_timeout_ms=300_000) as admin:
        started = time.perf_counter()
        await admin.create_topics([NewTopic(name, partitions, 1)])
        return time.perf_counter() - started


def fill(data_dir: Path, size_bytes: int) -> None:
    """So many bytes, and a clean stop."""
    with _broker(data_dir) as broker:
        asyncio.run(_create(broker.bootstrap, _TOPIC, _SPREAD))
        asyncio.run(_write(broker.bootstrap, size_bytes))


def start_once(data_dir: Path, *, killed: bool) -> tuple[float, float | None, float | None, float]:
    """(ms until ready, ms of processor time, MB read, MB of memory). It is stopped again, or killed
    once its recovery points are written and a little more is."""
    broker = _broker(data_dir)
    started = time.perf_counter()
    with broker:
        ready_ms = (time.perf_counter() - started) * 1000
        assert broker.pid is not None
        spent_s, read = cpu_s(broker.pid), read_bytes(broker.pid)
        time.sleep(_SETTLE_S)
        memory = (resident_bytes(broker.pid) or 0) / 1e6
        if killed:
            asyncio.run(_write(broker.bootstrap, _SPREAD * len(_VALUE)))
            time.sleep(_CHECKPOINT_S)
            asyncio.run(_write(broker.bootstrap, _SPREAD * len(_VALUE)))
            broker.kill()
    return (
        ready_ms,
        None if spent_s is None else spent_s * 1000,
        None if read is None else read / 1e6,
        memory,
    )


def measure(report: Report, title: str, data_dir: Path, rounds: int, *, killed: bool) -> None:
    """A row. The first start, which compiles or recovers otherwise, does not count."""
    say(title)
    start_once(data_dir, killed=killed)
    found = [start_once(data_dir, killed=killed) for _ in range(rounds)]
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


def measure_creation(report: Report, data_dir: Path, partitions: int) -> None:
    """Make many partitions with one request."""
    with _broker(data_dir) as broker:
        assert broker.pid is not None
        before = resident_bytes(broker.pid) or 0
        seconds = asyncio.run(_create(broker.bootstrap, "many", partitions))
        grown_kb = ((resident_bytes(broker.pid) or 0) - before) / 1e3 / partitions
    report.row(
        (
            f"{partitions:,}",
            f"{seconds:.1f}",
            f"{seconds * 1e3 / partitions:.2f}",
            f"{grown_kb:.1f}",
        ),
        partitions=partitions,
        seconds=seconds,
        kb_each=grown_kb,
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--gigabytes", type=float, default=1.0)
    options.add_argument("--partitions", type=int, default=10_000)
    arguments = options.parse_args()
    report = Report("large_start", as_json=arguments.json)
    report.machine()
    size = f"{arguments.gigabytes:g} GB"
    with tempfile.TemporaryDirectory() as directory:
        filled = Path(directory) / "filled"
        say(f"writing {size}")
        fill(filled, int(arguments.gigabytes * 1e9))
        report.table("Start", _COLUMNS)
        measure(report, "empty", Path(directory) / "empty", arguments.rounds, killed=False)
        measure(report, f"{size}, stopped", filled, arguments.rounds, killed=False)
        measure(report, f"{size}, killed", filled, 1, killed=True)
        many = Path(directory) / "many"
        report.table("Creation", ("partitions", "s", "ms each", "KB each"))
        measure_creation(report, many, arguments.partitions)
        report.table("Start with many partitions", _COLUMNS)
        title = f"{arguments.partitions:,} partitions, stopped"
        measure(report, title, many, arguments.rounds, killed=False)


if __name__ == "__main__":
    main()
