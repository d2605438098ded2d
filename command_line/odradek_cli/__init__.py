"""The command line, with one row per subcommand; a subcommand is imported only when it is called
(`commands.py`).

`odradek --help` imports no subcommand, and a subcommand imports only what it needs: `odradek serve`
does not import the client, and `odradek produce` does not import the broker. `odradek serve` avoids
typer where it can, because importing typer takes half of the command's start time.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import typer

_COMPLETION_VARIABLE = "_ODRADEK_COMPLETE"


def build_app(arguments: Sequence[str] | None = None) -> typer.Typer:
    """The application, with only the subcommand in `arguments` loaded, or with all subcommands if
    `arguments` is None."""
    from odradek_cli.app import build_app as build

    return build(arguments)


def main() -> NoReturn:
    """The console script `odradek`."""
    from odradek_cli.standard_streams import open_missing, run_to_end, show_visibly

    open_missing()
    show_visibly()
    run_to_end(_command)


def _command() -> None:
    completing = bool(os.environ.get(_COMPLETION_VARIABLE))
    if sys.argv[1:2] == ["serve"] and not completing:
        from odradek_cli.broker.serving import parse_plain, serve

        options = parse_plain(sys.argv[2:], os.environ)
        if options is not None:
            serve(options)
            return
    words: Sequence[str] = sys.argv[1:]
    if completing:
        from odradek_cli.completion import words_of_line

        words = words_of_line(os.environ)
    build_app(words)(prog_name="odradek")
