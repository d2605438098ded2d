"""The stored state of share partitions: the values that the share coordinator and its callers
exchange (KIP-932)."""

from __future__ import annotations

from odradek_protocol.constants import NO_DELIVERY_COUNT
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import ZERO_UUID


class ShareKey(NamedTuple):
    """A share partition: a partition of a topic as one share group consumes it."""

    group_id: str
    topic_id: bytes
    partition: int


class StateBatch(NamedTuple):
    """The state of the records from `first_offset` to `last_offset`, inclusive.

    `delivery_state` is 0 (available), 2 (acknowledged) or 4 (archived), as Kafka stores it.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class DeadLetterPosition(NamedTuple):
    """A position in a dead letter topic: dead letters from this offset on are perhaps not included
    in the state of their share partition yet (H-206)."""

    topic_id: bytes
    partition: int
    offset: int


#: The value of `dead_letters_from` in a change that sets it to None.
NO_DEAD_LETTERS = DeadLetterPosition(ZERO_UUID, -1, -1)


class ShareState(NamedTuple):
    """The state of a share partition.

    The group coordinator sets the state epoch, and raises it when the partition is initialized
    again. The leader epoch is that of the last leader that read the state. `snapshot_epoch` counts
    the snapshots of the state. The start offset is -1 before the first fetch. `batches` are sorted
    and do not overlap; records from `start_offset` on that no batch contains are available, and
    were not delivered yet. `created_ms` is the wall time of the last snapshot that a change has
    caused, `written_ms` the wall time of the last snapshot. `dead_letters_from`: None if the
    batches include every dead letter.

    In a change, `dead_letters_from` None leaves the stored position unchanged, `snapshot_epoch` is
    0, and the other epochs are those of the writer, or -1 for an epoch that is not to be checked.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int = NO_DELIVERY_COUNT
    batches: tuple[StateBatch, ...] = ()
    created_ms: int = 0
    written_ms: int = 0
    dead_letters_from: DeadLetterPosition | None = None


class StateResult(NamedTuple):
    """The answer of the share coordinator. `message` explains an error; `state` is set after a
    successful read."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: ShareState | None = None
