"""The dead letter topics of share groups: the choice of their partitions, and the copies of
archived records (KIP-1191, rule H-203)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.partition import Partition
from odradek_broker.share.dead_letters import DeadLetter
from odradek_broker.share.in_flight import GivenUp
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records.batch import BatchError, iter_batches
from odradek_protocol.records.record import Record, iter_records

#: The most bytes that are read at a time, and about as much of records. A record counts as so many
#: bytes more than its key and value have.
_READ_BYTES, _RECORD_BYTES = 1024 * 1024, 100
#: The prefix of the names of internal topics.
_INTERNAL = "__"

Find = Callable[[str, int], Partition | None]


class DeadLetterMetadata(Protocol):
    """The topics and settings in the cluster metadata."""

    def topic_id(self, name: str, /) -> bytes: ...
    def topic_name(self, topic_id: bytes, /) -> str | None: ...
    def partition_count(self, name: str, /) -> int: ...
    def takes_dead_letters(self, name: str, /) -> bool:
        """True if the topic's own settings let groups write dead letters to it."""
        ...

    def is_mirror(self, name: str, /) -> bool:
        """True for a mirror topic, to which only the mirror adds records."""
        ...


class DeadLetterSettings(NamedTuple):
    """The broker's settings for dead letter topics."""

    prefix: str
    creates: bool


class DeadLetterPartition(NamedTuple):
    """A partition of a dead letter topic."""

    topic: str
    topic_id: bytes
    number: int
    partition: Partition


class NoTarget(NamedTuple):
    """The reason why there is no partition for dead letters. `error`: NONE if the settings are the
    reason, so that records are archived without a dead letter; otherwise the error of a problem
    that may be temporary."""

    reason: str
    error: ErrorCode = ErrorCode.NONE


class DeadLetterTopics:
    """The dead letter topics. `create` creates a dead letter topic, and resolves with NONE when it
    may be used, or with the error; `known` resolves when all topics of the metadata may be used."""

    def __init__(
        self,
        topics: DeadLetterMetadata,
        find: Find,
        rules: Callable[[], DeadLetterSettings],
        create: Callable[[str], Deferred[ErrorCode]],
        known: Callable[[], Deferred[None]],
    ) -> None:
        self._topics = topics
        self.find = find
        self._rules = rules
        self._create = create
        self._known = known

    def target_for(
        self, name: str, source_topic: str, partition: int
    ) -> Deferred[DeadLetterPartition | NoTarget]:
        """The partition of the dead letter topic `name` that gets the dead letters of a source
        partition."""
        problem = self._problem(name, source_topic)
        if problem is not None:
            return Deferred.of(problem)
        if self._topics.partition_count(name):
            return self._known().map(lambda _: self._target(name, partition))
        if not self._rules().creates:
            return Deferred.of(
                NoTarget(
                    f"the topic {name} does not exist, and"
                    " errors.deadletterqueue.auto.create.topics.enable is false"
                )
            )

        def created(error: ErrorCode) -> DeadLetterPartition | NoTarget:
            if error is not ErrorCode.NONE and not self._topics.partition_count(name):
                return NoTarget(f"the topic {name} cannot be created: {error.name}")
            return self._target(name, partition)

        return self._create(name).map(created)

    def _problem(self, name: str, source_topic: str) -> NoTarget | None:
        prefix = self._rules().prefix
        if name.startswith(_INTERNAL):
            return NoTarget(f"{name} is the name of an internal topic")
        if not name.startswith(prefix):
            return NoTarget(
                f"{name} does not begin with errors.deadletterqueue.topic.name.prefix ({prefix})"
            )
        if name == source_topic:
            return NoTarget(f"{name} is the topic that the records come from")
        if not self._topics.partition_count(name):
            return None
        if self._topics.is_mirror(name):
            return NoTarget(f"the topic {name} is a mirror of another cluster's topic")
        if not self._topics.takes_dead_letters(name):
            return NoTarget(
                f"the topic {name} does not have errors.deadletterqueue.group.enable=true"
            )
        return None

    def _target(self, name: str, partition: int) -> DeadLetterPartition | NoTarget:
        count = self._topics.partition_count(name)
        if not count:
            return NoTarget(f"the topic {name} was deleted")
        index = partition % count
        found = self.find(name, index)
        if found is None or found.log.offline:
            return NoTarget(
                f"the partition {name}-{index} is offline", ErrorCode.KAFKA_STORAGE_ERROR
            )
        return DeadLetterPartition(name, self._topics.topic_id(name), index, found)

    def opened(self, topic_id: bytes, index: int) -> DeadLetterPartition | NoTarget | None:
        """The partition of a position in a dead letter topic; None if the topic is deleted."""
        name = self._topics.topic_name(topic_id)
        if name is None:
            return None
        found = self.find(name, index)
        if found is None or found.log.offline:
            return NoTarget(
                f"the partition {name}-{index} is offline", ErrorCode.KAFKA_STORAGE_ERROR
            )
        return DeadLetterPartition(name, topic_id, index, found)


def given_up_records(
    log: PartitionLog, ranges: Sequence[GivenUp], *, copy: bool
) -> Iterator[DeadLetter | LogReading]:
    """The dead letters of offsets that are given up. Records before the start of the log also get
    dead letters (H-204). The log is read while the iterator advances: the caller has each
    `LogReading` read before it goes on."""
    last_of_all = max((each.last_offset for each in ranges), default=-1)
    reading: LogReading | None = None
    for first, last, count, reason in ranges:
        offset = first
        while offset <= last:
            if offset < log.log_start_offset:
                yield DeadLetter(offset, count, reason)
                offset += 1
                continue
            if reading is None or not reading.first <= offset < reading.end:
                reading = LogReading(log, offset, last_of_all)
                yield reading
                if reading.end <= offset:
                    # A record that cannot be read also gets a dead letter, without a copy.
                    yield DeadLetter(offset, count, reason)
                    offset += 1
                    continue
            for record in reading.between(offset, last):
                copied = record if copy else None
                yield DeadLetter(record.offset, count, reason, record.timestamp, copied)
            offset = reading.end


class LogReading:
    """Records of a log from the offset `first` up to, but not including, `end`. They are there
    after `read`, which may be called in any thread, because batches may inflate to much (N-57). If
    nothing can be read, `end` is `first`."""

    def __init__(self, log: PartitionLog, first: int, last: int) -> None:
        """`last`: the last offset that is of interest."""
        self.first = self.end = first
        self._last = last
        self._records: list[Record] = []
        try:
            self._data = log.read_at_once(first, _READ_BYTES)
        except StorageError:
            self._data = b""

    def read(self) -> None:
        """Read the records, or some of them if they are many."""
        data = memoryview(self._data)
        self._data = b""
        left_bytes = _READ_BYTES
        with suppress(BatchError):
            for position, header in iter_batches(data):
                if self.end > self._last:
                    return
                for record in () if header.is_control else iter_records(data[position:], header):
                    if record.offset < self.first:
                        continue
                    if not self.end <= record.offset <= header.last_offset:
                        return  # The batch is damaged.
                    if record.offset > self._last or left_bytes <= 0:
                        self.end = record.offset
                        return
                    self._records.append(record)
                    # What follows may be damaged, and be read again.
                    self.end = record.offset + 1
                    left_bytes -= _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
                self.end = header.next_offset

    def between(self, first: int, last: int) -> list[Record]:
        """The records from the offset `first` to the offset `last`, inclusive."""
        records = self._records
        start = bisect_left(records, first, key=_offset)
        return records[start : bisect_right(records, last, lo=start, key=_offset)]


def _offset(record: Record) -> int:
    return record.offset
