"""The core of one partition of `__transaction_state`: its transactional ids. A runtime runs the
core.

Records are replayed when they are appended, and answers wait until the records are durable (T-03).
Between replay and durability a transition is pending (`PendingTransitions`), and requests that
depend on it are answered CONCURRENT_TRANSACTIONS, except requests to add further partitions to an
open transaction, which are accepted. Partitions for the next transaction wait while the last one is
being ended (`Parking`, T-68): markers usually take less time than the pause that clients make after
CONCURRENT_TRANSACTIONS.

Requests to the rest of the broker (for producer ids and markers) go into `outbox`; `Effects`
carries them out and calls back with the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from odradek_broker.coordinator.runtime import CoreOutcome, Decision, Instant, Reply
from odradek_broker.coordinator.timers import Timers
from odradek_broker.coordinator.transactions import decisions
from odradek_broker.coordinator.transactions.completion import (
    Completion,
    DecideAgain,
    Effect,
    PartitionCodes,
    TakeProducerId,
    TransactionTimer,
    TransactionTimerName,
)
from odradek_broker.coordinator.transactions.decisions import (
    AddCall,
    Call,
    EndAnswer,
    EndCall,
    InitAnswer,
    InitCall,
    decide_add_partitions,
    decide_end,
    decide_init_producer_id,
    fence_producer,
    verify_partitions,
)
from odradek_broker.coordinator.transactions.events import (
    Cause,
    CompletionResumed,
    IdExpired,
    Observer,
    RequestRefused,
    StepDecided,
    StepNotRecorded,
    TransactionTimedOut,
    unobserved,
)
from odradek_broker.coordinator.transactions.transaction import (
    TRANSACTION_APPEND_ERRORS,
    Transaction,
    TransactionState,
    check_step,
    decode,
    decode_in_pieces,
    encode,
    encode_in_pieces,
    tombstone,
)
from odradek_broker.deferred import Deferred
from odradek_broker.platform.fault_points import NO_FAULT_POINTS, FaultPoint, FaultPoints
from odradek_broker.slices import in_pieces
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.stored import transaction_log


class TransactionCoordinatorSettings(Protocol):
    """The settings of the broker that the coordinator reads."""

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


_E = ErrorCode
_S = TransactionState

#: Fault points at which a test can end the broker once a record is durable. A key is the recorded
#: state, or the cause of the record.
_DECISION_DURABLE = {
    _S.PREPARE_COMMIT: FaultPoint.PREPARE_COMMIT_DURABLE,
    _S.PREPARE_ABORT: FaultPoint.PREPARE_ABORT_DURABLE,
}
_STEP_DURABLE = {
    Cause.INIT: FaultPoint.INIT_PRODUCER_ID_DURABLE,
    Cause.ADD: FaultPoint.PARTITIONS_ADDED_DURABLE,
}


class PendingTransitions:
    """The transitions of one shard's transactional ids that are decided and not durable yet, and
    those that wait for a producer id (T-03); `transactions` and `outbox` are the shard's."""

    def __init__(
        self,
        transactions: Mapping[str, Transaction],
        outbox: deque[Effect],
        completion: Completion,
        observer: Observer,
        fault_points: FaultPoints,
    ) -> None:
        self._transactions = transactions
        self._outbox = outbox
        self._completion = completion
        self._observer = observer
        self._fault_points = fault_points
        self._targets: dict[str, _Target] = {}

    def target(self, name: str) -> TransactionState | None:
        """The state to which a pending transition leads; None if there is none."""
        pending = self._targets.get(name)
        return None if pending is None else pending.state

    def is_busy(self, name: str) -> bool:
        """True while a transition is not durable, or a decided transaction has no durable Complete
        record."""
        return name in self._targets or name in self._completion.under_way

    def record(
        self,
        cause: Cause,
        after: Transaction,
        replies: list[Reply[Any]],
        now: Instant,
        call: Call | None = None,
        *,
        fences: bool = False,
    ) -> Decision:
        """Decide on a transition. `fences`: the transition goes through PrepareEpochFence, because
        the coordinator itself fences the producer."""
        name = after.transactional_id
        before = self._transactions.get(name)
        state = before.state if before is not None else _S.EMPTY
        if fences:
            check_step(name, state, _S.PREPARE_EPOCH_FENCE)
            state = _S.PREPARE_EPOCH_FENCE
        check_step(name, state, after.state)
        pending = self._targets[name] = _Target(state if fences else after.state)
        # The observer is called now, so that this event comes before the refusals that the pending
        # transition causes.
        if call is not None:
            self._observer(StepDecided(name, cause, call, before, after))
        elif before is not None:
            self._observer(TransactionTimedOut(name, before, after, now.wall_ms))
        if after.state.is_prepared:
            self._fault_points.reach(FaultPoint.PREPARE_DECIDED)
            self._fault_points.reach(FaultPoint.PREPARE_TORN)
        durable = _DECISION_DURABLE.get(after.state) or _STEP_DURABLE[cause]

        def after_append(error: ErrorCode, then: Instant) -> CoreOutcome:
            if self._targets.get(name) is pending:
                del self._targets[name]
            if error is not _E.NONE:
                self._observer(StepNotRecorded(name, cause, call, error))
                return CoreOutcome()
            self._fault_points.reach(durable)
            return self._completion.begin(name, then) if after.state.is_prepared else CoreOutcome()

        async def record_in_pieces() -> CoreOutcome:
            record = await encode_in_pieces(after)
            return CoreOutcome([record], replies, after_append, TRANSACTION_APPEND_ERRORS)

        if len(after.partitions) > in_pieces.SIZE:
            return record_in_pieces()
        return CoreOutcome([encode(after)], replies, after_append, TRANSACTION_APPEND_ERRORS)

    def refused(
        self,
        cause: Cause,
        call: Call,
        error: ErrorCode,
        reply: Reply[Any],
        now: Instant,
        partitions: Sequence[TopicPartition] = (),
    ) -> CoreOutcome:
        """Answer a refusal. The answer has no records, but waits until the state that it depends on
        is durable."""
        if error is not _E.NONE:
            name = call.transactional_id
            current, state = self._transactions.get(name), self.target(name)
            self._observer(RequestRefused(name, cause, call, error, current, state, partitions))
        return CoreOutcome(replies=[reply])

    def take_producer_id(
        self,
        name: str,
        decide: Callable[[int | None, Instant], Decision],
        refuse: Callable[[ErrorCode], None],
    ) -> CoreOutcome:
        """Request a producer id; until it arrives, the transactional id has a pending
        transition.
        """
        pending = self._targets[name] = _Target(_S.EMPTY)

        def go_on(given: int | None, now: Instant) -> Decision:
            if self._targets.get(name) is pending:
                del self._targets[name]
            if given is None:
                refuse(_E.COORDINATOR_NOT_AVAILABLE)
                return CoreOutcome()
            return decide(given, now)

        self._outbox.append(TakeProducerId(name, go_on, refuse))
        return CoreOutcome()

    def remove(self, expired: Sequence[Transaction]) -> CoreOutcome:
        """Remove unused ids (T-06)."""
        if not expired:
            return CoreOutcome()
        for current in expired:
            check_step(current.transactional_id, current.state, _S.DEAD)
            self._targets[current.transactional_id] = _Target(_S.DEAD)

        def after_append(error: ErrorCode, then: Instant) -> CoreOutcome:
            for current in expired:
                name = current.transactional_id
                self._targets.pop(name, None)
                # After an error the next scan finds the id again.
                if error is _E.NONE:
                    self._observer(IdExpired(name, current, then.wall_ms))
            return CoreOutcome()

        records = [tombstone(current.transactional_id) for current in expired]
        return CoreOutcome(records, [], after_append, TRANSACTION_APPEND_ERRORS)


