"""The replica manager: partitions of this broker, kept in step with the cluster metadata.

It leads all of them, and each has one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from odradek_broker.metadata.cluster import METADATA_TOPIC, ClusterMetadata
from odradek_broker.partition import Partition
from odradek_broker.platform.seams import Clock
from odradek_broker.storage.errors import DataDirectoryError, StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.manager import LogManager, StartReport
from odradek_broker.storage.producers.watch import ProducerWatch
from odradek_protocol.stored.cluster_metadata import (
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
)

#: How long a partition that could not be opened waits for the next attempt.
REOPEN_INTERVAL_MS = 5_000


@dataclass(slots=True)
class MetadataDelta:
    """Changes of partitions by metadata records; the first two take effect when those are durable.

    `retired`: logs whose files are deleted; `created`: partitions that may be used.
    """

    retired: list[PartitionLog] = field(default_factory=list)
    created: list[Partition] = field(default_factory=list)
    removed_topics: list[str] = field(default_factory=list)


class ReplicaManager:
    """Partitions by topic and index.

    `watch` observes producer ids; `request_flush` is asked to make a log durable.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        logs: LogManager,
        clock: Clock,
        watch: ProducerWatch,
        request_flush: Callable[[PartitionLog], None],
    ) -> None:
        self._metadata = metadata
        self._logs = logs
        self._clock = clock
        self._watch = watch
        self._request_flush = request_flush
        self._partitions: dict[str, dict[int, Partition]] = {}
        #: When to try again to open a partition (monotonic milliseconds).
        self._reopen_at_ms: dict[tuple[str, int], int] = {}
        #: What was told of those that could not be opened: once is enough, until it is another problem.
        self._told: dict[tuple[str, int], str] = {}

    def partition(self, topic: str, index: int) -> Partition | None:
        """The partition, if it exists and this node leads it (D8).

        It exists once that is durable: what it acknowledged before, a crash could take away
        together with the topic (D4).
        """
        partitions = self._partitions.get(topic)
        if partitions is None:
            return None
        partition = partitions.get(index)
        return partition if partition is not None and partition.recorded else None

    def partitions(self) -> Iterable[tuple[str, int, Partition]]:
        """All of them: (topic, index, partition)."""
        for topic, partitions in self._partitions.items():
            for index, partition in partitions.items():
                yield topic, index, partition

    def lead(self, log: PartitionLog, leader_epoch: int) -> Partition:
        """The partition of a log, under a leader epoch."""
        log.watch = self._watch
        return Partition(log, leader_epoch, self._request_flush)

    # --- Start ---

    def load(self, removed_topic_ids: set[bytes], report: StartReport) -> None:
        """Open every partition of the metadata; problems go into the report.

        DataDirectoryError if the directory contradicts the metadata.
        """
        for log in self._logs:
            if log.topic_id in removed_topic_ids:
                # Its deletion was durable, the end of its files was not.
                self._logs.delete(log.topic, log.partition)
        for topic in self._metadata.topics.values():
            for index in topic.partitions:
                try:
                    self._open(topic.name, index)
                except StorageError as problem:
                    report.problems.append(str(problem))
                    self._reopen_later(topic.name, index)
        self._set_strays_aside(report)

    def _set_strays_aside(self, report: StartReport) -> None:
        """Rename the logs of no topic, or delete empty ones: they must not be taken for a topic of their name.

        A crash may have undone the creation of their topic, or they come from elsewhere.
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
                    f"{stray.directory} belongs to no topic and cannot be renamed: {problem}"
                ) from problem
            report.problems.append(f"{stray.directory} belongs to no topic; it is kept as {aside}")

    # --- Opening ---

    def _open(self, topic_name: str, index: int) -> None:
        """Lead a partition, making its log if it is missing; only a new epoch if it is led already."""
        held = self._partitions.setdefault(topic_name, {})
        topic = self._metadata.topics[topic_name]
        if index in held:
            held[index].leader_epoch = topic.partitions[index].leader_epoch
            return
        try:
            log = self._logs.create(
                topic_name, index, topic.topic_id, self._metadata.log_config(topic_name)
            )
        except ValueError as error:
            raise DataDirectoryError(str(error)) from error
        held[index] = self.lead(log, topic.partitions[index].leader_epoch)

    def _try_to_open(self, topic_name: str, index: int) -> str:
        """Open a partition; the problem, or "". Its topic is recorded and exists all the same, so the
        partition has no leader until `open_missing` succeeds."""
        try:
            self._open(topic_name, index)
        except (StorageError, DataDirectoryError) as problem:
            self._reopen_later(topic_name, index)
            return str(problem)
        self._reopen_at_ms.pop((topic_name, index), None)
        self._told.pop((topic_name, index), None)
        return ""

    def _reopen_later(self, topic_name: str, index: int) -> None:
        due_ms = self._clock.monotonic_ms() + REOPEN_INTERVAL_MS
        self._reopen_at_ms[topic_name, index] = due_ms

    def open_missing(self) -> list[str]:
        """Try again to open the partitions that could not be opened; problems that nobody was told of yet."""
        problems = []
        now_ms = self._clock.monotonic_ms()
        for (name, index), due_ms in list(self._reopen_at_ms.items()):
            topic = self._metadata.topics.get(name)
            if topic is None or index not in topic.partitions:
                del self._reopen_at_ms[name, index]
            elif due_ms <= now_ms:
                problem = self._try_to_open(name, index)
                if problem and problem != self._told.get((name, index)):
                    self._told[name, index] = problem
                    problems.append(f"partition {name}-{index} cannot be made: {problem}")
        return problems

    # --- Changes of metadata ---

    def apply(self, records: Sequence[MetadataRecord]) -> MetadataDelta:
        """Replay records and make the partitions agree with them, as far as is allowed before the
        records are durable; `complete` does the rest."""
        delta = MetadataDelta()
        for record in records:
            self._apply(record, delta)
        return delta

    def complete(self, delta: MetadataDelta) -> None:
        """The records of a delta are durable."""
        for partition in delta.created:
            partition.recorded = True
        for log in delta.retired:
            self._logs.remove_retired(log)

    def _apply(self, record: MetadataRecord, delta: MetadataDelta) -> None:
        removed: str | None = None
        if isinstance(record, RemoveTopicRecord):
            removed = self._metadata.topic_name(record.topic_id)
        self._metadata.replay(record)
        if isinstance(record, RemoveTopicRecord) and removed is not None:
            delta.retired += self._drop(removed)
            delta.removed_topics.append(removed)
        elif isinstance(record, PartitionRecord):
            name = self._metadata.topic_name(record.topic_id)
            if name is not None:
                held = self._partitions.setdefault(name, {})
                known = held.get(record.partition_id)
                self._try_to_open(name, record.partition_id)
                partition = held.get(record.partition_id)
                if partition is not None and partition is not known:
                    partition.recorded = False
                    delta.created.append(partition)

    def _drop(self, topic_name: str) -> list[PartitionLog]:
        """Drop the partitions of a removed topic and fail what waits for them; their logs.

        The files stay until the removal is durable: a crash may bring the topic back (D4).
        """
        self._told = {key: told for key, told in self._told.items() if key[0] != topic_name}
        retired = []
        for index, partition in self._partitions.pop(topic_name, {}).items():
            log = self._logs.retire(topic_name, index)
            if log is not None:
                retired.append(log)
            partition.deleted()
        return retired

    def topic_config_changed(self, topic: str) -> None:
        """Give the topic's logs their present settings."""
        config = self._metadata.log_config(topic)
        for partition in self._partitions.get(topic, {}).values():
            partition.log.config = config
