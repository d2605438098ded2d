"""Shared code of the benchmarks: brokers to measure, costs of a process, alternating rounds,
tables.

Every benchmark is run by `python -m benchmarks.NAME [--json]` in the root of the checkout. It
prints Markdown on stdout (JSON Lines with --json) and its progress on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import platform
import socket
import statistics
import sys
import timeit
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from odradek.broker import SubprocessBroker
from odradek_protocol.records import native

T = TypeVar("T")

CORES = os.cpu_count() or 1
_MOCK_START_S = 20
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


# --- Output ---------------------------------------------------------------------------------------


class Report:
    """Tables for people, or one JSON object per row for programs."""

    def __init__(self, benchmark: str, *, as_json: bool) -> None:
        self._benchmark = benchmark
        self._as_json = as_json
        self._title = ""

    def machine(self) -> None:
        """Print a description of the machine."""
        about = machine()
        if self._as_json:
            print(json.dumps({"benchmark": self._benchmark, **about}), flush=True)
        else:
            print("*" + ", ".join(f"{key} {value}" for key, value in about.items()) + "*")

    def table(self, title: str, columns: Sequence[str]) -> None:
        """Begin a table. Each row must have one cell for each column."""
        self._title = title
        if not self._as_json:
            print(f"\n**{title}**\n")
            print("| " + " | ".join(columns) + " |")
            print("|---|" + "--:|" * (len(columns) - 1), flush=True)

    def row(self, cells: Sequence[str], **numbers: Any) -> None:
        """Print a row: `cells` for people, `numbers` for programs, with units in their names."""
        if self._as_json:
            about = {"benchmark": self._benchmark, "table": self._title, "row": cells[0]}
            print(json.dumps({**about, **numbers}), flush=True)
        else:
            print("| " + " | ".join(cells) + " |", flush=True)

    def note(self, text: str) -> None:
        """Print a sentence below a table."""
        if not self._as_json:
            print(f"\n{text}", flush=True)


def say(text: str) -> None:
    """Print progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """The machine: processor, cores, Python, load. Results mean nothing without these facts."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "record codec": native.describe(),
        "load": round(os.getloadavg()[0], 1),
    }


def parser(documentation: str | None) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark."""
    # Byte code is written, because brokers of users do not compile their modules at every start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    made = argparse.ArgumentParser(
        description=(documentation or "").partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    made.add_argument("--json", action="store_true", help="JSON Lines instead of tables")
    return made


# --- Numbers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """The median, the smallest and the largest value of some rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def percentile(values: Sequence[float], share: float) -> float:
    """The value at the given share (0 to 1) of the sorted values; 1 gives the largest value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def best_us(call: Callable[[], object], rounds: int = 7, round_s: float = 0.05) -> float:
    """The time of one call in microseconds: the best of several rounds, each of which is long
    enough to be measured."""
    timer = timeit.Timer(call)
    number = 1
    while (took := timer.timeit(number)) < round_s / 4:
        number *= 2
    number = max(1, int(number * round_s / took))
    return min(timer.repeat(rounds, number)) / number * 1e6


def cpu_s(pid: int) -> float | None:
    """The processor time of a process since its start, user and system; None if there is no
    /proc."""
    try:
        # These files have nanoseconds for each thread; /proc/PID/stat has only hundredths of a
        # second.
        parts = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        if parts:
            return sum(int(part.split()[0]) for part in parts) / 1e9
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may contain blanks.
    numbers = text.rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / _TICKS_PER_S


def idle_s() -> float | None:
    """The idle time of all cores since the machine started, as a sum."""
    try:
        numbers = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    # Waiting for the disk (the fifth number) is also idle time.
    return (int(numbers[4]) + int(numbers[5])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int | None:
    """The resident memory of a process; None if there is no /proc."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def per(total: float | None, count: float, unit: float = 1e6) -> float | None:
    """`total` seconds over `count`, in microseconds."""
    return None if total is None or not count else total / count * unit


def shown(value: float | None, form: str = ",.0f") -> str:
    """A cell's text; a dash for a value that could not be measured."""
    return "-" if value is None else format(value, form)


# --- Brokers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A running broker: its address, and the process whose cost is measured."""

    name: str
    bootstrap: str
    pid: int
    metrics_port: int | None = None

    def cpu_s(self) -> float | None:
        return cpu_s(self.pid)

    def requests(self, api: str) -> int | None:
        """The number of requests of an API that the broker has answered; None for a broker that
        does not count them."""
        if self.metrics_port is None:
            return None
        address = f"http://127.0.0.1:{self.metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        wanted = f'odradek_requests_total{{api="{api}"'
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith(wanted))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def odradek_broker(
    durability: str,
    settings: Mapping[str, object] | None = None,
    *,
    metrics: bool = True,
    data_dir: Path | None = None,
) -> Iterator[Target]:
    """Our broker in a separate process. Its data is in a temporary directory (below TMPDIR) unless
    a directory is given."""
    port = _free_port() if metrics else None
    given: dict[str, object] = {"log.durability": durability, "log.segment.delete.delay.ms": 0}
    if port is not None:
        given["http.listen"] = f"127.0.0.1:{port}"
    with SubprocessBroker(data_dir=data_dir, settings={**given, **(settings or {})}) as broker:
        assert broker.pid is not None
        yield Target(durability, broker.bootstrap, broker.pid, port)


def _serve_mock(pipe: Connection) -> None:
    import confluent_kafka

    # The mock broker ends when its client is freed, so `held` keeps the client.
    held = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(held.list_topics(timeout=_MOCK_START_S).brokers.values()))
    pipe.send(f"{broker.host}:{broker.port}")
    # This process ends when the pipe is closed, or on Ctrl+C, without a traceback.
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        pipe.recv()


@contextlib.contextmanager
def mock_broker() -> Iterator[Target]:
    """librdkafka's mock broker (`test.mock.num.brokers`). It is written in C, works in memory, and
    checks almost nothing.

    The mock broker runs in a separate process, so that its costs can be distinguished from the
    client's.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve_mock, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(_MOCK_START_S):
            raise SystemExit("librdkafka's mock broker did not start")
        assert process.pid is not None
        yield Target("mock", ours.recv(), process.pid)
    finally:
        ours.close()
        process.join(_MOCK_START_S)
        if process.is_alive():
            process.terminate()


def run_on_uvloop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop, because users who need speed use uvloop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
