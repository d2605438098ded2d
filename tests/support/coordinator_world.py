"""A node for tests of one coordinator: virtual time, metadata, and internal partitions in
memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from counting_randomness import CountingRandomness
from node_world import SoonScheduler
from odradek_broker.coordinator.shards import Shards
from odradek_broker.deferred import Deferred
from odradek_broker.partition import StoredRecord
from odradek_broker.platform.fault_points import NO_FAULT_POINTS
from odradek_broker.security.authorizer import ALLOW_EVERYTHING, Authorizer
from odradek_broker.slices import Slices
from odradek_protocol.errors import ErrorCode
from odradek_protocol.stored.control_marker import ControlType, encode_key, encode_marker
from odradek_testkit.simulation.clock import SimulatedClock, StoppedTimer


class ListPartition:
    """An internal partition that is a list. With `hold`, appends become durable only when `flush`
    is called."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []
        self.durable = 0
        self.hold = False
        self.refuse: ErrorCode = ErrorCode.NONE
        self.append_times_ms: list[int] = []
        #: The offset of the first record that was not deleted.
        self.start = 0
        #: offset -> (producer id, true for a marker)
        self.producers: dict[int, tuple[int, bool]] = {}
        self._waiting: list[tuple[int, Deferred[ErrorCode]]] = []

    @property
    def next_offset(self) -> int:
        return len(self.records)

    def append_internal(
        self, records: list[tuple[bytes | None, bytes | None]], now_ms: int
    ) -> Deferred[ErrorCode]:
        return self._append(records, now_ms)

    def append_transactional(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        now_ms: int,
        producer_id: int,
        producer_epoch: int,
    ) -> Deferred[ErrorCode]:
        if self.refuse is ErrorCode.NONE:
            start = len(self.records)
            for offset in range(start, start + len(records)):
                self.producers[offset] = (producer_id, False)
        return self._append(records, now_ms)

    def append_marker(self, producer_id: int, commit: bool) -> Deferred[ErrorCode]:
        """Append a marker as the partition's leader does; the test must notify the coordinator."""
        self.producers[len(self.records)] = (producer_id, True)
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        return self._append([(encode_key(kind), encode_marker(0))], 0)

    def _append(
        self, records: Sequence[tuple[bytes | None, bytes | None]], now_ms: int
    ) -> Deferred[ErrorCode]:
        assert records
        if self.refuse is not ErrorCode.NONE:
            return Deferred.of(self.refuse)
        self.records += records
        self.append_times_ms.append(now_ms)
        deferred: Deferred[ErrorCode] = Deferred()
        if self.hold:
            self._waiting.append((len(self.records), deferred))
        else:
            self.durable = len(self.records)
            deferred.resolve(ErrorCode.NONE)
        return deferred

    def read_all(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        for record in self.read_stored():
            if not record.is_control:
                yield record.offset, record.key, record.value

    def read_stored(self) -> Iterator[StoredRecord]:
        for offset, (key, value) in list(enumerate(self.records))[self.start :]:
            yield StoredRecord(offset, key, value, *self.producers.get(offset, (-1, False)))

    def flush(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Make all appended records durable."""
        waiting, self._waiting = self._waiting, []
        if error is ErrorCode.NONE:
            self.durable = len(self.records)
        for _, deferred in waiting:
            deferred.resolve(error)

    def crash(self) -> None:
        """Lose all records that are not durable, and the callbacks that wait for them."""
        del self.records[self.durable :]
        self.producers = {at: who for at, who in self.producers.items() if at < self.durable}
        self._waiting = []


@dataclass
class Topics:
    """The part of the cluster metadata that coordinators use."""

    counts: dict[str, int] = field(default_factory=dict)
    ids: dict[str, bytes] = field(default_factory=dict)
    leader: int = 1
    leader_epoch: int = 0
    topics_version: int = 0
    broker_rack: str = ""
    share_groups_off: str = ""
    consumer_assignment_interval_ms: int = 0
    share_assignment_interval_ms: int = 1_000
    streams_assignment_interval_ms: int = 1_000
    #: The times at which topics were made, if they are known.
    made_ms: dict[str, int] = field(default_factory=dict)
    #: (group, setting) -> milliseconds
    group_settings: dict[tuple[str, str], int] = field(default_factory=dict)

    def assignment_interval_ms(self, group_type: str) -> int:
        interval_ms: int = getattr(self, f"{group_type}_assignment_interval_ms")
        return interval_ms

    def group_setting_ms(self, group_id: str, name: str) -> int | None:
        return self.group_settings.get((group_id, name))

    def topic_names(self) -> list[str]:
        return list(self.ids)

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def leader_of(self, name: str, partition: int) -> int | None:
        return self.leader if 0 <= partition < self.counts.get(name, 0) else None

    def topic_id(self, name: str) -> bytes:
        return self.ids.get(name, bytes(16))

    def topic_made_ms(self, name: str) -> int:
        return self.made_ms.get(name, 0)

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, held in self.ids.items() if held == topic_id), None)

    def leader_epoch_of(self, name: str, partition: int) -> int:
        return self.leader_epoch if self.partition_count(name) else -1

    def is_mirror(self, name: str) -> bool:
        return False

    def is_internal(self, name: str) -> bool:
        return name.startswith("__")


class CoordinatorWorld(ABC):
    """A node whose coordinator owns all partitions of one internal topic."""

    def __init__(
        self, metadata: Topics, internal_topic: str, *, partitions: int, topic_exists: bool
    ) -> None:
        self.clock = SimulatedClock(1_000)
        self.random = CountingRandomness()
        self.metadata = metadata
        self.authorizer: Authorizer = ALLOW_EVERYTHING
        self.fault_points = NO_FAULT_POINTS
        self.node_id = 1
        self.topic_partitions = [ListPartition() for _ in range(partitions)]
        self.timers: list[tuple[float, Callable[[], None]]] = []
        #: The turns of requests that take more than one slice.
        self.turns = SoonScheduler()
        #: The clock that measures the turns, in microseconds.
        self.now_us: Callable[[], int] = lambda: 0
        # Only the clock ends a slice.
        self.slices = Slices(lambda: self.now_us(), self.turns, counts_steps=False)
        if topic_exists:
            metadata.counts[internal_topic] = partitions

    @abstractmethod
    def _new_coordinator(self) -> Shards[Any]:
        """Replace the coordinator by a new one. Returns its shards."""

    def start(self) -> None:
        """Start a new coordinator, which loads the partitions."""
        self._shards = self._new_coordinator()
        self._shards.load()

    # --- The node's interface ---

    def advertised(self, listener: str = "") -> tuple[str, int]:
        return "host", 9092

    @property
    def replicas(self) -> Self:
        return self

    def internal_partition(self, topic: str, index: int) -> ListPartition | None:
        if self.metadata.partition_count(topic) == 0 or self.metadata.leader != self.node_id:
            return None
        return self.topic_partitions[index]

    def ensure_internal_topic(self, name: str) -> Deferred[None]:
        self.metadata.counts.setdefault(name, len(self.topic_partitions))
        return Deferred.of(None)

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> StoppedTimer:
        self.timers.append((self.clock.monotonic_ms() + delay_ms, callback))
        return StoppedTimer()

    # --- Time, disk, crashes ---

    @property
    def log(self) -> ListPartition:
        """The internal partition; fails if there are several."""
        assert len(self.topic_partitions) == 1
        return self.topic_partitions[0]

    def wait(self, duration_ms: int) -> None:
        """Let time pass; every deadline fires when its time has come."""
        end_ms = self.clock.now_ms + duration_ms
        while (next_ms := self._shards.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.clock.now_ms = max(self.clock.now_ms, next_ms)
            self._shards.run_due(self.clock.now_ms)
        self.clock.now_ms = end_ms

    def restart(self) -> None:
        """Kill the coordinator and start another one: only durable records are left."""
        for partition in self.topic_partitions:
            partition.crash()
        self.timers.clear()
        self.start()
