"""Requests about share groups that also need the share coordinator, because it has the states of
share partitions (rules H-20 to H-28).

Each change has three steps: a record of the group which says that the change has begun, the call of
the share coordinator, and a record of the result. A step begins when the previous step is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import Protocol

import structlog

from odradek_broker.coordinator.groups.modern.groups import HeartbeatCall
from odradek_broker.coordinator.groups.partitions import Partitions, partitions_of
from odradek_broker.coordinator.groups.refusals import Refusal
from odradek_broker.coordinator.groups.settings import CoordinatorMetadata
from odradek_broker.coordinator.groups.shard import GroupShard
from odradek_broker.coordinator.groups.share.groups import (
    ShareGroups,
    StatesDecision,
    share_not_described,
)
from odradek_broker.coordinator.groups.share.heartbeat import share_heartbeat_error
from odradek_broker.coordinator.groups.share.states import Initialization
from odradek_broker.coordinator.runtime import (
    CoreOutcome,
    Instant,
    Record,
    Reply,
    Runtime,
    RuntimeState,
)
from odradek_broker.coordinator.shards import Shards
from odradek_broker.deferred import Deferred, gather
from odradek_broker.share_state import ShareKey, StateResult
from odradek_broker.slices import Slices, in_order, in_pieces, paced, pause_in_change
from odradek_protocol.constants import NO_DELIVERY_COUNT, NO_OFFSET
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.schemas.share_group_describe import DescribedShareGroup
from odradek_protocol.schemas.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

log = structlog.get_logger("odradek.groups")

_E = ErrorCode

Partition = tuple[bytes, int]
"""Topic id and index."""

Results = Mapping[Partition, StateResult]


#: The most states that are read at once.
_READ_AT_ONCE = 50


class ShareStateRequests(Protocol):
    """The requests to the share coordinator."""

    def initialize_all(
        self, state_epoch: int, offsets: Mapping[ShareKey, int]
    ) -> Deferred[Mapping[ShareKey, StateResult]]: ...

    def read_summaries(
        self, keys: Iterable[ShareKey]
    ) -> Deferred[Mapping[ShareKey, StateResult]]: ...

    def delete_all(self, keys: Iterable[ShareKey]) -> Deferred[Mapping[ShareKey, StateResult]]: ...


class DescribedOffset(NamedTuple):
    """The start offset of a share partition, and `lag`, the number of records that are not
    delivered yet; -1 for an unknown value."""

    start_offset: int = NO_OFFSET
    leader_epoch: int = 0
    lag: int = -1
    error: ErrorCode = _E.NONE


@dataclass(frozen=True, slots=True)
class AlteredOffsets:
    """The answer to a change of start offsets: `error` for the whole request, or the results of
    the partitions that exist."""

    error: ErrorCode = _E.NONE
    message: str | None = None
    results: Results = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeletedStates:
    """The answer to a deletion of start offsets: `error` for the whole request, or a code for each
    topic name. `codes` is empty if the group never had a state."""

    error: ErrorCode = _E.NONE
    message: str | None = None
    codes: Mapping[str, ErrorCode] = field(default_factory=dict)


class ShareRequests:
    """The requests about share groups.

    `end_offset` takes a topic name and a partition index, and returns the offset at which the
    readable records of the partition end, or an error if this offset is not available.
    """

    def __init__(
        self,
        shards: Shards[GroupShard],
        topics: CoordinatorMetadata,
        states: ShareStateRequests,
        end_offset: Callable[[str, int], int | ErrorCode],
        slices: Slices,
    ) -> None:
        self._slices = slices
        self._shards = shards
        self._topics = topics
        self._states = states
        self._end_offset = end_offset

    # --- Members ---

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> Deferred[ShareGroupHeartbeatResponse]:
        return self._shards.ask(
            request.group_id,
            lambda shard, deferred, now: shard.share.heartbeat(
                HeartbeatCall(request, deferred, client_id, client_host), now
            ),
            share_heartbeat_error,
        )

    def carry_out(self, runtime: Runtime[GroupShard]) -> None:
        """Ask the share coordinator for the initial states of the share partitions that heartbeats
        have recorded as initializing (H-21)."""
        wanted = runtime.core.share.initializations
        while wanted:
            self._initialize(wanted.pop(0))

    def _initialize(self, wanted: Initialization) -> None:
        def initialized(results: Results) -> None:
            error = _first_error(results)
            if error is not _E.NONE:
                log.warning(
                    "the states of share partitions cannot be initialized; the next heartbeat tries again",
                    group=wanted.group_id,
                    error=error.name,
                )
            made = results if error is _E.NONE else {}
            self._note_initialized(wanted, made, results)

        self._make_states(wanted).then(initialized)

    def _make_states(self, wanted: Initialization) -> Deferred[Results]:
        async def make() -> Results:
            await pause_in_change()
            offsets = {
                ShareKey(wanted.group_id, *partition): start
                async for some in in_pieces(wanted.offsets.items())
                for partition, start in some
            }
            return await _by_partition(
                await self._states.initialize_all(wanted.state_epoch, offsets)
            )

        return self._slices.deferred(make())

    def _note_initialized(
        self, asked: Initialization, made: Collection[Partition], answered: Collection[Partition]
    ) -> Deferred[ErrorCode]:
        """Record which of the requested states exist now (H-23)."""
        failed = [partition for partition in answered if partition not in made]
        return self._note(
            asked.group_id,
            lambda shard, now: shard.share.initialized(
                asked, _by_topic(made), _by_topic(failed), now
            ),
        )

    # --- Administration ---

    def describe(self, group_id: str) -> Deferred[DescribedShareGroup]:
        """The share group with its members (H-05)."""
        return self._shards.read(
            group_id,
            lambda shard: shard.share.describe(group_id),
            lambda error: share_not_described(group_id, error),
        )

    def initialized_partitions(self, group_id: str) -> Deferred[tuple[ErrorCode, Partitions]]:
        """The share partitions of a group that have a state (H-24)."""
        return self._shards.read(
            group_id,
            lambda shard: (_E.NONE, shard.share.initialized_partitions(group_id)),
            lambda error: (error, {}),
        )

    async def describe_offsets(
        self, group_id: str, partitions: Iterable[Partition]
    ) -> dict[Partition, DescribedOffset]:
        """The start offsets of share partitions, whether the group exists or not (H-24)."""
        described: dict[Partition, DescribedOffset] = {}
        async for batch in paced(in_order(list(partitions), _READ_AT_ONCE)):
            results = await self._states.read_summaries(await _keys(group_id, batch))
            for partition, result in (await _by_partition(results)).items():
                described[partition] = self._described(partition, result)
        return described

    def _described(self, partition: Partition, result: StateResult) -> DescribedOffset:
        state = result.state
        if result.error is not _E.NONE or state is None:
            return DescribedOffset()
        known = state.start_offset != NO_OFFSET
        if not known or state.delivery_complete_count == NO_DELIVERY_COUNT:
            return DescribedOffset(state.start_offset, state.leader_epoch)
        topic_id, index = partition
        end = self._end_offset(self._topics.topic_name(topic_id) or "", index)
        if isinstance(end, ErrorCode):
            return DescribedOffset(0, error=end)
        lag = end - state.start_offset - state.delivery_complete_count
        return DescribedOffset(state.start_offset, state.leader_epoch, lag)

    def alter_offsets(
        self, group_id: str, offsets: Mapping[str, Mapping[int, int]]
    ) -> Deferred[AlteredOffsets]:
        """Initialize states again at these start offsets: name of an existing topic -> index ->
        offset (H-25)."""

        def decided(decision: StatesDecision | Refusal) -> Deferred[AlteredOffsets]:
            if isinstance(decision, Refusal):
                return Deferred.of(AlteredOffsets(decision.error, decision.message or None))
            wanted = Initialization(
                group_id, decision.asked_at, decision.state_epoch, decision.partitions
            )
            return self._make_states(wanted).bind(lambda results: noted(wanted, results))

        def noted(wanted: Initialization, results: Results) -> Deferred[AlteredOffsets]:
            altered = AlteredOffsets(results=results)
            if not results:
                return Deferred.of(altered)
            made = {partition for partition, result in results.items() if not result.error}
            note = self._note_initialized(wanted, made, results)
            return note.map(lambda error: AlteredOffsets(error) if error else altered)

        return self._decide(group_id, lambda share: share.alteration(group_id, offsets)).bind(
            decided
        )

    def delete_offsets(self, group_id: str, names: Iterable[str]) -> Deferred[DeletedStates]:
        """Delete the states of topics (H-26)."""

        def decided(decision: StatesDecision | Refusal) -> Deferred[DeletedStates]:
            if isinstance(decision, Refusal):
                return Deferred.of(DeletedStates(decision.error, decision.message or None))
            return self._delete_states(group_id, decision).bind(
                lambda results: noted(decision, results)
            )

        def noted(decision: StatesDecision, results: Results) -> Deferred[DeletedStates]:
            errors = dict.fromkeys(decision.topics.values(), _E.NONE)
            for (topic_id, _), result in results.items():
                if result.error is not _E.NONE:
                    errors[decision.topics[topic_id]] = result.error
            gone = [each for each, name in decision.topics.items() if not errors[name]]
            answer = DeletedStates(codes={**errors, **decision.codes})
            note = self._note(
                group_id, lambda shard, now: shard.share.deleted(group_id, decision, gone, now)
            )
            return note.map(lambda error: DeletedStates(error) if error else answer)

        wanted = list(names)
        return self._decide(group_id, lambda share: share.offset_deletion(group_id, wanted)).bind(
            decided
        )

    def delete_all_states(self, group_id: str) -> Deferred[StatesDecision | ErrorCode]:
        """Delete all states of a group without members, before the group itself is deleted (H-28);
        nothing is done for a group of another type. Resolves with the decision, or with the error
        that forbids the deletion of the group."""

        def make(share: ShareGroups) -> StatesDecision:
            if share.has_members(group_id):
                # The deletion of the group also checks for members, but if they left before that
                # check, the group would be deleted and its states would stay.
                raise Refusal(_E.NON_EMPTY_GROUP, "")
            return share.deletion_of_states(group_id)

        def decided(decision: StatesDecision | Refusal) -> Deferred[StatesDecision | ErrorCode]:
            if isinstance(decision, Refusal):
                return Deferred.of(decision.error)
            return self._delete_states(group_id, decision).map(
                lambda results: _first_error(results) or decision
            )

        return self._decide(group_id, make).bind(decided)

    async def forget_missing_topics(self) -> Deferred[ErrorCode]:
        """Remove topics from the records of share groups if they do not exist any more (H-27).
        The result resolves when the new records are durable, or with an error of the disk."""
        written = []
        async for runtime in paced(self._shards, changing=True):
            async for group_id in paced(runtime.core.share.with_states(), changing=True):
                if runtime.state is RuntimeState.ACTIVE:
                    written.append(self._forget_missing_topics(runtime, group_id))
        return gather(written).map(lambda errors: next(filter(None, errors), _E.NONE))

    def _forget_missing_topics(
        self, runtime: Runtime[GroupShard], group_id: str
    ) -> Deferred[ErrorCode]:
        def decide(shard: GroupShard, deferred: Deferred[ErrorCode], _: Instant) -> CoreOutcome:
            records = shard.share.without_missing_topics(group_id)
            return CoreOutcome(records=records, replies=[Reply(deferred, _E.NONE, _identity)])

        return self._shards.ask_core(runtime, decide, _identity)

    # --- Steps ---

    def _decide(
        self, group_id: str, make: Callable[[ShareGroups], StatesDecision]
    ) -> Deferred[StatesDecision | Refusal]:
        """Decide about states, and write the records of the decision. Resolves with the decision
        when they are durable, or with the refusal."""

        def decide(
            shard: GroupShard, deferred: Deferred[StatesDecision | Refusal], _: Instant
        ) -> CoreOutcome:
            try:
                decision = make(shard.share)
            except Refusal as refusal:
                return CoreOutcome(replies=[Reply(deferred, refusal, _refusal)])
            return CoreOutcome(
                records=decision.records, replies=[Reply(deferred, decision, _refusal)]
            )

        return self._shards.ask(group_id, decide, _refusal)

    def _delete_states(self, group_id: str, decision: StatesDecision) -> Deferred[Results]:
        async def delete() -> Results:
            await pause_in_change()
            keys = await _keys(group_id, decision.partitions)
            return await _by_partition(await self._states.delete_all(keys))

        return self._slices.deferred(delete())

    def _note(
        self, group_id: str, make: Callable[[GroupShard, Instant], list[Record]]
    ) -> Deferred[ErrorCode]:
        """Write the records that `make` returns for the shard; resolves when they are durable."""

        def decide(shard: GroupShard, deferred: Deferred[ErrorCode], now: Instant) -> CoreOutcome:
            reply = Reply(deferred, _E.NONE, _identity)
            return CoreOutcome(records=make(shard, now), replies=[reply])

        return self._shards.ask(group_id, decide, _identity)


def _identity(error: ErrorCode) -> ErrorCode:
    return error


def _refusal(error: ErrorCode) -> Refusal:
    return Refusal(error, "")


async def _keys(group_id: str, partitions: Iterable[Partition]) -> list[ShareKey]:
    return [
        ShareKey(group_id, *partition) async for some in in_pieces(partitions) for partition in some
    ]


async def _by_partition(results: Mapping[ShareKey, StateResult]) -> Results:
    return {
        (key.topic_id, key.partition): result
        async for some in in_pieces(results.items())
        for key, result in some
    }


def _first_error(results: Results) -> ErrorCode:
    return next((each.error for each in results.values() if each.error), _E.NONE)


def _by_topic(partitions: Iterable[Partition]) -> Partitions:
    indexes: dict[bytes, list[int]] = {}
    for topic_id, index in partitions:
        indexes.setdefault(topic_id, []).append(index)
    return partitions_of(indexes.items())
