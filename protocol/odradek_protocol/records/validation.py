"""The full check of a produced batch: its records, not only its header (R-04..R-08)."""

from __future__ import annotations

from dataclasses import field

from odradek_protocol.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Codec,
    CompressionError,
    check_portable,
)
from odradek_protocol.constants import NO_TIMESTAMP
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

from .batch import BatchHeader, BodyNotDecompressed, Buffer
from .layout import HEADER_BYTES
from .record import inflate_body, parse_records, scan_records, split_records

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1

MAX_RECORD_ERRORS = 100
"""The most bad records that an answer lists, so that a request cannot cause millions of strings."""

MAX_RECORDS_LOOKED_AT = 100_000
"""For a batch with more records the answer does not list the bad ones: an object for each of
millions takes seconds, and gigabytes."""


_NO_KEY = "a compacted topic takes no record without a key"


class RecordRules(NamedTuple):
    """The settings of a topic for its records."""

    log_append_time: bool = False
    """message.timestamp.type=LogAppendTime."""
    compacted: bool = False
    """cleanup.policy has "compact": every record needs a key (R-07)."""
    timestamp_before_max_ms: int | None = None
    """message.timestamp.before.max.ms; None for no limit."""
    timestamp_after_max_ms: int | None = None
    """message.timestamp.after.max.ms; None for no limit."""


@dataclass(slots=True)
class RecordsChecked:
    """The result of a check. `accepted` is false if a record violates a rule; the whole batch is
    then refused (R-06)."""

    body: Buffer
    """The records, decompressed."""
    max_timestamp_ms: int = NO_TIMESTAMP
    """The largest timestamp, -1 if all are below; for R-04."""
    in_order: bool = True
    """Offset deltas are 0, 1, 2, ..."""
    in_range: bool = True
    """No offset delta is below 0 or beyond the header's last one."""
    record_errors: list[tuple[int, str]] = field(default_factory=list)
    """(index in the batch, message), the first MAX_RECORD_ERRORS."""
    trouble: str = ""
    """The fault in some of more than MAX_RECORDS_LOOKED_AT records."""
    invalid_timestamp: bool = False
    """Some record failed the timestamp test: the answer is 32, otherwise 87 (R-06)."""

    @property
    def accepted(self) -> bool:
        return not (self.record_errors or self.trouble)


def validate_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    rules: RecordRules,
    now_ms: int,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> RecordsChecked:
    """Check the records of a produced batch against the rules of the topic.

    The body must decompress within the limit, and have a form that all clients can read (otherwise
    BodyNotDecompressed is raised). The body must contain exactly the number of records in the
    header, at least one (otherwise CorruptBatch is raised). Timestamps (R-05) and keys (R-07) are
    checked. If bit 3 of the attributes is set (LogAppendTime), the timestamp of all records is the
    header's maximum timestamp, as in Kafka.
    """
    body: Buffer = memoryview(buffer)[position + HEADER_BYTES : position + header.size_bytes]
    if (codec := header.codec) is not Codec.NONE:
        try:
            check_portable(codec, body)
        except CompressionError as error:
            raise BodyNotDecompressed(str(error)) from error
        body = inflate_body(body, header, max_decompressed_bytes)
    lowest_offset, highest_offset, in_order, lowest, highest, null_keys = scan_records(
        body, header.record_count
    )
    if header.is_log_append_time:
        lowest_ms = highest_ms = header.max_timestamp
    else:
        lowest_ms, highest_ms = header.base_timestamp + lowest, header.base_timestamp + highest
    checked = RecordsChecked(
        body,
        max(highest_ms, NO_TIMESTAMP),
        bool(in_order),
        lowest_offset >= 0 and highest_offset <= header.last_offset_delta,
    )
    sound_keys = not (rules.compacted and null_keys)
    if not (sound_keys and _all_in_window(header, rules, lowest_ms, highest_ms, now_ms)):
        if header.record_count > MAX_RECORDS_LOOKED_AT:
            trouble = _timestamp_trouble(header, rules, lowest_ms, now_ms)
            trouble = trouble or _timestamp_trouble(header, rules, highest_ms, now_ms)
            checked.invalid_timestamp = trouble is not None
            checked.trouble = trouble or ("" if sound_keys else _NO_KEY)
        if not checked.trouble:
            _name_troubles(body, header, rules, now_ms, checked)
    return checked


def _name_troubles(
    body: Buffer, header: BatchHeader, rules: RecordRules, now_ms: int, checked: RecordsChecked
) -> None:
    """Add the problem of each invalid record to `checked`. If a record is refused because it has no
    key, its timestamp is not checked."""
    index = 0
    for part, count in split_records(body, header.record_count):
        parsed = parse_records(part, count)
        for key, delta in zip(parsed.keys, parsed.timestamp_deltas, strict=True):
            if rules.compacted and key is None:
                trouble: str | None = _NO_KEY
            else:
                own = (
                    header.max_timestamp
                    if header.is_log_append_time
                    else header.base_timestamp + delta
                )
                trouble = _timestamp_trouble(header, rules, own, now_ms)
                checked.invalid_timestamp |= trouble is not None
            if trouble is not None and len(checked.record_errors) < MAX_RECORD_ERRORS:
                checked.record_errors.append((index, trouble))
            index += 1


def _all_in_window(
    header: BatchHeader, rules: RecordRules, lowest_ms: int, highest_ms: int, now_ms: int
) -> bool:
    """True if the lowest and the highest timestamp prove that all timestamps are within the window.
    `lowest_ms` -1: a record has no timestamp, which is valid, and the lowest timestamp of the other
    records is unknown; so 0 is used as their lower bound."""
    if rules.log_append_time:
        return not header.is_log_append_time
    if lowest_ms == NO_TIMESTAMP and not header.is_log_append_time:
        lowest_ms = min(0, highest_ms)
    return not (
        _timestamp_trouble(header, rules, lowest_ms, now_ms)
        or _timestamp_trouble(header, rules, highest_ms, now_ms)
    )


def _timestamp_trouble(
    header: BatchHeader, rules: RecordRules, timestamp_ms: int, now_ms: int
) -> str | None:
    """The problem of a timestamp (R-05); None if there is none."""
    if rules.log_append_time or timestamp_ms == NO_TIMESTAMP:
        if header.is_log_append_time:
            return "a producer may not set the timestamp type LogAppendTime"
        return None
    if not MIN_INT64 <= timestamp_ms <= MAX_INT64:
        return f"timestamp {timestamp_ms} is none that a record can have"
    before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    if before is not None and now_ms - timestamp_ms > before:
        return (
            f"timestamp {timestamp_ms} is more than {before} ms before the broker's time {now_ms}"
        )
    if after is not None and timestamp_ms - now_ms > after:
        return f"timestamp {timestamp_ms} is more than {after} ms after the broker's time {now_ms}"
    return None
