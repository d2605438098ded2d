"""Transactions: what a producer with a transactional id decides (C-60 to C-70).

`TransactionalManager` adds to sequences and identity the life of transactions: what the application
may call in which state, which question goes to a coordinator next, and what its answer changes.
It sends nothing: `next_ask` gives a question, `answered` or `unanswered` takes its fate.

Two versions (KIP-890). In v1 partitions are announced with AddPartitionsToTxn before anything is sent to
them, and the epoch stays until something goes wrong (C-62, C-66). In v2 the broker notices by itself,
and every end of a transaction brings the next epoch (C-65). Which one holds is decided at the boundary
of a transaction only (C-70).

A question that was sent but not answered may have been carried out. So an abort does not forget it:
AddPartitionsToTxn and AddOffsetsToTxn are repeated until they are answered, because only then is it
known whether there is something to end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odradek_client.consumer.types import (
    TopicPartition,
)
from odradek_client.errors import (
    BadAnswer,
    Fatal,
    OdradekError,
)
from odradek_client.producer.batch import (
    ProducerIdentity,
)
from odradek_client.producer.transaction_life import (
    V2_LEVEL,
    PreparedTransaction,
    TransactionLife,
    poisons,
)
from odradek_client.producer.transaction_requests import (
    INIT_BUMPS_FROM,
    AddOffsetsAsk,
    AddPartitionsAsk,
    Ask,
    CommitOffsetsAsk,
    EndAsk,
    InitAsk,
    Reaction,
    reaction_to,
)
from odradek_client.producer.transaction_states import State, step
from odradek_protocol.errors import ErrorCode

#: The retry of the first AddPartitionsToTxn, while the transaction before is being finished (C-33).
FIRST_ADD_RETRY_MS = 20.0
#: How often an abort is repeated that may have come too early, before it counts as fenced.
EARLY_ABORTS_MAX = 5
#: States in which a transaction takes in more.
_OPEN = frozenset({State.IN_TRANSACTION, State.COMMITTING})

__all__ = ["PreparedTransaction", "TransactionalManager"]


class TransactionalManager(TransactionLife):
    """All decisions of a transactional producer."""

    # --- questions --------------------------------------------------------------------------------

    def next_ask(
        self, active: Iterable[TopicPartition], has_incomplete: bool, now_ms: float
    ) -> tuple[Ask | None, float | None]:
        """(the next question, None) or (None, the ms until there may be one, None for unknown).

        `active`: partitions with records waiting. One question is asked at a time (C-30); records for
        partitions that it is not about may go meanwhile. The end waits for every record.
        """
        if self._asked is not None or self.state in {State.FATAL_ERROR, State.ABORTABLE_ERROR}:
            return None, None
        if not self.is_v2 and self.state in _OPEN:
            self._want(active)
        while self._queue:
            ask = min(self._queue, key=lambda each: each.kind.rank)
            if isinstance(ask, EndAsk):
                if has_incomplete:
                    return None, None
                if self._is_idle():
                    self._queue.remove(ask)
                    self._ended(ask.operation)
                    continue
            if ask.retry_at_ms > now_ms:
                return None, ask.retry_at_ms - now_ms
            self._queue.remove(ask)
            self._asked = ask
            ask.was_sent = True
            if isinstance(ask, CommitOffsetsAsk):
                self._started = True
            return ask, None
        return None, None

    def _want(self, active: Iterable[TopicPartition]) -> None:
        """Queue AddPartitionsToTxn for what is new (C-62)."""
        waiting = next((a for a in self._queue if isinstance(a, AddPartitionsAsk)), None)
        known = self._added if waiting is None else self._added | waiting.partitions
        new = {tp for tp in active if tp not in known}
        if not new:
            return
        if waiting is None or waiting.was_sent:
            self._queue.append(AddPartitionsAsk(self._id, new))
        else:
            waiting.partitions |= new

    @poisons
    def answered(self, ask: Ask, response: Any, version: int, now_ms: float) -> bool:
        """A coordinator's answer. Whether another coordinator must be looked for (C-33)."""
        self._asked = None
        if self.state is State.FATAL_ERROR:
            return False
        codes = ask.codes(response)
        worst, error = Reaction.DONE, None
        for what, code in codes.items():
            reaction = self._reaction(ask, code)
            if reaction is not Reaction.DONE and reaction.value > worst.value:
                worst, error = reaction, ask.error(what, code)
        if isinstance(ask, CommitOffsetsAsk):
            # Only the rest is asked again (C-63).
            for tp, code in codes.items():
                if code is ErrorCode.NONE:
                    del ask.offsets[tp]
        if error is None:
            self._done(ask, response, version)
            return False
        self._react(ask, worst, error, now_ms)
        return worst is Reaction.FIND_COORDINATOR

    @poisons
    def unanswered(self, ask: Ask, error: OdradekError, now_ms: float) -> bool:
        """No answer, or no coordinator. Whether another one must be looked for (C-33)."""
        self._asked = None
        if self.state is State.FATAL_ERROR:
            return False
        if isinstance(error, BadAnswer) or (error.code is None and error.retriable):
            reaction = Reaction.FIND_COORDINATOR
        elif error.code is None:
            reaction = Reaction.FATAL
        else:
            reaction = self._reaction(ask, error.code)
        self._react(ask, reaction, error, now_ms)
        return reaction is Reaction.FIND_COORDINATOR

    def _reaction(self, ask: Ask, code: ErrorCode) -> Reaction:
        reaction = reaction_to(ask.kind, code)
        if isinstance(ask, EndAsk) and self._may_be_too_early(ask, code):
            return Reaction.RETRY
        if reaction is Reaction.FORGOTTEN:
            bumps = self.is_v2 or self._can_bump
            return Reaction.ABORTABLE if bumps else Reaction.FATAL
        return reaction

    def _may_be_too_early(self, ask: EndAsk, code: ErrorCode) -> bool:
        """Whether PRODUCER_FENCED may mean that the transaction before is still being finished.

        Until its markers are written, v2 takes the present epoch for a stale one (T-65). Nobody gets
        that far who was told by a broker that something is in the present transaction.
        """
        return (
            ask.v2
            and not ask.committed
            and not self._confirmed
            and code is ErrorCode.PRODUCER_FENCED
            and ask.attempts < EARLY_ABORTS_MAX
        )

    def _react(self, ask: Ask, reaction: Reaction, error: OdradekError, now_ms: float) -> None:
        if reaction in {Reaction.RETRY, Reaction.FIND_COORDINATOR}:
            self._retry(ask, error, now_ms)
        elif reaction is Reaction.BACK:
            self.state = step(self.state, State.UNINITIALIZED)
            self._finish(ask, error)
        elif reaction is Reaction.ABORTABLE and not (
            isinstance(ask, EndAsk) and self.state is State.ABORTING
        ):
            self._make_abortable(error)
            self._finish(ask, error)
        else:
            self._asked = ask  # so that whoever waits for it is told
            self.fail(error)
            self._asked = None

    def _retry(self, ask: Ask, error: OdradekError, now_ms: float) -> None:
        dropped = self.state in {State.ABORTABLE_ERROR, State.ABORTING} and not isinstance(
            ask, EndAsk | InitAsk
        )
        if dropped and not self._survives_abort(ask):
            return
        ask.attempts += 1
        delay_ms = self._backoff.delay_ms(ask.attempts)
        first = isinstance(ask, AddPartitionsAsk) and not self._added
        if first and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            delay_ms = min(delay_ms, FIRST_ADD_RETRY_MS)
        ask.retry_at_ms = now_ms + delay_ms
        self._queue.insert(0, ask)

    def _done(self, ask: Ask, response: Any, version: int) -> None:
        if isinstance(ask, InitAsk):
            self._can_bump = version >= INIT_BUMPS_FROM
            self._initialized(ask, response)
        elif isinstance(ask, AddPartitionsAsk):
            self._started = True
            self._added |= ask.partitions
        elif isinstance(ask, AddOffsetsAsk):
            self._started = True
            if self.state in _OPEN:
                self._queue.append(ask.then)
        elif isinstance(ask, CommitOffsetsAsk):
            self._confirmed = True
            self._finish(ask)
        elif isinstance(ask, EndAsk):
            if ask.v2:
                self._adopt_next(response)
            if not self.has_fatal_error:
                self._ended(ask.operation)

    def _initialized(self, ask: InitAsk, response: Any) -> None:
        identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        if not identity.is_valid or identity.epoch < 0:
            self.fail(Fatal(f"the broker gave {identity}, which is no identity of a producer"))
            self._finish(ask, self.fatal_error)
            return
        self._adopt(identity)
        self.state = step(self.state, State.READY)
        # The boundary in front of the first transaction, and behind a bump (C-70).
        self.is_v2 = self._next_is_v2 = self._feature_level() >= V2_LEVEL
        self._finish(ask)

    def _adopt_next(self, response: Any) -> None:
        """The identity of the next transaction (C-65, T-66)."""
        identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        if not identity.is_valid or identity.epoch < 0:
            self.fail(Fatal("the broker ended the transaction without saying what comes next"))
            return
        self._adopt(identity)
