"""Fault points: a fixed set, armed only by the environment of `odradek serve`."""

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


def test_an_armed_fault_point_fires_at_its_nth_occurrence_only() -> None:
    struck: list[FaultPoint] = []
    fault_points = FaultPoints(FaultPoint.MARKER_WRITTEN, 2, struck.append)
    for point in FaultPoint:
        fault_points.reach(point)
    assert struck == []
    fault_points.reach(FaultPoint.MARKER_WRITTEN)
    assert struck == [FaultPoint.MARKER_WRITTEN]
    fault_points.reach(FaultPoint.MARKER_WRITTEN)
    assert len(struck) == 1


def test_unarmed_fault_points_have_no_effect() -> None:
    for point in FaultPoint:
        NO_FAULT_POINTS.reach(point)


@pytest.mark.full
def test_an_armed_fault_point_without_an_action_is_refused() -> None:
    with pytest.raises(ValueError, match="something that happens"):
        FaultPoints(FaultPoint.MARKER_WRITTEN)


@pytest.mark.parametrize("point", FaultPoint)
def test_a_fault_point_is_parsed_by_name_and_count(point: FaultPoint) -> None:
    assert parse_fault_point(point.value) == (point, 1)
    assert parse_fault_point(f"{point.value}:3") == (point, 3)


@pytest.mark.parametrize(
    "text", ["", "marker", "marker-written:", "marker-written:0", "marker-written:-1", "x:1", ":2"]
)
def test_the_error_for_an_unknown_fault_point_lists_the_known_ones(text: str) -> None:
    with pytest.raises(UnknownFaultPoint, match=r"marker-written|:2"):
        parse_fault_point(text)


def test_every_fault_point_is_used_in_the_broker() -> None:
    sources = [path.read_text() for path in BROKER.rglob("*.py") if path.name != "fault_points.py"]
    unreached = [
        point.name
        for point in FaultPoint
        if not any(f"FaultPoint.{point.name}" in s for s in sources)
    ]
    assert unreached == []


def test_no_fault_point_is_armed_without_the_environment_variable() -> None:
    assert injection_from_environment({}).fault_points is NO_FAULT_POINTS
    assert injection_from_environment({FAULT_POINT_VARIABLE: ""}).fault_points is NO_FAULT_POINTS
    assert (
        injection_from_environment({FAULT_POINT_VARIABLE: "marker-torn"}).fault_points
        is not NO_FAULT_POINTS
    )


@pytest.mark.full
def test_a_broker_with_an_unknown_fault_point_does_not_start(tmp_path: Path) -> None:
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
def test_a_broker_with_an_armed_fault_point_logs_a_warning(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start({FAULT_POINT_VARIABLE: "prepare-torn"})
    broker.stop()
    assert "a fault point is armed" in broker.log
    broker.start()
    broker.stop()
    assert "fault point" not in broker.log
