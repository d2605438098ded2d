"""`odradek log dump`: the content of the files of a data directory.

The command only reads, and takes no lock, so the broker may be running. All content is checked as
it is read; damage is reported, and makes the command exit with 1.
"""

from __future__ import annotations

import base64
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek_cli.commands import fail
from odradek_cli.common import AsJson, cell, tell
from odradek_cli.layout import NO_BREAK, fits, padded, wrap
from odradek_cli.options import argument, option
from odradek_log_tools.commands.paths import ConfigFile, data_directories
from odradek_protocol.visible import json_line, visible

if TYPE_CHECKING:
    from odradek_log_tools.dump import Row, RowWindow
    from odradek_log_tools.file_names import FileName

#: The number of rows that set the widths of a table's columns; later rows may be wider.
_ROWS_AHEAD = 200
#: The pause before a second read of a segment that ends inside a batch. The broker may be writing
#: that batch.
_LOOK_AGAIN_S = 0.01


class _Table:
    """A table of rows of one kind under a heading. The rows of a batch's records follow its row.

    On a terminal narrower than the table, each row is a list of names and values instead.
    """

    def __init__(self) -> None:
        self._heading: list[str] = []
        self._widths: list[int] = []
        self._as_table = True
        self._waiting: list[Row] = []

    def add(self, row: Row) -> None:
        if self._widths:
            self._write(row)
            return
        self._waiting.append(row)
        if len(self._waiting) >= _ROWS_AHEAD:
            self.flush()

    def flush(self) -> None:
        """Write the rows that were kept to find the widths of the columns."""
        rows = [row for row in self._waiting if row["kind"] != "record"]
        if rows and not self._heading:
            self._heading = [name.upper().replace("_", "-") for name in rows[0] if name != "kind"]
            tables = [self._heading, *map(_cells, rows)]
            self._widths = [
                max(len(line[at]) for line in tables if at < len(line))
                for at in range(max(map(len, tables)))
            ]
            self._as_table = fits(self._widths)
            if self._as_table:
                self._write_cells(self._heading)
        waiting, self._waiting = self._waiting, []
        for row in waiting:
            self._write(row)

    def _write(self, row: Row) -> None:
        if row["kind"] == "record":
            self._write_fields(row, "| ")
        elif self._as_table:
            self._write_cells(_cells(row))
        else:
            self._write_fields(row, "")

    def _write_cells(self, cells: list[str]) -> None:
        cells = [
            padded(text, self._widths[at] if at < len(self._widths) else 0)
            for at, text in enumerate(cells)
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")

    def _write_fields(self, row: Row, margin: str) -> None:
        line = _fields(row)
        lines = [margin + line]
        if not fits([len(lines[0])]):
            lines = wrap(line, margin, f"{margin}    ")
        sys.stdout.write("\n".join(lines).replace(NO_BREAK, " ") + "\n")


def _cells(row: Row) -> list[str]:
    return [_cell(value) for name, value in row.items() if name != "kind"]


def _fields(row: Row) -> str:
    return "  ".join(
        f"{name}:{NO_BREAK}{_cell(value)}"
        for name, value in row.items()
        if name != "kind" and value != []
    )


def _cell(value: Any) -> str:
    value = _jsonable(value)
    if isinstance(value, dict | list | bool):
        return json_line(value)
    return visible(cell(value))


def _jsonable(value: Any) -> Any:
    """Bytes as text if they are UTF-8, else as base64."""
    if isinstance(value, dict):
        return {name: _jsonable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    if isinstance(value, str) and not value.isascii():
        # A header's name that is not UTF-8 was decoded with its bytes as lone surrogates.
        value = value.encode(errors="surrogateescape")
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value


def _print_json(path: Path, row: Row) -> None:
    sys.stdout.write(json_line({"file": str(path), **_jsonable(row)}) + "\n")


def _found(paths: list[Path], only: set[str]) -> Iterator[tuple[Path, FileName, bool]]:
    """(path, parsed file name, true if the user named this file and not its directory)."""
    from odradek_log_tools.file_names import parse_file

    for path in paths:
        if path.is_dir():
            inside = list(_inside(path))
            if not inside:
                fail(f"there are no files of a log in {path}")
            yield from ((each, name, False) for each, name in inside if name.kind in only)
            continue
        name = parse_file(path.name)
        if name is None:
            fail(f"{path} is no file of a log: the name of such a file shows its format", 2)
        yield path, name, True


def _inside(directory: Path) -> Iterator[tuple[Path, FileName]]:
    """The log files in a data directory or partition directory, and in its partition
    directories."""
    from odradek_log_tools.file_names import parse_directory, parse_file

    for inner in sorted(directory.iterdir()):
        if inner.is_dir():
            if parse_directory(inner.name) is not None:
                yield from _inside(inner)
            continue
        name = parse_file(inner.name)
        if name is not None:
            yield inner, name


def _topic(path: Path, name: FileName) -> str:
    from odradek_broker.metadata.cluster import METADATA_TOPIC
    from odradek_log_tools.file_names import FileKind, parse_directory

    if name.kind is FileKind.METADATA_SNAPSHOT:
        return METADATA_TOPIC
    directory = parse_directory(path.resolve().parent.name)
    return "" if directory is None else directory.partition[0]


def _dump(path: Path, name: FileName, selection: RowWindow, as_json: bool) -> bool:
    """Print one file; False if it is damaged. Raises OSError."""
    from odradek_broker.platform.machine import ReadOnlyFiles
    from odradek_log_tools.dump import dump_file
    from odradek_log_tools.segment_file import Damaged

    table, whole = _Table(), True
    topic = _topic(path, name)
    try:
        for row in dump_file(
            ReadOnlyFiles(), str(path), name, topic, selection, lambda: time.sleep(_LOOK_AGAIN_S)
        ):
            if as_json:
                _print_json(path, row)
            else:
                table.add(row)
            if "problem" in row:
                tell(f"odradek: {path}: the batch at byte {row['position']}: {row['problem']}")
                whole = False
    except Damaged as problem:
        table.flush()
        tell(f"odradek: {path}: {problem}")
        return False
    table.flush()
    return whole


def _kinds(only: list[str] | None) -> set[str]:
    from odradek_log_tools.file_names import FileKind

    known = [kind.value for kind in FileKind]
    for kind in only or ():
        if kind not in known:
            fail(f"--only {kind!r} must be one of {', '.join(known)}", 2)
    return set(only or known)


Paths = Annotated[
    list[Path] | None,
    argument(
        "PATH...", "Files of a log, directories of partitions, or data directories.", exists=True
    ),
]
Kinds = Annotated[
    list[str] | None,
    option(
        "--only KIND",
        "Only these kinds of files in directories: log, index, timeindex, txnindex, snapshot, "
        "metadata-snapshot, leader-epochs, offsets, partition-metadata, meta-properties, "
        "clean-shutdown, quorum-state; repeatable.",
    ),
]


def dump(
    paths: Paths = None,
    config: ConfigFile = None,
    records: Annotated[
        bool, option("--records -r", "Show the records of every batch too.")
    ] = False,
    only: Kinds = None,
    offset: Annotated[
        int, option("--offset -o N", "Only batches, records and entries from offset N on.", min=0)
    ] = 0,
    count: Annotated[
        int | None,
        option(
            "--count -c N",
            "Maximum number of batches (with --records: of records) or of lines of each file.",
            min=1,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print what is in the files of a log: segments, indexes, snapshots, checkpoints.

    The broker may be running: nothing is locked or written. Records of internal topics are decoded.

    Exits with 1 if a file is damaged, after printing everything before the damage.
    """
    from odradek_log_tools.dump import RowWindow

    selection = RowWindow(offset, count, records)
    named_paths = data_directories(paths, config)
    headings = not as_json and (len(named_paths) > 1 or named_paths[0].is_dir())
    whole = True
    try:
        for path, name, named in _found(named_paths, _kinds(only)):
            if headings:
                sys.stdout.write(f"{visible(str(path))}\n")
            try:
                whole = _dump(path, name, selection, as_json) and whole
            except FileNotFoundError:
                if named:
                    raise
                tell(f"odradek: {path} was removed meanwhile")
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            raise
        fail(f"{os.fspath(error.filename)}: {error.strerror}")
    if not whole:
        raise typer.Exit(1)
