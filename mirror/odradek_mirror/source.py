"""The reader of the source, which reads whole batches of many partitions, as they are stored.

There is one Fetch in flight for each node, and the next Fetch is sent before the caller writes the
data of the last answer. So at most two answers of a node are in memory: the one that the caller is
writing, and the next one. Only the headers of batches are read.

Transient errors are retried without an end, with a growing pause; `troubles` returns them with the
time of the first one. Any other error ends the reading of its partition, and `poll` raises it once.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from odradek_client.admin import Admin
from odradek_client.admin.requests import partition_error
from odradek_client.backoff import Backoff
from odradek_client.consumer.errors import RETRY, RETRY_WITH_NEW_METADATA
from odradek_client.consumer.fetcher import FetchSessionHandler, PartitionRequest
from odradek_client.errors import OdradekError, Refused
from odradek_client.structs import TopicPartition
from odradek_client.tasks import begin, cancel
from odradek_protocol.constants import NO_LEADER_EPOCH
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.records.batch import BatchError, iter_batches, verify_crc
from odradek_protocol.records.layout import HEADER_BYTES, LENGTH_AT, LOG_OVERHEAD_BYTES
from odradek_protocol.schemas.fetch import AbortedTransaction, PartitionData
from odradek_records.partition_fetch import FetchLimits, fetch_from

#: The limits of a mirror's fetches.
MIRROR_LIMITS = FetchLimits(
    max_bytes=16 * 1024 * 1024, partition_bytes=4 * 1024 * 1024, wait_ms=500
)
#: The time for which a topic may be missing in the metadata before it counts as deleted.
MISSING_TOPIC_PATIENCE_MS = 2_000
#: The maximum size of a batch. A larger batch ends the reading of its partition.
_BATCH_BYTES_MAX = 128 * 1024 * 1024


class SourceReadingEnded(Refused):
    """The reading of a partition of the source has ended, until `assign` or `seek`. `tp`: the
    partition."""

    def __init__(self, tp: TopicPartition, text: str) -> None:
        super().__init__(f"{tp.topic}-{tp.partition} of the source: {text}")
        self.tp = tp


class SourceRecordsDeleted(SourceReadingEnded):
    """The source has deleted records before they were read. `offset`: the position;
    `log_start_offset`: the first offset that the source has."""

    def __init__(self, tp: TopicPartition, offset: int, log_start_offset: int) -> None:
        super().__init__(
            tp,
            f"offsets {offset} to {log_start_offset - 1} were deleted before they were read, by"
            " retention or by an order; the log begins at offset"
            f" {log_start_offset}",
        )
        self.offset, self.log_start_offset = offset, log_start_offset


class SourceTruncated(SourceReadingEnded):
    """The source has lost records that were read already. `offset`: the position;
    `divergent_offset`: the first offset that is lost or has another record, None if unknown."""

    def __init__(self, tp: TopicPartition, offset: int, divergent_offset: int | None) -> None:
        first = "an unknown offset" if divergent_offset is None else f"offset {divergent_offset}"
        super().__init__(
            tp,
            f"the log was truncated: the records from {first} on, which were read up to offset"
            f" {offset}, are gone there, as after an unclean election of a leader or a crash"
            " without its page cache",
        )
        self.offset, self.divergent_offset = offset, divergent_offset


class SourceTopicDeleted(SourceReadingEnded):
    """The topic no longer exists."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(tp, "the topic was deleted")


class SourceTopicRecreated(SourceReadingEnded):
    """The topic was deleted, and another topic has its name. `topic_id`: the id of the new one."""

    def __init__(self, tp: TopicPartition, topic_id: bytes) -> None:
        super().__init__(tp, "the topic was deleted and created again, so this is another topic")
        self.topic_id = topic_id


class SourceCorrupt(SourceReadingEnded):
    """A batch cannot be read. `offset`: the position."""

    def __init__(self, tp: TopicPartition, offset: int, text: str) -> None:
        super().__init__(tp, f"a batch at or after offset {offset} cannot be read: {text}")
        self.offset = offset


