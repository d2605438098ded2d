"""A transaction coordinator in a `CoordinatorWorld`, and the requests of clients.

Producer ids are consecutive numbers, and markers are written into lists. A test can delay or refuse
the allocation of ids and the writing of markers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from coordinator_world import CoordinatorWorld, Topics
from odradek_broker.coordinator.shards import Shards
from odradek_broker.coordinator.transactions.completion import MarkerRequest
from odradek_broker.coordinator.transactions.coordinator import TransactionCoordinator
from odradek_broker.coordinator.transactions.decisions import (
    AddCall,
    EndAnswer,
    EndCall,
    InitAnswer,
    InitCall,
)
from odradek_broker.coordinator.transactions.transaction import Transaction, TransactionState
from odradek_broker.deferred import Deferred
from odradek_broker.explain.connections import ConnectionPeers
from odradek_broker.explain.history import History
from odradek_broker.explain.transactions import TransactionRecorder
from odradek_broker.metadata.cluster import TRANSACTIONS_TOPIC
from odradek_broker.slices import Slices
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

ID = "id"
T0: TopicPartition = ("topic", 0)
T1: TopicPartition = ("topic", 1)
O0: TopicPartition = ("other", 0)


@dataclass(frozen=True)
class Settings:
    """The broker's settings."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_two_phase_commit_enable: bool = True
    transaction_state_log_num_partitions: int = 1
    max_transactional_ids: int = 200_000


@dataclass
class WrittenMarker:
    """A marker in a partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    commit: bool
    version: int


@dataclass
class Markers:
    """The leaders of the partitions: they get the markers. `codes`: the error codes to respond
    with. `hold`: responses wait for `release`."""

    written: dict[TopicPartition, list[WrittenMarker]] = field(default_factory=dict)
    codes: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    requests: list[MarkerRequest] = field(default_factory=list)
    hold: bool = False
    held: list[tuple[MarkerRequest, Deferred[dict[TopicPartition, ErrorCode]]]] = field(
        default_factory=list
    )

    def write(self, request: MarkerRequest) -> Deferred[dict[TopicPartition, ErrorCode]]:
        self.requests.append(request)
        deferred: Deferred[dict[TopicPartition, ErrorCode]] = Deferred()
        self.held.append((request, deferred))
        if not self.hold:
            self.release()
        return deferred

    def release(self) -> None:
        """Write the waiting markers, and respond."""
        while self.held:
            request, deferred = self.held.pop(0)
            answers = {}
            for part in request.partitions:
                answers[part] = self.codes.get(part, ErrorCode.NONE)
                if answers[part] is ErrorCode.NONE:
                    self.written.setdefault(part, []).append(
                        WrittenMarker(
                            request.producer_id,
                            request.producer_epoch,
                            request.coordinator_epoch,
                            request.commit,
                            request.transaction_version,
                        )
                    )
            deferred.resolve(answers)


class TransactionWorld(CoordinatorWorld):
    """The node of a transaction coordinator."""

    def __init__(self, *, partitions: int = 1, topic: bool = True, **settings: Any) -> None:
        metadata = Topics({"topic": 10, "other": 10})
        super().__init__(metadata, TRANSACTIONS_TOPIC, partitions=partitions, topic_exists=topic)
        self.config = replace(Settings(), **settings)
        self.markers = Markers()
        self.next_id = 1_000
        self.producer_ids = SimpleNamespace(next=self.next_producer_id)
        self.hold_ids = False
        self.held_ids: list[Deferred[int | None]] = []
        self.groups = SimpleNamespace(shards=SimpleNamespace(partition_of=lambda group_id: 7))
        self.start()

    def _new_coordinator(self) -> Shards[Any]:
        self.producer_history = History(self.clock.wall_ms)
        self.transaction_history = History(self.clock.wall_ms)
        self.connections = ConnectionPeers(History(self.clock.wall_ms), self.clock.wall_ms)
        recorder = TransactionRecorder(self.transaction_history, self.producer_history)
        self.transactions = self.new_transactions(observer=recorder.record)
        return self.transactions.shards

    def new_transactions(self, **observers: Any) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.config,
            metadata=self.metadata,
            internal_partition=self.internal_partition,
            next_producer_id=self.next_producer_id,
            write_marker=self.markers.write,
            clock=self.clock,
            scheduler=self,
            fault_points=self.fault_points,
            slices=Slices(lambda: 0, self),
            **observers,
        )

    def restart(self) -> None:
        """Kill the coordinator and start another one, with the next coordinator epoch: only durable
        records are left."""
        self.markers.held = []
        self.held_ids = []
        self.metadata.leader_epoch += 1
        super().restart()

    # --- The node's interface ---

    def next_producer_id(self) -> Deferred[int | None]:
        deferred: Deferred[int | None] = Deferred()
        self.held_ids.append(deferred)
        if not self.hold_ids:
            self.give_ids()
        return deferred

    def give_ids(self) -> None:
        waiting, self.held_ids = self.held_ids, []
        for deferred in waiting:
            self.next_id += 1
            deferred.resolve(self.next_id)

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
    ) -> Deferred[InitAnswer]:
        call = InitCall(name, timeout_ms, producer_id, epoch, two_phase, keep)
        return self.transactions.init_producer_id(call)

    def init(self, producer_id: int = -1, epoch: int = -1, **how: Any) -> InitAnswer:
        return self.init_later(producer_id, epoch, **how).result()

    def begin(self, **how: Any) -> tuple[int, int]:
        """Initialize a new producer. Returns its producer id and epoch."""
        answer = self.init(**how)
        assert answer.error is ErrorCode.NONE
        return answer.producer_id, answer.epoch

    def add_later(
        self,
        identity: tuple[int, int],
        *parts: TopicPartition,
        name: str = ID,
        version: int = 1,
    ) -> Deferred[ErrorCode]:
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
    ) -> Deferred[EndAnswer]:
        return self.transactions.end(EndCall(name, *identity, commit, version))

    def end(self, identity: tuple[int, int], commit: bool = True, **how: Any) -> EndAnswer:
        return self.end_later(identity, commit, **how).result()

    # --- State, and its preparation ---

    def held(self, name: str = ID) -> Transaction:
        found = self.transactions.transaction(name)
        assert found is not None
        return found

    def state(self, name: str = ID) -> TransactionState:
        return self.held(name).state

    def put(self, **fields: Any) -> Transaction:
        """Write a transaction's state into the log, and let a coordinator load it."""
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
