"""A transaction coordinator on virtual time, over lists that are durable when the test says so.

Producer ids are counted, markers are written into lists; each can be held back or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from group_world import ListPartition, NoTimer, Topics, VirtualClock
from odradek_broker.authorizer import ALLOW_EVERYTHING, Authorizer
from odradek_broker.coordinator.transactions.coordinator import (
    TRANSACTIONS_TOPIC,
    TransactionCoordinator,
)
from odradek_broker.coordinator.transactions.deciding import AddCall, EndCall, InitCall
from odradek_broker.coordinator.transactions.interfaces import MarkerRequest, TopicPartition
from odradek_broker.coordinator.transactions.shard import EndAnswer, InitAnswer
from odradek_broker.coordinator.transactions.states import TransactionState
from odradek_broker.coordinator.transactions.transaction import Transaction
from odradek_broker.fault_points import NO_FAULTS
from odradek_broker.history import History
from odradek_broker.later import Later
from odradek_protocol.errors import ErrorCode

ID = "id"
T0: TopicPartition = ("topic", 0)
T1: TopicPartition = ("topic", 1)
O0: TopicPartition = ("other", 0)


@dataclass(frozen=True)
class Settings:
    """Like the broker's."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = True
    transaction_state_log_num_partitions: int = 1
    max_transactional_ids: int = 200_000


@dataclass
class LedTopics(Topics):
    """Metadata whose leader epochs a test may change."""

    leader_epoch: int = 0

    def leader_epoch_of(self, name: str, partition: int) -> int:
        return self.leader_epoch if self.partition_count(name) else -1

    def is_internal(self, name: str) -> bool:
        return name.startswith("__")


@dataclass
class Written:
    """One marker in a partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool
    version: int


@dataclass
class Markers:
    """The partitions' leaders. `codes`: what some of them answer; `hold` keeps all answers back."""

    written: dict[TopicPartition, list[Written]] = field(default_factory=dict)
    codes: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    requests: list[MarkerRequest] = field(default_factory=list)
    hold: bool = False
    held: list[tuple[MarkerRequest, Later[dict[TopicPartition, ErrorCode]]]] = field(
        default_factory=list
    )

    def write(self, markers: Sequence[MarkerRequest]) -> Later[dict[TopicPartition, ErrorCode]]:
        (request,) = markers
        self.requests.append(request)
        later: Later[dict[TopicPartition, ErrorCode]] = Later()
        self.held.append((request, later))
        if not self.hold:
            self.release()
        return later

    def release(self) -> None:
        """Write what is waiting, and answer."""
        while self.held:
            request, later = self.held.pop(0)
            answers = {}
            for part in request.partitions:
                answers[part] = self.codes.get(part, ErrorCode.NONE)
                if answers[part] is ErrorCode.NONE:
                    self.written.setdefault(part, []).append(
                        Written(
                            request.producer_id,
                            request.producer_epoch,
                            request.coordinator_epoch,
                            request.commit,
                            request.transaction_version,
                        )
                    )
            later.resolve(answers)


