"""Tests of the structure: imports, modules without I/O, files that belong together.

Exceptions are listed here by name, with a reason.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from inspect import unwrap
from pathlib import Path

import pytest

import golden
from odradek_protocol.keys import APIS, Api
from product_modules import MODULES, PACKAGES, ROOT, imported_from, text_of, tree_of

_CORE = {"odradek_protocol", "odradek_broker", "odradek_client", "pyspark_odradek"}
_BELOW_TOOLS = {*_CORE, "odradek_records"}
#: Our packages, from the bottom to the top -> the other packages of ours that each may import (D2).
#: The core imports no tool, and a tool imports no tool but the test kit and the command line.
MAY_IMPORT = {
    "odradek_protocol": set[str](),
    "odradek_broker": {"odradek_protocol"},
    "odradek_client": {"odradek_protocol"},
    "pyspark_odradek": {"odradek_protocol", "odradek_client"},
    "odradek_records": {"odradek_protocol", "odradek_client"},
    "odradek_testkit": _BELOW_TOOLS,
    "odradek_cli": {*_BELOW_TOOLS, "odradek_testkit"},
    "odradek_console": {*_BELOW_TOOLS, "odradek_cli"},
    "odradek_mirror": {*_BELOW_TOOLS, "odradek_cli"},
    "odradek_log_tools": {*_BELOW_TOOLS, "odradek_cli"},
    "odradek": {*_BELOW_TOOLS, "odradek_testkit", "odradek_cli"},
    "odradek_demo": {*_BELOW_TOOLS, "odradek_testkit", "odradek_cli", "odradek"},
}

#: Those that load the broker when they are imported: they run it, or read its files.
LOAD_THE_BROKER = (
    *("odradek_broker", "odradek_log_tools"),
    *("odradek_testkit.fault_control", "odradek_testkit.simulation"),
    "odradek_testkit.virtual_clusters",
)

#: Modules that may import one more of our packages -> that package, and the reason.
MAY_IMPORT_TOO = {
    "tests.sim.mutants.spark_sink": ("pyspark_odradek", "puts bugs into its protocol"),
    "tests.sim.workloads.spark_query": ("pyspark_odradek", "runs its protocol"),
    "tests.sim.workloads.spark_sink": ("pyspark_odradek", "runs its protocol"),
}

#: Modules that do I/O, or whose results depend on time and place (D3); cores must not import them.
IMPURE = {
    "asyncio",
    "concurrent",
    "ctypes",
    "fcntl",
    "glob",
    "http",
    "logging",
    "mmap",
    "multiprocessing",
    "os",
    "pathlib",
    "platform",
    "queue",
    "random",
    "resource",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "socketserver",
    "ssl",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "urllib",
    "uvloop",
}

#: Modules that only get memory from a module in IMPURE.
MEMORY_OF = {
    "mmap": ("odradek_protocol.compression",),
    "mmap.mmap": ("odradek_protocol.compression",),
}

#: Shells, which are modules that may do I/O -> the reason. Every other module of the protocol, the
#: broker and the client is a core, and imports nothing from IMPURE.
SHELLS = {
    "odradek_broker.platform.fault_injection": "kills its own process at a fault point",
    "odradek_broker.platform.garbage": "sets up the collector of the process, with a timer",
    "odradek_broker.server.acceptors": "holds back who connects, for a while",
    "odradek_broker.server.cleaner_process": "starts the process that compacts, waits in a thread",
    "odradek_broker.server.cleaner_worker": "is that process",
    "odradek_broker.server.hangup": "handles a signal, looks for a terminal",
    "odradek_broker.server.http": "serves metrics and health over a socket",
    "odradek_broker.server.http_connections": "owns connections, waits for requests",
    "odradek_broker.platform.log_lines": "sets up logging, changes the levels of the loggers",
    "odradek_broker.platform.machine": "real clock, files and randomness behind the seams",
    "odradek_broker.server.host": "the machine: its sockets, threads, clocks, event loop and open files",
    "odradek_broker.server.initial_users": "reads passwords from files and the environment",
    "odradek_broker.server.jwks": "reads keys from a file or an address",
    "odradek_broker.server.sasl_listeners": "reads files of users",
    "odradek_broker.server.server": "listens, accepts, drains",
    "odradek_broker.server.session": "owns a transport",
    "odradek_broker.server.tls": "reads certificates, makes contexts of them",
    "odradek_protocol.foreign_lines": "takes the lines of other libraries' loggers",
    "odradek_protocol.http_deadline": "ends the sockets of late answers",
    "odradek_protocol.tls.contexts": "makes contexts for ssl",
    "odradek_protocol.tls.names": "handshakes of ssl in memory",
    "odradek_protocol.tls.files": "reads keystores and secrets",
    "odradek_protocol.tls.handshake": "wraps asyncio's handshakes",
    "odradek_protocol.tls.problems": "knows the errors of ssl",
    "odradek_broker.storage.group_commit": "fsyncs on threads, group commit",
    "odradek_client.admin": "hands on the public class",
    "odradek_client.admin.admin": "asks brokers, retries: the public class",
    "odradek_client.admin.users": "draws salts",
    "odradek_client.cancellation": "catches what asyncio raises",
    "odradek_client.sasl.login": "asks for tokens, keeps them; draws nonces",
    "odradek_client.sasl.token_endpoint": "asks an endpoint over HTTP",
    "odradek_client.network.broker_connection": "one broker: in-flight window, timeouts",
    "odradek_client.consumer.consumer": "subscribe, poll, commit: the public class",
    "odradek_client.consumer.group.consumer_loop": "heartbeats of KIP-848 in the background",
    "odradek_client.loop_thread": "an event loop in a thread",
    "odradek_client.blocking_calls": "waits for the loop's work in the caller's thread",
    "odradek_client.sync": "the clients without asyncio",
    "odradek_client.tasks": "runs tasks, and waits for their ends",
    "odradek_client.consumer.poll_loop": "fetches, and finds positions, in the background",
    "odradek_client.consumer.group.group_loop": "a group, between polls and before partitions go",
    "odradek_client.consumer.group.heartbeats": "heartbeats in the background, of any group",
    "odradek_client.share.consumer": "subscribe, poll, commit: the public class",
    "odradek_client.share.group_loop": "heartbeats of a share group in the background",
    "odradek_client.share.share_loop": "fetches, acknowledges and renews locks in the background",
    "odradek_client.consumer.group.classic_loop": "heartbeats and rejoins in the background",
    "odradek_client.consumer.group.offsets": "commits in the background, whose outcome others await",
    "odradek_client.consumer.group.coordinator": "asks a group's coordinator, retries",
    "odradek_client.network.connections": "opens connections, again with a backoff",
    "odradek_client.network.probe": "opens a connection to see what answers",
    "odradek_client.network.metadata": "asks for metadata in the background",
    "odradek_client.network.client": "a client's loop, and its randomness",
    "odradek_client.producer.appender": "waits for metadata and memory",
    "odradek_client.producer.producer": "send, flush: the public class",
    "odradek_client.producer.transaction_calls": "begin, commit, abort: waits for their outcome",
    "odradek_client.producer.sender_loop": "turns what is to send into traffic, and writes log lines",
    "odradek_client.network.transport": "owns a socket",
}

#: Packages whose modules are all shells: the tools, and what runs inside of Spark.
SHELL_PACKAGES = PACKAGES.keys() - {"odradek_protocol", "odradek_broker", "odradek_client"}

#: Modules of SHELL_PACKAGES that are cores nevertheless.
CORES_IN_SHELL_PACKAGES = {
    "odradek_mirror.batches",
    "odradek_mirror.comparison",
    "odradek_mirror.offset_map",
    "pyspark_odradek.errors",
    "pyspark_odradek.exactly_once",
    "pyspark_odradek.exactly_once.identity",
    "pyspark_odradek.exactly_once.ledger",
    "pyspark_odradek.exactly_once.protocol",
    "pyspark_odradek.fetching",
    "pyspark_odradek.kafka_settings",
    "pyspark_odradek.options",
    "pyspark_odradek.schema",
    "pyspark_odradek.offsets",
    "pyspark_odradek.planning",
}


def _for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@cache
def _imports(module: str, *, types_too: bool) -> list[tuple[str, int]]:
    """(full name, line) of every import, including those in functions."""
    found: list[tuple[str, int]] = []
    open_nodes: list[ast.AST] = [tree_of(module)]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.stmt) and _for_types_only(node) and not types_too:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = imported_from(module, node)
            found.append((source, node.lineno))
            found += [(f"{source}.{alias.name}", node.lineno) for alias in node.names]
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case | ast.Module):
            # Expressions contain no imports.
            open_nodes.extend(ast.iter_child_nodes(node))
    return found


def _is_core(module: str) -> bool:
    if module.partition(".")[0] in SHELL_PACKAGES:
        return module in CORES_IN_SHELL_PACKAGES
    return module not in SHELLS


CORES = [module for module in MODULES if _is_core(module)]


def test_d02_packages_import_in_one_direction() -> None:
    against_it = [
        f"{module}:{line} imports {name}"
        for module in MODULES
        for package in [module.partition(".")[0]]
        for name, line in _imports(module, types_too=True)
        if name.partition(".")[0]
        in PACKAGES.keys() - MAY_IMPORT[package] - {package, *MAY_IMPORT_TOO.get(module, ())[:1]}
    ]
    assert against_it == []


def test_d02_tools_import_the_broker_inside_of_functions_only() -> None:
    """A program with only a client must not load the broker."""
    at_import = [
        f"{module}:{node.lineno}"
        for module in MODULES
        if not module.startswith(LOAD_THE_BROKER)
        for node in tree_of(module).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        and re.search(r"import odradek_broker\b|from odradek_broker\b", ast.unparse(node))
    ]
    assert at_import == []


def test_d03_cores_import_no_module_with_io() -> None:
    impure = [
        f"{module}:{line} imports {name}"
        for module in CORES
        for name, line in _imports(module, types_too=False)
        if name.partition(".")[0] in IMPURE and module not in MEMORY_OF.get(name, ())
    ]
    assert impure == [], "a module that must touch the world is in SHELLS, with its reason"


def test_d03_cores_import_no_shell() -> None:
    through_shells = [
        f"{module}:{line} imports the shell {name}"
        for module in CORES
        for name, line in _imports(module, types_too=False)
        if name in SHELLS
    ]
    assert through_shells == []


def test_the_list_of_shells_is_up_to_date() -> None:
    gone = [module for module in SHELLS if module not in MODULES]
    assert gone == []
    cores_by_now = [
        module
        for module in SHELLS
        if not any(
            name.partition(".")[0] in IMPURE | {"structlog"} or name in SHELLS
            for name, _ in _imports(module, types_too=False)
        )
    ]
    assert cores_by_now == []


# --- Keys -----------------------------------------------------------------------------------------


def _missing_of(api: Api) -> Iterator[str]:
    """The parts that an API should have, but that are missing."""
    name = golden.module_name(api)
    if api.request.__module__ != f"odradek_protocol.schemas.{name}":
        yield f"{api.request.__module__} is no schema"
    dispatch = importlib.import_module("odradek_broker.server.dispatch")
    handler = importlib.import_module(f"odradek_broker.handlers.{name}")
    if unwrap(dispatch.import_handler(api.key)) is not handler.handle:
        yield f"{name} is handled by somebody else"
    held = {(line["direction"], line["version"]) for line in golden.lines(name)}
    wanted = {(way, version) for way in ("request", "response") for version in api.request.versions}
    yield from (
        f"{name} {way} v{version}: no golden bytes" for way, version in sorted(wanted - held)
    )


def test_every_api_has_a_schema_a_handler_and_golden_bytes() -> None:
    missing = [text for api in APIS.values() for text in _missing_of(api)]
    assert missing == []


def test_every_handler_belongs_to_an_api() -> None:
    dispatch = importlib.import_module("odradek_broker.server.dispatch")
    assert set(dispatch.HANDLERS) == set(APIS)
    folder = PACKAGES["odradek_broker"] / "handlers"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {name for name in names if not name.startswith("_")} == {
        golden.module_name(api) for api in APIS.values()
    }


def test_every_golden_file_belongs_to_an_api() -> None:
    files = {path.stem for path in golden.FOLDER.glob("*.jsonl")}
    others = {"captured", "kafka_schemas"}
    assert files == {golden.module_name(api) for api in APIS.values()} | others


_OFFSET_CONSTANT = re.compile(r"_AT(: \w+)? = ")


def test_offsets_into_a_batch_header_are_in_one_table() -> None:
    """The table is `records/layout.py`; a second definition of an offset could differ from it."""
    written_again = [
        module
        for module in MODULES
        if not module.startswith("odradek_protocol.records.")
        and _OFFSET_CONSTANT.search(text_of(module))
    ]
    assert written_again == []


_SPECIAL_VALUE = re.compile(
    r"^_?(NO_\w+|\w+_TIMESTAMP|READ_\w*COMMITTED|\w+_COORDINATOR) = -?\d+$", re.MULTILINE
)


def test_special_values_of_the_protocol_are_in_one_module() -> None:
    said_elsewhere = [
        f"{module}: {found[0]}"
        for module in MODULES
        if module != "odradek_protocol.constants"
        for found in _SPECIAL_VALUE.finditer(text_of(module))
    ]
    assert said_elsewhere == []


_VERSION_CONSTANT = re.compile(r"^\w+_SINCE(: \w+)? = ", re.MULTILINE)
_VERSION_NUMBER = re.compile(r"\bversion (<|<=|>|>=) [1-9]")


def test_version_numbers_are_named_beside_their_schemas() -> None:
    """Other modules import a version number from the schema's module, where it has a name and a
    reason."""
    said_elsewhere = [
        f"{module}: {found[0]}"
        for module in MODULES
        if not module.startswith("odradek_protocol.")
        for text in [text_of(module)]
        for found in [
            *_VERSION_CONSTANT.finditer(text),
            *_VERSION_NUMBER.finditer(text.replace("transaction_version", "")),
        ]
    ]
    assert said_elsewhere == []


# --- Files ----------------------------------------------------------------------------------------


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.AnnAssign)


def test_every_module_has_a_docstring() -> None:
    silent = [
        module
        for module in MODULES
        if tree_of(module).body and not ast.get_docstring(tree_of(module))
    ]
    assert silent == []


def _defers_annotations(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )


def test_a_module_with_definitions_defers_its_annotations() -> None:
    """Modules must have `from __future__ import annotations`, except modules that only re-export
    names of other modules."""
    eager = [
        module
        for module in MODULES
        if any(isinstance(node, _DEFINITIONS) for node in tree_of(module).body)
        and not _defers_annotations(tree_of(module))
    ]
    assert eager == []


def _undocumented(module: str) -> Iterator[str]:
    """Yield public functions and classes without a docstring.

    Messages and the structs in them need none: their names are Kafka's, and the docstring of the
    module says what the API does.
    """
    for node in tree_of(module).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        bases = node.bases if isinstance(node, ast.ClassDef) else []
        on_the_wire = any(ast.unparse(base) in {"Message", "Struct"} for base in bases)
        if not on_the_wire and not node.name.startswith("_") and ast.get_docstring(node) is None:
            yield node.name


def test_public_definitions_have_docstrings() -> None:
    undocumented = [f"{module}.{name}" for module in MODULES for name in _undocumented(module)]
    assert undocumented == []


def _text_files() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    )
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file() and path.suffix not in {".parquet", ".png", ".jpg", ".gz"}:
            yield path


#: Hosts of package indexes. Only a lock file or the settings of a machine may name them.
_REGISTRY = re.compile(
    r"https?://[^\s\"'<>]*(?:simple/|pypi[.-]|/pypi/|artifactory|nexus|devpi|packages/[0-9a-f]{2}/)"
    r"|--(?:extra-)?index-url|index-url\s*="
)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs git's list of files")
def test_no_file_names_the_host_of_a_package_registry() -> None:
    found = []
    for path in _text_files():
        if path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if _REGISTRY.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert found == []


# --- ruff and mypy ---


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_ruff_finds_nothing() -> None:
    _run("ruff", "check", "--no-cache", ".")


def test_ruff_would_format_nothing() -> None:
    _run("ruff", "format", "--check", "--no-cache", ".")


@pytest.mark.full
def test_mypy_strict_finds_nothing() -> None:
    _run("mypy")
