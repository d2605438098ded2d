"""The cleaning of one batch, as Kafka's RecordFilter does it (L-23, L-24).

This module reads and writes no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from operator import ge
from typing import cast

from odradek_broker.storage.cleaner.job import CleaningJob
from odradek_broker.storage.cleaner.offset_map import OffsetMap
from odradek_broker.storage.cleaner.transactions import CleanedTransactions
from odradek_broker.storage.transaction_index import AbortedTxn
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchHeader, Buffer
from odradek_protocol.records.builder import rewrite_columns
from odradek_protocol.records.record import RecordColumns, column_parts


class CleanedBatch(NamedTuple):
    """A cleaned batch. `batch`: None if nothing of it is kept. `records_kept`: the number of its
    records; `keyless`: the number of records dropped because they have no key. `aborted`: a
    transaction that ends with this batch and must stay in the index."""

    batch: Buffer | None
    records_kept: int
    keyless: int = 0
    aborted: AbortedTxn | None = None


class BatchFilter:
    """The cleaning of batches, which are given in the order of offsets."""

    __slots__ = ("_job", "_map", "_transactions")

    def __init__(
        self, job: CleaningJob, offsets: OffsetMap, transactions: CleanedTransactions
    ) -> None:
        self._job = job
        self._map = offsets
        self._transactions = transactions

    def keep(self, header: BatchHeader, batch: memoryview) -> CleanedBatch:
        """The part of a batch that is kept. The caller has checked the checksum. Raises
        CorruptBatch if the records are damaged."""
        if header.is_control:
            return self._keep_control(header, batch)
        if self._transactions.saw_data(header):
            return CleanedBatch(self._emptied(header), 0)
        return self._keep_data(header, batch)

    def _keep_control(self, header: BatchHeader, batch: memoryview) -> CleanedBatch:
        """Keep a marker while records of its transaction are left, and afterwards for
        delete.retention.ms, like a tombstone."""
        ended_nothing, aborted = self._transactions.saw_control(header, batch)
        horizon_ms = header.delete_horizon_ms
        expired = horizon_ms is not None and horizon_ms <= self._job.now_ms
        if not header.record_count or (ended_nothing and expired):
            return CleanedBatch(self._emptied(header), 0)
        if ended_nothing and horizon_ms is None:
            return CleanedBatch(self._with_horizon(header, column_parts(batch, header)), 1)
        return CleanedBatch(batch, header.record_count, 0, aborted)

    def _keep_data(self, header: BatchHeader, batch: memoryview) -> CleanedBatch:
        parts = column_parts(batch, header)
        chosen = bytearray()
        keyless = 0
        tombstones = False
        for columns in parts:
            stays, without_key = self._choose(header, columns)
            chosen += bytes(stays)
            keyless += without_key
            tombstones = tombstones or None in compress(columns.values, stays)
        count = sum(chosen)
        if not count:
            return CleanedBatch(self._emptied(header), 0, keyless)
        if header.delete_horizon_ms is None and tombstones:
            return CleanedBatch(
                self._with_horizon(header, _chosen_of(parts, chosen)), count, keyless
            )
        if count == len(chosen):
            return CleanedBatch(batch, count, keyless)
        return CleanedBatch(rewrite_columns(header, _chosen_of(parts, chosen)), count, keyless)

    def _choose(self, header: BatchHeader, columns: RecordColumns) -> tuple[list[bool], int]:
        """The records to keep: the last of each key, unless it is a tombstone older than
        delete.retention.ms, and all records beyond the offset map. Also the number of records
        without a key."""
        latest = self._map.latest_offset
        keyless = 0
        if header.last_offset > latest or None in columns.keys:
            chosen = [True] * len(columns.keys)
            for at, (offset, key) in enumerate(zip(columns.offsets, columns.keys, strict=True)):
                if offset <= latest:
                    chosen[at] = key is not None and offset >= next(self._map.get_all((key,)))
                    keyless += key is None
        else:
            keys = cast("list[bytes]", columns.keys)
            chosen = list(map(ge, columns.offsets, self._map.get_all(keys)))
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is not None and horizon_ms <= self._job.now_ms:
            rows = zip(chosen, columns.offsets, columns.values, strict=True)
            chosen = [
                stays and (value is not None or offset > latest) for stays, offset, value in rows
            ]
        return chosen, keyless

    def _with_horizon(self, header: BatchHeader, parts: Iterable[RecordColumns]) -> bytearray:
        """Set the time from which tombstones and markers in a batch may be removed (KIP-534)."""
        horizon_ms = self._job.now_ms + self._job.delete_retention_ms
        return rewrite_columns(header, parts, delete_horizon_ms=horizon_ms)

    def _emptied(self, header: BatchHeader) -> bytearray | None:
        """An empty batch with this header if the header is still needed, because it has the last
        sequence or epoch of an unexpired producer, or because the cleaned part ends with it."""
        if self._is_last_of_producer(header) or header.next_offset == self._job.upper_bound:
            return rewrite_columns(header, ())
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.producer_id == NO_PRODUCER_ID:
            return False
        last = self._job.last_records.get(header.producer_id)
        if last is None:
            return False
        if last.data_offset >= 0:
            return header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.epoch


def _chosen_of(parts: Iterable[RecordColumns], chosen: bytearray) -> Iterator[RecordColumns]:
    """The chosen records of each part. `chosen` has a byte for each record of all parts."""
    start = 0
    for columns in parts:
        end = start + len(columns.keys)
        yield RecordColumns._make(list(compress(column, chosen[start:end])) for column in columns)
        start = end
