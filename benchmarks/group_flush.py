"""Costs of flushing appends to many partitions, without clients and network.

    python -m benchmarks.group_flush [--partitions 1,10,100,1000] [--seconds 2] [--json]

A round appends a 16 KB batch of 1 KB records to each of N partitions, requests a flush as a Produce
request does, and waits until all batches are durable. The kind `append` is a round without the
flush. The kind `bare` shows the time of the disk itself: four threads only append the same bytes
and call fdatasync.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.append import NOW_MS, make_batch
from benchmarks.support import Report, Spread, parser, run_on_uvloop

from odradek_broker.platform.machine import RealFiles, RealRandomness
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.group_commit import GroupCommit
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.journal import CommitJournal
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.log_options import LogOptions, LogStart

THREADS = 4


class Waiting:
    """A wait until a number of logs are durable."""

    def __init__(self, logs: list[PartitionLog]) -> None:
        self._left = 0
        self._done: asyncio.Future[None]
        for log in logs:
            log.on_moved = self._moved

    def begin(self, count: int) -> asyncio.Future[None]:
        self._left = count
        self._done = asyncio.get_running_loop().create_future()
        return self._done

    def _moved(self, log: PartitionLog) -> None:
        if log.high_watermark == log.log_end_offset:
            self._left -= 1
            if not self._left:
                self._done.set_result(None)


def make_logs(directory: str, count: int, journal_bytes: int) -> list[PartitionLog]:
    """Open, empty partition logs in a directory."""
    files = RealFiles()
    handles = HandleCache(files, limit=count + 16)
    journal = None
    if journal_bytes:
        journal = CommitJournal(handles, RealRandomness(), directory, journal_bytes)
    options = LogOptions(files, handles, RealRandomness(), DeletedFiles(handles), journal=journal)
    config = LogConfig(durability="fsync")
    logs = []
    for number in range(count):
        path = f"{directory}/bench-{number}"
        log = PartitionLog("bench", number, b"\x01" * 16, path, config, options, LogStart())
        log.create_files(NOW_MS)
        log.durability.flush()
        logs.append(log)
    return logs


async def measure(
    directory: str, count: int, seconds: float, journal_bytes: int
) -> dict[str, list[float]]:
    """The microseconds per partition in each round, by the kind of round (`append`, `bare` and so
    on)."""
    batch = memoryview(make_batch(1000, 16_384, -1))
    logs = make_logs(directory, count, journal_bytes)
    commit = GroupCommit(asyncio.get_running_loop(), THREADS)
    journal = logs[0].options.journal
    if journal is not None:
        journal.start(commit.request)
    waiting = Waiting(logs)
    bare = [
        os.open(f"{directory}/bare-{number}", os.O_RDWR | os.O_CREAT) for number in range(count)
    ]
    found: dict[str, list[float]] = {"append": [], "group commit": [], "bare": [], "cpu": []}

    def append() -> None:
        for log in logs:
            batch[:8] = bytes(8)
            log.append(batch, origin=AppendOrigin.CLIENT, now_ms=NOW_MS, leader_epoch=0)

    async def flushed() -> None:
        done = waiting.begin(count)
        for log in logs:
            batch[:8] = bytes(8)
            log.append(batch, origin=AppendOrigin.CLIENT, now_ms=NOW_MS, leader_epoch=0)
            commit.request(log.durability)
        await done

    def sync(place: int) -> None:
        for fd in bare[place::THREADS]:
            os.fdatasync(fd)

    with ThreadPoolExecutor(THREADS) as pool:
        await flushed()
        end = time.perf_counter() + seconds
        rounds = 0
        while time.perf_counter() < end or rounds < 3:
            began = time.perf_counter()
            cpu_began = time.process_time()
            await flushed()
            found["group commit"].append((time.perf_counter() - began) / count * 1e6)
            found["cpu"].append((time.process_time() - cpu_began) / count * 1e6)
            began = time.perf_counter()
            append()
            found["append"].append((time.perf_counter() - began) / count * 1e6)
            for log in logs:
                commit.request(log.durability)
            await commit.drain()
            began = time.perf_counter()
            for fd in bare:
                os.pwrite(fd, batch, rounds * len(batch))
            if count == 1:
                os.fdatasync(bare[0])
            else:
                list(pool.map(sync, range(THREADS)))
            found["bare"].append((time.perf_counter() - began) / count * 1e6)
            rounds += 1
    await commit.drain()
    commit.close()
    for log in logs:
        log.close(clean=False)
    for fd in bare:
        os.close(fd)
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--partitions", default="1,10,100,1000")
    options.add_argument("--seconds", type=float, default=2.0)
    arguments = options.parse_args()
    report = Report("group_flush", as_json=arguments.json)
    report.machine()
    columns = ("partitions", "append", "append and flush", "of it CPU", "bare", "rounds")
    report.table("Microseconds a partition and round", columns)
    for text, journal_bytes in itertools.product(arguments.partitions.split(","), (0, 1 << 27)):
        with tempfile.TemporaryDirectory() as directory:
            found = run_on_uvloop(measure(directory, int(text), arguments.seconds, journal_bytes))
        text += ", journal" if journal_bytes else ""
        spreads = {name: Spread.of(times) for name, times in found.items()}
        names = ("append", "group commit", "cpu", "bare")
        report.row(
            (text, *(str(spreads[name]) for name in names), str(len(found["bare"]))),
            append_us=spreads["append"].median,
            flush_us=spreads["group commit"].median,
            cpu_us=spreads["cpu"].median,
            bare_us=spreads["bare"].median,
        )


if __name__ == "__main__":
    main()
