"""Many small cases in one test, which tries them all and reports each one that fails.

`pytest.mark.parametrize` makes a test of each case; with thousands of cases, collecting and
reporting takes longer than the cases. The fixtures of a looped test are made once for all its
cases.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

#: The number of failures with a traceback; further failing cases are only named.
_SHOWN_FAILURES_MAX = 10
#: The parameter of a test that has one group of cases for each value.
_GROUP = "group_of_cases"


class _Failures:
    """The failures of one test's cases, raised together at its end."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []
        self._names: list[str] = []
        self._cases = 0

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        self._cases += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 raised by report
            error.add_note(f"in the case {name}")
            self._errors.append(error)
            self._names.append(name)

    def report(self) -> None:
        if not self._errors:
            assert self._cases > 0, "there is no case"
            return
        raise BaseExceptionGroup(
            f"{len(self._errors)} of {self._cases} cases failed: {', '.join(self._names)}",
            self._errors[:_SHOWN_FAILURES_MAX],
        )


def looped(
    names: str,
    cases: Iterable[Any],
    *,
    ids: Callable[[Any], str] = str,
    by: Callable[..., str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the test is called with each case in turn and fails once, with all failures.

    `names`, `cases` and `ids` are those of `pytest.mark.parametrize`: names separated by commas, a
    tuple for each case if there are several names. `by` returns the group of a case, from the
    case's values: there is one test for each group.
    """
    parameters = [name.strip() for name in names.split(",")]
    grouped: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for case in cases:
        values = tuple(case) if len(parameters) > 1 else (case,)
        name = "-".join(ids(value) for value in values)
        group = by(*values) if by is not None else ""
        grouped.setdefault(group, []).append((name, dict(zip(parameters, values, strict=True))))

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        def run(**fixtures: Any) -> None:
            failures = _Failures()
            for name, values in grouped.get(fixtures.pop(_GROUP, ""), []):
                with failures.case(name):
                    test(**values, **fixtures)
            failures.report()

        async def run_async(**fixtures: Any) -> None:
            failures = _Failures()
            for name, values in grouped.get(fixtures.pop(_GROUP, ""), []):
                with failures.case(name):
                    await test(**values, **fixtures)
            failures.report()

        loop: Any = run_async if inspect.iscoroutinefunction(test) else run
        functools.update_wrapper(loop, test)
        signature = inspect.signature(test)
        fixtures = [each for each in signature.parameters.values() if each.name not in parameters]
        if by is not None:
            fixtures.append(inspect.Parameter(_GROUP, inspect.Parameter.POSITIONAL_OR_KEYWORD))
            loop = pytest.mark.parametrize(_GROUP, grouped)(loop)
        loop.__signature__ = signature.replace(parameters=fixtures)
        # Hypothesis's plugin must not wrap the loop as one test: each case is a test.
        if getattr(test, "is_hypothesis_test", False):
            for name in [name for name in vars(loop) if "hypothesis" in name]:
                delattr(loop, name)
            loop = pytest.mark.budgeted(loop)
        return cast(Callable[..., Any], loop)

    return decorate
