"""Imports for programs that must start fast: the broker, and the host of virtual clusters."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


def import_libraries() -> None:
    """Import structlog without rich, which colours its tracebacks, and construct without pdb, which
    its debugging aids start. No other code in such a process uses them, and they take as long to
    import as the two libraries."""
    _import("structlog", "rich", None)  # ImportError in structlog, which then does without
    _import("construct", "pdb", ModuleType("pdb"))


def _import(library: str, left_out: str, instead: ModuleType | None) -> None:
    """Import a library for which `left_out` is the module `instead`; None: it is not installed."""
    if library in sys.modules or left_out in sys.modules:
        return
    sys.modules[left_out] = instead  # type: ignore[assignment]
    try:
        import_module(library)
    finally:
        del sys.modules[left_out]
