"""The record batch, format version 2: reading, checking and stamping its 61-byte header.

A broker needs only this header to check, stamp and serve batches (D6); `record.py` reads records,
and `layout.py` has the fields of the header.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as PackedStruct

from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import Codec
from odradek_protocol.constants import NO_SEQUENCE
from odradek_protocol.lazy_dataclass import dataclass

from .layout import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    PACKED_HEADER,
    PACKED_LENGTH_TO_MAGIC,
    PACKED_PRODUCER,
    TRANSACTIONAL_BIT,
)

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview

_pack_header = PACKED_HEADER.pack
_unpack_header = PACKED_HEADER.unpack_from
_unpack_producer = PACKED_PRODUCER.unpack_from
_INT16 = PackedStruct(">h")
_INT32 = PackedStruct(">i")
_UINT32 = PackedStruct(">I")
_INT64 = PackedStruct(">q")

_CODECS = tuple(Codec)
_MIN_BATCH_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
# The minimum length of a message of the old formats 0 and 1. A lower length is damage.
_MIN_LEGACY_LENGTH = 14


class BatchError(ValueError):
    """The error for bytes that are not a valid batch.

    ::

        BatchError
        ├── TruncatedBatch      the bytes end before the batch does
        ├── CorruptBatch        a length, checksum or record is impossible
        │   └── BodyNotDecompressed
        └── UnsupportedMagic    an older (or unknown) message format
    """


class TruncatedBatch(BatchError):
    """The error for a buffer that ends before the batch does. `needed_bytes`: the size of the whole
    batch."""

    def __init__(self, needed_bytes: int, present_bytes: int) -> None:
        super().__init__(f"batch needs {needed_bytes} bytes, only {present_bytes} are there")
        self.needed_bytes = needed_bytes
        self.present_bytes = present_bytes


class CorruptBatch(BatchError):
    """The error for an impossible length, checksum, count or record."""


class BodyNotDecompressed(CorruptBatch):
    """The error for compressed records that cannot be decompressed; its cause is a
    CompressionError."""


class UnsupportedMagic(BatchError):
    """The error for a message format other than 2. Kafka 4.0 removed the formats 0 and 1 (R-13)."""

    def __init__(self, magic: int) -> None:
        super().__init__(
            f"message format {magic} is not supported, only {MAGIC} (Kafka 0.11 and later)"
        )
        self.magic = magic


@dataclass(slots=True)
class BatchHeader:
    """The fields of one batch's header. `size_bytes`: the size of the whole batch, with the 61
    bytes of the header."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> Codec:
        """The compression codec. CorruptBatch for an unknown number."""
        number = self.attributes & CODEC_MASK
        if number >= len(_CODECS):
            raise CorruptBatch(f"unknown compression codec {number}")
        return _CODECS[number]

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which tombstones and markers in this batch may be removed; None if it is
        not set yet."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch, computed from the last offset delta and never from the record
        count (R-02, R-19)."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, with wrap-around (P-20); -1 if the batch has no
        sequence."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.last_offset_delta)

    def pack(self) -> bytes:
        """The 61 bytes of the header; `crc` is not recomputed."""
        return _pack_header(
            self.base_offset,
            self.size_bytes - LOG_OVERHEAD_BYTES,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`. The whole batch must be in the buffer.

    Neither the checksum nor the records are checked. Raises TruncatedBatch, CorruptBatch (an
    impossible length) or UnsupportedMagic.
    """
    header = read_header_alone(buffer, position)
    present_bytes = len(buffer) - position
    if header.size_bytes > present_bytes:
        raise TruncatedBatch(header.size_bytes, present_bytes)
    return header


def read_header_alone(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of a batch of which only the first 61 bytes were read; otherwise like
    `read_header`."""
    present_bytes = len(buffer) - position
    if present_bytes < HEADER_BYTES:
        _refuse_short(buffer, position, present_bytes)
    fields = _unpack_header(buffer, position)
    length = fields[1]
    if fields[3] != MAGIC or length < _MIN_BATCH_LENGTH:
        _refuse(length, fields[3])
    return BatchHeader(fields[0], length + LOG_OVERHEAD_BYTES, *fields[2:])


def _refuse_short(buffer: Buffer, position: int, present_bytes: int) -> None:
    """Raise the error for fewer bytes than a header of magic 2. The bytes may be a message of an
    old format, because these messages can be shorter than this header."""
    if present_bytes > MAGIC_AT:
        length, _, magic = PACKED_LENGTH_TO_MAGIC.unpack_from(buffer, position + LENGTH_AT)
        if magic != MAGIC or length < _MIN_BATCH_LENGTH:
            _refuse(length, magic)
    raise TruncatedBatch(HEADER_BYTES, present_bytes)


def _refuse(length: int, magic: int) -> None:
    if length < _MIN_LEGACY_LENGTH:
        raise CorruptBatch(f"batch length {length} is impossible")
    if magic != MAGIC:
        raise UnsupportedMagic(magic)
    raise CorruptBatch(
        f"batch length {length} is impossible, the header alone has {_MIN_BATCH_LENGTH}"
    )


def peek(buffer: Buffer) -> tuple[int, int, int, int] | None:
    """(magic, attributes, producer id, producer epoch) of unchecked bytes.

    None if there are fewer bytes than a header has. The last three values have a meaning only if
    magic is 2.
    """
    if len(buffer) < HEADER_BYTES:
        return None
    return _unpack_producer(buffer)


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptBatch unless the stored checksum fits the bytes (from the attributes on)."""
    computed = checksum(buffer, position, header.size_bytes)
    if computed != header.crc:
        raise CorruptBatch(
            f"batch at offset {header.base_offset}: checksum is {computed:08x}, stored {header.crc:08x}"
        )


def checksum(buffer: Buffer, position: int, size_bytes: int) -> int:
    """The CRC-32C of the bytes that a batch's checksum covers."""
    with memoryview(buffer) as view:
        return crc32c(view[position + CRC_START : position + size_bytes])


def iter_batches(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch between `position` and `end`.

    Stops silently at a trailing partial batch (R-14). Raises CorruptBatch or UnsupportedMagic at an
    invalid batch, after the batches before it were yielded.
    """
    stop = len(buffer) if end is None else min(end, len(buffer))
    with memoryview(buffer) as view:
        while position + LOG_OVERHEAD_BYTES <= stop:
            try:
                header = read_header_alone(view[:stop], position)
            except TruncatedBatch:
                return
            following = position + header.size_bytes
            if following > stop:
                return
            yield position, header
            position = following


def stamp(buffer: WritableBuffer, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write offset and leader epoch into a batch, in place. The checksum does not cover these
    fields (R-01)."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(buffer: WritableBuffer, position: int, now_ms: int) -> None:
    """Make `now_ms` the timestamp of every record (R-03), by changes of the header in place.

    Base timestamp and deltas stay; readers take the maximum timestamp for all records.
    """
    _set_timestamp(buffer, position, now_ms, log_append_time=True)


def set_create_time(buffer: WritableBuffer, position: int, max_timestamp_ms: int) -> None:
    """Set the maximum timestamp in a header, in place, and the timestamp type CreateTime (R-04)."""
    _set_timestamp(buffer, position, max_timestamp_ms, log_append_time=False)


def _set_timestamp(
    buffer: WritableBuffer, position: int, timestamp_ms: int, *, log_append_time: bool
) -> None:
    (attributes,) = _INT16.unpack_from(buffer, position + ATTRIBUTES_AT)
    attributes &= ~LOG_APPEND_TIME_BIT
    if log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_AT, timestamp_ms)
    update_crc(buffer, position)


def update_crc(buffer: WritableBuffer, position: int) -> None:
    """Recompute and store the checksum of a batch whose header has the right length."""
    (length,) = _INT32.unpack_from(buffer, position + LENGTH_AT)
    computed = checksum(buffer, position, length + LOG_OVERHEAD_BYTES)
    _UINT32.pack_into(buffer, position + CRC_AT, computed)


# --- sequences (P-20) -------------------------------------------------------------------------

_SEQUENCE_RANGE = 1 << 31
MAX_SEQUENCE = _SEQUENCE_RANGE - 1


def next_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records after `sequence`: 2^31 - 1 is followed by 0 (P-20)."""
    following = sequence + count
    return following - _SEQUENCE_RANGE if following > MAX_SEQUENCE else following


def previous_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records before `sequence`, with wrap-around (P-02, P-20)."""
    preceding = sequence - count
    return preceding + _SEQUENCE_RANGE if preceding < 0 else preceding
