"""The typer application: the rows of `COMMANDS` as subcommands. A command whose package is not
installed is left out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from odradek_cli.commands import COMMANDS, CommandRow, with_value
from odradek_cli.options import Commands, option
from odradek_cli.say import say
from odradek_protocol.version import VERSION


@cache
def _rows() -> tuple[CommandRow, ...]:
    packages = {row.target.partition(".")[0] for row in COMMANDS}
    here = {package for package in packages if find_spec(package) is not None}
    return tuple(row for row in COMMANDS if row.target.partition(".")[0] in here)


class _Sections(TyperGroup):
    """The group of commands; its help lists them under the headings of `COMMANDS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands into the help text."""
        for panel in dict.fromkeys(row.panel for row in _rows()):
            with formatter.section(panel):
                formatter.write_dl([(row.name, row.help) for row in _rows() if row.panel == panel])


class _Command(TyperCommand):
    """A command with options whose value may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words after the command's name."""
        return super().parse_args(ctx, with_value(args))


def _print_version(wanted: bool) -> None:
    if wanted:
        from odradek_protocol.records import native

        say(f"odradek {VERSION}")
        say(f"record codec: {native.describe()}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        option(
            "--version",
            "Print the version, and which record codec is in use.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """A Kafka broker, its client and its tools."""


def _unloaded() -> None:
    raise RuntimeError("a subcommand that was not loaded cannot be called")


def _register(app: typer.Typer, row: CommandRow, load: bool) -> None:
    if not load:
        # The command is not loaded, because only its line in the help is needed.
        app.command(row.name, help=row.help)(_unloaded)
        return
    module, _, attribute = row.target.partition(":")
    target = getattr(import_module(module), attribute)
    if isinstance(target, typer.Typer):
        app.add_typer(target, name=row.name, help=row.help)
    else:
        app.command(row.name, cls=_Command)(target)


def build_app(arguments: Sequence[str] | None = None) -> typer.Typer:
    """The application, with only the subcommand in `arguments` loaded, or with all subcommands if
    `arguments` is None."""
    app = Commands(
        name="odradek",
        cls=_Sections,
        pretty_exceptions_enable=False,
        # Help is printed unchanged: Rich would drop brackets, and label flags as <bool>.
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    wanted = None
    if arguments is not None:
        wanted = next((word for word in arguments if not word.startswith("-")), "")
    for row in _rows():
        _register(app, row, load=wanted is None or row.name == wanted)
    return app
