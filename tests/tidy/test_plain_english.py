"""Docstrings begin with their subject: a noun phrase, or a verb."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from product_modules import MODULES, tree_of

#: The tests of this module read the whole tree, so a short run leaves them out;
#: `pytest tests/tidy` and `.ci/run` run them.
pytestmark = pytest.mark.full

#: First words that postpone or omit the subject. Help texts of commands are not checked: users read
#: them, and they begin with a verb anyway.
_FORBIDDEN = re.compile(r"(What|Who|Whose|Whether|How|As|One|Those|That|It|Its)\b")


def _beginnings(module: str) -> Iterator[str]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and _FORBIDDEN.match(text):
                yield f"{module}.{getattr(node, 'name', '')}: {text.splitlines()[0]}"


def test_docstrings_begin_with_their_subject() -> None:
    assert [beginning for module in MODULES for beginning in _beginnings(module)] == []
