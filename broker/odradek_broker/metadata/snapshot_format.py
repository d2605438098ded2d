"""The checkpoint file of a metadata snapshot, in Kafka's format (KIP-630).

    <end offset, 20 digits>-<leader epoch, 10 digits>.checkpoint

It stands for all records of the metadata log below its end offset. Inside are record batches,
numbered from 0: a control batch with the snapshot's header, batches of metadata records, a control
batch with the footer. Without the footer a file is not whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from odradek_protocol.records import (
    BatchError,
    ControlType,
    iter_batches,
    read_records,
    simple_batch,
    verify_crc,
)
from odradek_protocol.records.builder import snapshot_control_batch
from odradek_protocol.stored.control_marker import (
    ControlMarkerError,
    decode_snapshot_header,
    decode_type,
)

SUFFIX = ".checkpoint"
#: While it is being written.
PART_SUFFIX = ".checkpoint.part"
_OFFSET_DIGITS, _EPOCH_DIGITS = 20, 10
#: Records in a batch: what is encoded in one turn of the loop.
RECORDS_PER_BATCH = 250
#: The batch of the header is smaller.
HEADER_BATCH_BYTES_MAX = 256


class SnapshotId(NamedTuple):
    """The identity of a snapshot, which has the records below `end_offset`, the last of them of
    `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:0{_OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}{SUFFIX}"


class Snapshot(NamedTuple):
    """Content of a checkpoint file. `timestamp_ms`: of the last record of the log that it
    covers."""

    timestamp_ms: int
    values: list[bytes]


class CorruptSnapshot(Exception):
    """The file is no whole snapshot."""


def parse_file_name(name: str) -> SnapshotId | None:
    """None for a file that is no snapshot, or not a finished one."""
    if not name.endswith(SUFFIX):
        return None
    offset, _, epoch = name.removesuffix(SUFFIX).partition("-")
    if len(offset) != _OFFSET_DIGITS or len(epoch) != _EPOCH_DIGITS:
        return None
    if not (offset + epoch).isascii() or not (offset + epoch).isdigit():
        return None
    return SnapshotId(int(offset), int(epoch))


def encode_snapshot(
    values: Iterator[bytes], epoch: int, timestamp_ms: int, now_ms: int
) -> Iterator[bytes | bytearray]:
    """The file, batch by batch, each when it is asked for. `timestamp_ms`: see `Snapshot`."""
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
    """`Snapshot.timestamp_ms`, from the beginning of a file. CorruptSnapshot."""
    try:
        for position, header in iter_batches(data):
            verify_crc(data, position, header)
            for record in read_records(data, position, header):
                if header.is_control and decode_type(record.key) is ControlType.SNAPSHOT_HEADER:
                    return decode_snapshot_header(record.value)
            break
    except (BatchError, ControlMarkerError) as problem:
        raise CorruptSnapshot(str(problem)) from problem
    raise CorruptSnapshot("it has no header")


def decode_snapshot(data: bytes) -> Snapshot:
    """The content of a file. CorruptSnapshot, whatever the bytes are."""
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
                    raise CorruptSnapshot("something lies behind its footer")
                if header.is_control:
                    kind = decode_type(record.key)
                    if kind is ControlType.SNAPSHOT_HEADER and timestamp_ms is None:
                        timestamp_ms = decode_snapshot_header(record.value)
                    ended = kind is ControlType.SNAPSHOT_FOOTER
                elif timestamp_ms is None or record.value is None:
                    raise CorruptSnapshot("it has records before its header, or without a value")
                else:
                    values.append(record.value)
    except (BatchError, ControlMarkerError) as problem:
        raise CorruptSnapshot(str(problem)) from problem
    if timestamp_ms is None or not ended:
        raise CorruptSnapshot("it has no header or no footer")
    if read_bytes != len(data):
        raise CorruptSnapshot("something lies behind its footer")
    return Snapshot(timestamp_ms, values)
