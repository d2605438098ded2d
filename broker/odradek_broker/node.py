"""The node: the metadata, partitions and coordinators of one broker, connected to each other.

Handlers use the parts of the node. The node uses sockets, clocks and files only through the seams,
so that the simulator can run the node unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from itertools import count

from odradek_broker.config.authorizer_settings import read_super_users
from odradek_broker.config.broker import BrokerConfig
from odradek_broker.config.topic_settings import DEAD_LETTERS_ALLOWED
from odradek_broker.coordinator.groups.coordinator import GroupCoordinator
from odradek_broker.coordinator.shards import masked_partition_for, partition_for
from odradek_broker.coordinator.share.coordinator import ShareCoordinator
from odradek_broker.coordinator.transactions.completion import MarkerWriter
from odradek_broker.coordinator.transactions.coordinator import TransactionCoordinator
from odradek_broker.coordinator.transactions.verification import TransactionVerification
from odradek_broker.deferred import Deferred, gather
from odradek_broker.emulation.served import ServedApi, served_apis
from odradek_broker.explain.compaction import CompactionRecorder, state_of_compaction
from odradek_broker.explain.connections import ConnectionPeers
from odradek_broker.explain.group_lags_file import GroupLagsFile
from odradek_broker.explain.groups import GroupRecorder
from odradek_broker.explain.history import History, SubjectState
from odradek_broker.explain.mirrors import MirrorRecorder
from odradek_broker.explain.producers import ProducerRecorder
from odradek_broker.explain.share_records import ShareHistory
from odradek_broker.explain.transactions import TransactionRecorder
from odradek_broker.explain.verdicts import GroupVerdicts
from odradek_broker.fetch.parked import ParkedFetches
from odradek_broker.fetch.sessions import FetchSessions
from odradek_broker.metadata.cluster import (
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    ClusterMetadata,
)
from odradek_broker.metadata.delegation_tokens import EXPIRED_AT_ONCE_MAX, expired_tokens
from odradek_broker.metadata.log import METADATA_TOPIC_ID, MetadataLog
from odradek_broker.metadata.producer_ids import ProducerIdManager
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.metadata_publisher import MetadataPublisher
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.mirror.appends import MirrorAppends
from odradek_broker.mirror.parts import MirrorParts
from odradek_broker.mirror.promotion import MirrorPromotions
from odradek_broker.platform.fault_points import NO_FAULT_POINTS, FaultPoints
from odradek_broker.platform.loggers import LogLevels, OthersLogLevels
from odradek_broker.platform.peer_log import PeerLog
from odradek_broker.platform.seams import Clock, Randomness, Scheduler
from odradek_broker.platform.timeouts import Timeouts
from odradek_broker.quotas.connections import ConnectionQuotas
from odradek_broker.quotas.managers import QuotaManagers
from odradek_broker.quotas.rates import Windows
from odradek_broker.replica_manager import REOPEN_INTERVAL_MS, ReplicaManager
from odradek_broker.request import Peer
from odradek_broker.security.authorizer import ALLOW_EVERYTHING, Authorizer
from odradek_broker.security.standard_authorizer import AuditLog, StandardAuthorizer
from odradek_broker.share.dead_letter_topics import DeadLetterSettings as DeadLetterRules
from odradek_broker.share.dead_letter_topics import DeadLetterTopics
from odradek_broker.share.dead_letter_writer import DeadLetterWriter
from odradek_broker.share.manager import SharePartitions
from odradek_broker.share.sessions import ShareSessions
from odradek_broker.slices import Background, Slices, here, with_pauses
from odradek_broker.storage.cleaner.log_cleaner import CleanerSettings, LogCleaner
from odradek_broker.storage.cleaner.runner import BackgroundCleaner, CleanerRunner
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.storage.log_durability import LogDurability
from odradek_broker.storage.manager import LogManager, MaintenanceReport
from odradek_broker.storage.startup import StartReport
from odradek_broker.telemetry.manager import ClientTelemetry
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

#: The time from the start to the first retention, as in Kafka.
FIRST_RETENTION_MS = 30_000


class _TopicsAtStart:
    """The topics for `KnownTopics` at the start, from the metadata log, which is opened before all
    other logs."""

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


def _served(config: BrokerConfig) -> Mapping[int, ServedApi]:
    return served_apis(config.profile, two_phase_commit=config.transaction_two_phase_commit_enable)


def _new_authorizer(metadata: ClusterMetadata, audit: AuditLog) -> Authorizer:
    """The authorizer that the settings name; if they name none, everything is allowed (A-19)."""
    config = metadata.config
    if not config.authorizer_class_name:
        return ALLOW_EVERYTHING
    return StandardAuthorizer(
        metadata.acls,
        read_super_users(config.super_users),
        audit,
        open_without_acls=config.allow_everyone_if_no_acl_found,
    )


def _new_quotas(metadata: ClusterMetadata, clock: Clock) -> tuple[QuotaManagers, ConnectionQuotas]:
    config = metadata.config
    windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
    controller_windows = Windows(
        config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
    )
    return (
        QuotaManagers(clock, windows, controller_windows),
        ConnectionQuotas(clock, windows, lambda: metadata.config),
    )


def _new_verification(
    metadata: ClusterMetadata,
    transactions: TransactionCoordinator,
    clock: Clock,
    scheduler: Scheduler,
) -> TransactionVerification:
    return TransactionVerification(
        clock,
        scheduler,
        transactions,
        verifies=lambda: metadata.config.transaction_partition_verification_enable,
    )


def _new_fetch_sessions(
    metadata: ClusterMetadata, clock: Clock, randomness: Randomness, slices: Slices
) -> FetchSessions:
    return FetchSessions(
        clock,
        randomness,
        metadata.config.max_incremental_fetch_session_cache_slots,
        metadata,
        slices,
    )


def _new_cleaner(
    metadata: ClusterMetadata,
    logs: LogManager,
    clock: Clock,
    scheduler: Scheduler,
    recorder: CompactionRecorder,
    runner: CleanerRunner | None,
) -> LogCleaner:
    return LogCleaner(
        logs,
        clock,
        runner or BackgroundCleaner(logs.files, logs.run_in_background),
        scheduler.call_later,
        lambda: _cleaner_settings(metadata.config),
        lambda topic: topic in INTERNAL_TOPICS,
        recorder,
    )


def _cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    return CleanerSettings(
        config.log_cleaner_enable,
        config.log_cleaner_backoff_ms,
        config.log_cleaner_dedupe_buffer_size,
        config.log_cleaner_io_buffer_load_factor,
        config.log_cleaner_io_max_bytes_per_second,
    )


class Node:
    """A broker without its sockets. `load` has to be called once, before anything else.

    The parts are built in order, from the metadata to the transaction coordinator, and each part
    gets only finished parts. Handlers use the parts directly.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        randomness: Randomness,
        logs: LogManager,
        scheduler: Scheduler,
        request_flush: Callable[[LogDurability], None],
        metrics: BrokerMetrics,
        on_fatal: Callable[[str], None],
        fault_points: FaultPoints = NO_FAULT_POINTS,
        cleaner: CleanerRunner | None = None,
        log_levels: LogLevels | None = None,
        peer_log: PeerLog | None = None,
        beside: Background = here,
    ) -> None:
        """`cleaner`: the runner of compaction. `log_levels`: the levels of the broker's log lines,
        None if another program writes the lines. `peer_log`: None for one of the node's own.
        `beside`: the thread that checks and reads large batches.
        """
        self.config, self.node_id, self.cluster_id = config, config.node_id, logs.cluster_id
        #: The profile of the emulated broker, or None, and the APIs that are answered.
        self.profile, self.served = config.profile, _served(config)
        self.clock, self.scheduler, self.logs = clock, scheduler, logs
        self.metrics, self.fault_points, self._on_fatal = metrics, fault_points, on_fatal
        self.peer_log = peer_log or PeerLog(lambda: clock.monotonic_ms() / 1000)
        #: Runs what takes long, in slices of the loop's time.
        self.slices = Slices(metrics.now_us, scheduler, self.peer_log, background=beside)
        self.log_levels = log_levels or OthersLogLevels()
        self._advertised: dict[str, tuple[str, int]] = {}
        self.metadata = metadata = ClusterMetadata(config, randomness)
        #: Handlers ask the authorizer before anything else (A-20).
        self.audit = AuditLog(clock.monotonic_ms, lambda: metadata.config.authorizer_log_allowed)
        self.authorizer = _new_authorizer(metadata, self.audit)
        self.quotas, self.connection_quotas = _new_quotas(metadata, clock)
        self._begin_histories(clock)
        #: The address of the console that is served with this broker; empty if there is no console.
        self.console_url = ""
        producers = ProducerRecorder(self.producer_history, lambda: logs.producer_expiration_ms)
        self.replicas = ReplicaManager(metadata, logs, clock, producers, request_flush, scheduler)
        #: A direct reference, because the function is called for every partition of each Produce
        #: and Fetch.
        self.partition = partition = self.replicas.partition
        #: The stored state of share partitions.
        self.share_state = self._new_share_state()
        self._partition_for = masked_partition_for if logs.masks_hashes else partition_for
        self.groups = groups = self._new_groups(randomness)
        #: The verdicts about groups, from samples of their offsets.
        self.verdicts = GroupVerdicts(groups.with_commits, groups.commits, self.log_of)
        #: The metrics that clients push.
        self.telemetry = self._new_telemetry(randomness)
        self.publisher = self._new_publisher()
        self.metadata_log = self._new_metadata_log()
        self.producer_ids = ProducerIdManager(metadata, self.metadata_log.commit, fault_points)
        producers.on_new_producer = self.producer_ids.first_batch_of
        self._make_mirrors()
        self.markers = MarkerWriter(
            partition, metadata, groups.marker_written, clock, fault_points, self.slices
        )
        self.transactions = self._new_transactions()
        #: The verification of transactions, for which batches may wait.
        self.verification = _new_verification(metadata, self.transactions, clock, scheduler)
        #: The last creation of each internal topic; its partitions are made in slices.
        self._internal_topics: dict[str, Deferred[None]] = {}
        self._begin_fetches(randomness)
        self.cleaner = _new_cleaner(
            metadata, logs, clock, scheduler, CompactionRecorder(self.partition_history), cleaner
        )
        self._begin_maintenance()

    def _begin_fetches(self, randomness: Randomness) -> None:
        """Make what Fetch and ShareFetch use."""
        self.fetch_sessions = _new_fetch_sessions(
            self.metadata, self.clock, randomness, self.slices
        )
        #: The time-outs of requests that wait for the disk or a coordinator.
        self.request_timeouts = Timeouts(self.clock, self.scheduler)
        self.parked_fetches = ParkedFetches(self.request_timeouts)
        self.share_partitions = self._new_share_partitions()
        self.share_sessions = self._new_share_sessions()
        #: The number of bytes of further responses that may wait for slow peers. The first batch of
        #: a fetch is sent in any case, since no consumer would make progress without it (D11).
        self.answer_room_bytes: Callable[[], int] = lambda: self.config.fetch_max_bytes

    def _begin_maintenance(self) -> None:
        self._next_retention_ms = self.clock.monotonic_ms() + FIRST_RETENTION_MS
        self._next_expiry_ms = 0
        self.group_lags_file = GroupLagsFile(self.verdicts.group_lags, self.logs)
        #: The work of `maintain` that takes turns at present.
        self._under_way: set[str] = set()

    def _begin_histories(self, clock: Clock) -> None:
        """Begin to keep recent events of groups, producer ids, transactional ids, partitions and
        clients. The events of all histories share one sequence of numbers."""
        numbers = count()
        self.group_history = History(clock.wall_ms, numbers=numbers)
        self.producer_history = History(clock.wall_ms, numbers=numbers)
        self.transaction_history = History(clock.wall_ms, numbers=numbers)
        self.partition_history = History(clock.wall_ms, numbers=numbers)
        self.mirror_history = History(clock.wall_ms, numbers=numbers)
        self.mirror_recorder = MirrorRecorder(self.mirror_history)
        self.connections = ConnectionPeers(History(clock.wall_ms, numbers=numbers), clock.wall_ms)

    def _make_mirrors(self) -> None:
        """Make the parts that append to mirror topics, and that promote them."""
        parts = MirrorParts(
            self.metadata,
            self.metadata_log,
            self.partition,
            self.logs,
            self.clock,
            self.mirror_recorder.record,
            self.slices,
        )
        self.mirrors = MirrorAppends(parts, self.metrics.appended_bytes)
        self.promotions = MirrorPromotions(parts, self.mirrors.forget)

    def log_of(self, where: TopicPartition) -> PartitionLog | None:
        """The log of a partition; None if there is no such partition."""
        partition = self.partition(*where)
        return None if partition is None else partition.log

    def _new_telemetry(self, randomness: Randomness) -> ClientTelemetry:
        return ClientTelemetry(
            lambda: self.metadata.config,
            self.connections.peers.get,
            self.clock,
            randomness,
            self.logs.run_in_background,
        )

    def _new_metadata_log(self) -> MetadataLog:
        return MetadataLog(
            self.metadata,
            self.logs,
            self.replicas.lead,
            self.publisher.publish,
            self.clock,
            self.scheduler,
            self._on_fatal,
            lambda: self.replicas.dropping or self.groups.deletions_pending,
        )

    def _new_publisher(self) -> MetadataPublisher:
        return MetadataPublisher(
            self.metadata,
            self.replicas,
            self.quotas,
            self.connection_quotas,
            self._topic_deleted,
            self.telemetry.subscriptions,
        )

    def _new_groups(self, randomness: Randomness) -> GroupCoordinator:
        metadata = self.metadata
        return GroupCoordinator(
            metadata.config,
            metadata=metadata,
            internal_partition=self.replicas.internal_partition,
            clock=self.clock,
            scheduler=self.scheduler,
            slices=self.slices,
            randomness=randomness,
            share_states=self.share_state,
            end_offset=self.replicas.end_offset,
            partition_for=self._partition_for,
            observer=GroupRecorder(self.group_history, metadata, metadata.config).record,
        )

    def _new_share_state(self) -> ShareCoordinator:
        replicas = self.replicas
        return ShareCoordinator(
            self.config,
            metadata=self.metadata,
            internal_partition=replicas.internal_partition,
            ensure_topic=self.ensure_internal_topic,
            prune=lambda offsets: replicas.prune(SHARE_STATE_TOPIC, offsets),
            state_changed=lambda key: self.share_partitions.forget(key),
            clock=self.clock,
            scheduler=self.scheduler,
            slices=self.slices,
        )

    def _new_share_partitions(self) -> SharePartitions:
        topics = DeadLetterTopics(
            self.metadata,
            self.partition,
            self._dead_letter_rules,
            self.create_dead_letter_topic,
            lambda: self.metadata_log.durable(),
        )
        #: Recent events of share partitions.
        self.share_history = ShareHistory(self.clock.wall_ms)
        return SharePartitions(
            self.partition,
            self.metadata.share_settings,
            self.metadata.share_offset_reset,
            DeadLetterWriter(topics, self.share_state, self.clock, self.scheduler, self.slices),
            self.share_history.record,
        )

    def _dead_letter_rules(self) -> DeadLetterRules:
        config = self.metadata.config
        return DeadLetterRules(
            config.errors_deadletterqueue_topic_name_prefix,
            config.errors_deadletterqueue_auto_create_topics_enable,
        )

    def _new_share_sessions(self) -> ShareSessions:
        metadata, led = self.metadata, self.share_partitions
        return ShareSessions(
            lambda: metadata.config.group_share_max_share_sessions,
            metadata.topic_name,
            led.release,
            led.forget_group,
            self.slices,
        )

    def _new_transactions(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.config,
            metadata=self.metadata,
            internal_partition=self.replicas.internal_partition,
            next_producer_id=self.producer_ids.next,
            write_marker=self.markers.write,
            clock=self.clock,
            scheduler=self.scheduler,
            fault_points=self.fault_points,
            slices=self.slices,
            partition_for=self._partition_for,
            observer=TransactionRecorder(self.transaction_history, self.producer_history).record,
        )

    # --- Start and end ---

    def load(self) -> StartReport:
        """Open the logs on disk, replay the metadata, lead every partition.

        Raises DataDirectoryError if the directory contradicts its own metadata.
        """
        self.logs.on_directory_failed = self._directory_failed
        token_check_ms = self.config.delegation_token_expiry_check_interval_ms
        self._next_token_expiry_ms = self.clock.monotonic_ms() + token_check_ms
        report = self.logs.open_all(
            self._config_at_start,
            first_topic=METADATA_TOPIC,
            topics=_TopicsAtStart(self.metadata_log, self.metadata),
        )
        self.metadata_log.load()
        self.publisher.loaded(self.metadata_log.state().log_end_offset)
        self.replicas.load(self.metadata_log.removed_topic_ids, report)
        report.problems += self.metadata_log.problems
        self._make_up_for_lost_metadata()
        if self.metadata.config_problem:
            report.problems.append(
                "the broker's dynamic settings are not all used, for they do not fit together:"
                f" {self.metadata.config_problem}"
            )
        self.share_state.shards.load()
        self.groups.note_removed(self.metadata_log.removed_topic_ids)
        self.groups.shards.load()
        self._begin_transactions()
        report.problems += self.group_lags_file.load(
            self.clock.monotonic_ms(), self.clock.wall_ms()
        )
        return report

    def _make_up_for_lost_metadata(self) -> None:
        """Give out no producer id that a log has (P-29), and raise leader epochs that are older
        than those of the batches (F-13), for the metadata log may have lost its last records. After
        a crash all logs are open. After a clean stop they are opened only if records are lost."""
        nothing_lost = self.metadata_log.ends_as_stopped
        producer_ids: set[int] = set()
        epochs: dict[str, dict[int, int]] = {}
        for log in self.logs:
            if log.offline or log.topic == METADATA_TOPIC or (nothing_lost and not log.loaded):
                continue
            with suppress(StorageError):
                log.load(self.clock.wall_ms())
                producer_ids.update(entry.producer_id for entry in log.producers.entries())
                newest = log.leader_epochs.latest
                if -1 < self.metadata.leader_epoch_of(log.topic, log.partition) < newest:
                    epochs.setdefault(log.topic, {})[log.partition] = newest
        self.producer_ids.leave_out(producer_ids)
        with suppress(StorageError):  # On a full disk the next start tries again.
            for topic, newer in epochs.items():
                self.metadata_log.commit(self.metadata.leader_epoch_records(topic, newer))

    def _begin_transactions(self) -> None:
        """Raise the leader epochs of the transaction partitions, and load the transaction
        coordinator in slices (T-57, T-58).

        The load begins when the new epochs are durable, because a loaded coordinator immediately
        requests markers with these epochs. Until the load ends, the coordinator answers
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        try:
            committed = self.metadata_log.commit(
                self.metadata.new_leader_epochs(TRANSACTIONS_TOPIC)
            )
        except StorageError:
            # The disk is full: all other requests are served, and this step is tried again later.
            self.scheduler.call_later(REOPEN_INTERVAL_MS, self._begin_transactions)
            return
        committed.then(lambda _: self._load_transactions())

    def _load_transactions(self) -> None:
        self.transactions.shards.begin_load()
        self._continue_loading_transactions()

    def _continue_loading_transactions(self) -> None:
        if not self.transactions.shards.load_some():
            self.scheduler.call_later(0, self._continue_loading_transactions)
            return
        self.producer_ids.leave_out(
            producer_id
            for core in self.transactions.shards.cores
            for each in core.transactions.values()
            for producer_id in (each.producer_id, each.next_producer_id)
        )

    def _config_at_start(self, topic: str) -> LogConfig:
        """The settings of a topic's logs. They are in the metadata log, which is loaded first."""
        if topic == METADATA_TOPIC:
            return self.metadata_log.log_config()
        self.metadata_log.load()
        self.logs.producer_expiration_ms = self.metadata.config.producer_id_expiration_ms
        return self.metadata.log_config(topic)

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Stop coordinating the keys whose internal partitions are in a failed directory; stop the
        broker if no directory is left (L-42)."""
        for shards, topic in (
            (self.share_state.shards, SHARE_STATE_TOPIC),
            (self.groups.shards, OFFSETS_TOPIC),
            (self.transactions.shards, TRANSACTIONS_TOPIC),
        ):
            for name, index in directory.logs:
                if name == topic:
                    shards.give_up(index)
        if not self.logs.usable:
            self._on_fatal(f"all data directories have failed, the last one was {directory.path}")

    def _topic_deleted(self, topic_id: bytes) -> Deferred[None]:
        """Drop the state of a deleted topic, here and in the coordinators."""
        self.mirrors.forget(topic_id)
        self.share_partitions.forget_topic(topic_id)
        deleted = [self.groups.topic_deleted(topic_id), self.share_state.topic_deleted(topic_id)]
        return gather(deleted).map(lambda _: None)

    def connection_closed(self, peer: Peer) -> None:
        """Note the end of a connection, and end its share sessions and client instances."""
        self.connections.closed(peer)
        self.share_sessions.connection_closed(peer.connection_id)
        self.telemetry.connection_closed(peer.connection_id)

    def set_advertised(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Set the (host, port) for clients by listener, once the sockets are bound (rule N-12)."""
        self._advertised = dict(addresses)

    def advertised_addresses(self) -> dict[str, tuple[str, int]]:
        """The addresses for clients: (host, port) by the name of the listener; empty before
        listeners are open."""
        return dict(self._advertised)

    def advertised(self, listener: str = "") -> tuple[str, int]:
        """The advertised (host, port) of a listener; that of the first listener if the name is
        empty or unknown.
        """
        found = self._advertised.get(listener)
        return found or next(iter(self._advertised.values()), ("", -1))

    def close(self) -> None:
        """Stop compaction, and close the coordinators. Each coordinator answers its parked requests
        (rule N-15).
        """
        self.cleaner.close()
        self.transactions.shards.close()
        self.groups.shards.close()
        self.share_partitions.close()
        self.share_state.shards.close()
        self.replicas.close()

    # --- Maintenance ---

    def maintain(self) -> MaintenanceReport:
        """Carry out retention, compaction, deletion and expiry that are due. Called about once a
        second."""
        now_ms = self.clock.monotonic_ms()
        wall_ms = self.clock.wall_ms()
        problems = self.replicas.open_missing()
        self.logs.look_at_disks()
        self.logs.open_again(wall_ms)
        problems += self.logs.remove_deleted_files(wall_ms)
        problems += self.metadata_log.maintain()
        if now_ms >= self._next_retention_ms:
            self._next_retention_ms = now_ms + self.config.log_retention_check_interval_ms
            self.logs.begin_retention()
        report = self.logs.continue_retention(wall_ms)
        self.logs.continue_snapshots()
        report.problems += problems
        self.cleaner.tick()
        self._take_turns("verdicts", lambda: self.verdicts.step(now_ms, wall_ms))
        self._take_turns("group lags", lambda: self.group_lags_file.step(now_ms))
        self.metrics.take_sample(now_ms, wall_ms)
        self.telemetry.expire()
        self._take_turns(
            "producers", lambda: self.logs.forget_producers_beyond(self.config.max_producer_ids)
        )
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self.config.producer_id_expiration_check_interval_ms
            self.logs.producer_expiration_ms = self.metadata.config.producer_id_expiration_ms
            self._take_turns("expiry", lambda: self.logs.remove_expired_producers(wall_ms))
        self._remove_expired_tokens(now_ms, wall_ms)
        return report

    def _take_turns(self, name: str, begin: Callable[[], Generator[object, None, object]]) -> None:
        """Begin work with pauses, unless the last work of this name has not ended."""
        if name in self._under_way:
            return
        self._under_way.add(name)
        self.slices.deferred(with_pauses(begin())).then(lambda _: self._under_way.discard(name))

    def _remove_expired_tokens(self, now_ms: int, wall_ms: int) -> None:
        """Remove a limited number of expired delegation tokens, if the next check of the tokens is
        due."""
        if now_ms < self._next_token_expiry_ms:
            return
        records = expired_tokens(self.metadata.delegation_tokens.all(), wall_ms)
        if len(records) < EXPIRED_AT_ONCE_MAX:
            interval_ms = self.config.delegation_token_expiry_check_interval_ms
            self._next_token_expiry_ms = now_ms + interval_ms
        # On a full disk the expired tokens stay, and are refused nevertheless.
        with suppress(StorageError):
            self.metadata_log.commit(records)

    def compaction_state(self, log: PartitionLog) -> SubjectState:
        """The state of the compaction of a log, and the reasons why parts of it are not compacted;
        for `odradek explain`."""
        cleaned_to = self.logs.directory_of(log).cleaner_offsets.get((log.topic, log.partition))
        settings = _cleaner_settings(self.metadata.config)
        return state_of_compaction(log, self.cleaner, settings, cleaned_to, self.clock.wall_ms())

    def create_dead_letter_topic(self, name: str) -> Deferred[ErrorCode]:
        """Create a dead letter topic; resolves with NONE when it may be used, or with the error."""
        wanted = RequestedTopic(name, configs={DEAD_LETTERS_ALLOWED: "true"})
        records, (made,) = create_topics(self.metadata, [wanted])
        if made.error is not ErrorCode.NONE:
            return Deferred.of(made.error)
        try:
            return self.metadata_log.commit(records).map(lambda _: ErrorCode.NONE)
        except StorageError as problem:
            return Deferred.of(problem.error)

    def ensure_internal_topic(self, name: str) -> Deferred[None]:
        """Create an internal topic if it is missing; resolves when the topic may be used. Raises
        StorageError if the topic's metadata records cannot be appended."""
        records = self.metadata.internal_topic_records(name)
        if records:
            self._internal_topics[name] = self.metadata_log.commit(records)
        made = self._internal_topics.get(name)
        if made is None or made.done:
            return self.metadata_log.durable()
        return made.map(lambda _: None)
