"""The deep check of a produced batch: its records, not only its header (R-04..R-08)."""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek_protocol.compression import DEFAULT_MAX_DECOMPRESSED_BYTES

from .batch import NO_TIMESTAMP, BatchHeader, Buffer
from .record import parse_records, read_body

MAX_RECORD_ERRORS = 100
"""An answer lists at most so many bad records, lest one request ask for millions of strings."""


@dataclass(frozen=True, slots=True)
class RecordRules:
    """What a topic demands of its records."""

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
    """What the records say. `accepted` unless some record broke a rule: then the whole batch goes (R-06)."""

    max_timestamp_ms: int = NO_TIMESTAMP
    """Over base timestamp plus deltas, -1 when there are no records; for R-04."""
    max_timestamp_index: int = -1
    """The first record that has it."""
    body_bytes: int = 0
    """Of the records, decompressed."""
    record_errors: list[tuple[int, str]] = field(default_factory=list)
    """(index in the batch, message), the first MAX_RECORD_ERRORS."""
    invalid_timestamp: bool = False
    """Some record failed the timestamp test: the answer is 32, otherwise 87 (R-06)."""

    @property
    def accepted(self) -> bool:
        return not self.record_errors


def validate_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    rules: RecordRules,
    now_ms: int,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> RecordsChecked:
    """Open the records of a batch that a client sent and hold them to the topic's rules.

    Checked: the body decompresses within the limit and holds exactly the records promised (otherwise
    CorruptBatch is raised); offset deltas are 0, 1, 2, ...; timestamps (R-05); keys (R-07). Timestamps
    are base plus delta even where bit 3 is set, for that is what readers will see once the bit is cleared.
    """
    body = read_body(buffer, position, header, max_decompressed_bytes)
    parsed = parse_records(body, header.record_count)
    checked = RecordsChecked(body_bytes=len(body))
    if not parsed.offset_deltas:
        return checked
    highest = max(parsed.timestamp_deltas)
    lowest = min(parsed.timestamp_deltas)
    checked.max_timestamp_ms = header.base_timestamp + highest
    checked.max_timestamp_index = parsed.timestamp_deltas.index(highest)

    problems: dict[int, str] = {}
    if not parsed.in_order:
        for index, delta in enumerate(parsed.offset_deltas):
            if delta != index:
                _note(problems, index, f"offset delta is {delta}, not {index}")
    if rules.compacted and None in parsed.keys:
        for index, key in enumerate(parsed.keys):
            if key is None:
                _note(problems, index, "a compacted topic takes no record without a key")
    if not _all_in_window(
        header, rules, header.base_timestamp + lowest, checked.max_timestamp_ms, now_ms
    ):
        for index, delta in enumerate(parsed.timestamp_deltas):
            trouble = _timestamp_trouble(header, rules, header.base_timestamp + delta, now_ms)
            if trouble:
                checked.invalid_timestamp = True
                _note(problems, index, trouble)
    checked.record_errors = sorted(problems.items())
    return checked


def _note(problems: dict[int, str], index: int, message: str) -> None:
    """The first trouble of a record is the one that is told."""
    if index not in problems and len(problems) < MAX_RECORD_ERRORS:
        problems[index] = message


def _all_in_window(
    header: BatchHeader, rules: RecordRules, lowest_ms: int, highest_ms: int, now_ms: int
) -> bool:
    """The test passes for all if it passes for the ends, unless -1 (no timestamp) lies between."""
    return lowest_ms > NO_TIMESTAMP and not (
        _timestamp_trouble(header, rules, lowest_ms, now_ms)
        or _timestamp_trouble(header, rules, highest_ms, now_ms)
    )


def _timestamp_trouble(
    header: BatchHeader, rules: RecordRules, timestamp_ms: int, now_ms: int
) -> str | None:
    """R-05, for one record."""
    if rules.log_append_time or timestamp_ms == NO_TIMESTAMP:
        if header.is_log_append_time:
            return "a producer may not set the timestamp type LogAppendTime"
        return None
    before, after = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    if before is not None and now_ms - timestamp_ms > before:
        return (
            f"timestamp {timestamp_ms} is more than {before} ms before the broker's time {now_ms}"
        )
    if after is not None and timestamp_ms - now_ms > after:
        return f"timestamp {timestamp_ms} is more than {after} ms after the broker's time {now_ms}"
    return None
