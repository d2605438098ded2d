"""Records that a ShareFetch reads: their batches, those of aborted transactions, and the part with
the acquired records."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from odradek_broker.share.acquisition import Acquired, LogBatch
from odradek_broker.storage.log import PartitionLog
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.records import iter_batches, read_records
from odradek_protocol.records.batch import BatchHeader
from odradek_protocol.stored.control_marker import ControlMarkerError, decode_marker

#: The least that is read at a time.
_READ_BYTES_MIN = 64 * 1024


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

    @property
    def offsets(self) -> int:
        """The offsets from `self.offset` on that the batches have."""
        return sum(
            batch.last_offset - max(batch.base_offset, self.offset) + 1 for batch in self.batches
        )

    def ends_at(self, bound: int) -> bool:
        """True if no batch follows below an offset."""
        return bool(self.batches) and self.batches[-1].last_offset + 1 >= bound

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
    log: PartitionLog,
    offset: int,
    max_bytes: int,
    offsets: int,
    *,
    committed: bool,
    minimum_one: bool,
) -> FetchedRecords:
    """Read from an offset on: at most `max_bytes`, and not much more than the batches with this
    number of `offsets`. StorageError, as `PartitionLog.read`.

    A member may ask for 50 MB and few records: bytes of records that it does not get are not read.
    """
    bound = log.last_stable_offset if committed else log.high_watermark
    limit = min(max_bytes, _expected_bytes(log, offsets))
    while True:
        records = log.read(offset, limit, upper_bound=bound, minimum_one=minimum_one)
        fetched = FetchedRecords(offset, records, ())
        if limit >= max_bytes or fetched.ends_at(bound) or fetched.offsets >= offsets:
            break
        limit = min(2 * limit, max_bytes)
    aborted = log.aborted_transactions(offset, bound) if records and committed else []
    return FetchedRecords(offset, records, aborted) if aborted else fetched


def _expected_bytes(log: PartitionLog, offsets: int) -> int:
    """The bytes of so many offsets if they are as large as the log's are on average, and some
    more."""
    in_log = max(log.high_watermark - log.log_start_offset, 1)
    return _READ_BYTES_MIN + offsets * log.size_bytes // in_log * 5 // 4
