"""The files and directories that `odradek log` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from odradek_cli.broker.serving import EXIT_BAD_CONFIG, ServeOptions, configure
from odradek_cli.commands import fail
from odradek_cli.options import option

ConfigFile = Annotated[
    Path | None,
    option("--config", "The settings file of the broker, whose log.dirs are used instead of DIR."),
]


def data_directories(given: list[Path] | None, config: Path | None) -> list[Path]:
    """The given directories, or those in the settings file. Ends the program if the user gave both,
    or neither."""
    if bool(given) == (config is not None):
        fail("name either directories or --config FILE", EXIT_BAD_CONFIG)
    if config is None:
        return list(dict.fromkeys(given or []))
    parsed, _ = configure(ServeOptions(config=config))
    return [Path(path) for path in dict.fromkeys((*parsed.log_dirs, parsed.data_dir))]
