"""A bounded ring of events by subject, kept for people (`odradek explain`).

There is one ring each for transactional ids, groups, producer ids, partitions, clients and share
partitions. The recorders in this package fill them; see `EventKind` in `sentences` for the kinds of
events. Rings are not stored, so after a restart they are empty.

The events and bytes of a ring are limited, and the events of each subject too, so that a busy
subject loses its own oldest events first. Texts and lists are cut to readable lengths.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import count
from typing import Generic, Protocol, TypeVar

from odradek_broker.explain.sentences import EventKind, Value
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple

#: The fields of an event or a state, in the order in which they are shown. Fields that are None are
#: left out.
Fields = dict[str, Value | None]

EVENTS_MAX = 5_000
SUBJECT_EVENTS_MAX = 500
BYTES_MAX = 8 * 1024 * 1024
#: The number of events that `Ring.newest` takes at first.
_FIRST_LOOK = 64
#: The limits of the characters of a text and of the elements of a list. "and 7 more" replaces the
#: rest of a list.
TEXT_MAX = 300
LIST_MAX = 20
#: The approximate memory of an event without its texts.
_EVENT_BYTES = 600
_PARTITION_BYTES = 100
_INT_BYTES = 32


@dataclass(slots=True)
class RecordedEvent:
    """An event, or several equal events: `times` is their number, and `last_ms` the time of the
    last event.

    Times are in milliseconds since the epoch. `partitions`: the first partitions that the event
    is about; `partitions_more`: the number of further partitions.
    """

    at_ms: int
    kind: EventKind
    error: ErrorCode
    partitions: tuple[TopicPartition, ...]
    partitions_more: int
    fields: dict[str, Value]
    last_ms: int
    times: int = 1

    def is_again(self, other: RecordedEvent) -> bool:
        """True if the other event differs only in its time."""
        return (
            self.kind is other.kind
            and self.error is other.error
            and self.partitions == other.partitions
            and self.partitions_more == other.partitions_more
            and self.fields == other.fields
        )


class SubjectState(NamedTuple):
    """The current state of a subject, or of a part of the subject."""

    kind: EventKind
    fields: Mapping[str, Value]
    partitions: tuple[TopicPartition, ...] = ()

    @classmethod
    def of(
        cls,
        kind: EventKind,
        first: Mapping[str, Value | None] | None = None,
        /,
        *,
        partitions: Iterable[TopicPartition] = (),
        **fields: Value | None,
    ) -> SubjectState:
        """A state with the fields `first` and those in `fields`. Fields that are None are left out,
        and long texts and lists are cut, as in events."""
        return cls(kind, _shown(first, fields), tuple(sorted(partitions)))


def remark(reason: Value) -> SubjectState:
    """A state that is only a sentence."""
    return SubjectState.of(EventKind.NOW_NOTHING, reason=reason)


def left_out(count: int, what: str) -> list[SubjectState]:
    """A remark on the number of those things that are not shown; empty if all `count` are."""
    return [remark(f"and {count - LIST_MAX} {what}")] if count > LIST_MAX else []


class RingElement(Protocol):
    """An element of a ring, which stands for `times` equal events. `last_ms`: the time of the last
    event.
    """

    times: int
    last_ms: int


S = TypeVar("S", bound=Hashable)
E = TypeVar("E", bound=RingElement)


class SubjectHistory(NamedTuple, Generic[E]):
    """The events of a subject, oldest first.

    The history is complete from `since_ms` on: older events were dropped, or not recorded.
    `dropped`: the known number of dropped events.
    """

    events: list[E]
    since_ms: int
    dropped: int


class _Subject:
    __slots__ = ("dropped", "dropped_ms", "numbers")

    def __init__(self) -> None:
        self.numbers: deque[int] = deque()
        self.dropped = 0
        self.dropped_ms = -1


class Ring(Generic[S, E]):
    """The events of many subjects, limited in number and bytes. `now_ms` returns wall time. No
    method fails or waits."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        events_max: int = EVENTS_MAX,
        subject_events_max: int = SUBJECT_EVENTS_MAX,
        bytes_max: int = BYTES_MAX,
        numbers: Iterator[int] | None = None,
    ) -> None:
        """`numbers`: the source of event numbers. The events of rings that share a source have one
        common order."""
        self.now_ms = now_ms
        self.started_ms = now_ms()
        self.events_max = events_max
        self.subject_events_max = subject_events_max
        self.bytes_max = bytes_max
        #: The approximate memory of all events.
        self.size_bytes = 0
        #: All events by number, oldest first: (subject, event, bytes).
        self._events: OrderedDict[int, tuple[S, E, int]] = OrderedDict()
        self._subjects: dict[S, _Subject] = {}
        self._numbers = numbers if numbers is not None else count()
        #: The time of the last event that was dropped because of the limits of the whole ring.
        self._dropped_ms = -1

    def __len__(self) -> int:
        return len(self._events)

    def last_of(self, subject: S) -> E | None:
        history = self._subjects.get(subject)
        if history is None or not history.numbers:
            return None
        return self._events[history.numbers[-1]][1]

    def add(self, subject: S, event: E, size_bytes: int) -> None:
        """Add an event of approximately this size, and drop the oldest events beyond the limits."""
        history = self._subjects.get(subject)
        if history is None:
            history = self._subjects[subject] = _Subject()
        number = next(self._numbers)
        self._events[number] = (subject, event, size_bytes)
        history.numbers.append(number)
        self.size_bytes += size_bytes
        if len(history.numbers) > self.subject_events_max:
            self._drop_first_of(history)
        while len(self._events) > self.events_max or self.size_bytes > self.bytes_max:
            self._drop_oldest()

    def about(self, subject: S) -> SubjectHistory[E]:
        history = self._subjects.get(subject)
        since_ms = max(self.started_ms, self._dropped_ms)
        if history is None:
            return SubjectHistory([], since_ms, 0)
        events = [self._events[number][1] for number in history.numbers]
        return SubjectHistory(events, max(since_ms, history.dropped_ms), history.dropped)

    def newest(self, after: int) -> Iterator[tuple[int, S, E]]:
        """The events with numbers above `after`, newest first, with number and subject. The caller
        may pause: events that are added meanwhile are left out, and dropped ones may be."""
        before, most = sys.maxsize, _FIRST_LOOK
        while True:
            part: list[tuple[int, S, E]] = []
            for number, (subject, event, _) in reversed(self._events.items()):
                if number <= after or len(part) == most:
                    break
                if number < before:
                    part.append((number, subject, event))
            if not part:
                return
            yield from part
            # Each look passes over the events of those before, so it takes twice as many.
            before, most = part[-1][0], 2 * most

    def _drop_first_of(self, history: _Subject) -> None:
        _, event, size_bytes = self._events.pop(history.numbers.popleft())
        self.size_bytes -= size_bytes
        history.dropped += event.times
        history.dropped_ms = event.last_ms

    def _drop_oldest(self) -> None:
        subject, event, _ = next(iter(self._events.values()))
        history = self._subjects[subject]
        self._drop_first_of(history)
        self._dropped_ms = max(self._dropped_ms, event.last_ms)
        if not history.numbers:
            del self._subjects[subject]


