"""Costs of one append to the partition log, and of one read from it.

    python -m benchmarks.append [--count 20000] [--profile] [--json]

Appends of 16 KB batches of 1 KB records are measured twice: with files that store nothing, which
shows the log's own work, and with real files. Reads return the stored bytes of whole batches.
"""

from __future__ import annotations

import cProfile
import pstats
import tempfile
import time
from collections.abc import Sequence

from benchmarks.support import Report, Spread, parser

from odradek_broker.platform.machine import RealFiles, RealRandomness
from odradek_broker.platform.seams import Buffer, Files
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_protocol.records.builder import BatchBuilder
from odradek_testkit.simulation.disk import MemoryFile, MemoryFiles

ROUNDS = 5
NOW_MS = 1_700_000_000_000


class _Sink(MemoryFile):
    """A file that counts the appended bytes and stores none."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        return sum(map(len, buffers))


class _SinkFiles(MemoryFiles):
    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        super().open(path, create=create).close()
        return _Sink(self, path, self._names[path.strip("/")])


def make_batch(record_bytes: int, batch_bytes: int, producer_id: int) -> bytearray:
    builder = BatchBuilder()
    while builder.estimated_bytes + record_bytes < batch_bytes:
        builder.append(NOW_MS, b"key", bytes(record_bytes))
    return builder.build(
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )


def make_log(files: Files, directory: str) -> PartitionLog:
    handles = HandleCache(files)
    log = PartitionLog(
        "bench",
        0,
        bytes(16),
        directory,
        LogConfig(durability="page-cache"),
        LogOptions(files, handles, RealRandomness(), DeletedFiles(handles)),
        LogStart(),
    )
    log.create_files(NOW_MS)
    return log


def appends(log: PartitionLog, batch: bytearray, count: int) -> float:
    """The time of an append in microseconds."""
    view = memoryview(batch)
    started = time.perf_counter()
    for _ in range(count):
        view[:8] = bytes(8)
        log.append(view, origin=AppendOrigin.CLIENT, now_ms=NOW_MS, leader_epoch=0)
    return (time.perf_counter() - started) / count * 1e6


def reads(log: PartitionLog, max_bytes: int, batch: bytes) -> tuple[float, float]:
    """(microseconds per read, MB/s) of reading the whole log once."""
    records = int.from_bytes(batch[57:61], "big")
    offset = count = total = 0
    end = log.log_end_offset
    started = time.perf_counter()
    while offset < end:
        data = log.read(offset, max_bytes, upper_bound=end, minimum_one=True)
        total += len(data)
        count += 1
        offset += len(data) // len(batch) * records
    seconds = time.perf_counter() - started
    return seconds / count * 1e6, total / seconds / 1e6


def profile(batch: bytearray, count: int) -> None:
    """Profile appends and print the result."""
    log = make_log(_SinkFiles(), "data/bench-0")
    profiler = cProfile.Profile()
    profiler.runcall(appends, log, batch, count)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(18)


def measure(report: Report, batch: bytearray, count: int) -> None:
    report.table(f"Partition log, batches of {len(batch):,} B", ("what", "us", "MB/s"))

    def row(name: str, times_us: list[float], rate: float | None = None) -> None:
        found = Spread.of(times_us)
        mb_per_s = len(batch) / found.median if rate is None else rate
        report.row((name, str(found), f"{mb_per_s:,.0f}"), us=found.median, mb_per_s=mb_per_s)

    memory = [make_log(_SinkFiles(), "data/bench-0") for _ in range(ROUNDS)]
    row("append, files that swallow", [appends(log, batch, count) for log in memory])
    with tempfile.TemporaryDirectory() as directory:
        logs = [make_log(RealFiles(), f"{directory}/bench-{n}") for n in range(ROUNDS)]
        row("append, page cache", [appends(log, batch, count // 10) for log in logs])
        for max_bytes in (16_384, 1024 * 1024):
            found = [reads(log, max_bytes, bytes(batch)) for log in logs]
            rate = Spread.of([each[1] for each in found]).median
            row(f"read, up to {max_bytes // 1024:,} KB", [each[0] for each in found], rate)
        for log in logs:
            log.close(clean=False)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--profile", action="store_true", help="show where the time goes")
    options.add_argument("--count", type=int, default=20_000)
    arguments = options.parse_args()
    batch = make_batch(1000, 16_384, -1)
    if arguments.profile:
        profile(batch, arguments.count)
        return
    report = Report("append", as_json=arguments.json)
    report.machine()
    measure(report, batch, arguments.count)


if __name__ == "__main__":
    main()
