"""Imports only go down: there are no cycles, and a package of the broker imports only packages on
lower floors.

Imports in functions and imports for types also count, because a dependency is the same whenever it
is loaded. If a lower module needs a type of an upper module, the lower module declares a Protocol.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from product_modules import MODULES, PACKAGES, imported_from, statements_of

#: The broker's packages and root modules, from the lowest floor to the highest. A module may import
#: its own package, and packages on lower floors. A module belongs to the longest name here that
#: matches.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("deferred",),
    (
        "platform",
        "request",
        "patterns",
        "share_state",
        "topic_partition",
        "emulation",
        "explain.sentences",
        "metrics.broker",
    ),
    ("explain.history", "mirror.events", "slices"),
    ("storage",),
    ("partition",),
    ("config", "fetch", "share", "faults"),
    ("security", "telemetry"),
    ("quotas",),
    ("metadata",),
    ("coordinator",),
    ("explain", "tools"),
    ("replica_manager",),
    ("metadata_publisher",),
    ("mirror",),
    ("node",),
    ("metrics",),
    ("handlers",),
    ("server",),
    ("virtual_clusters",),
)


def _names(module: str) -> Iterator[str]:
    for node in statements_of(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = imported_from(module, node)
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield whole if whole in MODULES else source


@cache
def _imported(module: str) -> frozenset[str]:
    """The modules of ours that a module imports."""
    return frozenset(name for name in _names(module) if name in MODULES and name != module)


def _cycles() -> list[list[str]]:
    """Modules in import cycles, with what they import.

    Modules without imports, and modules that no module imports, are removed again and again, until
    only cycles and the modules between them are left.
    """
    left = {module: set(_imported(module)) for module in MODULES}
    while True:
        imported = set().union(*left.values()) if left else set()
        ends = {module for module, names in left.items() if not names or module not in imported}
        if not ends:
            break
        left = {module: names - ends for module, names in left.items() if module not in ends}
    return [[module, *sorted(names)] for module, names in sorted(left.items())]


@pytest.mark.full
def test_imports_have_no_cycles() -> None:
    assert _cycles() == []


@cache
def _room(module: str) -> tuple[int, str]:
    """The place of a broker's module in FLOORS: (number of the floor, name in FLOORS)."""
    name = module.removeprefix("odradek_broker.")
    rows = [
        (len(room), floor, room)
        for floor, rooms in enumerate(FLOORS)
        for room in rooms
        if name == room or name.startswith(f"{room}.")
    ]
    assert rows, f"{module} stands on no floor: give it a place in FLOORS"
    _, floor, room = max(rows)
    return floor, room


def _upwards() -> Iterator[tuple[str, str]]:
    for module in MODULES:
        if not module.startswith("odradek_broker."):
            continue
        floor, room = _room(module)
        for name in sorted(_imported(module)):
            if not name.startswith("odradek_broker."):
                continue
            floor_below, room_below = _room(name)
            if room_below != room and floor_below >= floor:
                yield module, name


def test_the_broker_imports_from_lower_floors_only() -> None:
    assert list(_upwards()) == []


def test_every_package_of_the_floors_exists() -> None:
    folder = PACKAGES["odradek_broker"]
    rooms = [folder.joinpath(*room.split(".")) for rooms in FLOORS for room in rooms]
    assert [
        room for room in rooms if not room.is_dir() and not room.with_suffix(".py").exists()
    ] == []
