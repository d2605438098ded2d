"""The content of a file of a data directory as rows. A row maps names to values, and begins with
`kind`.

All rows of a kind have the same names in the same order. Values that are bytes are not converted.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from odradek_broker.explain.group_lags_file import read_group_lags
from odradek_broker.platform.seams import File, Files
from odradek_broker.storage.checkpoints import (
    CorruptCheckpoint,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    decode_sources,
    read_small_file,
)
from odradek_broker.storage.journal_format import (
    ALIGN_BYTES,
    JOURNAL_VERSION,
    CorruptJournal,
    UnknownJournal,
    decode_header,
    decode_part,
    journal_parts,
    read_part,
)
from odradek_broker.storage.producers.snapshot import CorruptProducerSnapshot, decode_snapshot
from odradek_broker.storage.producers.state import ProducerEntry
from odradek_broker.storage.transaction_index import ABORTED_ENTRY_VERSION
from odradek_log_tools.file_names import FileKind, FileName
from odradek_log_tools.record_decoders import decode_record
from odradek_log_tools.segment_file import Damaged, SegmentBatch, SegmentFile, no_wait
from odradek_protocol.constants import NO_OFFSET
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import uuid_text
from odradek_protocol.records.batch import BatchError, BatchHeader
from odradek_protocol.records.record import Record, read_records
from odradek_protocol.stored.control_marker import ControlMarkerError, decode_marker, decode_type

Row = dict[str, Any]
Rows = Iterator[Row]

_ENTRIES_PER_READ = 4096
#: The maximum size of a producer snapshot that is read. A broker writes far smaller snapshots.
_SNAPSHOT_BYTES_MAX = 256 * 1024 * 1024
_OFFSET_MAX = 2**63 - 1

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
ABORTED_ENTRY = struct.Struct(">hqqqq")


@dataclass(frozen=True, slots=True)
class RowWindow:
    """A selection of at most `count` rows. The first row is the row that contains `offset`, or the
    next row if none contains it. With `records`, each batch is followed by rows for its records,
    and `count` limits the records.
    """

    offset: int = 0
    count: int | None = None
    records: bool = False


def dump_file(
    files: Files,
    path: str,
    name: FileName,
    topic: str,
    selection: RowWindow,
    wait: Callable[[], None] = no_wait,
) -> Rows:
    """The rows of one file of `topic`. Raises Damaged after all rows before the damage were
    yielded. Also raises OSError. A batch with a wrong checksum raises no error: its row has `valid`
    False. `wait`: see `SegmentFile`."""
    reader = _SMALL.get(name.kind)
    if reader is not None:
        yield from islice(reader(_text(files, path), selection), selection.count)
        return
    if name.kind is FileKind.GROUP_LAGS:
        yield from islice(_group_lag_rows(files, path), selection.count)
        return
    file = files.open(path)
    try:
        if name.kind in (FileKind.SEGMENT, FileKind.METADATA_SNAPSHOT):
            yield from _segment_rows(SegmentFile(file, wait), topic, selection)
        elif name.kind is FileKind.JOURNAL:
            yield from islice(_journal_rows(file), selection.count)
        elif name.kind is FileKind.PRODUCER_SNAPSHOT:
            yield from islice(_snapshot_rows(file, name.offset), selection.count)
        else:
            rows = _INDEXES[name.kind](file, name.offset or 0)
            yield from islice(
                (row for row in rows if row["offset"] >= selection.offset), selection.count
            )
    finally:
        file.close()


# --- the lag of groups ---


def _group_lag_rows(files: Files, path: str) -> Rows:
    try:
        found = read_group_lags(files, path)
    except ValueError as problem:
        raise Damaged(0, str(problem)) from problem
    for group_id, points in found.items():
        for time_ms, lag in zip(points[::2], points[1::2], strict=True):
            yield {"kind": "group-lag", "group": group_id, "timestamp": time_ms, "lag": lag}


# --- commit journals ---


def _journal_rows(file: File) -> Rows:
    """The entries in the order in which a start after a crash would read them. Raises Damaged."""
    try:
        header = decode_header(file.read_at(0, ALIGN_BYTES))
    except (CorruptJournal, UnknownJournal) as problem:
        raise Damaged(0, str(problem)) from problem
    yield {
        "kind": "journal",
        "version": JOURNAL_VERSION,
        "incarnation": header.incarnation.hex(),
        "part_bytes": header.part_bytes,
    }
    for start in journal_parts(file, header):
        for block, position in decode_part(read_part(file, header, start), header.incarnation):
            for entry, _ in block.entries:
                yield {
                    "kind": "journal-entry",
                    "block": block.number,
                    "at": start + position,
                    "topic_id": uuid_text(entry.topic_id),
                    "partition": entry.partition,
                    "segment": entry.segment,
                    "position": entry.position,
                    "size_bytes": len(entry.batches),
                    "valid": entry.batches is not None,
                }


# --- segments ---


def _segment_rows(segment: SegmentFile, topic: str, selection: RowWindow) -> Rows:
    left = selection.count
    for batch in segment.batches():
        if batch.header.last_offset < selection.offset:
            continue
        if left is not None and left <= 0:
            return
        records = _records(batch, topic, selection)
        yield _batch_row(batch)
        if not selection.records:
            left = None if left is None else left - 1
            continue
        for row in islice(records, left):
            left = None if left is None else left - 1
            yield row


def _batch_row(batch: SegmentBatch) -> Row:
    header = batch.header
    try:
        codec = header.codec.name.lower()
    except BatchError:
        codec = str(header.attributes & 7)
    row = {
        "kind": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "position": batch.position,
        "size_bytes": header.size_bytes,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "codec": codec,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "leader_epoch": header.leader_epoch,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "magic": header.magic,
        "crc": f"{header.crc:08x}",
        "valid": not batch.problem,
    }
    if batch.problem:
        row["problem"] = batch.problem
    return row


def _records(batch: SegmentBatch, topic: str, selection: RowWindow) -> Rows:
    """The rows of a batch's records; no rows if its checksum is wrong."""
    if not selection.records or batch.problem:
        return
    if batch.data is None:
        raise Damaged(batch.position, "a batch too large for its records to be shown")
    try:
        records = read_records(batch.data, 0, batch.header)
    except BatchError as error:
        raise Damaged(batch.position, f"records that cannot be read: {error}") from error
    for record in records:
        if record.offset >= selection.offset:
            yield _record_row(record, batch.header, topic)


