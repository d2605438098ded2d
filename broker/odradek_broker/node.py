"""The node: metadata, partitions and coordinators of one broker, wired together.

Handlers get the node and ask it; nothing here touches a socket, a clock or a file but through the
seams, so that the simulator can run the very same object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from odradek_broker.config.authorizer_settings import read_super_users
from odradek_broker.config.broker import BrokerConfig
from odradek_broker.coordinator.groups.coordinator import GroupCoordinator
from odradek_broker.coordinator.transactions.coordinator import TransactionCoordinator
from odradek_broker.coordinator.transactions.markers import MarkerRequest, write_markers
from odradek_broker.coordinator.transactions.verification import TransactionVerification
from odradek_broker.deferred import Deferred, gather
from odradek_broker.explain.compaction import CompactionRecorder, state_of_compaction
from odradek_broker.explain.groups import GroupRecorder
from odradek_broker.explain.history import CurrentState, History
from odradek_broker.explain.producers import ProducerRecorder
from odradek_broker.explain.transactions import TransactionRecorder
from odradek_broker.fetch.parked import ParkedFetches
from odradek_broker.fetch.sessions import FetchSessions
from odradek_broker.metadata.cluster import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    ClusterMetadata,
)
from odradek_broker.metadata.features import FinalizedFeatures
from odradek_broker.metadata.log import METADATA_TOPIC_ID, MetadataLog, MetadataLogState
from odradek_broker.metadata.producer_ids import ProducerIdManager
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.partition import Partition
from odradek_broker.platform.fault_points import NO_FAULTS, FaultPoints
from odradek_broker.platform.loggers import LogLevels, OthersLogLevels
from odradek_broker.platform.seams import Clock, Randomness, Scheduler, Timer
from odradek_broker.platform.timeouts import Timeouts
from odradek_broker.quotas.connections import ConnectionQuotas
from odradek_broker.quotas.entities import IP, QuotaEntity, QuotaKey, quota_entity
from odradek_broker.quotas.managers import QuotaManagers
from odradek_broker.quotas.rates import Windows
from odradek_broker.replica_manager import REOPEN_INTERVAL_MS, ReplicaManager
from odradek_broker.security.audit import AuditLog
from odradek_broker.security.authorizer import ALLOW_EVERYTHING, Authorizer
from odradek_broker.security.standard_authorizer import StandardAuthorizer
from odradek_broker.storage.cleaner.manager import CleanerSettings, LogCleaner
from odradek_broker.storage.cleaner.runner import BackgroundCleaner, CleanerRunner
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.storage.manager import LogManager, MaintenanceReport, StartReport
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.cluster_metadata import (
    ClientQuotaRecord,
    FeatureLevelRecord,
    MetadataRecord,
)

#: Nothing is deleted in the first moments of a broker, as in Kafka.
FIRST_RETENTION_MS = 30_000


class _TopicsAtStart:
    """See `KnownTopics`. The metadata log is opened before all others."""

    def __init__(self, metadata_log: MetadataLog, metadata: ClusterMetadata) -> None:
        self._metadata_log = metadata_log
        self._metadata = metadata

    def topic_id(self, topic: str) -> bytes | None:
        if topic == METADATA_TOPIC:
            return METADATA_TOPIC_ID
        known = self._metadata.topics.get(topic)
        return None if known is None else known.topic_id

    def is_removed(self, topic_id: bytes) -> bool:
        return topic_id in self._metadata_log.removed_topic_ids


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
        cleaner: CleanerRunner | None = None,
        log_levels: LogLevels | None = None,
    ) -> None:
        """`cleaner`: where logs are compacted; None: in the background of `logs`. `log_levels`:
        those of the broker's own log lines; None: another program writes them."""
        self.log_levels = log_levels or OthersLogLevels()
        self.config = config
        self.faults = faults
        self._on_fatal = on_fatal
        self.clock = clock
        self.random = randomness
        self.logs = logs
        self.metrics = metrics
        self.node_id = config.node_id
        self.cluster_id = logs.cluster_id
        self._advertised: dict[str, tuple[str, int]] = {}
        self.metadata = ClusterMetadata(config, randomness)
        #: Asked by handlers before anything else (A-20).
        self.authorizer = self._authorizer()
        #: What clients are held to; kept in step with the quotas of the metadata.
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        #: How many connections there may be, and from where.
        self.connection_quotas = ConnectionQuotas(clock, windows, lambda: self.metadata.config)
        self.quotas = QuotaManagers(
            clock,
            windows,
            Windows(
                config.controller_quota_window_num,
                config.controller_quota_window_size_seconds * 1000,
            ),
        )
        self.fetch_sessions = FetchSessions(
            clock,
            randomness,
            config.max_incremental_fetch_session_cache_slots,
            self.metadata.topic_name,
            lambda: self.metadata.topics_version,
        )
        #: What happened lately to groups, producer ids, transactional ids and partitions.
        self.group_history = History(clock.wall_ms)
        self.producer_history = History(clock.wall_ms)
        self.transaction_history = History(clock.wall_ms)
        self.partition_history = History(clock.wall_ms)
        group_recorder = GroupRecorder(self.group_history, self.metadata, config)
        self.groups = GroupCoordinator(self, config, group_recorder.record)
        self._producer_watch = ProducerRecorder(
            self.producer_history, lambda: self.logs.producer_expiration_ms
        )
        self.transactions = TransactionCoordinator(
            self,
            config,
            TransactionRecorder(self.transaction_history, self.producer_history).record,
        )
        #: Holds batches back until their transaction is known to be open.
        self.verification = TransactionVerification(
            self,
            self.transactions,
            verifies=lambda: self.metadata.config.transaction_partition_verification_enable,
        )
        #: Bytes of responses that may still be held for peers that are slow to take them. Fetches
        #: keep to it, but for the first batch, without which no consumer would get on (D11).
        self.answer_room_bytes: Callable[[], int] = lambda: config.fetch_max_bytes
        self._scheduler = scheduler
        #: Of requests that wait for the disk or a coordinator.
        self.request_timeouts = Timeouts(clock, scheduler)
        self.parked_fetches = ParkedFetches(self.request_timeouts)
        self._replicas = ReplicaManager(
            self.metadata,
            logs,
            clock,
            self._producer_watch,
            request_flush,
            scheduler.call_later,
        )
        #: Asked for every partition of every Produce and Fetch.
        self.partition = self._replicas.partition
        self._metadata_log = MetadataLog(
            self.metadata, logs, self._replicas.lead, self._publish, clock, scheduler, on_fatal
        )
        #: The features that clients are told; levels change when they are durable.
        self.finalized_features = FinalizedFeatures(0, dict(self.metadata.feature_levels))
        self._producer_ids = ProducerIdManager(self.metadata, self.commit_metadata, faults)
        #: Compacts logs.
        self.cleaner = LogCleaner(
            logs,
            clock,
            cleaner or BackgroundCleaner(logs.files, logs.run_in_background),
            scheduler.call_later,
            self._cleaner_settings,
            lambda topic: topic in INTERNAL_TOPICS,
            CompactionRecorder(self.partition_history),
        )
        self._next_retention_ms = clock.monotonic_ms() + FIRST_RETENTION_MS
        self._next_expiry_ms = 0

    def _authorizer(self) -> Authorizer:
        """The one that the settings name; without one everything is allowed (A-19)."""
        config = self.config
        if not config.authorizer_class_name:
            return ALLOW_EVERYTHING
        return StandardAuthorizer(
            self.metadata.acls,
            read_super_users(config.super_users),
            AuditLog(self.clock.monotonic_ms, lambda: self.metadata.config.authorizer_log_allowed),
            open_without_acls=config.allow_everyone_if_no_acl_found,
        )

    # --- Start and end ---

    def load(self) -> StartReport:
        """Open what is on disk, replay the metadata, lead every partition.

        DataDirectoryError if the directory contradicts its own metadata.
        """
        self.logs.on_directory_failed = self._directory_failed
        report = self.logs.open_all(
            self._config_at_start,
            first_topic=METADATA_TOPIC,
            topics=_TopicsAtStart(self._metadata_log, self.metadata),
        )
        self._metadata_log.load()
        self.finalized_features = self._replayed_features()
        for entity, quotas in self.metadata.client_quotas.items():
            for key, limit in quotas.items():
                self._update_quota(entity, key, limit)
        self._replicas.load(self._metadata_log.removed_topic_ids, report)
        report.problems += self._metadata_log.problems
        if self.metadata.config_problem:
            report.problems.append(
                "the broker's dynamic settings are not all used, for they do not fit together:"
                f" {self.metadata.config_problem}"
            )
        self.groups.shards.load()
        self._begin_transactions()
        return report

    def _begin_transactions(self) -> None:
        """Load the transaction coordinator under leader epochs of this start alone (T-57, T-58).

        Their coordinator asks for markers as soon as it has loaded, so it loads when those epochs
        are durable, and in slices: until then it answers that it is loading.
        """
        try:
            begun = self.commit_metadata(self.metadata.new_leader_epochs(TRANSACTIONS_TOPIC))
        except StorageError:
            # A full disk: everything else is served, this is tried again.
            self.call_later(REOPEN_INTERVAL_MS, self._begin_transactions)
            return
        begun.then(lambda _: self._load_transactions())

    def _load_transactions(self) -> None:
        self.transactions.shards.begin_load()
        self._continue_loading_transactions()

    def _continue_loading_transactions(self) -> None:
        if not self.transactions.shards.load_some():
            self.call_later(0, self._continue_loading_transactions)

    def _config_at_start(self, topic: str) -> LogConfig:
        """Settings are in the metadata log, which is opened before all others."""
        if topic == METADATA_TOPIC:
            return self._metadata_log.log_config()
        self._metadata_log.load()
        self.logs.producer_expiration_ms = self.metadata.config.producer_id_expiration_ms
        return self.metadata.log_config(topic)

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Coordinate no more what is recorded in its partitions; end where none is left (L-42)."""
        for shards, topic in (
            (self.groups.shards, OFFSETS_TOPIC),
            (self.transactions.shards, TRANSACTIONS_TOPIC),
        ):
            for name, index in directory.logs:
                if name == topic:
                    shards.give_up(index)
        if not self.logs.usable:
            self._on_fatal(f"all data directories have failed, the last one was {directory.path}")

    def set_advertised(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """The (host, port) that clients are given, by the listener that they ask; known once the
        sockets are bound (rule N-12)."""
        self._advertised = dict(addresses)

    def advertised_addresses(self) -> dict[str, tuple[str, int]]:
        """The addresses that clients are told: (host, port) by the name of the listener; empty
        before listeners are open."""
        return dict(self._advertised)

    def advertised(self, listener: str = "") -> tuple[str, int]:
        """(host, port) for clients of a listener; of the first one for whoever came by none."""
        found = self._advertised.get(listener)
        return found or next(iter(self._advertised.values()), ("", -1))

    def close(self) -> None:
        """Close the coordinators, which answer parked requests (rule N-15), and compact no more."""
        self.cleaner.close()
        self.transactions.shards.close()
        self.groups.shards.close()
        self._replicas.close()

    # --- Timers ---

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Timer:
        return self._scheduler.call_later(delay_ms, callback)

    def call_at(self, monotonic_ms: float, callback: Callable[[], None]) -> Timer:
        """Call at a time of the monotonic clock."""
        return self._scheduler.call_later(
            max(0.0, monotonic_ms - self.clock.monotonic_ms()), callback
        )

    def keep_house(self) -> MaintenanceReport:
        """Do what is due of retention, compaction, deletion and expiry. Called about once a
        second."""
        now_ms = self.clock.monotonic_ms()
        wall_ms = self.clock.wall_ms()
        problems = self._replicas.open_missing()
        self.logs.look_at_disks()
        self.logs.open_again(wall_ms)
        problems += self.logs.remove_deleted_files(wall_ms)
        problems += self._metadata_log.keep_house()
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + self.config.log_retention_check_interval_ms
            self.logs.begin_retention()
        report = self.logs.continue_retention(wall_ms)
        self.logs.continue_snapshots()
        report.problems += problems
        self.cleaner.tick()
        self.logs.forget_producers_beyond(self.config.max_producer_ids)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self.config.producer_id_expiration_check_interval_ms
            self.logs.producer_expiration_ms = self.metadata.config.producer_id_expiration_ms
            self.logs.remove_expired_producers(wall_ms)
        return report

    def compaction_state(self, log: PartitionLog) -> CurrentState:
        """The compaction of a log, and the reasons why the rest is not compacted; for `odradek
        explain`."""
        cleaned_to = self.logs.directory_of(log).cleaner_offsets.get((log.topic, log.partition))
        settings = self._cleaner_settings()
        return state_of_compaction(log, self.cleaner, settings, cleaned_to, self.clock.wall_ms())

    def _cleaner_settings(self) -> CleanerSettings:
        config = self.metadata.config
        return CleanerSettings(
            config.log_cleaner_enable,
            config.log_cleaner_backoff_ms,
            config.log_cleaner_dedupe_buffer_size,
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_max_bytes_per_second,
        )

    # --- Partitions ---

    def internal_partition(self, topic: str, index: int) -> Partition | None:
        """A partition of the broker's own topics; None before the topic is made, or if the
        directory that it is in has failed: then nobody leads it."""
        partition = self.partition(topic, index)
        if partition is None or self.logs.directory_of(partition.log).failure:
            return None
        return partition

    def partitions(self) -> Iterable[tuple[str, int, Partition]]:
        """All that this node leads: (topic, index, partition)."""
        return self._replicas.partitions()

    def topic_config_changed(self, topic: str) -> None:
        """Give the topic's logs their present settings."""
        self._replicas.topic_config_changed(topic)

    def write_markers(
        self, markers: Sequence[MarkerRequest]
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """End transactions in their partitions; see `MarkerWriter`."""
        return write_markers(self, markers)

    # --- Metadata ---

    def commit_metadata(self, records: Sequence[MetadataRecord]) -> Deferred[None]:
        """Record changes of metadata; see `MetadataLog.commit`."""
        return self._metadata_log.commit(records)

    def metadata_durable(self) -> Deferred[None]:
        """Resolves when every change made so far is durable."""
        return self._metadata_log.durable()

    def metadata_log_state(self) -> MetadataLogState:
        """The ends of the metadata log."""
        return self._metadata_log.state()

    def _publish(self, records: Sequence[MetadataRecord]) -> Callable[[], Deferred[None]]:
        delta = self._replicas.apply(records)
        features = self.finalized_features
        for record in records:
            if isinstance(record, FeatureLevelRecord):
                features = self._replayed_features()
            if isinstance(record, ClientQuotaRecord):
                entity = quota_entity(
                    (each.entity_type, each.entity_name) for each in record.entity
                )
                self._update_quota(entity, record.key, None if record.remove else record.value)

        def complete() -> Deferred[None]:
            if features.epoch > self.finalized_features.epoch:
                self.finalized_features = features
            done: Deferred[None] = Deferred()
            in_step = self._replicas.complete(delta)
            # Offsets of a removed topic must not be found by a new one of its name (O-15).
            gone = gather([self.groups.topic_deleted(name) for name in delta.removed_topics])
            gone.then(lambda _: in_step.then(done.resolve))
            return done

        return complete

    def _replayed_features(self) -> FinalizedFeatures:
        """The levels as they are replayed, durable or not; as in Kafka, the end of the metadata log
        is their epoch."""
        return FinalizedFeatures(
            self._metadata_log.state().log_end_offset, dict(self.metadata.feature_levels)
        )

    def _update_quota(self, entity: QuotaEntity, key: str, limit: float | None) -> None:
        if key == QuotaKey.CONNECTION_CREATION_RATE:
            self.connection_quotas.update(dict(entity).get(IP), limit)
        else:
            self.quotas.update(entity, key, limit)

    def ensure_internal_topic(self, name: str) -> Deferred[None]:
        """Make one of the broker's own topics if it is missing; resolves when it may be used.
        StorageError if it cannot be recorded."""
        records = self.metadata.internal_topic_records(name)
        return self.commit_metadata(records) if records else self.metadata_durable()

    def next_producer_id(self) -> Deferred[int | None]:
        """A producer id that was never given out; see `ProducerIdManager.next`."""
        return self._producer_ids.next()
