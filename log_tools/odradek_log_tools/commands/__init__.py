"""`odradek log dump|verify`: readers of the files of a data directory, without a broker."""

from __future__ import annotations

from odradek_cli.options import Commands
from odradek_log_tools.commands.dump import dump
from odradek_log_tools.commands.verify import verify

app = Commands(help="Print and check the files of a data directory.")
app.command()(dump)
app.command()(verify)


@app.callback()
def _group() -> None:
    "Print and check the files of a data directory."