class SourceRefused(SourceReadingEnded):
    """The source refuses the fetch of the partition. `__cause__` is the source's error."""

    def __init__(self, tp: TopicPartition, error: OdradekError) -> None:
        super().__init__(tp, str(error))
        self.code = error.code
        self.__cause__ = error


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """New data or offsets of one partition.

    `records` has whole batches, the first of which may begin before `fetch_offset`; it is empty if
    only the log's offsets have changed. The caller may write to this memory. `next_offset` is the
    offset after the last batch. `leader_epoch` is the present epoch of the leader, `batch_epoch`
    that of the last batch; both are -1 if unknown. `aborted` is empty unless read_committed.
    """

    tp: TopicPartition
    topic_id: bytes
    fetch_offset: int
    next_offset: int
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int
    batch_epoch: int
    aborted: list[AbortedTransaction]


class Trouble(NamedTuple):
    """The last error of a partition that is being retried, and the time of its first failure (clock
    of the event loop)."""

    since_s: float
    error: str


class Rate(Protocol):
    """A limit of bytes per second."""

    def spend(self, size_bytes: int, now_s: float) -> None:
        """Note bytes that were read."""
        ...

    def wait_s(self, now_s: float) -> float:
        """The time in seconds until more may be read."""
        ...


class _Position:
    """The position in a partition, and its failures."""

    __slots__ = (
        "assigned_ms",
        "ended",
        "epoch",
        "failures",
        "max_bytes",
        "missing_since_ms",
        "offset",
        "retry_at_s",
        "sent_offsets",
        "topic_id",
        "trouble",
    )

    def __init__(
        self, offset: int, topic_id: bytes, epoch: int, max_bytes: int, assigned_ms: float
    ) -> None:
        self.offset, self.topic_id, self.epoch = offset, topic_id, epoch
        self.max_bytes = max_bytes
        self.assigned_ms = assigned_ms
        self.ended = False
        self.failures = 0
        self.retry_at_s = 0.0
        self.missing_since_ms: float | None = None
        self.trouble: Trouble | None = None
        #: The log's offsets in the last result for the caller. An answer with no records and the
        #: same offsets is not reported.
        self.sent_offsets: tuple[int, int, int] | None = None


