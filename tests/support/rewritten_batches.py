"""Batches from which records were removed, as the cleaner writes them."""

from __future__ import annotations

from collections.abc import Sequence

from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import BatchHeader
from odradek_protocol.records.builder import rewrite_columns
from odradek_protocol.records.record import Record, RecordColumns


def rewrite_batch(
    header: BatchHeader,
    records: Sequence[Record],
    *,
    codec: Codec | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """The batch of `header` with only the given records; see `rewrite_columns`."""
    columns = RecordColumns(
        [record.offset for record in records],
        [record.timestamp for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [record.headers for record in records],
    )
    return rewrite_columns(header, (columns,), codec=codec, delete_horizon_ms=delete_horizon_ms)
