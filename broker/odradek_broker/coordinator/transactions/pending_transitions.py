"""Transitions of transactional ids that are decided and not durable yet (T-03), and those that wait for a
producer id. What would build on one is refused with CONCURRENT_TRANSACTIONS."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek_broker.coordinator.runtime import Instant, Outcome, Reply
from odradek_broker.coordinator.transactions.calls import Call
from odradek_broker.coordinator.transactions.completion import Completion
from odradek_broker.coordinator.transactions.effects import Effect, TakeProducerId
from odradek_broker.coordinator.transactions.events import (
    Observer,
    TransactionEvent,
    TransactionEventKind,
)
from odradek_broker.coordinator.transactions.states import TransactionState, check_step
from odradek_broker.coordinator.transactions.transaction import (
    TRANSACTION_APPEND_ERRORS,
    Transaction,
    encode,
    tombstone,
)
from odradek_broker.platform.fault_points import FaultPoint, FaultPoints
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_S = TransactionState

#: Where a broker under test may die once a record is durable: by its state, or else by what wrote it.
_DECISION_DURABLE = {
    _S.PREPARE_COMMIT: FaultPoint.PREPARE_COMMIT_DURABLE,
    _S.PREPARE_ABORT: FaultPoint.PREPARE_ABORT_DURABLE,
}
_STEP_DURABLE = {
    TransactionEventKind.INIT: FaultPoint.INIT_PRODUCER_ID_DURABLE,
    TransactionEventKind.ADD: FaultPoint.PARTITIONS_ADDED_DURABLE,
}


class PendingTransitions:
    """Those of one shard; `transactions` and `outbox` are the shard's."""

    def __init__(
        self,
        transactions: Mapping[str, Transaction],
        outbox: deque[Effect],
        completion: Completion,
        observer: Observer,
        faults: FaultPoints,
    ) -> None:
        self._transactions = transactions
        self._outbox = outbox
        self._completion = completion
        self._observer = observer
        self._faults = faults
        self._targets: dict[str, _Target] = {}

    def target(self, name: str) -> TransactionState | None:
        """The state that an id is on its way to; None if it is on none."""
        pending = self._targets.get(name)
        return None if pending is None else pending.state

    def is_busy(self, name: str) -> bool:
        """Is something on its way: a transition that is not durable, or a decision whose Complete record is
        not?"""
        return name in self._targets or self._completion.is_under_way(name)

    def record(
        self,
        kind: TransactionEventKind,
        after: Transaction,
        replies: list[Reply[Any]],
        now: Instant,
        call: Call | None = None,
        *,
        fences: bool = False,
    ) -> Outcome:
        """Decide on a transition. `fences`: it goes through PrepareEpochFence, on the coordinator's own account."""
        name = after.transactional_id
        before = self._transactions.get(name)
        state = before.state if before is not None else _S.EMPTY
        if fences:
            check_step(name, state, _S.PREPARE_EPOCH_FENCE)
            state = _S.PREPARE_EPOCH_FENCE
        check_step(name, state, after.state)
        pending = self._targets[name] = _Target(state if fences else after.state)
        # Told now: what is refused because of it comes after it.
        self._observer(TransactionEvent(now.wall_ms, name, kind, before, after, call=call))
        if after.state.is_prepared:
            self._faults.reach(FaultPoint.PREPARE_DECIDED)
            self._faults.reach(FaultPoint.PREPARE_TORN)
        durable = _DECISION_DURABLE.get(after.state) or _STEP_DURABLE[kind]

        def settled(error: ErrorCode, then: Instant) -> Outcome:
            if self._targets.get(name) is pending:
                del self._targets[name]
            if error is not _E.NONE:
                self._observer(
                    TransactionEvent(then.wall_ms, name, kind, before, after, error, call)
                )
                return Outcome()
            self._faults.reach(durable)
            return self._completion.begin(name, then) if after.state.is_prepared else Outcome()

        return Outcome([encode(after)], replies, settled, TRANSACTION_APPEND_ERRORS)

    def refused(
        self,
        kind: TransactionEventKind,
        call: Call,
        error: ErrorCode,
        reply: Reply[Any],
        now: Instant,
        partitions: Sequence[TopicPartition] = (),
    ) -> Outcome:
        """Nothing to write, but what was read must be durable before it is told."""
        if error is not _E.NONE:
            name = call.transactional_id
            held, state = self._transactions.get(name), self.target(name)
            event = TransactionEvent(
                now.wall_ms, name, kind, held, None, error, call, state, partitions
            )
            self._observer(event)
        return Outcome(replies=[reply])

    def take_producer_id(
        self,
        name: str,
        decide: Callable[[int | None, Instant], Outcome],
        refuse: Callable[[ErrorCode], None],
    ) -> Outcome:
        """Ask for a producer id; until it is there, whoever needs it has a transition pending."""
        pending = self._targets[name] = _Target(_S.EMPTY)

        def go_on(given: int | None, now: Instant) -> Outcome:
            if self._targets.get(name) is pending:
                del self._targets[name]
            if given is None:
                refuse(_E.COORDINATOR_NOT_AVAILABLE)
                return Outcome()
            return decide(given, now)

        self._outbox.append(TakeProducerId(name, go_on, refuse))
        return Outcome()

    def remove(self, expired: Sequence[Transaction]) -> Outcome:
        """Forget ids that nobody uses (T-06)."""
        if not expired:
            return Outcome()
        for held in expired:
            check_step(held.transactional_id, held.state, _S.DEAD)
            self._targets[held.transactional_id] = _Target(_S.DEAD)

        def settled(error: ErrorCode, then: Instant) -> Outcome:
            kind = TransactionEventKind.EXPIRED
            for held in expired:
                name = held.transactional_id
                self._targets.pop(name, None)
                self._observer(TransactionEvent(then.wall_ms, name, kind, held, None, error))
            return Outcome()

        records = [tombstone(held.transactional_id) for held in expired]
        return Outcome(records, [], settled, TRANSACTION_APPEND_ERRORS)


class _Target:
    """The state that an id is on its way to; each transition has its own object."""

    __slots__ = ("state",)

    def __init__(self, state: TransactionState) -> None:
        self.state = state
