"""Structure is a test: who imports whom, what stays free of I/O, what belongs together.

A rule that must bend bends here, by name and with a reason.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import golden
from odradek_protocol.keys import APIS, Api, ApiKey

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "odradek_protocol": ROOT / "protocol" / "odradek_protocol",
    "odradek_broker": ROOT / "broker" / "odradek_broker",
    "odradek_client": ROOT / "client" / "odradek_client",
    "odradek": ROOT / "client" / "odradek",
    "pyspark_odradek": ROOT / "spark_connector" / "pyspark_odradek",
}

#: Which of our packages each of them may import, besides itself (architecture, D2).
MAY_IMPORT = {
    "odradek_protocol": set[str](),
    "odradek_broker": {"odradek_protocol"},
    "odradek_client": {"odradek_protocol"},
    "odradek": {"odradek_protocol", "odradek_client", "odradek_broker"},
    "pyspark_odradek": {"odradek_protocol", "odradek_client", "odradek"},
}

#: What touches the world, or depends on when and where it runs (D3).
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

#: Shells: modules that may touch the world, and what for. Every other module of the protocol, the
#: broker and the client is a core, and imports nothing from IMPURE.
SHELLS = {
    "odradek_broker.dying": "kills its own process at a fault point",
    "odradek_broker.http": "serves metrics and health over a socket",
    "odradek_broker.logs": "sets up logging, once",
    "odradek_broker.real": "real clock, files and randomness behind the seams",
    "odradek_broker.server": "listens, accepts, drains",
    "odradek_broker.session": "owns a transport",
    "odradek_broker.storage.flush": "fsyncs on threads, group commit",
    "odradek_client.admin": "asks brokers, retries: the public class",
    "odradek_client.broker_link": "one broker: in-flight window, reconnect",
    "odradek_client.consumer.consumer": "subscribe, poll, commit: the public class",
    "odradek_client.consumer.consumer_group_loop": "heartbeats of KIP-848 in the background",
    "odradek_client.consumer.consumer_loop": "fetches in the background",
    "odradek_client.consumer.group": "what is due to a group, between polls",
    "odradek_client.consumer.group_loop": "heartbeats and rejoins in the background",
    "odradek_client.consumer.group_offsets": "commits in the background",
    "odradek_client.network": "links of a client, and its randomness",
    "odradek_client.producer.producer": "send, flush: the public class",
    "odradek_client.producer.transaction_calls": "begin, commit, abort: waits for their outcome",
    "odradek_client.producer.sender_loop": "turns what is to send into traffic",
    "odradek_client.transport": "owns a socket",
}

#: Packages that are shells as a whole: the command line and what runs inside of Spark.
SHELL_PACKAGES = {"odradek", "pyspark_odradek"}

#: Cores inside of shell packages.
CORES_IN_SHELL_PACKAGES = {
    "pyspark_odradek.columns",
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


def _modules() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield name, path


MODULES = dict(_modules())
EVERY_MODULE = pytest.mark.parametrize("module", MODULES)


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def _for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _source(module: str, node: ast.ImportFrom) -> str:
    """Where `from X import` looks, whole also where X is relative."""
    if node.level == 0:
        return str(node.module)
    package = module.split(".")
    if MODULES[module].name != "__init__.py":
        package.pop()
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, node.module] if node.module else package)


def _imports(module: str, *, types_too: bool) -> Iterator[tuple[str, int]]:
    """(full name, line) of every import, also inside of functions."""
    open_nodes: list[ast.AST] = [_tree(module)]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.stmt) and _for_types_only(node) and not types_too:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _source(module, node)
            yield source, node.lineno
            yield from ((f"{source}.{alias.name}", node.lineno) for alias in node.names)
        open_nodes.extend(ast.iter_child_nodes(node))


def _is_core(module: str) -> bool:
    if module.partition(".")[0] in SHELL_PACKAGES:
        return module in CORES_IN_SHELL_PACKAGES
    return module not in SHELLS


@EVERY_MODULE
def test_d02_packages_import_in_one_direction(module: str) -> None:
    package = module.partition(".")[0]
    for name, line in _imports(module, types_too=True):
        imported = name.partition(".")[0]
        if imported in PACKAGES and imported != package:
            assert imported in MAY_IMPORT[package], f"{module}:{line} imports {name}"


def test_d02_the_broker_comes_into_the_client_inside_of_functions_only() -> None:
    """Someone who only wants a client does not load a broker."""
    for module in MODULES:
        if module.partition(".")[0] != "odradek":
            continue
        for node in _tree(module).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "odradek_broker" not in ast.unparse(node), f"{module}:{node.lineno}"


@pytest.mark.parametrize("module", [module for module in MODULES if _is_core(module)])
def test_d03_cores_touch_nothing_outside(module: str) -> None:
    for name, line in _imports(module, types_too=False):
        assert name.partition(".")[0] not in IMPURE, (
            f"{module}:{line} imports {name}; a module that must touch the world is a shell,"
            " and is listed in SHELLS with its reason"
        )


@pytest.mark.parametrize("module", [module for module in MODULES if _is_core(module)])
def test_d03_cores_do_not_reach_the_world_through_shells(module: str) -> None:
    for name, line in _imports(module, types_too=False):
        assert name not in SHELLS, f"{module}:{line} imports the shell {name}"


def test_the_list_of_shells_names_what_is_there() -> None:
    gone = [module for module in SHELLS if module not in MODULES]
    assert gone == []
    for module in SHELLS:
        assert any(
            name.partition(".")[0] in IMPURE | {"structlog"}
            for name, _ in _imports(module, types_too=False)
        ), f"{module} is a core by now"


# --- Keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_key_has_schema_handler_and_golden_bytes(api: Api) -> None:
    name = golden.module_name(api)
    assert api.request.__module__ == f"odradek_protocol.schemas.{name}"
    dispatch = importlib.import_module("odradek_broker.dispatch")
    handler = importlib.import_module(f"odradek_broker.handlers.{name}")
    assert dispatch.HANDLERS[api.key] is handler.handle
    held = {(line["direction"], line["version"]) for line in golden.lines(name)}
    for version in api.request.versions:
        assert {("request", version), ("response", version)} <= held


def test_nothing_is_handled_that_is_no_key() -> None:
    dispatch = importlib.import_module("odradek_broker.dispatch")
    assert set(dispatch.HANDLERS) == set(APIS) == set(ApiKey)
    folder = PACKAGES["odradek_broker"] / "handlers"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert {name for name in names if not name.startswith("_")} == {
        golden.module_name(api) for api in APIS.values()
    }


def test_golden_files_are_those_of_the_keys() -> None:
    files = {path.stem for path in golden.FOLDER.glob("*.jsonl")}
    assert files == {golden.module_name(api) for api in APIS.values()} | {"captured"}


# --- Files ----------------------------------------------------------------------------------------


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.AnnAssign)


@EVERY_MODULE
def test_a_module_says_what_it_is(module: str) -> None:
    tree = _tree(module)
    if not tree.body:
        return
    assert ast.get_docstring(tree), f"{module} has no docstring"
    if not any(isinstance(node, _DEFINITIONS) for node in tree.body):
        return  # it only hands on what others define
    assert any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    ), f"{module} does not begin with `from __future__ import annotations`"


def _undocumented(module: str) -> Iterator[str]:
    """Public functions and classes that say nothing of themselves.

    Parts of messages (`@struct`) have their names from Kafka, and need not.
    """
    for node in _tree(module).body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        part = any(ast.unparse(decorator) == "struct" for decorator in node.decorator_list)
        if not part and not node.name.startswith("_") and ast.get_docstring(node) is None:
            yield node.name


@EVERY_MODULE
def test_public_definitions_have_docstrings(module: str) -> None:
    assert list(_undocumented(module)) == [], module


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


#: Hosts that only a lock file or a machine's own settings would name: where packages came from.
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


# --- Other people's judgement ---------------------------------------------------------------------


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


def test_ruff_finds_nothing() -> None:
    _run("ruff", "check", "--no-cache", ".")


def test_ruff_would_format_nothing() -> None:
    _run("ruff", "format", "--check", "--no-cache", ".")


def test_mypy_strict_finds_nothing() -> None:
    _run("mypy")
