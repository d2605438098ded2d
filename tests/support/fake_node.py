"""A node without logs: metadata changes are applied when they are appended, and become durable when
the test says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from counting_randomness import CountingRandomness
from fake_share_partitions import FakeSharePartitions
from node_world import SoonScheduler
from odradek_broker.config.broker import parse_config
from odradek_broker.deferred import Deferred
from odradek_broker.emulation.served import served_apis
from odradek_broker.explain.verdicts import GroupVerdicts
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.features import FinalizedFeatures
from odradek_broker.metadata.log import MetadataLogState
from odradek_broker.platform.machine import RealRandomness
from odradek_broker.quotas.managers import QuotaManagers
from odradek_broker.quotas.rates import Windows
from odradek_broker.request import Peer
from odradek_broker.security.authorizer import ALLOW_EVERYTHING, Authorizer
from odradek_broker.slices import Slices
from odradek_broker.storage.cleaner.statistics import CleanerStatistics
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.log_directory import LogDirectory
from odradek_broker.storage.log_options import LogOptions
from odradek_broker.telemetry.manager import ClientTelemetry
from odradek_protocol.stored.cluster_metadata import encode_records
from odradek_testkit.simulation.clock import SimulatedClock
from odradek_testkit.simulation.disk import MemoryFiles


def done_at_once(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
    """Do background work immediately."""
    problem = None
    try:
        work()
    except Exception as error:  # noqa: BLE001 - handed to `done`
        problem = error
    done(problem)


class FakeLog:
    offline = False
    high_watermark = 10
    log_start_offset = 3
    last_stable_offset = 7
    size_bytes = 1234
    topic_id = bytes(16)
    partition = 0

    def unread_batch(self, offset: int) -> None:
        """Return None: the log has no batches."""


class FakePartition:
    def __init__(self) -> None:
        self.log = FakeLog()


class FakeTimer:
    def __init__(self, delay_ms: float, callback: Callable[[], None]) -> None:
        self.delay_ms = delay_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeTransactions:
    """A transaction coordinator whose transactional ids a test sets."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def transactions(self) -> Iterator[Any]:
        return iter(self.held)


class FakeCleaner:
    """A cleaner with statistics and nothing else."""

    def __init__(self) -> None:
        self.statistics = CleanerStatistics()


class FakeLogs:
    """One data directory with nothing in it."""

    def __init__(self, path: str) -> None:
        files = MemoryFiles()
        handles = HandleCache(files)
        options = LogOptions(files, handles, RealRandomness(), DeletedFiles(handles))
        self.directories = [LogDirectory(path, options)]

    def directory_of(self, log: FakeLog) -> LogDirectory:
        return self.directories[0]


class FakeLogLevels:
    """Loggers in memory, each at the root's level unless it has its own."""

    def __init__(self) -> None:
        self.changeable = True
        self.own: dict[str, str | None] = {"root": "INFO", "odradek": None, "odradek.groups": None}

    def levels(self) -> dict[str, str]:
        return {name: level or self.own["root"] or "" for name, level in self.own.items()}

    def set_level(self, name: str, level: str | None) -> None:
        if name not in self.own:
            raise KeyError(name)
        self.own[name] = level


@dataclass
class FakeShareState:
    """The part of the share coordinator that metrics read."""

    shards: Any = field(default_factory=lambda: SimpleNamespace(cores=[]))
    writes: int = 0
    pruned: dict[int, int] = field(default_factory=dict)


class FakeMetadataLog:
    """The metadata log of a `FakeNode`."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    def commit(self, records: list[Any]) -> Deferred[None]:
        for record in records:
            self._node.recorded += encode_records([record])[0]
            self._node.metadata.replay(record)
        return self.durable()

    def durable(self) -> Deferred[None]:
        if self._node.durable or self._node.flushed == len(self._node.recorded):
            return Deferred.of(None)
        deferred: Deferred[None] = Deferred()
        self._node.waiting.append(deferred)
        return deferred

    def state(self) -> MetadataLogState:
        end = len(self._node.recorded)
        return MetadataLogState(leader_epoch=0, high_watermark=end, log_end_offset=end)


class FakeGroups:
    """A group coordinator without groups; fails if it is asked about a group."""

    def describe_consumer_group(self, group_id: str) -> None:
        raise AssertionError(f"asked for {group_id}")


class FakeNode:
    """The part of a node that handlers of the control plane use.

    `durable`: if it is False, a response waits for the first `flush` after the last change.
    """

    def __init__(self, **settings: str) -> None:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        self.config, _ = parse_config(given)
        self.profile = self.config.profile
        self.served = served_apis(
            self.profile, two_phase_commit=self.config.transaction_two_phase_commit_enable
        )
        self.metadata = ClusterMetadata(self.config, CountingRandomness())
        self.node_id = self.config.node_id
        self.cluster_id = "cluster"
        self.clock = SimulatedClock()
        self.quotas = QuotaManagers(self.clock, Windows(11, 1000), Windows(11, 1000))
        self.authorizer: Authorizer = ALLOW_EVERYTHING
        self.transactions = FakeTransactions()
        self.groups = FakeGroups()
        self.verdicts = GroupVerdicts(list, lambda _: {}, lambda _: None)
        self.share_state = FakeShareState()
        self.share_partitions = FakeSharePartitions()
        self.cleaner = FakeCleaner()
        self.logs = FakeLogs(self.config.data_dir)
        self.peers: dict[int, Peer] = {}
        self.telemetry = ClientTelemetry(
            lambda: self.metadata.config,
            self.peers.get,
            self.clock,
            CountingRandomness(),
            done_at_once,
        )
        self.durable = True
        self.recorded: list[bytes] = []
        #: The number of records that the last flush made durable; -1 before the first.
        self.flushed = -1
        self.changed: list[str] = []
        self.timers: list[FakeTimer] = []
        self.log_levels = FakeLogLevels()
        self.offline: set[tuple[str, int]] = set()
        self.waiting: list[Deferred[None]] = []
        self.metadata_log = FakeMetadataLog(self)
        self.publisher = self.replicas = self.scheduler = self
        #: The turns of requests that take more than one slice.
        self.turns = SoonScheduler()
        self.slices = Slices(lambda: 0, self.turns)

    def advertised(self, listener: str = "") -> tuple[str, int]:
        return "host", 9092

    def advertised_addresses(self) -> dict[str, tuple[str, int]]:
        return {"PLAINTEXT": ("host", 9092), "LOCAL": ("::1", 9094)}

    @property
    def finalized_features(self) -> FinalizedFeatures:
        return FinalizedFeatures(len(self.recorded), dict(self.metadata.feature_levels))

    def flush(self) -> None:
        """Make all metadata changes durable."""
        self.flushed = len(self.recorded)
        waiting, self.waiting = self.waiting, []
        for deferred in waiting:
            deferred.resolve(None)

    def partition(self, topic: str, index: int) -> FakePartition | None:
        if self.metadata.leader_of(topic, index) is None:
            return None
        partition = FakePartition()
        partition.log.offline = (topic, index) in self.offline
        return partition

    def topic_config_changed(self, topic: str) -> None:
        self.changed.append(topic)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> FakeTimer:
        self.timers.append(FakeTimer(delay_ms, callback))
        return self.timers[-1]

    def create(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic. Returns its id."""
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        assignments = {index: [self.node_id] for index in range(partitions)}
        self.metadata_log.commit(self.metadata.topic_records(name, assignments, settings))
        return self.metadata.topic_id(name)
