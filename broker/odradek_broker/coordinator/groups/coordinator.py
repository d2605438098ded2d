"""The group coordinator of this broker: which shard has a group, and is it ready?

Groups are spread over the partitions of `__consumer_offsets` (G-06); this broker coordinates those
whose partition it leads. Each partition has a `GroupShard` that decides and a `Runtime` that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from odradek_broker.coordinator.alarm import Alarm, Timer
from odradek_broker.coordinator.groups.administration import (
    DeletedOffsets,
    GroupSummary,
    in_batches,
    not_described,
)
from odradek_broker.coordinator.groups.answers import join_error, sync_error
from odradek_broker.coordinator.groups.classic import CLIENT_ID_MAX_CHARS, JoinCall
from odradek_broker.coordinator.groups.consumer.describe import consumer_not_described
from odradek_broker.coordinator.groups.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from odradek_broker.coordinator.groups.consumer.heartbeat import HeartbeatCall, heartbeat_error
from odradek_broker.coordinator.groups.consumer.settings import Topics
from odradek_broker.coordinator.groups.consumer.states import ConsumerGroupState
from odradek_broker.coordinator.groups.group import ClassicGroup, Observer
from odradek_broker.coordinator.groups.offsets import (
    NOT_A_MEMBER,
    CommitCall,
    FetchedOffsets,
    FetchingMember,
    Place,
)
from odradek_broker.coordinator.groups.rebalance import GroupSettings
from odradek_broker.coordinator.groups.shard import GroupShard
from odradek_broker.coordinator.groups.states import GroupState
from odradek_broker.coordinator.placement import place
from odradek_broker.coordinator.runtime import (
    Moment,
    Outcome,
    ProducerIdentity,
    Record,
    Reply,
    RuntimeState,
)
from odradek_broker.coordinator.transactional_runtime import (
    TransactionalPartition,
    TransactionalRuntime,
)
from odradek_broker.history import History
from odradek_broker.later import Later, gather
from odradek_broker.seams import Clock, Randomness
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import WireError
from odradek_protocol.schemas.consumer_group_describe import DescribedConsumerGroup
from odradek_protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek_protocol.schemas.describe_groups import DescribedGroup
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse

log = structlog.get_logger("odradek.groups")

OFFSETS_TOPIC = "__consumer_offsets"
#: Longer ones are invalid: in UTF-8 they must fit into the keys of records, whose strings have 16
#: bits for their length.
GROUP_ID_MAX_CHARS = 8_000

A = TypeVar("A")


class Metadata(Topics, Protocol):
    """What is asked of the cluster metadata."""

    def leader_of(self, name: str, partition: int) -> int | None: ...


class CoordinatorEnv(Protocol):
    """What a coordinator asks of the node that it runs in."""

    @property
    def clock(self) -> Clock: ...
    @property
    def random(self) -> Randomness: ...
    @property
    def metadata(self) -> Metadata: ...

    def internal_partition(self, topic: str, index: int, /) -> TransactionalPartition | None:
        """The partition, if it exists and this broker leads it."""
        ...

    def call_at(self, monotonic_ms: float, callback: Callable[[], None], /) -> Timer: ...


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group, for metrics and tools. `generation`: a consumer group's epoch."""

    group_id: str
    state: GroupState | ConsumerGroupState
    protocol_type: str
    generation: int
    members: int
    offsets: int


