"""The mirror out: copies topics to any Kafka, each record exactly once, by transactions.

    source --batches--> | transaction: batches to the topics, positions and runs to the map topic |

A transaction covers all partitions for some bytes or some time. The positions are part of it: a
restart ends the last transaction, reads the map topic, and goes on behind what was committed. So an
instance may be killed at any point. After any failure the mirror does the same by itself: there is
no second way back.

A second instance with the same name fences the first one, which finds the other's name in the map
topic and ends. Readers at the target should use read_committed; they see no record twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from odradek.mirror.batches import copy_batches
from odradek.mirror.map_topic import (
    MapTopicUnfit,
    Owner,
    encode_owner,
    make_map_topic,
    map_topic,
    read_map,
)
from odradek.mirror.out_state import MirrorRefused, find_state, name_open_transactions
from odradek.mirror.run_map import Entry, MapDamaged, NotCopied, PartitionMap, Run
from odradek.mirror.source import (
    FetchedPartition,
    Rate,
    SourceError,
    SourceReader,
    SourceRecordsDeleted,
    SourceTopicDeleted,
)
from odradek.mirror.transactional_writer import TransactionalWriter
from odradek_client.admin import Admin
from odradek_client.errors import (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    OdradekError,
    OutOfOrderSequence,
    Refused,
    TransactionalIdAuthorizationFailed,
    UnsupportedByBroker,
)
from odradek_client.structs import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import BatchError
from odradek_protocol.stored.control_marker import ControlMarkerError

log = logging.getLogger("odradek.mirror")

_POLL_MS = 500.0
#: The pauses between failures: the first, and the longest.
_PAUSE_MS = 200.0
_PAUSE_MAX_MS = 10_000.0
#: The batches that are handed to the producer in one turn of the loop.
_BATCHES_PER_TURN = 16
#: The interval at which topics and partitions are looked up again.
_REFRESH_MS = 15_000.0
#: Errors of the target or the source that another try does not remove.
_FINAL = (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    MapDamaged,
    MapTopicUnfit,
    MirrorRefused,
    Refused,
    TransactionalIdAuthorizationFailed,
    UnsupportedByBroker,
)

#: The names of the topics to copy, whose topics at the target exist with enough partitions.
Topics = Callable[[], Awaitable[Iterable[str]]]


class Step(Enum):
    """A moment at which a crash is interesting."""

    OWNED = auto()  # other instances are fenced, and the map topic names this one
    BEGUN = auto()  # the first batch of a transaction is handed to the producer
    WRITTEN = auto()  # the target has all batches of a transaction
    MAPPED = auto()  # and the positions in the map topic
    COMMITTED = auto()  # the coordinator has decided


class MirrorFenced(OdradekError):
    """Another instance of the mirror with the same name has taken over."""


class NotDrained(OdradekError):
    """The copy up to the ends of the source has not ended in time."""


@dataclass(frozen=True, slots=True)
class OutSettings:
    """The settings of a mirror out.

    A transaction ends after `transaction_bytes` or `transaction_ms`, whichever is first.
    `offset_header`: add a header with the source offset to each record. `skip_deleted`: go on when
    the source has deleted records before they were copied. `prefix`: the names of topics at the
    target begin with this.
    """

    name: str
    transaction_bytes: int = 64 * 1024 * 1024
    transaction_ms: float = 1_000.0
    transaction_timeout_ms: int = 60_000
    offset_header: bool = False
    skip_deleted: bool = False
    prefix: str = ""

    def target_topic(self, topic: str) -> str:
        """The name at the target of a topic of the source."""
        return f"{self.prefix}{topic}"


@dataclass(slots=True)
class _Transaction:
    """The open transaction: the next source offset of each partition with news, and its size."""

    began_s: float
    next_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    size_bytes: int = 0
    record_count: int = 0


@dataclass(slots=True)
class Copied:
    """Counts since the start of this instance."""

    records: int = 0
    size_bytes: int = 0
    transactions: int = 0
    untouched_batches: int = 0
    restarts: int = 0


class ExactlyOnceMirror:
    """An instance of a mirror out. `run` once; `translate` and the counts at any time.

    `reached` is called at each step of a transaction; `told` with each line that a user should see.
    """

    def __init__(
        self,
        source: Admin,
        target: Admin,
        settings: OutSettings,
        *,
        rate: Rate | None = None,
        reached: Callable[[Step], None] = lambda _: None,
        told: Callable[[str], None] = log.warning,
    ) -> None:
        self._source, self._target, self._settings = source, target, settings
        self._reached, self._told = reached, told
        self._reader = SourceReader(source, read_committed=True, rate=rate)
        self._writer: TransactionalWriter | None = None
        self._owner: Owner | None = None
        self._transaction: _Transaction | None = None
        self._barrier: dict[TopicPartition, int] = {}
        self._progress_s = 0.0
        self._failures = 0
        self._fetched: dict[TopicPartition, FetchedPartition] = {}
        #: The maps of all partitions, as committed.
        self.maps: dict[TopicPartition, PartitionMap] = {}
        self.copied = Copied()

    # --- what callers ask -------------------------------------------------------------------------

    def translate(self, tp: TopicPartition, offset: int) -> int:
        """The offset of the target for one of the source, exactly. NotCopied if it is not copied
        yet."""
        found = self.maps.get(tp)
        if found is None:
            raise NotCopied(f"{tp.topic}-{tp.partition} is not copied by this mirror")
        return found.translate(offset)

    def positions(self) -> Mapping[TopicPartition, int]:
        """The next offset of the source of each partition, as committed."""
        return {tp: found.position.next for tp, found in self.maps.items()}

    def ends(self) -> Mapping[TopicPartition, FetchedPartition]:
        """The last news of each partition, with its end at the source."""
        return self._fetched

    # --- the run ----------------------------------------------------------------------------------

    async def run(
        self, topics: Topics, *, follow: bool, stop: asyncio.Event, timeout_ms: float
    ) -> None:
        """Copy the topics: up to the ends that they have at the start, or with `follow` until
        `stop` is set.

        Without `follow`, `timeout_ms` is the time without progress after which NotDrained or the
        last error is raised. Raises MirrorFenced, MirrorRefused, MapDamaged, MapTopicUnfit,
        SourceError, and errors of either cluster that do not pass.
        """
        self._progress_s = self._now_s()
        patience_ms = None if follow else timeout_ms
        try:
            while True:
                try:
                    await self._begin(topics, follow=follow)
                    await self._copy_until(topics, stop, follow=follow, timeout_ms=timeout_ms)
                    return
                except (OdradekError, BatchError, ControlMarkerError) as error:
                    await self._failed(error, stop, patience_ms)
                    if stop.is_set():
                        return
        finally:
            await self._close_writer()
            await self._reader.close()

    async def _begin(self, topics: Topics, *, follow: bool) -> None:
        """Fence other instances, find the positions, and read on from them."""
        settings, target = self._settings, self._target
        await make_map_topic(target, settings.name)
        if self._owner is not None:
            await self._check_owner(self._owner)
        writer = self._writer = TransactionalWriter(
            target, settings.name, transaction_timeout_ms=settings.transaction_timeout_ms
        )
        identity = await writer.start()
        state = await find_state(
            self._source,
            target,
            (await read_map(target, settings.name)).partitions,
            await topics(),
            settings.target_topic,
            skip_deleted=settings.skip_deleted,
        )
        state.refuse()
        self.maps = state.maps
        since_ms = int(time.time() * 1000)
        self._owner = Owner(*identity, socket.gethostname(), os.getpid(), since_ms)
        await writer.begin()
        await writer.write_record(*encode_owner(self._owner))
        await writer.commit()
        self._reached(Step.OWNED)
        for tp in self._reader.positions.keys() - set(state.to_read):
            self._reader.unassign(tp)
        for tp in state.to_read:
            self._assign(tp, self.maps[tp])
        if not follow and not self._barrier:
            self._barrier = dict(state.source_ends)

    def _assign(self, tp: TopicPartition, found: PartitionMap) -> None:
        position = found.position
        self._reader.assign(tp, position.next, topic_id=position.source_topic_id.bytes)

    async def _check_owner(self, mine: Owner) -> None:
        """MirrorFenced if another instance has written its name into the map topic."""
        owner = (await read_map(self._target, self._settings.name)).owner
        if owner is None or owner[:2] == mine[:2]:
            return
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner.since_ms / 1000))
        raise MirrorFenced(
            f"another instance of the mirror {self._settings.name!r} has taken over: process"
            f" {owner.pid} on {owner.host}, since {since}. This one ends, and has copied nothing"
            " twice; to run two mirrors, give them different --name"
        )

    async def _failed(
        self, error: OdradekError | ValueError, stop: asyncio.Event, patience_ms: float | None
    ) -> None:
        """Abort what is open, and pause before the next try; raise the error if it is final, or
        there was no progress for too long."""
        self._transaction = None
        await self._close_writer()
        if not isinstance(error, OdradekError) or _is_final(error):
            raise error
        now_s = self._now_s()
        if patience_ms is not None and (now_s - self._progress_s) * 1000 > patience_ms:
            raise error
        self._failures += 1
        self.copied.restarts += 1
        log.warning("the mirror goes on from its last transaction after an error: %s", error)
        pause_ms = min(_PAUSE_MS * 2 ** min(self._failures - 1, 10), _PAUSE_MAX_MS)
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await stop.wait()
        except TimeoutError:
            pass

    async def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            await writer.close()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # --- copying ----------------------------------------------------------------------------------

    async def _copy_until(
        self, topics: Topics, stop: asyncio.Event, *, follow: bool, timeout_ms: float
    ) -> None:
        refresh_s = self._now_s() + _REFRESH_MS / 1000
        while not stop.is_set():
            if not follow and self._is_drained():
                return
            await self._copy_some()
            now_s = self._now_s()
            if self._is_due(now_s):
                await self._finish()
            elif not follow and (now_s - self._progress_s) * 1000 > timeout_ms:
                raise await self._not_drained(timeout_ms)
            if follow and now_s >= refresh_s:
                refresh_s = now_s + _REFRESH_MS / 1000
                await self._refresh(topics)
        if self._transaction is not None:
            await self._finish()

    async def _copy_some(self) -> None:
        try:
            fetched = await self._reader.poll(self._poll_ms())
        except SourceError as error:
            self._source_failed(error)
            return
        for piece in fetched:
            self._fetched[piece.tp] = piece
            if piece.next_offset > piece.fetch_offset:
                await self._copy(piece)

    def _poll_ms(self) -> float:
        transaction = self._transaction
        if transaction is None:
            return _POLL_MS
        left_ms = (transaction.began_s - self._now_s()) * 1000 + self._settings.transaction_ms
        return min(max(left_ms, 0.0), _POLL_MS)

    def _source_failed(self, error: SourceError) -> None:
        """Leave out a deleted topic, skip records that are gone if that is wanted; else raise."""
        tp = error.tp
        if isinstance(error, SourceTopicDeleted):
            self._reader.unassign(tp)
            self._barrier.pop(tp, None)
            self._told(f"{error}; the copy of it stays as it is")
            return
        if isinstance(error, SourceRecordsDeleted):
            nothing_yet = self.maps[tp].run_count == 0
            if nothing_yet or self._settings.skip_deleted:
                if not nothing_yet:
                    self._told(f"{error}; skipped, as ordered")
                self._open().next_offsets[tp] = error.log_start_offset
                self._reader.seek(tp, error.log_start_offset)
                return
        raise error

    def _open(self) -> _Transaction:
        if self._transaction is None:
            self._transaction = _Transaction(self._now_s())
        return self._transaction

    async def _copy(self, piece: FetchedPartition) -> None:
        writer = self._writer
        assert writer is not None
        settings, tp = self._settings, piece.tp
        found = copy_batches(
            piece.records, piece.fetch_offset, piece.aborted, offset_header=settings.offset_header
        )
        transaction = self._open()
        target = TopicPartition(settings.target_topic(tp.topic), tp.partition)
        for number, batch in enumerate(found.batches):
            if not transaction.record_count:
                await writer.begin()
            transaction.record_count += batch.records.record_count
            await writer.write(tp, target, batch)
            self._reached(Step.BEGUN)
            if number % _BATCHES_PER_TURN == 0:
                await asyncio.sleep(0)
        transaction.next_offsets[tp] = piece.next_offset
        transaction.size_bytes += len(piece.records)
        self.copied.untouched_batches += found.untouched

    def _is_due(self, now_s: float) -> bool:
        transaction = self._transaction
        return transaction is not None and (
            transaction.size_bytes >= self._settings.transaction_bytes
            or (now_s - transaction.began_s) * 1000 >= self._settings.transaction_ms
            or (bool(self._barrier) and self._is_drained(transaction.next_offsets))
        )

    async def _finish(self) -> None:
        """End the transaction: wait for the answers, write the map, commit."""
        writer, transaction = self._writer, self._transaction
        assert writer is not None and transaction is not None
        if not transaction.record_count:
            await writer.begin()
        runs = await writer.written()
        self._reached(Step.WRITTEN)
        entries: list[Entry] = []
        forgotten: dict[TopicPartition, Sequence[int]] = {}
        for tp, next_offset in transaction.next_offsets.items():
            found, some = self.maps[tp], runs.get(tp, [])
            _check_target(tp, found, some)
            entries += found.entries_after(tp, some, next_offset)
            if (piece := self._fetched.get(tp)) is not None:
                forgotten[tp] = found.starts_below(piece.log_start_offset)
        tombstones = [(tp, start) for tp, starts in forgotten.items() for start in starts]
        await writer.write_map(entries, tombstones)
        self._reached(Step.MAPPED)
        await writer.commit()
        self._reached(Step.COMMITTED)
        for entry in entries:
            self.maps[entry.tp].add(entry)
        for tp, starts in forgotten.items():
            self.maps[tp].forget(starts)
        self._transaction = None
        self._progress_s = self._now_s()
        self._failures = 0
        self.copied.records += transaction.record_count
        self.copied.size_bytes += transaction.size_bytes
        self.copied.transactions += 1

    # --- topics, and the end ----------------------------------------------------------------------

    async def _refresh(self, topics: Topics) -> None:
        """Take up new topics, and new partitions."""
        names = sorted(await topics())
        counts = await self._source.describe_topics(names, raise_errors=False)
        changed = [
            name
            for name, found in counts.items()
            if any(
                TopicPartition(name, each.partition) not in self.maps for each in found.partitions
            )
        ]
        if not changed:
            return
        state = await find_state(
            self._source,
            self._target,
            self.maps,
            changed,
            self._settings.target_topic,
            skip_deleted=self._settings.skip_deleted,
        )
        state.refuse()
        for tp in state.maps.keys() - self.maps.keys():
            self.maps[tp] = state.maps[tp]
            self._assign(tp, self.maps[tp])

    def _is_drained(self, ahead: Mapping[TopicPartition, int] | None = None) -> bool:
        """True if everything up to the barrier is committed, or will be with the next offsets in
        `ahead`."""
        for tp, end in self._barrier.items():
            found = self.maps.get(tp)
            if found is None:
                return False
            if max(found.position.next, (ahead or {}).get(tp, 0)) < end:
                return False
        return True

    async def _not_drained(self, timeout_ms: float) -> NotDrained:
        """The error that says what is missing, and what it waits for."""
        missing = {
            tp: end for tp, end in self._barrier.items() if self.maps[tp].position.next < end
        }
        troubles = self._reader.troubles()
        reasons = [
            f"{tp.topic}-{tp.partition}: {troubles[tp].error}" for tp in missing if tp in troubles
        ]
        waiting = {
            tp: piece.last_stable_offset
            for tp in missing
            if (piece := self._fetched.get(tp)) is not None
            and piece.last_stable_offset < piece.high_watermark
        }
        reasons += await name_open_transactions(self._source, waiting)
        rest = sum(end - self.maps[tp].position.next for tp, end in missing.items())
        return NotDrained(
            f"not drained: nothing was copied for {timeout_ms / 1000:.0f} s, and {rest} offsets in"
            f" {len(missing)} partitions are missing"
            + (": " + "; ".join(reasons) if reasons else "")
            + ". Run the mirror again to go on"
        )


def _check_target(tp: TopicPartition, found: PartitionMap, runs: Sequence[Run]) -> None:
    if runs and runs[0].target < found.position.target_end:
        raise MirrorRefused(
            f"the target has lost records of {tp.topic}-{tp.partition}: its next offset is"
            f" {runs[0].target}, and it had records up to {found.position.target_end - 1}. Delete"
            " the topic there and its positions, or copy it with another --name"
        )


def _is_final(error: OdradekError) -> bool:
    """True if another try would end with the same error."""
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None:
            return False
        if isinstance(cause, MirrorFenced | NotDrained):
            return True
        if isinstance(cause, _FINAL) and not isinstance(cause, OutOfOrderSequence):
            return cause.code is not ErrorCode.UNKNOWN_SERVER_ERROR
        cause = cause.__cause__
    return False


__all__ = ["ExactlyOnceMirror", "MirrorFenced", "NotDrained", "OutSettings", "Step", "map_topic"]
