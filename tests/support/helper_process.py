"""Programs that lie here, as processes of their own: `python -m eos_worker ...`."""

from __future__ import annotations

import os
import sys


def command(program: str, *arguments: object) -> list[str]:
    """What starts a module of tests/support."""
    return [sys.executable, "-m", program, *map(str, arguments)]


def environment() -> dict[str, str]:
    """This process's, with which the program finds all that this process can import."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
