"""The states of the mode exactly-once, the pauses after failures, and the partitions that are given
up.

Only a state in `STARTED` has a producer that owns the mirror. Every failure closes the producer, so
the way back from `FAILED` is another start.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from enum import Enum

from odradek_client.errors import (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    OdradekError,
    OutOfOrderSequence,
    Refused,
    TransactionalIdAuthorizationFailed,
    UnsupportedByBroker,
)
from odradek_client.structs import TopicPartition
from odradek_protocol.errors import ErrorCode

#: The pause after the first failure, and the maximum pause. The pause doubles after each further
#: failure.
_PAUSE_MS = 200.0
_PAUSE_MAX_MS = 10_000.0
_DOUBLINGS_MAX = 10
#: The errors after which a retry does not help.
_FINAL = (
    AuthenticationFailed,
    ClusterAuthorizationFailed,
    Refused,
    TransactionalIdAuthorizationFailed,
    UnsupportedByBroker,
)
_CAUSES_MAX = 10


class CopierState(Enum):
    """The state of an instance. The value says what the instance does."""

    STARTING = "fences other instances and reads the map topic, in the next step"
    IDLE = "owns the mirror; no transaction is open"
    COPYING = "writes batches in the open transaction"
    COMMITTING = "ends the transaction: answers to the batches, positions, commit"
    FAILED = "waits for the end of the pause after a failure"
    CLOSED = "has ended"


_S = CopierState

#: The states that may follow each state. A partition that the target refuses leads to `STARTING`
#: without a pause.
COPIER_STEPS: dict[CopierState, frozenset[CopierState]] = {
    _S.STARTING: frozenset({_S.IDLE, _S.FAILED, _S.CLOSED}),
    _S.IDLE: frozenset({_S.COPYING, _S.FAILED, _S.CLOSED}),
    _S.COPYING: frozenset({_S.COMMITTING, _S.STARTING, _S.FAILED, _S.CLOSED}),
    _S.COMMITTING: frozenset({_S.IDLE, _S.STARTING, _S.FAILED, _S.CLOSED}),
    _S.FAILED: frozenset({_S.STARTING, _S.CLOSED}),
    _S.CLOSED: frozenset(),
}

#: The states in which the instance owns the mirror.
STARTED = frozenset({_S.IDLE, _S.COPYING, _S.COMMITTING})


class IllegalCopierStep(RuntimeError):
    """A step that is not in `COPIER_STEPS`: a bug of this program."""


def next_state(state: CopierState, entered: CopierState) -> CopierState:
    """The state `entered`. Raises IllegalCopierStep if it may not follow `state`."""
    if entered not in COPIER_STEPS[state]:
        raise IllegalCopierStep(f"the exactly-once mirror: {state.name} -> {entered.name}")
    return entered


class RetryPolicy:
    """The pauses between failures in a row. `patience_ms`: the time that failures may last; None:
    any time."""

    def __init__(self, patience_ms: float | None) -> None:
        self._patience_ms = patience_ms
        self._failures = 0
        self._since_s = 0.0
        self._again_at_s = 0.0

    @property
    def is_failing(self) -> bool:
        """True from a failure to the next success."""
        return self._failures > 0

    def failed(self, error: OdradekError, now_s: float) -> bool:
        """Begin the pause after a failure. False if the mirror must end: a retry would fail in the
        same way, or the failures have lasted too long."""
        if _is_final(error):
            return False
        if not self._failures:
            self._since_s = now_s
        if self._patience_ms is not None and (now_s - self._since_s) * 1000 > self._patience_ms:
            return False
        pause_ms = min(_PAUSE_MS * 2 ** min(self._failures, _DOUBLINGS_MAX), _PAUSE_MAX_MS)
        self._failures += 1
        self._again_at_s = now_s + pause_ms / 1000
        return True

    def succeeded(self) -> None:
        """End the row of failures."""
        self._failures = 0

    def left_s(self, now_s: float) -> float:
        """The rest of the pause."""
        return max(self._again_at_s - now_s, 0.0)


def _is_final(error: OdradekError) -> bool:
    """True if a retry would end with the same error."""
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return False
        if isinstance(cause, _FINAL) and not isinstance(cause, OutOfOrderSequence):
            return cause.code is not ErrorCode.UNKNOWN_SERVER_ERROR
        cause = cause.__cause__
    return False


class GivenUpPartitions:
    """The partitions that are not copied any more. `tell` is called with a line for the user, once
    for each reason of a partition, also if the partition was retried in between."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._partitions: set[TopicPartition] = set()
        self._told: dict[TopicPartition, str] = {}

    def __contains__(self, tp: object) -> bool:
        return tp in self._partitions

    def add(self, tp: TopicPartition, why: str) -> None:
        """Give up a partition."""
        self._partitions.add(tp)
        if self._told.get(tp) != why:
            self._told[tp] = why
            self._tell(f"{tp.topic}-{tp.partition} is not copied any more: {why}")

    def retry(self, topics: Container[str]) -> None:
        """Let the partitions of these topics be copied again."""
        self._partitions = {tp for tp in self._partitions if tp.topic not in topics}
