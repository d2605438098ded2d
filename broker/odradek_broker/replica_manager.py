"""The replica manager, which keeps the partitions of this broker consistent with the cluster
metadata.

The broker leads all of its partitions, and each partition has one replica.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import islice

from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import METADATA_TOPIC, ClusterMetadata
from odradek_broker.partition import LedPartitions, Partition
from odradek_broker.platform.seams import Clock, Scheduler
from odradek_broker.storage.errors import DataDirectoryError, StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_durability import LogDurability
from odradek_broker.storage.manager import LogManager
from odradek_broker.storage.producers.watch import ProducerWatch
from odradek_broker.storage.startup import StartReport
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.stored.cluster_metadata import (
    MetadataRecord,
    PartitionRecord,
    PartitionRecords,
    RemoveTopicRecord,
)

#: The pause between two attempts to open a partition.
REOPEN_INTERVAL_MS = 5_000
#: The number of partitions whose files one change may create or rename immediately, if no other
#: change waits, and the number of all changes that become durable together; and the number in each
#: later turn of the event loop. Each partition takes about a millisecond, during which no other
#: request is answered.
_AT_ONCE_MAX = 4
_TURN_MAX = 2
#: The number of partitions that are opened again at a time.
_REOPENED_MAX = 20


@dataclass(slots=True, eq=False)
class MetadataDelta:
    """Changes of partitions by metadata records. `retired` and `created` take effect when the
    records are durable.

    `dropped`: partitions of deleted topics that are still in service; `retired`: logs whose files
    are to be deleted; `created`: partitions that may be used. `removed_topic_ids`: the ids of
    deleted topics. `waiting`: (topic, its id, index) of partitions that are not created yet.
    `durable`: true if the records are durable. `done` resolves when they are durable and all work
    is done.
    """

    dropped: deque[TopicPartition] = field(default_factory=deque)
    retired: deque[PartitionLog] = field(default_factory=deque)
    created: list[Partition] = field(default_factory=list)
    removed_topic_ids: list[bytes] = field(default_factory=list)
    waiting: deque[tuple[str, bytes, int]] = field(default_factory=deque)
    durable: bool = False
    done: Deferred[None] = field(default_factory=Deferred)

    @property
    def busy(self) -> bool:
        """True if there is work that can be done now."""
        return bool(self.waiting or self.dropped or (self.durable and self.retired))


class ReplicaManager:
    """Makes, opens and removes the partitions that this broker leads.

    `partition`, `partitions`: see `LedPartitions`. `watch` observes producer ids; `request_flush`
    is called to make a log durable. A request with many partitions is carried out in slices.
    Between two slices, other requests have their turn (L-45).
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        logs: LogManager,
        clock: Clock,
        watch: ProducerWatch,
        request_flush: Callable[[LogDurability], None],
        scheduler: Scheduler,
    ) -> None:
        self._metadata = metadata
        self._logs = logs
        self._clock = clock
        self._watch = watch
        self._request_flush = request_flush
        led = LedPartitions()
        self._partitions = led.by_topic
        self.partition, self.partitions = led.find, led.all
        #: The time of the next attempt to open a partition (monotonic milliseconds).
        self._reopen_at_ms: dict[tuple[str, int], int] = {}
        #: The last reported problem of each partition that could not be opened, so that each
        #: problem is reported once.
        self._reported: dict[tuple[str, int], str] = {}
        #: The partitions of deleted topics that are still in service, with their deltas.
        self._dropped: dict[TopicPartition, tuple[Partition, MetadataDelta]] = {}
        self._scheduler = scheduler
        self._later = partial(scheduler.call_later, 0)
        #: The unfinished deltas, in the order of their turns, and a flag: true if the next turn is
        #: scheduled.
        self._deltas: deque[MetadataDelta] = deque()
        self._scheduled = False
        #: The partitions that changes may still rename or create in this turn, once durable.
        self._left_at_once = _AT_ONCE_MAX
        self._closed = False

    def end_offset(self, topic: str, index: int) -> int | ErrorCode:
        """The high watermark of a partition, or the error if the partition cannot be read."""
        partition = self.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.log.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return partition.log.high_watermark

    def internal_partition(self, topic: str, index: int) -> Partition | None:
        """A partition of an internal topic; None before the topic is created, or if the partition
        has no leader because its data directory has failed."""
        partition = self.partition(topic, index)
        if partition is None or self._logs.directory_of(partition.log).failure:
            return None
        return partition

    def lead(self, log: PartitionLog, leader_epoch: int) -> Partition:
        log.watch = self._watch
        return Partition(log, leader_epoch, self._request_flush, self._later)

    # --- Start ---

    def load(self, removed_topic_ids: set[bytes], report: StartReport) -> None:
        """Open every partition of the metadata; problems are added to the report.

        Raises DataDirectoryError if the directory contradicts the metadata.
        """
        for log in self._logs:
            if log.topic_id in removed_topic_ids:
                # The deletion of the topic was durable, but the deletion of its files was not.
                self._logs.delete(log.topic, log.partition)
        for topic in self._metadata.topics.values():
            for index in topic.partitions:
                try:
                    self._open(topic.name, index, self._logs.open_known)
                except StorageError as problem:
                    report.problems.append(str(problem))
                    self._reopen_later(topic.name, index)
        self._set_strays_aside(report)
        not_found = self._logs.found_all()
        if not_found:
            report.problems.append(not_found)

    def _set_strays_aside(self, report: StartReport) -> None:
        """Rename logs without a topic, or delete them if they are empty, so that a later topic of
        the same name does not use them.

        Such logs are left if a crash has undone the creation of their topic, or if they were copied
        into the directory.
        """
        for stray in self._logs:
            topic = self._metadata.topics.get(stray.topic)
            known = topic is not None and stray.partition in topic.partitions
            if known or stray.topic == METADATA_TOPIC:
                continue
            if not stray.offline and stray.log_end_offset == 0:
                self._logs.delete(stray.topic, stray.partition)
                continue
            try:
                aside = self._logs.set_aside(stray.topic, stray.partition)
            except OSError as problem:
                raise DataDirectoryError(
                    f"{stray.directory} belongs to no topic and cannot be renamed: {problem}; make"
                    " room or move it out of the way"
                ) from problem
            report.problems.append(f"{stray.directory} belongs to no topic; it is kept as {aside}")

    # --- Opening ---

    def _open(
        self,
        topic_name: str,
        index: int,
        open_log: Callable[[str, int, bytes, LogConfig], PartitionLog],
    ) -> None:
        """Lead a partition, and create its log if the log is missing. If this broker leads the
        partition already, only the leader epoch changes."""
        led = self._partitions.setdefault(topic_name, {})
        topic = self._metadata.topics[topic_name]
        self._retire((topic_name, index))
        if index in led:
            led[index].leader_epoch = topic.partitions[index].leader_epoch
            return
        log = open_log(topic_name, index, topic.topic_id, self._metadata.log_config(topic_name))
        led[index] = self.lead(log, topic.partitions[index].leader_epoch)

    def _try_to_open(self, topic_name: str, index: int) -> str:
        """Open a partition; returns the problem, or "". After a problem the topic exists
        nevertheless, and the partition has no leader until `open_missing` succeeds."""
        try:
            self._open(topic_name, index, self._logs.create)
        except (StorageError, DataDirectoryError) as problem:
            self._reopen_later(topic_name, index)
            return str(problem)
        self._reopen_at_ms.pop((topic_name, index), None)
        self._reported.pop((topic_name, index), None)
        return ""

    def _reopen_later(self, topic_name: str, index: int) -> None:
        due_ms = self._clock.monotonic_ms() + REOPEN_INTERVAL_MS
        self._reopen_at_ms.pop((topic_name, index), None)
        self._reopen_at_ms[topic_name, index] = due_ms

    def open_missing(self) -> list[str]:
        """Try again to open the partitions that could not be opened; returns the problems that were
        not reported yet."""
        problems = []
        now_ms = self._clock.monotonic_ms()
        # The entries are in the order of their next attempts.
        for (name, index), due_ms in list(islice(self._reopen_at_ms.items(), _REOPENED_MAX)):
            topic = self._metadata.topics.get(name)
            if topic is None or index not in topic.partitions:
                del self._reopen_at_ms[name, index]
            elif due_ms <= now_ms:
                problem = self._try_to_open(name, index)
                if problem and problem != self._reported.get((name, index)):
                    self._reported[name, index] = problem
                    problems.append(f"partition {name}-{index} cannot be made: {problem}")
        return problems

    # --- Changes of metadata ---

    def apply(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """Replay records and apply them to the partitions, as far as that is allowed before the
        records are durable; `complete` does the rest."""
        delta = MetadataDelta()
        for record in records:
            self._apply(record, delta)
        self._go_on(delta)
        return delta

    def complete(self, delta: MetadataDelta) -> Deferred[None]:
        """Finish a delta whose records are durable; resolves when all of its work is done. Errors
        of the disk are not reported here."""
        delta.durable = True
        for partition in delta.created:
            partition.recorded = True
        delta.created.clear()
        for log in delta.retired:
            self._logs.mark_removed(log)
        if delta.busy and self._left_at_once:
            if self._left_at_once == _AT_ONCE_MAX:
                self._later(self._begin_turn)
            self._left_at_once -= self._work(delta, self._left_at_once)
        self._go_on(delta)
        return delta.done

    def _begin_turn(self) -> None:
        self._left_at_once = _AT_ONCE_MAX

    def close(self) -> None:
        """Stop creating and renaming files. The next start does the rest, as after a crash (D4)."""
        self._closed = True
        deltas, self._deltas = self._deltas, deque()
        for delta in deltas:
            self._go_on(delta)

    # --- In slices ---

    def _go_on(self, delta: MetadataDelta) -> None:
        """Schedule the next turn of a delta, unless it is finished."""
        if self._closed:
            for left in (delta.waiting, delta.dropped, delta.retired):
                left.clear()
        if not delta.busy:
            if delta.durable and not delta.done.done:
                delta.done.resolve(None)
            return
        if delta not in self._deltas:
            self._deltas.append(delta)
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_later(0, self._take_turn)

    def _take_turn(self) -> None:
        """Carry out a slice of the oldest delta."""
        self._scheduled = False
        if self._deltas:
            delta = self._deltas.popleft()
            self._work(delta, _TURN_MAX)
            self._go_on(delta)
        if self._deltas and not self._scheduled:
            self._scheduled = True
            self._scheduler.call_later(0, self._take_turn)

    def _work(self, delta: MetadataDelta, at_most: int) -> int:
        """Create, retire or rename the files of some partitions; returns their number."""
        for done in range(at_most):
            if delta.dropped:
                self._retire(delta.dropped.popleft())
            elif delta.waiting:
                name, topic_id, index = delta.waiting.popleft()
                topic = self._metadata.topics.get(name)
                if topic is not None and topic.topic_id == topic_id:
                    self._make(name, index, delta)
            elif delta.durable and delta.retired:
                self._logs.remove_retired(delta.retired.popleft())
            else:
                return done
        return at_most

    def _make(self, name: str, index: int, delta: MetadataDelta) -> None:
        """Create a new partition. The partition may be used only when its record is durable."""
        self._try_to_open(name, index)
        partition = self._partitions.get(name, {}).get(index)
        if partition is not None and not delta.durable:
            partition.recorded = False
            delta.created.append(partition)

    # --- Records ---

    def _apply(self, record: MetadataRecord, delta: MetadataDelta) -> None:
        removed: str | None = None
        if isinstance(record, RemoveTopicRecord):
            removed = self._metadata.topic_name(record.topic_id)
        self._metadata.replay(record)
        if isinstance(record, RemoveTopicRecord) and removed is not None:
            self._drop(removed, delta)
            delta.removed_topic_ids.append(record.topic_id)
        elif isinstance(record, PartitionRecords):
            self._make_all(record, delta)
        elif isinstance(record, PartitionRecord):
            name = self._metadata.topic_name(record.topic_id)
            if name is None:
                return
            if record.partition_id in self._partitions.setdefault(name, {}):
                self._open(name, record.partition_id, self._logs.create)
            elif len(delta.created) < _AT_ONCE_MAX and not (delta.waiting or self._deltas):
                self._make(name, record.partition_id, delta)
            else:
                delta.waiting.append((name, record.topic_id, record.partition_id))

    def _make_all(self, records: PartitionRecords, delta: MetadataDelta) -> None:
        """Create the first of many new partitions, and let the others wait."""
        topic_id = records.first.topic_id
        name = self._metadata.topic_name(topic_id)
        if name is None:
            return
        self._partitions.setdefault(name, {})
        at_once = 0 if delta.waiting or self._deltas else max(0, _AT_ONCE_MAX - len(delta.created))
        for index in records.indexes[:at_once]:
            self._make(name, index, delta)
        delta.waiting += [(name, topic_id, index) for index in records.indexes[at_once:]]

    def _drop(self, topic_name: str, delta: MetadataDelta) -> None:
        """Remove the partitions of a deleted topic and fail the requests that wait for them.

        The files stay until the deletion is durable, since a crash may undo it (D4).
        """
        self._reported = {
            key: problem for key, problem in self._reported.items() if key[0] != topic_name
        }
        dropped = self._partitions.pop(topic_name, {})
        for partition in [each for each in dropped.values() if each.up_to_date_sessions]:
            # All sessions are notified before any partition is deleted, so that a parked fetch of
            # several partitions is answered once.
            partition.notify_sessions()
        keys = [(topic_name, index) for index in dropped]
        self._dropped.update(
            {key: (dropped[index], delta) for key, index in zip(keys, dropped, strict=True)}
        )
        delta.dropped += keys
        for _ in range(min(len(delta.dropped), _AT_ONCE_MAX)):
            self._retire(delta.dropped.popleft())

    def _retire(self, key: TopicPartition) -> None:
        """Take a partition of a deleted topic out of service, if it is not yet."""
        found = self._dropped.pop(key, None)
        if found is None:
            return
        partition, delta = found
        log = self._logs.retire(*key)
        if log is not None:
            delta.retired.append(log)
            if delta.durable:
                self._logs.mark_removed(log)
        partition.deleted()

    @property
    def dropping(self) -> bool:
        """True while partitions of deleted topics are still in service: the files of these would
        be strays for a start that does not find the removal of their topic in the log."""
        return bool(self._dropped)

    def prune(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete the records of an internal topic below an offset of each partition. If a
        partition cannot be written at present, its records are deleted later."""
        partitions = self._partitions.get(topic, {})
        self._logs.delete_records(
            [
                (partitions[index].log, offset)
                for index, offset in offsets.items()
                if index in partitions
            ]
        )

    def topic_config_changed(self, topic: str) -> None:
        """Give the topic's logs their present settings."""
        config = self._metadata.log_config(topic)
        for partition in self._partitions.get(topic, {}).values():
            partition.log.config = config
