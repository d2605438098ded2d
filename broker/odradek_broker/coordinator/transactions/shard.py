"""The transactional ids of one partition of `__transaction_state`: the core that a runtime runs.

Records are replayed when they are appended, and answers wait until they are durable; so the outside
sees what T-03 asks for. Between the two a step is pending, and what would build on it is answered
CONCURRENT_TRANSACTIONS, but for more partitions in an open transaction: those are simply added.

What cannot be decided here (producer ids, markers) goes into `outbox`; whoever runs the shard takes
it from there and comes back with the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from odradek_broker.coordinator.runtime import Moment, Outcome, Reply
from odradek_broker.coordinator.timers import Timers
from odradek_broker.coordinator.transactions import deciding
from odradek_broker.coordinator.transactions.deciding import (
    AddCall,
    Call,
    EndCall,
    InitCall,
    Step,
)
from odradek_broker.coordinator.transactions.interfaces import MarkerRequest, TopicPartition
from odradek_broker.coordinator.transactions.markers import MarkerAnswer, MarkerProgress
from odradek_broker.coordinator.transactions.states import TransactionState, check_step
from odradek_broker.coordinator.transactions.transaction import (
    Transaction,
    decode,
    encode,
    tombstone,
)
from odradek_broker.fault_points import NO_FAULTS, FaultPoint, FaultPoints
from odradek_broker.later import Later
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored import transaction_log

_E = ErrorCode
_S = TransactionState

#: What clients are told of a storage error behind a transaction's record (T-04).
TRANSACTION_APPEND_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
    _E.MESSAGE_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
    _E.RECORD_LIST_TOO_LARGE: _E.UNKNOWN_SERVER_ERROR,
}

#: Tombstones in one batch. What is left over is written at the next look.
TOMBSTONES_MAX = 1_000
_EXPIRY_PAUSE_MS = 1_000
#: How long partitions for the next transaction wait for the end of the last one (T-68).
PARK_MS = 2_000
#: How long a client's AddPartitionsToTxn does, which has an answer for it (T-20): shorter than the
#: pause that clients make after CONCURRENT_TRANSACTIONS, longer than markers usually take.
PARK_CLIENT_MS = 50
#: How many calls of one id may wait like that.
PARKED_MAX = 100


class TransactionSettings(Protocol):
    """What the coordinator needs of the broker's settings."""

    @property
    def transaction_max_timeout_ms(self) -> int: ...
    @property
    def transactional_id_expiration_ms(self) -> int: ...
    @property
    def transaction_abort_timed_out_transaction_cleanup_interval_ms(self) -> int: ...
    @property
    def transaction_remove_expired_transaction_cleanup_interval_ms(self) -> int: ...
    @property
    def transaction_two_phase_commit_enable(self) -> bool: ...
    @property
    def max_transactional_ids(self) -> int: ...


class Deadline(Enum):
    """What a timer is for."""

    TIMEOUTS = "look for transactions that ran out of time"
    EXPIRY = "look for ids that nobody uses"
    MARKERS = "write the markers that are left"
    PARKED = "give up waiting for the end of the last transaction"


class TimerName(NamedTuple):
    """One deadline; `number` tells the parked calls of an id apart."""

    kind: Deadline
    transactional_id: str = ""
    number: int = 0


class InitAnswer(NamedTuple):
    """The answer to InitProducerId."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1
    ongoing_producer_id: int = -1
    ongoing_epoch: int = -1


class EndAnswer(NamedTuple):
    """The answer to EndTxn: the identity to go on with."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


PartitionCodes = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """To be written by the partitions' leaders; the codes come back to `markers_answered`."""

    transactional_id: str
    request: MarkerRequest


@dataclass(frozen=True, slots=True)
class TakeProducerId:
    """A producer id is needed. `decide` goes on with it, or with None if there is none."""

    transactional_id: str
    decide: Callable[[int | None, Moment], Outcome]
    refuse: Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class DecideAgain:
    """A call that was parked may go on."""

    decide: Callable[[Moment], Outcome]


Effect = SendMarkers | TakeProducerId | DecideAgain


