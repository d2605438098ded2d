"""Snapshots of the cluster metadata: Kafka's checkpoint file (KIP-630), and the snapshots in the
directory of the metadata log.

    <end offset, 20 digits>-<leader epoch, 10 digits>.checkpoint

A snapshot stands for all records of the metadata log below its end offset. The file contains record
batches, numbered from 0: a control batch with the snapshot's header, batches of metadata records, a
control batch with the footer. A file without the footer is incomplete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice

from odradek_broker.platform.seams import Buffer, Files
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchError, iter_batches, verify_crc
from odradek_protocol.records.builder import simple_batch, snapshot_control_batch
from odradek_protocol.records.record import read_records
from odradek_protocol.stored.control_marker import (
    ControlMarkerError,
    ControlType,
    decode_snapshot_header,
    decode_type,
)

SUFFIX = ".checkpoint"

#: The suffix of the file's name while it is being written.
PART_SUFFIX = ".checkpoint.part"
_OFFSET_DIGITS, _EPOCH_DIGITS = 20, 10

#: The maximum number of records in a batch. Each batch is encoded in one turn of the event loop.
RECORDS_PER_BATCH = 250

#: The maximum size of the batch that has the header.
HEADER_BATCH_BYTES_MAX = 256


class MetadataSnapshotId(NamedTuple):
    """The identity of a snapshot. The snapshot covers the records below `end_offset`; `epoch` is
    the leader epoch of the last of these records."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:0{_OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}{SUFFIX}"


class MetadataSnapshot(NamedTuple):
    """The content of a checkpoint file. `timestamp_ms`: the timestamp of the last record that the
    snapshot covers."""

    timestamp_ms: int
    values: list[bytes]


class CorruptMetadataSnapshot(Exception):
    """The error for a file that is not a complete snapshot."""


def parse_file_name(name: str) -> MetadataSnapshotId | None:
    """The identity in a file name; None if the file is not a snapshot, or is an unfinished
    snapshot.
    """
    if not name.endswith(SUFFIX):
        return None
    offset, _, epoch = name.removesuffix(SUFFIX).partition("-")
    if len(offset) != _OFFSET_DIGITS or len(epoch) != _EPOCH_DIGITS:
        return None
    if not (offset + epoch).isascii() or not (offset + epoch).isdigit():
        return None
    return MetadataSnapshotId(int(offset), int(epoch))


def encode_snapshot(
    values: Iterator[bytes], epoch: int, timestamp_ms: int, now_ms: int
) -> Iterator[bytes | bytearray]:
    """The content of a snapshot file, batch by batch. Each batch is encoded when the iterator
    reaches it. `timestamp_ms`: see `MetadataSnapshot`."""
    yield snapshot_control_batch(
        ControlType.SNAPSHOT_HEADER, now_ms, 0, epoch, last_contained_ms=timestamp_ms
    )
    offset = 1
    while some := list(islice(values, RECORDS_PER_BATCH)):
        yield simple_batch(
            [(None, value) for value in some], now_ms, base_offset=offset, leader_epoch=epoch
        )
        offset += len(some)
    yield snapshot_control_batch(ControlType.SNAPSHOT_FOOTER, now_ms, offset, epoch)


def decode_header(data: bytes) -> int:
    """The `MetadataSnapshot.timestamp_ms`, from a file's beginning. Raises
    CorruptMetadataSnapshot."""
    try:
        for position, header in iter_batches(data):
            verify_crc(data, position, header)
            for record in read_records(data, position, header):
                if header.is_control and decode_type(record.key) is ControlType.SNAPSHOT_HEADER:
                    return decode_snapshot_header(record.value)
            break
    except (BatchError, ControlMarkerError) as problem:
        raise CorruptMetadataSnapshot(str(problem)) from problem
    raise CorruptMetadataSnapshot("it has no header")


