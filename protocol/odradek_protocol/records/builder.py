"""Building batches: collect records, encode and compress them once, and write the header as often
as needed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace

from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Codec,
    compress,
    decompress,
)
from odradek_protocol.constants import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from odradek_protocol.stored.control_marker import (
    ControlType,
    encode_key,
    encode_marker,
    encode_snapshot_footer,
    encode_snapshot_header,
)

from .batch import BatchHeader, Buffer
from .encoding import NO_HEADERS, HeaderItems, Row, encode_columns, encode_headers
from .layout import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    PACKED_COVERED,
    PACKED_FRONT,
    TRANSACTIONAL_BIT,
)
from .record import RecordColumns, parse_records, split_records
from .writer import NARROW_PAYLOAD_BYTES, SLOW_PATH, WIDEST_OVERHEAD_BYTES, batch_writer

_pack_front = PACKED_FRONT.pack
_pack_covered = PACKED_COVERED.pack

# The limit of the bytes that a record takes in addition to key, value and headers, if these three
# are short.
_ANYWHERE_OVERHEAD_BYTES = 22
# One less than the largest int64, so that the distance from -1 is an int64.
_MAX_TIMESTAMP_MS = 2**63 - 2
_NO_LIMIT = 2**63 - 1

Bytes = bytes | bytearray | memoryview


class BuilderSealed(RuntimeError):
    """The error for a record that is appended after the batch was built."""


class BatchBuilder:
    """Collects the records of one batch.

    The first `build` encodes and compresses them and seals the builder; every call returns a new
    copy of the bytes with the given header, so that a retry with another producer id, epoch or
    sequence costs only a copy and a checksum.
    """

    __slots__ = ("_body", "_writer", "codec", "put")

    def __init__(self, codec: Codec = Codec.NONE) -> None:
        self.codec = codec
        self._writer = batch_writer()
        #: `BatchWriter.append`, for callers with very many records. It takes the arguments of
        #: `append`, but with encoded headers. It returns -2 if `append` has to be called for the
        #: record.
        self.put = self._writer.append
        self._body: bytes | None = None

    @property
    def record_count(self) -> int:
        return self._writer.count

    @property
    def estimated_bytes(self) -> int:
        """An upper bound of the batch's size before compression."""
        return self._writer.estimated_bytes

    @property
    def is_sealed(self) -> bool:
        return self._body is not None

    def append(
        self,
        timestamp_ms: int,
        key: Bytes | None,
        value: Bytes | None,
        headers: HeaderItems = (),
        limit_bytes: int = _NO_LIMIT,
    ) -> int:
        """Add a record and return its index in the batch; -1 if `estimated_bytes` would exceed
        `limit_bytes`, and then the record is not added.

        Raises TypeError for a wrong type, ValueError for a timestamp below -1, a header key that is
        no valid UTF-8 or a record that is too large for any batch, BuilderSealed after `build`.
        After an error the batch is unchanged.
        """
        block = encode_headers(headers) if headers else None
        index = self.put(timestamp_ms, key, value, block, limit_bytes)  # type: ignore[arg-type]
        if index == SLOW_PATH:
            index = self._append_slowly(timestamp_ms, key, value, block, limit_bytes)
        return index

    def _append_slowly(
        self,
        timestamp_ms: int,
        key: Bytes | None,
        value: Bytes | None,
        block: bytes | None,
        limit_bytes: int,
    ) -> int:
        """Append a record that `put` leaves to `append`. Mutable buffers are copied, because they
        might change before the batch is built. Raises the errors of `append`."""
        if value is not None:
            value = _octets("value", value)
        if key is not None:
            key = _octets("key", key)
        if self._body is not None:
            raise BuilderSealed("the batch was built already; no record can be added")
        if not isinstance(timestamp_ms, int):
            raise TypeError(f"record timestamp is {type(timestamp_ms).__name__}, not int (ms)")
        if not NO_TIMESTAMP <= timestamp_ms <= _MAX_TIMESTAMP_MS:
            raise ValueError(
                f"record timestamp {timestamp_ms} is not in ms since 1970 (or -1: none)"
            )
        index = self.put(int(timestamp_ms), key, value, block, int(min(limit_bytes, _NO_LIMIT)))
        if index == SLOW_PATH:
            raise ValueError("the record, or the batch with it, is larger than batches can be")
        return index

    def timestamps(self) -> Sequence[int]:
        """The timestamps of the appended records, in ms."""
        return array("q", self._writer.timestamps())

    def records(self) -> list[Row]:
        """The appended records, as (timestamp_ms, key, value, headers), to split the batch
        (C-25)."""
        if self._body is None:
            body = self._writer.body()
        else:
            body = decompress(self.codec, self._body, self.estimated_bytes)
        parsed = parse_records(body, self.record_count)
        columns = (self.timestamps(), parsed.keys, parsed.values, parsed.header_column())
        return list(zip(*columns, strict=True))

    def build(
        self,
        *,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        log_append_time_ms: int | None = None,
    ) -> bytearray:
        """The batch. `log_append_time_ms` sets the timestamp type and the maximum timestamp (R-03).

        Raises ValueError if there are no records.
        """
        writer = self._writer
        count = writer.count
        if not count:
            raise ValueError("a batch needs at least one record")
        body = self._body
        if body is None:
            body = writer.seal()
            if self.codec is not Codec.NONE:
                body = compress(self.codec, body)
            self._body = body
        return _assemble(
            self.codec,
            count,
            writer.base_timestamp,
            writer.max_timestamp,
            body,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
            control=control,
            log_append_time_ms=log_append_time_ms,
        )

    @staticmethod
    def record_upper_bound(
        key: Bytes | None, value: Bytes | None, headers: HeaderItems = ()
    ) -> int:
        """An upper bound of a record's size; see the module's function `record_upper_bound`."""
        return record_upper_bound(key, value, headers)


