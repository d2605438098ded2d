"""The broker as one object: metadata, logs, coordinators, and what waits for them.

Handlers get the node and ask it; nothing here touches a socket, a clock or a file but through the
seams, so that the simulator can run the very same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from odradek_broker.authorizer import ALLOW_EVERYTHING, Authorizer
from odradek_broker.config import BrokerConfig
from odradek_broker.coordinator.groups.coordinator import GroupCoordinator
from odradek_broker.coordinator.transactions.coordinator import (
    TRANSACTIONS_TOPIC,
    TransactionCoordinator,
)
from odradek_broker.coordinator.transactions.interfaces import MarkerRequest, TopicPartition
from odradek_broker.fault_points import NO_FAULTS, FaultPoint, FaultPoints
from odradek_broker.fetch_sessions import FetchSessions
from odradek_broker.history import History
from odradek_broker.later import Later, gather
from odradek_broker.markers import write_markers
from odradek_broker.metadata import METADATA_TOPIC, ClusterMetadata
from odradek_broker.metrics import BrokerMetrics
from odradek_broker.partition import Partition
from odradek_broker.producer_telling import ProducerTeller
from odradek_broker.seams import Clock, Randomness
from odradek_broker.storage.disk_watch import DiskWatch
from odradek_broker.storage.errors import DataDirectoryError, StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.manager import LogManager, MaintenanceReport, StartReport
from odradek_broker.transaction_gate import TransactionGate
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import (
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    decode_record,
)

#: Like Kafka's: the metadata topic has a fixed id, since no record can give it one.
METADATA_TOPIC_ID = bytes(15) + b"\x01"
_OPEN_AGAIN_MS = 5_000
#: Nothing is deleted in the first moments of a broker, as in Kafka.
FIRST_RETENTION_MS = 30_000


class Timer(Protocol):
    """Something that was scheduled and may be called off."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """Timers of the event loop."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...


