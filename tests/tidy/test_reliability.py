"""The tests and the simulated faults that docs/understand/reliability.md names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.sim import checkers
from tests.sim.workloads import WORKLOADS

from odradek_testkit.simulation.faults import FAULTS
from product_modules import parsed

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "understand" / "reliability.md"
CHECKERS = {
    path.stem for path in Path(checkers.__path__[0]).glob("*.py") if path.stem != "__init__"
}

_ROW = re.compile(r"^\| (?P<fault>.+?) \| (?P<holds>.+?) \| (?P<shown>.+) \|$", re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")
_TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


def rows() -> list[tuple[str, str]]:
    """(fault, the tests that show its effect) from the page's tables of faults."""
    return [
        (found["fault"], found["shown"])
        for found in _ROW.finditer(PAGE.read_text("utf-8"))
        if "::" in found["shown"]
    ]


@cache
def _tests_of(path: str) -> frozenset[str]:
    """The names of tests in a file: functions, classes, and variables such as the `TestCase` of a
    state machine."""
    tree = parsed((ROOT / path).read_text("utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in names if name.lower().startswith("test"))


def test_every_fault_names_a_test_that_exists() -> None:
    assert len(rows()) >= 34
    missing = []
    for fault, shown in rows():
        tests = _TEST.findall(shown)
        assert tests, fault
        for path, name in tests:
            if not (ROOT / path).is_file() or name not in _tests_of(path):
                missing.append(f"{fault}: {path}::{name}")
    assert missing == []


def test_simulated_rows_name_faults_workloads_and_checkers() -> None:
    """A row has the form: faults (or all faults) `in` workloads; checkers."""
    wrong = []
    for fault, shown in rows():
        _, simulated, told = shown.partition("*Simulated:* ")
        if not simulated:
            continue
        faults, _, behind = told.partition(" in ")
        workloads, _, checked = behind.partition("; ")
        wrong += [
            f"{fault}: {name} is no fault" for name in _CODE.findall(faults) if name not in FAULTS
        ]
        if not (_CODE.findall(faults) or faults == "all faults"):
            wrong.append(f"{fault}: which faults?")
        for names, known, kind in (
            (_CODE.findall(workloads), WORKLOADS, "workload"),
            (_CODE.findall(checked), CHECKERS, "checker"),
        ):
            wrong += [f"{fault}: {name} is no {kind}" for name in names if name not in known]
            if not names:
                wrong.append(f"{fault}: which {kind}?")
    assert wrong == []


def test_all_faults_and_workloads_are_listed() -> None:
    section = (
        PAGE.read_text("utf-8").partition("## The simulator")[2].partition("## Other judges")[0]
    )
    named = set(_CODE.findall(section))
    assert set(FAULTS) <= named
    assert set(WORKLOADS) <= named
