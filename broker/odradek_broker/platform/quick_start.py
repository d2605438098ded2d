"""Imports for programs that must start fast: the broker, and the host of virtual clusters."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType


def import_libraries() -> None:
    """Import structlog without rich (for coloured tracebacks), and construct without pdb (for its
    debugging aids). The programs use neither rich nor pdb, and importing rich and pdb takes as long
    as importing structlog and construct."""
    _import("structlog", "rich", None)  # structlog tolerates the ImportError
    _import("construct", "pdb", ModuleType("pdb"))


def _import(library: str, left_out: str, instead: ModuleType | None) -> None:
    """Import a library. If it imports `left_out`, it gets the module `instead`, or an ImportError
    if `instead` is None."""
    if library in sys.modules or left_out in sys.modules:
        return
    sys.modules[left_out] = instead  # type: ignore[assignment]
    try:
        import_module(library)
    finally:
        del sys.modules[left_out]
