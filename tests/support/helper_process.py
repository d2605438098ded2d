"""Programs of tests/support in separate processes: `python -m eos_worker ...`."""

from __future__ import annotations

import os
import sys


def command(program: str, *arguments: object) -> list[str]:
    """The command line that runs a module of tests/support as a program."""
    return [sys.executable, "-m", program, *map(str, arguments)]


def environment() -> dict[str, str]:
    """This process's environment, with a PYTHONPATH for everything that this process can import."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
