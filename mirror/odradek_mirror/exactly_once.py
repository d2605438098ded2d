"""The mode exactly-once, which copies topics to any Kafka, each record exactly once, in
transactions.

    source --batches--> | transaction: batches to the topics, positions and runs to the map topic |

A transaction covers all partitions, and is committed after some bytes or some time. It includes the
positions. At a start, the mirror ends its last transaction, reads the map topic, and continues
after the committed records. So no record is lost or repeated, even if an instance is killed at any
point. After a failure the mirror repeats the same start; there is no other way of recovery. The
table of states is in `copier_state.py`.

A second instance with the same name fences the first instance. The first instance then finds the
new owner in the map topic, and ends. Readers at the target that use read_committed see no record
twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from odradek_client.admin import Admin
from odradek_client.errors import OdradekError
from odradek_client.structs import TopicPartition
from odradek_mirror.batches import copy_batches
from odradek_mirror.copier_state import (
    STARTED,
    CopierState,
    GivenUpPartitions,
    RetryPolicy,
    next_state,
)
from odradek_mirror.map_topic import make_map_topic, read_map
from odradek_mirror.offset_map import MapEntry, MappedRun, NotCopied, PartitionMap
from odradek_mirror.ownership import Ownership
from odradek_mirror.plan import topic_ids_of
from odradek_mirror.source import (
    MIRROR_LIMITS,
    FetchedPartition,
    Rate,
    SourceReader,
    SourceReadingEnded,
    SourceRecordsDeleted,
    SourceTopicDeleted,
)
from odradek_mirror.start_state import MirrorRefused, StartState, find_state
from odradek_mirror.transactional_writer import RefusedBatch, TransactionalWriter
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.records.batch import BatchError
from odradek_protocol.stored.control_marker import ControlMarkerError
from odradek_records.partition_fetch import FetchLimits

log = logging.getLogger("odradek.mirror")

#: The pause between checks of partitions without a leader.
_LOOK_EVERY_S = 2.0
#: The batches that are handed to the producer in one turn of the loop.
_BATCHES_PER_TURN = 16


class CrashPoint(Enum):
    """The steps of a transaction at which tests crash the mirror."""

    OWNED = auto()  # other instances are fenced, and the map topic names this one
    BEGUN = auto()  # a batch of a transaction is handed to the producer
    WRITTEN = auto()  # the target has all batches of a transaction
    MAPPED = auto()  # the positions are in the map topic, too
    COMMITTED = auto()  # the coordinator has answered the commit


class Progress(Protocol):
    """The counts of a mirror, by partition of the source."""

    def begin(self, tp: TopicPartition, copied: int, high_watermark: int) -> None:
        """Note a partition that is copied from this offset on."""
        ...

    def seen(self, tp: TopicPartition, high_watermark: int, last_stable_offset: int) -> None:
        """Note the ends of a partition at the source."""
        ...

    def copied(
        self,
        tp: TopicPartition,
        next_offset: int,
        *,
        records: int,
        size_bytes: int,
        timestamp_ms: int = -1,
    ) -> None:
        """Called when all records before `next_offset` are durable at the target."""
        ...

    def failed(self, tp: TopicPartition, why: str) -> None:
        """Called when a partition is no longer copied."""
        ...

    @property
    def troubles(self) -> dict[str, str]:
        """The transient problems for which the mirror waits."""
        ...

    @troubles.setter
    def troubles(self, found: dict[str, str]) -> None: ...


class SourceTopic(Protocol):
    """A topic to copy: its name, and the number of its partitions at the source."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> int: ...


