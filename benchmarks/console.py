"""Costs of open pages of `odradek console`, for the broker and for producers.

    python -m benchmarks.console [--pages 10] [--rounds 5] [--megabytes 100] [--json]

In each round librdkafka produces with and without open pages, in turns: records of 1 KB in batches
of 16 KB, then single records, one after the other. A page is simulated by the requests of a
browser: an event stream of the page's feeds, and repeated requests for views. The cost of the
console's process is included, but not that of browsers, because they would run on other machines.
The size of the scripts is also measured and, if Chromium is installed, the time to the first paint.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import multiprocessing
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import confluent_kafka
import httpx
from benchmarks.support import (
    Report,
    Spread,
    Target,
    cpu_s,
    odradek_broker,
    parser,
    percentile,
    resident_bytes,
    run_on_uvloop,
    say,
)

import odradek_console
from odradek_client.admin import Admin, NewTopic
from odradek_client.consumer.consumer import Consumer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from console_process import browser_program, running_console

_PATIENCE_S = 120.0
_SINGLE_RECORDS = 1_000
_VALUE = bytes(range(256)) * 4
#: (feeds, views that are requested repeatedly, seconds between two requests) of each page, like
#: those of the page's script.
_PAGES: list[tuple[list[str], list[str], float]] = [
    (["overview", "throughput"], [], 5.0),
    ([], ["/api/topics?limit=100"], 5.0),
    ([], ["/api/topic?name=topic-0", "/api/topic/partitions?name=topic-0&limit=100"], 5.0),
    (["group:readers"], [], 5.0),
    ([], ["/api/groups?limit=100"], 5.0),
    (["timeline:group:readers"], ["/api/timeline/subjects"], 15.0),
    (["requests"], [], 5.0),
    ([], ["/api/connections?limit=100"], 3.0),
    (["transactions"], ["/api/transactions?limit=100"], 5.0),
    (["overview", "throughput"], [], 5.0),
]


# --- Pages ----------------------------------------------------------------------------------------


async def _page(address: str, number: int) -> None:
    feeds, views, every_s = _PAGES[number % len(_PAGES)]
    async with httpx.AsyncClient(base_url=address, timeout=_PATIENCE_S) as client:

        async def listen() -> None:
            if not feeds:
                return
            async with client.stream("GET", "api/live", params={"feed": feeds}) as stream:
                async for _ in stream.aiter_lines():
                    pass

        async def ask() -> None:
            while views:
                for view in views:
                    (await client.get(view)).raise_for_status()
                await asyncio.sleep(every_s)

        await asyncio.gather(listen(), ask())


def _open_pages(pipe: Connection, address: str, pages: int) -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(_page(address, number)) for number in range(pages)]
        await asyncio.sleep(2)
        pipe.send(None)
        await asyncio.gather(*tasks)

    asyncio.run(main())


@contextlib.contextmanager
def _pages(address: str, pages: int) -> Iterator[None]:
    """Simulate a number of open pages in a separate process, while the block runs."""
    if not pages:
        yield
        return
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_open_pages, args=(there, address, pages), daemon=True)
    process.start()
    there.close()
    here.recv()
    try:
        yield
    finally:
        process.kill()
        process.join()


# --- Loads ----------------------------------------------------------------------------------------


@dataclass
class _Found:
    """The figures of all rounds with a given number of pages."""

    produced_mb_s: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    broker_ms_per_mb: list[float] = field(default_factory=list)
    console_share: list[float] = field(default_factory=list)
    console_mb: list[float] = field(default_factory=list)


def _produce(bootstrap: str, topic: str, count: int) -> float:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "batch.size": 16_384,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    producer.list_topics(topic, _PATIENCE_S)
    began_s = time.perf_counter()
    for number in range(count):
        producer.produce(topic, _VALUE)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(_PATIENCE_S):
        raise SystemExit("the records were not acknowledged in time")
    return count * len(_VALUE) / 1e6 / (time.perf_counter() - began_s)


def _one_by_one(bootstrap: str, topic: str) -> list[float]:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0}
    )
    producer.list_topics(topic, _PATIENCE_S)
    times_ms = []
    for _ in range(_SINGLE_RECORDS):
        began_s = time.perf_counter()
        producer.produce(topic, _VALUE)
        producer.flush(_PATIENCE_S)
        times_ms.append((time.perf_counter() - began_s) * 1e3)
    return times_ms


def _measure(
    target: Target, console: tuple[str, int], pages: int, megabytes: int, found: _Found
) -> None:
    address, console_pid = console
    topic = f"load-{uuid.uuid4().hex[:8]}"
    with _pages(address, pages):
        before, console_before = cpu_s(target.pid or 0) or 0.0, cpu_s(console_pid) or 0.0
        began_s = time.perf_counter()
        found.produced_mb_s.append(
            _produce(target.bootstrap, topic, megabytes * 1_000_000 // len(_VALUE))
        )
        after = cpu_s(target.pid or 0) or 0.0
        found.broker_ms_per_mb.append((after - before) * 1000 / megabytes)
        times_ms = _one_by_one(target.bootstrap, topic)
        took_s = time.perf_counter() - began_s
        found.p50_ms.append(percentile(times_ms, 0.5))
        found.p99_ms.append(percentile(times_ms, 0.99))
        found.console_share.append(((cpu_s(console_pid) or 0.0) - console_before) / took_s)
        found.console_mb.append((resident_bytes(console_pid) or 0) / 1e6)
    run_on_uvloop(_delete(target.bootstrap, topic))


async def _delete(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.delete_topics(topic)


async def _fill(bootstrap: str, topics: int) -> None:
    """Create topics for the pages, and a group with a history."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(f"topic-{number}", partitions=10) for number in range(topics)]
        )
        for number in range(5):
            async with Consumer(
                "topic-0",
                bootstrap_servers=bootstrap,
                group_id="readers",
                client_id=f"reader-{number}",
            ) as consumer:
                await consumer.poll(500)