@dataclass(slots=True)
class _Effects:
    """What becomes of metadata records once they are durable: logs whose files go, partitions that
    may be used, names of topics that nobody has a position in any more."""

    retired: list[PartitionLog] = field(default_factory=list)
    made: list[Partition] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class Node:
    """This broker. `load` is called once, before anything else."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        randomness: Randomness,
        logs: LogManager,
        scheduler: Scheduler,
        request_flush: Callable[[PartitionLog], None],
        metrics: BrokerMetrics,
        on_fatal: Callable[[str], None],
        faults: FaultPoints = NO_FAULTS,
    ) -> None:
        self.config = config
        self.faults = faults
        self.clock = clock
        self.random = randomness
        self.logs = logs
        self.metrics = metrics
        self.node_id = config.node_id
        self.cluster_id = logs.cluster_id
        self.advertised: tuple[str, int] = ("", -1)
        #: Who may do what; asked by handlers before anything else (A-20).
        self.authorizer: Authorizer = ALLOW_EVERYTHING
        self.metadata = ClusterMetadata(config, randomness)
        self.fetch_sessions = FetchSessions(
            clock,
            randomness,
            config.max_incremental_fetch_session_cache_slots,
            self.metadata.topic_name,
        )
        self.groups = GroupCoordinator(self, config)
        #: What happened lately to producer ids; the coordinators have histories of their own.
        self.producer_history = History(clock.wall_ms)
        self._producer_watch = ProducerTeller(
            self.producer_history, config.producer_id_expiration_ms
        )
        self.transactions = TransactionCoordinator(self, config, self.producer_history)
        #: Where batches wait until their transaction is known to be open.
        self.gate = TransactionGate(
            self,
            self.transactions,
            verifies=lambda: self.metadata.config.transaction_partition_verification_enable,
        )
        #: How many bytes of answers may still be held for peers that are slow to take them. Fetches
        #: keep to it, but for the first batch, without which nobody would get on (D11).
        self.answer_room_bytes: Callable[[], int] = lambda: config.fetch_max_bytes
        #: What to call so that a parked fetch is answered now.
        self.parked_fetches: dict[Callable[[], None], None] = {}
        self._scheduler = scheduler
        self._request_flush = request_flush
        self._on_fatal = on_fatal
        self._partitions: dict[str, dict[int, Partition]] = {}
        self._metadata_log: Partition | None = None
        self._removed_topic_ids: set[bytes] = set()
        self._id_waiters: list[Later[int | None]] = []
        self._allocating = False
        self._next_retention_ms = clock.monotonic_ms() + FIRST_RETENTION_MS
        self._next_expiry_ms = 0
        #: Partitions that could not be made, and when that is tried again.
        self._missing: dict[tuple[str, int], int] = {}

    # --- Start and end ---

    def load(self) -> StartReport:
        """Open what is on disk, replay the metadata, lead every partition.

        DataDirectoryError if the directory contradicts its own metadata.
        """
        report = self.logs.open_all(self._config_at_start, first_topic=METADATA_TOPIC)
        self._load_metadata()
        for partition_log in self.logs:
            if partition_log.topic_id in self._removed_topic_ids:
                # Its deletion was durable, the end of its files was not.
                self.logs.delete(partition_log.topic, partition_log.partition)
        for topic in self.metadata.topics.values():
            for index in topic.partitions:
                try:
                    self._open_partition(topic.name, index)
                except StorageError as problem:
                    report.problems.append(str(problem))
                    self._missing[topic.name, index] = self.clock.monotonic_ms() + _OPEN_AGAIN_MS
        self._clear_away_strays(report)
        if self.metadata.config_problem:
            report.problems.append(
                "the broker's dynamic settings are not all used, for they do not fit together:"
                f" {self.metadata.config_problem}"
            )
        self.groups.load()
        self._begin_transactions()
        return report

    def _begin_transactions(self) -> None:
        """Coordinate transactions under epochs that no earlier start has had (T-57, T-58).

        Their coordinator asks for markers as soon as it has loaded, so it loads when those epochs
        are durable, and in slices: until then it answers that it is loading.
        """
        try:
            begun = self.commit_metadata(self.metadata.new_leader_epochs(TRANSACTIONS_TOPIC))
        except StorageError:
            # A full disk: everything else is served, this is tried again.
            self.call_later(_OPEN_AGAIN_MS, self._begin_transactions)
            return
        begun.then(lambda _: self._load_transactions())

    def _load_transactions(self) -> None:
        self.transactions.begin_load()
        self._continue_loading_transactions()

    def _continue_loading_transactions(self) -> None:
        if not self.transactions.load_some():
            self.call_later(0, self._continue_loading_transactions)

    def _clear_away_strays(self, report: StartReport) -> None:
        """Logs of no topic: a creation that a crash undid, or a folder from elsewhere. They must not
        stand in the way of a topic of that name. Those that hold something are kept."""
        for stray in self.logs:
            topic = self.metadata.topics.get(stray.topic)
            known = topic is not None and stray.partition in topic.partitions
            if known or stray.topic == METADATA_TOPIC:
                continue
            if not stray.offline and stray.log_end_offset == 0:
                self.logs.delete(stray.topic, stray.partition)
                continue
            try:
                aside = self.logs.set_aside(stray.topic, stray.partition)
            except OSError as problem:
                raise DataDirectoryError(
                    f"{stray.directory} belongs to no topic and cannot be renamed: {problem}"
                ) from problem
            report.problems.append(f"{stray.directory} belongs to no topic; it is kept as {aside}")

    def _config_at_start(self, topic: str) -> LogConfig:
        """Settings are in the metadata log, which is opened before all others."""
        if topic == METADATA_TOPIC:
            return self._metadata_config()
        self._load_metadata()
        return self.metadata.log_config(topic)

    def _metadata_config(self) -> LogConfig:
        """Nothing of it may be deleted: its first record counts as much as its last.

        Nor may a setting meant for producers' batches keep the broker from recording a request,
        whose size is limited by max.control.request.bytes.
        """
        return replace(
            self.config.default_log_config(),
            max_message_bytes=2**31 - 1,
            segment_bytes=1024**3,
            record_validation="header",
            retention_ms=-1,
            retention_bytes=-1,
            cleanup_policy=frozenset({"delete"}),
            message_timestamp_type="CreateTime",
            compression_type="producer",
        )

    def _load_metadata(self) -> None:
        if self._metadata_log is not None:
            return
        partition_log = self.logs.create(
            METADATA_TOPIC, 0, METADATA_TOPIC_ID, self._metadata_config()
        )
        self._metadata_log = self._lead(partition_log, 0)
        for _, _, value in self._metadata_log.read_all():
            if value is not None:
                record = decode_record(value)
                if isinstance(record, RemoveTopicRecord):
                    self._removed_topic_ids.add(record.topic_id)
                self.metadata.replay(record)

    def set_advertised(self, host: str, port: int) -> None:
        """What clients are told; known once the socket is bound (rule N-12)."""
        self.advertised = (host, port)

    def release_parked(self) -> None:
        """Answer every parked fetch with what there is (rule N-15)."""
        for finish in list(self.parked_fetches):
            finish()

    def close(self) -> None:
        """Coordinate nothing more; parked joins and syncs are answered (rule N-15)."""
        self.transactions.close()
        self.groups.close()

    # --- Timers ---

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return self._scheduler.call_later(delay_ms, callback)

    def call_at(self, monotonic_ms: float, callback: Callable[[], None]) -> Timer:
        """Call at a moment of the clock's monotonic time."""
        return self._scheduler.call_later(
            max(0.0, monotonic_ms - self.clock.monotonic_ms()), callback
        )

    def cancel(self, timer: Any) -> None:
        """Cancel a timer, or nothing."""
        if timer is not None:
            timer.cancel()

    @property
    def disk(self) -> DiskWatch:
        """Whether the data directory takes what is written."""
        return self.logs.disk

    def keep_house(self) -> MaintenanceReport:
        """What is due of retention, deletion and expiry. Called about once a second."""
        now_ms = self.clock.monotonic_ms()
        wall_ms = self.clock.wall_ms()
        problems = self._open_missing()
        self.logs.look_at_disk()
        try:
            self.logs.remove_deleted_files(wall_ms)
        except OSError as problem:
            problems.append(f"deleted files could not be removed: {problem}")
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + self.config.log_retention_check_interval_ms
            self.logs.begin_retention()
        report = self.logs.continue_retention(wall_ms)
        report.problems += problems
        self.logs.forget_producers_beyond(self.config.max_producer_ids)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self.config.producer_id_expiration_check_interval_ms
            self.logs.remove_expired_producers(wall_ms)
        return report

    # --- Partitions ---

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

    def internal_partition(self, topic: str, index: int) -> Partition | None:
        """A partition of the broker's own topics; None before the topic is made."""
        return self.partition(topic, index)

    def partitions(self) -> Iterable[tuple[str, int, Partition]]:
        """All of them: (topic, index, partition)."""
        for topic, partitions in self._partitions.items():
            for index, partition in partitions.items():
                yield topic, index, partition

    def write_markers(
        self, markers: Sequence[MarkerRequest]
    ) -> Later[dict[TopicPartition, ErrorCode]]:
        """End transactions in their partitions; see `MarkerWriter`."""
        return write_markers(self, markers)

    def check_leader_epoch(self, partition: Partition, epoch: int) -> ErrorCode:
        """Is the client's idea of the leader ours? (rule F-11)"""
        if epoch == -1 or epoch == partition.leader_epoch:
            return ErrorCode.NONE
        if epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def _lead(self, partition_log: PartitionLog, leader_epoch: int) -> Partition:
        partition_log.watch = self._producer_watch
        return Partition(partition_log, leader_epoch, self._request_flush)

    def _open_partition(self, topic_name: str, index: int) -> None:
        """Lead a partition that we do not lead yet, making its log if it is missing."""
        held = self._partitions.setdefault(topic_name, {})
        topic = self.metadata.topics[topic_name]
        if index in held:
            held[index].leader_epoch = topic.partitions[index].leader_epoch
            return
        try:
            partition_log = self.logs.create(
                topic_name, index, topic.topic_id, self.metadata.log_config(topic_name)
            )
        except ValueError as error:
            raise DataDirectoryError(str(error)) from error
        held[index] = self._lead(partition_log, topic.partitions[index].leader_epoch)

    def _try_to_open(self, topic_name: str, index: int) -> str:
        """Why a partition could not be made; empty if it was. Its topic exists all the same: that
        is recorded. So it has no leader until `keep_house` succeeds."""
        try:
            self._open_partition(topic_name, index)
        except (StorageError, DataDirectoryError) as problem:
            self._missing[topic_name, index] = self.clock.monotonic_ms() + _OPEN_AGAIN_MS
            return str(problem)
        self._missing.pop((topic_name, index), None)
        return ""

    def _open_missing(self) -> list[str]:
        """Try again to make the partitions that could not be made; what is in the way."""
        problems = []
        now_ms = self.clock.monotonic_ms()
        for (name, index), due_ms in list(self._missing.items()):
            topic = self.metadata.topics.get(name)
            if topic is None or index not in topic.partitions:
                del self._missing[name, index]
            elif due_ms <= now_ms:
                problem = self._try_to_open(name, index)
                if problem:
                    problems.append(f"partition {name}-{index} cannot be made: {problem}")
        return problems

    def _drop_partitions(self, topic_name: str) -> list[PartitionLog]:
        """The topic is gone: whoever waits for its partitions is told. Their logs, whose files may
        go when the removal is durable: until then a crash may bring the topic back (D4)."""
        retired = []
        for index, partition in self._partitions.pop(topic_name, {}).items():
            log = self.logs.retire(topic_name, index)
            if log is not None:
                retired.append(log)
            partition.deleted()
        return retired

    # --- Metadata (D4: decided elsewhere, recorded and replayed here) ---

    def commit_metadata(self, records: Sequence[MetadataRecord]) -> Later[None]:
        """Append records to the metadata log and replay them; resolves when they are durable.

        StorageError if they cannot be appended, as on a full disk: nothing has happened then. A
        broker whose metadata is written and does not become durable promises nothing any more: it
        stops, and nothing resolves.
        """
        later: Later[None] = Later()
        if not records:
            later.resolve(None)
            return later
        encoded: list[tuple[bytes | None, bytes | None]] = [
            (None, self.metadata.encode(record)) for record in records
        ]
        metadata_log = self._require_metadata_log()
        appended = metadata_log.append_internal(encoded, self.clock.wall_ms())
        if appended.done and appended.result() is not ErrorCode.NONE:
            if metadata_log.log.offline:
                self._on_fatal(f"the metadata log is offline: {metadata_log.log.offline_reason}")
            raise StorageError(appended.result(), "the metadata log cannot be written")
        effects = _Effects()
        for record in records:
            self._replay(record, effects)

        def settled(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                for partition in effects.made:
                    partition.recorded = True
                for log in effects.retired:
                    self.logs.remove_retired(log)
                # Whoever made the topic again would find the positions of its predecessor (O-15).
                gone = gather([self.groups.topic_deleted(name) for name in effects.removed])
                gone.then(lambda _: later.resolve(None))
            else:
                self._on_fatal(f"the metadata log cannot be written: {error.name}")

        appended.then(settled)
        return later

    def metadata_durable(self) -> Later[None]:
        """Resolves when every record replayed so far is on disk: only then may it be told (D4)."""
        later: Later[None] = Later()

        def settled(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                later.resolve(None)

        metadata_log = self._require_metadata_log()
        metadata_log.when_durable(metadata_log.log.log_end_offset - 1, settled)
        return later

    def _require_metadata_log(self) -> Partition:
        if self._metadata_log is None:
            raise RuntimeError("the node is not loaded")
        return self._metadata_log

    def _replay(self, record: MetadataRecord, effects: _Effects) -> None:
        """Replay one record and make the logs agree with it; notes what it takes away and makes."""
        removed: str | None = None
        if isinstance(record, RemoveTopicRecord):
            removed = self.metadata.topic_name(record.topic_id)
        self.metadata.replay(record)
        if isinstance(record, RemoveTopicRecord) and removed is not None:
            effects.retired += self._drop_partitions(removed)
            effects.removed.append(removed)
        elif isinstance(record, PartitionRecord):
            name = self.metadata.topic_name(record.topic_id)
            if name is not None:
                held = self._partitions.setdefault(name, {})
                known = held.get(record.partition_id)
                self._try_to_open(name, record.partition_id)
                partition = held.get(record.partition_id)
                if partition is not None and partition is not known:
                    partition.recorded = False
                    effects.made.append(partition)

    def topic_config_changed(self, topic: str) -> None:
        """A setting of the topic, or a default under it, is another one now."""
        config = self.metadata.log_config(topic)
        for partition in self._partitions.get(topic, {}).values():
            partition.log.config = config

    def ensure_internal_topic(self, name: str) -> Later[None]:
        """Make one of the broker's own topics if it is missing; resolves when it may be used.
        StorageError if it cannot be recorded."""
        records = self.metadata.internal_topic_records(name)
        return self.commit_metadata(records) if records else self.metadata_durable()

    # --- Producer ids (rule P-29) ---

    def next_producer_id(self) -> Later[int | None]:
        """An id that was never given out, once its block is durable; None if that failed."""
        later: Later[int | None] = Later()
        producer_id = self.metadata.take_producer_id()
        if producer_id is not None:
            later.resolve(producer_id)
            return later
        self._id_waiters.append(later)
        if not self._allocating:
            try:
                reserved = self.commit_metadata(self.metadata.producer_id_block())
            except StorageError:
                waiters, self._id_waiters = self._id_waiters, []
                for waiter in waiters:
                    waiter.resolve(None)
                return later
            self._allocating = True
            reserved.then(self._block_durable)
        return later

    def _block_durable(self, _: None) -> None:
        self.faults.reach(FaultPoint.PRODUCER_ID_BLOCK_DURABLE)
        self._allocating = False
        self.metadata.use_producer_id_block()
        waiters, self._id_waiters = self._id_waiters, []
        for later in waiters:
            self.next_producer_id().then(later.resolve)