class History(Ring[str, RecordedEvent]):
    """The events of many subjects, by the name of the subject."""

    def record(
        self,
        subject: str,
        kind: EventKind,
        first: Mapping[str, Value | None] | None = None,
        /,
        *,
        error: ErrorCode = ErrorCode.NONE,
        partitions: Iterable[TopicPartition] = (),
        **fields: Value | None,
    ) -> None:
        """Record an event of this subject at the present time, with the fields `first` and those in
        `fields`. Fields that are None are left out.

        Texts and lists are cut (`TEXT_MAX`, `LIST_MAX`). If the event equals the subject's last
        event, only the count of the last event is increased.
        """
        now_ms = self.now_ms()
        kept, more = _cut_partitions(partitions)
        event = RecordedEvent(now_ms, kind, error, kept, more, _shown(first, fields), now_ms)
        last = self.last_of(subject)
        if last is not None and last.is_again(event):
            last.times += 1
            last.last_ms = now_ms
            return
        self.add(subject, event, _size_bytes(subject, event))


def _cut_partitions(partitions: Iterable[TopicPartition]) -> tuple[tuple[TopicPartition, ...], int]:
    listed = tuple(partitions)
    if len(listed) < 2:
        return listed, 0
    return tuple(nsmallest(LIST_MAX, listed)), max(len(listed) - LIST_MAX, 0)


def _shown(first: Mapping[str, Value | None] | None, fields: Fields) -> dict[str, Value]:
    return {
        name: _cut(value)
        for name, value in {**(first or {}), **fields}.items()
        if value is not None
    }


def _cut(value: Value) -> Value:
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else value[: TEXT_MAX - 3] + "..."
    kept = tuple(str(_cut(each)) for each in value[:LIST_MAX])
    more = len(value) - len(kept)
    return (*kept, f"and {more} more") if more else kept


def _size_bytes(subject: str, event: RecordedEvent) -> int:
    size_bytes = _EVENT_BYTES + sys.getsizeof(subject)
    for name, _ in event.partitions:
        size_bytes += _PARTITION_BYTES + sys.getsizeof(name)
    for value in event.fields.values():
        if type(value) is int:
            size_bytes += _INT_BYTES
        elif type(value) is str:
            size_bytes += sys.getsizeof(value)
        else:
            size_bytes += sum(map(sys.getsizeof, value))  # type: ignore[arg-type]
    return size_bytes
