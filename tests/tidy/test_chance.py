"""Random generators without a seed are all made through a name that the simulated machine replaces
(D10)."""

from __future__ import annotations

import ast

import pytest

from product_modules import MODULES, tree_of

#: The tests of this module read the whole tree, so a short run leaves them out;
#: `pytest tests/tidy` and `.ci/run` run them.
pytestmark = pytest.mark.full


def test_d10_generators_without_a_seed_are_named_by_their_module() -> None:
    """The simulated machine replaces `random.Random`: a module that has imported the name itself
    would keep the original class."""
    hidden = [
        f"{module}:{node.lineno} makes a generator that no seed reaches"
        for module in MODULES
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Random"
        and not node.args
        and not node.keywords
    ]
    assert hidden == [], "write random_module.Random()"
