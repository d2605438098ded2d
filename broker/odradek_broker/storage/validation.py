"""Checks that a batch passes before a log takes it, and the fields that the log sets in it (P-07,
R-03..R-08).

By default (`record.validation=full`) every record is checked, without making objects of records;
compressed batches are decompressed for that, up to DEFAULT_MAX_DECOMPRESSED_BYTES a request. With
`header` only the 61 header bytes and the checksum are checked (D6): then a batch with too few
records, or with records that cannot be parsed, is stored, and stops every reader.
"""

from __future__ import annotations

from odradek_broker.storage.errors import AppendRejected, NotOneBatch, TakesLong
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    BytesBehind,
    Codec,
    DecompressionLimitExceeded,
)
from odradek_protocol.constants import NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records import native
from odradek_protocol.records.batch import (
    BatchError,
    BatchHeader,
    BodyNotDecompressed,
    CorruptBatch,
    TruncatedBatch,
    UnsupportedMagic,
    read_header,
    set_create_time,
    set_log_append_time,
    verify_crc,
)
from odradek_protocol.records.builder import recompress
from odradek_protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
    MAGIC,
)
from odradek_protocol.records.validation import RecordRules, RecordsChecked, validate_records
from odradek_protocol.settings import INT64_MAX

_CODECS_KNOWN = 5
#: The index of the checksum among the header's fields.
_CRC = 4
#: The cost of recompressing a record, as the number of bytes whose decompression takes as long.
_MADE_ANEW_BYTES = 100
#: The most bytes that a batch which is recompressed may inflate to. The records are copied several
#: times, and a copy of more would hold the interpreter's lock, and with it the loop, for too long.
_MADE_ANEW_MAX_BYTES = 32 * 1024 * 1024
#: The part of the time on the event loop in which a batch is read before it is recompressed.
_MADE_ANEW_PART = 4
#: The most bytes that the batches of a request inflate to on the event loop, which takes about 5 ms
#: with gzip, the slowest codec. What inflates to more is checked in a thread (N-57).
AT_ONCE_BYTES = 2 * 1024 * 1024
_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def check_batch(batch: memoryview, config: LogConfig, origin: AppendOrigin) -> BatchHeader:
    """Check the structure and the checksum of exactly one batch, and return its header (P-07).
    Bytes after the batch that are no whole batch are ignored.

    Raises AppendRejected: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE or
    RECORD_LIST_TOO_LARGE (R-18); NotOneBatch if there is no batch, more than one, or one of an old
    format.
    """
    header = only_header(batch, origin)
    size_bytes = header.size_bytes
    if origin is AppendOrigin.CLIENT and header.base_offset != 0:
        raise _invalid(f"the base offset of the batch is {header.base_offset}, it must be 0")
    # A marker must be appended to every partition of its transaction, however small the topic's
    # limits are. A mirrored batch was within the limits of its source cluster.
    limited = origin is AppendOrigin.CLIENT or not (
        header.is_control or origin is AppendOrigin.MIRROR
    )
    if limited and size_bytes > config.max_message_bytes:
        raise AppendRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size_bytes} bytes, more than the topic's max.message.bytes"
            f" {config.max_message_bytes}",
        )
    try:
        verify_crc(batch, 0, header)
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


def only_header(batch: memoryview, origin: AppendOrigin) -> BatchHeader:
    """The header of the only batch (P-06). Raises NotOneBatch."""
    header = _header_at(batch, 0)
    if header is None:
        raise NotOneBatch(ErrorCode.INVALID_RECORD, "one batch is expected, and there is none")
    behind = len(batch) - header.size_bytes
    if behind and (
        origin is not AppendOrigin.CLIENT
        or (behind >= LOG_OVERHEAD_BYTES and _header_at(batch, header.size_bytes))
    ):
        raise NotOneBatch(
            ErrorCode.INVALID_RECORD,
            f"exactly one batch is expected, but {behind} bytes follow the first one of"
            f" {header.size_bytes}",
        )
    return header


