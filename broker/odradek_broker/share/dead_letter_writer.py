"""The writer of dead letters: each record that is given up gets exactly one dead letter (rules
H-203 to H-206).

A dead letter and the state of its share partition are records of two logs, and no write of a disk
covers both. So the dead letter decides: when it is durable the record is given up, whatever happens
next. Before dead letters are written, the next offset of the dead letter topic is stored in the
state. Dead letters from this offset on are perhaps not in the state yet, so a load of the share
partition reads them from the log.

    state: "dead letters from offset 7 on"   durable
    dead letters 7, 8, 9                     durable: the records are given up
    state: archived, "no dead letters open"  durable: the acknowledgement is answered

The changes of a share partition are written one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import structlog

from odradek_broker.deferred import Deferred
from odradek_broker.platform.seams import Clock, Scheduler
from odradek_broker.share.dead_letter_topics import (
    DeadLetterPartition,
    DeadLetterTopics,
    LogReading,
    NoTarget,
    given_up_records,
)
from odradek_broker.share.dead_letters import DeadLetter, LetterBatch, letter_batches, letters_in
from odradek_broker.share.events import DeadLettered, NotDeadLettered, Observer, ShareEvent
from odradek_broker.share.in_flight import DEAD_LETTER_RETRY_MS, GivenUp, RecordState, StateChange
from odradek_broker.share.led_partition import LedPartition, SharePersister
from odradek_broker.share_state import (
    NO_DEAD_LETTERS,
    DeadLetterPosition,
    StateBatch,
    StateResult,
)
from odradek_broker.slices import Slices
from odradek_broker.storage.errors import StorageError, ThreadBusy
from odradek_broker.storage.large_batches import in_thread
from odradek_broker.storage.validation import DecompressionBudget
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchError, BatchHeader, iter_batches
from odradek_protocol.records.builder import BatchBuilder

log = structlog.get_logger("odradek.share")

_E = ErrorCode
_SCAN_BYTES = 1024 * 1024
_COUNT_MAX = (1 << 15) - 1

_END = LetterBatch([], BatchBuilder())

#: The offsets of records that are given up, with the number of their deliveries.
Letters = dict[int, int]


class WriteOutcome(NamedTuple):
    """The outcome of a change with dead letters. `decided`: True if the records are given up, False
    if the change is to be undone, None if the disk has failed, and the next load has to find
    out."""

    result: StateResult
    decided: bool | None


#: The partition and the offset of the first dead letter, or the reason why there is no dead letter.
_Place = tuple[DeadLetterPartition, int] | str


def _ignore(_: ShareEvent) -> None:
    """Ignore an event: the default observer."""


def _neighbours(letters: Iterable[DeadLetter]) -> Iterator[GivenUp]:
    """The records of dead letters. Neighbouring records with equal delivery counts and reasons are
    joined."""
    found: GivenUp | None = None
    for letter in letters:
        offset, count, reason = letter[:3]
        if found is not None and found[1:] == (offset - 1, count, reason):
            found = found._replace(last_offset=offset)
            continue
        if found is not None:
            yield found
        found = GivenUp(offset, offset, count, reason)
    if found is not None:
        yield found


class DeadLetterWriter:
    """The writer of the dead letters of all share partitions. `observer` gets the events of dead
    letters."""

    def __init__(
        self,
        topics: DeadLetterTopics,
        states: SharePersister,
        clock: Clock,
        scheduler: Scheduler,
        slices: Slices,
    ) -> None:
        self.topics = topics
        self.states = states
        self.clock = clock
        self.scheduler = scheduler
        self.slices = slices
        self.observer: Observer = _ignore

    def write(self, led: LedPartition, change: StateChange) -> Deferred[WriteOutcome]:
        """Write the dead letters of a change, then its state."""
        done: Deferred[WriteOutcome] = Deferred()
        job = _Job(self, led, change, done)
        led.letter_jobs.append(job.begin)

        def ended(_: WriteOutcome) -> None:
            led.letter_jobs.popleft()
            if led.letter_jobs:
                self.scheduler.call_later(0, led.letter_jobs[0])

        done.then(ended)
        if len(led.letter_jobs) == 1:
            job.begin()
        return done

    def tell(self, led: LedPartition, given_up: Iterable[GivenUp], written_at: _Place) -> None:
        """Pass the events of dead letters to the observer. Log a warning for each run of records
        without dead letters."""
        place = written_at
        for first, last, count, reason in given_up:
            if isinstance(place, str):
                log.warning(
                    "a share group gave up records without a dead letter",
                    group=led.key.group_id,
                    topic=led.topic,
                    partition=led.key.partition,
                    offset=first,
                    last_offset=last,
                    reason=place,
                )
                self.observer(NotDeadLettered(led.key, first, last, count, reason, place))
                continue
            target, offset = place
            self.observer(
                DeadLettered(
                    led.key, first, last, count, reason, target.topic, target.number, offset
                )
            )
            place = (target, offset + last - first + 1)

    def open_letters(
        self, led: LedPartition, position: DeadLetterPosition
    ) -> Deferred[Letters | ErrorCode]:
        """The dead letters of a share partition from a position on; the error if they cannot be
        read (H-206)."""
        target = self.topics.opened(position.topic_id, position.partition)
        if target is None:
            return Deferred.of({})
        if isinstance(target, NoTarget):
            return Deferred.of(target.error)
        done: Deferred[Letters | ErrorCode] = Deferred()
        scan = _Scan(self, led, position, target, done)
        # Dead letters of an earlier leader are perhaps not durable yet.
        target.partition.when_durable(scan.end - 1, scan.begin)
        return done


class _Job:
    """The dead letters of one change, from the first write to the last."""

    def __init__(
        self,
        writer: DeadLetterWriter,
        led: LedPartition,
        change: StateChange,
        done: Deferred[WriteOutcome],
    ) -> None:
        self._writer = writer
        self._led = led
        self._change = change
        self._done = done
        self._target: DeadLetterPartition | None = None
        self._batches: Iterator[LetterBatch | LogReading] = iter(())
        self._any_durable = False

    def begin(self) -> None:
        """Look for the partition of the dead letter topic. Store its next offset as the position of
        dead letters, unless a position in this partition is stored already."""
        led, settings = self._led, self._change.settings
        if led.error is not _E.NONE:
            self._undo(led.error)
            return
        self._writer.topics.target_for(
            settings.dead_letter_topic, led.topic, led.key.partition
        ).then(self._found)

    def _found(self, target: DeadLetterPartition | NoTarget) -> None:
        led = self._led
        if led.error is not _E.NONE:
            self._undo(led.error)
        elif isinstance(target, DeadLetterPartition):
            self._target = target
            known = led.dead_letters_from
            if known is not None and known[:2] == (target.topic_id, target.number):
                self._append_first()
                return
            position = DeadLetterPosition(
                target.topic_id, target.number, target.partition.next_offset
            )
            led.store(self._writer.states, (), position).then(self._position_stored)
        elif target.error is not _E.NONE:
            self._undo(target.error, f"The dead letter cannot be written: {target.reason}.")
        else:
            self._writer.tell(led, self._change.given_up, target.reason)
            self._store()

    def _position_stored(self, result: StateResult) -> None:
        if result.error is not _E.NONE:
            self._done.resolve(WriteOutcome(result, False))
        elif self._led.error is not _E.NONE:
            self._undo(self._led.error)
        else:
            self._append_first()

    # --- The dead letters ---

    def _append_first(self) -> None:
        assert self._target is not None
        config = self._target.partition.log.config
        change = self._change
        self._batches = letter_batches(
            self._led.source,
            given_up_records(
                self._led.partition.log, change.given_up, copy=change.settings.copy_record
            ),
            self._writer.clock.wall_ms(),
            min(config.max_message_bytes, config.segment_bytes),
        )
        self._append_next()

    def _append_next(self) -> None:
        batch = next(self._batches, _END)
        if batch is _END:
            self._store()
        elif isinstance(batch, LogReading):
            self._begin_reading(batch)
        else:
            self._append(batch)

    def _begin_reading(self, reading: LogReading) -> None:
        self._writer.slices.run(self._read(reading))

    async def _read(self, reading: LogReading) -> None:
        """Read the records of the next dead letters, and continue."""
        try:
            await in_thread(self._writer.slices, reading.read)
        except ThreadBusy:
            self._writer.scheduler.call_later(
                DEAD_LETTER_RETRY_MS, lambda: self._begin_reading(reading)
            )
        else:
            self._append_soon()

    def _append(self, batch: LetterBatch) -> None:
        """Append a batch, and call `_appended` when the batch is durable."""
        target, led = self._target, self._led
        assert target is not None
        if led.error is not _E.NONE:
            # The next load finds the dead letters in the log.
            self._done.resolve(WriteOutcome(StateResult(led.error), None))
            return
        if self._writer.topics.find(target.topic, target.number) is not target.partition:
            self._topic_deleted(batch)
            return
        try:
            appended = target.partition.append(
                memoryview(batch.encoded()), self._writer.clock.wall_ms(), budget=_whole_budget()
            )
        except StorageError as problem:
            self._not_appended(batch, problem)
            return
        first = appended.last_offset - len(batch.letters) + 1
        target.partition.when_durable(
            appended.last_offset, lambda error: self._appended(batch, first, error)
        )

    def _not_appended(self, batch: LetterBatch, problem: StorageError) -> None:
        """Handle the refusal of a batch: the topic does not take such records, or the disk is
        full."""
        if problem.error is not _E.KAFKA_STORAGE_ERROR:
            self._without(batch.letters, str(problem))
            self._append_soon()
        elif self._any_durable:
            self._writer.scheduler.call_later(DEAD_LETTER_RETRY_MS, lambda: self._append(batch))
        else:
            self._undo(problem.error, f"The dead letter cannot be written: {problem}.")

    def _appended(self, batch: LetterBatch, first: int, error: ErrorCode) -> None:
        if error is _E.UNKNOWN_TOPIC_OR_PARTITION:
            self._topic_deleted(batch)
        elif error is not _E.NONE:
            # The batch may be on disk or not; the next load finds out.
            self._done.resolve(WriteOutcome(StateResult(error), None))
        else:
            self._any_durable = True
            assert self._target is not None
            self._writer.tell(self._led, _neighbours(batch.letters), (self._target, first))
            self._append_soon()

    def _append_soon(self) -> None:
        """Continue in the next turn of the loop, because there may be many batches."""
        self._writer.scheduler.call_later(0, self._append_next)

    def _topic_deleted(self, batch: LetterBatch) -> None:
        self._without(batch.letters, "the dead letter topic was deleted")
        self._append_soon()

    def _without(self, letters: Iterable[DeadLetter], problem: str) -> None:
        """Give records up, and write no dead letter for them."""
        self._writer.tell(self._led, _neighbours(letters), problem)

    # --- The state ---

    def _undo(self, error: ErrorCode, message: str | None = None) -> None:
        self._done.resolve(WriteOutcome(StateResult(error, message), False))

    def _store(self) -> None:
        led = self._led
        if led.error is not _E.NONE:
            self._done.resolve(WriteOutcome(StateResult(led.error), None))
            return
        closing = None
        if led.dead_letters_from is not None and len(led.letter_jobs) == 1:
            closing = NO_DEAD_LETTERS
        led.store(self._writer.states, self._change.stored, closing).then(self._stored)

    def _stored(self, result: StateResult) -> None:
        decided = result.error is _E.NONE or self._any_durable
        if decided and result.error is not _E.NONE:
            self._led.unstored.update(self._change.stored)
        self._done.resolve(WriteOutcome(result, decided))


class _Scan:
    """The search for the dead letters of a share partition from a position on, in slices."""

    def __init__(
        self,
        writer: DeadLetterWriter,
        led: LedPartition,
        position: DeadLetterPosition,
        target: DeadLetterPartition,
        done: Deferred[Letters | ErrorCode],
    ) -> None:
        self._writer = writer
        self._led = led
        self._log = target.partition.log
        self._offset = position.offset
        self.end = target.partition.next_offset
        self._found: Letters = {}
        self._done = done

    def begin(self, error: ErrorCode) -> None:
        """Begin to read, because all records before `self.end` are durable; or pass on the
        error."""
        if error is _E.NONE:
            self._writer.slices.deferred(self._search()).then(self._done.resolve)
        else:
            self._done.resolve(error)

    async def _search(self) -> Letters | ErrorCode:
        log = self._log
        while (offset := max(self._offset, log.log_start_offset)) < self.end:
            try:
                data = log.read(offset, _SCAN_BYTES, upper_bound=self.end, minimum_one=True)
                self._offset = -1
                for position, header in iter_batches(data):
                    await self._search_batch(memoryview(data)[position:], header, offset)
                    self._offset = header.next_offset
            except ThreadBusy:
                # Share consumers fetch again after this error, but fail at that of ThreadBusy.
                return _E.OFFSET_NOT_AVAILABLE
            except StorageError as problem:
                return problem.error
            except BatchError:
                return _E.CORRUPT_MESSAGE
            if self._offset <= offset:
                return _E.CORRUPT_MESSAGE
        return self._found

    async def _search_batch(self, batch: memoryview, header: BatchHeader, offset: int) -> None:
        search = partial(letters_in, batch, header, self._led.source, offset)
        for number, count, _ in await in_thread(self._writer.slices, search):
            if number < self._led.partition.log.log_end_offset:
                self._found[number] = min(count, _COUNT_MAX)


def _whole_budget() -> DecompressionBudget:
    """The budget of a batch of dead letters, which is written on the event loop however the topic
    compresses it; it has a megabyte at most."""
    budget = DecompressionBudget()
    budget.begin_thread()
    return budget


def with_letters(
    stored: Iterable[StateBatch], letters: Letters, start_offset: int
) -> tuple[list[StateBatch], list[StateBatch]]:
    """The batches of a state after these records are archived, and the batches that were added."""
    if not letters:
        return list(stored), []
    result: list[StateBatch] = []
    added: list[StateBatch] = []
    left = sorted((offset for offset in letters if offset >= start_offset), reverse=True)

    def archive(offset: int) -> None:
        batch = StateBatch(offset, offset, RecordState.ARCHIVED, letters[offset])
        added.append(batch)
        result.append(batch)

    for batch in stored:
        first = batch.first_offset
        while left and left[-1] < first:
            archive(left.pop())
        while left and left[-1] <= batch.last_offset:
            offset = left.pop()
            if batch.delivery_state == RecordState.AVAILABLE:
                if first < offset:
                    result.append(batch._replace(first_offset=first, last_offset=offset - 1))
                archive(offset)
                first = offset + 1
        if first <= batch.last_offset:
            result.append(batch._replace(first_offset=first))
    while left:
        archive(left.pop())
    return result, added
