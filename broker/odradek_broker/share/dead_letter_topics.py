"""The dead letter topics of share groups: finding the partition for a share partition, and reading
records that are given up (KIP-1191, rule H-203)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.partition import Partition
from odradek_broker.share.dead_letters import DeadLetter
from odradek_broker.share.in_flight import GivenUp
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records import BatchError, Record, iter_batches, read_records

_READ_BYTES = 1024 * 1024
#: The beginning of the names of a broker's own topics.
_INTERNAL = "__"

Find = Callable[[str, int], Partition | None]


class Topics(Protocol):
    """The topics and settings in the cluster metadata."""

    def topic_id(self, name: str, /) -> bytes: ...
    def topic_name(self, topic_id: bytes, /) -> str | None: ...
    def partition_count(self, name: str, /) -> int: ...
    def takes_dead_letters(self, name: str, /) -> bool:
        """True if the topic's own settings let groups write dead letters to it."""
        ...


class Rules(NamedTuple):
    """The broker's settings for dead letter topics."""

    prefix: str
    creates: bool


class Target(NamedTuple):
    """A partition of a dead letter topic."""

    topic: str
    topic_id: bytes
    number: int
    partition: Partition


class NoTarget(NamedTuple):
    """The reason why there is no partition for dead letters. `error`: NONE if that is how the
    settings are, so that records are archived without one; else it may be over soon."""

    reason: str
    error: ErrorCode = ErrorCode.NONE


class DeadLetterTopics:
    """The dead letter topics. `create` makes a topic that may take dead letters, and resolves with
    NONE when it may be used, or with the error."""

    def __init__(
        self,
        topics: Topics,
        find: Find,
        rules: Callable[[], Rules],
        create: Callable[[str], Deferred[ErrorCode]],
    ) -> None:
        self._topics = topics
        self.find = find
        self._rules = rules
        self._create = create

    def target_for(
        self, name: str, source_topic: str, partition: int
    ) -> Deferred[Target | NoTarget]:
        """The partition of a dead letter topic for the records of a partition."""
        problem = self._problem(name, source_topic)
        if problem is not None:
            return Deferred.of(problem)
        if self._topics.partition_count(name):
            return Deferred.of(self._target(name, partition))
        if not self._rules().creates:
            return Deferred.of(
                NoTarget(
                    f"the topic {name} does not exist, and"
                    " errors.deadletterqueue.auto.create.topics.enable is false"
                )
            )

        def created(error: ErrorCode) -> Target | NoTarget:
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
        if not self._topics.takes_dead_letters(name):
            return NoTarget(
                f"the topic {name} does not have errors.deadletterqueue.group.enable=true"
            )
        return None

    def _target(self, name: str, partition: int) -> Target | NoTarget:
        index = partition % self._topics.partition_count(name)
        found = self.find(name, index)
        if found is None or found.log.offline:
            return NoTarget(
                f"the partition {name}-{index} is offline", ErrorCode.KAFKA_STORAGE_ERROR
            )
        return Target(name, self._topics.topic_id(name), index, found)

    def opened(self, topic_id: bytes, index: int) -> Target | NoTarget | None:
        """The partition of a position in a dead letter topic; None if the topic is deleted."""
        name = self._topics.topic_name(topic_id)
        if name is None:
            return None
        found = self.find(name, index)
        if found is None or found.log.offline:
            return NoTarget(
                f"the partition {name}-{index} is offline", ErrorCode.KAFKA_STORAGE_ERROR
            )
        return Target(name, topic_id, index, found)


def given_up_records(
    log: PartitionLog, ranges: Iterable[GivenUp], *, copy: bool
) -> Iterator[DeadLetter]:
    """The dead letters of offsets that are given up: of those that have a record in the log, and of
    those that the log has lost (H-204). They are read while the iterator advances."""
    for first, last, count, reason in ranges:
        lost = min(last, log.log_start_offset - 1)
        for offset in range(first, lost + 1):
            yield DeadLetter(offset, count, reason)
        try:
            for record in _records(log, max(first, lost + 1), last):
                first = record.offset + 1
                yield DeadLetter(record.offset, count, reason, record if copy else None)
        except (StorageError, BatchError):
            # Unreadable records are dead letters all the more.
            for offset in range(max(first, lost + 1), last + 1):
                yield DeadLetter(offset, count, reason)


def _records(log: PartitionLog, first: int, last: int) -> Iterator[Record]:
    offset = first
    while offset <= last:
        data = log.read_at_once(offset, _READ_BYTES)
        behind = offset
        for position, header in iter_batches(data):
            behind = header.next_offset
            if header.is_control:
                continue
            for record in read_records(data, position, header):
                if offset <= record.offset <= last:
                    yield record
            if behind > last:
                return
        if behind <= offset:
            return
        offset = behind
