"""Many small cases in one test: it tries all of them, and reports each one that fails.

`pytest.mark.parametrize` makes a test of each case. With thousands of cases, pytest would collect
and report them for longer than they run. Here the fixtures are set up once for all cases.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

#: The number of failures that are shown with a traceback; further failing cases are only named.
_SHOWN_FAILURES_MAX = 10
#: The name of the parameter by which a test gets a group of cases.
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
    """A decorator that calls the test with each case in turn, and fails once with all failures.

    `names`, `cases` and `ids` are those of `pytest.mark.parametrize`: names separated by commas,
    and a tuple for each case if there are several names. `by` returns the group of a case from the
    case's values: each group becomes one test.
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
        # Hypothesis's plugin must wrap each call, and not the loop of all cases.
        if getattr(test, "is_hypothesis_test", False):
            for name in [name for name in vars(loop) if "hypothesis" in name]:
                delattr(loop, name)
            loop = pytest.mark.budgeted(loop)
        return cast(Callable[..., Any], loop)

    return decorate
