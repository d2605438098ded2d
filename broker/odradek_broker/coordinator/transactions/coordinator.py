"""The transaction coordinator of this broker: finds the shard of a transactional id.

Transactional ids are spread over the partitions of `__transaction_state` (T-01); this broker
coordinates the ids whose partition it leads. Each partition has a `TransactionShard` that decides
and a `Runtime` that writes; this module carries out the requests of the shards to the rest of the
broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Protocol

import structlog

from odradek_broker.coordinator.runtime import (
    Decision,
    Instant,
    InternalPartition,
    RuntimeState,
)
from odradek_broker.coordinator.shards import PartitionCounts, Shards, partition_for
from odradek_broker.coordinator.sliced_runtime import SlicedRuntime
from odradek_broker.coordinator.transactions.completion import Effects, PartitionCodes, WriteMarker
from odradek_broker.coordinator.transactions.decisions import (
    VERSION_2,
    AddCall,
    EndAnswer,
    EndCall,
    InitAnswer,
    InitCall,
)
from odradek_broker.coordinator.transactions.events import (
    MarkersRetried,
    MarkersStopped,
    Observer,
    RequestRefused,
    StepDecided,
    StepNotRecorded,
    TransactionCompleted,
    TransactionEvent,
    TransactionTimedOut,
    unobserved,
)
from odradek_broker.coordinator.transactions.shard import (
    PARK_CLIENT_MS,
    PARK_MS,
    TransactionCoordinatorSettings,
    TransactionShard,
)
from odradek_broker.coordinator.transactions.transaction import Transaction
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import TRANSACTIONS_TOPIC
from odradek_broker.platform.fault_points import FaultPoints
from odradek_broker.platform.seams import Clock, Scheduler
from odradek_broker.slices import Slices
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

log = structlog.get_logger("odradek.transactions")


class Metadata(PartitionCounts, Protocol):
    """The leaders and their epochs in the cluster metadata."""

    def leader_of(self, name: str, partition: int, /) -> int | None: ...

    def leader_epoch_of(self, name: str, partition: int, /) -> int: ...


class TransactionCoordinator:
    """The transaction coordinator. Requests return a `Deferred`, which is resolved with an error
    immediately if the shard is not available.

    `next_producer_id` gives a producer id that was never used (P-29), or None after an error;
    `write_marker` is `MarkerWriter.write`. `observer` is called with every event of
    transactional ids.
    """

    def __init__(
        self,
        settings: TransactionCoordinatorSettings,
        *,
        metadata: Metadata,
        internal_partition: Callable[[str, int], InternalPartition | None],
        next_producer_id: Callable[[], Deferred[int | None]],
        write_marker: WriteMarker,
        clock: Clock,
        scheduler: Scheduler,
        fault_points: FaultPoints,
        slices: Slices,
        partition_for: Callable[[str, int], int] = partition_for,
        observer: Observer = unobserved,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._fault_points = fault_points
        self._observer = observer
        self._is_full = False
        effects: Effects[TransactionShard] = Effects(next_producer_id, write_marker)
        #: Each core puts the leader epoch of its partition into its markers. Every start raises
        #: this epoch, and the raised epoch is durable when the load begins (T-57, T-58).
        self.shards: Shards[TransactionShard] = Shards(
            TRANSACTIONS_TOPIC,
            "transactions",
            self._new_shard,
            metadata=metadata,
            internal_partition=internal_partition,
            clock=clock,
            scheduler=scheduler,
            runtime_class=partial(SlicedRuntime, slices),
            carry_out=effects.carry_out,
            is_stale=self._is_stale,
            partition_for=partition_for,
        )

    def _new_shard(self, index: int) -> TransactionShard:
        return TransactionShard(
            self._settings,
            self._leader_epoch(index),
            self._exists,
            self._observe,
            self._fault_points,
            self._has_room,
        )

    def _leader_epoch(self, index: int) -> int:
        return self._metadata.leader_epoch_of(TRANSACTIONS_TOPIC, index)

    def _is_stale(self, index: int, shard: TransactionShard) -> bool:
        return self._leader_epoch(index) != shard.coordinator_epoch

    def _has_room(self) -> bool:
        """True if there is room for another id (D11)."""
        most = self._settings.max_transactional_ids
        count = sum(len(shard.transactions) for shard in self.shards.cores)
        if count >= most and not self._is_full:
            log.warning(
                "new transactional ids are refused: their limit is reached; raise"
                " max.transactional.ids, or lower transactional.id.expiration.ms",
                max_transactional_ids=most,
            )
        self._is_full = count >= most
        return not self._is_full

    def _exists(self, part: TopicPartition) -> bool:
        return self._metadata.leader_of(*part) is not None

    def _observe(self, event: TransactionEvent) -> None:
        self._observer(event)
        details: dict[str, str | None] = {}
        if isinstance(event, StepDecided | TransactionTimedOut | TransactionCompleted):
            before = event.before
            details["before"] = None if before is None else before.state.label
            details["after"] = event.after.state.label
        elif isinstance(event, StepNotRecorded | RequestRefused | MarkersRetried | MarkersStopped):
            details["error"] = event.error.name
        if isinstance(event, StepDecided | StepNotRecorded | RequestRefused):
            details["request"] = event.cause.value
        log.debug(
            "transaction",
            transactional_id=event.transactional_id,
            what=type(event).__name__,
            **details,
        )

    # --- Requests ---

    def init_producer_id(self, call: InitCall) -> Deferred[InitAnswer]:
        """Check the timeout of an InitProducerId, and answer the request (T-10 to T-16)."""
        if not call.enable_two_phase_commit and not (
            0 < call.timeout_ms <= self._settings.transaction_max_timeout_ms
        ):
            return Deferred.of(InitAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
        return self.shards.ask(
            call.transactional_id,
            lambda shard, deferred, now: shard.init(call, deferred, now),
            InitAnswer,
        )

    def add_partitions(self, call: AddCall) -> Deferred[ErrorCode]:
        """Add partitions, all of them or none (T-20)."""
        return self._add(call, PARK_CLIENT_MS).map(
            lambda codes: next(iter(codes.values()), ErrorCode.NONE)
        )

    def _add(self, call: AddCall, park_ms: int) -> Deferred[PartitionCodes]:
        return self.shards.ask(
            call.transactional_id,
            lambda shard, deferred, now: shard.add(call, deferred, now, now.monotonic_ms + park_ms),
            lambda error: dict.fromkeys(call.partitions, error),
        )

    def end(self, call: EndCall) -> Deferred[EndAnswer]:
        """Commit or abort a transaction (T-30 to T-32, T-63 to T-67)."""
        return self.shards.ask(
            call.transactional_id,
            lambda shard, deferred, now: shard.end(call, deferred, now),
            EndAnswer,
        )

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        add: bool,
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]]:
        """Verify that partitions belong to the transaction, or add them (T-61, T-62); see
        `TransactionVerifier`. An addition waits a while for the markers of the producer's last
        transaction before it is answered CONCURRENT_TRANSACTIONS (T-68)."""
        call = AddCall(
            transactional_id, producer_id, producer_epoch, frozenset(partitions), VERSION_2
        )
        if not transactional_id:
            return Deferred.of(dict.fromkeys(call.partitions, ErrorCode.INVALID_REQUEST))
        if add:
            return self._add(call, PARK_MS)
        return self.shards.ask(
            transactional_id,
            lambda shard, deferred, now: shard.verify(call, deferred, now),
            lambda error: dict.fromkeys(call.partitions, error),
        )

    def describe(self, transactional_id: str) -> Deferred[tuple[ErrorCode, Transaction | None]]:
        """The state of an id; TRANSACTIONAL_ID_NOT_FOUND for an unknown id."""

        def select(shard: TransactionShard) -> tuple[ErrorCode, Transaction | None]:
            current = shard.transactions.get(transactional_id)
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if current is None else ErrorCode.NONE
            return error, current

        return self.shards.read(transactional_id, select, lambda error: (error, None))

    async def list_all(self) -> tuple[ErrorCode, list[Transaction]]:
        """Every id that this broker coordinates, or the error of a core that is not available."""
        return await self.shards.read_all(
            lambda shard: shard.transactions.values(), lambda transaction: transaction
        )

    def abort_open(self, transactional_id: str) -> bool:
        """Abort the transaction of an id as if its timeout had passed; False if none is open."""
        runtime, _ = self.shards.find(transactional_id)
        if runtime is None or runtime.state is not RuntimeState.ACTIVE:
            return False
        found: list[bool] = []

        def decide(now: Instant) -> Decision:
            found.append(runtime.core.is_open(transactional_id, now))
            return runtime.core.abort_if(runtime.core.is_open, transactional_id, now)

        runtime.run(decide)
        return bool(found) and found[0]

    # --- For metrics and tools ---

    def transactions(self) -> Iterator[Transaction]:
        """All ids that are loaded, in their current state."""
        return chain.from_iterable(shard.transactions.values() for shard in self.shards.cores)

    def transaction(self, transactional_id: str) -> Transaction | None:
        """The state of a transactional id, for reading only; None if this broker does not have
        it."""
        core = self.shards.core(transactional_id)
        return None if core is None else core.transactions.get(transactional_id)
