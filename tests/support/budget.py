"""The tests of a run: the short run, the full run, or the rest that the short run leaves out.

`pytest` alone is the short run, the README's test command. It leaves out the tests marked `full`,
and runs the tests marked `budgeted` with fewer examples. A run with a path, or with `--kafka`, is a
full run of the tests that it names. `--budget` overrides this choice. CI does the short run, and
then `--budget=rest`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

SHORT, FULL, REST = "short", "full", "rest"

#: The short run divides the number of examples of each property by this number.
_EXAMPLES_DIVISOR = 5
_EXAMPLES_MIN = 3

_chosen = FULL


def choose(config: pytest.Config) -> None:
    """Set the budget of this process, before any test module is imported."""
    global _chosen
    named: str | None = config.getoption("--budget")
    alone = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    _chosen = named or (SHORT if alone and not config.getoption("--kafka") else FULL)


def is_short() -> bool:
    """True in the short run."""
    return _chosen == SHORT


def is_rest() -> bool:
    """True in the run of the rest that the short run leaves out."""
    return _chosen == REST


def examples(count: int) -> int:
    """The number of examples of a property in this run, if the full run tries `count`."""
    return min(count, max(_EXAMPLES_MIN, count // _EXAMPLES_DIVISOR)) if is_short() else count


def of_which(cases: Iterable[Any], short: Iterable[Any]) -> list[Any]:
    """The `cases` for `pytest.mark.parametrize`; those that are not in `short` are marked `full`.

    A case that is a tuple has a value for each of several parameters.
    """
    kept = list(short)
    found = list(cases)
    assert all(case in found for case in kept), "a case of the short run is none of the full one"
    return [
        case
        if case in kept
        else pytest.param(*(case if type(case) is tuple else (case,)), marks=pytest.mark.full)
        for case in found
    ]


def is_wanted(item: pytest.Item) -> bool:
    """True if the run includes this test."""
    full = item.get_closest_marker("full") is not None
    if _chosen == SHORT:
        return not full
    return _chosen == FULL or full or _is_budgeted(item)


def _is_budgeted(item: pytest.Item) -> bool:
    """True if the short run tries fewer cases of the test: the test is marked `budgeted`, or is a
    property."""
    return item.get_closest_marker("budgeted") is not None or bool(
        getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    )
