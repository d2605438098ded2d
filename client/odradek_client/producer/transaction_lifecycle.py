"""The lifecycle of a transactional producer: its state, its error, and the calls that are
allowed."""

from __future__ import annotations

from collections.abc import Callable

from odradek_client.errors import Abortable, Fatal, IllegalState, OdradekError, TransactionAborted
from odradek_client.producer.transaction_requests import TransactionCall
from odradek_client.producer.transaction_states import ClientTxnState, IllegalTransition, step


class TransactionLifecycle:
    """The state of a transactional producer, and the error that led to the state. The state changes
    only by the legal steps of the table.

    Every caller gets its own new exception. The text of the exception names the next call to make.
    """

    def __init__(self) -> None:
        self.state = ClientTxnState.UNINITIALIZED
        self.fatal_error: OdradekError | None = None
        self.abortable_error: OdradekError | None = None
        #: The operation whose outcome its caller has not received yet (C-67).
        self.pending: TransactionCall | None = None

    # --- steps ------------------------------------------------------------------------------------

    def enter(self, target: ClientTxnState) -> None:
        """Enter a state by a decision of the producer. IllegalTransition if the step is not in the
        table."""
        self.state = step(self.state, target)

    def enter_by_call(self, target: ClientTxnState, name: str) -> None:
        """Enter a state by a call of the application. IllegalState if the call is not allowed at
        present."""
        try:
            self.state = step(self.state, target)
        except IllegalTransition:
            raise self.not_now(name) from None

    def fail(self, error: OdradekError) -> None:
        """Note a fatal error, after which nothing can be done (C-55). The first reason stays."""
        self.enter(ClientTxnState.FATAL_ERROR)
        if self.fatal_error is None:
            self.fatal_error = error

    def make_abortable(self, error: OdradekError) -> None:
        """Note an abortable error, after which only an abort is possible. The first reason
        stays."""
        self.enter(ClientTxnState.ABORTABLE_ERROR)
        if self.abortable_error is None:
            self.abortable_error = error

    # --- calls ------------------------------------------------------------------------------------

    def operation(self, name: str, begin: Callable[[], TransactionCall]) -> TransactionCall:
        """The operation of a call: an operation whose caller has stopped waiting, or a new one
        (C-67).

        IllegalState if the outcome of another call is not known yet.
        """
        pending = self.pending
        if pending is not None and pending.done and pending.error is not None:
            pending = None  # the state has the error, so there is nothing to wait for
        if pending is None:
            self.pending = None
            pending = begin()
        elif pending.name != name:
            raise self.not_before(pending, name)
        self.pending = pending
        return pending

    def seen(self, operation: TransactionCall) -> None:
        """End the operation, because its caller receives the outcome. Raises the operation's
        error."""
        if self.pending is operation:
            self.pending = None
        if operation.error is not None:
            raise self.for_caller(operation.error)

    def check_nothing_pending(self, name: str) -> None:
        """Raise IllegalState if the outcome of another call is not known yet."""
        if self.pending is not None:
            raise self.not_before(self.pending, name)

    def check_not_failed(self) -> None:
        """Raise the error that forbids further calls, if there is such an error."""
        if self.state is ClientTxnState.FATAL_ERROR:
            assert self.fatal_error is not None
            raise self.for_caller(self.fatal_error)
        if self.state is ClientTxnState.ABORTABLE_ERROR:
            assert self.abortable_error is not None
            raise self.for_caller(self.abortable_error)

    # --- exceptions -------------------------------------------------------------------------------

    def not_now(self, name: str) -> IllegalState:
        """The error of a call that the state does not allow."""
        return IllegalState(f"{name}() cannot be called now: {_ADVICE[self.state]}")

    def not_before(self, pending: TransactionCall, name: str) -> IllegalState:
        """The error of a call while the outcome of another call is not known yet."""
        return IllegalState(
            f"{name}() cannot be called before the outcome of {pending.name}() is known, which was "
            f"not waited for to its end; call {pending.name}() again"
        )

    def for_caller(self, error: OdradekError) -> OdradekError:
        """The exception for one caller. Its text names the remedy."""
        kind: type[OdradekError]
        if self.state is ClientTxnState.FATAL_ERROR:
            kind = type(error) if isinstance(error, Fatal) else Fatal
            text = f"{error}; this producer can do nothing more: close it and start a new one"
        elif self.state is ClientTxnState.ABORTABLE_ERROR:
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


_ADVICE = {
    ClientTxnState.UNINITIALIZED: "call init_transactions() first, once per producer",
    ClientTxnState.INITIALIZING: "init_transactions() is still under way; wait for it",
    ClientTxnState.READY: "no transaction is open; call begin_transaction() first",
    ClientTxnState.IN_TRANSACTION: "a transaction is open; commit_transaction() or abort_transaction() ends it",
    ClientTxnState.COMMITTING: "the transaction is being committed; wait for commit_transaction()",
    ClientTxnState.ABORTING: "the transaction is being aborted; wait for abort_transaction()",
    ClientTxnState.ABORTABLE_ERROR: "the transaction has failed; call abort_transaction()",
    ClientTxnState.FATAL_ERROR: "the producer has failed; close it and start a new one",
}
