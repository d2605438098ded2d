"""Imports for programs that must start fast: the broker, and the host of virtual clusters."""

from __future__ import annotations

import sys


def import_structlog() -> None:
    """Import structlog, but not rich, which structlog imports for tracebacks in colour: rich takes
    longer to import than structlog. No other code in such a process uses rich."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