class _Target:
    """The state to which a transition leads. Each transition has its own object, so that
    transitions to equal states are distinguished."""

    __slots__ = ("state",)

    def __init__(self, state: TransactionState) -> None:
        self.state = state


#: The longest time for which a request to add the partitions of a batch waits (T-68).
PARK_MS = 2_000

#: The longest time for which a client's AddPartitionsToTxn waits (T-20). It is shorter than the
#: backoff of clients after CONCURRENT_TRANSACTIONS, and longer than markers usually take.
PARK_CLIENT_MS = 50

#: The limit of parked calls per transactional id.
PARKED_MAX = 100


class ParkedCall(NamedTuple):
    """A call that waits for the end of a transaction, at most until `until_ms` of the monotonic
    clock.
    """

    call: AddCall
    deferred: Deferred[PartitionCodes]
    until_ms: int

    def answer(self, error: ErrorCode) -> Reply[PartitionCodes]:
        """Make the answer with this code for every partition. The code stays the same if earlier
        records cannot be made durable."""
        codes = dict.fromkeys(self.call.partitions, error)
        return Reply(self.deferred, codes, lambda _: codes)


class Parking:
    """The parked calls of one shard. A parked call is identified by the name of its deadline in the
    shard's timers."""

    def __init__(self, timers: Timers[TransactionTimerName]) -> None:
        self._timers = timers
        self.calls: dict[TransactionTimerName, ParkedCall] = {}
        self._of_id: dict[str, list[TransactionTimerName]] = {}
        self._next_number = 0

    def park(self, call: AddCall, deferred: Deferred[PartitionCodes], until_ms: int) -> bool:
        """Park the call until `until_ms`; False if too many calls of the id are parked."""
        name = call.transactional_id
        if len(self._of_id.get(name, ())) >= PARKED_MAX:
            return False
        self._next_number += 1
        timer = TransactionTimerName(TransactionTimer.PARKED, name, self._next_number)
        self._of_id.setdefault(name, []).append(timer)
        self.calls[timer] = ParkedCall(call, deferred, until_ms)
        self._timers.set(timer, until_ms)
        return True

    def of_id(self, transactional_id: str) -> list[TransactionTimerName]:
        """The parked calls of an id, in the order in which they were parked."""
        return list(self._of_id.get(transactional_id, ()))

    def take(self, timer: TransactionTimerName) -> ParkedCall | None:
        """Remove and return a parked call; None if it was removed before."""
        parked = self.calls.pop(timer, None)
        if parked is not None:
            self._timers.cancel(timer)
            waiting = self._of_id[timer.transactional_id]
            waiting.remove(timer)
            if not waiting:
                del self._of_id[timer.transactional_id]
        return parked

    def clear(self) -> list[ParkedCall]:
        """Remove and return all parked calls."""
        return [parked for timer in list(self.calls) if (parked := self.take(timer)) is not None]