class Doing(Enum):
    """What an event is about: a request by its name in Kafka, or the coordinator's own doing."""

    INIT = "InitProducerId"
    ADD = "AddPartitionsToTxn"
    VERIFY = "verification of a batch"
    COMMIT = "EndTxn(commit)"
    ABORT = "EndTxn(abort)"
    TIMEOUT = "timeout"
    EXPIRED = "expired"
    RESUMED = "resumed"
    MARKERS_SENT = "markers sent"
    MARKERS_AGAIN = "markers sent again"
    MARKERS_STOPPED = "markers stopped"
    MARKERS_WRITTEN = "markers written"


#: Where a broker under test may die once a record is durable: by its state, or else by what wrote it.
_DECISION_DURABLE = {
    _S.PREPARE_COMMIT: FaultPoint.PREPARE_COMMIT_DURABLE,
    _S.PREPARE_ABORT: FaultPoint.PREPARE_ABORT_DURABLE,
}
_STEP_DURABLE = {
    Doing.INIT: FaultPoint.INIT_PRODUCER_ID_DURABLE,
    Doing.ADD: FaultPoint.PARTITIONS_ADDED_DURABLE,
}


class Event(NamedTuple):
    """Something that happened to a transactional id, for people (`odradek explain`).

    `after` is None where nothing changed. `pending`: the state of the step that was on its way.
    `places`, `answer` and `pause_ms`: of markers.
    """

    wall_ms: int
    transactional_id: str
    what: Doing
    before: Transaction | None
    after: Transaction | None
    error: ErrorCode = ErrorCode.NONE
    call: Call | None = None
    pending: TransactionState | None = None
    places: Sequence[TopicPartition] = ()
    answer: MarkerAnswer = MarkerAnswer.DONE
    pause_ms: int = 0


Observer = Callable[[Event], None]


class _Parked(NamedTuple):
    call: AddCall
    later: Later[PartitionCodes]
    until_ms: int


A = TypeVar("A")


def _ignore(_: Event) -> None:
    """Nobody listens."""


