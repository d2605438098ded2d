"""`odradek log dump|verify`: readers of the files of a data directory, without a broker."""

from __future__ import annotations

import typer

from odradek.cli.log_dump import dump
from odradek.cli.log_verify import verify

app = typer.Typer(help="Print and check the files of a data directory.", no_args_is_help=True)
app.command()(dump)
app.command()(verify)


@app.callback()
def _group() -> None:
    "Print and check the files of a data directory."
