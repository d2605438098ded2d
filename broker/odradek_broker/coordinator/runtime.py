"""The runtime of a coordinator's core, for one partition of an internal topic (D4).

A core makes decisions: from its state it returns a `CoreOutcome`, the records to write and the
answers to send. The runtime appends the records as one batch, immediately makes the core replay
them, and sends the answers when all state that they may show is durable. After a restart the same
`replay` runs over the whole partition.

The runtime distinguishes two kinds of refusal. After a refused append no record is written or
replayed, the answers have the error, and `CoreOutcome.after_append` lets the core undo its
decision. If an append was written but could not be made durable, the partition is offline (D5): the
runtime stops, and every later request gets the error.

`TransactionalRuntime` also takes records of transactions (O-17, O-18), which are replayed as
pending. The leader of the partition writes the marker that ends a producer's transaction, and
reports it (`Runtime.appended`). A load replays records and markers in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from itertools import repeat
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from odradek_broker.coordinator.timers import Timers
from odradek_broker.deferred import Deferred
from odradek_protocol.constants import NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import DecodeError
from odradek_protocol.stored.control_marker import ControlMarkerError, decode_marker

A = TypeVar("A")

Record = tuple[bytes, bytes | None]

#: The longest time for which an answer waits for the disk. After this time the answer is
#: COORDINATOR_NOT_AVAILABLE, as if the append had timed out (O-03).
APPEND_TIMEOUT_MS = 5_000

#: The limits of a batch if the records may be divided into several batches. BATCH_BYTES_MAX is well
#: below the smallest sensible max.message.bytes.
BATCH_RECORDS_MAX = 1_000
BATCH_BYTES_MAX = 256 * 1024

#: The number of records that a load replays in one slice.
LOAD_SLICE_RECORDS = 250
#: The bytes of a value that count as a further record in a slice of a load.
_LOAD_RECORD_BYTES = 256

#: The number of answers that are sent at once. The end of a join phase has an answer for each
#: member; other clients are served between the slices.
ANSWERS_SLICE = 50

_E = ErrorCode
_END = object()

#: Storage error of an append of a group's records -> error in the answer (G-91).
GROUP_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
    _E.MESSAGE_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.RECORD_LIST_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.INVALID_FETCH_SIZE: _E.UNKNOWN_SERVER_ERROR,
}


class Instant(NamedTuple):
    """The current time of both clocks: deadlines use the monotonic one, stored timestamps the wall
    clock."""

    monotonic_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Reply(Generic[A]):
    """An answer and its `Deferred`. `refused` makes the answer that is sent if the records cannot
    be stored."""

    deferred: Deferred[A]
    response: A
    refused: Callable[[ErrorCode], A]


class ProducerIdentity(NamedTuple):
    """The producer whose transaction contains the records."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class CoreOutcome:
    """A core's decision.

    `records` are appended as one batch. `replies` are sent when these and all earlier records are
    durable. `after_append` is called with NONE when the answers are sent, or with the error of the
    answers when the append fails; it may return another decision. `append_errors`: storage error to
    error of the answer. `producer`: the records are part of this producer's transaction; only for
    cores that run in a `TransactionalRuntime`. `is_divisible`: true if the records may be appended
    in as many batches as they need; only for cores that run in a `SlicedRuntime`.
    """

    records: list[Record] = field(default_factory=list)
    replies: list[Reply[Any]] = field(default_factory=list)
    after_append: Callable[[ErrorCode, Instant], Decision] | None = None
    append_errors: Mapping[ErrorCode, ErrorCode] = field(
        default_factory=lambda: GROUP_APPEND_ERRORS
    )
    producer: ProducerIdentity | None = None
    is_divisible: bool = False

    def after(self, replies: list[Reply[Any]]) -> CoreOutcome:
        """This decision, with earlier answers before its own."""
        self.replies[:0] = replies
        return self


Decision = CoreOutcome | Coroutine[Any, Any, CoreOutcome]
"""A decision, or a coroutine that makes it; only a `SlicedRuntime` takes coroutines."""