def _record_row(record: Record, header: BatchHeader, topic: str) -> Row:
    if header.is_control:
        key, value = _control(record)
    else:
        key, value = decode_record(topic, record.key, record.value)
    return {
        "kind": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": key,
        "value": value,
        "headers": [[name, content] for name, content in record.headers],
    }


def _control(record: Record) -> tuple[Any, Any]:
    """The key and the value of a control record: the type, and the fields of a transaction marker.
    Keys and values that cannot be decoded stay bytes."""
    try:
        kind = decode_type(record.key)
        marker = decode_marker(record.key, record.value)
    except ControlMarkerError:
        return record.key, record.value
    if kind is None:
        return record.key, record.value
    if marker is None:
        return {"type": kind.name}, record.value
    return {"type": kind.name}, {"coordinator_epoch": marker.coordinator_epoch}


# --- indexes ---


def entries(file: File, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
    """The entries of an index, which are read a few thousand at a time. Raises Damaged if the last
    entry is incomplete."""
    size_bytes = file.size()
    whole = size_bytes - size_bytes % entry.size
    for position in range(0, whole, _ENTRIES_PER_READ * entry.size):
        wanted = min(_ENTRIES_PER_READ * entry.size, whole - position)
        content = file.read_at(position, wanted)
        yield from entry.iter_unpack(content[: len(content) - len(content) % entry.size])
        if len(content) < wanted:
            return
    if whole < size_bytes:
        raise Damaged(whole, f"{size_bytes - whole} bytes after the last whole entry")


def _offset_index_rows(file: File, base_offset: int) -> Rows:
    for relative, position in entries(file, OFFSET_ENTRY):
        yield {
            "kind": "offset-index-entry",
            "offset": base_offset + relative,
            "position": position,
        }


def _time_index_rows(file: File, base_offset: int) -> Rows:
    for timestamp, relative in entries(file, TIME_ENTRY):
        yield {
            "kind": "time-index-entry",
            "timestamp": timestamp,
            "offset": base_offset + relative,
        }


def _transaction_index_rows(file: File, base_offset: int) -> Rows:
    for version, producer_id, first, last, stable in entries(file, ABORTED_ENTRY):
        if version != ABORTED_ENTRY_VERSION:
            raise Damaged(0, f"an entry of version {version}")
        yield {
            "kind": "aborted-transaction",
            "producer_id": producer_id,
            "first_offset": first,
            "offset": last,
            "last_stable_offset": stable,
        }


_INDEXES: dict[FileKind, Callable[[File, int], Rows]] = {
    FileKind.OFFSET_INDEX: _offset_index_rows,
    FileKind.TIME_INDEX: _time_index_rows,
    FileKind.TRANSACTION_INDEX: _transaction_index_rows,
}


# --- producers ---


def _snapshot_rows(file: File, offset: int | None) -> Rows:
    size_bytes = file.size()
    if size_bytes > _SNAPSHOT_BYTES_MAX:
        raise Damaged(0, f"{size_bytes} bytes are too many for a producer snapshot")
    try:
        producers = decode_snapshot(
            file.read_at(0, size_bytes), map_end_offset=_OFFSET_MAX if offset is None else offset
        )
    except CorruptProducerSnapshot as error:
        raise Damaged(0, str(error)) from error
    yield from map(_producer_row, producers)


def _producer_row(entry: ProducerEntry) -> Row:
    first = entry.transaction_first_offset
    return {
        "kind": "producer",
        "producer_id": entry.producer_id,
        "producer_epoch": entry.epoch,
        "coordinator_epoch": entry.coordinator_epoch,
        "last_sequence": entry.last_sequence,
        "last_offset": entry.last_offset,
        "last_timestamp": entry.last_timestamp,
        "open_transaction_first_offset": NO_OFFSET if first is None else first,
        "batches": [
            {
                "base_sequence": batch.base_sequence,
                "last_sequence": batch.last_sequence,
                "base_offset": batch.base_offset,
                "last_offset": batch.last_offset,
                "timestamp": batch.timestamp,
            }
            for batch in entry.batches()
        ],
    }


# --- small files ---


def _text(files: Files, path: str) -> str:
    try:
        text = read_small_file(files, path)
    except CorruptCheckpoint as error:
        raise Damaged(0, str(error)) from error
    if text is None:
        raise FileNotFoundError(2, "No such file or directory", path)
    return text


def _leader_epoch_rows(text: str, selection: RowWindow) -> Rows:
    for epoch, start_offset in _understood(decode_epochs, text):
        if start_offset >= selection.offset:
            yield {"kind": "leader-epoch", "leader_epoch": epoch, "start_offset": start_offset}


def _source_rows(text: str, selection: RowWindow) -> Rows:
    for base_offset in _understood(decode_sources, text):
        yield {"kind": "source", "base_offset": base_offset}


def _offset_rows(text: str, selection: RowWindow) -> Rows:
    """The rows of an offset checkpoint. The file may be empty, because Kafka creates it before it
    has an entry.
    """
    if not text:
        return
    for (topic, partition), offset in _understood(decode_offsets, text).items():
        yield {"kind": "offset", "topic": topic, "partition": partition, "offset": offset}


def _partition_metadata_rows(text: str, selection: RowWindow) -> Rows:
    topic_id = _understood(decode_partition_metadata, text)
    yield {"kind": "partition-metadata", "topic_id": uuid_text(topic_id)}


def _properties_rows(text: str, selection: RowWindow) -> Rows:
    for name, value in decode_meta_properties(text).items():
        yield {"kind": "property", "name": name, "value": value}


def _json_rows(text: str, selection: RowWindow) -> Rows:
    try:
        content = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise Damaged(0, f"no JSON: {error}") from error
    for name, value in content.items() if isinstance(content, dict) else ():
        yield {"kind": "property", "name": name, "value": value}


def _understood(decode: Callable[[str], Any], text: str) -> Any:
    try:
        return decode(text)
    except CorruptCheckpoint as error:
        raise Damaged(0, str(error)) from error


_SMALL: dict[FileKind, Callable[[str, RowWindow], Rows]] = {
    FileKind.LEADER_EPOCHS: _leader_epoch_rows,
    FileKind.OFFSET_CHECKPOINT: _offset_rows,
    FileKind.PARTITION_METADATA: _partition_metadata_rows,
    FileKind.META_PROPERTIES: _properties_rows,
    FileKind.CLEAN_SHUTDOWN: _json_rows,
    FileKind.QUORUM_STATE: _json_rows,
    FileKind.SOURCES: _source_rows,
}