class TransactionWorld:
    """The node of one coordinator."""

    def __init__(self, *, partitions: int = 1, topic: bool = True, **settings: Any) -> None:
        self.clock = VirtualClock()
        self.metadata = LedTopics({"topic": 10, "other": 10})
        self.config = replace(Settings(), **settings)
        self.authorizer: Authorizer = ALLOW_EVERYTHING
        self.faults = NO_FAULTS
        self.node_id = 1
        self.advertised = ("host", 9092)
        self.topic_partitions = [ListPartition() for _ in range(partitions)]
        self.markers = Markers()
        self.next_id = 1_000
        self.hold_ids = False
        self.held_ids: list[Later[int | None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        if topic:
            self.metadata.counts[TRANSACTIONS_TOPIC] = partitions
        self.producer_history = History(self.clock.wall_ms)
        self.transactions = TransactionCoordinator(self, self.config, self.producer_history)
        self.transactions.load()

    # --- What a node gives ---

    def internal_partition(self, topic: str, index: int) -> ListPartition | None:
        if self.metadata.partition_count(topic) == 0 or self.metadata.leader != self.node_id:
            return None
        return self.topic_partitions[index]

    def ensure_internal_topic(self, name: str) -> Later[None]:
        self.metadata.counts.setdefault(name, len(self.topic_partitions))
        return Later.of(None)

    def call_at(self, monotonic_ms: float, callback: Callable[[], None]) -> NoTimer:
        self.timers.append((monotonic_ms, callback))
        return NoTimer()

    def next_producer_id(self) -> Later[int | None]:
        later: Later[int | None] = Later()
        self.held_ids.append(later)
        if not self.hold_ids:
            self.give_ids()
        return later

    def give_ids(self) -> None:
        waiting, self.held_ids = self.held_ids, []
        for later in waiting:
            self.next_id += 1
            later.resolve(self.next_id)

    def write_markers(
        self, markers: Sequence[MarkerRequest]
    ) -> Later[dict[TopicPartition, ErrorCode]]:
        return self.markers.write(markers)

    # --- Time, disk, crashes ---

    @property
    def log(self) -> ListPartition:
        """The only partition."""
        assert len(self.topic_partitions) == 1
        return self.topic_partitions[0]

    def wait(self, duration_ms: int) -> None:
        """Let time pass; every deadline is met at its moment."""
        end_ms = self.clock.now_ms + duration_ms
        while (next_ms := self.transactions.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.clock.now_ms = max(self.clock.now_ms, next_ms)
            self.transactions.advance(self.clock.now_ms)
        self.clock.now_ms = end_ms

    def restart(self) -> None:
        """Kill and start again: only what was durable is there, and the epoch is a new one."""
        for partition in self.topic_partitions:
            partition.crash()
        self.markers.held = []
        self.held_ids = []
        self.metadata.leader_epoch += 1
        self.producer_history = History(self.clock.wall_ms)
        self.transactions = TransactionCoordinator(self, self.config, self.producer_history)
        self.transactions.load()

    # --- Requests ---

    def init_later(
        self,
        producer_id: int = -1,
        epoch: int = -1,
        *,
        name: str = ID,
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        keep: bool = False,
    ) -> Later[InitAnswer]:
        call = InitCall(name, timeout_ms, producer_id, epoch, two_phase, keep)
        return self.transactions.init_producer_id(call)

    def init(self, producer_id: int = -1, epoch: int = -1, **how: Any) -> InitAnswer:
        return self.init_later(producer_id, epoch, **how).result()

    def begin(self, **how: Any) -> tuple[int, int]:
        """A new producer's identity."""
        answer = self.init(**how)
        assert answer.error is ErrorCode.NONE
        return answer.producer_id, answer.epoch

    def add_later(
        self,
        identity: tuple[int, int],
        *parts: TopicPartition,
        name: str = ID,
        version: int = 1,
    ) -> Later[ErrorCode]:
        call = AddCall(name, *identity, frozenset(parts or (T0,)), version)
        return self.transactions.add_partitions(call)

    def add(self, identity: tuple[int, int], *parts: TopicPartition, **how: Any) -> ErrorCode:
        return self.add_later(identity, *parts, **how).result()

    def verify(
        self, identity: tuple[int, int], *parts: TopicPartition, name: str = ID, add: bool = False
    ) -> Any:
        return self.transactions.verify_or_add(name, *identity, parts or (T0,), add=add)

    def end_later(
        self, identity: tuple[int, int], commit: bool = True, *, version: int = 1, name: str = ID
    ) -> Later[EndAnswer]:
        return self.transactions.end(EndCall(name, *identity, commit, version))

    def end(self, identity: tuple[int, int], commit: bool = True, **how: Any) -> EndAnswer:
        return self.end_later(identity, commit, **how).result()

    # --- Looking and arranging ---

    def held(self, name: str = ID) -> Transaction:
        found = self.transactions.transaction(name)
        assert found is not None
        return found

    def state(self, name: str = ID) -> TransactionState:
        return self.held(name).state

    def put(self, **fields: Any) -> Transaction:
        """Write a state into the log as if it had been reached, and load it."""
        from odradek_broker.coordinator.transactions.transaction import encode

        given = {
            "transactional_id": ID,
            "producer_id": 7,
            "epoch": 5,
            "timeout_ms": 60_000,
            "state": TransactionState.EMPTY,
            "last_update_ms": self.clock.wall_ms(),
            **fields,
        }
        if given["state"] in (
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
        ):
            given.setdefault("partitions", frozenset({T0}))
            given.setdefault("start_ms", self.clock.wall_ms())
        transaction = Transaction(**given)
        self.log.append_internal([encode(transaction)], self.clock.wall_ms())
        self.restart()
        return transaction
