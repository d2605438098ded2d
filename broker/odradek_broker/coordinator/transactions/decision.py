"""The decision about a request: an error, or records and an answer.

Those who decide look at nothing but their arguments. If they need a new producer id they say so
(`needs_producer_id`), and decide again when there is one, on whatever is stored then.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek_broker.coordinator.transactions.states import (
    TransactionState,
)
from odradek_broker.coordinator.transactions.transaction import (
    Transaction,
)
from odradek_protocol.constants import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
_S = TransactionState


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision. `after` is what to record, if anything, and `producer_id` and `epoch` the
    identity to answer; `ongoing_*` that of a transaction that was kept (KIP-939)."""

    error: ErrorCode = _E.NONE
    after: Transaction | None = None
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    ongoing_producer_id: int = NO_PRODUCER_ID
    ongoing_epoch: int = NO_PRODUCER_EPOCH
    needs_producer_id: bool = False


NEEDS_PRODUCER_ID = Decision(needs_producer_id=True)
