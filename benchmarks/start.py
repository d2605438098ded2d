"""Costs of the start of a broker: its time, the idle memory, and the imported modules.

    python -m benchmarks.start [--rounds 7] [--partitions 1000] [--json]

The time from the start of the process to its ready line is measured with an empty data directory,
and after a clean stop with many partitions on disk, each of which has a record. "CPU" is the
processor time until the ready line; other load on the machine changes it little. "Memory" is the
resident memory one second later. Before the measured starts, a start that is not measured compiles
the modules.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support import Report, Spread, cpu_s, parser, resident_bytes, say, shown

from odradek.broker import SubprocessBroker

BUDGET_MS = 300
BUDGET_MB = 60
_SETTLE_S = 1.0
_TOPICS = 10
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")
_TOP = 25


def fill(data_dir: Path, partitions: int) -> None:
    """Create `partitions` partitions with one record each, and then stop the broker cleanly."""
    from odradek_client.admin import Admin, NewTopic
    from odradek_client.producer.producer import Producer

    each = partitions // _TOPICS
    names = [f"start-{number}" for number in range(_TOPICS)]

    async def main(bootstrap: str) -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic(name, each, 1) for name in names])
        async with Producer(bootstrap_servers=bootstrap) as producer:
            deliveries = [
                await producer.send(name, b"record", partition=number)
                for name in names
                for number in range(each)
            ]
            await producer.flush()
            for delivery in deliveries:
                delivery.result()

    with SubprocessBroker(data_dir=data_dir, settings={"log.durability": "page-cache"}) as broker:
        asyncio.run(main(broker.bootstrap))


def start_once(data_dir: Path) -> tuple[float, float | None, int | None]:
    """(ms to the ready line, ms of processor time until then, bytes of resident memory when
    idle)."""
    broker = SubprocessBroker(data_dir=data_dir, timeout_s=60)
    started = time.perf_counter()
    with broker:
        ready_ms = (time.perf_counter() - started) * 1000
        assert broker.pid is not None
        spent_s = cpu_s(broker.pid)
        time.sleep(_SETTLE_S)
        memory = resident_bytes(broker.pid)
    return ready_ms, None if spent_s is None else spent_s * 1000, memory


def measure(report: Report, title: str, data_dir: Path, rounds: int) -> None:
    say(title)
    start_once(data_dir)
    found = [start_once(data_dir) for _ in range(rounds)]
    ready = Spread.of([each[0] for each in found])
    cpu = [each[1] for each in found if each[1] is not None]
    memory = [each[2] for each in found if each[2] is not None]
    cpu_ms = Spread.of(cpu).median if cpu else None
    memory_mb = Spread.of(memory).median / 1e6 if memory else None
    met = ready.median < BUDGET_MS and (memory_mb is None or memory_mb < BUDGET_MB)
    report.row(
        (
            title,
            f"{ready.median:.0f} ({ready.low:.0f}-{ready.high:.0f})",
            shown(cpu_ms),
            shown(memory_mb, ".1f"),
            "yes" if met else "**no**",
        ),
        ready_ms=round(ready.median, 1),
        ready_ms_low=round(ready.low, 1),
        ready_ms_high=round(ready.high, 1),
        cpu_ms=cpu_ms,
        resident_mb=memory_mb,
        met=met,
    )


def imports() -> list[tuple[str, int, int]]:
    """(module, microseconds in the module itself, microseconds including its imports) for each
    import of a start that ends because its port is in use."""
    with tempfile.TemporaryDirectory() as directory, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["--listen", address, "--data-dir", directory]
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "odradek", "serve", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    rows = []
    for line in done.stderr.splitlines():
        match = _IMPORT.match(line)
        if match:
            rows.append((match[4], int(match[1]), int(match[2])))
    return rows


def measure_imports(report: Report) -> None:
    """Measure imports by top-level package, to show how much of the time is not ours."""
    report.table("Imports of `odradek serve`", ("package", "ms in itself", "modules"))
    own: dict[str, list[int]] = {}
    for name, self_us, _ in imports():
        own.setdefault(name.partition(".")[0], []).append(self_us)
    known = sorted(own.items(), key=lambda item: -sum(item[1]))
    for package, parts in known[:_TOP]:
        report.row(
            (package, f"{sum(parts) / 1000:.1f}", str(len(parts))),
            self_ms=sum(parts) / 1000,
            modules=len(parts),
        )
    everything = [each for parts in own.values() for each in parts]
    report.row(
        ("all", f"{sum(everything) / 1000:.1f}", str(len(everything))),
        self_ms=sum(everything) / 1000,
        modules=len(everything),
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--partitions", type=int, default=1000)
    arguments = options.parse_args()
    report = Report("start", as_json=arguments.json)
    report.machine()
    report.table(
        f"Start (budget: ready within {BUDGET_MS} ms, idle under {BUDGET_MB} MB)",
        ("data directory", "ready ms", "CPU ms", "idle MB", "in budget"),
    )
    with tempfile.TemporaryDirectory() as directory:
        measure(report, "empty", Path(directory) / "empty", arguments.rounds)
        filled = Path(directory) / "filled"
        fill(filled, arguments.partitions)
        measure(report, f"{arguments.partitions:,} partitions", filled, arguments.rounds)
    measure_imports(report)


if __name__ == "__main__":
    main()
