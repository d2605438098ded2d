"""The reaction to each error code of a produce response, as a table (C-50 to C-55)."""

from __future__ import annotations

from enum import Enum, auto

from odradek_protocol.errors import ErrorCode


class ProduceReaction(Enum):
    """The reaction to a batch's answer."""

    WRITTEN = auto()  # success
    WRITTEN_BEFORE = auto()  # success, at an offset that nobody knows any more (C-24)
    SPLIT = auto()  # try again in smaller batches (C-25)
    OUT_OF_ORDER = auto()  # C-50
    FORGOTTEN = auto()  # C-52
    RETRY = auto()  # C-53
    FAIL = auto()  # this batch only; a transaction must be aborted
    FATAL = auto()  # C-55


_SPECIAL = {
    ErrorCode.NONE: ProduceReaction.WRITTEN,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ProduceReaction.WRITTEN_BEFORE,
    ErrorCode.MESSAGE_TOO_LARGE: ProduceReaction.SPLIT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ProduceReaction.OUT_OF_ORDER,
    ErrorCode.UNKNOWN_PRODUCER_ID: ProduceReaction.FORGOTTEN,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ProduceReaction.FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ProduceReaction.FATAL,
    ErrorCode.PRODUCER_FENCED: ProduceReaction.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: ProduceReaction.FATAL,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProduceReaction.FATAL,
}

#: The reaction to every code, for a producer with an identity.
REACTIONS: dict[ErrorCode, ProduceReaction] = {
    code: _SPECIAL.get(code, ProduceReaction.RETRY if code.retriable else ProduceReaction.FAIL)
    for code in ErrorCode
}
#: Behind these the batch may be in the log all the same: no answer came, or none that knows.
MAY_BE_WRITTEN = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
#: What a producer without an identity does instead: sequences and fences do not concern it.
WITHOUT_IDENTITY: dict[ErrorCode, ProduceReaction] = {
    code: ProduceReaction.FAIL
    if reaction in {ProduceReaction.OUT_OF_ORDER, ProduceReaction.FORGOTTEN, ProduceReaction.FATAL}
    else reaction
    for code, reaction in REACTIONS.items()
}