class GroupCoordinator:
    """Every call gives a `Later`; it holds an error at once where the shard cannot be asked.

    `observer` is told of every step of every group, by default the log.
    """

    def __init__(
        self, env: CoordinatorEnv, config: GroupSettings, observer: Observer | None = None
    ) -> None:
        self._env = env
        self._config = config
        self._observer = observer or _log_transition
        #: The last things that happened to each group; see `odradek_broker.history`.
        self.history = History(env.clock.wall_ms)
        self._runtimes: dict[int, TransactionalRuntime[GroupShard]] = {}
        self._closed = False
        self._alarm = Alarm(env, self.advance)

    # --- Start, time, end ---

    def load(self) -> None:
        """Replay every partition of `__consumer_offsets` that this broker leads."""
        self.begin_load()
        while not self.load_some():
            pass

    def begin_load(self) -> None:
        """From now on requests are answered with 14 until `load_some` has said True."""
        for index in range(self._env.metadata.partition_count(OFFSETS_TOPIC)):
            partition = self._env.internal_partition(OFFSETS_TOPIC, index)
            if partition is not None and index not in self._runtimes:
                self._runtimes[index] = self._new_runtime(partition)

    def load_some(self) -> bool:
        """Replay a slice; True when all is loaded. For a shell that has other things to do."""
        for index, runtime in self._runtimes.items():
            if runtime.state is RuntimeState.LOADING:
                self._load_slice(index, runtime)
                return False
        # A crash may have come between the removal of a topic and that of its offsets (O-15).
        exists = self._env.metadata.partition_count
        self._drop_offsets(lambda topic: not exists(topic), "the topic does not exist")
        self._alarm.set(self.next_deadline_ms())
        return True

    def advance(self, now_ms: int) -> None:
        """Act on every deadline up to this moment of the monotonic clock."""
        moment = Moment(now_ms, self._env.clock.wall_ms())
        for runtime in list(self._runtimes.values()):
            runtime.advance(moment)
        self._alarm.set(self.next_deadline_ms())

    def next_deadline_ms(self) -> int | None:
        """When `advance` has something to do; None for never."""
        deadlines = (runtime.next_deadline_ms() for runtime in self._runtimes.values())
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def close(self) -> None:
        """Answer all that is parked: whoever waits must look for another coordinator (N-15)."""
        self._closed = True
        for runtime in self._runtimes.values():
            runtime.close()
        self._alarm.close()

    def topic_deleted(self, name: str) -> Later[None]:
        """O-15: nobody has a position in a topic that is gone. Called when its removal is durable,
        for until then a crash may bring it back; resolves when the positions are gone for good."""
        return self._drop_offsets(lambda topic: topic == name, "the topic was deleted")

    def _drop_offsets(self, chosen: Callable[[str], bool], why: str) -> Later[None]:
        """Delete what is committed for topics of such names, as far as the disk allows."""
        written: list[Later[ErrorCode]] = []
        for runtime in list(self._runtimes.values()):
            places = runtime.core.offsets.places_of_topics(chosen)
            if not places:
                continue
            runtime.core.tell_deleted(places, why)
            later: Later[ErrorCode] = Later()
            written.append(later)
            self._write(
                runtime,
                runtime.core.tombstones(places),
                later,
                ErrorCode.NONE,
                lambda error: error,
            )
        done: Later[None] = Later()
        gather(written).then(lambda _: done.resolve(None))
        return done

    # --- Requests ---

    def join(
        self, request: JoinGroupRequest, api_version: int, client_id: str, client_host: str
    ) -> Later[JoinGroupResponse]:
        later: Later[JoinGroupResponse] = Later()
        call = JoinCall(request, later, api_version, client_id[:CLIENT_ID_MAX_CHARS], client_host)
        return self._ask(
            request.group_id,
            later,
            lambda shard, moment: shard.join(call, moment),
            lambda error: join_error(error, request.member_id),
        )

    def sync(self, request: SyncGroupRequest) -> Later[SyncGroupResponse]:
        later: Later[SyncGroupResponse] = Later()
        return self._ask(
            request.group_id,
            later,
            lambda shard, moment: shard.sync(request, later, moment),
            sync_error,
        )

    def heartbeat(self, request: HeartbeatRequest) -> Later[HeartbeatResponse]:
        later: Later[HeartbeatResponse] = Later()
        return self._ask(
            request.group_id,
            later,
            lambda shard, moment: shard.heartbeat(request, later, moment),
            lambda error: HeartbeatResponse(error_code=error),
        )

    def leave(self, request: LeaveGroupRequest, api_version: int) -> Later[LeaveGroupResponse]:
        later: Later[LeaveGroupResponse] = Later()
        return self._ask(
            request.group_id,
            later,
            lambda shard, moment: shard.leave(request, api_version, later, moment),
            lambda error: LeaveGroupResponse(error_code=error),
        )

    def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        api_version: int,
        client_id: str,
        client_host: str,
    ) -> Later[ConsumerGroupHeartbeatResponse]:
        later: Later[ConsumerGroupHeartbeatResponse] = Later()
        client_id = client_id[:CLIENT_ID_MAX_CHARS]
        call = HeartbeatCall(request, later, api_version, client_id, client_host)
        return self._ask(
            request.group_id,
            later,
            lambda shard, moment: shard.consumer_heartbeat(call, moment),
            heartbeat_error,
        )

    def commit_offsets(self, call: CommitCall) -> Later[list[ErrorCode]]:
        """One code for each part of the call, in its order."""
        later: Later[list[ErrorCode]] = Later()
        return self._ask(
            call.group_id,
            later,
            lambda shard, moment: shard.commit(call, later, moment),
            lambda error: [error] * len(call.parts),
        )

    def commit_in_transaction(
        self, call: CommitCall, producer_id: int, producer_epoch: int
    ) -> Later[list[ErrorCode]]:
        """As `commit_offsets`; the offsets count once the producer's transaction does (O-17)."""
        later: Later[list[ErrorCode]] = Later()
        producer = ProducerIdentity(producer_id, producer_epoch)
        return self._ask(
            call.group_id,
            later,
            lambda shard, moment: shard.commit(call, later, moment, producer),
            lambda error: [error] * len(call.parts),
        )

    def offsets_partition(self, group_id: str) -> int | None:
        """Which partition of `__consumer_offsets` has the group; None before there is any."""
        count = self._env.metadata.partition_count(OFFSETS_TOPIC)
        return place(group_id, count) if count else None

    def marker_written(
        self, index: int, producer_id: int, commit: bool, written: Later[ErrorCode]
    ) -> None:
        """A marker was appended to that partition of `__consumer_offsets` (O-17).

        `written` resolves when it is durable: until then nothing that it decided is told.
        """
        runtime = self._runtimes.get(index)
        if runtime is not None:
            runtime.marker_written(producer_id, commit, written)

    def fetch_offsets(
        self,
        group_id: str,
        places: list[Place] | None,
        require_stable: bool,
        member: FetchingMember = NOT_A_MEMBER,
    ) -> Later[FetchedOffsets]:
        """`places` None: everything that the group has committed (O-08).

        A member of a consumer group says who it is, and is refused if it is no more (O-21).
        """
        later: Later[FetchedOffsets] = Later()
        return self._ask(
            group_id,
            later,
            lambda shard, _: shard.fetch(group_id, places, require_stable, later, member),
            lambda error: FetchedOffsets(error, []),
        )

    # --- Administration (O-14) ---

    def list_groups(self) -> Later[tuple[ErrorCode, list[GroupSummary]]]:
        """Every group that is coordinated here, or why they cannot be told."""
        later: Later[tuple[ErrorCode, list[GroupSummary]]] = Later()
        runtimes = list(self._runtimes.values())
        errors = [runtime.error for runtime in runtimes if runtime.error is not ErrorCode.NONE]
        if self._closed or errors or not runtimes:
            none_yet = ErrorCode.COORDINATOR_NOT_AVAILABLE if self._closed else ErrorCode.NONE
            later.resolve((errors[0] if errors else none_yet, []))
            return later
        waiting = len(runtimes)
        found: list[GroupSummary] = []
        failed = ErrorCode.NONE

        def gather(answer: tuple[ErrorCode, list[GroupSummary]]) -> None:
            nonlocal waiting, failed
            waiting -= 1
            failed = failed or answer[0]
            found.extend(answer[1])
            if waiting == 0:
                later.resolve((failed, [] if failed else found))

        for runtime in runtimes:
            part: Later[tuple[ErrorCode, list[GroupSummary]]] = Later()
            part.then(gather)
            reply = Reply(
                part, (ErrorCode.NONE, runtime.core.summaries()), lambda error: (error, [])
            )
            runtime.run(lambda _, reply=reply: Outcome(replies=[reply]))  # type: ignore[misc]
            self._alarm.bring_forward(runtime.next_deadline_ms())
        return later

    def describe_group(self, group_id: str) -> Later[DescribedGroup]:
        """The group with its members; GROUP_ID_NOT_FOUND with a message if there is none."""

        def refused(error: ErrorCode) -> DescribedGroup:
            return not_described(group_id, error)

        later: Later[DescribedGroup] = Later()
        return self._ask(
            group_id,
            later,
            lambda shard, _: Outcome(replies=[Reply(later, shard.describe(group_id), refused)]),
            refused,
        )

    def describe_consumer_group(self, group_id: str) -> Later[DescribedConsumerGroup]:
        """The consumer group with its members; GROUP_ID_NOT_FOUND with a message if it is none."""

        def refused(error: ErrorCode) -> DescribedConsumerGroup:
            return consumer_not_described(group_id, error)

        later: Later[DescribedConsumerGroup] = Later()
        return self._ask(
            group_id,
            later,
            lambda shard, _: Outcome(
                replies=[Reply(later, shard.describe_consumer(group_id), refused)]
            ),
            refused,
        )

    def delete_group(self, group_id: str) -> Later[ErrorCode]:
        """Delete a group that has no members, and all its offsets."""
        later: Later[ErrorCode] = Later()
        runtime, error = self._find(group_id)
        records: list[Record] = []
        if runtime is not None and error is ErrorCode.NONE:
            error, records = runtime.core.deletion(group_id)
        if runtime is None or error is not ErrorCode.NONE:
            later.resolve(error)
        else:
            self._write(runtime, records, later, ErrorCode.NONE, lambda error: error)
        return later

    def delete_offsets(self, group_id: str, places: list[Place]) -> Later[DeletedOffsets]:
        """Delete what a group has committed for these places."""

        def refused(error: ErrorCode) -> DeletedOffsets:
            return DeletedOffsets(error, [])

        if not group_id:
            return Later.of(refused(ErrorCode.INVALID_GROUP_ID))
        later: Later[DeletedOffsets] = Later()
        runtime, error = self._find(group_id)
        if runtime is None or error is not ErrorCode.NONE:
            later.resolve(refused(error))
        else:
            answer, records = runtime.core.offset_deletion(group_id, places)
            self._write(runtime, records, later, answer, refused)
        return later

    # --- For metrics and tools ---

    def groups(self) -> Iterator[GroupListing]:
        """All groups that are loaded."""
        for runtime in self._runtimes.values():
            shard = runtime.core
            for group in shard.groups.values():
                yield GroupListing(
                    group.group_id,
                    group.state,
                    group.protocol_type,
                    group.generation,
                    len(group.members),
                    shard.offsets.count(group.group_id),
                )
            for consumer in shard.consumers.values():
                yield GroupListing(
                    consumer.group_id,
                    consumer.state,
                    PROTOCOL_TYPE,
                    consumer.epoch,
                    len(consumer.members),
                    shard.offsets.count(consumer.group_id),
                )

    def readiness(self, group_id: str) -> ErrorCode:
        """Why this group cannot be asked; NONE if it can (G-20)."""
        return self._find(group_id)[1]

    def group(self, group_id: str) -> ClassicGroup | None:
        """One group, to look at and not to change; None if it is not here."""
        runtime, _ = self._find(group_id)
        return None if runtime is None else runtime.core.groups.get(group_id)

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """As `group`, of the next-generation protocol."""
        runtime, _ = self._find(group_id)
        return None if runtime is None else runtime.core.consumers.get(group_id)

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """The committed offsets of a group by (topic, partition); none if it is not here."""
        runtime, _ = self._find(group_id)
        if runtime is None:
            return {}
        values = runtime.core.offsets.of_group(group_id)
        return {place: value.offset for place, value in values.items()}

    # --- Inside ---

    def _ask(
        self,
        group_id: str,
        later: Later[A],
        decide: Callable[[GroupShard, Moment], Outcome],
        refuse: Callable[[ErrorCode], A],
    ) -> Later[A]:
        runtime, error = self._find(group_id)
        if runtime is None or error is not ErrorCode.NONE:
            later.resolve(refuse(error))
            return later
        runtime.run(lambda moment: decide(runtime.core, moment))
        self._alarm.bring_forward(runtime.next_deadline_ms())
        return later

    def _write(
        self,
        runtime: TransactionalRuntime[GroupShard],
        records: list[Record],
        later: Later[A],
        answer: A,
        refused: Callable[[ErrorCode], A],
    ) -> None:
        """Write records in as many batches as they need, with nothing in between; `later` gets the
        answer when all of them are durable, or `refused` with the first error."""
        errors: list[ErrorCode] = []

        def settled(error: ErrorCode, _: Moment) -> Outcome:
            if error is not ErrorCode.NONE:
                errors.append(error)
            return Outcome()

        for batch in in_batches(records):
            if runtime.state is RuntimeState.ACTIVE:
                outcome = Outcome(records=batch, settled=settled)
                runtime.run(lambda _, outcome=outcome: outcome)  # type: ignore[misc]
        error = errors[0] if errors else runtime.error
        if error is not ErrorCode.NONE:
            later.resolve(refused(error))
        else:
            runtime.run(lambda _: Outcome(replies=[Reply(later, answer, refused)]))
        # However it went, an answer may be held by now, and not for ever.
        self._alarm.bring_forward(runtime.next_deadline_ms())

    def _find(self, group_id: str) -> tuple[TransactionalRuntime[GroupShard] | None, ErrorCode]:
        """The runtime of a group, and why it cannot be asked, if so (G-20, D8)."""
        if self._closed:
            return None, ErrorCode.NOT_COORDINATOR
        if len(group_id) > GROUP_ID_MAX_CHARS:
            return None, ErrorCode.INVALID_GROUP_ID
        count = self._env.metadata.partition_count(OFFSETS_TOPIC)
        if count == 0:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        index = place(group_id, count)
        runtime = self._runtimes.get(index)
        if runtime is None:
            partition = self._env.internal_partition(OFFSETS_TOPIC, index)
            if partition is None:
                return None, ErrorCode.NOT_COORDINATOR
            # The topic was made while we were running.
            runtime = self._runtimes[index] = self._new_runtime(partition)
            while runtime.state is RuntimeState.LOADING:
                self._load_slice(index, runtime)
        return runtime, runtime.error

    def _new_runtime(self, partition: TransactionalPartition) -> TransactionalRuntime[GroupShard]:
        shard = GroupShard(
            self._config, self._env.random, self._env.metadata, self.history, self._observer
        )
        runtime: TransactionalRuntime[GroupShard] = TransactionalRuntime(
            shard,
            partition,
            self._moment,
            on_settled=lambda: self._alarm.bring_forward(runtime.next_deadline_ms()),
        )
        return runtime

    def _load_slice(self, index: int, runtime: TransactionalRuntime[GroupShard]) -> None:
        try:
            runtime.load()
        except (WireError, StorageError) as error:
            # Half a state would hand out offsets that are wrong; none makes the clients wait.
            log.error(
                "groups cannot be loaded: a record cannot be read",
                topic=OFFSETS_TOPIC,
                partition=index,
                error=str(error),
            )

    def _moment(self) -> Moment:
        clock = self._env.clock
        return Moment(clock.monotonic_ms(), clock.wall_ms())


def _log_transition(group: ClassicGroup, before: GroupState, after: GroupState) -> None:
    log.debug(
        "group changed its state",
        group=group.group_id,
        before=before.value,
        after=after.value,
        generation=group.generation,
        members=len(group.members),
    )
