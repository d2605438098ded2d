"""The sources of all modules of the product, for tests of its structure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Folders of the packages: first the core, then the tools.
PACKAGES = {
    "odradek_protocol": ROOT / "protocol" / "odradek_protocol",
    "odradek_broker": ROOT / "broker" / "odradek_broker",
    "odradek_client": ROOT / "client" / "odradek_client",
    "pyspark_odradek": ROOT / "spark_connector" / "pyspark_odradek",
    "odradek_records": ROOT / "records" / "odradek_records",
    "odradek_testkit": ROOT / "testkit" / "odradek_testkit",
    "odradek_cli": ROOT / "command_line" / "odradek_cli",
    "odradek_console": ROOT / "console" / "odradek_console",
    "odradek_mirror": ROOT / "mirror" / "odradek_mirror",
    "odradek_log_tools": ROOT / "log_tools" / "odradek_log_tools",
    "odradek": ROOT / "odradek" / "odradek",
    "odradek_demo": ROOT / "demo" / "odradek_demo",
}
#: The top-level folders that hold them.
ROOMS = tuple(folder.parent.name for folder in PACKAGES.values())


def _modules() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            yield name, path


#: Source files by full module name; a package is its `__init__.py`.
MODULES = dict(_modules())


def parsed(text: str) -> ast.Module:
    """Parse a source file.

    Retries after a SystemError: CPython 3.11 may raise it while a thread or a destructor that
    another test has left is also compiling something.
    """
    for _ in range(3):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)


@cache
def text_of(module: str) -> str:
    """The source of a module."""
    return MODULES[module].read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return parsed(text_of(module))


@cache
def statements_of(module: str) -> list[ast.stmt]:
    """Every statement of a module, including those nested in others."""
    found: list[ast.stmt] = []
    open_nodes: list[ast.AST] = [tree_of(module)]
    while open_nodes:
        for node in ast.iter_child_nodes(open_nodes.pop()):
            if isinstance(node, ast.stmt):
                found.append(node)
            if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
                open_nodes.append(node)
    return found


def imported_from(module: str, node: ast.ImportFrom) -> str:
    """The full name of module X in `from X import`, even if X is relative."""
    if node.level == 0:
        return str(node.module)
    package = module.split(".")
    if MODULES[module].name != "__init__.py":
        package.pop()
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, node.module] if node.module else package)