def _header_at(batch: memoryview, position: int) -> BatchHeader | None:
    """The header at a position; None if there is no whole batch. Raises NotOneBatch for bytes that
    are not the beginning of a batch."""
    try:
        return read_header(batch, position)
    except TruncatedBatch:
        return None
    except UnsupportedMagic as problem:
        old = 0 <= problem.magic < MAGIC
        error = ErrorCode.INVALID_RECORD if old else ErrorCode.CORRUPT_MESSAGE
        raise NotOneBatch(error, str(problem)) from None
    except BatchError as problem:
        raise NotOneBatch(ErrorCode.CORRUPT_MESSAGE, str(problem)) from None


def _check_fields(header: BatchHeader, origin: AppendOrigin) -> None:
    if origin is AppendOrigin.REPLAY:
        return
    count = header.record_count
    if origin is AppendOrigin.MIRROR:
        _check_mirrored(header)
    elif count <= 0 or header.last_offset_delta + 1 != count:
        raise _invalid(
            f"the batch announces {count} records but its last offset delta is"
            f" {header.last_offset_delta}"
        )
    if header.attributes & CODEC_MASK >= _CODECS_KNOWN:
        raise AppendRejected(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"compression codec {header.attributes & CODEC_MASK} does not exist",
        )
    if origin is AppendOrigin.CLIENT:
        if header.producer_id >= 0 and header.base_sequence < 0 and not header.is_control:
            # Coordinators write without sequences (P-17).
            raise _invalid(
                f"producer id {header.producer_id} came with the negative sequence"
                f" {header.base_sequence}"
            )
        if header.producer_id < 0 and header.is_transactional:
            raise _invalid("a transactional batch came without a producer id")
        if header.attributes & CONTROL_BIT:
            raise _invalid("clients cannot write control batches")


def _check_mirrored(header: BatchHeader) -> None:
    """Refuse a header that no log of another cluster can have (I-03). Compaction leaves fewer
    records than offsets, and batches without records."""
    count, last_delta = header.record_count, header.last_offset_delta
    if last_delta < 0 or not 0 <= count <= last_delta + 1:
        raise _invalid(
            f"the batch announces {count} records but its last offset delta is {last_delta}"
        )
    if not count and header.size_bytes != HEADER_BYTES:
        raise _invalid(
            f"the batch announces no records but has {header.size_bytes - HEADER_BYTES} bytes of"
            " them"
        )
    if header.producer_id < NO_PRODUCER_ID or header.base_sequence < NO_SEQUENCE:
        raise _invalid(
            f"the batch has producer id {header.producer_id} and sequence {header.base_sequence}"
        )
    if header.producer_id < 0 and header.is_transactional:
        raise _invalid("a transactional batch came without a producer id")
    if header.producer_id >= 0 and header.producer_epoch < 0:
        raise _invalid(f"producer id {header.producer_id} came with epoch {header.producer_epoch}")


def _invalid(message: str) -> AppendRejected:
    return AppendRejected(ErrorCode.INVALID_RECORD, message)


