"""The life of transactions: what the application may call when, and what comes of failures.

The half of `TransactionalManager` that asks nobody; the questions to coordinators are the other one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from odradek_client.consumer.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek_client.errors import (
    Abortable,
    ClusterAuthorizationFailed,
    Fatal,
    IllegalState,
    InvalidProducerIdMapping,
    OdradekError,
    ProducerFenced,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    UnsupportedByBroker,
)
from odradek_client.producer.batch import (
    NewFuture,
    ProducerBatch,
    ProducerIdentity,
)
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_client.producer.transaction_requests import (
    AddOffsetsAsk,
    Ask,
    BumpAsk,
    CommitOffsetsAsk,
    EndAsk,
    InitAsk,
    Kind,
    Operation,
)
from odradek_client.producer.transaction_states import IllegalTransition, State, step
from odradek_client.retry import Backoff

#: The level of the feature transaction.version that means v2.
V2_LEVEL = 2
#: Offsets given to a transaction whose commit is not answered yet.
OFFSETS_WAITING_MAX = 1000


_SEQUENCES = 1 << 31
_FATAL = (
    ClusterAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    ProducerFenced,
    UnsupportedByBroker,
    InvalidProducerIdMapping,
)

F = TypeVar("F", bound=Callable[..., Any])


class PreparedTransaction(NamedTuple):
    """Everything that another process needs to end a prepared transaction (KIP-939)."""

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: int


def poisons(method: F) -> F:
    """In the sender an illegal step is a mistake of ours: nothing may be sent after it (C-61)."""

    @functools.wraps(method)
    def guarded(self: TransactionLife, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except IllegalTransition as error:
            self.fail(Fatal(f"the producer is in a state that cannot be: {error}"))
            return None

    return guarded  # type: ignore[return-value]


class TransactionLife(TransactionManager):
    """A transactional producer's decisions.

    `feature_level()`: the finalized level of transaction.version. `two_phase`: no transaction times
    out, so that prepared ones stay (KIP-939).
    """

    def __init__(
        self,
        transactional_id: str,
        transaction_timeout_ms: int,
        *,
        new_future: NewFuture,
        feature_level: Callable[[], int],
        backoff: Backoff,
        two_phase: bool = False,
    ) -> None:
        super().__init__(transactional_id, transaction_timeout_ms)
        self._id = transactional_id
        self._new_future = new_future
        self._feature_level = feature_level
        self._backoff = backoff
        self._two_phase = two_phase
        #: Whether this transaction is of v2; changes between transactions only.
        self.is_v2 = False
        self._next_is_v2 = False
        self.is_prepared = False
        #: Counts the calls of `begin`: a record belongs to the transaction it was given in.
        self.transaction_number = 0
        self.abortable_error: OdradekError | None = None
        self._added: set[TopicPartition] = set()
        #: Whether the coordinator may know of the open transaction.
        self._started = False
        #: Whether a broker has confirmed that something is in it.
        self._confirmed = False
        self._can_bump = True
        self._bump_required = False
        self._queue: list[Ask] = []
        self._asked: Ask | None = None
        #: The commit or abort that is under way.
        self.ending: Operation | None = None
        self._pending: Operation | None = None

    # --- what the application calls ---------------------------------------------------------------

    def operation(self, name: str, begin: Callable[[], Operation]) -> Operation:
        """The operation of a call: the one that its caller gave up waiting for, or a new one (C-67).

        IllegalState if another one is still to be waited for.
        """
        pending = self._pending
        if pending is not None and pending.done and pending.error is not None:
            pending = None  # what went wrong is in the state; waiting for it is of no use
        if pending is None:
            self._pending = None
            pending = begin()
        elif pending.name != name:
            self._raise_pending(pending, name)
        self._pending = pending
        return pending

    def seen(self, operation: Operation) -> None:
        """Its caller knows the outcome. Raises what went wrong."""
        if self._pending is operation:
            self._pending = None
        if operation.error is not None:
            raise self._told(operation.error)

    def init(self) -> Operation:
        """Ask for an identity; fences older producers of the id (T-59)."""
        self._raise_failure("init_transactions")
        if self.state is not State.UNINITIALIZED:
            # The table enters INITIALIZING from an end, too: that is a bump, not this call.
            raise IllegalState(f"init_transactions() cannot be called now: {self._advice()}")
        self._enter(State.INITIALIZING, "init_transactions")
        operation = Operation("init_transactions", self._new_future)
        self._queue.append(self._init_ask(InitAsk, operation))
        return operation

    def begin(self) -> None:
        """Local: no broker is told (C-60)."""
        self._raise_failure("begin_transaction")
        if self._pending is not None:
            self._raise_pending(self._pending, "begin_transaction")
        self._enter(State.IN_TRANSACTION, "begin_transaction")
        self.transaction_number += 1

    def commit(self) -> Operation:
        """Ends when the coordinator has decided; waits for every record before that (C-64)."""
        self._raise_failure("commit_transaction")
        self._enter(State.COMMITTING, "commit_transaction")
        return self._end("commit_transaction", committed=True)

    def abort(self) -> Operation:
        """Also the way out of an abortable error."""
        if self.state is not State.ABORTABLE_ERROR:
            self._raise_failure("abort_transaction")
        self._enter(State.ABORTING, "abort_transaction")
        self.abortable_error = None
        self._drop_for_abort(TransactionAborted("the transaction was aborted"))
        return self._end("abort_transaction", committed=False)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> Operation:
        """Make positions of a group part of the transaction (C-63, KIP-447)."""
        name = "send_offsets_to_transaction"
        self.check_open(name)
        if len(self._queue) >= OFFSETS_WAITING_MAX:
            raise IllegalState(f"{len(self._queue)} offset commits wait already; await them first")
        operation = Operation(name, self._new_future)
        commit = CommitOffsetsAsk(self._id, group, offsets, operation, v2=self.is_v2)
        if self.is_v2:
            self._queue.append(commit)
        else:
            self._queue.append(AddOffsetsAsk(self._id, commit))
        return operation

    def check_open(self, name: str) -> int:
        """The number of the open transaction. Raises if there is none that takes more."""
        if self.state is not State.IN_TRANSACTION or self.is_prepared:
            self._raise_failure(name)
            if self.is_prepared:
                raise IllegalState(
                    f"{name}() cannot be called: the transaction is prepared; commit_transaction() or "
                    "abort_transaction() ends it"
                )
            if self._pending is not None and self._pending.name != name:
                self._raise_pending(self._pending, name)
            raise IllegalState(f"{name}() cannot be called now: {self._advice()}")
        return self.transaction_number

    def prepare(self, *, may_time_out: bool = False) -> PreparedTransaction:
        """Every record is written: nothing more goes in, anyone may end it."""
        name = "prepare_transaction"
        if not self.is_prepared:
            self.check_open(name)
            if not self._two_phase and not may_time_out:
                raise IllegalState(
                    "prepare_transaction() needs transaction_two_phase_commit_enable=True: the "
                    "broker would abort the prepared transaction after transaction_timeout_ms; if "
                    "that is taken into account, call it with may_time_out=True"
                )
            if self._queue or self._asked is not None:
                raise IllegalState(
                    "prepare_transaction() while offsets are on their way into the transaction; "
                    "await send_offsets_to_transaction() first"
                )
            if not self._started:
                raise IllegalState(
                    "prepare_transaction() without a record or offset in the transaction: there is "
                    "nothing to prepare; use abort_transaction()"
                )
        self.is_prepared = True
        return PreparedTransaction(self._id, *self.identity, V2_LEVEL if self.is_v2 else 1)

    def resume(self, prepared: PreparedTransaction) -> None:
        """Take over what another producer prepared; to commit or abort it, as often as need be."""
        if prepared.transactional_id != self._id:
            raise IllegalState(
                f"the prepared transaction is of transactional_id {prepared.transactional_id!r}, "
                f"this producer is {self._id!r}; make a producer with that id"
            )
        if self.state is not State.UNINITIALIZED:
            raise IllegalState(
                "resume_transaction() is for a new producer, in place of init_transactions(), which "
                "would abort what was prepared"
            )
        identity = ProducerIdentity(prepared.producer_id, prepared.epoch)
        if not identity.is_valid or identity.epoch < 0:
            raise IllegalState(f"{prepared} is no prepared transaction")
        for state in (State.INITIALIZING, State.READY, State.IN_TRANSACTION):
            self.state = step(self.state, state)
        self._adopt(identity)
        self.is_v2 = self._next_is_v2 = prepared.transaction_version >= V2_LEVEL
        self._started = self.is_prepared = True
        # Where v1 leaves the epoch as it is, the other producer's sequences would go on.
        self._bump_required = not self.is_v2
        self.transaction_number += 1

    def _enter(self, target: State, name: str) -> None:
        try:
            self.state = step(self.state, target)
        except IllegalTransition:
            raise IllegalState(f"{name}() cannot be called now: {self._advice()}") from None

    def _advice(self) -> str:
        return _ADVICE[self.state]

    def _raise_pending(self, pending: Operation, name: str) -> None:
        raise IllegalState(
            f"{name}() cannot be called before the outcome of {pending.name}() is known, which was "
            f"not waited for to its end; call {pending.name}() again"
        )

    def _raise_failure(self, name: str) -> None:
        if self.state is State.FATAL_ERROR:
            assert self.fatal_error is not None
            raise self._told(self.fatal_error)
        if self.state is State.ABORTABLE_ERROR:
            assert self.abortable_error is not None
            raise self._told(self.abortable_error)

    def _told(self, error: OdradekError) -> OdradekError:
        """An exception of its own for every caller, that says what to do."""
        kind: type[OdradekError]
        if self.state is State.FATAL_ERROR:
            kind = type(error) if isinstance(error, Fatal) else Fatal
            text = f"{error}; this producer can do nothing more: close it and start a new one"
        elif self.state is State.ABORTABLE_ERROR:
            kind = type(error) if isinstance(error, Abortable) else TransactionAborted
            text = (
                f"the transaction cannot be committed: {error}; call abort_transaction(), then the "
                "work can be tried again in a new transaction"
            )
        else:
            kind, text = type(error), str(error)
        told = kind(text, code=error.code)
        told.__cause__ = error
        return told

    # --- ends -------------------------------------------------------------------------------------

    def _end(self, name: str, *, committed: bool) -> Operation:
        operation = self.ending = Operation(name, self._new_future)
        self._queue.append(EndAsk(self._id, operation, committed=committed, v2=self.is_v2))
        # Behind the request that ends it: this transaction stays what it is (C-70).
        self._next_is_v2 = self._feature_level() >= V2_LEVEL
        if self._next_is_v2 and not self.is_v2:
            # So that nothing of v2 can join the last transaction of v1.
            self._bump_required = True
        return operation

    def _is_idle(self) -> bool:
        """Whether no coordinator need be told of the end (C-64).

        In v2 it is told of whatever was sent anywhere, because only the brokers know what they added
        (T-61). If nothing was sent at all it must not be: while the markers of the transaction before
        are being written, the present epoch looks like a fenced producer's (T-65).
        """
        return not self._started or not self.identity.is_valid

    def _ended(self, operation: Operation | None) -> None:
        """Decided. The next epoch first, if one is needed (C-66); then a new transaction may begin."""
        self._added.clear()
        self._started = self._confirmed = self.is_prepared = False
        self.ending = None
        self.is_v2 = self._next_is_v2
        if self._bump_required or not self.identity.is_valid:
            self._bump_required = False
            self.state = step(self.state, State.INITIALIZING)
            assert operation is not None
            self._queue.append(self._init_ask(BumpAsk, operation))
            return
        self.state = step(self.state, State.READY)
        if operation is not None:
            operation.finish()

    def _init_ask(self, kind: type[InitAsk], operation: Operation) -> InitAsk:
        # A transaction that must not time out has no timeout (KIP-939).
        timeout_ms = _SEQUENCES - 1 if self._two_phase else self.transaction_timeout_ms
        return kind(self._id, operation, timeout_ms, self._two_phase)

    def _adopt(self, identity: ProducerIdentity) -> None:
        """Go on as this; every sequence starts at 0. Nothing is in flight."""
        self.identity = identity
        self._partitions.clear()
        self._unresolved.clear()

    # --- errors -----------------------------------------------------------------------------------

    def fail(self, error: OdradekError) -> None:
        """Nothing more can be sent, ever; everybody who waits is told (C-55)."""
        super().fail(error)
        queued, self._queue = self._queue, []
        for ask in queued:
            self._finish(ask, error)
        if self._asked is not None:
            self._finish(self._asked, error)
        if self.ending is not None:
            self.ending.finish(error)

    @poisons
    def batch_failed(self, error: OdradekError) -> None:
        """A batch of the transaction will never be written: it cannot be committed (C-55, C-64)."""
        if self.state in {State.ABORTING, State.FATAL_ERROR}:
            return
        if isinstance(error, _FATAL):
            self.fail(error)
        else:
            self._make_abortable(error)

    def _make_abortable(self, error: OdradekError) -> None:
        if self.state is State.ABORTING:
            return
        self.state = step(self.state, State.ABORTABLE_ERROR)
        if self.abortable_error is None:
            self.abortable_error = error
        if not self.is_v2 and self._can_bump:
            self._bump_required = True
        self._drop_for_abort(error)
        if self.ending is not None:
            self.ending.finish(error)
            self.ending = None

    def _drop_for_abort(self, error: OdradekError) -> None:
        """Forget the questions of a transaction that will not be committed; tell who waits."""
        queued, self._queue = self._queue, []
        for ask in queued:
            self._finish(ask, error)
            if self._survives_abort(ask):
                self._queue.append(ask)
        if self._asked is not None:
            self._finish(self._asked, error)

    def _survives_abort(self, ask: Ask) -> bool:
        """Whether its fate matters to the abort: it may have started the transaction."""
        return ask.was_sent and ask.kind in {Kind.ADD_PARTITIONS, Kind.ADD_OFFSETS}

    def _finish(self, ask: Ask, error: OdradekError | None = None) -> None:
        if ask.operation is not None:
            ask.operation.finish(error)

    @property
    def undrained_error(self) -> OdradekError | None:
        """Why nothing that was not sent yet will be; None while all is well (C-30)."""
        if self.state is State.ABORTING:
            return TransactionAborted("the transaction was aborted before the record was sent")
        if self.state is State.ABORTABLE_ERROR:
            return TransactionAborted(
                f"not sent, because the transaction cannot be committed: {self.abortable_error}"
            )
        return None

    @property
    def is_completing(self) -> bool:
        """Whether no record need wait for others any more (C-13)."""
        return self.state in {State.COMMITTING, State.ABORTING}

    @property
    def has_open_transaction(self) -> bool:
        """Whether closing must end a transaction (C-34); a prepared one stays."""
        return not self.is_prepared and self.state in {
            State.IN_TRANSACTION,
            State.COMMITTING,
            State.ABORTING,
            State.ABORTABLE_ERROR,
        }

    @property
    def first_goes_alone(self) -> bool:
        """In v2 a broker that does not know the producer takes sequence 0 only (P-15)."""
        return not self.is_v2

    # --- batches ----------------------------------------------------------------------------------

    def may_drain(self, batch: ProducerBatch) -> bool:
        """C-20, and in v1 only to what was added to the transaction (C-62)."""
        if not self.is_v2 and batch.tp not in self._added:
            return False
        return super().may_drain(batch)

    def drained(self, batch: ProducerBatch) -> None:
        """In v2 what is sent is in the transaction, by that alone (C-62)."""
        super().drained(batch)
        if self.is_v2:
            self._added.add(batch.tp)
            self._started = True

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """C-24."""
        super().acknowledged(batch, base_offset)
        self._confirmed = True

    def gave_up(self, batch: ProducerBatch, *, may_be_written: bool) -> None:
        """As the idempotent one's; but a gap is closed without a new epoch (C-45)."""
        if may_be_written or self.has_fatal_error:
            super().gave_up(batch, may_be_written=may_be_written)
            return
        sequences = self._sequences(batch.tp)
        if batch not in sequences.in_flight or batch.identity != sequences.identity:
            self._remove(sequences, batch)
            return
        at = sequences.in_flight.index(batch)
        del sequences.in_flight[at]
        lower = batch.record_count
        for later in sequences.in_flight[at:]:
            later.restamp(later.identity, (later.base_sequence - lower) % _SEQUENCES)
        sequences.next_sequence = (sequences.next_sequence - lower) % _SEQUENCES

    @poisons
    def request_bump(self, tp: TopicPartition, ahead: Iterable[ProducerBatch] = ()) -> None:
        """Nobody knows which records are written: only a new epoch helps (C-42)."""
        where = f"{tp.topic}-{tp.partition}"
        if not self.is_v2 and not self._can_bump:
            self.fail(
                Fatal(
                    f"records for {where} may be written or not, and the broker is too old to go on "
                    "under a new epoch"
                )
            )
            return
        if self.state is State.ABORTING:
            self._bump_required = self._bump_required or not self.is_v2
        elif self.state in {State.IN_TRANSACTION, State.COMMITTING}:
            self._make_abortable(
                TransactionAborted(f"records for {where} may be written or not; abort")
            )


_ADVICE = {
    State.UNINITIALIZED: "call init_transactions() first, once per producer",
    State.INITIALIZING: "init_transactions() is still under way; wait for it",
    State.READY: "no transaction is open; call begin_transaction() first",
    State.IN_TRANSACTION: "a transaction is open; commit_transaction() or abort_transaction() ends it",
    State.COMMITTING: "the transaction is being committed; wait for commit_transaction()",
    State.ABORTING: "the transaction is being aborted; wait for abort_transaction()",
    State.ABORTABLE_ERROR: "the transaction has failed; call abort_transaction()",
    State.FATAL_ERROR: "the producer has failed; close it and start a new one",
}
