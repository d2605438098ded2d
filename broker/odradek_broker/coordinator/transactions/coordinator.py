"""The transaction coordinator of this broker: which shard has an id, and is it ready?

Transactional ids are spread over the partitions of `__transaction_state` (T-01); this broker
coordinates those whose partition it leads. Each partition has a `TransactionShard` that decides and
a `Runtime` that writes; here is what the shards ask of the rest of the broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import structlog

from odradek_broker.coordinator.alarm import Alarm, Timer
from odradek_broker.coordinator.placement import place
from odradek_broker.coordinator.runtime import (
    InternalPartition,
    Moment,
    Outcome,
    Reply,
    Runtime,
    RuntimeState,
)
from odradek_broker.coordinator.transactions.deciding import (
    VERSION_2,
    AddCall,
    EndCall,
    InitCall,
)
from odradek_broker.coordinator.transactions.interfaces import MarkerRequest, TopicPartition
from odradek_broker.coordinator.transactions.shard import (
    PARK_CLIENT_MS,
    PARK_MS,
    Effect,
    EndAnswer,
    Event,
    InitAnswer,
    PartitionCodes,
    SendMarkers,
    TakeProducerId,
    TransactionSettings,
    TransactionShard,
)
from odradek_broker.coordinator.transactions.telling import tell
from odradek_broker.coordinator.transactions.transaction import (
    Transaction,
)
from odradek_broker.fault_points import FaultPoints
from odradek_broker.history import History
from odradek_broker.later import Later
from odradek_broker.seams import Clock
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import WireError

log = structlog.get_logger("odradek.transactions")

TRANSACTIONS_TOPIC = "__transaction_state"

#: Transactions whose markers are on their way at the same time; the others wait their turn.
MARKERS_IN_FLIGHT_MAX = 500

A = TypeVar("A")


class Metadata(Protocol):
    """What is asked of the cluster metadata."""

    def partition_count(self, name: str, /) -> int: ...

    def leader_of(self, name: str, partition: int, /) -> int | None: ...

    def leader_epoch_of(self, name: str, partition: int, /) -> int: ...


class TransactionEnv(Protocol):
    """What the coordinator asks of the node that it runs in."""

    @property
    def clock(self) -> Clock: ...
    @property
    def faults(self) -> FaultPoints: ...
    @property
    def metadata(self) -> Metadata: ...

    def internal_partition(self, topic: str, index: int, /) -> InternalPartition | None:
        """The partition, if it exists and this broker leads it."""
        ...

    def call_at(self, monotonic_ms: float, callback: Callable[[], None], /) -> Timer: ...

    def next_producer_id(self) -> Later[int | None]:
        """An id that was never given out (P-29); None if that failed."""
        ...

    def write_markers(
        self, markers: Sequence[MarkerRequest], /
    ) -> Later[dict[TopicPartition, ErrorCode]]:
        """See `interfaces.MarkerWriter`."""
        ...


class TransactionCoordinator:
    """Every call gives a `Later`; it holds an error at once where the shard cannot be asked.

    `producers`: where what happens to producer ids is told.
    """

    def __init__(
        self,
        env: TransactionEnv,
        settings: TransactionSettings,
        producers: History | None = None,
    ) -> None:
        self._env = env
        self._settings = settings
        self._runtimes: dict[int, Runtime[TransactionShard]] = {}
        self._closed = False
        self._loading = True
        self._is_full = False
        self._alarm = Alarm(env, self.advance)
        self._draining: set[int] = set()
        self._markers_waiting: deque[tuple[Runtime[TransactionShard], SendMarkers]] = deque()
        self._markers_in_flight = 0
        #: The last things that happened to each id.
        self.history = History(env.clock.wall_ms)
        self._producers = producers if producers is not None else History(env.clock.wall_ms)

    # --- Start, time, end ---

    def load(self) -> None:
        """Replay every partition of `__transaction_state` that this broker leads, and go on."""
        self.begin_load()
        while not self.load_some():
            pass

    def begin_load(self) -> None:
        """From now on requests are answered with 14 until `load_some` has said True (T-58).

        The partitions' leader epochs are those of this start, and durable: markers carry them.
        """
        if self._closed:
            return
        for index in range(self._env.metadata.partition_count(TRANSACTIONS_TOPIC)):
            partition = self._env.internal_partition(TRANSACTIONS_TOPIC, index)
            if partition is not None and index not in self._runtimes:
                self._runtimes[index] = self._new_runtime(index, partition)
        self._loading = False

    def load_some(self) -> bool:
        """Replay a slice; True when all is loaded. For a shell that has other things to do."""
        for index, runtime in self._runtimes.items():
            if not self._closed and runtime.state is RuntimeState.LOADING:
                self._load_slice(index, runtime)
                return False
        self._alarm.set(self.next_deadline_ms())
        return True

    def advance(self, now_ms: int) -> None:
        """Act on every deadline up to this moment of the monotonic clock."""
        moment = Moment(now_ms, self._env.clock.wall_ms())
        for index, runtime in list(self._runtimes.items()):
            runtime.advance(moment)
            self._drain(index, runtime)
        self._alarm.set(self.next_deadline_ms())

    def next_deadline_ms(self) -> int | None:
        """When `advance` has something to do; None for never."""
        deadlines = (runtime.next_deadline_ms() for runtime in self._runtimes.values())
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def close(self) -> None:
        """Answer all that is parked: whoever waits must look for another coordinator (N-15)."""
        self._closed = True
        self._markers_waiting.clear()
        for runtime in self._runtimes.values():
            runtime.close()
        self._alarm.close()

    # --- Requests ---

    def init_producer_id(self, call: InitCall) -> Later[InitAnswer]:
        """T-10 from the timeout on, T-11 to T-16."""
        later: Later[InitAnswer] = Later()
        if not call.enable_two_phase_commit and not (
            0 < call.timeout_ms <= self._settings.transaction_max_timeout_ms
        ):
            later.resolve(InitAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return later
        return self._ask(
            call.transactional_id,
            later,
            lambda shard, moment: shard.init(call, later, moment),
            InitAnswer,
        )

    def add_partitions(self, call: AddCall) -> Later[ErrorCode]:
        """T-20: all of them or none."""
        later: Later[ErrorCode] = Later()
        codes: Later[PartitionCodes] = Later()
        codes.then(lambda held: later.resolve(next(iter(held.values()), ErrorCode.NONE)))
        self._add(call, codes, PARK_CLIENT_MS)
        return later

    def _add(self, call: AddCall, later: Later[PartitionCodes], park_ms: int) -> None:
        self._ask(
            call.transactional_id,
            later,
            lambda shard, moment: shard.add(call, later, moment, moment.now_ms + park_ms),
            lambda error: dict.fromkeys(call.partitions, error),
        )

    def end(self, call: EndCall) -> Later[EndAnswer]:
        """T-30 to T-32, T-63 to T-67."""
        later: Later[EndAnswer] = Later()
        return self._ask(
            call.transactional_id,
            later,
            lambda shard, moment: shard.end(call, later, moment),
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
    ) -> Later[Mapping[TopicPartition, ErrorCode]]:
        """T-61, T-62: see `interfaces.TransactionVerifier`. Adding waits for the markers of the
        producer's last transaction for a while, rather than answering 51 at once (T-68)."""
        call = AddCall(
            transactional_id, producer_id, producer_epoch, frozenset(partitions), VERSION_2
        )
        later: Later[PartitionCodes] = Later()
        if add:
            self._add(call, later, PARK_MS)
            return later
        return self._ask(
            transactional_id,
            later,
            lambda shard, moment: shard.verify(call, later, moment),
            lambda error: dict.fromkeys(call.partitions, error),
        )

    def describe(self, transactional_id: str) -> Later[tuple[ErrorCode, Transaction | None]]:
        """What is known of an id; TRANSACTIONAL_ID_NOT_FOUND if nothing is."""
        later: Later[tuple[ErrorCode, Transaction | None]] = Later()

        def decide(shard: TransactionShard, moment: Moment) -> Outcome:
            held = shard.transactions.get(transactional_id)
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if held is None else ErrorCode.NONE
            return Outcome(replies=[Reply(later, (error, held), lambda error: (error, None))])

        return self._ask(transactional_id, later, decide, lambda error: (error, None))

    def list_all(self) -> Later[tuple[ErrorCode, list[Transaction]]]:
        """Every id that is coordinated here, or why they cannot be told."""
        later: Later[tuple[ErrorCode, list[Transaction]]] = Later()
        runtimes = list(self._runtimes.values())
        errors = [runtime.error for runtime in runtimes if runtime.error is not ErrorCode.NONE]
        if self._closed or self._loading or errors:
            later.resolve((errors[0] if errors else self._not_ready, []))
            return later
        waiting = len(runtimes)
        found: list[Transaction] = []
        failed = ErrorCode.NONE

        def gather(answer: tuple[ErrorCode, list[Transaction]]) -> None:
            nonlocal waiting, failed
            waiting -= 1
            failed = failed or answer[0]
            found.extend(answer[1])
            if waiting == 0:
                later.resolve((failed, [] if failed else found))

        for runtime in runtimes:
            part: Later[tuple[ErrorCode, list[Transaction]]] = Later()
            part.then(gather)
            held = list(runtime.core.transactions.values())
            reply = Reply(part, (ErrorCode.NONE, held), lambda error: (error, []))
            runtime.run(lambda _, reply=reply: Outcome(replies=[reply]))  # type: ignore[misc]
        if not runtimes:
            later.resolve((ErrorCode.NONE, []))
        return later

    # --- For metrics and tools ---

    def transactions(self) -> Iterator[Transaction]:
        """All ids that are loaded, as they are at this moment."""
        for runtime in self._runtimes.values():
            yield from runtime.core.transactions.values()

    def transaction(self, transactional_id: str) -> Transaction | None:
        """One id, to look at; None if it is not here."""
        runtime, _, _ = self._find(transactional_id)
        return None if runtime is None else runtime.core.transactions.get(transactional_id)

    # --- Inside ---

    @property
    def _not_ready(self) -> ErrorCode:
        if self._closed:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _ask(
        self,
        transactional_id: str,
        later: Later[A],
        decide: Callable[[TransactionShard, Moment], Outcome],
        refuse: Callable[[ErrorCode], A],
    ) -> Later[A]:
        runtime, index, error = self._find(transactional_id)
        if runtime is None or error is not ErrorCode.NONE:
            later.resolve(refuse(error))
            return later
        runtime.run(lambda moment: decide(runtime.core, moment))
        self._drain(index, runtime)
        self._alarm.bring_forward(runtime.next_deadline_ms())
        return later

    def _find(
        self, transactional_id: str
    ) -> tuple[Runtime[TransactionShard] | None, int, ErrorCode]:
        """The runtime of an id, its partition, and why it cannot be asked, if so (T-58, D8)."""
        if self._closed or self._loading:
            return None, -1, self._not_ready
        count = self._env.metadata.partition_count(TRANSACTIONS_TOPIC)
        if count == 0:
            return None, -1, ErrorCode.COORDINATOR_NOT_AVAILABLE
        index = place(transactional_id, count)
        runtime = self._runtimes.get(index)
        if runtime is None:
            partition = self._env.internal_partition(TRANSACTIONS_TOPIC, index)
            if partition is None:
                return None, index, ErrorCode.NOT_COORDINATOR
            # The topic was made while we were running.
            runtime = self._runtimes[index] = self._new_runtime(index, partition)
            while runtime.state is RuntimeState.LOADING:
                self._load_slice(index, runtime)
        if self._is_stale(index, runtime):
            return runtime, index, ErrorCode.NOT_COORDINATOR
        return runtime, index, runtime.error

    def _is_stale(self, index: int, runtime: Runtime[TransactionShard]) -> bool:
        """Has another start taken the partition over? (T-57)"""
        epoch = self._env.metadata.leader_epoch_of(TRANSACTIONS_TOPIC, index)
        return epoch != runtime.core.coordinator_epoch

    def _new_runtime(self, index: int, partition: InternalPartition) -> Runtime[TransactionShard]:
        epoch = self._env.metadata.leader_epoch_of(TRANSACTIONS_TOPIC, index)
        shard = TransactionShard(
            self._settings,
            epoch,
            self._exists,
            self._observe,
            self._env.faults,
            self._has_room,
        )

        def settled() -> None:
            self._drain(index, runtime)
            self._alarm.bring_forward(runtime.next_deadline_ms())

        runtime: Runtime[TransactionShard] = Runtime(
            shard, partition, self._moment, on_settled=settled
        )
        return runtime

    def _has_room(self) -> bool:
        """May there be another id? (D11)"""
        most = self._settings.max_transactional_ids
        held = sum(len(runtime.core.transactions) for runtime in self._runtimes.values())
        if held >= most and not self._is_full:
            log.warning(
                "new transactional ids are refused: as many are known as may be; raise"
                " max.transactional.ids, or lower transactional.id.expiration.ms",
                max_transactional_ids=most,
            )
        self._is_full = held >= most
        return not self._is_full

    def _exists(self, part: TopicPartition) -> bool:
        return self._env.metadata.leader_of(*part) is not None

    def _load_slice(self, index: int, runtime: Runtime[TransactionShard]) -> None:
        try:
            runtime.load()
        except (WireError, StorageError) as error:
            # Half a state would give out identities twice; none makes the clients wait.
            log.error(
                "transactions cannot be loaded: a record cannot be read",
                topic=TRANSACTIONS_TOPIC,
                partition=index,
                error=str(error),
            )
        self._drain(index, runtime)

    def _moment(self) -> Moment:
        clock = self._env.clock
        return Moment(clock.monotonic_ms(), clock.wall_ms())

    def _observe(self, event: Event) -> None:
        tell(event, self.history, self._producers)
        before, after = event.before, event.after
        log.debug(
            "transaction",
            transactional_id=event.transactional_id,
            what=event.what.value,
            before=before.state.label if before else None,
            after=after.state.label if after else None,
            error=event.error.name,
        )

    # --- What shards ask for ---

    def _drain(self, index: int, runtime: Runtime[TransactionShard]) -> None:
        """Do what the shard wants done, until it wants nothing more.

        Answers that are there at once come back in here; the outer call does their work too, so
        that nothing nests deeper and deeper.
        """
        if index in self._draining:
            return
        self._draining.add(index)
        try:
            while runtime.core.outbox and runtime.state is RuntimeState.ACTIVE:
                self._do(index, runtime, runtime.core.outbox.popleft())
        finally:
            self._draining.discard(index)

    def _do(self, index: int, runtime: Runtime[TransactionShard], effect: Effect) -> None:
        if isinstance(effect, TakeProducerId):
            self._env.next_producer_id().then(
                lambda given: self._producer_id_given(index, runtime, effect, given)
            )
        elif isinstance(effect, SendMarkers):
            self._markers_waiting.append((runtime, effect))
            self._send_waiting()
        else:
            runtime.run(effect.decide)

    def _producer_id_given(
        self,
        index: int,
        runtime: Runtime[TransactionShard],
        effect: TakeProducerId,
        given: int | None,
    ) -> None:
        if runtime.state is not RuntimeState.ACTIVE:
            effect.refuse(runtime.error)
            return
        runtime.run(lambda moment: effect.decide(given, moment))
        self._drain(index, runtime)
        self._alarm.bring_forward(runtime.next_deadline_ms())

    def _send_waiting(self) -> None:
        while self._markers_waiting and self._markers_in_flight < MARKERS_IN_FLIGHT_MAX:
            runtime, sent = self._markers_waiting.popleft()
            if runtime.state is RuntimeState.ACTIVE:
                self._send(runtime, sent)

    def _send(self, runtime: Runtime[TransactionShard], sent: SendMarkers) -> None:
        self._markers_in_flight += 1

        def answered(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            self._markers_in_flight -= 1
            self._markers_answered(runtime, sent, codes)
            self._send_waiting()

        self._env.write_markers([sent.request]).then(answered)

    def _markers_answered(
        self,
        runtime: Runtime[TransactionShard],
        sent: SendMarkers,
        codes: Mapping[TopicPartition, ErrorCode],
    ) -> None:
        for part, code in codes.items():
            if code is not ErrorCode.NONE and not code.retriable:
                log.error(
                    "a transaction marker was refused",
                    transactional_id=sent.transactional_id,
                    topic=part[0],
                    partition=part[1],
                    error=code.name,
                )
        if runtime.state is not RuntimeState.ACTIVE:
            return
        runtime.run(lambda moment: runtime.core.markers_answered(sent, codes, moment))
        index = place(sent.transactional_id, self._env.metadata.partition_count(TRANSACTIONS_TOPIC))
        self._drain(index, runtime)
        self._alarm.bring_forward(runtime.next_deadline_ms())
