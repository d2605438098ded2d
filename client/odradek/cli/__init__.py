"""The command line: one row per subcommand, each imported only when it is called.

To add a subcommand, write `odradek/cli/<name>.py` with either a plain function in typer's style or
a `typer.Typer` for a group, and add its row to `COMMANDS`. Conventions: data on stdout, everything
else on stderr, `fail` for errors that a user can mend.

`odradek --help` imports no subcommand at all, and no subcommand imports more than it needs: a
broker starts without the client, a producer without the broker. `odradek serve` does without typer
as well, where it can: that is half of the time that it takes to start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import typer


@dataclass(frozen=True)
class CommandRow:
    """One subcommand: `target` is "module:attribute", a function or a `typer.Typer`."""

    name: str
    target: str
    help: str
    panel: str


BROKER = "Broker"
CLUSTER = "Cluster"
DATA = "Topics and records"
TOOLS = "Tools"

COMMANDS: tuple[CommandRow, ...] = (
    CommandRow("serve", "odradek.cli.broker:serve", "Run a broker in the foreground.", BROKER),
    CommandRow("start", "odradek.cli.broker:start", "Run a broker in the background.", BROKER),
    CommandRow("stop", "odradek.cli.broker:stop", "Stop the background broker.", BROKER),
    CommandRow("status", "odradek.cli.broker:status", "Say whether it is running.", BROKER),
    CommandRow("cluster", "odradek.cli.cluster:cluster", "Show nodes, disks, features.", CLUSTER),
    CommandRow("config", "odradek.cli.configs:app", "Describe, set, delete settings.", CLUSTER),
    CommandRow(
        "topic", "odradek.cli.topics:app", "List, create, alter, trim, delete topics.", DATA
    ),
    CommandRow("produce", "odradek.cli.produce:produce", "Write records from stdin.", DATA),
    CommandRow("consume", "odradek.cli.consume:consume", "Write records to stdout.", DATA),
    CommandRow(
        "group", "odradek.cli.groups:app", "List, describe, reset, delete consumer groups.", DATA
    ),
    CommandRow("txn", "odradek.cli.transactions:app", "List, describe, abort transactions.", DATA),
    CommandRow("explain", "odradek.cli.explain:app", "Say what happened, in words.", DATA),
    CommandRow("log", "odradek.cli.dump_log:app", "Look into log files on disk.", TOOLS),
    CommandRow("bench", "odradek.cli.bench:bench", "Measure a broker and a client.", TOOLS),
    CommandRow("demo", "odradek.cli.demo:demo", "Show everything on real data.", TOOLS),
)

_COMPLETION_VARIABLE = "_ODRADEK_COMPLETE"


def fail(message: str, exit_code: int = 1) -> NoReturn:
    """End with one line on stderr that says what was wrong and what to do."""
    print(f"odradek: {message}", file=sys.stderr)
    raise SystemExit(exit_code)


def installed_version() -> str:
    """The version of the installed distribution, or "unknown" from a bare checkout."""
    # Costly, and few ask.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("odradek")
    except PackageNotFoundError:
        return "unknown"


def build_app(arguments: Sequence[str] | None = None) -> typer.Typer:
    """The application with that subcommand loaded which the arguments name; all for None."""
    from odradek.cli.app import build_app as build

    return build(arguments)


def main() -> NoReturn:
    """The console script `odradek`."""
    from odradek.cli.streams import open_missing, run_to_end

    open_missing()
    run_to_end(_command)


def _command() -> None:
    completing = _COMPLETION_VARIABLE in os.environ
    if sys.argv[1:2] == ["serve"] and not completing:
        from odradek.cli.serving import parse_plain, serve

        options = parse_plain(sys.argv[2:], os.environ)
        if options is not None:
            serve(options)
            return
    build_app(None if completing else sys.argv[1:])(prog_name="odradek")
