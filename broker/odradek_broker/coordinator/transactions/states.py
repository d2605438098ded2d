"""The states of a transactional id, their transitions, and the answers to EndTxn, as tables.

Numbers, names and legal transitions are Kafka's (T-05). Dead and PrepareEpochFence are never stored:
an id is Dead while its tombstone is written, and in PrepareEpochFence while the abort that fences its
producer is.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from odradek_protocol.errors import ErrorCode


class TransactionState(IntEnum):
    """The states, by their number in the log. `label` is the name that DescribeTransactions
    shows."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Is the transaction decided, and are its markers on their way (T-32)?"""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Is no transaction open, so that the id may expire (T-06)?"""
        return self in _IDLE


_S = TransactionState
_E = ErrorCode

_LABELS = {
    _S.EMPTY: "Empty",
    _S.ONGOING: "Ongoing",
    _S.PREPARE_COMMIT: "PrepareCommit",
    _S.PREPARE_ABORT: "PrepareAbort",
    _S.COMPLETE_COMMIT: "CompleteCommit",
    _S.COMPLETE_ABORT: "CompleteAbort",
    _S.DEAD: "Dead",
    _S.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
STATE_OF_LABEL = {label: state for state, label in _LABELS.items()}

_IDLE = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})

#: A state to those it may be entered from.
ENTERED_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: _IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # From an idle state only in transactions of version 2, whose client may not know whether
    # anything was added (T-65).
    _S.PREPARE_ABORT: _IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: _IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

#: What may be in the log.
STORED_STATES = frozenset(_S) - {_S.DEAD, _S.PREPARE_EPOCH_FENCE}

#: What a prepared transaction becomes when all of its markers are written.
COMPLETED: dict[TransactionState, TransactionState] = {
    _S.PREPARE_COMMIT: _S.COMPLETE_COMMIT,
    _S.PREPARE_ABORT: _S.COMPLETE_ABORT,
}


class IllegalTransition(RuntimeError):
    """A transition that the table does not have: a bug, never a client's doing."""


def check_step(transactional_id: str, before: TransactionState, after: TransactionState) -> None:
    """IllegalTransition unless the table has this step."""
    if before not in ENTERED_FROM[after]:
        raise IllegalTransition(
            f"transactional id {transactional_id!r} cannot go from {before.label} to {after.label}"
        )


# --- EndTxn ---


class End(Enum):
    """The effects of an EndTxn with a valid identity."""

    PREPARE = "decide: write the Prepare record"
    DONE = "nothing: it was a retry, and the transaction is complete"


Ending = End | ErrorCode

#: Transactions of version 1 (EndTxn 0 to 4), by (state, commit) (T-30). A decided one never comes here:
#: until its Complete record is durable a step is on its way.
END_V1: dict[tuple[TransactionState, bool], Ending] = {
    (_S.EMPTY, True): _E.INVALID_TXN_STATE,
    (_S.EMPTY, False): _E.INVALID_TXN_STATE,
    (_S.ONGOING, True): End.PREPARE,
    (_S.ONGOING, False): End.PREPARE,
    (_S.COMPLETE_COMMIT, True): End.DONE,
    (_S.COMPLETE_COMMIT, False): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, False): End.DONE,
}

#: Transactions of version 2 (EndTxn 5), by (state, commit, retry). A retry carries the epoch that
#: the first attempt has raised; other epochs, and decided transactions, never come here (T-65).
END_V2: dict[tuple[TransactionState, bool, bool], Ending] = {
    (_S.EMPTY, False, True): _E.PRODUCER_FENCED,
    (_S.EMPTY, False, False): End.PREPARE,
    (_S.EMPTY, True, True): _E.PRODUCER_FENCED,
    (_S.EMPTY, True, False): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, False, True): End.DONE,
    (_S.COMPLETE_ABORT, False, False): End.PREPARE,
    (_S.COMPLETE_ABORT, True, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_ABORT, True, False): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_COMMIT, False, True): _E.INVALID_TXN_STATE,
    (_S.COMPLETE_COMMIT, False, False): End.PREPARE,
    (_S.COMPLETE_COMMIT, True, True): End.DONE,
    (_S.COMPLETE_COMMIT, True, False): _E.INVALID_TXN_STATE,
    (_S.ONGOING, False, True): _E.PRODUCER_FENCED,
    (_S.ONGOING, False, False): End.PREPARE,
    (_S.ONGOING, True, True): _E.PRODUCER_FENCED,
    (_S.ONGOING, True, False): End.PREPARE,
}
