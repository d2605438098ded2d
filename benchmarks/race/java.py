"""The rows of Java's clients: ProducerPerformance and ConsumerPerformance, as Kafka ships them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import subprocess
import uuid
from collections.abc import Iterator, Sequence

from benchmarks.broker import Load, produce
from benchmarks.race.contenders import kafka_tool, topic_at
from benchmarks.race.librdkafka import scaled
from benchmarks.race.rows import THOUSANDS_PER_S, Row, Run, Trial
from benchmarks.support import Target

_PATIENCE_S = 300.0
_RECORDS = 400_000
_RECORD_BYTES = 1_000
_SUMMARY = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .*99\.9th", re.MULTILINE)
#: The column of ConsumerPerformance with the records per second of fetch time. Fetch time does not
#: include the time to join the group.
_FETCHED = "fetch.nMsg.sec"


def _run(tool: str, *arguments: str) -> str:
    """Run a tool and return its output. Raises SystemExit if it fails."""
    done = subprocess.run(
        [*kafka_tool(tool), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        text=True,
        timeout=_PATIENCE_S,
    )
    if done.returncode:
        raise SystemExit(f"{tool} failed: {done.stderr[-500:]}{done.stdout[-500:]}")
    return done.stdout


def records_sent(output: str) -> tuple[int, float]:
    """(records, records per second) in ProducerPerformance's summary. Raises ValueError without a
    summary."""
    found = _SUMMARY.findall(output)
    if not found:
        raise ValueError(f"no summary in {output[-500:]!r}")
    return int(found[-1][0]), float(found[-1][1])


def records_fetched(output: str) -> tuple[int, float]:
    """(records, records per second) in ConsumerPerformance's table. Raises ValueError
    without a table."""
    lines = [line.split(", ") for line in output.splitlines() if ", " in line]
    for heads, cells in itertools.pairwise(lines):
        if _FETCHED in heads and len(heads) == len(cells):
            values = dict(zip(heads, cells, strict=True))
            return int(values["data.consumed.in.nMsg"]), float(values[_FETCHED])
    raise ValueError(f"no table in {output[-500:]!r}")


@contextlib.contextmanager
def _producing(transaction_ms: int | None, target: Target, scale: float) -> Iterator[Run]:
    wanted = max(1, int(_RECORDS * scale))

    def run() -> Sequence[float]:
        transactional = () if transaction_ms is None else _transactional(transaction_ms)
        with topic_at(target) as topic:
            output = _run(
                "ProducerPerformance",
                *("--topic", topic, "--num-records", str(wanted)),
                *("--record-size", str(_RECORD_BYTES), "--throughput", "-1"),
                *("--bootstrap-server", target.bootstrap, *transactional),
                *("--command-property", "acks=all", "batch.size=16384", "linger.ms=5"),
            )
        count, rate = records_sent(output)
        if count != wanted:
            raise SystemExit(f"{target.name}: {count} of {wanted} records were sent")
        return (rate / 1000,)

    yield run


def _transactional(transaction_ms: int) -> tuple[str, ...]:
    identity = f"race-{uuid.uuid4().hex}"
    return ("--transactional-id", identity, "--transaction-duration-ms", str(transaction_ms))


@contextlib.contextmanager
def _consuming(target: Target, scale: float) -> Iterator[Run]:
    load = scaled(Load(_RECORD_BYTES, 16_384, False, _RECORDS), scale)

    def run() -> Sequence[float]:
        output = _run(
            "ConsumerPerformance",
            *("--topic", topic, "--num-records", str(load.records)),
            *("--bootstrap-server", target.bootstrap, "--group", f"race-{uuid.uuid4().hex}"),
        )
        count, rate = records_fetched(output)
        if count < load.records:
            raise SystemExit(f"{target.name}: {count} of {load.records} records were read")
        return (rate / 1000,)

    with topic_at(target) as topic:
        produce(target, topic, load)
        yield run


def _produce_trial(name: str, title: str, transaction_ms: int | None) -> Trial:
    row = Row(name, f"ProducerPerformance, {title}", THOUSANDS_PER_S)
    at = functools.partial(_producing, transaction_ms)
    return Trial((row,), at, mock=False, warm=False)


JAVA = (
    _produce_trial("java-produce", "1 KB", None),
    _produce_trial("java-transactions-10ms", "a commit every 10 ms", 10),
    _produce_trial("java-transactions-100ms", "a commit every 100 ms", 100),
    Trial(
        (Row("java-consume", "ConsumerPerformance, 1 KB", THOUSANDS_PER_S),),
        _consuming,
        mock=False,
        warm=False,
    ),
)
