"""Figures of the whole tree that may only fall, and the weight of each room.

If a change makes a figure fall, lower its row here in the same commit. A change that makes a room
heavier than its row raises the row, and says why in its commit.
"""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from product_modules import MODULES, ROOT, parsed, text_of, tree_of

pytestmark = pytest.mark.full

CORE = ("odradek_protocol", "odradek_broker", "odradek_client", "pyspark_odradek")
#: The limit of lines of the core: protocol, broker, client and connector.
CORE_LINES_MAX = 120_583
#: Lines of Python in each room: a package, or a folder or module of the broker or the client.
WEIGHTS: dict[str, int] = {
    "odradek": 1_156,
    "odradek_broker": 5_476,
    "odradek_broker.config": 4_455,
    "odradek_broker.coordinator": 17_152,
    "odradek_broker.explain": 3_911,
    "odradek_broker.handlers": 9_245,
    "odradek_broker.metadata": 4_408,
    "odradek_broker.metrics": 1_673,
    "odradek_broker.platform": 1_287,
    "odradek_broker.security": 1_883,
    "odradek_broker.server": 5_368,
    "odradek_broker.share": 4_076,
    "odradek_broker.storage": 13_229,
    "odradek_broker.telemetry": 1_176,
    "odradek_cli": 12_192,
    "odradek_client": 2_671,
    "odradek_client.admin": 4_294,
    "odradek_client.config": 1_392,
    "odradek_client.consumer": 6_290,
    "odradek_client.network": 2_721,
    "odradek_client.producer": 5_119,
    "odradek_client.share": 2_780,
    "odradek_console": 7_693,
    "odradek_demo": 520,
    "odradek_log_tools": 3_195,
    "odradek_mirror": 6_918,
    "odradek_protocol": 15_773,
    "odradek_records": 3_153,
    "odradek_testkit": 9_307,
    "pyspark_odradek": 6_286,
}
#: A row may be this much too high, so that not every small change has to touch the table.
SLACK_LINES = 150

#: The public class names that two or more modules of the product define.
HOMONYMS_MAX = 29
#: Constructors with seven or more arguments.
LONG_CONSTRUCTORS_MAX = 30
LONG_CONSTRUCTOR_ARGUMENTS = 7
#: The reads of the product's private members in tests.
PRIVATE_READS_OF_TESTS_MAX = 357
#: Places of six lines in the product that have the shape of another place, for each 100 files.
TWINS_PER_100_FILES_MAX = 886
TWIN_LINES = 6


def _room(module: str) -> str:
    package, _, rest = module.partition(".")
    if package in {"odradek_broker", "odradek_client"} and rest:
        return f"{package}.{rest.partition('.')[0]}"
    return package


@cache
def _weights() -> Counter[str]:
    found: Counter[str] = Counter()
    for module in MODULES:
        found[_room(module)] += len(text_of(module).splitlines())
    small = [room for room, lines in found.items() if "." in room and lines < 1_000]
    for room in small:
        found[room.partition(".")[0]] += found.pop(room)
    return found


def test_no_room_is_heavier_than_its_row() -> None:
    weights = _weights()
    assert {room: lines for room, lines in weights.items() if lines > WEIGHTS.get(room, 0)} == {}


def test_the_rows_of_rooms_follow_what_was_taken_away() -> None:
    weights = _weights()
    lower = {
        room: weights[room] for room, row in WEIGHTS.items() if row - weights[room] > SLACK_LINES
    }
    assert lower == {}


def test_the_core_is_no_heavier_than_its_limit() -> None:
    lines = sum(lines for room, lines in _weights().items() if room.partition(".")[0] in CORE)
    assert CORE_LINES_MAX - SLACK_LINES <= lines <= CORE_LINES_MAX


# --- Names ----------------------------------------------------------------------------------------


def _classes(module: str) -> Iterator[ast.ClassDef]:
    yield from (node for node in tree_of(module).body if isinstance(node, ast.ClassDef))


def test_no_more_class_names_have_two_meanings() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for node in _classes(module):
            if not node.name.startswith("_"):
                homes[node.name].append(module)
    found = {name: modules for name, modules in homes.items() if len(modules) > 1}
    assert len(found) == HOMONYMS_MAX, sorted(found)


def test_no_more_constructors_have_many_arguments() -> None:
    found = [
        f"{module}.{node.name}"
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
        for arguments in [[*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs]]
        if len(arguments) - 1 >= LONG_CONSTRUCTOR_ARGUMENTS
    ]
    assert len(found) == LONG_CONSTRUCTORS_MAX, found


# --- Private members ------------------------------------------------------------------------------

#: Names with one underscore that Python documents.
_DOCUMENTED = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _DOCUMENTED


@cache
def _defined(module: str) -> frozenset[str]:
    """The private names that a module defines or assigns, also as attributes."""
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # In __slots__, or for getattr and setattr.
            found.add(node.value)
    return frozenset(filter(_private, found))


def _read_outside_of_self(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(name, line) of the private members that are read from other objects, or imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}):
                yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.name, node.lineno) for alias in node.names if _private(alias.name))


def test_no_package_reads_private_members_of_another() -> None:
    of_package: defaultdict[str, set[str]] = defaultdict(set)
    for module in MODULES:
        of_package[module.partition(".")[0]] |= _defined(module)
    everything = set().union(*of_package.values())
    found = [
        f"{module}:{line} {name}"
        for module in MODULES
        for name, line in _read_outside_of_self(tree_of(module))
        if name in everything - of_package[module.partition(".")[0]]
    ]
    assert found == []


def test_tests_read_no_more_private_members() -> None:
    everything = set().union(*map(_defined, MODULES))
    found = Counter(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        for name, _ in _read_outside_of_self(parsed(path.read_text("utf-8")))
        if name in everything
    )
    assert found.total() == PRIVATE_READS_OF_TESTS_MAX, found.most_common(20)


# --- Places of the same shape ---------------------------------------------------------------------


def _shapes(text: str) -> Iterator[str]:
    """The shape of each line of code, without names, strings, numbers, docstrings and imports."""
    lines: defaultdict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            shape = token.string if keyword.iskeyword(token.string) else "n"
        elif token.type in {tokenize.STRING, tokenize.NUMBER}:
            shape = "v"
        elif token.type == tokenize.OP:
            shape = token.string
        else:
            continue
        lines[token.start[0]].append(shape)
    for _, shapes in sorted(lines.items()):
        if len(shapes) > 1 and shapes[0] not in {"from", "import"}:
            yield " ".join(shapes)


def _windows(lines: Iterable[str]) -> Iterator[int]:
    kept = list(lines)
    for first in range(len(kept) - TWIN_LINES + 1):
        yield hash(tuple(kept[first : first + TWIN_LINES]))


def test_no_more_places_have_the_shape_of_another() -> None:
    found: Counter[int] = Counter()
    for module in MODULES:
        found.update(_windows(_shapes(text_of(module))))
    twins = sum(count - 1 for count in found.values() if count > 1)
    assert 100 * twins // len(MODULES) == TWINS_PER_100_FILES_MAX
