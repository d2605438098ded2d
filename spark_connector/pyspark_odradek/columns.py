"""From fetched bytes to Arrow: the records between two offsets as batches of the wanted columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from odradek_protocol.records.aborted import AbortedBatches
from odradek_protocol.records.arrow import ArrowRows, chosen_columns
from odradek_protocol.records.batch import Buffer, iter_batches, verify_crc
from odradek_protocol.records.record import read_body
from odradek_protocol.schemas.fetch import AbortedTransaction
from pyspark_odradek.planning import OffsetRange

ROWS_MAX = 32_768
BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    """The settings for decoding bytes into rows."""

    check_crcs: bool = True
    read_committed: bool = False
    columns: tuple[str, ...] = chosen_columns(None, False)


def next_offset(data: Buffer, offset: int) -> int:
    """The offset of the next fetch: behind the last complete batch, by its header (R-19); `offset`
    if there is none.

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
    settings: DecodeSettings,
) -> Iterator[Any]:
    """The records of `data` within `wanted`, without control records, and without aborted ones if
    so set.

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