class SourceReader:
    """The reader of partitions from positions that the caller assigns. Call `close` at the end.

    `check_crcs`: verify checksums, for a caller that changes batches; the target verifies batches
    that are passed on unchanged.
    """

    def __init__(
        self,
        admin: Admin,
        *,
        read_committed: bool,
        limits: FetchLimits = MIRROR_LIMITS,
        rate: Rate | None = None,
        check_crcs: bool = False,
    ) -> None:
        self._admin = admin
        self._network = admin.network
        self._read_committed = read_committed
        self._limits = limits
        self._rate = rate
        self._check_crcs = check_crcs
        # `random.Random` is looked up in its module, because the simulator replaces the class
        # there.
        retry = admin.config.retry_backoff_ms, admin.config.retry_backoff_max_ms
        self._backoff = Backoff(*retry, random.Random())
        self._positions: dict[TopicPartition, _Position] = {}
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._in_flight: dict[int, asyncio.Task[None]] = {}
        self._answers: deque[tuple[dict[TopicPartition, PartitionRequest], _Answer]] = deque()
        self._errors: dict[TopicPartition, SourceReadingEnded] = {}
        self._failure: OdradekError | None = None
        self._news = asyncio.Event()

    # --- positions --------------------------------------------------------------------------------

    def assign(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        topic_id: bytes = ZERO_UUID,
        last_epoch: int = NO_LEADER_EPOCH,
    ) -> None:
        """Read a partition from `offset` on.

        `topic_id`: the expected id of the topic; zero: any. `last_epoch`: the leader epoch of the
        record before `offset`, with which the source can detect that it has lost this record.
        """
        self._positions.pop(tp, None)
        limit = self._limits.partition_bytes
        self._positions[tp] = _Position(offset, topic_id, last_epoch, limit, self._network.now_ms())
        self._errors.pop(tp, None)
        self._network.cluster.want([tp.topic])
        self._network.request_metadata_update()

    def seek(self, tp: TopicPartition, offset: int, *, last_epoch: int = NO_LEADER_EPOCH) -> None:
        """Continue at another offset of an assigned partition. Raises KeyError for other
        partitions."""
        self.assign(tp, offset, topic_id=self._positions[tp].topic_id, last_epoch=last_epoch)

    def unassign(self, tp: TopicPartition) -> None:
        """Stop reading a partition."""
        self._positions.pop(tp, None)
        self._errors.pop(tp, None)
        if not any(tp.topic == other.topic for other in self._positions):
            self._network.cluster.unwant([tp.topic])

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of each assigned partition."""
        return {tp: position.offset for tp, position in self._positions.items()}

    def troubles(self) -> Mapping[TopicPartition, Trouble]:
        """The partitions that cannot be read at present, and are retried."""
        return {
            tp: position.trouble
            for tp, position in self._positions.items()
            if position.trouble is not None
        }

    # --- reading ----------------------------------------------------------------------------------

    async def poll(self, wait_ms: float) -> list[FetchedPartition]:
        """The next results, at most one for each partition; an empty list if none arrives in time.

        Raises the SourceError of a partition once the data before the error was returned; one
        call raises at most one of these errors. Raises errors of the whole source, such as
        AuthenticationFailed.
        """
        loop = self._network.loop
        until_s = loop.time() + wait_ms / 1000
        while True:
            self._news.clear()
            self._raise_errors()
            fetched = self._take()
            wake_at_s = min(self._send(), until_s)
            if fetched:
                return fetched
            self._raise_errors()
            now_s = loop.time()
            if now_s >= until_s:
                return []
            try:
                async with asyncio.timeout(max(wake_at_s - now_s, 0.001)):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _raise_errors(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._errors:
            raise self._errors.pop(next(iter(self._errors)))

    async def close(self) -> None:
        """Wait for the end of all requests. The admin stays open."""
        await cancel(*self._in_flight.values())
        for tp in list(self._positions):
            self.unassign(tp)

    # --- requests ---------------------------------------------------------------------------------

    def _send(self) -> float:
        """Send a Fetch to each node that has none in flight; returns the time of the next
        attempt.
        """
        now_s = self._network.loop.time()
        wake_at_s = float("inf")
        if self._rate is not None and (wait_s := self._rate.wait_s(now_s)) > 0:
            return now_s + wait_s
        by_node: dict[int, dict[TopicPartition, PartitionRequest]] = {}
        cluster = self._network.cluster
        for tp, position in self._positions.items():
            if position.ended:
                continue
            if position.retry_at_s > now_s:
                wake_at_s = min(wake_at_s, position.retry_at_s)
                continue
            node_id = cluster.leader_of(*tp)
            if node_id in self._in_flight:
                continue
            if not self._is_the_topic(tp, position):
                wake_at_s = min(wake_at_s, position.retry_at_s)
            elif node_id is None:
                self._try_again(tp, position, "no leader is known")
                self._network.request_metadata_update()
                wake_at_s = min(wake_at_s, position.retry_at_s)
            else:
                by_node.setdefault(node_id, {})[tp] = PartitionRequest(
                    position.offset,
                    position.max_bytes,
                    cluster.leader_epoch_of(*tp),
                    cluster.topic_id(tp.topic),
                    position.epoch,
                )
        for node_id, wanted in by_node.items():
            self._sessions.setdefault(node_id, FetchSessionHandler())
            self._in_flight[node_id] = begin(
                self._network.loop,
                self._ask(node_id, wanted),
                "a fetch from the source",
                partial(self._asked, node_id, wanted),
            )
        return wake_at_s

    def _is_the_topic(self, tp: TopicPartition, position: _Position) -> bool:
        """True if the topic with this name is the one that was assigned. Ends the reading of the
        partition if the topic was deleted or created again."""
        cluster = self._network.cluster
        topic_id = cluster.topic_id(tp.topic)
        if position.topic_id == ZERO_UUID:
            position.topic_id = topic_id
        elif topic_id not in (ZERO_UUID, position.topic_id):
            self._end(tp, SourceTopicRecreated(tp, topic_id))
            return False
        code = cluster.topic_errors.get(tp.topic)
        if code is None:
            position.missing_since_ms = None
            return True
        if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            error = partition_error(tp, code)
            if error.retriable:
                self._try_again(tp, position, str(error))
            else:
                self._end(tp, SourceRefused(tp, error))
            return False
        # The metadata may be older than the assignment.
        if (told_ms := cluster.updated_ms or 0.0) < position.assigned_ms:
            told_ms = position.assigned_ms
        elif position.missing_since_ms is None:
            position.missing_since_ms = told_ms
        missing_since_ms = position.missing_since_ms
        if missing_since_ms is not None and (
            told_ms - missing_since_ms >= MISSING_TOPIC_PATIENCE_MS
        ):
            self._end(tp, SourceTopicDeleted(tp))
        else:
            self._try_again(tp, position, "the topic is not known")
        return False

    async def _ask(self, node_id: int, wanted: dict[TopicPartition, PartitionRequest]) -> None:
        """Send one Fetch, and keep its answer for `poll`."""
        data = await fetch_from(
            self._network,
            node_id,
            wanted,
            self._limits,
            read_committed=self._read_committed,
            session=self._sessions[node_id],
        )
        out_of_range = [
            tp
            for tp in data
            if data[tp].error_code == ErrorCode.OFFSET_OUT_OF_RANGE and tp in wanted
        ]
        ends = await self._ends(out_of_range) if out_of_range else {}
        self._answers.append((wanted, _Answer(data, ends)))

    def _asked(
        self,
        node_id: int,
        wanted: dict[TopicPartition, PartitionRequest],
        failure: OdradekError | None,
    ) -> None:
        del self._in_flight[node_id]
        if failure is not None:
            # Data that arrived may be lost with the task.
            self._sessions[node_id].restart()
            if not failure.retriable:
                self._failure = failure
            for tp in wanted:
                if (position := self._positions.get(tp)) is not None:
                    self._try_again(tp, position, str(failure))
            self._network.request_metadata_update()
        self._news.set()

    async def _ends(self, tps: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        first = await self._admin.list_offsets(dict.fromkeys(tps, "earliest"), raise_errors=False)
        last = await self._admin.list_offsets(dict.fromkeys(tps, "latest"), raise_errors=False)
        return {
            tp: (start.offset, end.offset)
            for tp in tps
            if (start := first.get(tp)) is not None and (end := last.get(tp)) is not None
        }

    # --- answers ----------------------------------------------------------------------------------

    def _take(self) -> list[FetchedPartition]:
        """The data of all answers that have arrived. The positions move to the end of the data."""
        fetched: list[FetchedPartition] = []
        while self._answers:
            wanted, answer = self._answers.popleft()
            for tp, data in answer.data.items():
                position, want = self._positions.get(tp), wanted.get(tp)
                if position is None or want is None or position.offset != want.offset:
                    continue  # the partition was assigned again after the request
                if want.topic_id not in (ZERO_UUID, position.topic_id):
                    continue  # it was assigned again, and belongs to another topic now
                if data.error_code:
                    self._on_error(tp, position, data.error_code, answer.ends.get(tp))
                elif data.diverging_epoch.end_offset >= 0:
                    divergent = min(data.diverging_epoch.end_offset, position.offset)
                    self._end(tp, SourceTruncated(tp, position.offset, divergent))
                else:
                    position.failures, position.trouble = 0, None
                    news = self._news_of(tp, position, want, data)
                    if news is not None:
                        fetched.append(news)
        return fetched

    def _news_of(
        self, tp: TopicPartition, position: _Position, want: PartitionRequest, data: PartitionData
    ) -> FetchedPartition | None:
        """The result for a partition in an answer; None if nothing has changed."""
        view = memoryview(data.records) if data.records else memoryview(b"")
        end, next_offset, epoch = 0, position.offset, position.epoch
        try:
            for at, header in iter_batches(view):
                if self._check_crcs:
                    verify_crc(view, at, header)
                end = at + header.size_bytes
                next_offset, epoch = header.next_offset, header.leader_epoch
        except BatchError as error:
            self._end(tp, SourceCorrupt(tp, next_offset, str(error)))
        if not end and len(view) > LOG_OVERHEAD_BYTES:
            self._make_room(tp, position, view)
        offsets = data.high_watermark, data.last_stable_offset, data.log_start_offset
        if not end and offsets == position.sent_offsets:
            return None
        fetch_offset, position.offset, position.sent_offsets = position.offset, next_offset, offsets
        position.epoch = epoch
        if end:
            if self._rate is not None:
                self._rate.spend(end, self._network.loop.time())
            # This partition becomes the last in the order, so that partitions that had no room in
            # this answer come first in the next request.
            self._positions[tp] = self._positions.pop(tp)
        return FetchedPartition(
            tp,
            position.topic_id,
            fetch_offset,
            next_offset,
            view[:end],
            *offsets,
            max(want.leader_epoch, epoch),
            epoch,
            data.aborted_transactions or [],
        )

    def _make_room(self, tp: TopicPartition, position: _Position, view: memoryview) -> None:
        """Raise the fetch limit of a partition after an answer that has only the beginning of a
        batch, so that the whole batch fits into the next answer."""
        length = int.from_bytes(view[LENGTH_AT : LENGTH_AT + 4], "big", signed=True)
        size_bytes = length + LOG_OVERHEAD_BYTES
        if size_bytes < HEADER_BYTES or size_bytes > _BATCH_BYTES_MAX:
            text = f"a batch of {size_bytes} bytes; at most {_BATCH_BYTES_MAX} are copied"
            self._end(tp, SourceCorrupt(tp, position.offset, text))
        position.max_bytes = max(position.max_bytes, size_bytes)

    def _on_error(
        self, tp: TopicPartition, position: _Position, code: int, ends: tuple[int, int] | None
    ) -> None:
        error = partition_error(tp, code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if ends is not None and position.offset < ends[0]:
                self._end(tp, SourceRecordsDeleted(tp, position.offset, ends[0]))
                return
            if ends is not None and position.offset > ends[1]:
                self._end(tp, SourceTruncated(tp, position.offset, ends[1]))
                return
            if ends is not None and position.epoch >= 0:
                # The source has lost all records of `position.epoch`, and has other records at
                # their offsets.
                self._end(tp, SourceTruncated(tp, position.offset, None))
                return
        elif code not in RETRY_WITH_NEW_METADATA | RETRY and not error.retriable:
            self._end(tp, SourceRefused(tp, error))
            return
        self._network.request_metadata_update()
        self._try_again(tp, position, str(error))

    def _try_again(self, tp: TopicPartition, position: _Position, error: str) -> None:
        """Read a partition again after a pause."""
        now_s = self._network.loop.time()
        position.failures += 1
        position.retry_at_s = now_s + self._backoff.delay_ms(position.failures) / 1000
        since_s = now_s if position.trouble is None else position.trouble.since_s
        position.trouble = Trouble(since_s, error)

    def _end(self, tp: TopicPartition, error: SourceReadingEnded) -> None:
        """Stop reading a partition, because of an error that `poll` raises."""
        self._positions[tp].ended = True
        self._errors[tp] = error


class _Answer(NamedTuple):
    """The answer of a node. `ends`: for partitions whose position is not in the log, the start and
    end offsets of the log."""

    data: dict[TopicPartition, PartitionData]
    ends: dict[TopicPartition, tuple[int, int]]