def in_batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """The records in their order, divided into batches."""
    batch: list[Record] = []
    batch_bytes = 0
    for key, value in records:
        size_bytes = len(key) + len(value or b"")
        if batch and (
            len(batch) == BATCH_RECORDS_MAX or batch_bytes + size_bytes > BATCH_BYTES_MAX
        ):
            yield batch
            batch, batch_bytes = [], 0
        batch.append((key, value))
        batch_bytes += size_bytes
    if batch:
        yield batch


class InternalPartition(Protocol):
    """The methods of an internal topic's partition that a runtime uses."""

    def append_internal(
        self, records: list[tuple[bytes | None, bytes | None]], now_ms: int
    ) -> Deferred[ErrorCode]:
        """Append records before the call returns. Resolves with NONE when the records are durable,
        or with the storage error. `now_ms` is wall time."""
        ...

    def read_all(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """(offset, key, value) of every record."""
        ...


class Core(Protocol):
    """A state machine whose durable state is the result of replaying a log."""

    timers: Timers[Any]

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one record; only this method changes durable state. Unknown keys are skipped."""
        ...

    def loaded(self, now: Instant) -> Decision:
        """Build the state that is not durable, and set timers, after all records were replayed."""
        ...

    def on_timer(self, name: Any, now: Instant) -> Decision:
        """Act on a deadline of `timers` that has passed."""
        ...

    def closed(self, error: ErrorCode) -> CoreOutcome:
        """End the coordination of the partition: answer every parked request with `error`. Writes
        no records."""
        ...


class RuntimeState(Enum):
    """The state of a runtime; only an ACTIVE one answers requests."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    CLOSED = "Closed"


class RuntimeStep(RuntimeError):
    """The error for an operation that the state of the runtime does not allow."""


C = TypeVar("C", bound=Core)


class Runtime(Generic[C]):
    """The runtime of a core over one partition. Its only state is the answers that wait for
    appends.

    `clock` gives the time at which an append became durable. `follow_up` is called after every
    decision, including a decision of `after_append`, because a decision may request effects and
    change deadlines.
    """

    def __init__(
        self,
        core: C,
        partition: InternalPartition,
        clock: Callable[[], Instant],
        follow_up: Callable[[], None] = lambda: None,
    ) -> None:
        self.core = core
        self.state = RuntimeState.LOADING
        self._partition = partition
        self._clock = clock
        self._follow_up = follow_up
        self._error = _E.COORDINATOR_LOAD_IN_PROGRESS
        self._loading: Iterator[object] | None = None
        self._last_append: Deferred[ErrorCode] = Deferred.of(_E.NONE)
        self._waiting: dict[int, list[Reply[Any]]] = {}
        self._append_timeouts: Timers[int] = Timers()
        self._next_append = 0
        #: The answers that are due, in their order, with the error that they have.
        self._due_answers: deque[tuple[Reply[Any], ErrorCode]] = deque()

    @property
    def error(self) -> ErrorCode:
        """The error of every answer; NONE while the runtime is active."""
        return self._error

    @property
    def waiting_answers(self) -> int:
        """The number of answers that wait for the disk, or for other answers to be sent."""
        return sum(len(replies) for replies in self._waiting.values()) + len(self._due_answers)

    # --- Loading (G-90, O-18) ---

    def load(self, records_max: int = LOAD_SLICE_RECORDS) -> bool:
        """Replay at most `records_max` records; True when the core is up to date and active.

        Raises DecodeError or StorageError if a record cannot be read, because the coordinator must
        not run with an incomplete state.
        """
        if self.state is not RuntimeState.LOADING:
            raise RuntimeStep(f"a load in state {self.state.value}")
        if self._loading is None:
            self._loading = self._replay_all()
        try:
            for _ in range(records_max):
                if next(self._loading, _END) is _END:
                    break
            else:
                return False
        except Exception:
            self.state, self._error = RuntimeState.FAILED, _E.COORDINATOR_NOT_AVAILABLE
            raise
        self._loading = None
        self.state, self._error = RuntimeState.ACTIVE, _E.NONE
        self.run(self.core.loaded)
        return True

    def _replay_all(self) -> Iterator[object]:
        """Replay the whole partition, one record at a time."""
        for _, key, value in self._partition.read_all():
            if key is not None:
                yield from self._load_record(key, value)
            yield None

    def _load_record(self, key: bytes, value: bytes | None) -> Iterable[object]:
        """Replay a record of the log. Yields as often as it counts as a further record."""
        self.core.replay(key, value)
        return repeat(None, len(value or b"") // _LOAD_RECORD_BYTES)

    # --- In service ---

    def run(
        self,
        decide: Callable[[Instant], Decision],
        refuse: Callable[[ErrorCode], None] = lambda error: None,
    ) -> None:
        """Carry out one decision. The caller has checked that `error` is NONE. `refuse` is called
        if the runtime stops before it has decided."""
        if self.state is not RuntimeState.ACTIVE:
            raise RuntimeStep(f"a decision in state {self.state.value}")
        self._process(_made(decide(self._clock())))
        self._follow_up()

    def write(
        self, records: Iterable[Record], answer: A, refused: Callable[[ErrorCode], A]
    ) -> Deferred[A]:
        """Write records in as many batches as they need, with no other records in between. Resolves
        with `answer` when all of them are durable, or with `refused` of the first error."""
        deferred: Deferred[A] = Deferred()
        errors: list[ErrorCode] = []

        def after_append(error: ErrorCode, _: Instant) -> CoreOutcome:
            if error is not _E.NONE:
                errors.append(error)
            return CoreOutcome()

        for batch in in_batches(records):
            if self.state is RuntimeState.ACTIVE:
                outcome = CoreOutcome(records=batch, after_append=after_append)
                self.run(lambda _, outcome=outcome: outcome)  # type: ignore[misc]
        error = errors[0] if errors else self.error
        if error is not _E.NONE:
            deferred.resolve(refused(error))
        else:
            reply = Reply(deferred, answer, refused)
            self.run(lambda _: CoreOutcome(replies=[reply]))
        return deferred

    def run_due(self, now: Instant, deadlines_max: float = inf) -> int:
        """Act on deadlines that have passed, at most on so many; returns their number. The caller
        calls `follow_up` itself, once for all runtimes."""
        self._send_some()
        acted = 0
        while acted < deadlines_max:
            number = self._append_timeouts.pop_due(now.monotonic_ms)
            if number is None:
                break
            self._release(self._waiting.pop(number), _E.COORDINATOR_NOT_AVAILABLE)
            acted += 1
        return acted + self._run_timers(now, deadlines_max - acted)

    def _run_timers(self, now: Instant, deadlines_max: float) -> int:
        acted = 0
        while acted < deadlines_max and self.state is RuntimeState.ACTIVE:
            name = self.core.timers.pop_due(now.monotonic_ms)
            if name is None:
                break
            self._process(_made(self.core.on_timer(name, now)))
            acted += 1
        return acted

    def next_deadline_ms(self) -> int | None:
        """The time of the earliest deadline; None if there is none."""
        if self._due_answers:
            return self._clock().monotonic_ms
        append_ms, core_ms = self._append_timeouts.next_deadline(), self._core_deadline_ms()
        if append_ms is None or core_ms is None:
            return core_ms if append_ms is None else append_ms
        return min(append_ms, core_ms)

    def _core_deadline_ms(self) -> int | None:
        return self.core.timers.next_deadline() if self.state is RuntimeState.ACTIVE else None

    def appended(self, replay: Callable[[C], None], written: Deferred[ErrorCode]) -> None:
        """Replay records that another part of the broker appended to the partition. Answers wait
        until `written` resolves, when the records are durable. During a load nothing is done,
        because the load will read the records."""
        if self.state is not RuntimeState.ACTIVE:
            return
        replay(self.core)
        self._last_append = written

        def finished(error: ErrorCode) -> None:
            if error is not _E.NONE:
                self._fail(GROUP_APPEND_ERRORS.get(error, error))

        written.then(finished)

    def close(self) -> None:
        """Stop. Parked requests are answered, so that their clients look for another coordinator
        (N-15)."""
        if self.state in (RuntimeState.LOADING, RuntimeState.ACTIVE):
            self._stop(RuntimeState.CLOSED, _E.NOT_COORDINATOR)

    # --- Inside ---

    def _process(self, outcome: CoreOutcome) -> None:
        written = self._last_append
        if outcome.records:
            written = self._append(outcome)
            if written.done and written.result() is not _E.NONE:
                self._not_written(outcome, written.result())
                return
            self._replay(outcome)
            self._last_append = written
        if not written.done:
            self._await_disk(outcome, written)
            return
        # No append is pending: the usual case with page-cache durability, which does not wait for
        # the disk.
        self._run_after_append(outcome, _E.NONE)
        self._release(outcome.replies, _E.NONE)

    def _append_timeout_ms(self) -> int:
        return APPEND_TIMEOUT_MS

    def _append(self, outcome: CoreOutcome) -> Deferred[ErrorCode]:
        return self._partition.append_internal(list(outcome.records), self._clock().wall_ms)

    def _replay(self, outcome: CoreOutcome) -> None:
        for key, value in outcome.records:
            self.core.replay(key, value)

    def _not_written(self, outcome: CoreOutcome, error: ErrorCode) -> None:
        refusal = outcome.append_errors.get(error, error)
        self._run_after_append(outcome, refusal)
        self._release(outcome.replies, refusal)

    def _await_disk(self, outcome: CoreOutcome, written: Deferred[ErrorCode]) -> None:
        """Let the answers wait for the disk, for a limited time."""
        number = self._next_append
        self._next_append += 1
        if outcome.replies:
            self._waiting[number] = outcome.replies
            timeout_ms = self._append_timeout_ms()
            self._append_timeouts.set(number, self._clock().monotonic_ms + timeout_ms)

        def finished(error: ErrorCode) -> None:
            self._append_timeouts.cancel(number)
            replies = self._waiting.pop(number, [])
            if error is _E.NONE:
                self._durable(outcome, replies)
            else:
                self._release(replies, outcome.append_errors.get(error, error))
                self._fail(GROUP_APPEND_ERRORS.get(error, error))
            self._follow_up()

        written.then(finished)

    def _durable(self, outcome: CoreOutcome, replies: list[Reply[Any]]) -> None:
        """Go on when the records of an outcome are durable. `replies`: the answers that have
        waited."""
        self._run_after_append(outcome, _E.NONE)
        self._release(replies, _E.NONE)

    def _run_after_append(self, outcome: CoreOutcome, error: ErrorCode) -> None:
        if outcome.after_append is not None and self.state is RuntimeState.ACTIVE:
            self._process(_made(outcome.after_append(error, self._clock())))

    def _release(self, replies: list[Reply[Any]], error: ErrorCode) -> None:
        """Send the answers, as the last step: a client may immediately send its next request. Of
        many answers, `run_due` sends those after the first ones."""
        waited = bool(self._due_answers)
        self._due_answers += [(reply, error) for reply in replies]
        if not waited:
            self._send_some()

    def _send_some(self, answers_max: float = ANSWERS_SLICE) -> None:
        while self._due_answers and answers_max > 0:
            reply, error = self._due_answers.popleft()
            answers_max -= 1
            reply.deferred.resolve(reply.response if error is _E.NONE else reply.refused(error))

    def _fail(self, error: ErrorCode) -> None:
        """Stop, because records were replayed that are not on disk: no answer may show the
        resulting state."""
        if self.state is RuntimeState.ACTIVE:
            self._stop(RuntimeState.FAILED, error)

    def _stop(self, state: RuntimeState, error: ErrorCode) -> None:
        was_active = self.state is RuntimeState.ACTIVE
        self.state, self._error = state, error
        if was_active:
            self._release(self.core.closed(error).replies, _E.NONE)
            self._send_some(inf)


def _made(decision: Decision) -> CoreOutcome:
    assert isinstance(decision, CoreOutcome), "only a `SlicedRuntime` waits for decisions"
    return decision


class OffsetPartition(InternalPartition, Protocol):
    """A partition that knows its next offset."""

    @property
    def next_offset(self) -> int: ...


class OffsetCore(Core, Protocol):
    """A core that keeps the offsets of its records, so that old records can be deleted."""

    next_offset: int
    """The offset of the record that is replayed; set before each `replay`."""

    @property
    def append_timeout_ms(self) -> int:
        """The longest time for which an answer waits for the disk."""
        ...


OC = TypeVar("OC", bound=OffsetCore)


class OffsetRuntime(Runtime[OC]):
    """`Runtime` for an `OffsetCore` over an `OffsetPartition`."""

    _partition: OffsetPartition

    def _append_timeout_ms(self) -> int:
        return self.core.append_timeout_ms

    def _append(self, outcome: CoreOutcome) -> Deferred[ErrorCode]:
        self.core.next_offset = self._partition.next_offset
        return super()._append(outcome)

    def _replay(self, outcome: CoreOutcome) -> None:
        for key, value in outcome.records:
            self.core.replay(key, value)
            self.core.next_offset += 1

    def _replay_all(self) -> Iterator[object]:
        for offset, key, value in self._partition.read_all():
            if key is not None:
                self.core.next_offset = offset
                yield from self._load_record(key, value)
            yield None


class ReplayedRecord(Protocol):
    """A record in the log. `producer_id` is -1 for a record outside of transactions."""

    @property
    def key(self) -> bytes | None:
        """The key; for a control record, the type of the control record."""
        ...

    @property
    def value(self) -> bytes | None:
        """The value; None for a tombstone."""
        ...

    @property
    def producer_id(self) -> int:
        """The producer whose transaction contains the record."""
        ...

    @property
    def is_control(self) -> bool:
        """True for the marker of a transaction. The runtime does not pass a marker to the core as a
        record."""
        ...


class TransactionalPartition(InternalPartition, Protocol):
    """A partition that also takes records of transactions."""

    def append_transactional(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int,
        producer_id: int,
        producer_epoch: int,
    ) -> Deferred[ErrorCode]:
        """Append records within a producer's transaction; see `append_internal`."""
        ...

    def read_stored(self) -> Iterator[Any]:
        """Every record as a `ReplayedRecord`, including markers."""
        ...


class TransactionalCore(Core, Protocol):
    """A core with records that take effect when their transaction is committed."""

    def replay_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Keep a record of an open transaction until `replay_marker`."""
        ...

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        """Apply or drop the pending records of the producer, whose transaction is over."""
        ...


TC = TypeVar("TC", bound=TransactionalCore)


class TransactionalRuntime(Runtime[TC]):
    """`Runtime` for a `TransactionalCore` over a `TransactionalPartition`."""

    _partition: TransactionalPartition

    def _append(self, outcome: CoreOutcome) -> Deferred[ErrorCode]:
        producer = outcome.producer
        if producer is None:
            return super()._append(outcome)
        return self._partition.append_transactional(
            outcome.records,
            self._clock().wall_ms,
            producer.producer_id,
            producer.producer_epoch,
        )

    def _replay(self, outcome: CoreOutcome) -> None:
        if outcome.producer is None:
            super()._replay(outcome)
            return
        for key, value in outcome.records:
            self.core.replay_pending(outcome.producer.producer_id, key, value)

    def _replay_all(self) -> Iterator[object]:
        for record in self._partition.read_stored():
            yield from self._replay_stored(record)
            yield None

    def _replay_stored(self, record: ReplayedRecord) -> Iterable[object]:
        if record.is_control:
            try:
                marker = decode_marker(record.key, record.value)
            except ControlMarkerError as error:
                raise DecodeError(str(error)) from error
            if marker is not None:
                self.core.replay_marker(record.producer_id, marker.is_commit)
        elif record.key is None:
            return ()
        elif record.producer_id == NO_PRODUCER_ID:
            return self._load_record(record.key, record.value)
        else:
            self.core.replay_pending(record.producer_id, record.key, record.value)
        return ()
