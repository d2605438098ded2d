"""Fault points: a closed set, armed only by the environment of `odradek serve`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from odradek_broker.platform.fault_injection import injection_from_environment
from odradek_broker.platform.fault_points import (
    FAULT_POINT_VARIABLE,
    NO_FAULT_POINTS,
    FaultPoint,
    FaultPoints,
    UnknownFaultPoint,
    parse_fault_point,
)

BROKER = Path(__file__).resolve().parents[3] / "broker" / "odradek_broker"


def test_only_the_armed_point_strikes_and_only_the_nth_time() -> None:
    struck: list[FaultPoint] = []
    fault_points = FaultPoints(FaultPoint.MARKER_WRITTEN, 2, struck.append)
    for point in FaultPoint:
        fault_points.reach(point)
    assert struck == []
    fault_points.reach(FaultPoint.MARKER_WRITTEN)
    assert struck == [FaultPoint.MARKER_WRITTEN]
    fault_points.reach(FaultPoint.MARKER_WRITTEN)
    assert len(struck) == 1


def test_nothing_happens_in_a_broker_that_is_not_armed() -> None:
    for point in FaultPoint:
        NO_FAULT_POINTS.reach(point)


@pytest.mark.full
def test_an_armed_point_without_a_deed_is_refused() -> None:
    with pytest.raises(ValueError, match="something that happens"):
        FaultPoints(FaultPoint.MARKER_WRITTEN)


@pytest.mark.parametrize("point", FaultPoint)
def test_points_are_armed_by_name(point: FaultPoint) -> None:
    assert parse_fault_point(point.value) == (point, 1)
    assert parse_fault_point(f"{point.value}:3") == (point, 3)


@pytest.mark.parametrize(
    "text", ["", "marker", "marker-written:", "marker-written:0", "marker-written:-1", "x:1", ":2"]
)
def test_an_unknown_name_is_an_error_that_says_what_there_is(text: str) -> None:
    with pytest.raises(UnknownFaultPoint, match=r"marker-written|:2"):
        parse_fault_point(text)


def test_every_point_is_reached_somewhere_in_the_broker() -> None:
    sources = [path.read_text() for path in BROKER.rglob("*.py") if path.name != "fault_points.py"]
    unreached = [
        point.name
        for point in FaultPoint
        if not any(f"FaultPoint.{point.name}" in s for s in sources)
    ]
    assert unreached == []


def test_without_the_variable_nothing_is_armed() -> None:
    assert injection_from_environment({}).fault_points is NO_FAULT_POINTS
    assert injection_from_environment({FAULT_POINT_VARIABLE: ""}).fault_points is NO_FAULT_POINTS
    assert (
        injection_from_environment({FAULT_POINT_VARIABLE: "marker-torn"}).fault_points
        is not NO_FAULT_POINTS
    )


@pytest.mark.full
def test_a_broker_with_an_unknown_point_does_not_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "odradek", "serve", "--listen", "127.0.0.1:0"),
            *("--data-dir", str(tmp_path / "data")),
        ],
        env={**os.environ, FAULT_POINT_VARIABLE: "nowhere"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "no fault point 'nowhere'" in done.stderr and "prepare-torn" in done.stderr


@pytest.mark.full
def test_an_armed_broker_says_so_loudly(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start({FAULT_POINT_VARIABLE: "prepare-torn"})
    broker.stop()
    assert "a fault point is armed" in broker.log
    broker.start()
    broker.stop()
    assert "fault point" not in broker.log
