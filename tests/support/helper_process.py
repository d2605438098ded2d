"""Programs of tests/support in processes of their own: `python -m eos_worker ...`."""

from __future__ import annotations

import os
import sys


def command(program: str, *arguments: object) -> list[str]:
    """The command line that runs a module of tests/support."""
    return [sys.executable, "-m", program, *map(str, arguments)]


def environment() -> dict[str, str]:
    """This process's environment, with a path to everything that this process can import."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