def decode_snapshot(data: bytes) -> MetadataSnapshot:
    """The content of a file. Raises CorruptSnapshot if the bytes are not a complete snapshot."""
    timestamp_ms: int | None = None
    values: list[bytes] = []
    ended = False
    read_bytes = 0
    try:
        for position, header in iter_batches(data):
            verify_crc(data, position, header)
            read_bytes = position + header.size_bytes
            for record in read_records(data, position, header):
                if ended:
                    raise CorruptMetadataSnapshot("something follows its footer")
                if header.is_control:
                    kind = decode_type(record.key)
                    if kind is ControlType.SNAPSHOT_HEADER and timestamp_ms is None:
                        timestamp_ms = decode_snapshot_header(record.value)
                    ended = kind is ControlType.SNAPSHOT_FOOTER
                elif timestamp_ms is None or record.value is None:
                    raise CorruptMetadataSnapshot(
                        "it has records before its header, or without a value"
                    )
                else:
                    values.append(record.value)
    except (BatchError, ControlMarkerError) as problem:
        raise CorruptMetadataSnapshot(str(problem)) from problem
    if timestamp_ms is None or not ended:
        raise CorruptMetadataSnapshot("it has no header or no footer")
    if read_bytes != len(data):
        raise CorruptMetadataSnapshot("something follows its footer")
    return MetadataSnapshot(timestamp_ms, values)


#: The maximum size of a snapshot. Snapshots of this broker are far smaller. Larger files are not
#: read into memory.
_SNAPSHOT_BYTES_MAX = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A usable snapshot. `timestamp_ms`: the timestamp of the last record that the snapshot
    covers."""

    id: MetadataSnapshotId
    size_bytes: int
    timestamp_ms: int


class SnapshotDirectory:
    """The snapshots in the directory `path` of the metadata log. Only `write` waits until data is
    on the disk."""

    def __init__(self, path: str, files: Files, deleted: DeletedFiles) -> None:
        self._path = path
        self._files = files
        self._deleted = deleted

    def path_of(self, snapshot: MetadataSnapshotId) -> str:
        return f"{self._path}/{snapshot.file_name}"

    def find(self) -> list[MetadataSnapshotId]:
        """All snapshots, newest first. Unfinished files are removed. Raises OSError."""
        found = []
        for name in self._files.list(self._path):
            snapshot = parse_file_name(name)
            if snapshot is not None:
                found.append(snapshot)
            elif name.endswith((PART_SUFFIX, f"{SUFFIX}.deleted")):
                with suppress(OSError):
                    self._files.remove(f"{self._path}/{name}")
        return sorted(found, reverse=True)

    def read(self, snapshot: MetadataSnapshotId) -> tuple[StoredSnapshot, MetadataSnapshot]:
        """Read a snapshot. Raises CorruptSnapshot or OSError."""
        file = self._files.open(self.path_of(snapshot))
        try:
            size_bytes = file.size()
            if size_bytes > _SNAPSHOT_BYTES_MAX:
                raise CorruptMetadataSnapshot(f"it has {size_bytes} bytes")
            content = decode_snapshot(file.read_at(0, size_bytes))
        finally:
            file.close()
        return StoredSnapshot(snapshot, size_bytes, content.timestamp_ms), content

    def describe(self, snapshot: MetadataSnapshotId) -> StoredSnapshot:
        """The description of a snapshot; only the snapshot's header is read. Raises CorruptSnapshot
        or OSError.
        """
        file = self._files.open(self.path_of(snapshot))
        try:
            timestamp_ms = decode_header(file.read_at(0, HEADER_BATCH_BYTES_MAX))
            return StoredSnapshot(snapshot, file.size(), timestamp_ms)
        finally:
            file.close()

    def write(self, snapshot: MetadataSnapshotId, parts: Sequence[Buffer]) -> None:
        """Write a snapshot. The file gets its final name when all of it is durable. Waits for the
        disk, so it is called in another thread. Raises OSError."""
        part = self.path_of(snapshot).removesuffix(SUFFIX) + PART_SUFFIX
        self._files.remove(part)
        file = self._files.open(part, create=True)
        try:
            file.append(parts)
            file.sync()
        finally:
            file.close()
        self._files.rename(part, self.path_of(snapshot))
        self._files.sync_dir(self._path)

    def delete(self, snapshot: MetadataSnapshotId, due_ms: int) -> None:
        """Rename the snapshot immediately; the renamed file is removed at `due_ms` or later. Raises
        OSError."""
        path = self.path_of(snapshot)
        self._files.rename(path, f"{path}.deleted")
        self._deleted.add_files(due_ms, self._path, [f"{path}.deleted"], lambda: True)
