"""What a batch must satisfy before a log takes it, and what the log changes in it (P-07, R-03..R-08).

The usual case looks at the 61 header bytes and the checksum only (D6). What that leaves out, with
`record.validation=header`: a timestamp inside the batch that lies outside the window while the
header's first and largest do not (R-05), deltas that are not 0, 1, 2, ..., records that do not
parse, and a largest timestamp in the header that no record has (R-04). `full` finds them all.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import (
    NO_TIMESTAMP,
    BatchError,
    BatchHeader,
    CorruptBatch,
    UnsupportedMagic,
    read_header,
    set_create_time,
    set_log_append_time,
    verify_crc,
)
from odradek_protocol.records.builder import recompress
from odradek_protocol.records.validation import RecordRules, validate_records

_CODEC_MASK = 0x07
_LOG_APPEND_TIME_BIT = 0x08
_CONTROL_BIT = 0x20
_CODECS_KNOWN = 5
_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def check_batch(batch: memoryview, config: LogConfig, origin: AppendOrigin) -> BatchHeader:
    """Structure and checksum of exactly one batch (P-07).

    Raises AppendRejected: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE or
    RECORD_LIST_TOO_LARGE (R-18).
    """
    try:
        header = read_header(batch)
        size_bytes = header.size_bytes
        if size_bytes != len(batch):
            raise AppendRejected(
                ErrorCode.INVALID_RECORD,
                f"exactly one batch is expected, but {len(batch) - size_bytes} bytes follow the"
                f" first one of {size_bytes}",
            )
        # A marker must go where its transaction's data went, however small the topic's limits.
        limited = origin is AppendOrigin.CLIENT or not header.is_control
        if limited and size_bytes > config.max_message_bytes:
            raise AppendRejected(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch has {size_bytes} bytes, more than the topic's max.message.bytes"
                f" {config.max_message_bytes}",
            )
        verify_crc(batch, 0, header)
    except UnsupportedMagic as problem:
        raise AppendRejected(ErrorCode.INVALID_RECORD, str(problem)) from None
    except BatchError as problem:
        raise AppendRejected(ErrorCode.CORRUPT_MESSAGE, str(problem)) from None
    if limited and size_bytes > config.segment_bytes:
        raise AppendRejected(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch has {size_bytes} bytes, more than the topic's segment.bytes"
            f" {config.segment_bytes}",
        )
    _check_fields(header, origin)
    return header


def _check_fields(header: BatchHeader, origin: AppendOrigin) -> None:
    if origin is AppendOrigin.REPLAY:
        return
    count = header.record_count
    if count <= 0 or header.last_offset_delta + 1 != count:
        raise _invalid(
            f"the batch announces {count} records but its last offset delta is"
            f" {header.last_offset_delta}"
        )
    if header.attributes & _CODEC_MASK >= _CODECS_KNOWN:
        raise _invalid(f"compression codec {header.attributes & _CODEC_MASK} does not exist")
    if origin is AppendOrigin.CLIENT:
        if header.producer_id >= 0 and header.base_sequence < 0 and not header.is_control:
            # Coordinators write without sequences (P-17).
            raise _invalid(
                f"producer id {header.producer_id} came with the negative sequence"
                f" {header.base_sequence}"
            )
        if header.producer_id < 0 and header.is_transactional:
            raise _invalid("a transactional batch came without a producer id")
        if header.attributes & _CONTROL_BIT:
            raise _invalid("clients cannot write control batches")
        if header.base_offset != 0:
            raise _invalid(f"the base offset of the batch is {header.base_offset}, it must be 0")


def _invalid(message: str) -> AppendRejected:
    return AppendRejected(ErrorCode.INVALID_RECORD, message)


def apply_timestamp_rules(
    batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> int:
    """R-03 to R-05 as far as the header tells; the batch and `header` are changed in place.

    Returns the log append time, -1 with CreateTime. Raises AppendRejected (INVALID_TIMESTAMP).
    """
    largest = header.max_timestamp
    log_append_time_set = header.attributes & _LOG_APPEND_TIME_BIT
    if config.message_timestamp_type == "LogAppendTime":
        if log_append_time_set:
            raise _log_append_time_from_client()
        set_log_append_time(batch, 0, now_ms)
        header.max_timestamp = now_ms
        header.attributes |= _LOG_APPEND_TIME_BIT
        return now_ms
    if largest == NO_TIMESTAMP:
        if log_append_time_set:
            raise _log_append_time_from_client()
        return -1
    if largest - now_ms > config.message_timestamp_after_max_ms:
        raise AppendRejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {largest} is more than {config.message_timestamp_after_max_ms} ms"
            f" (message.timestamp.after.max.ms) after the broker's time {now_ms}",
        )
    earliest = largest if log_append_time_set else min(header.base_timestamp, largest)
    if now_ms - earliest > config.message_timestamp_before_max_ms:
        raise AppendRejected(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {earliest} is more than {config.message_timestamp_before_max_ms} ms"
            f" (message.timestamp.before.max.ms) before the broker's time {now_ms}",
        )
    if log_append_time_set:
        set_create_time(batch, 0, largest)
        header.attributes &= ~_LOG_APPEND_TIME_BIT
    return -1


def _log_append_time_from_client() -> AppendRejected:
    return AppendRejected(
        ErrorCode.INVALID_TIMESTAMP,
        "the batch claims LogAppendTime, which only a broker may set",
    )


class Prepared(NamedTuple):
    """A batch ready to be stamped. `batch` is the caller's, changed in place, or a recompressed
    one."""

    batch: memoryview
    header: BatchHeader
    log_append_time_ms: int


def prepare(batch: memoryview, config: LogConfig, origin: AppendOrigin, now_ms: int) -> Prepared:
    """Everything that is checked before producer state is asked. Raises AppendRejected.

    Records of coordinators are not opened: their keys are our own.
    """
    header = check_batch(batch, config, origin)
    if origin is AppendOrigin.REPLAY:
        return Prepared(batch, header, -1)
    if origin is AppendOrigin.CLIENT and config.opens_records:
        log_append_time_ms = _check_records(batch, header, config, now_ms)
    else:
        log_append_time_ms = apply_timestamp_rules(batch, header, config, now_ms)
    if config.compression_type != "producer" and not header.is_control:
        batch, header = _recompress(batch, header, config)
    return Prepared(batch, header, log_append_time_ms)


def _check_records(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> int:
    """R-03 to R-07 for every record; the log append time, -1 with CreateTime."""
    rules = RecordRules(
        log_append_time=config.uses_log_append_time,
        compacted=config.compacted,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
    )
    try:
        checked = validate_records(batch, 0, header, rules, now_ms)
    except CorruptBatch as problem:
        raise _invalid(str(problem)) from None
    if not checked.accepted:
        raise AppendRejected(
            ErrorCode.INVALID_TIMESTAMP if checked.invalid_timestamp else ErrorCode.INVALID_RECORD,
            f"{len(checked.record_errors)} of {header.record_count} records break the topic's"
            f" rules; the first: {checked.record_errors[0][1]}",
            checked.record_errors,
        )
    if config.uses_log_append_time:
        set_log_append_time(batch, 0, now_ms)
        header.max_timestamp = now_ms
        header.attributes |= _LOG_APPEND_TIME_BIT
        return now_ms
    largest = checked.max_timestamp_ms
    if largest != header.max_timestamp or header.is_log_append_time:
        set_create_time(batch, 0, largest)
        header.max_timestamp = largest
        header.attributes &= ~_LOG_APPEND_TIME_BIT
    return -1


def _recompress(
    batch: memoryview, header: BatchHeader, config: LogConfig
) -> tuple[memoryview, BatchHeader]:
    """R-08; the batch as it is if it has the topic's codec already."""
    codec = _CODECS[config.compression_type]
    if header.codec is codec:
        return batch, header
    try:
        recompressed = memoryview(recompress(batch, 0, header, codec))
    except CorruptBatch as problem:
        raise _invalid(str(problem)) from None
    if len(recompressed) > min(config.max_message_bytes, config.segment_bytes):
        raise AppendRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"with the topic's compression.type {config.compression_type} the batch has"
            f" {len(recompressed)} bytes, more than max.message.bytes {config.max_message_bytes}"
            f" or segment.bytes {config.segment_bytes}",
        )
    return recompressed, read_header(recompressed)
