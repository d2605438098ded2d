"""A ShareFetch: looks for share partitions with records to acquire, waits for them, reads (H-173 to
H-176)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from odradek_broker.partition import Partition
from odradek_broker.share.acquisition import (
    Acquired,
    AcquisitionLimits,
    LogBatch,
    acquire,
    count_of,
)
from odradek_broker.share.events import NothingReason
from odradek_broker.share.in_flight import ShareLimits
from odradek_broker.share.led_partition import LedPartition
from odradek_broker.share.manager import SharePartitions
from odradek_broker.share.sessions import SessionPartition
from odradek_broker.share.share_partition import SharePartition
from odradek_broker.share_state import ShareKey
from odradek_broker.slices import in_pieces, paced
from odradek_broker.storage.errors import OffsetOutOfRange, StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchHeader, iter_batches
from odradek_protocol.records.record import read_records
from odradek_protocol.stored.control_marker import ControlMarkerError, decode_marker

_E = ErrorCode
#: The lower limit of the bytes that are read at a time.
_READ_BYTES_MIN = 64 * 1024


class ShareFetched(NamedTuple):
    """The answer for one partition: an error, or records and the ranges of acquired ones."""

    error: ErrorCode = _E.NONE
    records: bytes | memoryview = b""
    acquired: Sequence[Acquired] = ()


Answers = list[tuple[SessionPartition, ShareFetched]]


class FetchablePartition(NamedTuple):
    """A share partition from which records may be fetched, and the offset of the first one."""

    asked: SessionPartition
    led: LedPartition
    state: SharePartition
    offset: int


class ShareFetch:
    """A ShareFetch of one member from its arrival to its answer. `partitions` exist, and the client
    may read them; `lead` adds more. `max_bytes` limits the records."""

    def __init__(
        self,
        leader: SharePartitions,
        group_id: str,
        member_id: str,
        partitions: Sequence[SessionPartition],
        limits: AcquisitionLimits,
        min_bytes: int,
        max_bytes: int,
    ) -> None:
        self._leader = leader
        self._group_id = group_id
        self._member_id = member_id
        self._limits = limits
        self.min_bytes = min(min_bytes, max_bytes)
        self._max_bytes = max_bytes
        self._begun_ms = leader.clock.monotonic_ms()
        self._errors: dict[SessionPartition, ErrorCode] = {}
        self._led: dict[SessionPartition, LedPartition] = {}
        #: The number of records for which the answer has room, and the answers of partitions that
        #: were read.
        self._left = limits.max_records
        self._answers: Answers = []
        self.lead(partitions)

    def lead(self, partitions: Iterable[SessionPartition]) -> None:
        """Add partitions that exist now."""
        if self._limits.max_records == 0 or self._max_bytes == 0:
            return
        for each in partitions:
            assert each.topic is not None
            led = self._leader.lead(ShareKey(self._group_id, *each.asked), each.topic)
            if isinstance(led, ErrorCode):
                self._errors[each] = led
            else:
                self._led[each] = led

    @property
    def led(self) -> Mapping[SessionPartition, LedPartition]:
        return self._led

    @property
    def asks_for_nothing(self) -> bool:
        """True if the fetch cannot get any records, however long it waits."""
        return not (self._led or self._errors)

    def watched(self) -> list[Partition | LedPartition]:
        """The objects whose changes may end the wait: each partition with its log, and each share
        partition."""
        return [
            each
            for led in self._led.values()
            if led.error is _E.NONE
            for each in (led.partition, led)
        ]

    def satisfied(self) -> bool:
        """True if there are enough bytes to acquire, or errors in all partitions (H-173)."""
        settings = self._settings()
        ready = self._ready(settings)
        if not ready:
            return not self._led
        limits = self._limits_bytes(len(ready))
        available = 0
        for (_, led, _, offset), limit in zip(ready, limits, strict=True):
            log = led.partition.log
            bound = log.last_stable_offset if settings.committed else log.high_watermark
            if offset < log.log_start_offset:
                return True
            available += min(limit, log.readable_bytes(offset, bound))
        return available >= self.min_bytes

    def available_bytes(self, each: SessionPartition) -> int:
        """See `LargeFetch`. The shares of the limit of bytes are those of all partitions, also of
        those that have no room for records at present."""
        settings = self._settings()
        led = self._led.get(each)
        ready = self._ready(settings, () if led is None else [(each, led)])
        if not ready:
            return 0 if self._led else -1
        log, offset = ready[0].led.partition.log, ready[0].offset
        if offset < log.log_start_offset:
            return -1
        bound = log.last_stable_offset if settings.committed else log.high_watermark
        return min(max(self._max_bytes // len(self._led), 1), log.readable_bytes(offset, bound))

    def read(self) -> Answers:
        """Acquire and read the records that are available now."""
        settings = self._settings()
        ready = self._ready(settings)
        self._read_all(ready, self._limits_bytes(len(ready)), settings)
        if not self.asks_for_nothing:
            self._count(len(ready))
            if self._left == self._limits.max_records:
                self._tell_why_nothing(self._led.values(), settings)
        failed = [(each, ShareFetched(error)) for each, error in self._errors.items()]
        return self._answers + failed

    async def read_in_slices(self) -> Answers:
        """Like `read`, for many partitions, of which some may become ready meanwhile, and others
        may no longer be."""
        settings = self._settings()
        count = 0
        async for some in in_pieces(self._led.items()):
            count += len(self._ready(settings, some))
        share_bytes = max(self._max_bytes // max(count, 1), 1)
        left_bytes = self._max_bytes
        async for some in in_pieces(self._led.items()):
            for ready in self._ready(settings, some):
                self._read_all([ready], [max(min(share_bytes, left_bytes), 0)], settings)
                left_bytes -= len(self._answers[-1][1].records)
        if not self.asks_for_nothing:
            self._count(count)
            if self._left == self._limits.max_records:
                async for some in in_pieces(self._led.items()):
                    self._tell_why_nothing([led for _, led in some], settings)
        failed = [(each, ShareFetched(error)) async for each, error in paced(self._errors.items())]
        return self._answers + failed

    def _read_all(
        self,
        ready: Sequence[FetchablePartition],
        limits_bytes: Sequence[int],
        settings: ShareLimits,
    ) -> None:
        for each, limit in zip(ready, limits_bytes, strict=True):
            answer = ShareFetched()
            if self._left > 0:
                left = self._limits._replace(max_records=self._left)
                nothing_yet = self._left == self._limits.max_records
                answer = self._read(each, limit, left, settings, minimum_one=nothing_yet)
                self._left -= count_of(answer.acquired)
            self._answers.append((each.asked, answer))

    def _count(self, ready: int) -> None:
        waited_ms = self._leader.clock.monotonic_ms() - self._begun_ms
        partitions = len(self._led) + len(self._errors)
        self._leader.statistics.answered(self._group_id, ready, partitions, waited_ms)

    def _tell_why_nothing(self, leds: Iterable[LedPartition], settings: ShareLimits) -> None:
        """Pass to the observer the reasons why partitions have records, but none for this fetch."""
        for led in leds:
            reason = why_nothing(led, settings)
            if reason is not None:
                self._leader.tell_nothing(led, self._member_id, reason)

    def _settings(self) -> ShareLimits:
        return self._leader.settings(self._group_id)

    def _ready(
        self,
        settings: ShareLimits,
        some: Iterable[tuple[SessionPartition, LedPartition]] | None = None,
    ) -> list[FetchablePartition]:
        """The share partitions, all or some, that are loaded and have room for more records. Those
        that this broker no longer leads get an error."""
        ready = []
        for each, led in list(self._led.items()) if some is None else some:
            error = self._leader.check(led)
            if error is not _E.NONE:
                # `check` wakes all fetches that wait for the share partition. This fetch is one of
                # them, so the share partition is perhaps no longer in `self._led`.
                self._errors[each] = error
                self._led.pop(each, None)
            elif led.state is not None and led.state.may_acquire(settings):
                ready.append(
                    FetchablePartition(each, led, led.state, led.state.next_fetch_offset())
                )
        return ready

    def _limits_bytes(self, number: int) -> list[int]:
        """The limit of bytes for each of `number` share partitions: equal shares (H-175)."""
        if not number:
            return []
        share, rest = divmod(self._max_bytes, number)
        if not share:
            return [1] * rest + [0] * (number - rest)
        return [share + rest] + [share] * (number - 1)

    def _read(
        self,
        each: FetchablePartition,
        max_bytes: int,
        limits: AcquisitionLimits,
        settings: ShareLimits,
        *,
        minimum_one: bool,
    ) -> ShareFetched:
        """Read one partition, and acquire its available records."""
        log = each.led.partition.log
        try:
            fetched = read(
                log,
                each.offset,
                max_bytes,
                limits.max_records + max(each.state.end_offset - each.offset + 1, 0),
                committed=settings.committed,
                minimum_one=minimum_one,
            )
        except OffsetOutOfRange:
            # Retention or DeleteRecords has moved the beginning of the log; the next fetch
            # continues from there.
            self._leader.move_log_start(each.led, log.log_start_offset)
            return ShareFetched()
        except StorageError as problem:
            return ShareFetched(problem.error)
        acquired = acquire(
            each.state,
            self._member_id,
            limits,
            fetched.offset,
            fetched.batches,
            fetched.aborted,
            self._leader.clock.monotonic_ms(),
            settings,
        )
        self._leader.watch_locks(each.led)
        self._leader.tell_acquired(each.led, self._member_id, acquired, settings)
        if not acquired:
            return ShareFetched()
        return ShareFetched(records=fetched.part_of(acquired), acquired=acquired)


def why_nothing(led: LedPartition, settings: ShareLimits) -> NothingReason | None:
    """The reason why a partition has records, but none that may be acquired. None if the partition
    has no records, or if a fetch with other limits could acquire them."""
    state = led.state
    if state is None or not state.in_flight:
        return None
    log = led.partition.log
    bound = log.last_stable_offset if settings.committed else log.high_watermark
    if not state.may_acquire(settings):
        return NothingReason.LOCKS_USED_UP if bound > state.end_offset + 1 else _locked(state)
    return _locked(state) if state.next_fetch_offset() >= bound else None


def _locked(state: SharePartition) -> NothingReason | None:
    if state.anything_delayed:
        return NothingReason.DELAYED
    return NothingReason.LOCKED if state.anything_acquired else None


class ShareFetchData:
    """Whole batches of a log, read from `offset` on. `aborted`: the batches of aborted
    transactions."""

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
        self, headers: Sequence[tuple[int, BatchHeader]], transactions: list[tuple[int, int]]
    ) -> None:
        """Find the batches of aborted transactions. `transactions`: (first offset, producer id) of
        each aborted transaction, sorted."""
        transactions.reverse()
        aborting: set[int] = set()
        for (position, header), batch in zip(headers, self.batches, strict=True):
            if header.producer_id == NO_PRODUCER_ID:
                continue
            while transactions and transactions[-1][0] <= header.last_offset:
                aborting.add(transactions.pop()[1])
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
        """True if these batches reach up to an offset."""
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
) -> ShareFetchData:
    """Read batches from `offset` on, until they contain at least `offsets` offsets, but at most
    `max_bytes`. Raises StorageError.

    A member can request 50 MB and only few records: then the broker does not read 50 MB.
    """
    bound = log.last_stable_offset if committed else log.high_watermark
    limit = min(max_bytes, _expected_bytes(log, offsets))
    while True:
        records = log.read(offset, limit, upper_bound=bound, minimum_one=minimum_one)
        fetched = ShareFetchData(offset, records, ())
        if limit >= max_bytes or fetched.ends_at(bound) or fetched.offsets >= offsets:
            break
        limit = min(2 * limit, max_bytes)
    aborted = log.aborted_transactions(offset, bound) if records and committed else []
    return ShareFetchData(offset, records, aborted) if aborted else fetched


def _expected_bytes(log: PartitionLog, offsets: int) -> int:
    """An estimate of the bytes of a number of offsets: more than their average size in the log."""
    in_log = max(log.high_watermark - log.log_start_offset, 1)
    return _READ_BYTES_MIN + offsets * log.size_bytes // in_log * 5 // 4
