"""The events of share partitions, for an observer: each is one decision about runs of offsets.

An event is made once for each request and partition, however many records the request has. An event
shares its lists with the decision: an observer that keeps the event must not change the lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import islice

from odradek_broker.share.acquisition import Acquired
from odradek_broker.share.in_flight import GivenUpBecause, RecordState, Removed
from odradek_broker.share.share_partition import AcknowledgeType, ShareAcknowledgementBatch
from odradek_broker.share_state import ShareKey, StateBatch
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple

_T = AcknowledgeType
_KINDS = tuple(map(int, AcknowledgeType))
#: An int, because comparisons with a member of an enum are slow, and every request makes some.
_ARCHIVED = int(RecordState.ARCHIVED)


class SessionEnd(Enum):
    """The causes of the end of a share session, which releases its member's records."""

    CLOSED = "closed"
    DISCONNECTED = "disconnected"


class NothingReason(Enum):
    """The reasons why a ShareFetch returns no record of a partition that has records."""

    LOCKS_USED_UP = "record_locks"
    """The records in flight are as many as `partition.max.record.locks` allows (H-154)."""

    LOCKED = "locked"
    """Members have all records that are not finished."""

    DELAYED = "delayed"
    """Members have all unfinished records except those that wait for the end of a pause (H-200)."""


class SessionBegan(NamedTuple):
    """A member began a session. `client_id` and `host` are those of its connection."""

    group_id: str
    member_id: str
    client_id: str | None
    host: str


class Loaded(NamedTuple):
    """The leader loaded a share partition. `batches`: the stored batches after the start offset."""

    key: ShareKey
    start_offset: int
    batches: Sequence[StateBatch]
    took_ms: int


class Dropped(NamedTuple):
    """The leader dropped the state of a share partition, with its acquired records."""

    key: ShareKey
    error: ErrorCode


class RecordsAcquired(NamedTuple):
    """A member acquired records, until their locks expire after `lock_ms`."""

    key: ShareKey
    member_id: str
    acquired: Sequence[Acquired]
    lock_ms: int


class RecordsAcknowledged(NamedTuple):
    """The acknowledgements of a member were stored, or could not be stored because of `error`.
    `stored`: the new states of the records; a renewed lock changes no state."""

    key: ShareKey
    member_id: str
    acknowledgements: Sequence[ShareAcknowledgementBatch]
    stored: Sequence[StateBatch]
    error: ErrorCode


class AcknowledgementsRefused(NamedTuple):
    """All acknowledgements of a member's request for one partition were refused."""

    key: ShareKey
    member_id: str
    acknowledgements: Sequence[ShareAcknowledgementBatch]
    error: ErrorCode
    message: str


class RecordsReturned(NamedTuple):
    """The records of a member were released, because its session ended."""

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
    """Records in flight were archived because they no longer exist, or belong to an aborted
    transaction.
    """

    key: ShareKey
    removed: Removed


class LogStartMoved(NamedTuple):
    """The log start offset has moved: all records in flight before it are finished."""

    key: ShareKey
    before: int
    log_start_offset: int


class NothingAcquired(NamedTuple):
    """A ShareFetch of a member returned no records, although the partition has records."""

    key: ShareKey
    member_id: str
    reason: NothingReason


class DeadLettered(NamedTuple):
    """Neighbouring records that were given up have dead letters, which begin at `letter_offset` of
    a partition of a dead letter topic."""

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


class OffsetsReset(NamedTuple):
    """An administrator set the start offset of a group without members; -1: the start offset was
    deleted."""

    key: ShareKey
    start_offset: int


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
    | OffsetsReset
)
Observer = Callable[[ShareEvent], None]


def count_of_types(acknowledgements: Sequence[ShareAcknowledgementBatch]) -> list[int]:
    """The number of offsets with each type of acknowledgement, by type."""
    counts = [0] * len(_KINDS)
    for first, last, types in acknowledgements:
        if len(types) == 1:
            counts[types[0]] += last - first + 1
        else:
            for kind in _KINDS:
                counts[kind] += types.count(kind)
    return counts


def archived_by(
    acknowledgements: Sequence[ShareAcknowledgementBatch], stored: Sequence[StateBatch]
) -> Counter[int]:
    """The number of records that each type of acknowledgement has archived: rejected records,
    released records that were delivered as often as the limit allows, and gaps. `acknowledgements`
    and `stored` are in the order of offsets."""
    archived = [each for each in stored if each[2] == _ARCHIVED]
    if not archived:
        return Counter()
    counts = count_of_types(acknowledgements)
    if sum(counts) - counts[_T.RENEW] == records_in(stored):
        # `stored` has all acknowledged offsets: each rejected record and gap is archived.
        rejected, gaps = counts[_T.REJECT], counts[_T.GAP]
        given_up = records_in(archived) - rejected - gaps
        return +Counter[int]({_T.REJECT: rejected, _T.RELEASE: given_up, _T.GAP: gaps})
    return _overlaps(acknowledgements, archived)


def records_in(batches: Iterable[StateBatch]) -> int:
    """The number of records."""
    return sum(last - first + 1 for first, last, _, _ in batches)


def _overlaps(
    acknowledgements: Sequence[ShareAcknowledgementBatch], archived: Sequence[StateBatch]
) -> Counter[int]:
    """For each type of acknowledgement, the number of archived records that have it."""
    counts: Counter[int] = Counter()
    parts = (
        part
        for each in acknowledgements
        for part in each.parts(each.first_offset, each.last_offset)
    )
    at = 0
    for first, last, kind in parts:
        while at < len(archived) and archived[at].last_offset < first:
            at += 1
        for batch in islice(archived, at, None):
            if batch.first_offset > last:
                break
            overlap = min(last, batch.last_offset) - max(first, batch.first_offset) + 1
            counts[kind] += overlap
    return counts
