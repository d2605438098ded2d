"""Imported modules are exempt from the garbage collection that Spark's workers do after every
task."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

import pytest

from pyspark_odradek.blocking import Imports, imports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def freezes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The recorded calls of the garbage collector's functions."""
    calls: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: calls.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    return calls


def test_garbage_is_collected_before_imports_are_frozen(freezes: list[str]) -> None:
    Imports(is_worker=True).spare()
    assert freezes == ["collect", "freeze"]


def test_imports_are_frozen_again_only_after_new_modules(
    freezes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spared = Imports(is_worker=True)
    spared.spare()
    spared.spare()
    assert freezes.count("freeze") == 1
    monkeypatch.setitem(sys.modules, "imported_by_the_first_task", sys)
    spared.spare()
    assert freezes.count("freeze") == 2


def test_imports_are_frozen_at_most_16_times(
    freezes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spared = Imports(is_worker=True)
    for number in range(40):
        monkeypatch.setitem(sys.modules, f"module_{number}", sys)
        spared.spare()
    assert freezes.count("freeze") == 16


def test_imports_are_not_frozen_in_other_processes(freezes: list[str]) -> None:
    Imports(is_worker=False).spare()
    imports.spare()
    assert freezes == []


@pytest.mark.spark
def test_imports_are_frozen_in_sparks_workers(spark: SparkSession) -> None:
    def is_spared(_: int) -> bool:
        from pyspark_odradek.blocking import imports

        imports.spare()
        return gc.get_freeze_count() > 0

    assert spark.sparkContext.parallelize([1], 1).map(is_spared).collect() == [True]
