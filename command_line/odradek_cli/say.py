"""The output of all commands. Names and texts in it may be chosen by strangers, so a terminal gets
no character that is not printable."""

from __future__ import annotations

from typing import Any

import typer

from odradek_protocol.visible import visible


def say(*lines: str, err: bool = False, nl: bool = True, **style: Any) -> None:
    """Print lines on stdout, or with `err` on stderr; without an argument, an empty line. `style`:
    colours and other options of `typer.style`."""
    text = "\n".join(map(visible, lines))
    typer.echo(typer.style(text, **style) if style else text, err=err, nl=nl)
