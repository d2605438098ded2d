"""What one append costs beside its system call: `python benchmarks/append.py [--profile]`.

A 16 KB batch of 1 KB records goes into a log whose files swallow everything, so what is left is the
log's own work; the same with real files shows the whole.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("broker", "protocol", ".")]

from tests.sim.files import MemoryFile, MemoryFiles

from odradek_broker.real import RealFiles, RealRandomness
from odradek_broker.seams import Buffer, Files
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.log import LogOptions, LogStart, PartitionLog
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_protocol.records.builder import BatchBuilder

NOW_MS = 1_700_000_000_000


class _Sink(MemoryFile):
    """Counts the bytes and forgets them."""

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
    log = PartitionLog(
        "bench",
        0,
        bytes(16),
        directory,
        LogConfig(durability="page-cache"),
        LogOptions(files, HandleCache(files), RealRandomness()),
        LogStart(),
    )
    log.create_files(NOW_MS)
    return log


def appends(log: PartitionLog, batch: bytearray, count: int) -> float:
    """Microseconds per append."""
    view = memoryview(batch)
    started = time.perf_counter()
    for _ in range(count):
        view[:8] = bytes(8)
        log.append(view, origin=AppendOrigin.CLIENT, now_ms=NOW_MS, leader_epoch=0)
    return (time.perf_counter() - started) / count * 1e6


def reads(log: PartitionLog, max_bytes: int) -> tuple[float, float]:
    """(microseconds per read, MB/s) of one pass over the log."""
    offset = count = total = 0
    end = log.log_end_offset
    sizes: list[int] = []
    started = time.perf_counter()
    while offset < end:
        data = log.read(offset, max_bytes, upper_bound=end, minimum_one=True)
        total += len(data)
        count += 1
        sizes.append(len(data))
        offset += len(data) // BATCH_SIZE * RECORDS_PER_BATCH
    seconds = time.perf_counter() - started
    return seconds / count * 1e6, total / seconds / 1e6


BATCH_SIZE = 0
RECORDS_PER_BATCH = 0


def main() -> None:
    global BATCH_SIZE, RECORDS_PER_BATCH
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    parser.add_argument("--count", type=int, default=20_000)
    arguments = parser.parse_args()
    batch = make_batch(1000, 16_384, -1)
    BATCH_SIZE = len(batch)
    RECORDS_PER_BATCH = int.from_bytes(batch[57:61], "big")
    print(f"{len(batch)} bytes, {RECORDS_PER_BATCH} records a batch")
    if arguments.profile:
        log = make_log(_SinkFiles(), "data/bench-0")
        profile = cProfile.Profile()
        profile.runcall(appends, log, batch, arguments.count)
        pstats.Stats(profile).sort_stats("tottime").print_stats(18)
        return
    for _ in range(3):
        log = make_log(_SinkFiles(), "data/bench-0")
        print(f"append, no disk: {appends(log, batch, arguments.count):6.2f} us")
    with tempfile.TemporaryDirectory() as directory:
        log = make_log(RealFiles(), f"{directory}/bench-0")
        print(f"append, page cache: {appends(log, batch, arguments.count // 4):6.2f} us")
        for max_bytes in (16_384, 1024 * 1024):
            microseconds, rate = reads(log, max_bytes)
            print(f"read {max_bytes:>8}: {microseconds:6.2f} us, {rate:,.0f} MB/s")
        log.close(clean=False)


if __name__ == "__main__":
    main()
