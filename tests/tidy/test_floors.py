"""Imports only go down: there are no cycles, and a room imports only rooms on lower floors.

Imports in functions and imports for types also count, because a dependency is the same whenever it
is loaded. If a lower module needs a type of an upper module, the lower module declares a Protocol.
`test_tidy.py` has the order of the packages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from product_modules import MODULES, PACKAGES, imported_from, statements_of

Floors = tuple[tuple[str, ...], ...]

#: The rooms of each package (its subpackages and root modules), from the lowest floor to the
#: highest. A module may import its own room, and rooms on lower floors. A module belongs to the
#: longest name here that matches; "" is the package's own `__init__`.
FLOORS: dict[str, Floors] = {
    "odradek_protocol": (
        (
            *("", "acls", "checksums", "compression", "constants", "errors", "http_deadline"),
            *("http_hosts", "lazy_dataclass", "lazy_tuple", "murmur2", "repeated_lines", "visible"),
            *("version", "waiting_peers"),
        ),
        ("foreign_lines", "primitives", "sasl", "settings", "tls"),
        ("message",),
        ("codec", "common_structs", "keys"),
        ("frames", "schemas", "stored"),
        ("fetch_frames", "records"),
        ("produce_frames",),
    ),
    "odradek_broker": (
        ("", "deferred"),
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
        ("config", "fetch", "share"),
        ("security", "telemetry"),
        ("quotas",),
        ("metadata",),
        ("coordinator",),
        ("explain",),
        ("replica_manager",),
        ("metadata_publisher",),
        ("mirror",),
        ("node",),
        ("explain.causes",),
        ("metrics",),
        ("handlers",),
        ("server",),
    ),
    "odradek_client": (
        (*("", "backoff", "cancellation", "error_meanings", "structs", "timestamps", "words"),),
        ("consumer.assignors", "consumer.offset_reset", "errors"),
        ("loop_thread", "sasl", "tasks"),
        ("blocking_calls", "config"),
        ("network",),
        ("producer",),
        ("consumer",),
        ("share",),
        ("admin",),
        ("sync",),
    ),
    "pyspark_odradek": (
        ("errors", "kafka_settings", "planning", "session", "task_properties", "topic_identity"),
        ("admission", "fetching", "offsets", "schema"),
        ("options", "progress"),
        ("cluster", "lag"),
        ("exactly_once",),
        ("blocking",),
        ("reuse", "writer"),
        ("batch_reader", "transactional_writer"),
        ("stream_reader",),
        ("source",),
        ("",),
    ),
    "odradek_records": (
        ("", "decoders", "lag", "offset_grammar", "partition_fetch", "record_format"),
        ("masking", "record_filter", "reset_plan"),
    ),
    "odradek_testkit": (
        (
            *("", "assertions", "http_orders", "security"),
            *("virtual_clusters.relay", "virtual_clusters.settings"),
        ),
        ("fault_control",),
        ("simulation", "virtual_clusters"),
        ("faults",),
        ("broker",),
        ("clusters", "spark_testing", "testcontainers"),
        ("testing", "unittest"),
        ("pytest_plugin",),
    ),
    "odradek_cli": (
        ("commands", "layout", "options", "say", "standard_streams"),
        ("app", "client_config", "topic_patterns"),
        ("common", "completion"),
        ("broker", "cluster"),
        ("", "records", "topics"),
        ("groups",),
        ("tools",),
    ),
    "odradek_console": (
        ("", "answers", "connections", "record_rules", "scan", "timeline_lanes"),
        ("partition_log", "sessions"),
        ("shown",),
        ("asked", "group_figures", "histories", "live", "reading"),
        (
            *("client_metrics", "export", "group_details", "groups", "operations", "records"),
            *("sign_in", "tail", "timeline", "topic", "topics", "transactions"),
        ),
        ("changes", "group", "overview", "producers"),
        ("access", "cluster_changes", "clusters", "writes"),
        ("server",),
        ("command",),
    ),
    "odradek_mirror": (
        ("", "batches", "checkpoint", "copier_state", "progress", "source"),
        ("offset_map",),
        ("comparison", "map_topic"),
        ("settings", "transactional_writer"),
        ("plan",),
        ("check", "group_offsets", "start_state", "ownership"),
        ("exactly_once", "run"),
        ("same_offsets",),
        ("commands",),
    ),
    "odradek_log_tools": (
        ("", "file_names", "record_decoders", "segment_file"),
        ("dump",),
        ("verify",),
        ("commands",),
    ),
    "odradek": (
        (
            *("__main__", "assertions", "broker", "clusters", "decoders", "errors", "faults"),
            *("otel_names", "security", "spark", "sync", "testcontainers", "testing", "unittest"),
        ),
        ("", "otel"),
    ),
    "odradek_demo": (("", "flights"), ("demo",)),
}


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
    """The place of a module in FLOORS: (number of the floor, name of the room)."""
    package, _, name = module.partition(".")
    rows = [
        (len(room), floor, room)
        for floor, rooms in enumerate(FLOORS[package])
        for room in rooms
        if name == room or (room and name.startswith(f"{room}."))
    ]
    assert rows, f"{module} stands on no floor: give it a place in FLOORS"
    _, floor, room = max(rows)
    return floor, room


def _upwards(package: str) -> Iterator[tuple[str, str]]:
    inside = {name for name in MODULES if name.partition(".")[0] == package}
    for module in sorted(inside):
        floor, room = _room(module)
        for name in sorted(_imported(module) & inside):
            floor_below, room_below = _room(name)
            if room_below != room and floor_below >= floor:
                yield module, name


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_import_from_lower_floors_only(package: str) -> None:
    assert list(_upwards(package)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_of_the_floors_exists(package: str) -> None:
    named = {f"{package}.{room}".rstrip(".") for rooms in FLOORS[package] for room in rooms}
    assert named <= MODULES.keys()
