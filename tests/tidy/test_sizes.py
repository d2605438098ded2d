"""Limits for the length of lines, functions and files, and for small modules with a single user.
Limits may only be lowered."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from product_modules import MODULES, ROOMS, ROOT, imported_from, parsed, text_of, tree_of

#: The tests of this module read the whole tree, so a short run leaves them out;
#: `pytest tests/tidy` and `.ci/run` run them.
pytestmark = pytest.mark.full

COLUMNS_MAX = 100
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
#: A shorter module that is imported by only one other module should be a part of that module.
MODULE_LINES_MIN = 60

#: Generated files, whose texts may have any length.
_GENERATED = {"client/odradek_client/config/keywords.py"}
#: Files and functions that may be longer, with their numbers of lines. Remove an entry when it has
#: become short enough.
_LONG_FILES: dict[str, int] = {}
_LONG_FUNCTIONS = {
    # The pure codec's loop over records: a function call in it would cost a twentieth of its speed.
    "odradek_protocol.records.record._parse": 113,
}
#: Small modules with one user that may stay separate -> the reason.
_SMALL = {
    "odradek.errors": "a public name",
    "odradek.sync": "a public name",
    "odradek_testkit.unittest": "a public name",
    "odradek_client.consumer.assignors.range": "an assignor",
    "odradek_client.consumer.assignors.round_robin": "an assignor",
    "odradek_protocol.records.place": "the codec's, which may be compiled",
}


@cache
def _files() -> tuple[Path, ...]:
    folders = (*ROOMS, "tests", "benchmarks", "docs")
    return tuple(
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.relative_to(ROOT).as_posix() not in _GENERATED
    )


def _lines_of_text(text: str) -> Iterator[int]:
    """The numbers of the lines of docstrings and comments."""
    for node in ast.walk(parsed(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# noqa")):
            yield token.start[0]


def test_lines_of_docstrings_and_comments_are_as_short_as_code() -> None:
    found = []
    for path in _files():
        text = path.read_text("utf-8")
        lines = text.splitlines()
        if max(map(len, lines), default=0) > COLUMNS_MAX:
            found += [
                f"{path.relative_to(ROOT)}:{number}"
                for number in sorted(set(_lines_of_text(text)))
                if len(lines[number - 1]) > COLUMNS_MAX
            ]
    assert found == []


def test_files_are_short() -> None:
    long = {
        name: len(text_of(name).splitlines())
        for name in MODULES
        if len(text_of(name).splitlines()) > FILE_LINES_MAX
    }
    assert long.keys() == _LONG_FILES.keys()
    assert {name: lines for name, lines in long.items() if lines > _LONG_FILES[name]} == {}


def test_functions_are_short() -> None:
    long = {
        f"{name}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name in MODULES
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    }
    assert long.keys() == _LONG_FUNCTIONS.keys()
    assert {name: lines for name, lines in long.items() if lines > _LONG_FUNCTIONS[name]} == {}


def _imported(module: str) -> Iterator[str]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = imported_from(module, node)
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def test_small_modules_have_several_users() -> None:
    users: dict[str, set[str]] = defaultdict(set)
    for name in MODULES:
        for imported in _imported(name):
            if imported in MODULES and imported != name:
                users[imported].add(name)
    small = {
        name
        for name, path in MODULES.items()
        if len(users[name]) == 1
        and len(text_of(name).splitlines()) < MODULE_LINES_MIN
        and path.name != "__init__.py"
        and ".schemas." not in name
        and ".handlers." not in name
    }
    assert small == _SMALL.keys()
