"""The promotion of mirror topics to ordinary topics (I-10 to I-12).

    open transactions are aborted -> the producers of the source are dropped, and the recovery
    point becomes the log end -> one batch of the metadata log has newer leader epochs and ends
    mirroring

Each step is durable before the next step begins. A crash between two steps leaves a mirror topic
that can be promoted again.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.config.topic_settings import MIRROR_SOURCE
from odradek_broker.deferred import Deferred, gather
from odradek_broker.metadata.cluster import Topic
from odradek_broker.mirror.events import MirrorDecision, MirrorEvent
from odradek_broker.mirror.parts import MirrorParts
from odradek_broker.partition import Partition
from odradek_broker.storage.errors import DataDirectoryError, StorageError
from odradek_protocol.constants import RESOURCE_TOPIC
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.stored.cluster_metadata import ConfigRecord

_E = ErrorCode


class Promoted(NamedTuple):
    """The outcome for a topic. `aborted`: the number of transactions that were aborted."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    aborted: int = 0


class _Failed(Exception):
    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error, self.message = error, message


class MirrorPromotions:
    """The promotion of mirror topics. `forget` is called with the id of a promoted topic."""

    def __init__(self, parts: MirrorParts, forget: Callable[[bytes], None]) -> None:
        self._metadata, self._metadata_log, self._partition = parts[:3]
        self._logs, self._clock, self._observer = parts[3:6]
        self._forget = forget
        self._running: dict[str, Deferred[Promoted]] = {}

    def promote(self, name: str) -> Deferred[Promoted]:
        """Promote a topic; resolves when the topic accepts records of producers. A topic that is
        being promoted is not promoted twice, and an ordinary topic is left unchanged."""
        running = self._running.get(name)
        if running is not None:
            return running.map(lambda outcome: outcome)
        topic = self._metadata.topics.get(name)
        if topic is None:
            return Deferred.of(
                Promoted(_E.UNKNOWN_TOPIC_OR_PARTITION, f"the topic {name} does not exist")
            )
        if not self._metadata.is_mirror(name):
            return Deferred.of(Promoted())
        outcome: Deferred[Promoted] = Deferred()
        self._running[name] = outcome
        self._metadata.promoting.add(name)
        self._begin(topic, outcome, 0)
        return outcome.map(lambda each: each)

    def _begin(self, topic: Topic, outcome: Deferred[Promoted], aborted_before: int) -> None:
        """Abort the open transactions in every partition; the further steps follow when the aborts
        are durable."""
        try:
            partitions = self._partitions(topic)
            aborts = [code for each in partitions.values() for code in self._abort(each)]
        except (_Failed, StorageError) as problem:
            self._end(topic, outcome, Promoted(problem.error, problem.message, aborted_before))
            return
        aborted = aborted_before + len(aborts)

        def fail(error: ErrorCode) -> None:
            text = f"a promotion of {topic.name} was not finished: {error.name}; try again"
            self._end(topic, outcome, Promoted(error, text, aborted))

        def are_aborted(codes: list[ErrorCode]) -> None:
            error = next((code for code in codes if code is not _E.NONE), _E.NONE)
            if error is not _E.NONE:
                fail(error)
                return
            try:
                forgotten = [self._forget_producers(each) for each in partitions.values()]
            except (StorageError, OSError) as problem:
                self._end(topic, outcome, Promoted(_E.KAFKA_STORAGE_ERROR, str(problem), aborted))
                return
            gather(forgotten).then(are_forgotten)

        def are_forgotten(codes: list[ErrorCode]) -> None:
            error = next((code for code in codes if code is not _E.NONE), _E.NONE)
            if error is not _E.NONE:
                fail(error)
            elif self._metadata.topics.get(topic.name) is not topic:
                fail(_E.UNKNOWN_TOPIC_OR_PARTITION)
            elif topic.partitions.keys() != partitions.keys():
                self._begin(topic, outcome, aborted)  # Partitions were added during the promotion.
            else:
                self._record(topic, partitions, outcome, aborted)

        gather(aborts).then(are_aborted)

    def _partitions(self, topic: Topic) -> dict[int, Partition]:
        """The partitions of a topic. Raises _Failed if one cannot be used."""
        found = {}
        for index in topic.partitions:
            partition = self._partition(topic.name, index)
            if partition is None or partition.log.offline:
                raise _Failed(
                    _E.KAFKA_STORAGE_ERROR,
                    f"the partition {topic.name}-{index} is offline; check the disk and try again",
                )
            found[index] = partition
        return found

    def _abort(self, partition: Partition) -> list[Deferred[ErrorCode]]:
        """Write a marker for every open transaction. Raises StorageError."""
        now_ms = self._clock.wall_ms()
        partition.log.ensure_loaded(now_ms)
        opened = [
            (entry.producer_id, entry.epoch, entry.coordinator_epoch)
            for entry in partition.log.producers.entries()
            if entry.transaction_first_offset is not None
        ]
        return [
            partition.append_marker(
                producer_id,
                epoch,
                max(coordinator_epoch, 0),
                commit=False,
                transaction_version=1,
                now_ms=now_ms,
            )
            for producer_id, epoch, coordinator_epoch in opened
        ]

    def _forget_producers(self, partition: Partition) -> Deferred[ErrorCode]:
        """Drop the producers of the source, because producers of this cluster may get the same ids.
        Raises StorageError and OSError."""
        done: Deferred[ErrorCode] = Deferred()
        log = partition.log
        log.forget_producers(self._clock.wall_ms())

        def flushed(error: ErrorCode) -> None:
            if error is not _E.NONE or log.producers_forgotten:
                done.resolve(error)
            else:
                partition.when_flushed(flushed)

        flushed(_E.NONE)
        return done

    def _record(
        self,
        topic: Topic,
        partitions: dict[int, Partition],
        outcome: Deferred[Promoted],
        aborted: int,
    ) -> None:
        epochs = {
            index: max(each.leader_epoch, each.log.leader_epochs.latest) + 1
            for index, each in partitions.items()
        }
        records = self._metadata.leader_epoch_records(topic.name, epochs)
        records.append(
            ConfigRecord(
                resource_type=RESOURCE_TOPIC,
                resource_name=topic.name,
                name=MIRROR_SOURCE,
                value=None,
            )
        )
        try:
            # A start with an older recovery point would scan the log and restore the producers.
            self._logs.write_recovery_points(each.log for each in partitions.values())
            recorded = self._metadata_log.commit(records)
        except (StorageError, DataDirectoryError) as problem:
            self._end(topic, outcome, Promoted(_E.KAFKA_STORAGE_ERROR, str(problem), aborted))
            return
        recorded.then(lambda _: self._end(topic, outcome, Promoted(aborted=aborted)))

    def _end(self, topic: Topic, outcome: Deferred[Promoted], promoted: Promoted) -> None:
        del self._running[topic.name]
        self._metadata.promoting.discard(topic.name)
        failed = promoted.error is not _E.NONE
        if not failed:
            self._forget(topic.topic_id)
        self._observer(
            MirrorDecision(
                MirrorEvent.NOT_PROMOTED if failed else MirrorEvent.PROMOTED,
                topic.name,
                aborted=promoted.aborted,
                error=promoted.error,
                reason=promoted.message,
            )
        )
        outcome.resolve(promoted)
