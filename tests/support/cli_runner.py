"""The command line, `odradek`, called in the test's own process or in a new one.

A new process costs a second, and most commands do not need one.
"""

from __future__ import annotations

import json
import os
from typing import Any

from typer.testing import CliRunner

from command_template import command_template
from odradek_cli.app import build_app

PATIENCE_S = 60.0


class Commands:
    """Runs commands against one broker, in the test's own process."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {"ODRADEK_BOOTSTRAP": bootstrap, "COLUMNS": "200"}
        self.stderr = ""

    def run(self, *arguments: str, code: int | tuple[int, ...] = 0) -> str:
        """Run a command. Returns its output. `code`: the expected exit code, or several that are
        allowed."""
        done = CliRunner().invoke(build_app(arguments), [*arguments], env=self._environment)
        self.stderr = done.stderr
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        codes = (code,) if isinstance(code, int) else code
        assert done.exit_code in codes, (done.exit_code, done.stdout, done.stderr)
        return done.stdout

    def table(self, *arguments: str) -> list[list[str]]:
        return [line.split() for line in self.run(*arguments).splitlines()]

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command with --json. Returns its rows."""
        return [json.loads(line) for line in self.run(*arguments, "--json").splitlines()]


class Shell:
    """Runs commands against one broker, each as a process."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = {**os.environ, "ODRADEK_BOOTSTRAP": bootstrap, "COLUMNS": "200"}

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> bytes:
        """Run a command. Returns its output; fails unless the exit code is `code`."""
        done = command_template().run(arguments, self.environment, stdin, PATIENCE_S)
        self.stderr = done.stderr.decode()
        assert done.returncode == code, (done.returncode, self.stderr)
        return done.stdout