@dataclass(frozen=True, slots=True)
class OutSettings:
    """The settings of the mode exactly-once.

    A transaction ends after `transaction_bytes` or `transaction_ms`, whichever is first.
    `offset_header`: the name of a header that is added to each record, with its source offset.
    `skip_deleted`: continue if the source has deleted records before they were copied. `prefix`:
    the prefix of the names of topics at the target. `patience_ms`: raise the last error when
    failures without a success in between have lasted this long; None: never.
    """

    name: str
    transaction_bytes: int = 64 * 1024 * 1024
    transaction_ms: float = 1_000.0
    transaction_timeout_ms: int = 60_000
    offset_header: str | None = None
    skip_deleted: bool = False
    prefix: str = ""
    patience_ms: float | None = None

    def target_topic(self, topic: str) -> str:
        """The name at the target of a topic of the source."""
        return f"{self.prefix}{topic}"


@dataclass(slots=True)
class _News:
    """The copied records of one partition in the open transaction."""

    next_offset: int
    record_count: int = 0
    size_bytes: int = 0
    timestamp_ms: int = -1


@dataclass(slots=True)
class _Transaction:
    """The records of the open transaction; none in other states than COPYING and COMMITTING."""

    began_s: float = 0.0
    news: dict[TopicPartition, _News] = field(default_factory=dict)
    size_bytes: int = 0


