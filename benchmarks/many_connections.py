"""Costs of many idle connections, and of a slow reader at the same time as a fast producer.

    python -m benchmarks.many_connections [--connections 5000] [--seconds 10] [--reader-mb 1]
        [--json]

An idle connection has sent one request, and nothing after it. "Wait" is the time for which another
client waits for its answer; the client sends a small request every two milliseconds. The slow
reader requests 50 MB, and reads `--reader-mb` megabytes of the answers per second. The producer
sends 16 KB records in batches of 1 MB as fast as it can; each batch is on disk before it is
acknowledged. Both ends of each connection are on this machine, so the benchmark needs twice as many
open files as connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import threading
import time
from collections.abc import Iterator
from typing import Self

from benchmarks.support import (
    Report,
    Target,
    odradek_broker,
    parser,
    resident_bytes,
    say,
    shown,
)
from benchmarks.waits import Waits, address_of, ask, others_wait

from odradek_client.admin import Admin, NewTopic
from odradek_client.producer.producer import Producer
from odradek_protocol import frames
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic

_TOPIC = "fast"
_VALUE = bytes(range(256)) * 64
_PATIENCE_S = 60
_FETCH_VERSION = 12
_FETCH_BYTES = 50 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_SPARE_FILES = 200


def raise_open_files(wanted: int) -> None:
    """Raise the limit of open files. Raises SystemExit if this process is not allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(f"{wanted} open files are needed, {hard} are allowed (ulimit -n)")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def idle_connections(bootstrap: str, count: int) -> Iterator[float]:
    """Open `count` connections and send one request on each. Yields the seconds until all requests
    were answered. The connections are closed at the end of the block."""
    address = address_of(bootstrap)
    with contextlib.ExitStack() as held:
        started = time.perf_counter()
        for _ in range(count):
            ask(held.enter_context(socket.create_connection(address, _PATIENCE_S)))
        yield time.perf_counter() - started


def _waits_row(waits: Waits) -> tuple[str, str, str]:
    return (
        f"{waits.share_ms(0.5):.2f}",
        f"{waits.share_ms(0.99):.2f}",
        f"{waits.worst_ms:.1f}",
    )


def _idle_for(seconds: float, target: Target) -> tuple[Waits, float | None]:
    """(the waits of another client, the broker's use of a core in percent)."""
    before = target.cpu_s()
    with others_wait(target.bootstrap) as waits:
        time.sleep(seconds)
    after = target.cpu_s()
    return waits, None if before is None or after is None else (after - before) / seconds * 100


def measure_idle(report: Report, count: int, seconds: float) -> None:
    """Measure the rows without and with idle connections."""
    columns = ("connections", "s to connect", "KB each", "CPU %", "wait ms p50", "p99", "worst")
    report.table("Idle connections", columns)
    raise_open_files(count + _SPARE_FILES)
    with odradek_broker("fsync", metrics=False) as target:
        for connections in (0, count):
            say(f"{connections} idle connections")
            before = resident_bytes(target.pid) or 0
            with idle_connections(target.bootstrap, connections) as took_s:
                grown = (resident_bytes(target.pid) or 0) - before
                waits, cpu_percent = _idle_for(seconds, target)
            each_kb = grown / 1e3 / connections if connections else None
            report.row(
                (
                    f"{connections:,}",
                    f"{took_s:.1f}",
                    shown(each_kb, ".1f"),
                    shown(cpu_percent, ".1f"),
                    *_waits_row(waits),
                ),
                connect_s=took_s,
                kb_each=each_kb,
                cpu_percent=cpu_percent,
                worst_wait_ms=waits.worst_ms,
            )


class SlowReader:
    """A thread that fetches from the beginning and reads `bytes_per_s` of the answers."""

    def __init__(self, bootstrap: str, bytes_per_s: float) -> None:
        self._address = address_of(bootstrap)
        self._bytes_per_s = bytes_per_s
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.read_bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join(_PATIENCE_S)

    def _read(self) -> None:
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[
                FetchTopic(
                    topic=_TOPIC,
                    partitions=[
                        FetchPartition(
                            partition=0, fetch_offset=0, partition_max_bytes=_FETCH_BYTES
                        )
                    ],
                )
            ],
        )
        with socket.create_connection(self._address, _PATIENCE_S) as connection:
            while not self._enough.is_set():
                for part in frames.encode_request(request, _FETCH_VERSION, 1, "slow"):
                    connection.sendall(part)
                left = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
                while left and not self._enough.wait(_CHUNK_BYTES / self._bytes_per_s):
                    got = len(connection.recv(min(left, _CHUNK_BYTES)))
                    if not got:
                        return
                    left -= got
                    self.read_bytes += got


async def _produce(bootstrap: str, seconds: float) -> float:
    """Produce as fast as possible. Returns bytes per second."""
    async with Producer(bootstrap_servers=bootstrap, batch_size=1_000_000, linger_ms=5) as producer:
        started, count = time.perf_counter(), 0
        while time.perf_counter() < started + seconds:
            await producer.send(_TOPIC, _VALUE, partition=0)
            count += 1
        await producer.flush()
        return count * len(_VALUE) / (time.perf_counter() - started)


async def _create(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(_TOPIC, 1, 1)])


def measure_slow_reader(report: Report, seconds: float, reader_mb: float) -> None:
    """Measure the row of the producer without a reader, and the row of the producer together with
    the slow reader.
    """
    columns = ("reader", "produced MB/s", "read MB/s", "broker MB", "wait ms p50", "p99", "worst")
    report.table("A slow reader beside a fast producer", columns)
    for reader in (None, reader_mb):
        title = "none" if reader is None else f"{reader:g} MB/s"
        say(f"slow reader: {title}")
        with odradek_broker("fsync", metrics=False) as target, contextlib.ExitStack() as held:
            asyncio.run(_create(target.bootstrap))
            asyncio.run(_produce(target.bootstrap, seconds / 5))
            slow = None
            if reader is not None:
                slow = held.enter_context(SlowReader(target.bootstrap, reader * 1e6))
            with others_wait(target.bootstrap) as waits:
                rate = asyncio.run(_produce(target.bootstrap, seconds))
            memory_mb = (resident_bytes(target.pid) or 0) / 1e6
            read_rate = None if slow is None else slow.read_bytes / seconds / 1e6
            report.row(
                (
                    title,
                    f"{rate / 1e6:.0f}",
                    shown(read_rate, ".1f"),
                    f"{memory_mb:.0f}",
                    *_waits_row(waits),
                ),
                produced_mb_per_s=rate / 1e6,
                read_mb_per_s=read_rate,
                resident_mb=memory_mb,
                worst_wait_ms=waits.worst_ms,
            )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--connections", type=int, default=5_000)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--reader-mb", type=float, default=1.0)
    arguments = options.parse_args()
    report = Report("many_connections", as_json=arguments.json)
    report.machine()
    measure_idle(report, arguments.connections, arguments.seconds)
    measure_slow_reader(report, arguments.seconds, arguments.reader_mb)


if __name__ == "__main__":
    main()
