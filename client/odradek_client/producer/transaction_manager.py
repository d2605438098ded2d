"""Transactions: the decisions of a producer with a transactional id (C-60 to C-70).

`TransactionManager` consists of the sequences of its batches, the lifecycle with the allowed calls,
and the queue of requests to coordinators. It sends nothing: `next_request` returns a request,
`answered` or `unanswered` takes its result.

There are two versions of transactions (KIP-890). In v1 partitions are added with AddPartitionsToTxn
before batches are sent to them, and the epoch changes only after an error (C-62, C-66). In v2 the
broker adds partitions with Produce, and every end of a transaction raises the epoch (C-65). The
version changes only between transactions (C-70).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from odradek_client.backoff import Backoff
from odradek_client.errors import (
    BadAnswer,
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
from odradek_client.producer.batch import NO_IDENTITY, NewFuture, ProducerBatch, ProducerIdAndEpoch
from odradek_client.producer.idempotence import Sequences
from odradek_client.producer.transaction_lifecycle import TransactionLifecycle
from odradek_client.producer.transaction_queue import TransactionQueue, survives_abort
from odradek_client.producer.transaction_requests import (
    AddOffsetsToTxnHandler,
    AddPartitionsToTxnHandler,
    EndTxnHandler,
    EpochBumpHandler,
    InitProducerIdHandler,
    TransactionCall,
    TxnOffsetCommitHandler,
    TxnReaction,
    TxnRequestHandler,
    reaction_to,
)
from odradek_client.producer.transaction_states import ClientTxnState, IllegalTransition
from odradek_client.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PreparedTransaction,
    TopicPartition,
)
from odradek_protocol.constants import NO_TRANSACTION_TIMEOUT_MS
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.end_txn import EndTxnResponse
from odradek_protocol.schemas.init_producer_id import EPOCH_BUMP_SINCE, InitProducerIdResponse

#: The level of the feature transaction.version that means v2.
V2_LEVEL = 2
#: The limit of offsets of a transaction that wait to be committed.
OFFSETS_WAITING_MAX = 1000
#: The pause before the first AddPartitionsToTxn is repeated, while the previous transaction is
#: being completed (C-33).
FIRST_ADD_RETRY_MS = 20.0
#: The limit of repetitions of an abort that may have been sent too early. After the last repetition
#: the producer counts as fenced.
EARLY_ABORTS_MAX = 5
#: The states in which records and offsets are added to a transaction.
_OPEN = frozenset({ClientTxnState.IN_TRANSACTION, ClientTxnState.COMMITTING})
_FATAL = (
    ClusterAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    ProducerFenced,
    UnsupportedByBroker,
    InvalidProducerIdMapping,
)

F = TypeVar("F", bound=Callable[..., Any])


def fatal_if_illegal(method: F) -> F:
    """Decorate a method that the sender calls. An illegal step in the method is a bug: it becomes a
    fatal error, after which nothing is sent (C-61)."""

    @functools.wraps(method)
    def guarded(self: TransactionManager, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except IllegalTransition as error:
            self.fail(Fatal(f"the producer is in a state that cannot be: {error}"))
            return None

    return guarded  # type: ignore[return-value]


class TransactionManager:
    """A transactional producer's decisions.

    `feature_level()`: the finalized level of transaction.version. `two_phase`: transactions have no
    timeout, so that a prepared transaction waits until it is ended (KIP-939).
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
        self._id = transactional_id
        # A transaction with two-phase commit has no timeout (KIP-939).
        self._timeout_ms = NO_TRANSACTION_TIMEOUT_MS if two_phase else transaction_timeout_ms
        self._new_future = new_future
        self._feature_level = feature_level
        self._two_phase = two_phase
        self.identity = NO_IDENTITY
        self.sequences = Sequences()
        self.lifecycle = TransactionLifecycle()
        self._queue = TransactionQueue(backoff)
        #: True if this transaction is of v2. The value changes only between transactions.
        self.is_v2 = False
        self._next_is_v2 = False
        self.is_prepared = False
        #: The number of transactions so far. It identifies the transaction to which a record
        #: belongs.
        self.transaction_number = 0
        self._added: set[TopicPartition] = set()
        #: The partition for which the coordinator refused AddPartitionsToTxn in this transaction.
        self.refused_partition: TopicPartition | None = None
        #: True if the coordinator may know of the open transaction.
        self._started = False
        #: True if a broker has confirmed that a partition is part of the transaction.
        self._confirmed = False
        self._can_bump = True
        self._bump_required = False
        #: The commit or abort in progress.
        self.ending: TransactionCall | None = None

    @property
    def state(self) -> ClientTxnState:
        return self.lifecycle.state

    @property
    def fatal_error(self) -> OdradekError | None:
        return self.lifecycle.fatal_error

    # --- what the application calls ---------------------------------------------------------------

    def init(self) -> TransactionCall:
        """Request an identity. The request fences older producers of the transactional id
        (T-59)."""
        name = "init_transactions"
        self.lifecycle.check_not_failed()
        if self.state is not ClientTxnState.UNINITIALIZED:
            # The table allows INITIALIZING also after the end of a transaction, but only for an
            # epoch bump, not for this call.
            raise self.lifecycle.not_now(name)
        self.lifecycle.enter_by_call(ClientTxnState.INITIALIZING, name)
        operation = TransactionCall(name, self._new_future)
        self._queue.add(self._init_handler(InitProducerIdHandler, operation))
        return operation

    def begin(self) -> None:
        """Begin a transaction locally; no request is sent (C-60)."""
        name = "begin_transaction"
        self.lifecycle.check_not_failed()
        self.lifecycle.check_nothing_pending(name)
        self.lifecycle.enter_by_call(ClientTxnState.IN_TRANSACTION, name)
        self.transaction_number += 1
        self.refused_partition = None

    def commit(self) -> TransactionCall:
        """Begin a commit. The request to the coordinator waits until every record has its result;
        the commit ends when the coordinator has decided (C-64)."""
        name = "commit_transaction"
        self.lifecycle.check_not_failed()
        self.lifecycle.enter_by_call(ClientTxnState.COMMITTING, name)
        return self._end(name, committed=True)

    def abort(self) -> TransactionCall:
        """Begin an abort. The abort also resolves an abortable error."""
        name = "abort_transaction"
        if self.state is not ClientTxnState.ABORTABLE_ERROR:
            self.lifecycle.check_not_failed()
        self.lifecycle.enter_by_call(ClientTxnState.ABORTING, name)
        self.lifecycle.abortable_error = None
        self._queue.drop_for_abort(TransactionAborted("the transaction was aborted"))
        return self._end(name, committed=False)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> TransactionCall:
        """Make committed offsets of a group part of the transaction (C-63, KIP-447)."""
        name = "send_offsets_to_transaction"
        self.check_open(name)
        if len(self._queue) >= OFFSETS_WAITING_MAX:
            raise IllegalState(f"{len(self._queue)} offset commits wait already; await them first")
        operation = TransactionCall(name, self._new_future)
        commit = TxnOffsetCommitHandler(self._id, group, offsets, operation, v2=self.is_v2)
        self._queue.add(commit if self.is_v2 else AddOffsetsToTxnHandler(self._id, commit))
        return operation

    def check_open(self, name: str) -> int:
        """The number of the open transaction. IllegalState, or the error of the state, if no
        transaction is open for records."""
        if self.state is not ClientTxnState.IN_TRANSACTION or self.is_prepared:
            self.lifecycle.check_not_failed()
            if self.is_prepared:
                raise IllegalState(
                    f"{name}() cannot be called: the transaction is prepared; commit_transaction() or "
                    "abort_transaction() ends it"
                )
            pending = self.lifecycle.pending
            if pending is not None and pending.name != name:
                raise self.lifecycle.not_before(pending, name)
            raise self.lifecycle.not_now(name)
        return self.transaction_number

    def prepare(self, *, may_time_out: bool = False) -> PreparedTransaction:
        """Prepare the transaction, whose records are all written: it takes no more records, and any
        producer may end it."""
        name = "prepare_transaction"
        if not self.is_prepared:
            self.check_open(name)
            if not self._two_phase and not may_time_out:
                raise IllegalState(
                    "prepare_transaction() needs transaction_two_phase_commit_enable=True: the "
                    "broker would abort the prepared transaction after transaction_timeout_ms; if "
                    "that is taken into account, call it with may_time_out=True"
                )
            if not self._queue.is_idle:
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
        """Take over a transaction that another producer prepared, to commit or abort it.
        IllegalState unless this producer is new."""
        if prepared.transactional_id != self._id:
            raise IllegalState(
                f"the prepared transaction is of transactional_id {prepared.transactional_id!r}, "
                f"this producer is {self._id!r}; make a producer with that id"
            )
        if self.state is not ClientTxnState.UNINITIALIZED:
            raise IllegalState(
                "resume_transaction() is for a new producer, in place of init_transactions(), which "
                "would abort what was prepared"
            )
        identity = ProducerIdAndEpoch(prepared.producer_id, prepared.epoch)
        if not identity.is_valid or identity.epoch < 0:
            raise IllegalState(f"{prepared} is no prepared transaction")
        for state in (
            ClientTxnState.INITIALIZING,
            ClientTxnState.READY,
            ClientTxnState.IN_TRANSACTION,
        ):
            self.lifecycle.enter(state)
        self._adopt(identity)
        self.is_v2 = self._next_is_v2 = prepared.transaction_version >= V2_LEVEL
        self._started = self.is_prepared = True
        # In v1 the end of the transaction does not raise the epoch. Without a bump the sequences of
        # the producer that prepared the transaction would continue.
        self._bump_required = not self.is_v2
        self.transaction_number += 1

    # --- ends -------------------------------------------------------------------------------------

    def _end(self, name: str, *, committed: bool) -> TransactionCall:
        operation = self.ending = TransactionCall(name, self._new_future)
        self._queue.add(EndTxnHandler(self._id, operation, committed=committed, v2=self.is_v2))
        # The request that ends this transaction keeps its version; only the next transaction can
        # have another one (C-70).
        self._next_is_v2 = self._feature_level() >= V2_LEVEL
        if self._next_is_v2 and not self.is_v2:
            # An epoch bump keeps requests of v2 out of the last transaction of v1.
            self._bump_required = True
        return operation

    def _is_idle(self) -> bool:
        """True if the end of the transaction needs no request to the coordinator (C-64).

        In v2 a request is needed whenever anything was sent, because only the brokers know the
        partitions that they added (T-61). If nothing was sent, no request may be sent: while the
        markers of the previous transaction are being written, the coordinator takes the present
        epoch for the epoch of a fenced producer (T-65).
        """
        return not self._started or not self.identity.is_valid

    def _ended(self, operation: TransactionCall | None) -> None:
        """React to the coordinator's decision: get the next epoch, if one is needed (C-66); then a
        new transaction may begin."""
        self._added.clear()
        self._started = self._confirmed = self.is_prepared = False
        self.ending = None
        self.is_v2 = self._next_is_v2
        if self._bump_required or not self.identity.is_valid:
            self._bump_required = False
            self.lifecycle.enter(ClientTxnState.INITIALIZING)
            assert operation is not None
            self._queue.add(self._init_handler(EpochBumpHandler, operation))
            return
        self.lifecycle.enter(ClientTxnState.READY)
        if operation is not None:
            operation.finish()

    def _init_handler(
        self, kind: type[InitProducerIdHandler], operation: TransactionCall
    ) -> InitProducerIdHandler:
        return kind(self._id, operation, self._timeout_ms, self._two_phase)

    def _adopt(self, identity: ProducerIdAndEpoch) -> None:
        """Take over an identity, and restart all sequences at 0. To be called only while no batch
        is in flight."""
        self.identity = identity
        self.sequences.forget()

    # --- errors -----------------------------------------------------------------------------------

    def fail(self, error: OdradekError) -> None:
        """Note a fatal error, after which nothing can be sent; all waiting calls fail (C-55)."""
        self.lifecycle.fail(error)
        self._queue.fail(error)
        if self.ending is not None:
            self.ending.finish(error)

    @fatal_if_illegal
    def batch_failed(self, error: OdradekError) -> None:
        """Called when a batch will never be written, so that its transaction cannot be committed
        (C-55, C-64)."""
        if self.state in {ClientTxnState.ABORTING, ClientTxnState.FATAL_ERROR}:
            return
        if isinstance(error, _FATAL):
            self.fail(error)
        else:
            self._make_abortable(error)

    def _make_abortable(self, error: OdradekError) -> None:
        if self.state is ClientTxnState.ABORTING:
            return
        self.lifecycle.make_abortable(error)
        if not self.is_v2 and self._can_bump:
            self._bump_required = True
        self._queue.drop_for_abort(error)
        if self.ending is not None:
            self.ending.finish(error)
            self.ending = None

    @property
    def undrained_error(self) -> OdradekError | None:
        """The error for batches that have not been sent yet, if they will never be sent; otherwise
        None (C-30)."""
        if self.state is ClientTxnState.ABORTING:
            return TransactionAborted("the transaction was aborted before the record was sent")
        if self.state is ClientTxnState.ABORTABLE_ERROR:
            return TransactionAborted(
                f"not sent, because the transaction cannot be committed: {self.lifecycle.abortable_error}"
            )
        return None

    @property
    def is_completing(self) -> bool:
        """True if batches do not wait for more records, because the transaction is ending
        (C-13)."""
        return self.state in {ClientTxnState.COMMITTING, ClientTxnState.ABORTING}

    @property
    def has_open_transaction(self) -> bool:
        """True if closing must end a transaction (C-34). A prepared transaction stays open."""
        return not self.is_prepared and self.state in {
            ClientTxnState.IN_TRANSACTION,
            ClientTxnState.COMMITTING,
            ClientTxnState.ABORTING,
            ClientTxnState.ABORTABLE_ERROR,
        }

    # --- batches ----------------------------------------------------------------------------------

    def may_drain(self, batch: ProducerBatch) -> bool:
        """True if the batch may be sent (C-20). In v1 its partition must have been added to the
        transaction (C-62)."""
        if not self.is_v2 and batch.tp not in self._added:
            return False
        if self.lifecycle.state is ClientTxnState.FATAL_ERROR or not self.identity.is_valid:
            return False
        # In v2 a broker that does not know the producer accepts only sequence 0 (P-15).
        return self.sequences.may_drain(batch, self.identity, first_goes_alone=not self.is_v2)

    def drained(self, batch: ProducerBatch) -> None:
        """Note a batch that is sent; in v2 the batch adds its partition to the transaction
        (C-62)."""
        self.sequences.stamp(batch, self.identity)
        if self.is_v2:
            self._added.add(batch.tp)
            self._started = True

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        """Called when the records are in the log (C-24)."""
        self.sequences.acknowledged(batch, base_offset)
        self._confirmed = True

    def gave_up(self, batch: ProducerBatch, *, may_be_written: bool) -> None:
        """Called when a stamped batch has finally failed. If the batch was certainly not written,
        the gap is closed without a new epoch (C-45)."""
        fatal = self.state is ClientTxnState.FATAL_ERROR
        if not may_be_written and not fatal:
            self.sequences.close_gap(batch)
            return
        self.sequences.remove(batch)
        if not fatal and batch.identity == self.sequences.of(batch.tp).identity:
            self.sequences.leave_unresolved(batch)

    def out_of_order(self, batch: ProducerBatch) -> bool:
        """True if the batch is retried after OUT_OF_ORDER_SEQUENCE_NUMBER (C-50)."""
        return self.sequences.failed_because_of_another(batch)

    def unknown_producer_id(self, batch: ProducerBatch, log_start_offset: int) -> bool:
        """True if the batch is retried after UNKNOWN_PRODUCER_ID (C-52). Restarts the partition's
        sequences if needed."""
        if log_start_offset < 0 or batch.sequence_was_reset:
            return True
        if self.sequences.of(batch.tp).last_acked_offset < log_start_offset:
            self.sequences.rewrite(batch.tp, self.identity)
            return True
        return False

    def resolve(self) -> None:
        """Check partitions with unresolved sequences (C-42). Called once per pass of the sender."""
        for tp in self.sequences.resolve():
            self.request_bump(tp)

    @fatal_if_illegal
    def request_bump(self, tp: TopicPartition) -> None:
        """Request an epoch bump, because it is unknown which records are written (C-42)."""
        where = f"{tp.topic}-{tp.partition}"
        if not self.is_v2 and not self._can_bump:
            self.fail(
                Fatal(
                    f"records for {where} may be written or not, and the broker is too old to go on "
                    "under a new epoch"
                )
            )
            return
        if self.state is ClientTxnState.ABORTING:
            self._bump_required = self._bump_required or not self.is_v2
        elif self.state in {ClientTxnState.IN_TRANSACTION, ClientTxnState.COMMITTING}:
            self._make_abortable(
                TransactionAborted(f"records for {where} may be written or not; abort")
            )

    # --- requests to coordinators -----------------------------------------------------------------

    def next_request(
        self, active: Iterable[TopicPartition], has_incomplete: bool, now_ms: float
    ) -> tuple[TxnRequestHandler | None, float | None]:
        """(the next request, None), or (None, the time in ms until there may be a request). The
        time is None if only an event can lead to a request.

        `active`: partitions with waiting records. One request to a coordinator is in flight at a
        time (C-30); records of partitions that do not wait for this request may be sent at the same
        time. The end of the transaction waits for every record.
        """
        if self._queue.in_flight is not None or self.state in {
            ClientTxnState.FATAL_ERROR,
            ClientTxnState.ABORTABLE_ERROR,
        }:
            return None, None
        if not self.is_v2 and self.state in _OPEN:
            self._queue.add_partitions(self._id, active, self._added)
        while (handler := self._queue.first()) is not None:
            if isinstance(handler, EndTxnHandler):
                if has_incomplete:
                    return None, None
                if self._is_idle():
                    self._queue.remove(handler)
                    self._ended(handler.operation)
                    continue
            if handler.retry_at_ms > now_ms:
                return None, handler.retry_at_ms - now_ms
            self._queue.take(handler)
            if isinstance(handler, TxnOffsetCommitHandler):
                self._started = True
            return handler, None
        return None, None

    @fatal_if_illegal
    def answered(
        self, handler: TxnRequestHandler, response: Any, version: int, now_ms: float
    ) -> bool:
        """Handle a coordinator's answer. True if the coordinator must be looked up again (C-33)."""
        self._queue.in_flight = None
        if self.state is ClientTxnState.FATAL_ERROR:
            return False
        codes = handler.codes(response)
        worst, error, worst_of = TxnReaction.DONE, None, None
        for tp, code in codes.items():
            reaction = self._reaction(handler, code)
            if reaction is not TxnReaction.DONE and reaction.value > worst.value:
                worst, error, worst_of = reaction, handler.error(tp, code), tp
        if isinstance(handler, TxnOffsetCommitHandler):
            # Only the partitions whose offsets are not committed yet are sent again (C-63).
            for tp in [tp for tp in handler.offsets if codes[tp] is ErrorCode.NONE]:
                del handler.offsets[tp]
        if error is None:
            self._done(handler, response, version)
            return False
        if isinstance(handler, AddPartitionsToTxnHandler) and worst is TxnReaction.ABORTABLE:
            self.refused_partition = worst_of
        self._react(handler, worst, error, now_ms)
        return worst is TxnReaction.FIND_COORDINATOR

    @fatal_if_illegal
    def unanswered(self, handler: TxnRequestHandler, error: OdradekError, now_ms: float) -> bool:
        """React to a request without an answer or a coordinator. True if the coordinator must be
        looked up again (C-33)."""
        self._queue.in_flight = None
        if self.state is ClientTxnState.FATAL_ERROR:
            return False
        if isinstance(error, BadAnswer) or (error.code is None and error.retriable):
            reaction = TxnReaction.FIND_COORDINATOR
        elif error.code is None:
            reaction = TxnReaction.FATAL
        else:
            reaction = self._reaction(handler, error.code)
        self._react(handler, reaction, error, now_ms)
        return reaction is TxnReaction.FIND_COORDINATOR

    def _reaction(self, handler: TxnRequestHandler, code: ErrorCode) -> TxnReaction:
        reaction = reaction_to(handler.kind, code)
        if isinstance(handler, EndTxnHandler) and self._may_be_too_early(handler, code):
            return TxnReaction.RETRY
        if reaction is TxnReaction.FORGOTTEN:
            bumps = self.is_v2 or self._can_bump
            return TxnReaction.ABORTABLE if bumps else TxnReaction.FATAL
        return reaction

    def _may_be_too_early(self, handler: EndTxnHandler, code: ErrorCode) -> bool:
        """True if PRODUCER_FENCED may mean that the previous transaction is still being completed.

        Until the markers of the previous transaction are written, a coordinator of v2 takes the
        present epoch for a stale epoch (T-65). Once a broker has confirmed a partition of the
        present transaction, the previous transaction is completed, and PRODUCER_FENCED has another
        cause.
        """
        return (
            handler.v2
            and not handler.committed
            and not self._confirmed
            and code is ErrorCode.PRODUCER_FENCED
            and handler.attempts < EARLY_ABORTS_MAX
        )

    def _react(
        self, handler: TxnRequestHandler, reaction: TxnReaction, error: OdradekError, now_ms: float
    ) -> None:
        if reaction in {TxnReaction.RETRY, TxnReaction.FIND_COORDINATOR}:
            self._retry(handler, error, now_ms)
        elif reaction is TxnReaction.BACK:
            self.lifecycle.enter(ClientTxnState.UNINITIALIZED)
            handler.finish(error)
        elif reaction is TxnReaction.ABORTABLE and not (
            isinstance(handler, EndTxnHandler) and self.state is ClientTxnState.ABORTING
        ):
            self._make_abortable(error)
            handler.finish(error)
        else:
            self.fail(error)
            handler.finish(error)

    def _retry(self, handler: TxnRequestHandler, error: OdradekError, now_ms: float) -> None:
        dropped = self.state in {
            ClientTxnState.ABORTABLE_ERROR,
            ClientTxnState.ABORTING,
        } and not isinstance(handler, EndTxnHandler | InitProducerIdHandler)
        if dropped and not survives_abort(handler):
            return
        first = isinstance(handler, AddPartitionsToTxnHandler) and not self._added
        early = first and error.code is ErrorCode.CONCURRENT_TRANSACTIONS
        self._queue.retry(handler, now_ms, FIRST_ADD_RETRY_MS if early else None)

    def _done(self, handler: TxnRequestHandler, response: Any, version: int) -> None:
        if isinstance(handler, InitProducerIdHandler):
            self._can_bump = version >= EPOCH_BUMP_SINCE
            self._initialized(handler, response)
        elif isinstance(handler, AddPartitionsToTxnHandler):
            self._started = True
            self._added |= handler.partitions
        elif isinstance(handler, AddOffsetsToTxnHandler):
            self._started = True
            if self.state in _OPEN:
                self._queue.add(handler.then)
        elif isinstance(handler, TxnOffsetCommitHandler):
            self._confirmed = True
            handler.finish()
        elif isinstance(handler, EndTxnHandler):
            if handler.v2:
                self._adopt_next(response)
            if self.fatal_error is None:
                self._ended(handler.operation)

    def _initialized(
        self, handler: InitProducerIdHandler, response: InitProducerIdResponse
    ) -> None:
        identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        if not identity.is_valid or identity.epoch < 0:
            self.fail(Fatal(f"the broker gave {identity}, which is no identity of a producer"))
            handler.finish(self.fatal_error)
            return
        self._adopt(identity)
        self.lifecycle.enter(ClientTxnState.READY)
        # The version may change before the first transaction, and after an epoch bump (C-70).
        self.is_v2 = self._next_is_v2 = self._feature_level() >= V2_LEVEL
        handler.finish()

    def _adopt_next(self, response: EndTxnResponse) -> None:
        """Take over the identity of the next transaction (C-65, T-66)."""
        identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        if not identity.is_valid or identity.epoch < 0:
            self.fail(Fatal("the broker ended the transaction without saying what comes next"))
            return
        self._adopt(identity)