class ExactlyOnceCopier:
    """The copier of the mode exactly-once. Call `start`, `add`, then `step` repeatedly, and
    `close`.

    `reached` is called at each step of a transaction, `tell` with each line for the user.
    """

    def __init__(
        self,
        source: Admin,
        target: Admin,
        settings: OutSettings,
        progress: Progress,
        *,
        rate: Rate | None = None,
        limits: FetchLimits = MIRROR_LIMITS,
        tell: Callable[[str], None] = log.warning,
        reached: Callable[[CrashPoint], None] = lambda _: None,
    ) -> None:
        self._source, self._target, self._settings = source, target, settings
        self._progress, self._tell, self._reached = progress, tell, reached
        self._state = CopierState.STARTING
        self._retries = RetryPolicy(settings.patience_ms)
        self._reader = SourceReader(source, read_committed=True, limits=limits, rate=rate)
        self._writer: TransactionalWriter | None = None
        self._ownership = Ownership(target, settings.name)
        self._names: set[str] = set()
        self._given_up = GivenUpPartitions(tell)
        #: The partitions that had no leader, and are looked up again.
        self._leaderless: set[TopicPartition] = set()
        self._look_again_s = 0.0
        self._transaction = _Transaction()
        self._log_starts: dict[TopicPartition, int] = {}
        #: The maps of all partitions, as committed.
        self.maps: dict[TopicPartition, PartitionMap] = {}
        #: The number of batches with unchanged bodies, and of all batches.
        self.untouched_batches = self.batches = 0

    def translate(self, tp: TopicPartition, offset: int) -> int | None:
        """The exact offset at the target for an offset of the source; None if it is not copied
        yet.
        """
        found = self.maps.get(tp)
        try:
            return None if found is None else found.translate(offset)
        except NotCopied:
            return None

    def topic_ids(self, tp: TopicPartition) -> tuple[bytes, bytes]:
        """The ids of the topic at the source and at the target."""
        position = self.maps[tp].position
        return position.source_topic_id.bytes, position.target_topic_id.bytes

    @property
    def waits_for(self) -> str:
        """The text that tells the user for which operation a long step waits."""
        return "the target's answers to a transaction"

    # --- start and failure ------------------------------------------------------------------------

    async def start(self) -> None:
        """Fence other instances, and find the positions. Raises MirrorFenced, MirrorRefused,
        MapDamaged, MapTopicUnfit, and permanent errors of either cluster."""
        while self._state not in STARTED:
            await self._start_once()
            if self._state not in STARTED:
                await asyncio.sleep(self._retries.left_s(self._now_s()))

    async def _start_once(self) -> None:
        if self._state is not CopierState.STARTING:
            self._enter(CopierState.STARTING)
        await self._try(self._begin)

    async def add(self, topics: Sequence[SourceTopic]) -> None:
        """Add topics, which must exist at the target with all partitions. Given-up partitions of
        these topics are retried. Raises MirrorRefused for topics that must not be copied, also if
        they were copied until now."""
        changed = {
            topic.name
            for topic in topics
            if any(
                (topic.name, number) not in self._reader.positions
                for number in range(topic.partitions)
            )
        }
        if self._state in STARTED:
            changed |= await self._created_again([each.name for each in topics])
        if changed and self._state in STARTED:
            # Known partitions continue at the positions in the maps, so the maps must include all
            # records that were read.
            await self.flush()
        self._given_up.retry(changed)
        if self._state not in STARTED:
            # The next start checks all topics.
            self._names |= changed
        elif changed:
            state = await self._find_state(sorted(changed))
            self._names |= changed - state.problems.keys()
            self._leave_topics(state.problems)
            self._read(state)
            state.refuse()

    async def _created_again(self, names: Sequence[str]) -> set[str]:
        """The topics whose copies have another id at the target than those that were written."""
        copies = {self._settings.target_topic(name): name for name in names}
        found = await topic_ids_of(self._target, list(copies))
        known = {tp.topic: each.position.target_topic_id.bytes for tp, each in self.maps.items()}
        return {
            name
            for copy, name in copies.items()
            if copy in found
            and name in known
            and found[copy] != known[name]
            and ZERO_UUID not in (found[copy], known[name])
        }

    def _leave_topics(self, problems: Mapping[str, Sequence[str]]) -> None:
        """Give up topics that have a problem now, although they were copied."""
        for topic, why in problems.items():
            self._names.discard(topic)
            for tp in [tp for tp in self._reader.positions if tp.topic == topic]:
                self._give_up(tp, "; ".join(why))

    async def drop(self, topics: Mapping[str, str]) -> None:
        """Stop the copying of topics, by name with the reasons."""
        self._names -= topics.keys()
        self._leaderless = {tp for tp in self._leaderless if tp.topic not in topics}
        for tp in [tp for tp in self._reader.positions if tp.topic in topics]:
            self._give_up(tp, topics[tp.topic])

    async def close(self) -> None:
        """End the instance. An open transaction is aborted, and the next run copies its records
        again."""
        if self._state is not CopierState.CLOSED:
            self._enter(CopierState.CLOSED)
        await self._close_writer()
        await self._reader.close()

    async def _begin(self) -> None:
        settings, target = self._settings, self._target
        await make_map_topic(target, settings.name)
        await self._ownership.check()
        self._writer = TransactionalWriter(
            target, settings.name, transaction_timeout_ms=settings.transaction_timeout_ms
        )
        await self._ownership.take(self._writer)
        self.maps = (await read_map(target, settings.name)).partitions
        state = await self._find_state(sorted(self._names))
        self._reached(CrashPoint.OWNED)
        self._leave_topics(state.problems)
        self._read(state)
        self._enter(CopierState.IDLE)

    async def _find_state(self, names: Sequence[str]) -> StartState:
        state = await find_state(
            self._source,
            self._target,
            self.maps,
            names,
            self._settings.target_topic,
            skip_deleted=self._settings.skip_deleted,
            given_up=self._given_up,
        )
        if state.problems:
            # Another instance may have taken over and copied records after the map was read.
            await self._ownership.check()
        return state

    def _read(self, state: StartState) -> None:
        """Read each partition of a state from its position on."""
        self.maps = state.maps
        self._leaderless = {
            tp for tp in self._leaderless if tp not in state.to_read and tp.topic in self._names
        } | state.leaderless
        self._look_again_s = self._now_s() + _LOOK_EVERY_S
        for tp, end in state.to_read.items():
            position = state.maps[tp].position
            self._reader.assign(tp, position.next, topic_id=position.source_topic_id.bytes)
            self._progress.begin(tp, position.next, end)

    async def _try(self, work: Callable[[], object]) -> None:
        """Await `work`. After a transient error, close the writer, so that the next step begins
        with a start; raise other errors. A partition that the target refuses is given up."""
        try:
            await work()  # type: ignore[misc]
        except OdradekError as error:
            refused = None if self._writer is None else self._writer.refused()
            await self._close_writer()
            if refused is not None:
                # The next start aborts the transaction, and copies the records of other partitions
                # again.
                self._enter(CopierState.STARTING)
                self._target_refused(refused)
                return
            self._enter(CopierState.FAILED)
            if not self._retries.failed(error, self._now_s()):
                raise
            log.warning(
                "the mirror met an error and continues after its last transaction: %s", error
            )
            self._progress.troubles = {"the target": str(error)}

    def _enter(self, state: CopierState) -> None:
        """Enter the next state. What a transaction has copied is forgotten when it is not open any
        more."""
        self._state = next_state(self._state, state)
        if state is not CopierState.COMMITTING:
            self._transaction = _Transaction(self._now_s())

    async def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    def _owned_writer(self) -> TransactionalWriter:
        assert self._writer is not None
        return self._writer

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # --- copying ----------------------------------------------------------------------------------

    async def step(self, wait_ms: float) -> None:
        """Copy the batches that have arrived, or wait for some; end the transaction if it is
        due.
        """
        if self._state in STARTED:
            await self._try(lambda: self._copy_some(wait_ms))
        elif (left_s := self._retries.left_s(self._now_s())) > 0:
            await asyncio.sleep(min(left_s, wait_ms / 1000))
        else:
            await self._start_once()

    async def flush(self) -> None:
        """End the open transaction, if there is one."""
        if self._state is CopierState.COPYING:
            await self._try(self._finish)

    async def _copy_some(self, wait_ms: float) -> None:
        if self._leaderless and self._now_s() >= self._look_again_s:
            if self._state is CopierState.COPYING:
                await self._finish()
            state = await self._find_state(sorted({tp.topic for tp in self._leaderless}))
            for topic in state.problems:
                self._leaderless -= {tp for tp in self._leaderless if tp.topic == topic}
            self._read(state)
        if self._state is CopierState.COPYING:
            began_s = self._transaction.began_s
            left_ms = (began_s - self._now_s()) * 1000 + self._settings.transaction_ms
            wait_ms = min(max(left_ms, 0.0), wait_ms)
        try:
            fetched = await self._reader.poll(wait_ms)
        except SourceReadingEnded as error:
            await self._source_failed(error)
            fetched = []
        for piece in fetched:
            self._progress.seen(piece.tp, piece.high_watermark, piece.last_stable_offset)
            self._log_starts[piece.tp] = piece.log_start_offset
            if piece.next_offset > piece.fetch_offset:
                await self._copy(piece)
        transaction = self._transaction
        if self._state is CopierState.COPYING and (
            transaction.size_bytes >= self._settings.transaction_bytes
            or (self._now_s() - transaction.began_s) * 1000 >= self._settings.transaction_ms
        ):
            await self._finish()
        if fetched or not self._retries.is_failing:
            self._progress.troubles = {
                f"{tp.topic}-{tp.partition}": trouble.error
                for tp, trouble in self._reader.troubles().items()
            } | {f"{tp.topic}-{tp.partition}": "it has no leader" for tp in self._leaderless}

    async def _source_failed(self, error: SourceReadingEnded) -> None:
        """Skip records that the source has deleted, if that is allowed; otherwise give up the
        partition."""
        tp = error.tp
        if isinstance(error, SourceRecordsDeleted):
            news = self._transaction.news.get(tp)
            nothing_yet = self.maps[tp].run_count == 0 and not (news and news.record_count)
            if nothing_yet or self._settings.skip_deleted:
                if not nothing_yet:
                    self._tell(f"{error}; they are skipped")
                await self._news_of(tp, error.log_start_offset)
                self._reader.seek(tp, error.log_start_offset)
                return
        if isinstance(error, SourceTopicDeleted):
            # The topic is not expected any more, because a later start of the mirror would
            # otherwise refuse to start without the topic.
            self._names.discard(tp.topic)
        self._give_up(tp, str(error))

    def _target_refused(self, refused: RefusedBatch) -> None:
        """Give up the partition of a refused batch, or all partitions of its topic."""
        given_up = {refused.tp}
        if refused.concerns_topic:
            given_up |= {tp for tp in self._reader.positions if tp.topic == refused.tp.topic}
        for tp in sorted(given_up):
            self._give_up(tp, str(refused.error))

    def _give_up(self, tp: TopicPartition, why: str) -> None:
        self._reader.unassign(tp)
        self._given_up.add(tp, why)
        self._progress.failed(tp, why)

    async def _news_of(self, tp: TopicPartition, next_offset: int) -> _News:
        """The counts of a partition in the open transaction, which is begun if none is open. The
        partition's position is moved to `next_offset` first."""
        if self._state is CopierState.IDLE:
            self._enter(CopierState.COPYING)
            await self._owned_writer().begin()
        news = self._transaction.news.setdefault(tp, _News(next_offset))
        news.next_offset = next_offset
        return news

    async def _copy(self, piece: FetchedPartition) -> None:
        writer, settings, tp = self._owned_writer(), self._settings, piece.tp
        try:
            found = copy_batches(
                piece.records,
                piece.fetch_offset,
                piece.aborted,
                offset_header=settings.offset_header,
            )
        except (BatchError, ControlMarkerError) as error:
            self._give_up(tp, f"a batch behind offset {piece.fetch_offset} is damaged: {error}")
            return
        news = await self._news_of(tp, piece.next_offset)
        target = TopicPartition(settings.target_topic(tp.topic), tp.partition)
        for number, batch in enumerate(found.batches):
            await writer.write(tp, target, batch)
            self._reached(CrashPoint.BEGUN)
            if number % _BATCHES_PER_TURN == 0:
                await asyncio.sleep(0)  # the producer must be able to run
        news.record_count += found.record_count
        news.size_bytes += len(piece.records)
        news.timestamp_ms = max(news.timestamp_ms, found.timestamp_ms)
        self._transaction.size_bytes += len(piece.records)
        self.batches += len(found.batches)
        self.untouched_batches += found.untouched

    async def _finish(self) -> None:
        """End the transaction: wait for the answers, write the map, commit."""
        self._enter(CopierState.COMMITTING)
        writer, transaction = self._owned_writer(), self._transaction
        runs = await writer.written()
        self._reached(CrashPoint.WRITTEN)
        entries: list[MapEntry] = []
        forgotten: dict[TopicPartition, list[int]] = {}
        for tp, news in transaction.news.items():
            found, some = self.maps[tp], runs.get(tp, [])
            _check_target(tp, found, some)
            entries += found.entries_after(tp, some, news.next_offset)
            forgotten[tp] = found.starts_below(self._log_starts.get(tp, 0))
        tombstones = [(tp, start) for tp, starts in forgotten.items() for start in starts]
        await writer.write_map(entries, tombstones)
        self._reached(CrashPoint.MAPPED)
        await writer.commit()
        self._reached(CrashPoint.COMMITTED)
        for entry in entries:
            self.maps[entry.tp].add(entry)
        for tp, starts in forgotten.items():
            self.maps[tp].forget(starts)
        self._enter(CopierState.IDLE)
        self._retries.succeeded()
        for tp, news in transaction.news.items():
            self._progress.copied(
                tp,
                news.next_offset,
                records=news.record_count,
                size_bytes=news.size_bytes,
                timestamp_ms=news.timestamp_ms,
            )


def _check_target(tp: TopicPartition, found: PartitionMap, runs: Sequence[MappedRun]) -> None:
    if runs and runs[0].target < found.position.target_end:
        raise MirrorRefused(
            f"the target has lost records of {tp.topic}-{tp.partition}: its next offset is"
            f" {runs[0].target}, and it had records up to {found.position.target_end - 1}. Delete"
            " the topic there, and copy it with another --name"
        )