class EncodedRecords:
    """Records that are already encoded, from Arrow's columns or from another batch. The interface
    is that of a built `BatchBuilder`.

    `body`: the encoded records before compression; the constructor compresses them.
    `base_timestamp`: the timestamp of the first record.
    """

    __slots__ = (
        "_base_timestamp",
        "_body",
        "_body_bytes_max",
        "_max_timestamp",
        "codec",
        "estimated_bytes",
        "is_sealed",
        "record_count",
    )

    def __init__(
        self,
        codec: Codec,
        body: bytes,
        record_count: int,
        base_timestamp: int,
        max_timestamp: int,
    ) -> None:
        self.codec = codec
        self.record_count = record_count
        #: The exact size of the batch before compression; see also `of_batch`.
        self.estimated_bytes = HEADER_BYTES + len(body)
        self.is_sealed = True
        self._base_timestamp = base_timestamp
        self._max_timestamp = max_timestamp
        self._body: Buffer = body if codec is Codec.NONE else compress(codec, body)
        self._body_bytes_max = self.estimated_bytes

    @classmethod
    def of_batch(cls, header: BatchHeader, body: Buffer) -> EncodedRecords:
        """The records of a batch that was read. The body is used unchanged, compressed or not.

        The batch must be one that a producer may send: no gaps between offsets, timestamps of the
        producer, no delete horizon. `estimated_bytes` is the size of the batch with compression.
        """
        made = cls.__new__(cls)
        made.codec = header.codec
        made.record_count = header.record_count
        made.estimated_bytes = HEADER_BYTES + len(body)
        made.is_sealed = True
        made._base_timestamp = header.base_timestamp
        made._max_timestamp = header.max_timestamp
        made._body = body
        made._body_bytes_max = DEFAULT_MAX_DECOMPRESSED_BYTES
        return made

    @property
    def batch_bytes(self) -> int:
        """The bytes of the batch: header and compressed records."""
        return HEADER_BYTES + len(self._body)

    def append(
        self,
        timestamp_ms: int,
        key: Bytes | None,
        value: Bytes | None,
        headers: HeaderItems = (),
        limit_bytes: int = _NO_LIMIT,
    ) -> int:
        """Raise BuilderSealed."""
        raise BuilderSealed("these records came as a whole; none can be added")

    def put(self, *_: object) -> int:
        """Return SLOW_PATH, like a built `BatchBuilder`, so that the caller calls `append`, and
        `append` raises BuilderSealed."""
        return SLOW_PATH

    def records(self) -> list[Row]:
        """The records, in the form of `BatchBuilder.records`."""
        body = decompress(self.codec, self._body, self._body_bytes_max)
        parsed = parse_records(body, self.record_count)
        timestamps = [self._base_timestamp + delta for delta in parsed.timestamp_deltas]
        columns = (timestamps, parsed.keys, parsed.values, parsed.header_column())
        return list(zip(*columns, strict=True))

    def timestamps(self) -> list[int]:
        """Always empty, because the caller has the timestamps as a column."""
        return []

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytearray:
        """The batch; every call returns a new copy."""
        return _assemble(
            self.codec,
            self.record_count,
            self._base_timestamp,
            self._max_timestamp,
            self._body,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )


