"""Records that a ShareFetch reads: their batches, those of aborted transactions, and the part with
what was acquired."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from odradek_broker.share.acquisition import Acquired, LogBatch
from odradek_broker.storage.log import PartitionLog
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.records import iter_batches, read_records
from odradek_protocol.records.batch import BatchHeader
from odradek_protocol.stored.control_marker import ControlMarkerError, decode_marker


class FetchedRecords:
    """Whole batches of a log, read from `offset` on. `aborted`: those of aborted transactions."""

    __slots__ = ("aborted", "batches", "offset", "records")

    def __init__(self, offset: int, records: bytes, aborted: Collection[tuple[int, int]]) -> None:
        """`aborted`: (producer id, first offset) of the aborted transactions in this range."""
        self.offset = offset
        self.records = records
        self.batches: list[LogBatch] = []
        self.aborted: list[LogBatch] = []
        headers = [(position, header) for position, header in iter_batches(records)]
        for _, header in headers:
            batch = LogBatch(header.base_offset, header.last_offset, header.size_bytes)
            self.batches.append(batch)
        if aborted:
            self._find_aborted(headers, sorted((first, producer) for producer, first in aborted))

    def _find_aborted(
        self, headers: Sequence[tuple[int, BatchHeader]], begun: list[tuple[int, int]]
    ) -> None:
        """Find the batches of the transactions in `begun`, a list of (first offset, producer
        id)."""
        begun.reverse()
        aborting: set[int] = set()
        for (position, header), batch in zip(headers, self.batches, strict=True):
            if header.producer_id == NO_PRODUCER_ID:
                continue
            while begun and begun[-1][0] <= header.last_offset:
                aborting.add(begun.pop()[1])
            if header.is_control:
                if self._is_abort(position, header):
                    aborting.discard(header.producer_id)
            elif header.is_transactional and header.producer_id in aborting:
                self.aborted.append(batch)

    def _is_abort(self, position: int, header: BatchHeader) -> bool:
        for record in read_records(self.records, position, header):
            try:
                marker = decode_marker(record.key, record.value)
            except ControlMarkerError:
                return False
            return marker is not None and not marker.is_commit
        return False

    def part_of(self, acquired: Sequence[Acquired]) -> bytes | memoryview:
        """The batches from the first acquired offset to the last one."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        start = end = 0
        for batch in self.batches:
            if batch.last_offset < first:
                start += batch.size_bytes
            if batch.base_offset <= last:
                end += batch.size_bytes
        if start == 0 and end == len(self.records):
            return self.records
        return memoryview(self.records)[start:end]


def read(
    log: PartitionLog, offset: int, max_bytes: int, *, committed: bool, minimum_one: bool
) -> FetchedRecords:
    """Read from an offset on, at most `max_bytes`. StorageError, as `PartitionLog.read`."""
    bound = log.last_stable_offset if committed else log.high_watermark
    records = log.read(offset, max_bytes, upper_bound=bound, minimum_one=minimum_one)
    aborted = log.aborted_transactions(offset, bound) if records and committed else []
    return FetchedRecords(offset, records, aborted)
