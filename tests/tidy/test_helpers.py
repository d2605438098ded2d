"""Helpers of tests are in tests/support, and are imported by their module names.

The programs with which tests are made (`PROGRAMS` below) are packages; their modules are imported
by full names (`tests.oracle.script`). Functions that only pytest calls are fixtures, in the
conftest.py of the folders that use them. No module imports a test.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from product_modules import PACKAGES, ROOT, parsed

#: The tests of this module read the whole tree, so a short run leaves them out;
#: `pytest tests/tidy` and `.ci/run` run them.
pytestmark = pytest.mark.full

TESTS = ROOT / "tests"
SUPPORT = TESTS / "support"
PROGRAMS = ("adversity/fuzz", "golden", "interop/matrix", "oracle", "sim")
FOLDERS = {
    *("adversity", "broker", "cli", "client", "console", "golden", "interop", "log_tools"),
    *("mirror", "oracle", "protocol", "records", "sim", "spark", "support", "testkit", "tidy"),
}


@cache
def _trees() -> dict[Path, ast.Module]:
    return {path: parsed(path.read_text("utf-8")) for path in sorted(TESTS.rglob("*.py"))}


def _imported(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of every module that an import may name; the leading dots of relative names are
    kept."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            yield node.lineno, source
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def _is_wrong_import(name: str) -> bool:
    parts = name.split(".")
    if parts[0] == "":  # The name is relative.
        return True
    if parts[0] == "tests":
        return len(parts) > 1 and not _is_of_a_program("/".join(parts[1:]))
    return False


def _is_of_a_program(path: str) -> bool:
    return any(path == program or path.startswith(f"{program}/") for program in PROGRAMS)


def test_the_folders_of_tests_are_fixed() -> None:
    folders = {path.relative_to(TESTS).parts[0] for path in _trees() if path.parent != TESTS}
    assert folders == FOLDERS


def test_helpers_are_in_support() -> None:
    elsewhere = [
        str(path.relative_to(TESTS))
        for path in _trees()
        if path.parent != SUPPORT
        and not _is_of_a_program(path.relative_to(TESTS).as_posix())
        and path.name != "conftest.py"
        and not path.name.startswith("test_")
    ]
    assert elsewhere == []


def test_helpers_are_imported_by_their_names() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path, tree in _trees().items()
        for line, name in _imported(tree)
        if _is_wrong_import(name)
    ]
    assert wrong == []


def test_no_module_imports_a_test() -> None:
    tests = {path.stem for path in _trees() if path.name.startswith("test_")}
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path, tree in _trees().items()
        for line, name in _imported(tree)
        if {"conftest", *tests} & {*name.split(".")}
    ]
    assert found == []


def test_the_name_of_a_helper_is_unique() -> None:
    taken = {*sys.stdlib_module_names, *PACKAGES}
    assert [path.stem for path in SUPPORT.glob("*.py") if path.stem in taken] == []
    assert [
        path for path in SUPPORT.iterdir() if path.is_dir() and path.name != "__pycache__"
    ] == []


def test_every_helper_has_users() -> None:
    """A helper is used by an import, or by starting it as a program."""
    used = {name.split(".")[0] for tree in _trees().values() for _, name in _imported(tree)}
    started = {
        node.value.removesuffix(".py")
        for tree in _trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    helpers = {path.stem for path in SUPPORT.glob("*.py")}
    assert sorted(helpers - used - started) == []