_SCAN = TransactionTimerName(TransactionTimer.TIMEOUTS)
#: The limits of ids that are looked at, and of tombstones, in one turn of the loop. The check for
#: expired ids goes on in the next turn, or after a pause if it has found so many.
EXPIRY_SLICE_IDS = 200
TOMBSTONES_MAX = 25
_EXPIRY_PAUSE_MS = 25
#: The most transactions that a scan for timeouts aborts; others are left to the next scan, after a
#: pause.
TIMED_OUT_MAX = 200
_SCAN_PAUSE_MS = 1_000


class TransactionShard:
    """The core of one partition of `__transaction_state`; see `runtime.Core`.

    `coordinator_epoch` and `exists`: see `Completion`. `has_room`: true if there is room for
    another id (D11).
    """

    def __init__(
        self,
        settings: TransactionCoordinatorSettings,
        coordinator_epoch: int,
        exists: Callable[[TopicPartition], bool],
        observer: Observer = unobserved,
        fault_points: FaultPoints = NO_FAULT_POINTS,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self.timers: Timers[TransactionTimerName] = Timers()
        self.transactions: dict[str, Transaction] = {}
        self.outbox: deque[Effect] = deque()
        self.coordinator_epoch = coordinator_epoch
        self._settings = settings
        self._observer = observer
        self._has_room = has_room
        #: Id with an open transaction -> the start of the transaction by the monotonic clock. The
        #: oldest transaction comes first, for the scan for timeouts.
        self._ongoing: dict[str, int] = {}
        self._added_at_ms = 0
        #: The ids that the present check for expired ids has yet to look at.
        self._unchecked: deque[str] = deque()
        self.parking = Parking(self.timers)
        self.completion = Completion(
            self.transactions,
            self.timers,
            self.outbox,
            coordinator_epoch,
            exists,
            observer,
            fault_points,
            self._resume_parked,
        )
        self._pending = PendingTransitions(
            self.transactions, self.outbox, self.completion, observer, fault_points
        )

    # --- Replay: the only place where durable state changes ---

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Apply one record; keys of unknown versions are skipped.

        Raises DecodeError for a record that cannot be read.
        """
        decoded = transaction_log.decode_key(key)
        if decoded is None:
            return
        name = decoded.transactional_id
        if value is None:
            self.transactions.pop(name, None)
            self._ongoing.pop(name, None)
            return
        self._replay_transaction(decode(name, value))

    async def replay_in_pieces(self, key: bytes, value: bytes) -> None:
        """Like `replay`, for a record with a large value."""
        decoded = transaction_log.decode_key(key)
        if decoded is not None:
            self._replay_transaction(await decode_in_pieces(decoded.transactional_id, value))

    def _replay_transaction(self, current: Transaction) -> None:
        name = current.transactional_id
        self.transactions[name] = current
        if current.state is _S.ONGOING:
            self._ongoing.setdefault(name, self._added_at_ms)
            if _SCAN not in self.timers:
                self._set_scan(self._added_at_ms)
        else:
            self._ongoing.pop(name, None)

    def loaded(self, now: Instant) -> CoreOutcome:
        """Resume the ends of decided transactions (T-50e to T-50g). Begin the scan for expired ids
        (T-06) and, if a transaction is ongoing, the scan for timeouts (T-55)."""
        if self._ongoing:
            self._set_scan(now.monotonic_ms)
        self._set_expiry(now, self._expiry_interval_ms)
        for name in self._ongoing:
            # Only the wall clock shows for how long transactions were open before this start.
            open_ms = max(now.wall_ms - self.transactions[name].start_ms, 0)
            self._ongoing[name] = now.monotonic_ms - open_ms
        for name, current in self.transactions.items():
            if current.state.is_prepared:
                partitions = sorted(current.partitions)
                self._observer(CompletionResumed(name, current, partitions))
                # Each transaction is resumed by its own effect, because each may write a record.
                self.outbox.append(DecideAgain(partial(self.completion.begin, name)))
        return CoreOutcome()

    def closed(self, error: ErrorCode) -> CoreOutcome:
        """End the shard: this broker does not coordinate its ids any more."""
        out = CoreOutcome(replies=[parked.answer(error) for parked in self.parking.clear()])
        self.completion.clear()
        effects = list(self.outbox)
        self.outbox.clear()
        for effect in effects:
            if isinstance(effect, TakeProducerId):
                effect.refuse(error)
        return out

    def on_timer(self, name: TransactionTimerName, now: Instant) -> Decision:
        if name == _SCAN:
            self._scan(now)
            return CoreOutcome()
        if name.kind is TransactionTimer.EXPIRY:
            return self._expire(now)
        if name.kind is TransactionTimer.TIMED_OUT:
            return self.abort_if(self._timed_out, name.transactional_id, now)
        if name.kind is TransactionTimer.MARKERS:
            return self.completion.send_markers(name.transactional_id, now)
        parked = self.parking.take(name)
        if parked is None:
            return CoreOutcome()
        return CoreOutcome(replies=[parked.answer(_E.CONCURRENT_TRANSACTIONS)])

    # --- InitProducerId ---

    def init(
        self,
        call: InitCall,
        deferred: Deferred[InitAnswer],
        now: Instant,
        fresh_id: int | None = None,
    ) -> Decision:
        """Decide an InitProducerId (T-11, T-12). The caller has checked the request itself
        (T-10)."""
        name = call.transactional_id
        if self._pending.is_busy(name):
            answer = InitAnswer(_E.CONCURRENT_TRANSACTIONS)
            reply = Reply(deferred, answer, InitAnswer)
            return self._pending.refused(Cause.INIT, call, answer.error, reply, now)
        if name not in self.transactions and not self._has_room():
            refusal = InitAnswer(_E.POLICY_VIOLATION)
            reply = Reply(deferred, refusal, InitAnswer)
            return self._pending.refused(Cause.INIT, call, refusal.error, reply, now)
        decision = decide_init_producer_id(self.transactions.get(name), call, fresh_id, now.wall_ms)
        if decision.needs_producer_id:
            return self._pending.take_producer_id(
                name,
                lambda given, then: self.init(call, deferred, then, given),
                lambda error: deferred.resolve(InitAnswer(error)),
            )
        answer = InitAnswer(decision.error)
        if decision.error is _E.NONE:
            answer = InitAnswer(
                decision.error,
                decision.producer_id,
                decision.epoch,
                decision.ongoing_producer_id,
                decision.ongoing_epoch,
            )
        reply = Reply(deferred, answer, InitAnswer)
        if decision.after is None:
            return self._pending.refused(Cause.INIT, call, decision.error, reply, now)
        fences = decision.after.state is _S.PREPARE_ABORT
        return self._pending.record(Cause.INIT, decision.after, [reply], now, call, fences=fences)

    # --- Partitions ---

    def add(
        self, call: AddCall, deferred: Deferred[PartitionCodes], now: Instant, until_ms: int
    ) -> Decision:
        """Add all partitions or none, with one code for all of them (T-20).

        Until `until_ms` of the monotonic clock the call waits for the end of the producer's last
        transaction before it is answered CONCURRENT_TRANSACTIONS.
        """
        decision = self._decide_add(call, now)
        if decision.error is _E.CONCURRENT_TRANSACTIONS and self._park(
            call, deferred, now, until_ms
        ):
            return CoreOutcome()
        codes = dict.fromkeys(call.partitions, decision.error)

        def refused(error: ErrorCode) -> PartitionCodes:
            return dict.fromkeys(call.partitions, error)

        reply = Reply(deferred, codes, refused)
        if decision.after is None:
            return self._pending.refused(Cause.ADD, call, decision.error, reply, now)
        self._added_at_ms = now.monotonic_ms
        return self._pending.record(Cause.ADD, decision.after, [reply], now, call)

    def verify(
        self, call: AddCall, deferred: Deferred[PartitionCodes], now: Instant
    ) -> CoreOutcome:
        """Verify that the partitions are in the transaction (T-22, T-62)."""
        codes = verify_partitions(self.transactions.get(call.transactional_id), call)
        reply = Reply(deferred, codes, lambda error: dict.fromkeys(call.partitions, error))
        refused = [part for part, code in codes.items() if code is not _E.NONE]
        if not refused:
            return CoreOutcome(replies=[reply])
        return self._pending.refused(Cause.VERIFY, call, codes[refused[0]], reply, now, refused)

    def _decide_add(self, call: AddCall, now: Instant) -> decisions.Decision:
        name = call.transactional_id
        blocked = self._pending.target(name) not in (None, _S.ONGOING)
        return decide_add_partitions(self.transactions.get(name), call, blocked, now.wall_ms)

    # --- EndTxn ---

    def end(
        self,
        call: EndCall,
        deferred: Deferred[EndAnswer],
        now: Instant,
        fresh_id: int | None = None,
    ) -> Decision:
        """Decide an EndTxn (T-30, T-65). The answer is sent when the decision is durable, before
        any marker (T-31)."""
        name = call.transactional_id
        cause = Cause.COMMIT if call.commit else Cause.ABORT
        decision = decide_end(
            self.transactions.get(name), call, self._pending.is_busy(name), fresh_id, now.wall_ms
        )
        if decision.needs_producer_id:
            return self._pending.take_producer_id(
                name,
                lambda given, then: self.end(call, deferred, then, given),
                lambda error: deferred.resolve(EndAnswer(error)),
            )
        answer = EndAnswer(decision.error, decision.producer_id, decision.epoch)
        reply = Reply(deferred, answer, EndAnswer)
        if decision.after is None:
            return self._pending.refused(cause, call, decision.error, reply, now)
        return self._pending.record(cause, decision.after, [reply], now, call)

    # --- Waiting for the end of the last transaction (T-68) ---

    def _park(
        self, call: AddCall, deferred: Deferred[PartitionCodes], now: Instant, until_ms: int
    ) -> bool:
        """Park the call if its producer's last transaction is being ended."""
        current = self.transactions.get(call.transactional_id)
        if current is None or not current.state.is_prepared or until_ms <= now.monotonic_ms:
            return False
        return self.parking.park(call, deferred, until_ms)

    def _resume_parked(self, name: str) -> None:
        for timer in self.parking.of_id(name):
            self.outbox.append(DecideAgain(partial(self._resume, timer)))

    def _resume(self, timer: TransactionTimerName, now: Instant) -> Decision:
        parked = self.parking.take(timer)
        if parked is None:
            return CoreOutcome()
        if parked.deferred.abandoned:
            return CoreOutcome(replies=[parked.answer(_E.CONCURRENT_TRANSACTIONS)])
        return self.add(parked.call, parked.deferred, now, parked.until_ms)

    # --- Timeouts (T-55) ---

    def _set_scan(self, now_ms: int) -> None:
        interval_ms = self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self.timers.set(_SCAN, now_ms + interval_ms)

    def _scan(self, now: Instant) -> None:
        # Shards without an ongoing transaction set no timer for the scan.
        if self._ongoing:
            self._set_scan(now.monotonic_ms)
        transactions, now_ms = self.transactions, now.monotonic_ms
        # Most have time left, and one look at two numbers shows it.
        late = [
            name
            for name, began_ms in self._ongoing.items()
            if began_ms + transactions[name].timeout_ms < now_ms
        ]
        if len(late) > TIMED_OUT_MAX:
            self.timers.set(_SCAN, now_ms + _SCAN_PAUSE_MS)
        for name in late[:TIMED_OUT_MAX]:
            if self._timed_out(name, now):
                # Each has a deadline of its own, because many may have timed out at a time.
                self.timers.set(
                    TransactionTimerName(TransactionTimer.TIMED_OUT, name), now.monotonic_ms
                )

    def _timed_out(self, name: str, now: Instant) -> bool:
        current = self.transactions.get(name)
        return (
            current is not None
            and current.has_timeout
            and self.is_open(name, now)
            and now.monotonic_ms > self._ongoing[name] + current.timeout_ms
        )

    def is_open(self, name: str, now: Instant) -> bool:
        """True if the id has an ongoing transaction whose end has not begun."""
        current = self.transactions.get(name)
        return (
            current is not None
            and current.state is _S.ONGOING
            and self._pending.target(name) is None
        )

    def abort_if(
        self,
        still: Callable[[str, Instant], bool],
        name: str,
        now: Instant,
        fresh_id: int | None = None,
    ) -> Decision:
        """Fence the producer of an ongoing transaction and abort the transaction, if `still` is
        true."""
        if not still(name, now):
            return CoreOutcome()
        decision = fence_producer(self.transactions[name], fresh_id, now.wall_ms)
        if decision.needs_producer_id:
            return self._pending.take_producer_id(
                name,
                lambda given, then: self.abort_if(still, name, then, given),
                lambda error: None,  # The next scan finds the id again.
            )
        assert decision.after is not None
        return self._pending.record(Cause.TIMEOUT, decision.after, [], now, fences=True)

    # --- Expiry of ids (T-06) ---

    @property
    def _expiry_interval_ms(self) -> int:
        return self._settings.transaction_remove_expired_transaction_cleanup_interval_ms

    def _set_expiry(self, now: Instant, wait_ms: int) -> None:
        self.timers.set(TransactionTimerName(TransactionTimer.EXPIRY), now.monotonic_ms + wait_ms)

    def _expire(self, now: Instant) -> CoreOutcome:
        oldest_ms = now.wall_ms - self._settings.transactional_id_expiration_ms
        expired: list[Transaction] = []
        self._unchecked = self._unchecked or deque(self.transactions)
        for _ in range(EXPIRY_SLICE_IDS):
            if not self._unchecked or len(expired) == TOMBSTONES_MAX:
                break
            name = self._unchecked.popleft()
            current = self.transactions.get(name)
            if (
                current is not None
                and current.state.is_idle
                and current.last_update_ms < oldest_ms
                and not self._pending.is_busy(name)
            ):
                expired.append(current)
        pause_ms = _EXPIRY_PAUSE_MS if len(expired) == TOMBSTONES_MAX else 0
        self._set_expiry(now, pause_ms if self._unchecked else self._expiry_interval_ms)
        return self._pending.remove(expired)
