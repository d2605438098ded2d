"""Texts for users contain no rule numbers: pages, help, settings, error messages and log lines.

Numbers such as P-07 are for people who change the code; docs/rules and docs/understand/design.md
explain them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from product_modules import ROOMS, parsed

#: The tests of this module read the whole tree, so a short run leaves them out;
#: `pytest tests/tidy` and `.ci/run` run them.
pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
#: The docstrings of commands in this room are their help texts.
COMMANDS = ROOT / "command_line"

_RULE = re.compile(r"\b[A-Z]-\d{2,3}[a-k]?\b")


def _pages() -> list[Path]:
    """All pages except those for people who change the code."""
    pages = [
        path
        for path in (ROOT / "docs").rglob("*.md")
        if "rules" not in path.relative_to(ROOT).parts and path.name != "design.md"
    ]
    return [ROOT / "README.md", *sorted(pages)]


def _docstrings(tree: ast.Module) -> set[ast.expr]:
    """Docstrings: strings that are statements of their own, after a definition or an attribute."""
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _strings(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of every string that is not a docstring."""
    tree = parsed(path.read_text("utf-8"))
    left_out = set() if path.is_relative_to(COMMANDS) else _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in left_out:
            yield node.lineno, node.value


def test_pages_for_users_name_no_rules() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{number}": rules
        for path in _pages()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (rules := _RULE.findall(line))
    }
    assert found == {}, "say it in prose; docs/rules has the numbers"


def test_help_messages_and_log_lines_name_no_rules() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}": rules
        for package in ROOMS
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in _strings(path)
        if (rules := _RULE.findall(text))
    }
    assert found == {}, "say it in words; docs/rules has the numbers"
