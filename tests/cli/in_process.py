"""`odradek` in the test's own process: most commands need no process to be tried, and it costs a second."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from odradek.cli.app import build_app


class Commands:
    """Runs commands against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {"ODRADEK_BOOTSTRAP": bootstrap, "COLUMNS": "200"}
        self.stderr = ""

    def run(self, *arguments: str, code: int = 0) -> str:
        """What it printed; fails unless it ended with `code`."""
        done = CliRunner().invoke(build_app(arguments), [*arguments], env=self._environment)
        self.stderr = done.stderr
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, (done.exit_code, done.stderr)
        return done.stdout

    def table(self, *arguments: str) -> list[list[str]]:
        return [line.split() for line in self.run(*arguments).splitlines()]

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """With --json."""
        return [json.loads(line) for line in self.run(*arguments, "--json").splitlines()]