def apply_timestamp_rules(
    batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> int:
    """Apply R-03 to R-05 to the header's fields; the batch and `header` are changed.

    Returns the log append time, -1 with CreateTime. Raises AppendRejected (INVALID_TIMESTAMP).
    """
    largest = header.max_timestamp
    log_append_time_set = header.attributes & LOG_APPEND_TIME_BIT
    if config.message_timestamp_type == "LogAppendTime":
        if log_append_time_set:
            raise _log_append_time_from_client()
        set_log_append_time(batch, 0, now_ms)
        header.max_timestamp = now_ms
        header.attributes |= LOG_APPEND_TIME_BIT
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
        header.attributes &= ~LOG_APPEND_TIME_BIT
    return -1


def _log_append_time_from_client() -> AppendRejected:
    return AppendRejected(
        ErrorCode.INVALID_TIMESTAMP,
        "the batch claims LogAppendTime, which only a broker may set",
    )


class PlainRules(NamedTuple):
    """The settings of a log that apply to plain batches; see `check_plain`. `bytes_max`: the
    largest batch; 0 if no batch counts as plain. `keys`: every record needs a key."""

    config: LogConfig
    bytes_max: int
    before_max_ms: int
    after_max_ms: int
    keys: bool

    @classmethod
    def of(cls, config: LogConfig) -> PlainRules:
        """The rules that follow from a log's settings."""
        plain = (
            config.opens_records
            and not config.uses_log_append_time
            and _CODECS.get(config.compression_type, Codec.NONE) is Codec.NONE
        )
        return cls(
            config,
            min(config.max_message_bytes, config.segment_bytes) if plain else 0,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
            config.compacted,
        )


def check_plain(batch: memoryview, rules: PlainRules, now_ms: int) -> BatchHeader | None:
    """The header of a client's batch that is plain and passes every check of `prepare`. None for
    any other batch, valid or not, and for every batch if there is no compiled codec; the caller
    then calls `prepare`.

    A plain batch is not compressed, has CreateTime, and needs no change.
    """
    compiled = native.CODEC
    if compiled is None or not rules.bytes_max:
        return None
    fields = compiled.check_batch(
        batch,
        rules.bytes_max,
        now_ms - rules.before_max_ms,
        min(now_ms + rules.after_max_ms, INT64_MAX),
        rules.keys,
    )
    if fields is None or crc32c(batch[CRC_START:]) != fields[_CRC]:
        return None
    return BatchHeader(*fields)


class DecompressionBudget:
    """The limit of the decompressed bytes of all batches of one request together (R-12, D11).

    `at_once_bytes`: so many of them may be decompressed before others have the loop again (N-57).
    """

    __slots__ = ("_limit_bytes", "at_once_bytes", "crowded_out", "is_in_thread", "left_bytes")

    def __init__(self, left_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> None:
        self._limit_bytes = self.left_bytes = left_bytes
        self.at_once_bytes = AT_ONCE_BYTES
        self.is_in_thread = False
        #: True if a batch found no room because of the batches before it.
        self.crowded_out = False

    def begin_slice(self) -> None:
        """Others have had the loop."""
        self.at_once_bytes = AT_ONCE_BYTES
        self.is_in_thread = False

    def begin_thread(self) -> None:
        """The next batch is checked in a thread, where all of the limit may be used at once."""
        self.at_once_bytes = self._limit_bytes
        self.is_in_thread = True

    def took(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        self.at_once_bytes -= size_bytes

    def refused(self, problem: CorruptBatch) -> None:
        """Count a batch that was refused. Its decompressed size is unknown, so half of the
        remaining budget is taken: all batches together take at most twice the limit, and a valid
        batch after a damaged one still has room."""
        too_large = _is_too_large(problem)
        self.crowded_out = too_large and self.left_bytes < self._limit_bytes
        self.left_bytes = 0 if too_large else self.left_bytes // 2

    def crowded_text(self, left_bytes: int) -> str:
        """The text for a batch that was crowded out when `left_bytes` were left."""
        return (
            f"all compressed batches of a request may decompress to {self._limit_bytes} bytes"
            f" together, and the batches before this one left {left_bytes}: send fewer at a time"
        )


class ValidatedBatch(NamedTuple):
    """A checked batch, ready for its offsets. `batch` is the caller's batch, with changes, or a
    recompressed one.
    """

    batch: memoryview
    header: BatchHeader
    log_append_time_ms: int

    def appended_at(self, now_ms: int) -> ValidatedBatch:
        """The batch with the time of its append, if the topic has LogAppendTime: the check may have
        been long ago, and the times of a log ascend (R-03)."""
        if self.log_append_time_ms in (-1, now_ms):
            return self
        set_log_append_time(self.batch, 0, now_ms)
        self.header.max_timestamp = now_ms
        return self._replace(log_append_time_ms=now_ms)


def prepare(
    batch: memoryview,
    config: LogConfig,
    origin: AppendOrigin,
    now_ms: int,
    budget: DecompressionBudget | None = None,
) -> ValidatedBatch:
    """Check and prepare a batch, before its producer state is checked. Raises AppendRejected, and
    TakesLong if the batch does not fit into the budget's `at_once_bytes`.

    `budget`: the budget of the request; None: a budget for this batch. Records of coordinators are
    trusted, and read only to be recompressed; they take as long as they take.
    """
    header = check_batch(batch, config, origin)
    if origin is AppendOrigin.REPLAY:
        return ValidatedBatch(batch, header, -1)
    if origin is AppendOrigin.MIRROR:
        if config.opens_records and header.record_count:
            checked = _opened(batch, header, config, origin, now_ms, budget)
            if not checked.in_range:
                raise _invalid(f"an offset delta is outside 0..{header.last_offset_delta}")
        return ValidatedBatch(batch, header, -1)
    if header.size_bytes < len(batch):
        batch = batch[: header.size_bytes]
    codec = _CODECS.get(config.compression_type, header.codec)
    if codec is not header.codec and not header.is_control:
        return _recompressed(batch, header, config, origin, codec, now_ms, budget)
    if origin is AppendOrigin.CLIENT and config.opens_records:
        log_append_time_ms = _check_records(batch, header, config, now_ms, budget)
    else:
        log_append_time_ms = apply_timestamp_rules(batch, header, config, now_ms)
    return ValidatedBatch(batch, header, log_append_time_ms)


def _check_records(
    batch: memoryview,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    budget: DecompressionBudget | None,
) -> int:
    """Apply R-03 to R-08 to every record; returns the log append time, -1 with CreateTime."""
    checked = _opened(batch, header, config, AppendOrigin.CLIENT, now_ms, budget)
    if not checked.in_order and header.codec is not Codec.NONE:
        # Kafka tries to renumber the records, and answers with this error.
        raise AppendRejected(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "the offset deltas of compressed records do not count up",
        )
    if not checked.in_range:
        raise _invalid(f"an offset delta is outside 0..{header.last_offset_delta}")
    if config.uses_log_append_time:
        set_log_append_time(batch, 0, now_ms)
        header.max_timestamp = now_ms
        header.attributes |= LOG_APPEND_TIME_BIT
        return now_ms
    largest = checked.max_timestamp_ms
    if largest != header.max_timestamp or header.is_log_append_time:
        set_create_time(batch, 0, largest)
        header.max_timestamp = largest
        header.attributes &= ~LOG_APPEND_TIME_BIT
    return -1


def _opened(
    batch: memoryview,
    header: BatchHeader,
    config: LogConfig,
    origin: AppendOrigin,
    now_ms: int,
    budget: DecompressionBudget | None,
) -> RecordsChecked:
    """The records of a batch, after a check of the topic's rules (R-04 to R-07). Raises
    AppendRejected.
    """
    if origin is AppendOrigin.CLIENT:
        rules = RecordRules(
            log_append_time=config.uses_log_append_time,
            compacted=config.compacted,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        )
    elif origin is AppendOrigin.MIRROR:
        rules = RecordRules()
    else:
        rules = RecordRules(log_append_time=config.uses_log_append_time)
    limit_bytes = DEFAULT_MAX_DECOMPRESSED_BYTES if budget is None else budget.left_bytes
    at_once_bytes = AT_ONCE_BYTES if budget is None else budget.at_once_bytes
    if origin is AppendOrigin.COORDINATOR:
        at_once_bytes = limit_bytes
    at_once_bytes = max(min(at_once_bytes, limit_bytes), 0)
    try:
        checked = validate_records(batch, 0, header, rules, now_ms, at_once_bytes)
    except CorruptBatch as problem:
        if at_once_bytes < limit_bytes and _is_too_large(problem):
            raise TakesLong from None
        if budget is not None and header.codec is not Codec.NONE:
            budget.refused(problem)
        if isinstance(problem, BodyNotDecompressed):
            text = str(problem)
            if budget is not None and budget.crowded_out:
                text = budget.crowded_text(limit_bytes)
            raise AppendRejected(_decompression_error(problem), text) from None
        raise _invalid(str(problem)) from None
    if budget is not None and header.codec is not Codec.NONE:
        budget.took(len(checked.body))
    if not checked.accepted:
        raise AppendRejected(
            ErrorCode.INVALID_TIMESTAMP if checked.invalid_timestamp else ErrorCode.INVALID_RECORD,
            _fault_text(checked, header),
            checked.record_errors,
        )
    return checked


def _fault_text(checked: RecordsChecked, header: BatchHeader) -> str:
    if checked.trouble:
        return f"some of {header.record_count} records break the topic's rules: {checked.trouble}"
    return (
        f"{len(checked.record_errors)} of {header.record_count} records break the topic's rules;"
        f" the first: {checked.record_errors[0][1]}"
    )


def _is_too_large(problem: CorruptBatch) -> bool:
    return isinstance(problem.__cause__, DecompressionLimitExceeded)


def _decompression_error(problem: BodyNotDecompressed) -> ErrorCode:
    """The error for a batch that does not decompress; Kafka has none of its own. A client may split
    a batch that is too large, and send the parts."""
    if _is_too_large(problem):
        return ErrorCode.MESSAGE_TOO_LARGE
    if isinstance(problem.__cause__, BytesBehind):
        return ErrorCode.INVALID_RECORD
    return ErrorCode.UNKNOWN_SERVER_ERROR


def _recompressed(
    batch: memoryview,
    header: BatchHeader,
    config: LogConfig,
    origin: AppendOrigin,
    codec: Codec,
    now_ms: int,
    budget: DecompressionBudget | None,
) -> ValidatedBatch:
    """Recompress a batch with the codec of the topic (R-08)."""
    budget = budget or DecompressionBudget()
    cost_bytes = header.record_count * _MADE_ANEW_BYTES
    if cost_bytes > budget.left_bytes:
        raise AppendRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the request has too many records to be compressed as {codec.name.lower()}, which the topic"
            " demands: send fewer at a time",
        )
    if (
        origin is AppendOrigin.CLIENT
        and not budget.is_in_thread
        and cost_bytes + header.size_bytes > budget.at_once_bytes // _MADE_ANEW_PART
    ):
        raise TakesLong
    checked = _opened(batch, header, config, origin, now_ms, budget)
    if (body_bytes := len(checked.body)) > _MADE_ANEW_MAX_BYTES:
        raise AppendRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch decompresses to {body_bytes} bytes; at most {_MADE_ANEW_MAX_BYTES} are"
            f" compressed as {codec.name.lower()}, which the topic demands: send fewer at a time",
        )
    budget.took(cost_bytes)
    log_append_time_ms = now_ms if config.uses_log_append_time else None
    try:
        recompressed = memoryview(recompress(header, checked.body, codec, log_append_time_ms))
    except ValueError as problem:
        raise AppendRejected(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)) from None
    if len(recompressed) > min(config.max_message_bytes, config.segment_bytes):
        raise AppendRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"with the topic's compression.type {config.compression_type} the batch has"
            f" {len(recompressed)} bytes, more than max.message.bytes {config.max_message_bytes}"
            f" or segment.bytes {config.segment_bytes}",
        )
    return ValidatedBatch(
        recompressed, read_header(recompressed), now_ms if config.uses_log_append_time else -1
    )
