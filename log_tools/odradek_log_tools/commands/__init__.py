"""`odradek log dump|verify`: readers of the files of a data directory, without a broker."""

from __future__ import annotations

import typer

from odradek_log_tools.commands.dump import dump
from odradek_log_tools.commands.verify import verify

app = typer.Typer(help="Print and check the files of a data directory.", no_args_is_help=True)
app.command()(dump)
app.command()(verify)


@app.callback()
def _group() -> None:
    "Print and check the files of a data directory."
