"""The plugin that every run of pytest loads. PYTEST_DONT_REWRITE

pytest rewrites the assertions of every package of a distribution that has a plugin: here two
hundred modules, in each run again where no bytecode is written. None of them explains itself by an
`assert`, so Python's own finder imports them, before pytest's hook is asked.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

pytest_plugins = ("odradek_testkit.testing",)

PACKAGES = frozenset(
    {
        "odradek",
        "odradek_broker",
        "odradek_cli",
        "odradek_client",
        "odradek_console",
        "odradek_demo",
        "odradek_log_tools",
        "odradek_mirror",
        "odradek_protocol",
        "odradek_records",
        "odradek_testkit",
        "pyspark_odradek",
    }
)


class _AsWritten:
    """Finds the modules of this distribution, with their asserts as they are written."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of one of our modules, None for all others."""
        ours = name.partition(".")[0] in PACKAGES
        return PathFinder.find_spec(name, path, target) if ours else None


sys.meta_path.insert(0, _AsWritten)