class TransactionShard:
    """Decides for its ids; see `runtime.Core` for who calls what.

    `coordinator_epoch`: the partition's leader epoch, in every marker (T-57). `exists`: is there
    such a partition? Markers for deleted topics are not needed (T-43). `has_room`: may there be
    another id (D11)?
    """

    def __init__(
        self,
        settings: TransactionSettings,
        coordinator_epoch: int,
        exists: Callable[[TopicPartition], bool],
        observer: Observer = _ignore,
        faults: FaultPoints = NO_FAULTS,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self.timers: Timers[TimerName] = Timers()
        self.transactions: dict[str, Transaction] = {}
        self.outbox: deque[Effect] = deque()
        self.coordinator_epoch = coordinator_epoch
        self._settings = settings
        self._exists = exists
        self._observer = observer
        self._faults = faults
        self._has_room = has_room
        #: Ids with an open transaction: what the timeout scan looks at.
        self._ongoing: set[str] = set()
        #: Steps whose record is not durable yet, and those that wait for a producer id.
        self._pending: dict[str, _Pending] = {}
        self._markers: dict[str, MarkerProgress] = {}
        self._parked: dict[TimerName, _Parked] = {}
        self._parked_of: dict[str, list[TimerName]] = {}
        self._next_parked = 0

    # --- Replay: the only place where durable state changes ---

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take one record; keys of versions that we do not know are skipped.

        DecodeError for a record that cannot be read.
        """
        decoded = transaction_log.decode_key(key)
        if decoded is None:
            return
        name = decoded.transactional_id
        if value is None:
            self.transactions.pop(name, None)
            self._ongoing.discard(name)
            return
        held = self.transactions[name] = decode(name, value)
        if held.state is _S.ONGOING:
            self._ongoing.add(name)
        else:
            self._ongoing.discard(name)

    def loaded(self, moment: Moment) -> Outcome:
        """T-50e to T-50g: end what was decided; T-55, T-06: begin to look at the clock."""
        self._set_scan(moment)
        self._set_expiry(moment, self._expiry_interval_ms)
        for name, held in self.transactions.items():
            if held.state.is_prepared:
                places = sorted(held.partitions)
                event = Event(moment.wall_ms, name, Doing.RESUMED, held, None, places=places)
                self._observer(event)
                # One at a time: each may write a record.
                self.outbox.append(DecideAgain(lambda then, name=name: self._finish(name, then)))  # type: ignore[misc]
        return Outcome()

    def closed(self, error: ErrorCode) -> Outcome:
        """This broker coordinates these ids no more."""
        out = Outcome()
        for timer, parked in self._parked.items():
            self.timers.cancel(timer)
            codes = dict.fromkeys(parked.call.partitions, error)
            out.replies.append(_reply(parked.later, codes, lambda _, codes=codes: codes))  # type: ignore[misc]
        self._parked.clear()
        self._parked_of.clear()
        self._markers.clear()
        effects, self.outbox = list(self.outbox), deque()
        for effect in effects:
            if isinstance(effect, TakeProducerId):
                effect.refuse(error)
        return out

    def on_timer(self, name: TimerName, moment: Moment) -> Outcome:
        if name.kind is Deadline.TIMEOUTS:
            self._scan(moment)
            return Outcome()
        if name.kind is Deadline.EXPIRY:
            return self._expire(moment)
        if name.kind is Deadline.MARKERS:
            return self._send_markers(name.transactional_id, moment)
        parked = self._unpark(name)
        if parked is None:
            return Outcome()
        codes = dict.fromkeys(parked.call.partitions, _E.CONCURRENT_TRANSACTIONS)
        return Outcome(replies=[_reply(parked.later, codes, lambda _: codes)])

    # --- InitProducerId ---

    def init(
        self,
        call: InitCall,
        later: Later[InitAnswer],
        moment: Moment,
        fresh_id: int | None = None,
    ) -> Outcome:
        """T-11, T-12. The call itself was found valid (T-10)."""
        name = call.transactional_id
        if self._is_busy(name):
            answer = InitAnswer(_E.CONCURRENT_TRANSACTIONS)
            reply = _reply(later, answer, InitAnswer)
            return self._refused(Doing.INIT, call, answer.error, reply, moment)
        if name not in self.transactions and not self._has_room():
            refusal = InitAnswer(_E.POLICY_VIOLATION)
            reply = _reply(later, refusal, InitAnswer)
            return self._refused(Doing.INIT, call, refusal.error, reply, moment)
        step = deciding.init(self.transactions.get(name), call, fresh_id, moment.wall_ms)
        if step.needs_producer_id:
            return self._take_producer_id(
                name,
                lambda given, then: self.init(call, later, then, given),
                lambda error: later.resolve(InitAnswer(error)),
            )
        answer = InitAnswer(step.error)
        if step.error is _E.NONE:
            answer = InitAnswer(
                step.error,
                step.producer_id,
                step.epoch,
                step.ongoing_producer_id,
                step.ongoing_epoch,
            )
        reply = _reply(later, answer, InitAnswer)
        if step.after is None:
            return self._refused(Doing.INIT, call, step.error, reply, moment)
        fences = step.after.state is _S.PREPARE_ABORT
        return self._record(Doing.INIT, step.after, [reply], moment, call, fences=fences)

    # --- Partitions ---

    def add(
        self, call: AddCall, later: Later[PartitionCodes], moment: Moment, until_ms: int
    ) -> Outcome:
        """T-20: all of the partitions, or none; one code for all of them.

        Until `until_ms` of the monotonic clock the call waits for the end of the producer's last
        transaction before it is answered CONCURRENT_TRANSACTIONS.
        """
        step = self._decide_add(call, moment)
        if step.error is _E.CONCURRENT_TRANSACTIONS and self._park(call, later, moment, until_ms):
            return Outcome()
        codes = dict.fromkeys(call.partitions, step.error)

        def refused(error: ErrorCode) -> PartitionCodes:
            return dict.fromkeys(call.partitions, error)

        reply = _reply(later, codes, refused)
        if step.after is None:
            return self._refused(Doing.ADD, call, step.error, reply, moment)
        return self._record(Doing.ADD, step.after, [reply], moment, call)

    def verify(self, call: AddCall, later: Later[PartitionCodes], moment: Moment) -> Outcome:
        """T-22, T-62: are they in?"""
        codes = deciding.verify(self.transactions.get(call.transactional_id), call)
        reply = _reply(later, codes, lambda error: dict.fromkeys(call.partitions, error))
        refused = [part for part, code in codes.items() if code is not _E.NONE]
        if not refused:
            return Outcome(replies=[reply])
        return self._refused(Doing.VERIFY, call, codes[refused[0]], reply, moment, refused)

    def _decide_add(self, call: AddCall, moment: Moment) -> Step:
        name = call.transactional_id
        pending = self._pending.get(name)
        blocked = pending is not None and pending.state is not _S.ONGOING
        return deciding.add(self.transactions.get(name), call, blocked, moment.wall_ms)

    # --- EndTxn ---

    def end(
        self,
        call: EndCall,
        later: Later[EndAnswer],
        moment: Moment,
        fresh_id: int | None = None,
    ) -> Outcome:
        """T-30, T-65. The answer goes when the decision is durable, before any marker (T-31)."""
        name = call.transactional_id
        what = Doing.COMMIT if call.commit else Doing.ABORT
        step = deciding.end(
            self.transactions.get(name), call, self._is_busy(name), fresh_id, moment.wall_ms
        )
        if step.needs_producer_id:
            return self._take_producer_id(
                name,
                lambda given, then: self.end(call, later, then, given),
                lambda error: later.resolve(EndAnswer(error)),
            )
        answer = EndAnswer(step.error, step.producer_id, step.epoch)
        reply = _reply(later, answer, EndAnswer)
        if step.after is None:
            return self._refused(what, call, step.error, reply, moment)
        return self._record(what, step.after, [reply], moment, call)

    # --- One step: decide, record, and go on when it is durable (T-03) ---

    def _is_busy(self, name: str) -> bool:
        """Is a step on its way: one that is not durable, or a decision whose Complete record is not?"""
        return name in self._pending or name in self._markers

    def _record(
        self,
        what: Doing,
        after: Transaction,
        replies: list[Reply],
        moment: Moment,
        call: Call | None = None,
        *,
        fences: bool = False,
    ) -> Outcome:
        """`fences`: the step goes through PrepareEpochFence, on the coordinator's own account."""
        name = after.transactional_id
        before = self.transactions.get(name)
        state = before.state if before is not None else _S.EMPTY
        if fences:
            check_step(name, state, _S.PREPARE_EPOCH_FENCE)
            state = _S.PREPARE_EPOCH_FENCE
        check_step(name, state, after.state)
        pending = self._pending[name] = _Pending(state if fences else after.state)
        # Told now: what is refused because of this step comes after it.
        self._observer(Event(moment.wall_ms, name, what, before, after, call=call))
        if after.state.is_prepared:
            self._faults.reach(FaultPoint.PREPARE_DECIDED)
            self._faults.reach(FaultPoint.PREPARE_TORN)
        durable = _DECISION_DURABLE.get(after.state) or _STEP_DURABLE[what]

        def settled(error: ErrorCode, then: Moment) -> Outcome:
            if self._pending.get(name) is pending:
                del self._pending[name]
            if error is not _E.NONE:
                self._observer(Event(then.wall_ms, name, what, before, after, error, call))
                return Outcome()
            self._faults.reach(durable)
            return self._finish(name, then) if after.state.is_prepared else Outcome()

        return Outcome([encode(after)], replies, settled, TRANSACTION_APPEND_ERRORS)

    def _refused(
        self,
        what: Doing,
        call: Call,
        error: ErrorCode,
        reply: Reply,
        moment: Moment,
        places: Sequence[TopicPartition] = (),
    ) -> Outcome:
        """Nothing to write, but what was read must be durable before it is told."""
        if error is not _E.NONE:
            name = call.transactional_id
            held, pending = self.transactions.get(name), self._pending.get(name)
            state = None if pending is None else pending.state
            event = Event(moment.wall_ms, name, what, held, None, error, call, state, places)
            self._observer(event)
        return Outcome(replies=[reply])

    def _take_producer_id(
        self,
        name: str,
        decide: Callable[[int | None, Moment], Outcome],
        refuse: Callable[[ErrorCode], None],
    ) -> Outcome:
        """Ask for an id; until it is there, the id that needs it has a step pending."""
        pending = self._pending[name] = _Pending(_S.EMPTY)

        def go_on(given: int | None, moment: Moment) -> Outcome:
            if self._pending.get(name) is pending:
                del self._pending[name]
            if given is None:
                refuse(_E.COORDINATOR_NOT_AVAILABLE)
                return Outcome()
            return decide(given, moment)

        self.outbox.append(TakeProducerId(name, go_on, refuse))
        return Outcome()

    # --- Markers (T-33, T-40, T-43) ---

    def _finish(self, name: str, moment: Moment) -> Outcome:
        """The decision is durable: write the markers, then that they are written."""
        held = self.transactions.get(name)
        if held is None or not held.state.is_prepared:
            return Outcome()
        self._markers[name] = MarkerProgress(held, self.coordinator_epoch)
        return self._send_markers(name, moment)

    def _send_markers(self, name: str, moment: Moment) -> Outcome:
        progress = self._markers.get(name)
        if progress is None or progress.in_flight:
            return Outcome()
        if not progress.remaining:
            return self._complete(name, moment)
        progress.in_flight = True
        request = progress.request()
        held = progress.transaction
        self._observer(
            Event(moment.wall_ms, name, Doing.MARKERS_SENT, held, None, places=request.partitions)
        )
        self.outbox.append(SendMarkers(name, request))
        return Outcome()

    def markers_answered(
        self, sent: SendMarkers, codes: Mapping[TopicPartition, ErrorCode], moment: Moment
    ) -> Outcome:
        """The leaders' answers to one `SendMarkers`."""
        name = sent.transactional_id
        progress = self._markers.get(name)
        if progress is None or not progress.in_flight:
            return Outcome()
        found = progress.answered(codes, self._exists)
        for answer in (MarkerAnswer.STALE, MarkerAnswer.FAILED):
            if answer in found:
                del self._markers[name]
                self._tell_of_markers(name, found[answer], codes, answer, moment)
                return Outcome()
        if progress.remaining:
            again = MarkerAnswer.RETRY
            pause_ms = progress.backoff_ms()
            self._tell_of_markers(name, found[again], codes, again, moment, pause_ms)
            self._retry_markers(name, progress, moment)
            return Outcome()
        self._faults.reach(FaultPoint.ALL_MARKERS_DURABLE)
        return self._complete(name, moment)

    def _tell_of_markers(
        self,
        name: str,
        places: Sequence[TopicPartition],
        codes: Mapping[TopicPartition, ErrorCode],
        answer: MarkerAnswer,
        moment: Moment,
        pause_ms: int = 0,
    ) -> None:
        """These partitions did not take their markers: now, or for good."""
        doing = Doing.MARKERS_AGAIN if answer is MarkerAnswer.RETRY else Doing.MARKERS_STOPPED
        error = codes.get(places[0], _E.REQUEST_TIMED_OUT)
        held = self.transactions.get(name)
        self._observer(
            Event(
                moment.wall_ms,
                name,
                doing,
                held,
                None,
                error,
                places=places,
                answer=answer,
                pause_ms=pause_ms,
            )
        )

    def _retry_markers(self, name: str, progress: MarkerProgress, moment: Moment) -> None:
        timer = TimerName(Deadline.MARKERS, name)
        self.timers.set(timer, moment.now_ms + progress.backoff_ms())

    def _complete(self, name: str, moment: Moment) -> Outcome:
        """T-33. Later requests build on it at once; their records come after this one."""
        before = self.transactions[name]
        after = deciding.complete(before, moment.wall_ms)
        check_step(name, before.state, after.state)
        doing = Doing.MARKERS_WRITTEN
        self._observer(Event(moment.wall_ms, name, doing, before, after))

        def settled(error: ErrorCode, then: Moment) -> Outcome:
            progress = self._markers.get(name)
            if error is not _E.NONE:
                self._observer(Event(then.wall_ms, name, doing, before, after, error))
                if progress is not None:
                    progress.attempts += 1
                    self._retry_markers(name, progress, then)
                return Outcome()
            self._markers.pop(name, None)
            return Outcome()

        for timer in self._parked_of.get(name, ()):
            self.outbox.append(DecideAgain(lambda then, timer=timer: self._resume(timer, then)))  # type: ignore[misc]
        return Outcome([encode(after)], [], settled, TRANSACTION_APPEND_ERRORS)

    # --- Waiting for the end of the last transaction (T-68) ---

    def _park(
        self, call: AddCall, later: Later[PartitionCodes], moment: Moment, until_ms: int
    ) -> bool:
        """Wait, if waiting can help: a decided transaction is being ended, and by us."""
        name = call.transactional_id
        held = self.transactions.get(name)
        if held is None or not held.state.is_prepared or until_ms <= moment.now_ms:
            return False
        if len(self._parked_of.get(name, ())) >= PARKED_MAX:
            return False
        self._next_parked += 1
        timer = TimerName(Deadline.PARKED, name, self._next_parked)
        self._parked_of.setdefault(name, []).append(timer)
        self._parked[timer] = _Parked(call, later, until_ms)
        self.timers.set(timer, until_ms)
        return True

    def _unpark(self, timer: TimerName) -> _Parked | None:
        parked = self._parked.pop(timer, None)
        if parked is not None:
            self.timers.cancel(timer)
            waiting = self._parked_of[timer.transactional_id]
            waiting.remove(timer)
            if not waiting:
                del self._parked_of[timer.transactional_id]
        return parked

    def _resume(self, timer: TimerName, moment: Moment) -> Outcome:
        parked = self._unpark(timer)
        if parked is None:
            return Outcome()
        if parked.later.abandoned:
            parked.later.resolve(dict.fromkeys(parked.call.partitions, _E.CONCURRENT_TRANSACTIONS))
            return Outcome()
        return self.add(parked.call, parked.later, moment, parked.until_ms)

    # --- Timeouts (T-55) ---

    def _set_scan(self, moment: Moment) -> None:
        interval_ms = self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self.timers.set(TimerName(Deadline.TIMEOUTS), moment.now_ms + interval_ms)

    def _scan(self, moment: Moment) -> None:
        self._set_scan(moment)
        for name in list(self._ongoing):
            if self._timed_out(name, moment):
                self.outbox.append(
                    DecideAgain(lambda then, name=name: self.abort_timed_out(name, then))  # type: ignore[misc]
                )

    def _timed_out(self, name: str, moment: Moment) -> bool:
        held = self.transactions.get(name)
        return (
            held is not None
            and held.state is _S.ONGOING
            and held.has_timeout
            and name not in self._pending
            and moment.wall_ms > held.start_ms + held.timeout_ms
        )

    def abort_timed_out(self, name: str, moment: Moment, fresh_id: int | None = None) -> Outcome:
        """Fence the producer and abort, if its time is still over."""
        if not self._timed_out(name, moment):
            return Outcome()
        step = deciding.fence(self.transactions[name], fresh_id, moment.wall_ms)
        if step.needs_producer_id:
            return self._take_producer_id(
                name,
                lambda given, then: self.abort_timed_out(name, then, given),
                lambda error: None,  # The next scan finds it again.
            )
        assert step.after is not None
        return self._record(Doing.TIMEOUT, step.after, [], moment, fences=True)

    # --- Expiry of ids (T-06) ---

    @property
    def _expiry_interval_ms(self) -> int:
        return self._settings.transaction_remove_expired_transaction_cleanup_interval_ms

    def _set_expiry(self, moment: Moment, wait_ms: int) -> None:
        self.timers.set(TimerName(Deadline.EXPIRY), moment.now_ms + wait_ms)

    def _expire(self, moment: Moment) -> Outcome:
        oldest_ms = moment.wall_ms - self._settings.transactional_id_expiration_ms
        expired = []
        for name, held in self.transactions.items():
            if held.state.is_idle and held.last_update_ms < oldest_ms and not self._is_busy(name):
                expired.append(held)
                if len(expired) == TOMBSTONES_MAX:
                    break
        more = len(expired) == TOMBSTONES_MAX
        self._set_expiry(moment, _EXPIRY_PAUSE_MS if more else self._expiry_interval_ms)
        for held in expired:
            check_step(held.transactional_id, held.state, _S.DEAD)
            self._pending[held.transactional_id] = _Pending(_S.DEAD)

        def settled(error: ErrorCode, then: Moment) -> Outcome:
            for held in expired:
                name = held.transactional_id
                self._pending.pop(name, None)
                self._observer(Event(then.wall_ms, name, Doing.EXPIRED, held, None, error))
            return Outcome()

        records = [tombstone(held.transactional_id) for held in expired]
        return Outcome(records, [], settled if expired else None, TRANSACTION_APPEND_ERRORS)


class _Pending:
    """A step that is on its way to `state`; each has its own object."""

    __slots__ = ("state",)

    def __init__(self, state: TransactionState) -> None:
        self.state = state


def _reply(later: Later[A], answer: A, refused: Callable[[ErrorCode], A]) -> Reply:
    return Reply(later, answer, refused)