# --- Scripts and paint ----------------------------------------------------------------------------


def _tell_scripts(report: Report) -> None:
    static = Path(odradek_console.__file__).parent / "static"
    files = sorted((*static.rglob("*.mjs"), *static.rglob("*.js")))
    report.table("Scripts", ["part", "files", "KB", "compressed KB"])
    for name, chosen in (
        ("libraries", [each for each in files if "vendor" in each.parts]),
        ("pages", [each for each in files if "vendor" not in each.parts]),
        ("all", files),
    ):
        size = sum(each.stat().st_size for each in chosen)
        packed = sum(len(gzip.compress(each.read_bytes())) for each in chosen)
        report.row(
            [name, str(len(chosen)), f"{size / 1e3:.0f}", f"{packed / 1e3:.0f}"],
            size_bytes=size,
            compressed_bytes=packed,
        )


async def _paints_ms(address: str, path: str, times: int) -> list[float]:
    from playwright.async_api import async_playwright

    script = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
    found = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=browser_program(), args=["--no-sandbox"]
        )
        for _ in range(times):
            context = await browser.new_context()
            page = await context.new_page()
            await page.goto(address + path)
            await page.locator("h1").wait_for()
            found.append(float(await page.evaluate(script)))
            await context.close()
        await browser.close()
    return found


def _tell_paints(report: Report, address: str) -> None:
    if browser_program() is None:
        report.note("There is no Chromium here: the time to the first paint was not measured.")
        return
    report.table("First paint, a browser without a cache", ["page", "least ms", "median ms"])
    for path in ("", "topics", "timeline?s=group:readers"):
        times_ms = asyncio.run(_paints_ms(address, path, 7))
        report.row(
            [f"/{path}", f"{min(times_ms):.0f}", f"{percentile(times_ms, 0.5):.0f}"],
            median_ms=percentile(times_ms, 0.5),
        )


def _ratio(found: list[float], base: list[float]) -> str:
    ratios = Spread.of([one / other for one, other in zip(found, base, strict=True)])
    return f"{ratios.median:.2f} ({ratios.low:.2f}-{ratios.high:.2f})"


def main() -> None:
    """Print the tables."""
    options = parser(__doc__)
    options.add_argument("--pages", type=int, default=10)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--megabytes", type=int, default=100)
    options.add_argument("--topics", type=int, default=100)
    arguments = options.parse_args()
    report = Report("console", as_json=arguments.json)
    report.machine()
    found = {0: _Found(), arguments.pages: _Found()}
    with (
        odradek_broker("page-cache") as target,
        running_console(target.bootstrap) as console,
    ):
        run_on_uvloop(_fill(target.bootstrap, arguments.topics))
        for number in range(arguments.rounds):
            for pages in sorted(found, reverse=bool(number % 2)):
                say(f"round {number + 1}: {pages} pages")
                _measure(target, console, pages, arguments.megabytes, found[pages])
        columns = ["open pages", "produce MB/s", "ratio", "p50 ms", "p99 ms", "ratio of p99"]
        columns += ["broker CPU ms/MB", "console CPU", "console MB"]
        report.table("Open pages", columns)
        for pages, each in found.items():
            rows = (each.produced_mb_s, each.p50_ms, each.p99_ms, each.broker_ms_per_mb)
            produced, p50, p99, spent = (Spread.of(row).median for row in rows)
            report.row(
                [
                    str(pages),
                    f"{produced:.0f}",
                    _ratio(each.produced_mb_s, found[0].produced_mb_s),
                    f"{p50:.2f}",
                    f"{p99:.2f}",
                    _ratio(each.p99_ms, found[0].p99_ms),
                    f"{spent:.2f}",
                    f"{Spread.of(each.console_share).median:.1%}",
                    f"{max(each.console_mb):.0f}",
                ],
                produced_mb_s=produced,
                p99_ms=p99,
            )
        _tell_paints(report, console[0])
    _tell_scripts(report)


if __name__ == "__main__":
    main()
