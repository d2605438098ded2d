"""`odradek log dump`: what lies in segment files, their indexes and snapshots.

Reads files only: the broker may run meanwhile, or be gone for good. Everything is checked as it is
read; the first damaged byte is named, and makes the command exit with 1.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import mmap
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from odradek.cli import fail
from odradek.cli.common import AsJson
from odradek_protocol.compression import CompressionError
from odradek_protocol.message import Struct
from odradek_protocol.primitives import WireError
from odradek_protocol.records import (
    BatchError,
    BatchHeader,
    iter_batches,
    read_header,
    read_records,
    verify_crc,
)
from odradek_protocol.records.record import Record

app = typer.Typer(help="Look into log files on disk.", no_args_is_help=True)

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED_ENTRY = struct.Struct(">hqqqq")
_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

Row = dict[str, Any]
Rows = Iterator[Row]


class Damaged(Exception):
    """The file is not what its name says from some byte on."""


def plain(value: Any) -> Any:
    """A decoded value as JSON can hold it."""
    if isinstance(value, Struct):
        return {
            each.name: plain(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if each.name != "unknown_tags"
        }
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value


def _decode_offsets_record(record: Record) -> tuple[Any, Any]:
    from odradek_protocol.stored import group_metadata, offset_commit

    key = record.key or b""
    kind = int.from_bytes(key[:2], "big")
    value = record.value
    if kind == 2:
        group = None if value is None else group_metadata.decode_value(value)
        return group_metadata.decode_key(key), group
    if kind in (0, 1):
        offset = None if value is None else offset_commit.decode_value(value)
        return offset_commit.decode_key(key), offset
    return record.key, value


def _decode_metadata_record(record: Record) -> tuple[Any, Any]:
    from odradek_protocol.stored.cluster_metadata import decode_record

    if record.value is None:
        return record.key, None
    decoded = decode_record(record.value)
    return type(decoded).__name__, decoded


_DECODERS: dict[str, Callable[[Record], tuple[Any, Any]]] = {
    "__consumer_offsets": _decode_offsets_record,
    "__cluster_metadata": _decode_metadata_record,
}


def _batch_row(position: int, header: BatchHeader, problem: str) -> Row:
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence if header.base_sequence >= 0 else -1,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": position,
        "maxTimestamp": header.max_timestamp,
        "timestampType": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "size": header.size_bytes,
        "magic": header.magic,
        "codec": header.codec.name.lower(),
        "crc": header.crc,
        "valid": not problem,
    }


def _record_rows(record: Record, header: BatchHeader, topic: str) -> Rows:
    row: Row = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "headers": [[name, plain(value)] for name, value in record.headers],
    }
    key: Any = record.key
    value: Any = record.value
    if header.is_control:
        from odradek_protocol.stored.control_marker import decode_marker

        marker = decode_marker(record.key, record.value)
        key = "end of transaction" if marker is not None else record.key
        value = ("commit" if marker.is_commit else "abort") if marker is not None else record.value
    elif topic in _DECODERS:
        key, value = _DECODERS[topic](record)
    row["key"], row["value"] = plain(key), plain(value)
    yield row


def _log_rows(data: Any, topic: str, with_records: bool) -> Rows:
    position = 0
    for position, header in iter_batches(data):
        problem = ""
        try:
            verify_crc(data, position, header)
            records = read_records(data, position, header) if with_records else []
        except (BatchError, CompressionError) as error:
            problem, records = str(error), []
        yield _batch_row(position, header, problem)
        if problem:
            raise Damaged(f"the batch at byte {position}: {problem}")
        for record in records:
            yield from _record_rows(record, header, topic)
        position += header.size_bytes
    if position < len(data):
        try:
            read_header(data, position)
        except BatchError as error:
            raise Damaged(f"the last whole batch ends at byte {position}: {error}") from error


def _entry_rows(data: Any, entry: struct.Struct, names: tuple[str, ...]) -> Rows:
    whole = len(data) - len(data) % entry.size
    for values in entry.iter_unpack(bytes(data[:whole])):
        yield dict(zip(names, values, strict=True))
    if whole < len(data):
        raise Damaged(f"{len(data) - whole} bytes behind the last whole entry")


def _snapshot_rows(data: Any) -> Rows:
    from odradek_broker.storage.producer_snapshot import CorruptSnapshot, decode_snapshot

    try:
        entries = decode_snapshot(bytes(data), map_end_offset=2**63 - 1)
    except CorruptSnapshot as error:
        raise Damaged(str(error)) from error
    for entry in entries:
        yield {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "lastTimestamp": entry.last_timestamp,
            "coordinatorEpoch": entry.coordinator_epoch,
        }


def rows_of(path: Path, data: Any, with_records: bool) -> Rows:
    """What is in one file. Damaged, once everything before the damage was given."""
    if path.suffix == ".index":
        return _entry_rows(data, _OFFSET_ENTRY, ("relativeOffset", "position"))
    if path.suffix == ".timeindex":
        return _entry_rows(data, _TIME_ENTRY, ("timestamp", "relativeOffset"))
    if path.suffix == ".txnindex":
        names = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
        return _entry_rows(data, _ABORTED_ENTRY, names)
    if path.suffix == ".snapshot":
        return _snapshot_rows(data)
    topic = path.resolve().parent.name.rpartition("-")[0]
    return _log_rows(data, topic, with_records)


def _files(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [each for each in path.rglob("*.log") if each.stem.isdigit()]
            if not inside:
                fail(f"there are no segments in {path}")
            found += sorted(inside)
        elif path.suffix not in _SUFFIXES:
            fail(f"{path} is none of {', '.join(_SUFFIXES)}", 2)
        else:
            found.append(path)
    return found


def _print(row: Row, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        return
    indent = "" if "baseOffset" in row or "offset" not in row else "| "
    fields = (
        f"{name}: {json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value}"
        for name, value in row.items()
        if value != []
    )
    sys.stdout.write(indent + "  ".join(fields) + "\n")


def _dump_file(path: Path, with_records: bool, as_json: bool) -> bool:
    """Print one file; False if it is damaged."""
    if path.stat().st_size == 0:
        return True
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        view = memoryview(data)
        try:
            for row in rows_of(path, view, with_records):
                _print(row, as_json)
        except (Damaged, WireError) as error:
            typer.echo(f"odradek: {path}: {error}", err=True)
            return False
        finally:
            view.release()
    return True


@app.command()
def dump(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            exists=True,
            help="Segment files, indexes, snapshots, or directories of segments.",
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="The records of every batch as well.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the batches of segment files, or the entries of indexes and snapshots.

    Exits with 1 if a file is damaged, after everything up to the damage.
    """
    whole = True
    try:
        for path in _files(paths):
            if not as_json and len(paths) + path.parent.is_dir() > 1:
                sys.stdout.write(f"{path}\n")
            whole = _dump_file(path, records, as_json) and whole
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit from None
    except OSError as error:
        fail(str(error))
    if not whole:
        raise typer.Exit(1)


@app.callback()
def _group() -> None:
    """Look into log files on disk."""
