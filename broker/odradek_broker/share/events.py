"""The events of share partitions, for an observer: each is one decision about runs of offsets.

An event is made once for each request and partition, however many records the request has, and has
the decision's own lists: who keeps an event must not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from odradek_broker.share.acquisition import Acquired
from odradek_broker.share.in_flight import GivenUpBecause, RecordState, Removed
from odradek_broker.share.share_partition import Acknowledgement, AcknowledgeType
from odradek_broker.share_state import ShareKey, StateBatch
from odradek_protocol.errors import ErrorCode


class SessionEnd(Enum):
    """The ways in which a share session ends, so that its member's records are given back."""

    CLOSED = "closed"
    DISCONNECTED = "disconnected"


class NothingReason(Enum):
    """The reasons why a ShareFetch brings no record of a partition that has records."""

    LOCKS_USED_UP = "record_locks"
    """As many records are in flight as `partition.max.record.locks` allows (H-154)."""

    LOCKED = "locked"
    """Members have all records that are not finished."""

    DELAYED = "delayed"
    """Members have all of them but those that wait for the end of a pause (H-200)."""


class SessionBegan(NamedTuple):
    """A member began a session. `client_id` and `host` are those of its connection."""

    group_id: str
    member_id: str
    client_id: str | None
    host: str


class Loaded(NamedTuple):
    """The leader loaded a share partition. `batches`: the stored ones behind the start offset."""

    key: ShareKey
    start_offset: int
    batches: Sequence[StateBatch]
    took_ms: int


class Dropped(NamedTuple):
    """The leader forgot a share partition, and who has which record."""

    key: ShareKey
    error: ErrorCode


class RecordsAcquired(NamedTuple):
    """A member acquired records, until their locks expire after `lock_ms`."""

    key: ShareKey
    member_id: str
    acquired: Sequence[Acquired]
    lock_ms: int


class RecordsAcknowledged(NamedTuple):
    """The acknowledgements of a member were stored, or could not be: `error`. `stored`: the new
    states of the records; a renewed lock has none."""

    key: ShareKey
    member_id: str
    acknowledgements: Sequence[Acknowledgement]
    stored: Sequence[StateBatch]
    error: ErrorCode


class AcknowledgementsRefused(NamedTuple):
    """The acknowledgements of a member were refused together."""

    key: ShareKey
    member_id: str
    acknowledgements: Sequence[Acknowledgement]
    error: ErrorCode
    message: str


class RecordsReturned(NamedTuple):
    """The records of a member were given back, because its session ended."""

    key: ShareKey
    member_id: str
    end: SessionEnd
    stored: Sequence[StateBatch]
    delivery_count_limit: int
    error: ErrorCode


class LocksExpired(NamedTuple):
    """Locks have expired: their records are available again, or archived."""

    key: ShareKey
    stored: Sequence[StateBatch]
    delivery_count_limit: int


class RecordsRemoved(NamedTuple):
    """Records in flight were archived because they do not exist any more, or must not be seen."""

    key: ShareKey
    removed: Removed


class LogStartMoved(NamedTuple):
    """The log begins later: everything in flight before it is finished."""

    key: ShareKey
    before: int
    log_start_offset: int


class NothingAcquired(NamedTuple):
    """A ShareFetch of a member brought nothing, although the partition has records."""

    key: ShareKey
    member_id: str
    reason: NothingReason


class DeadLettered(NamedTuple):
    """Neighbouring records that were given up have dead letters, from `letter_offset` of a
    partition of a dead letter topic on."""

    key: ShareKey
    first_offset: int
    last_offset: int
    delivery_count: int
    reason: GivenUpBecause
    topic: str
    partition: int
    letter_offset: int


class NotDeadLettered(NamedTuple):
    """Neighbouring records that were given up have no dead letters, because of a problem."""

    key: ShareKey
    first_offset: int
    last_offset: int
    delivery_count: int
    reason: GivenUpBecause
    problem: str


ShareEvent = (
    SessionBegan
    | Loaded
    | Dropped
    | RecordsAcquired
    | RecordsAcknowledged
    | AcknowledgementsRefused
    | RecordsReturned
    | LocksExpired
    | RecordsRemoved
    | LogStartMoved
    | NothingAcquired
    | DeadLettered
    | NotDeadLettered
)
Observer = Callable[[ShareEvent], None]


def count_of_types(acknowledgements: Sequence[Acknowledgement]) -> Iterator[tuple[int, int]]:
    """(type, number of offsets) of each part of the acknowledgements."""
    for each in acknowledgements:
        for first, last, kind in each.parts(each.first_offset, each.last_offset):
            yield kind, last - first + 1


def archived_by(
    acknowledgements: Sequence[Acknowledgement], stored: Sequence[StateBatch]
) -> Iterator[tuple[int, int]]:
    """(type of acknowledgement, number of records) of the records that were archived: rejected
    ones, those that were delivered as often as the limit allows, and gaps."""
    archived = [each for each in stored if each.delivery_state == RecordState.ARCHIVED]
    if not archived:
        return
    for each in acknowledgements:
        for first, last, kind in each.parts(each.first_offset, each.last_offset):
            count = sum(
                max(0, min(last, batch.last_offset) - max(first, batch.first_offset) + 1)
                for batch in archived
            )
            if count and kind != AcknowledgeType.ACCEPT:
                yield kind, count
