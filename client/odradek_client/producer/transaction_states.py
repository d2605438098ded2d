"""The states of a producer with an identity, as a table.

An idempotent producer without transactions has UNINITIALIZED, INITIALIZING, READY and FATAL_ERROR;
only a transactional producer has the other states.
"""

from __future__ import annotations

from enum import Enum, auto


class ClientTxnState(Enum):
    """The state of a producer."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


_S = ClientTxnState

#: The states from which each state may be entered.
ALLOWED_FROM: dict[ClientTxnState, frozenset[ClientTxnState]] = {
    # From INITIALIZING after a failed authorization, so that the call may be repeated.
    _S.UNINITIALIZED: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.INITIALIZING}),
    # From COMMITTING and ABORTING if the epoch is bumped after the end of a transaction.
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.COMMITTING, _S.ABORTING}),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING, _S.ABORTING}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.COMMITTING: frozenset({_S.IN_TRANSACTION}),
    _S.ABORTING: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: frozenset(
        {_S.IN_TRANSACTION, _S.COMMITTING, _S.ABORTABLE_ERROR, _S.INITIALIZING}
    ),
    # This state is never left.
    _S.FATAL_ERROR: frozenset(ClientTxnState),
}


class IllegalTransition(RuntimeError):
    """A step that is not in the table: a bug, or an error of the caller (C-61)."""


def step(current: ClientTxnState, target: ClientTxnState) -> ClientTxnState:
    """Returns `target` if it may be entered from `current`; otherwise IllegalTransition."""
    if current is ClientTxnState.FATAL_ERROR and target is not ClientTxnState.FATAL_ERROR:
        raise IllegalTransition(
            f"{target.name} cannot follow FATAL_ERROR: the producer is finished"
        )
    if current not in ALLOWED_FROM[target]:
        raise IllegalTransition(f"{target.name} cannot follow {current.name}")
    return target
