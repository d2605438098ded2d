"""The transactional ids of one partition of `__transaction_state`: the core that a runtime runs.

Records are replayed when they are appended, and answers wait until they are durable; so the outside
sees what T-03 asks for. Between the two a step is pending, and what would build on it is answered
CONCURRENT_TRANSACTIONS, but for more partitions in an open transaction: those are simply added.

What cannot be decided here (producer ids, markers) goes into `outbox`; whoever runs the shard takes
it from there and comes back with the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from odradek_broker.coordinator.runtime import Instant, Outcome, Reply
from odradek_broker.coordinator.timers import Timers
from odradek_broker.coordinator.transactions.add_partitions import (
    decide_add_partitions,
    verify_partitions,
)
from odradek_broker.coordinator.transactions.calls import (
    AddCall,
    EndAnswer,
    EndCall,
    InitAnswer,
    InitCall,
)
from odradek_broker.coordinator.transactions.completion import Completion
from odradek_broker.coordinator.transactions.deadlines import Deadline, TimerName
from odradek_broker.coordinator.transactions.decision import Decision
from odradek_broker.coordinator.transactions.effects import (
    DecideAgain,
    Effect,
    SendMarkers,
    TakeProducerId,
)
from odradek_broker.coordinator.transactions.end_transaction import decide_end
from odradek_broker.coordinator.transactions.events import (
    Observer,
    TransactionEvent,
    TransactionEventKind,
    unobserved,
)
from odradek_broker.coordinator.transactions.fencing import fence_producer
from odradek_broker.coordinator.transactions.init_producer_id import decide_init_producer_id
from odradek_broker.coordinator.transactions.interfaces import PartitionCodes
from odradek_broker.coordinator.transactions.parking import Parking
from odradek_broker.coordinator.transactions.pending_transitions import PendingTransitions
from odradek_broker.coordinator.transactions.settings import TransactionSettings
from odradek_broker.coordinator.transactions.states import TransactionState
from odradek_broker.coordinator.transactions.transaction import (
    Transaction,
    decode,
)
from odradek_broker.deferred import Deferred
from odradek_broker.platform.fault_points import NO_FAULTS, FaultPoints
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored import transaction_log

_E = ErrorCode
_S = TransactionState

#: Tombstones in one batch. What is left over is written by the next check for expired ids.
TOMBSTONES_MAX = 1_000
_EXPIRY_PAUSE_MS = 1_000


class TransactionShard:
    """Decides for its ids; see `runtime.Core` for who calls what.

    `coordinator_epoch` and `exists`: see `Completion`. `has_room`: may there be another id (D11)?
    """

    def __init__(
        self,
        settings: TransactionSettings,
        coordinator_epoch: int,
        exists: Callable[[TopicPartition], bool],
        observer: Observer = unobserved,
        faults: FaultPoints = NO_FAULTS,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self.timers: Timers[TimerName] = Timers()
        self.transactions: dict[str, Transaction] = {}
        self.outbox: deque[Effect] = deque()
        self.coordinator_epoch = coordinator_epoch
        self._settings = settings
        self._observer = observer
        self._has_room = has_room
        #: Ids with an open transaction, in the order in which they were opened, and since when by the
        #: monotonic clock: what the timeout scan looks at.
        self._ongoing: dict[str, int] = {}
        self._added_at_ms = 0
        self._parking = Parking(self.timers)
        self._completion = Completion(
            self.transactions,
            self.timers,
            self.outbox,
            coordinator_epoch,
            exists,
            observer,
            faults,
            self._resume_parked,
        )
        self._pending = PendingTransitions(
            self.transactions, self.outbox, self._completion, observer, faults
        )

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
            self._ongoing.pop(name, None)
            return
        held = self.transactions[name] = decode(name, value)
        if held.state is _S.ONGOING:
            self._ongoing.setdefault(name, self._added_at_ms)
        else:
            self._ongoing.pop(name, None)

    def loaded(self, now: Instant) -> Outcome:
        """T-50e to T-50g: end what was decided; T-55, T-06: begin to look at the clock."""
        self._set_scan(now)
        self._set_expiry(now, self._expiry_interval_ms)
        for name in self._ongoing:
            # How long they were open before this start only the wall clock can say.
            open_ms = max(now.wall_ms - self.transactions[name].start_ms, 0)
            self._ongoing[name] = now.monotonic_ms - open_ms
        for name, held in self.transactions.items():
            if held.state.is_prepared:
                partitions = sorted(held.partitions)
                event = TransactionEvent(
                    now.wall_ms,
                    name,
                    TransactionEventKind.RESUMED,
                    held,
                    None,
                    partitions=partitions,
                )
                self._observer(event)
                # One at a time: each may write a record.
                self.outbox.append(DecideAgain(partial(self._completion.begin, name)))
        return Outcome()

    def closed(self, error: ErrorCode) -> Outcome:
        """This broker coordinates these ids no more."""
        out = Outcome(replies=[parked.answer(error) for parked in self._parking.clear()])
        self._completion.clear()
        effects = list(self.outbox)
        self.outbox.clear()
        for effect in effects:
            if isinstance(effect, TakeProducerId):
                effect.refuse(error)
        return out

    def on_timer(self, name: TimerName, now: Instant) -> Outcome:
        if name.kind is Deadline.TIMEOUTS:
            self._scan(now)
            return Outcome()
        if name.kind is Deadline.EXPIRY:
            return self._expire(now)
        if name.kind is Deadline.MARKERS:
            return self._completion.send_markers(name.transactional_id, now)
        parked = self._parking.take(name)
        if parked is None:
            return Outcome()
        return Outcome(replies=[parked.answer(_E.CONCURRENT_TRANSACTIONS)])

    # --- InitProducerId ---

    def init(
        self,
        call: InitCall,
        deferred: Deferred[InitAnswer],
        now: Instant,
        fresh_id: int | None = None,
    ) -> Outcome:
        """T-11, T-12. The call itself was found valid (T-10)."""
        name = call.transactional_id
        if self._pending.is_busy(name):
            answer = InitAnswer(_E.CONCURRENT_TRANSACTIONS)
            reply = Reply(deferred, answer, InitAnswer)
            return self._pending.refused(TransactionEventKind.INIT, call, answer.error, reply, now)
        if name not in self.transactions and not self._has_room():
            refusal = InitAnswer(_E.POLICY_VIOLATION)
            reply = Reply(deferred, refusal, InitAnswer)
            return self._pending.refused(TransactionEventKind.INIT, call, refusal.error, reply, now)
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
            return self._pending.refused(
                TransactionEventKind.INIT, call, decision.error, reply, now
            )
        fences = decision.after.state is _S.PREPARE_ABORT
        return self._pending.record(
            TransactionEventKind.INIT, decision.after, [reply], now, call, fences=fences
        )

    # --- Partitions ---

    def add(
        self, call: AddCall, deferred: Deferred[PartitionCodes], now: Instant, until_ms: int
    ) -> Outcome:
        """T-20: all of the partitions, or none; one code for all of them.

        Until `until_ms` of the monotonic clock the call waits for the end of the producer's last
        transaction before it is answered CONCURRENT_TRANSACTIONS.
        """
        decision = self._decide_add(call, now)
        if decision.error is _E.CONCURRENT_TRANSACTIONS and self._park(
            call, deferred, now, until_ms
        ):
            return Outcome()
        codes = dict.fromkeys(call.partitions, decision.error)

        def refused(error: ErrorCode) -> PartitionCodes:
            return dict.fromkeys(call.partitions, error)

        reply = Reply(deferred, codes, refused)
        if decision.after is None:
            return self._pending.refused(TransactionEventKind.ADD, call, decision.error, reply, now)
        self._added_at_ms = now.monotonic_ms
        return self._pending.record(TransactionEventKind.ADD, decision.after, [reply], now, call)

    def verify(self, call: AddCall, deferred: Deferred[PartitionCodes], now: Instant) -> Outcome:
        """T-22, T-62: are they in?"""
        codes = verify_partitions(self.transactions.get(call.transactional_id), call)
        reply = Reply(deferred, codes, lambda error: dict.fromkeys(call.partitions, error))
        refused = [part for part, code in codes.items() if code is not _E.NONE]
        if not refused:
            return Outcome(replies=[reply])
        return self._pending.refused(
            TransactionEventKind.VERIFY, call, codes[refused[0]], reply, now, refused
        )

    def _decide_add(self, call: AddCall, now: Instant) -> Decision:
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
    ) -> Outcome:
        """T-30, T-65. The answer goes when the decision is durable, before any marker (T-31)."""
        name = call.transactional_id
        kind = TransactionEventKind.COMMIT if call.commit else TransactionEventKind.ABORT
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
            return self._pending.refused(kind, call, decision.error, reply, now)
        return self._pending.record(kind, decision.after, [reply], now, call)

    # --- Markers ---

    def markers_answered(
        self, sent: SendMarkers, codes: Mapping[TopicPartition, ErrorCode], now: Instant
    ) -> Outcome:
        """See `EffectsCore`."""
        return self._completion.answered(sent, codes, now)

    # --- Waiting for the end of the last transaction (T-68) ---

    def _park(
        self, call: AddCall, deferred: Deferred[PartitionCodes], now: Instant, until_ms: int
    ) -> bool:
        """Wait, if waiting can help: a decided transaction is being ended, and by us."""
        held = self.transactions.get(call.transactional_id)
        if held is None or not held.state.is_prepared or until_ms <= now.monotonic_ms:
            return False
        return self._parking.park(call, deferred, until_ms)

    def _resume_parked(self, name: str) -> None:
        for timer in self._parking.of_id(name):
            self.outbox.append(DecideAgain(partial(self._resume, timer)))

    def _resume(self, timer: TimerName, now: Instant) -> Outcome:
        parked = self._parking.take(timer)
        if parked is None:
            return Outcome()
        if parked.deferred.abandoned:
            return Outcome(replies=[parked.answer(_E.CONCURRENT_TRANSACTIONS)])
        return self.add(parked.call, parked.deferred, now, parked.until_ms)

    # --- Timeouts (T-55) ---

    def _set_scan(self, now: Instant) -> None:
        interval_ms = self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self.timers.set(TimerName(Deadline.TIMEOUTS), now.monotonic_ms + interval_ms)

    def _scan(self, now: Instant) -> None:
        self._set_scan(now)
        for name in list(self._ongoing):
            if self._timed_out(name, now):
                self.outbox.append(DecideAgain(partial(self.abort_timed_out, name)))

    def _timed_out(self, name: str, now: Instant) -> bool:
        held = self.transactions.get(name)
        return (
            held is not None
            and held.has_timeout
            and self.is_open(name, now)
            and now.monotonic_ms > self._ongoing[name] + held.timeout_ms
        )

    def is_open(self, name: str, now: Instant) -> bool:
        """Whether it has a transaction that nobody has begun to end."""
        held = self.transactions.get(name)
        return held is not None and held.state is _S.ONGOING and self._pending.target(name) is None

    def abort_timed_out(self, name: str, now: Instant) -> Outcome:
        """Fence the producer and abort, if its time is still over."""
        return self._abort_if(self._timed_out, name, now)

    def abort_open(self, name: str, now: Instant) -> Outcome:
        """As if its time were over."""
        return self._abort_if(self.is_open, name, now)

    def _abort_if(
        self,
        still: Callable[[str, Instant], bool],
        name: str,
        now: Instant,
        fresh_id: int | None = None,
    ) -> Outcome:
        if not still(name, now):
            return Outcome()
        decision = fence_producer(self.transactions[name], fresh_id, now.wall_ms)
        if decision.needs_producer_id:
            return self._pending.take_producer_id(
                name,
                lambda given, then: self._abort_if(still, name, then, given),
                lambda error: None,  # The next scan finds it again.
            )
        assert decision.after is not None
        return self._pending.record(
            TransactionEventKind.TIMEOUT, decision.after, [], now, fences=True
        )

    # --- Expiry of ids (T-06) ---

    @property
    def _expiry_interval_ms(self) -> int:
        return self._settings.transaction_remove_expired_transaction_cleanup_interval_ms

    def _set_expiry(self, now: Instant, wait_ms: int) -> None:
        self.timers.set(TimerName(Deadline.EXPIRY), now.monotonic_ms + wait_ms)

    def _expire(self, now: Instant) -> Outcome:
        oldest_ms = now.wall_ms - self._settings.transactional_id_expiration_ms
        expired = []
        for name, held in self.transactions.items():
            if (
                held.state.is_idle
                and held.last_update_ms < oldest_ms
                and not self._pending.is_busy(name)
            ):
                expired.append(held)
                if len(expired) == TOMBSTONES_MAX:
                    break
        more = len(expired) == TOMBSTONES_MAX
        self._set_expiry(now, _EXPIRY_PAUSE_MS if more else self._expiry_interval_ms)
        return self._pending.remove(expired)
