"""`odradek log verify`: checks data directories, and says what the next start of a broker will
do."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, progress, tell
from odradek_cli.options import argument, option
from odradek_log_tools.commands.paths import ConfigFile, data_directories
from odradek_protocol.visible import json_line, visible

if TYPE_CHECKING:
    from odradek_broker.platform.seams import Files
    from odradek_log_tools.verify.findings import Finding, Findings

EXIT_NOT_VERIFIED = 3
_LOOK_AGAIN_S = 0.01
_VERDICTS = (
    "sound: the next start has nothing to repair",
    "recoverable: the next start repairs it",
    "not sound",
)


def verify(
    directories: Annotated[
        list[Path] | None,
        argument("DIR...", "The data directories of a broker, or the directory of one partition."),
    ] = None,
    config: ConfigFile = None,
    running: Annotated[
        bool,
        option(
            "--running",
            "Allow it while a broker uses the directory; data that the broker is just writing is "
            "not checked.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check all files of data directories against each other, and say what the next start will do.

    Name all data directories of a broker together. Nothing is written. While the command runs, no
    broker can start on the directories.

    Exits with 0 if the directories are sound, with 1 if the next start repairs them, with 2 if
    something has to be done, and with 3 if the check is impossible, as when a broker is running on
    them.
    """
    from odradek_broker.platform.machine import ReadOnlyFiles
    from odradek_log_tools.verify.findings import Findings

    files = ReadOnlyFiles()
    findings = Findings(_print_json if as_json else _print)
    paths = data_directories(directories, config)
    with ExitStack() as stack:
        for directory in paths:
            _lock(files, directory, running, stack)
        total_bytes = sum(map(_segment_bytes, paths))
        shown = stack.enter_context(progress("bytes", total_bytes, wanted=sys.stderr.isatty()))
        done_bytes = 0

        def advance(size_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += size_bytes
            shown.show(done_bytes)

        try:
            looked_at = _verify(files, paths, findings, running, advance)
        except OSError as error:
            if error.filename is None:
                raise
            fail(f"{os.fspath(error.filename)}: {error.strerror}", EXIT_NOT_VERIFIED)
    tell(f"{', '.join(map(str, paths))}: {looked_at}: {_VERDICTS[findings.worst]}")
    if findings.worst:
        raise typer.Exit(int(findings.worst))


def _lock(files: Files, directory: Path, running: bool, stack: ExitStack) -> None:
    """Lock a directory until the command ends, except with --running. Copies, and directories that
    no broker has used yet, have no lock file."""
    from odradek_broker.storage.checkpoints import LOCK

    if running:
        return
    home = directory if (directory / LOCK).exists() else directory.resolve().parent
    try:
        stack.callback(files.lock(str(home / LOCK)))
    except FileNotFoundError:
        return
    except BlockingIOError:
        fail(
            f"a broker is running on {home}: stop it first, or look at it with --running",
            EXIT_NOT_VERIFIED,
        )
    except OSError as error:
        fail(f"{home / LOCK}: {error.strerror}", EXIT_NOT_VERIFIED)


def _verify(
    files: Files,
    paths: list[Path],
    findings: Findings,
    running: bool,
    advance: Callable[[int], None],
) -> str:
    """Check all directories. Returns the counts of checked objects as a text. Raises OSError."""
    from odradek_broker.platform.machine import RealRandomness
    from odradek_log_tools.file_names import parse_directory
    from odradek_log_tools.verify.data_directories import DataDirectoriesCheck
    from odradek_log_tools.verify.data_directory import Totals
    from odradek_log_tools.verify.partition import Expected, PartitionCheck

    def wait() -> None:
        time.sleep(_LOOK_AGAIN_S)

    if all(parse_directory(path.resolve().name) is not None for path in paths):
        totals = Totals()
        for path in paths:
            alone = Expected(clean=True, live=running)
            check = PartitionCheck(files, str(path), alone, findings, advance, wait)
            totals.add(check.run())
    else:
        totals = DataDirectoriesCheck(
            files,
            [str(path) for path in paths],
            findings,
            RealRandomness(),
            live=running,
            progress=advance,
            wait=wait,
        ).run()
    if not totals.partitions:
        fail(f"there are no partitions in {', '.join(map(str, paths))}", EXIT_NOT_VERIFIED)
    return (
        f"{totals.partitions} partitions, {totals.segments} segments, {totals.size_bytes:,} bytes"
    )


def _segment_bytes(directory: Path) -> int:
    """The size of all segments, for the progress bar; deleted files do not count."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            if name.endswith(".log"):
                try:
                    total += os.stat(os.path.join(folder, name)).st_size
                except OSError:
                    continue
    return total


def _print(finding: Finding) -> None:
    remedy = f"; {finding.remedy}" if finding.remedy else ""
    label = finding.severity.name.lower()
    sys.stdout.write(f"{visible(f'{label}: {finding.path}: {finding.problem}{remedy}')}\n")


def _print_json(finding: Finding) -> None:
    row = {
        "severity": finding.severity.name.lower(),
        "file": finding.path,
        "problem": finding.problem,
        "remedy": finding.remedy,
    }
    sys.stdout.write(json_line(row) + "\n")
