"""The counters of share groups that `/metrics` shows, most of them Kafka's (KIP-1103).

At most `PARTITIONS_MAX` share partitions have counters; the counters that were unchanged for
longest are dropped first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import TypeVar

from odradek_broker.share.events import (
    DeadLettered,
    Loaded,
    LocksExpired,
    NotDeadLettered,
    NothingAcquired,
    NothingReason,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsRemoved,
    RecordsReturned,
    ShareEvent,
    archived_by,
    count_of_types,
    records_in,
)
from odradek_broker.share.in_flight import ArchiveReason, RecordState
from odradek_broker.share.share_partition import AcknowledgeType
from odradek_broker.share_state import ShareKey
from odradek_broker.slices import paced
from odradek_protocol.errors import ErrorCode

PARTITIONS_MAX = 10_000
K = TypeVar("K")
V = TypeVar("V")
#: Type of an acknowledgement -> the reason under which the records that it archives are counted.
_ARCHIVED_BY = {
    AcknowledgeType.REJECT: "rejected",
    AcknowledgeType.RELEASE: "delivery_count",
    AcknowledgeType.GAP: "gap",
}


class PartitionStatistics:
    """The counters of one share partition. `archived`: records by the reason of archiving;
    `empty_fetches`: fetches without records by their reason; `locks_expired`: records whose lock
    expired; `dead_letters`: records with a dead letter; `missing_dead_letters`: records that should
    have a dead letter and have none."""

    __slots__ = (
        "archived",
        "dead_letters",
        "empty_fetches",
        "locks_expired",
        "missing_dead_letters",
    )

    def __init__(self) -> None:
        self.archived: Counter[str] = Counter()
        self.empty_fetches: Counter[NothingReason] = Counter()
        self.locks_expired = 0
        self.dead_letters = self.missing_dead_letters = 0


class TopicStatistics:
    """The number of requests with a topic, and of those that had an error for the topic."""

    __slots__ = ("acknowledgements", "failed_acknowledgements", "failed_fetches", "fetches")

    def __init__(self) -> None:
        self.fetches = self.failed_fetches = 0
        self.acknowledgements = self.failed_acknowledgements = 0


class GroupStatistics:
    """The answered fetches of a group: their number, the sum of their waits, and the sum of the
    percentages of requested partitions that were `fetchable` (see `ShareStatistics.answered`)."""

    __slots__ = ("fetchable_percent", "fetches", "waited_ms")

    def __init__(self) -> None:
        self.fetches = self.fetchable_percent = self.waited_ms = 0


class ShareStatistics:
    """All counters of the share partitions that this broker leads."""

    def __init__(self) -> None:
        #: Acknowledged offsets by the type of acknowledgement.
        self.acknowledged = [0] * len(AcknowledgeType)
        self.loads = self.load_time_ms = 0
        self.groups: OrderedDict[str, GroupStatistics] = OrderedDict()
        self.partitions: OrderedDict[ShareKey, PartitionStatistics] = OrderedDict()
        self.topics: OrderedDict[str, TopicStatistics] = OrderedDict()

    def count(self, event: ShareEvent) -> None:
        if isinstance(event, RecordsAcquired):
            return
        if isinstance(event, RecordsAcknowledged):
            if event.error is ErrorCode.NONE:
                self._count_acknowledged(event)
        elif isinstance(event, RecordsReturned):
            if event.error is ErrorCode.NONE:
                self._count_exhausted(event)
        elif isinstance(event, LocksExpired):
            of_partition = self._of(event.key)
            of_partition.locks_expired += records_in(event.stored)
            self._count_exhausted(event)
        elif isinstance(event, RecordsRemoved):
            removed = event.removed
            count = removed.last_offset - removed.first_offset + 1
            self._of(event.key).archived[removed.reason.value] += count
        elif isinstance(event, NothingAcquired):
            self._of(event.key).empty_fetches[event.reason] += 1
        elif isinstance(event, DeadLettered):
            self._of(event.key).dead_letters += event.last_offset - event.first_offset + 1
        elif isinstance(event, NotDeadLettered):
            count = event.last_offset - event.first_offset + 1
            self._of(event.key).missing_dead_letters += count
        elif isinstance(event, Loaded):
            self.loads += 1
            self.load_time_ms += event.took_ms

    def _count_acknowledged(self, event: RecordsAcknowledged) -> None:
        if len(event.acknowledgements) == 1 and len(event.acknowledgements[0].types) == 1:
            # The most frequent case by far: all records are accepted.
            first, last, (kind,) = event.acknowledgements[0]
            if kind == AcknowledgeType.ACCEPT:
                self.acknowledged[kind] += last - first + 1
                return
        for kind, count in enumerate(count_of_types(event.acknowledgements)):
            self.acknowledged[kind] += count
        for kind, count in archived_by(event.acknowledgements, event.stored).items():
            self._of(event.key).archived[_ARCHIVED_BY[AcknowledgeType(kind)]] += count

    def _count_exhausted(self, event: RecordsReturned | LocksExpired) -> None:
        """Count the records that were archived instead of becoming available again."""
        for each in event.stored:
            if each.delivery_state == RecordState.ARCHIVED:
                too_often = each.delivery_count >= event.delivery_count_limit
                reason = "delivery_count" if too_often else ArchiveReason.LOG_START.value
                self._of(event.key).archived[reason] += each.last_offset - each.first_offset + 1

    async def fetched(self, topics: Iterable[str], failed: Iterable[str]) -> None:
        async for name in paced(set(topics)):
            self._of_topic(name).fetches += 1
        async for name in paced(set(failed)):
            self._of_topic(name).failed_fetches += 1

    async def acknowledgements_answered(self, topics: Iterable[str], failed: Iterable[str]) -> None:
        """Count a request with acknowledgements for each of `topics`, and an error for each of
        `failed`."""
        async for name in paced(set(topics)):
            self._of_topic(name).acknowledgements += 1
        async for name in paced(set(failed)):
            self._of_topic(name).failed_acknowledgements += 1

    def answered(self, group_id: str, fetchable: int, partitions: int, waited_ms: int) -> None:
        """Count a ShareFetch and the time that it waited. `partitions`: the number of requested
        partitions. `fetchable`: the number of requested partitions whose limit of records in flight
        allowed a fetch."""
        found = _latest(self.groups, group_id, GroupStatistics)
        found.fetches += 1
        found.fetchable_percent += 100 * fetchable // partitions
        found.waited_ms += waited_ms

    def _of(self, key: ShareKey) -> PartitionStatistics:
        return _latest(self.partitions, key, PartitionStatistics)

    def _of_topic(self, name: str) -> TopicStatistics:
        return _latest(self.topics, name, TopicStatistics)


def _latest(table: OrderedDict[K, V], key: K, make: Callable[[], V]) -> V:
    """The counters of a key, moved to the end of the order in which counters are dropped."""
    found = table.get(key)
    if found is None:
        found = table[key] = make()
        if len(table) > PARTITIONS_MAX:
            table.popitem(last=False)
    else:
        table.move_to_end(key)
    return found
