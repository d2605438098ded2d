"""The command line: one row per subcommand, each imported only when it is called.

To add a subcommand, write `odradek/cli/<name>.py` with either a plain function in typer's style or
a `typer.Typer` for a group, and add its row to `COMMANDS`. Conventions: data on stdout, everything
else on stderr, `fail` for errors that a user can mend.

`odradek --help` imports no subcommand at all, and no subcommand imports more than it needs: a
broker starts without the client, a producer without the broker.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, NoReturn

import typer


@dataclass(frozen=True)
class CommandRow:
    """One subcommand: `target` is "module:attribute", a function or a `typer.Typer`."""

    name: str
    target: str
    help: str
    panel: str


BROKER = "Broker"
DATA = "Topics and records"
TOOLS = "Tools"

COMMANDS: tuple[CommandRow, ...] = (
    CommandRow("serve", "odradek.cli.broker:serve", "Run a broker in the foreground.", BROKER),
    CommandRow("start", "odradek.cli.broker:start", "Run a broker in the background.", BROKER),
    CommandRow("stop", "odradek.cli.broker:stop", "Stop the background broker.", BROKER),
    CommandRow("status", "odradek.cli.broker:status", "Say whether it is running.", BROKER),
    CommandRow("topic", "odradek.cli.topics:app", "List, create, alter, delete topics.", DATA),
    CommandRow("produce", "odradek.cli.produce:produce", "Write records from stdin.", DATA),
    CommandRow("consume", "odradek.cli.consume:consume", "Write records to stdout.", DATA),
    CommandRow("txn", "odradek.cli.transactions:app", "List, describe, abort transactions.", DATA),
    CommandRow("log", "odradek.cli.dump_log:app", "Look into log files on disk.", TOOLS),
    CommandRow("bench", "odradek.cli.bench:bench", "Measure a broker and a client.", TOOLS),
    CommandRow("demo", "odradek.cli.demo:demo", "Show everything on real data.", TOOLS),
)

_COMPLETION_VARIABLE = "_ODRADEK_COMPLETE"


def fail(message: str, exit_code: int = 1) -> NoReturn:
    """End with one line on stderr that says what was wrong and what to do."""
    typer.echo(f"odradek: {message}", err=True)
    raise typer.Exit(exit_code)


def installed_version() -> str:
    """The version of the installed distribution, or "unknown" from a bare checkout."""
    # Costly, and few ask.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("odradek")
    except PackageNotFoundError:
        return "unknown"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"odradek {installed_version()}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A Kafka broker, its client and its tools."""


def _unloaded() -> None:
    raise RuntimeError("a subcommand that was not loaded cannot be called")


def _register(app: typer.Typer, row: CommandRow, load: bool) -> None:
    if not load:
        # Only its line in the help is wanted.
        app.command(row.name, help=row.help, rich_help_panel=row.panel)(_unloaded)
        return
    module, _, attribute = row.target.partition(":")
    target = getattr(import_module(module), attribute)
    if isinstance(target, typer.Typer):
        app.add_typer(target, name=row.name, help=row.help, rich_help_panel=row.panel)
    else:
        app.command(row.name, rich_help_panel=row.panel)(target)


def build_app(arguments: Sequence[str] | None = None) -> typer.Typer:
    """The application with that subcommand loaded which the arguments name; all for None."""
    app = typer.Typer(
        name="odradek",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    wanted = None
    if arguments is not None:
        wanted = next((word for word in arguments if not word.startswith("-")), "")
    for row in COMMANDS:
        _register(app, row, load=wanted is None or row.name == wanted)
    return app


def main() -> None:
    """The console script `odradek`."""
    completing = _COMPLETION_VARIABLE in os.environ
    build_app(None if completing else sys.argv[1:])(prog_name="odradek")