def _assemble(
    codec: Codec,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    body: Buffer,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """A batch of encoded and compressed records."""
    attributes = int(codec)
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    covered = _pack_covered(
        attributes,
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    return _join(base_offset, leader_epoch, covered, body)


def record_upper_bound(key: Bytes | None, value: Bytes | None, headers: HeaderItems = ()) -> int:
    """An upper bound of the bytes that a record with this content takes, at any position in a
    batch."""
    size = 1
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    if headers:
        size += len(encode_headers(headers))
    if size < NARROW_PAYLOAD_BYTES:
        return size + _ANYWHERE_OVERHEAD_BYTES
    return size + WIDEST_OVERHEAD_BYTES


def _octets(what: str, value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"record {what} is {type(value).__name__}, not bytes or None")


def seal(header: BatchHeader, body: Buffer) -> bytearray:
    """The batch of this header and body, with its length and checksum set."""
    covered = header.pack()[CRC_START:]
    return _join(header.base_offset, header.leader_epoch, covered, body)


def _join(base_offset: int, leader_epoch: int, covered: bytes, body: Buffer) -> bytearray:
    length = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    checksum = crc32c(body, crc32c(covered))
    front = _pack_front(base_offset, length, leader_epoch, MAGIC, checksum)
    return bytearray().join((front, covered, body))


def simple_batch(
    pairs: Iterable[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """A batch of (key, value) pairs with one timestamp, for internal topics."""
    builder = BatchBuilder(codec)
    for key, value in pairs:
        builder.append(timestamp_ms, key, value)
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def control_batch(
    kind: ControlType,
    coordinator_epoch: int,
    producer_id: int,
    producer_epoch: int,
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The marker that ends a producer's transaction in a partition (R-30, R-31).

    Raises ValueError for a type other than ABORT and COMMIT.
    """
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise ValueError(f"{kind.name} does not end a transaction")
    builder = BatchBuilder()
    builder.append(timestamp_ms, encode_key(kind), encode_marker(coordinator_epoch))
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def snapshot_control_batch(
    kind: ControlType,
    timestamp_ms: int,
    base_offset: int,
    leader_epoch: int,
    *,
    last_contained_ms: int = NO_TIMESTAMP,
) -> bytearray:
    """The batch that begins or ends a snapshot of the metadata log (KIP-630). `last_contained_ms`:
    the time of the last log record that the snapshot covers; only the header of a snapshot has it.

    Raises ValueError for a type other than SNAPSHOT_HEADER and SNAPSHOT_FOOTER.
    """
    if kind is ControlType.SNAPSHOT_HEADER:
        value = encode_snapshot_header(last_contained_ms)
    elif kind is ControlType.SNAPSHOT_FOOTER:
        value = encode_snapshot_footer()
    else:
        raise ValueError(f"{kind.name} neither begins nor ends a snapshot")
    builder = BatchBuilder()
    builder.append(timestamp_ms, encode_key(kind), value)
    return builder.build(base_offset=base_offset, leader_epoch=leader_epoch, control=True)


def rewrite_columns(
    header: BatchHeader,
    parts: Iterable[RecordColumns],
    *,
    codec: Codec | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """The batch of `header` after compaction: with only the records in `parts` (R-19). A part at a
    time is in memory as columns.

    Base offset, last offset delta, producer id, epoch, sequence and flags stay; the offsets have
    gaps where records were removed. `delete_horizon_ms` None keeps the batch's delete horizon, if
    there is one. Timestamps are relative to the delete horizon, or to the first remaining
    record if there is no delete horizon. If no records remain, the header alone preserves the
    producer's sequence. `codec` defaults to that of the batch.
    """
    codec = header.codec if codec is None else codec
    attributes = header.attributes & ~CODEC_MASK | codec
    base_timestamp: int | None = None
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = delete_horizon_ms
    elif header.has_delete_horizon:
        base_timestamp = header.base_timestamp
    record_count = 0
    max_timestamps: list[int] = []
    body = bytearray()
    for columns in parts:
        if not columns.keys:
            continue
        if base_timestamp is None:
            base_timestamp = columns.timestamps[0]
        body += _encode(columns, header.base_offset, base_timestamp)
        max_timestamps.append(max(columns.timestamps))
        record_count += len(columns.keys)
    if base_timestamp is None or not record_count:
        return _bare(header)
    rewritten = replace(
        header,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp if header.is_log_append_time else max(max_timestamps),
        record_count=record_count,
    )
    return seal(rewritten, compress(codec, body) if codec is not Codec.NONE else body)


def _encode(columns: RecordColumns, base_offset: int, base_timestamp: int) -> bytes:
    return encode_columns(
        [offset - base_offset for offset in columns.offsets],
        [timestamp - base_timestamp for timestamp in columns.timestamps],
        columns.keys,
        columns.values,
        [encode_headers(headers) if headers else NO_HEADERS for headers in columns.headers],
    )


def _bare(header: BatchHeader) -> bytearray:
    """The batch of `header` without records: a header with no first timestamp, no compression and
    no delete horizon."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    bare = replace(header, attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return seal(bare, b"")


def recompress(
    header: BatchHeader, body: Buffer, codec: Codec, log_append_time_ms: int | None = None
) -> bytearray:
    """The records in `body` (decompressed) as a batch with another codec, as in Kafka (R-08).

    The records are encoded again: offset deltas are 0, 1, 2, ..., timestamps are relative to the
    first record even if the header had another base timestamp, and undefined attributes are
    removed. The bit of the timestamp type is cleared, unless `log_append_time_ms` sets it (R-03).
    Raises CorruptBatch for invalid records, ValueError for a timestamp below -1.
    """
    builder = BatchBuilder(codec)
    append_time_ms = header.max_timestamp if header.is_log_append_time else None
    for part, count in split_records(body, header.record_count):
        parsed = parse_records(part, count)
        if append_time_ms is not None:
            timestamps = [append_time_ms] * count
        else:
            timestamps = [header.base_timestamp + delta for delta in parsed.timestamp_deltas]
        rows = zip(timestamps, parsed.keys, parsed.values, parsed.header_column(), strict=True)
        for row in rows:
            builder.append(*row)
    return builder.build(
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time_ms=log_append_time_ms,
    )
