"""The metadata log, `__cluster_metadata`, in which cluster metadata is recorded, and from which it
is replayed (D4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from odradek_broker.config.types import BrokerConfigError
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import METADATA_TOPIC, ClusterMetadata
from odradek_broker.metadata.errors import MetadataError
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.record_checks import check_all
from odradek_broker.metadata.snapshots import (
    CorruptMetadataSnapshot,
    SnapshotDirectory,
    StoredSnapshot,
)
from odradek_broker.metadata.snapshotter import MetadataSnapshotter
from odradek_broker.partition import Partition
from odradek_broker.platform.seams import Clock, Scheduler
from odradek_broker.storage.errors import DataDirectoryError, StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.manager import LogManager
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.message import Message
from odradek_protocol.primitives import WireError
from odradek_protocol.settings import INT32_MAX
from odradek_protocol.stored.cluster_metadata import (
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_record,
    encode_records,
)

#: The metadata topic has a fixed id, as in Kafka, since no record can give it an id.
METADATA_TOPIC_ID = bytes(15) + b"\x01"
#: The maximum number of refused metadata changes that one `maintain` reports.
_REFUSALS_MAX = 10

#: Replays records, which end at the given offset of the metadata log, and applies them to the
#: partitions. The returned function is called when the records are durable, and does the work that
#: had to wait for their durability; its result resolves when the work is done.
Publish = Callable[[Sequence[MetadataRecord], int], Callable[[], Deferred[None]]]


class MetadataLogState(NamedTuple):
    """The ends of the metadata log. Records below `high_watermark` are durable."""

    leader_epoch: int
    high_watermark: int
    log_end_offset: int


class MetadataLog:
    """Partition 0 of the metadata topic. `load` is called before anything else.

    `lead` creates the partition object for a log. `on_fatal` is called with a reason if the broker
    has to stop. `deletions_pending`: true while something of a removed topic may be left on disk
    besides its logs.
    """

    def __init__(
        self,
        metadata: ClusterMetadata,
        logs: LogManager,
        lead: Callable[[PartitionLog, int], Partition],
        publish: Publish,
        clock: Clock,
        scheduler: Scheduler,
        on_fatal: Callable[[str], None],
        deletions_pending: Callable[[], bool],
    ) -> None:
        self._deletions_pending = deletions_pending
        self._metadata = metadata
        self._logs = logs
        self._lead = lead
        self._publish = publish
        self._clock = clock
        self._on_fatal = on_fatal
        self._scheduler = scheduler
        self._image = MetadataImage()
        self._partition: Partition | None = None
        #: The log end when the log was opened.
        self._first_end_offset = 0
        self._snapshotter: MetadataSnapshotter | None = None
        #: The problems with snapshots that `load` could not use.
        self.problems: list[str] = []
        #: The changes that were refused since the last `maintain`.
        self._refusals: list[str] = []
        #: The ids of the topics whose removal `load` found in the log.
        self.removed_topic_ids: set[bytes] = set()

    def load(self) -> None:
        """Open the log, or create it if it is missing, and replay it. To be called once.

        Raises DataDirectoryError if the log is not readable, because without the metadata log no
        other log would belong to a topic.
        """
        if self._partition is not None:
            return
        try:
            self._replay()
        except (StorageError, OSError, WireError, MetadataError, BrokerConfigError) as problem:
            raise DataDirectoryError(
                f"the cluster's metadata cannot be read: {problem}; restore the directory"
                f" {METADATA_TOPIC}-0 from a backup, or start with an empty data directory"
            ) from problem

    @property
    def ends_as_stopped(self) -> bool:
        """True if the log ends where the last run, which was stopped cleanly, has left it."""
        assert self._partition is not None
        log = self._partition.log
        start = log.durability.start
        return start.clean and start.log_end_offset == self._first_end_offset

    def _replay(self) -> None:
        """Replay the newest usable snapshot, and the records of the log after it."""
        log = self._logs.create(
            METADATA_TOPIC,
            0,
            METADATA_TOPIC_ID,
            self.log_config(),
            self._logs.metadata_directory,
        )
        log.load(self._clock.wall_ms())
        self._first_end_offset = log.log_end_offset
        self._partition = partition = self._lead(log, 0)
        deleted_files = self._logs.metadata_directory.deleted_files
        directory = SnapshotDirectory(log.directory, self._logs.files, deleted_files)
        self._snapshotter = MetadataSnapshotter(
            partition,
            self._image,
            directory,
            self._logs,
            self._clock,
            self._scheduler,
            self._metadata.config,
            self._deletions_pending,
        )
        usable = self._replay_snapshot(directory, log)
        tail_bytes = 0
        for stored in partition.read_stored(usable[-1].id.end_offset if usable else 0):
            if stored.value is not None and not stored.is_control:
                record = decode_record(stored.value)
                if isinstance(record, RemoveTopicRecord):
                    self.removed_topic_ids.add(record.topic_id)
                self._metadata.replay(record)
                self._note_time(record, stored.timestamp_ms)
                self._image.replay(record, stored.value)
                tail_bytes += len(stored.value)
        for name in self._metadata.topics:
            # The start must fail if settings are unreadable, because with defaults instead of these
            # settings, retention might delete records.
            self._metadata.log_config(name)
        # A start cannot try again later, so indexes that do not match are rebuilt at once (L-33).
        with log.options.handles.without_background():
            newest = log.max_timestamp_offset()
        last_record_ms = usable[-1].timestamp_ms if usable else -1
        if newest is not None:
            last_record_ms = newest[1]
        self._snapshotter.found(usable, tail_bytes, last_record_ms)

    def _replay_snapshot(
        self, directory: SnapshotDirectory, log: PartitionLog
    ) -> list[StoredSnapshot]:
        """Replay the newest readable snapshot that does not end below the log start. Returns the
        usable snapshots, oldest first; the snapshot that was replayed is the last."""
        usable: list[StoredSnapshot] = []
        for snapshot in directory.find():
            if snapshot.end_offset < log.log_start_offset:
                directory.delete(snapshot, self._clock.wall_ms())
                continue
            try:
                if usable:
                    usable.insert(0, directory.describe(snapshot))
                    continue
                stored, content = directory.read(snapshot)
                records = [decode_record(value) for value in content.values]
            except (CorruptMetadataSnapshot, WireError, OSError) as problem:
                path = directory.path_of(snapshot)
                self.problems.append(f"{path} is not used: {problem}")
                if not isinstance(problem, OSError):
                    directory.delete(snapshot, self._clock.wall_ms())
                continue
            usable.append(stored)
            for record, value in zip(records, content.values, strict=True):
                self._metadata.replay(record)
                self._image.replay(record, value)
        if not usable and log.log_start_offset > 0:
            raise DataDirectoryError(
                f"{log.directory} has no snapshot for the {log.log_start_offset} records that its"
                " log has lost; restore it from a backup"
            )
        if usable and usable[-1].id.end_offset > log.log_end_offset:
            # With page-cache durability a power cut may remove the end of the log, so that it ends
            # below the snapshot. Records after the snapshot are then lost.
            log.trimming.restart_at(usable[-1].id.end_offset, self._clock.wall_ms())
        return usable

    def maintain(self) -> list[str]:
        """Let the snapshotter take and delete snapshots, if due. Returns the problems since the
        last call."""
        refusals, self._refusals = self._refusals, []
        return refusals + ([] if self._snapshotter is None else self._snapshotter.maintain())

    def log_config(self) -> LogConfig:
        """The settings of the metadata log. Retention is off, because only `MetadataSnapshotter`
        deletes records, after a snapshot covers them.

        The size of a batch is not limited, because max.control.request.bytes already limits the
        size of a request.
        """
        return replace(
            self._metadata.config.default_log_config(),
            max_message_bytes=INT32_MAX,
            segment_bytes=1024**3,
            record_validation="header",
            retention_ms=-1,
            retention_bytes=-1,
            cleanup_policy=frozenset({"delete"}),
            message_timestamp_type="CreateTime",
            compression_type="producer",
        )

    def commit(self, records: Sequence[MetadataRecord]) -> Deferred[None]:
        """Append records and publish them; resolves when they are durable.

        Raises StorageError if the records cannot be appended (to a full disk, for example) or
        contradict the state; nothing is then changed. If the records are written but do not become
        durable, the broker stops, and the result never resolves.
        """
        deferred: Deferred[None] = Deferred()
        if not records:
            deferred.resolve(None)
            return deferred
        self._check(records)
        encoded = encode_records(records)
        partition = self._loaded()
        now_ms = self._clock.wall_ms()
        values: list[tuple[bytes | None, bytes | None]] = [
            (None, value) for each in encoded for value in each
        ]
        appended = partition.append_internal(values, now_ms)
        if appended.done and appended.result() is not ErrorCode.NONE:
            if partition.log.offline:
                self._on_fatal(f"the metadata log is offline: {partition.log.offline_reason}")
            raise StorageError(appended.result(), "the metadata log cannot be written")
        complete = self._publish(records, partition.log.log_end_offset)
        for record, value in zip(records, encoded, strict=True):
            self._note_time(record, now_ms)
            self._image.replay(record, *value)
        if self._snapshotter is not None:
            self._snapshotter.appended(
                sum([len(value) for each in encoded for value in each]), now_ms
            )

        def finished(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                complete().then(deferred.resolve)
            else:
                self._on_fatal(f"the metadata log cannot be written: {error.name}")

        appended.then(finished)
        return deferred

    def _note_time(self, record: MetadataRecord | Message, timestamp_ms: int) -> None:
        """Note when a topic was made."""
        if isinstance(record, TopicRecord) and record.name in self._metadata.topics:
            self._metadata.topics[record.name].made_ms = timestamp_ms

    def _check(self, records: Sequence[MetadataRecord]) -> None:
        """Refuse records that a start could not replay. Raises StorageError."""
        try:
            check_all(records, self._metadata)
        except MetadataError as problem:
            text = f"a change of metadata was refused, which no start could read: {problem}"
            if len(self._refusals) < _REFUSALS_MAX:
                self._refusals.append(text)
            raise StorageError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from problem

    def state(self) -> MetadataLogState:
        """The present epoch and ends of the log."""
        partition = self._loaded()
        return MetadataLogState(
            partition.leader_epoch, partition.log.high_watermark, partition.log.log_end_offset
        )

    def durable(self) -> Deferred[None]:
        """Resolves when every record replayed so far is on disk, so that answers can show the
        effects of these records (D4)."""
        deferred: Deferred[None] = Deferred()

        def finished(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                deferred.resolve(None)

        partition = self._loaded()
        partition.when_durable(partition.log.log_end_offset - 1, finished)
        return deferred

    def _loaded(self) -> Partition:
        if self._partition is None:
            raise RuntimeError("the metadata log is not loaded")
        return self._partition
