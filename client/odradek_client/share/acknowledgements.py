"""Acknowledgements that wait for their request, by partition (KIP-932).

If a request has several acknowledgements of a partition, the broker carries out all of them or
none. If the lock of one record has expired, the broker also refuses the acknowledgements of the
other records. So a refused group of acknowledgements is divided into halves, and the halves are
sent again, until the record with the expired lock is found. Each record gets its own result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from enum import IntEnum

from odradek_protocol.common_structs import AcknowledgementBatch
from odradek_protocol.lazy_tuple import NamedTuple


class AcknowledgeType(IntEnum):
    """The application's answer to a record."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


#: The type for an offset that was acquired and has no record, because of compaction or a control
#: record.
GAP = 0

Types = dict[int, int]
"""Acknowledgement types by offset."""


class TopicIdPartition(NamedTuple):
    """A partition with its topic id. The topic id distinguishes a topic from a deleted topic of the
    same name.
    """

    topic_id: bytes
    topic: str
    partition: int


def to_batches(types: Mapping[int, int]) -> list[AcknowledgementBatch]:
    """The batches of a request: one for each range of consecutive offsets, with a type for each
    offset, or a single type if it is the type of all offsets of the range."""
    return [
        AcknowledgementBatch(
            first_offset=first,
            last_offset=first + len(some) - 1,
            acknowledge_types=some[:1] if len(set(some)) == 1 else some,
        )
        for first, some in _ranges(types)
    ]


def _ranges(types: Mapping[int, int]) -> Iterator[tuple[int, list[int]]]:
    first, some = -1, list[int]()
    for offset in sorted(types):
        if some and offset == first + len(some):
            some.append(types[offset])
            continue
        if some:
            yield first, some
        first, some = offset, [types[offset]]
    if some:
        yield first, some


class PendingAcknowledgements:
    """The acknowledgements of one partition that are waiting to be sent to its leader.

    Each request takes one group of acknowledgements. Renewals form separate groups, because a
    broker that does not renew locks refuses every acknowledgement in a request with renewals.
    """

    __slots__ = ("_again", "_fresh", "_renewals")

    def __init__(self) -> None:
        self._fresh: Types = {}
        self._renewals: Types = {}
        #: Groups to send again: halves of a refused group, and groups whose request failed.
        self._again: deque[Types] = deque()

    def __bool__(self) -> bool:
        return bool(self._fresh or self._renewals or self._again)

    def __len__(self) -> int:
        return len(self._fresh) + len(self._renewals) + sum(map(len, self._again))

    def add(self, offset: int, kind: int) -> None:
        """Add an acknowledgement, which replaces an unsent renewal of the same record."""
        if kind == AcknowledgeType.RENEW:
            self._renewals[offset] = kind
            return
        self._renewals.pop(offset, None)
        self._fresh[offset] = kind

    def add_again(self, types: Types) -> None:
        """Put a group back, because its request was not carried out."""
        if types:
            self._again.append(types)

    def halve(self, types: Types) -> None:
        """Put a refused group of several records back as two groups."""
        offsets = sorted(types)
        middle = len(offsets) // 2
        for part in (offsets[:middle], offsets[middle:]):
            self.add_again({offset: types[offset] for offset in part})

    def take(self) -> Types:
        """Take the next group without renewals; empty if there is none."""
        for index, types in enumerate(self._again):
            if not _has_renewal(types):
                del self._again[index]
                return types
        taken, self._fresh = self._fresh, {}
        return taken

    def take_renewals(self) -> Types:
        """Take the next group of renewals; empty if there is none."""
        for index, types in enumerate(self._again):
            if _has_renewal(types):
                del self._again[index]
                return types
        taken, self._renewals = self._renewals, {}
        return taken

    def take_all(self) -> Types:
        """Take all acknowledgements except renewals, for the last request of a session."""
        taken: Types = {}
        for types in (*self._again, self._fresh):
            taken |= {at: kind for at, kind in types.items() if kind != AcknowledgeType.RENEW}
        self._again.clear()
        self._fresh, self._renewals = {}, {}
        return taken

    def drop(self, offset: int) -> None:
        """Drop the acknowledgement and the renewal of an offset whose lock has ended."""
        for types in (self._fresh, self._renewals, *self._again):
            types.pop(offset, None)
        self._again = deque(types for types in self._again if types)


def _has_renewal(types: Types) -> bool:
    return AcknowledgeType.RENEW in types.values()
