"""All scenarios, by their module."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache

from tests.oracle.script import Scenario


@cache
def all_scenarios() -> Mapping[str, Sequence[Scenario]]:
    """Module -> its `SCENARIOS`. Raises ValueError if two have the same name."""
    found = {
        info.name: tuple(importlib.import_module(f"{__name__}.{info.name}").SCENARIOS)
        for info in pkgutil.iter_modules(__path__)
    }
    names = [scenario.name for group in found.values() for scenario in group]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"scenarios of the same name: {sorted(twice)}")
    return found


def chosen(pattern: str) -> list[tuple[str, Scenario]]:
    """(module, scenario) of the scenarios whose name, or `module/name`, matches a pattern with
    `*`."""
    return [
        (module, scenario)
        for module, group in all_scenarios().items()
        for scenario in group
        if any(fnmatchcase(each, pattern) for each in (scenario.name, f"{module}/{scenario.name}"))
    ]
