"""`odradek bench` as a process, with a broker of the test and with a broker that it starts
itself."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import budget
from odradek_cli.tools.bench import Latency, Load, Throughput

if TYPE_CHECKING:
    from odradek.broker import SubprocessBroker

PATIENCE_S = 60.0
#: A port without a listener: the port is privileged, and no service uses it on the test machine.
NOBODY = "127.0.0.1:1"


def bench(*arguments: str, code: int = 0, **environment: str) -> tuple[str, str]:
    """(stdout, stderr) of `odradek bench`, which must end with the exit code `code`."""
    kept = {key: value for key, value in os.environ.items() if key != "ODRADEK_BOOTSTRAP"}
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "bench", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**kept, "COLUMNS": "200", **environment},
        check=False,
    )
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stdout, done.stderr


def topics(bootstrap: str) -> list[str]:
    from odradek import Admin

    async def main() -> list[str]:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            return await admin.list_topics()

    return asyncio.run(main())


@pytest.mark.full
@pytest.mark.parametrize(
    ("what", "measured"),
    budget.of_which(
        [
            ("produce", ["produce"]),
            ("consume", ["consume"]),
            ("latency", ["latency"]),
            ("all", ["produce", "consume", "latency"]),
        ],
        [("all", ["produce", "consume", "latency"])],
    ),
)
def test_json_has_a_line_per_measurement_and_the_topic_is_deleted(
    odradek_broker_session: SubprocessBroker, what: str, measured: list[str]
) -> None:
    bootstrap = odradek_broker_session.bootstrap
    out, err = bench(
        what, "--records", "300", "--size", "50", "--partitions", "3", "--json", "-b", bootstrap
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["measured"] for row in rows] == measured
    for row in rows:
        assert row["records"] == 300
        if row["measured"] == "latency":
            assert 0 < row["median_ms"] <= row["p95_ms"] <= row["p99_ms"] <= row["max_ms"]
        else:
            assert row["mb_per_s"] == pytest.approx(row["records_per_s"] * 50 / 1e6)
    assert err == ""
    assert not [name for name in topics(bootstrap) if name.startswith("odradek-bench-")]


@pytest.mark.full
def test_a_table_is_printed_for_the_broker_of_the_environment(
    odradek_broker_session: SubprocessBroker,
) -> None:
    out, _ = bench(
        "-n", "200", "-z", "lz4", "--batch-size", "1000", "--acks", "1", "--linger", "0",
        ODRADEK_BOOTSTRAP=odradek_broker_session.bootstrap,
    )  # fmt: skip
    lines = [line.split() for line in out.splitlines()]
    assert [line[0] for line in lines if line] == [
        "MEASURED", "produce", "consume", "MEASURED", "latency"
    ]  # fmt: skip
    assert all(line[1] == "200" for line in lines if line and line[0] != "MEASURED")


@pytest.mark.full
@pytest.mark.parametrize("durability", budget.of_which(["fsync", "page-cache"], ["fsync"]))
def test_bench_without_bootstrap_starts_and_ends_a_broker(tmp_path: Path, durability: str) -> None:
    out, _ = bench(
        "produce", "-n", "50", "--durability", durability, "--json", TMPDIR=str(tmp_path)
    )
    assert json.loads(out)["records"] == 50
    assert list(tmp_path.iterdir()) == [], f"left in {tempfile.gettempdir()}"


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["everything"], "everything"),
        (["--records", "0"], "--records"),
        (["--size", "-1"], "--size"),
        (["--acks", "2"], "--acks"),
        (["produce", "-b", NOBODY, "-z", "zip"], "compression_type"),
    ],
)
def test_a_bad_option_exits_2_and_is_named(arguments: list[str], about: str) -> None:
    out, err = bench(*arguments, code=2)
    assert out == ""
    assert about in err


def test_throughput_counts_values_in_millions_of_bytes() -> None:
    found = Throughput.of("produce", Load(1000, 500, 1, {}), 0.5)
    assert (found.records_per_s, found.mb_per_s) == (2000, 1.0)


def test_percentiles_are_taken_from_sorted_times() -> None:
    found = Latency.of([float(each) for each in reversed(range(1, 101))])
    assert (found.median_ms, found.p95_ms, found.p99_ms, found.max_ms) == (51, 96, 100, 100)
    assert Latency.of([2.0]) == Latency("latency", 1, 2.0, 2.0, 2.0, 2.0)
