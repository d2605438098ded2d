"""The file `<offset>.snapshot`: producer state just before that offset (P-26).

The format is Kafka's ProducerSnapshot version 1, which keeps only the last batch of each producer.
This broker adds a trailer with the other cached batches, so that a restart does not shrink the
window in which duplicates are found. Kafka reads as many entries as the count says, takes the CRC
over the whole rest of the file and ignores the bytes after the entries. So one file serves both
brokers, and is replaced in one step, so that the entries and the trailer always match. Files of
Kafka's own, without a trailer, are also read.

`SNAPSHOT` and `TRAILER` declare the format. A snapshot is taken while the log waits, with up to
100,000 producers in it, so the bytes are written and read by faster struct code; a test checks that
it agrees with the declarations.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import construct as c

from odradek_broker.platform.seams import Files
from odradek_broker.storage.producers.state import (
    CACHED_BATCHES,
    PACKED_BATCH,
    CachedBatch,
    ProducerEntry,
)
from odradek_broker.storage.segment_state import (
    SEGMENT_STATE,
    SEGMENT_STATE_BYTES,
    SegmentState,
    decode_segment_state,
)
from odradek_protocol.checksums import crc32c
from odradek_protocol.constants import NO_OFFSET

SNAPSHOT_VERSION = 1
TRAILER_MAGIC = b"ODRK"
TRAILER_VERSION = 1

_ENTRY = c.Struct(
    "producer_id" / c.Int64sb,
    "epoch" / c.Int16sb,
    "last_sequence" / c.Int32sb,  # -1: no batch
    "last_offset" / c.Int64sb,  # -1: no batch
    "offset_delta" / c.Int32sb,
    "timestamp" / c.Int64sb,  # of the last batch or marker
    "coordinator_epoch" / c.Int32sb,
    "current_txn_first_offset" / c.Int64sb,  # -1: none is open
)
_BATCH = c.Struct(
    "last_sequence" / c.Int32sb,
    "last_offset" / c.Int64sb,
    "offset_delta" / c.Int32sb,
    "timestamp" / c.Int64sb,
)
TRAILER = c.Struct(
    "magic" / c.Const(TRAILER_MAGIC),
    "version" / c.Const(TRAILER_VERSION, c.Int16ub),
    "producers"
    / c.PrefixedArray(
        c.Int32ub,
        c.Struct(
            "producer_id" / c.Int64sb,
            # All cached batches, oldest first; the last one is the batch in the entry.
            "batches" / c.PrefixedArray(c.Int8ub, _BATCH),
        ),
    ),
)
SNAPSHOT = c.Struct(
    "version" / c.Const(SNAPSHOT_VERSION, c.Int16sb),
    "crc" / c.Int32ub,  # CRC-32C of everything that follows
    "producer_entries" / c.PrefixedArray(c.Int32sb, _ENTRY),
    "trailer" / c.Optional(TRAILER),
    "segment_state" / c.Optional(SEGMENT_STATE),
)

_FILE_HEAD = struct.Struct(">hIi")
_CRC_COVERS_FROM = 6
_PACKED_ENTRY = struct.Struct(">qhiqiqiq")
_TRAILER_HEAD = struct.Struct(">4sHI")
_TRAILER_PRODUCER = struct.Struct(">qB")


class CorruptProducerSnapshot(ValueError):
    """The file is no producer snapshot. Delete it and fall back to an older one (P-28)."""


def encode_snapshot(entries: Iterable[ProducerEntry], segment_state: bytes = b"") -> bytes:
    """The content of a snapshot file, in the order of the entries; `segment_state` is at its
    end.
    """
    packed: list[bytes] = []
    trailer: list[bytes] = []
    for entry in entries:
        last = entry.last_batch or CachedBatch(-1, NO_OFFSET, 0, entry.last_timestamp)
        first_offset = entry.transaction_first_offset
        packed.append(
            _PACKED_ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                NO_OFFSET if first_offset is None else first_offset,
            )
        )
        # A producer with a single cached batch that has the entry's timestamp needs no trailer:
        # Kafka's part is complete.
        batches = entry.packed_batches
        if len(batches) > PACKED_BATCH.size or last.timestamp != entry.last_timestamp:
            count = len(batches) // PACKED_BATCH.size
            trailer.append(_TRAILER_PRODUCER.pack(entry.producer_id, count) + batches)
    body = b"".join(
        (
            len(packed).to_bytes(4, "big"),
            *packed,
            _TRAILER_HEAD.pack(TRAILER_MAGIC, TRAILER_VERSION, len(trailer)),
            *trailer,
            segment_state,
        )
    )
    head = struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body))
    return head + body


def check_snapshot(content: bytes) -> int:
    """The number of producers that a whole file claims to have. Raises CorruptSnapshot."""
    if len(content) < _FILE_HEAD.size:
        raise CorruptProducerSnapshot(f"{len(content)} bytes are too few for a producer snapshot")
    version, crc, count = _FILE_HEAD.unpack_from(content)
    if version != SNAPSHOT_VERSION:
        raise CorruptProducerSnapshot(f"producer snapshot of version {version}, expected 1")
    computed = crc32c(memoryview(content)[_CRC_COVERS_FROM:])
    if crc != computed:
        raise CorruptProducerSnapshot(
            f"producer snapshot with CRC {crc:#x}, its bytes give {computed:#x}"
        )
    return int(count)


def read_segment_state(files: Files, path: str, *, checked: bool = True) -> SegmentState | None:
    """The state of a segment from a snapshot that was taken inside the segment or at its end; None
    if the file is missing or damaged, or has no such state. Raises OSError.

    Without `checked` only the last bytes are read, because the file may have 100,000 producers:
    damage elsewhere is then not detected.
    """
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        begin = 0 if checked else max(file.size() - SEGMENT_STATE_BYTES, 0)
        content = file.read_at(begin, file.size() - begin)
    finally:
        file.close()
    if checked:
        try:
            check_snapshot(content)
        except CorruptProducerSnapshot:
            return None
    return decode_segment_state(content)


def decode_snapshot(content: bytes, *, map_end_offset: int) -> list[ProducerEntry]:
    """The producers of a snapshot file, in the order of the file. Raises CorruptSnapshot.

    `map_end_offset`: the offset in the file's name; nothing in the file may lie at or above it.
    """
    count = check_snapshot(content)
    entries_end = _FILE_HEAD.size + count * _PACKED_ENTRY.size
    if count < 0 or entries_end > len(content):
        raise CorruptProducerSnapshot(
            f"producer snapshot of {len(content)} bytes claims {count} entries"
        )
    entries: dict[int, ProducerEntry] = {}
    view = memoryview(content)
    for fields in _PACKED_ENTRY.iter_unpack(view[_FILE_HEAD.size : entries_end]):
        entry = _entry(fields, map_end_offset)
        if entry.producer_id in entries:
            raise CorruptProducerSnapshot(f"producer snapshot names {entry.producer_id} twice")
        entries[entry.producer_id] = entry
    _check_transactions(entries)
    _read_trailer(view[entries_end:], entries)
    return list(entries.values())


def _entry(fields: tuple[int, ...], map_end_offset: int) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator, first = fields
    if producer_id < 0 or last_offset >= map_end_offset or first >= map_end_offset:
        raise CorruptProducerSnapshot(
            f"producer snapshot at offset {map_end_offset} holds producer id {producer_id} with"
            f" last offset {last_offset} and open transaction {first}"
        )
    batches = b""
    if last_offset >= 0:
        batches = PACKED_BATCH.pack(last_sequence, last_offset, delta, timestamp)
    return ProducerEntry(
        producer_id,
        epoch=epoch,
        coordinator_epoch=coordinator,
        last_timestamp=timestamp,
        transaction_first_offset=first if first >= 0 else None,
        packed_batches=batches,
    )


def _check_transactions(entries: dict[int, ProducerEntry]) -> None:
    first_offsets = [
        entry.transaction_first_offset
        for entry in entries.values()
        if entry.transaction_first_offset is not None
    ]
    if len(set(first_offsets)) != len(first_offsets):
        raise CorruptProducerSnapshot(
            "producer snapshot with two transactions that begin at one offset"
        )


def _read_trailer(trailer: memoryview, entries: dict[int, ProducerEntry]) -> None:
    """Read the trailer, and add its batches to the entries. Other bytes after the entries are
    ignored, as in Kafka."""
    if len(trailer) < _TRAILER_HEAD.size:
        return
    magic, version, count = _TRAILER_HEAD.unpack_from(trailer)
    if magic != TRAILER_MAGIC or version != TRAILER_VERSION:
        return
    position = _TRAILER_HEAD.size
    # `count` needs no limit: each round reads bytes, and the end of the bytes is an error.
    for _ in range(count):
        try:
            producer_id, batch_count = _TRAILER_PRODUCER.unpack_from(trailer, position)
        except struct.error:
            raise CorruptProducerSnapshot("the producer snapshot's trailer is cut off") from None
        position += _TRAILER_PRODUCER.size
        end = position + batch_count * PACKED_BATCH.size
        batches = bytes(trailer[position:end])
        entry = entries.get(producer_id)
        if entry is None or not _belong_to(batches, batch_count, entry):
            raise CorruptProducerSnapshot(
                f"the producer snapshot's trailer does not fit its entry of producer id"
                f" {producer_id}"
            )
        entries[producer_id] = ProducerEntry(
            producer_id,
            epoch=entry.epoch,
            coordinator_epoch=entry.coordinator_epoch,
            last_timestamp=entry.last_timestamp,
            transaction_first_offset=entry.transaction_first_offset,
            packed_batches=batches,
        )
        position = end


def _belong_to(batches: bytes, batch_count: int, entry: ProducerEntry) -> bool:
    if not 1 <= batch_count <= CACHED_BATCHES or len(batches) != batch_count * PACKED_BATCH.size:
        return False
    timestamp_bytes = 8
    known = entry.packed_batches
    return (
        bool(known) and batches[-PACKED_BATCH.size : -timestamp_bytes] == known[:-timestamp_bytes]
    )
