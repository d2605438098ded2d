"""Costs of a scrape of /metrics: its time, and the time for which it blocks the broker's loop.

    python -m benchmarks.scrape [--partitions 10000] [--groups 1000] [--rounds 3] [--json]

Each partition has records. Each group has committed offsets in ten partitions, and has not read all
of their records. The first scrape opens all logs, and looks up all timestamps for the lag in
seconds. "CPU" is the broker's processor time, including the time for the small requests that
another client sends during the scrape. The table also has the waits of these requests.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import time
import urllib.request

from benchmarks.loop_watch import LIMIT_MS, Held, watched_broker
from benchmarks.support import Report, cpu_s, parser
from benchmarks.waits import others_wait

from odradek_client.admin import Admin, NewTopic
from odradek_client.producer.producer import Producer

_TOPIC = "many"
_PARTITIONS_PER_GROUP = 10
_RECORDS = 3
_COLUMNS = ("scrape", "ms", "CPU ms", "MB", "worst wait ms", "p99 wait ms")


async def _fill(bootstrap: str, partitions: int, groups: int) -> None:
    async with Admin(bootstrap_servers=bootstrap, request_timeout_ms=300_000) as admin:
        await admin.create_topics([NewTopic(_TOPIC, partitions, 1)])
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for _ in range(_RECORDS):
                for partition in range(partitions):
                    await producer.send(_TOPIC, b"x" * 100, partition=partition)
            await producer.flush()
        for group in range(groups):
            first = group * _PARTITIONS_PER_GROUP
            chosen = {(first + each) % partitions for each in range(_PARTITIONS_PER_GROUP)}
            offsets = {(_TOPIC, each): 1 for each in chosen}
            await admin.alter_group_offsets(f"group-{group}", offsets)


def _get(address: str) -> tuple[float, int]:
    """(milliseconds, bytes) of a scrape."""
    began_s = time.perf_counter()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=300) as answer:
        size_bytes = len(answer.read())
    return (time.perf_counter() - began_s) * 1e3, size_bytes


def main() -> None:
    """Print a table."""
    options = parser(__doc__)
    options.add_argument("--partitions", type=int, default=10_000)
    options.add_argument("--groups", type=int, default=1_000)
    options.add_argument("--rounds", type=int, default=3)
    arguments = options.parse_args()
    report = Report("scrape", as_json=arguments.json)
    report.machine()
    report.table(f"{arguments.partitions} partitions, {arguments.groups} groups", _COLUMNS)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with watched_broker({"http.listen": address}) as broker:
        asyncio.run(_fill(broker.bootstrap, arguments.partitions, arguments.groups))
        (process,) = multiprocessing.active_children()
        broker.begin()
        for number in range(1, arguments.rounds + 1):
            began_s = cpu_s(process.pid or 0)
            with others_wait(broker.bootstrap) as waits:
                took_ms, size_bytes = _get(address)
            used_ms = ((cpu_s(process.pid or 0) or 0) - (began_s or 0)) * 1e3
            report.row(
                [
                    str(number),
                    f"{took_ms:.0f}",
                    f"{used_ms:.0f}",
                    f"{size_bytes / 1e6:.1f}",
                    f"{waits.worst_ms:.1f}",
                    f"{waits.share_ms(0.99):.1f}",
                ],
                took_ms=took_ms,
                cpu_ms=used_ms,
                size_bytes=size_bytes,
                worst_ms=waits.worst_ms,
                p99_ms=waits.share_ms(0.99),
            )
        held = broker.end()
    # Garbage collections are caused by everything that the broker has allocated, not by scrapes.
    collected = held.pop("(garbage collection)", Held())
    name, longest = max(held.items(), key=lambda each: each[1].longest_cpu_ms)
    report.note(
        f"The longest callback of the broker: {name}, {longest.longest_cpu_ms:.1f} ms of processor"
        f" time; {sum(each.beyond_limit for each in held.values())} of"
        f" {sum(each.calls for each in held.values())} took more than {LIMIT_MS} ms."
        f" Garbage collection: {collected.longest_cpu_ms:.1f} ms at most."
    )


if __name__ == "__main__":
    main()
