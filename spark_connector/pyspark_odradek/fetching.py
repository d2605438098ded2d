"""Reading of one range of offsets: the state, the reactions to answers, and the rows.

    answer to a fetch                   reaction
    records                             continue after the last batch, whatever its offsets (R-19)
    no records                          fetch again, until `poll_timeout_ms` without progress
    another leader, a transient error,  refresh the metadata and fetch again, within the same limit
    or a lost connection
    offset out of range                 request the log start offset; data loss
    unknown topic or partition          fetch a few more times; then data loss (it was deleted)
    any other error                     fail

With `fail_on_data_loss` off, data loss causes a warning and reading continues with the available
records. `decode` makes Arrow batches from the wanted columns of an answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.aborted import AbortedBatches
from odradek_protocol.records.arrow import ArrowRows, chosen_columns
from odradek_protocol.records.batch import Buffer, iter_batches, verify_crc
from odradek_protocol.records.record import read_body
from odradek_protocol.schemas.fetch import AbortedTransaction, PartitionData
from pyspark_odradek.errors import DataLoss, SourceError
from pyspark_odradek.planning import OffsetRange

_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Then(Enum):
    """The caller's next step."""

    DECODE = "decode what came, and fetch on if not done"
    WAIT = "refresh metadata, back off, fetch again"
    WARN = "say `last_trouble` and stop"
    FIND_START = "ask for the log's start, tell it by `log_starts_at`"


@dataclass(slots=True)
class RangeReader:
    """The state of reading the range `wanted`. `position`: the next offset to fetch. The methods'
    `now_ms`: the time of a monotonic clock."""

    wanted: OffsetRange
    fail_on_data_loss: bool
    poll_timeout_ms: int
    gone_answers_max: int
    progress_ms: float
    position: int = -1
    gone_answers: int = 0
    last_trouble: str = "the broker sends nothing"

    def __post_init__(self) -> None:
        self.position = max(self.position, self.wanted.start)

    @property
    def done(self) -> bool:
        return self.position >= self.wanted.end

    def remaining_ms(self, now_ms: float) -> float:
        """The time in ms within which there must be new progress. Raises SourceError if that time
        has passed."""
        left = self.progress_ms + self.poll_timeout_ms - now_ms
        if left > 0:
            return left
        raise SourceError(
            f"odradek: no record of {self.wanted.partition} at or after offset {self.position} came "
            f"within {self.poll_timeout_ms} ms, up to {self.wanted.end} were planned "
            f"({self.last_trouble}); kafkaConsumer.pollTimeoutMs sets the limit"
        )

    def on_answer(self, answer: PartitionData, now_ms: float) -> Then:
        """The next step after an answer. Raises DataLoss, SourceError, BatchError."""
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return Then.FIND_START
        if code is not ErrorCode.NONE:
            return self.on_failure(code, code.name, retriable=code.retriable)
        self.gone_answers = 0
        following = next_offset(answer.records or b"", self.position)
        if following > self.position:
            self.position = following
            self.progress_ms = now_ms
            return Then.DECODE
        if answer.records:
            raise SourceError(
                f"odradek: the first batch of {self.wanted.partition} at offset {self.position} did "
                f"not fit into a fetch of {len(answer.records)} bytes; raise "
                "kafka.max.partition.fetch.bytes above the topic's max.message.bytes"
            )
        self.last_trouble = "the broker sends nothing"
        return Then.WAIT

    def on_failure(self, code: ErrorCode | None, what: str, *, retriable: bool) -> Then:
        """The next step after a failed fetch. `code`: the broker's error code; None if no broker
        answered. Raises DataLoss, SourceError."""
        if code in _GONE:
            return self._on_gone(what)
        if not retriable:
            raise SourceError(
                f"odradek: {self.wanted.partition} cannot be read at offset {self.position}: {what}"
            )
        self.last_trouble = what
        return Then.WAIT

    def log_starts_at(self, log_start: int, now_ms: float) -> str:
        """Continue at `log_start`, the log start offset that the caller requests after FIND_START.
        Returns the warning if reading continues; otherwise raises DataLoss.
        """
        first_kept = min(max(log_start, self.position), self.wanted.end)
        if log_start <= self.position:
            # The start of the log has not moved, so the log was truncated at its end, or belongs to
            # a new topic.
            first_kept = self.wanted.end
        text = (
            f"odradek: offsets {self.position} to {first_kept - 1} of {self.wanted.partition} are gone: "
            f"the log starts at {log_start}"
        )
        if self.fail_on_data_loss:
            raise DataLoss(
                f"{text}. Retention may have overtaken the query; set failOnDataLoss to false to read "
                "what is left"
            )
        self.position = first_kept
        self.progress_ms = now_ms
        return text

    def _on_gone(self, what: str) -> Then:
        self.gone_answers += 1
        self.last_trouble = what
        if self.gone_answers <= self.gone_answers_max:
            return Then.WAIT
        text = (
            f"odradek: {self.wanted.partition} was deleted, or its topic was created again, while "
            f"offsets {self.position} to {self.wanted.end - 1} were to be read ({what})"
        )
        if self.fail_on_data_loss:
            raise DataLoss(f"{text}; set failOnDataLoss to false to go on without them")
        self.last_trouble = text
        self.position = self.wanted.end
        return Then.WARN


ROWS_MAX = 32_768
BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RowDecodeSettings:
    """The settings for decoding bytes into rows."""

    check_crcs: bool = True
    read_committed: bool = False
    columns: tuple[str, ...] = chosen_columns(None, False)


def next_offset(data: Buffer, offset: int) -> int:
    """The offset of the next fetch: the offset after the last complete batch, from its header
    (R-19); `offset` if there is no complete batch.

    Raises BatchError.
    """
    following = offset
    for _, header in iter_batches(data):
        following = header.next_offset
    return max(following, offset)


def decode(
    data: Buffer,
    wanted: OffsetRange,
    aborted: Sequence[AbortedTransaction] | None,
    settings: RowDecodeSettings,
) -> Iterator[Any]:
    """The records of `data` within `wanted`, without control records and, if `read_committed` is
    set, without records of aborted transactions.

    Yields pyarrow.RecordBatch. Raises BatchError, ControlMarkerError.
    """
    rows = ArrowRows(settings.columns, BYTES_MAX)
    transactions = AbortedBatches(aborted)
    topic, number = wanted.partition
    for position, header in iter_batches(data):
        if header.base_offset >= wanted.end:
            break
        if settings.check_crcs:
            verify_crc(data, position, header)
        hidden = settings.read_committed and transactions.hides(data, position, header)
        if hidden or header.is_control or header.last_offset < wanted.start:
            continue
        body = read_body(data, position, header)
        rows.add(topic, number, header, body, first=wanted.start, end=wanted.end)
        if rows.is_full or rows.count >= ROWS_MAX:
            yield rows.take()
    if rows.count:
        yield rows.take()
