"""The group coordinator of this broker: finds the shard of a group.

Groups are spread over the partitions of `__consumer_offsets` (G-06); this broker coordinates the
groups of the partitions that it leads. Each partition has a `GroupShard`, which makes decisions,
and a `Runtime`, which writes their records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import structlog

from odradek_broker.coordinator.groups.administration import (
    DeletedOffsets,
    GroupSummary,
    consumer_not_described,
    not_described,
    summary,
)
from odradek_broker.coordinator.groups.classic.group import (
    CLIENT_ID_MAX_CHARS,
    ClassicGroup,
    GroupState,
    JoinCall,
    StateObserver,
)
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup
from odradek_broker.coordinator.groups.consumer.heartbeat import (
    heartbeat_error,
    invalid_expression,
)
from odradek_broker.coordinator.groups.consumer.pattern_subscriptions import (
    NO_MATCHES,
    Matches,
    match,
    unmatched,
)
from odradek_broker.coordinator.groups.deadlines import GroupTimer, GroupTimerName
from odradek_broker.coordinator.groups.events import Observer, OffsetDeletion, unobserved
from odradek_broker.coordinator.groups.modern.group import ModernGroupState
from odradek_broker.coordinator.groups.modern.groups import HeartbeatCall
from odradek_broker.coordinator.groups.offset_expiration import remove_offsets
from odradek_broker.coordinator.groups.offsets import (
    NOT_A_MEMBER,
    CommitCall,
    FetchedOffsets,
    FetchingMember,
    OffsetsView,
)
from odradek_broker.coordinator.groups.responses import join_error, sync_error
from odradek_broker.coordinator.groups.settings import (
    CoordinatorMetadata,
    GroupSettings,
    Visible,
    every_topic,
)
from odradek_broker.coordinator.groups.shard import GroupShard
from odradek_broker.coordinator.groups.share.group import ShareGroup
from odradek_broker.coordinator.groups.share.groups import StatesDecision
from odradek_broker.coordinator.groups.share.requests import ShareRequests, ShareStateRequests
from odradek_broker.coordinator.groups.streams.group import StreamsGroup
from odradek_broker.coordinator.groups.streams.groups import streams_not_described
from odradek_broker.coordinator.groups.streams.heartbeat import (
    StreamsAnswer,
    streams_heartbeat_error,
)
from odradek_broker.coordinator.runtime import (
    CoreOutcome,
    ProducerIdentity,
    Record,
    Reply,
    Runtime,
    RuntimeState,
    TransactionalPartition,
)
from odradek_broker.coordinator.shards import GROUP_ID_MAX_CHARS, Shards, partition_for
from odradek_broker.coordinator.sliced_runtime import SlicedTransactionalRuntime
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import OFFSETS_TOPIC
from odradek_broker.patterns import PatternError
from odradek_broker.platform.seams import Clock, Randomness, Scheduler
from odradek_broker.slices import Slices, in_pieces, paced, with_pauses
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.schemas.consumer_group_describe import DescribedConsumerGroup
from odradek_protocol.schemas.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek_protocol.schemas.describe_groups import DescribedGroup
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_protocol.schemas.streams_group_describe import DescribedStreamsGroup
from odradek_protocol.schemas.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek_protocol.stored.offset_commit import OffsetCommitValue

log = structlog.get_logger("odradek.groups")

#: The pause before the next attempt to delete the offsets of a deleted topic.
DELETE_AGAIN_MS = 5_000

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """An entry of the list of groups, for metrics. `generation`: the generation of a
    classic group, the group epoch of any other group."""

    group_id: str
    state: GroupState | ModernGroupState
    protocol_type: str
    generation: int
    members: int
    offsets: int


def _log_transition(group: ClassicGroup, before: GroupState, after: GroupState) -> None:
    log.debug(
        "group changed its state",
        group=group.group_id,
        before=before.value,
        after=after.value,
        generation=group.generation,
        members=len(group.members),
    )


class GroupCoordinator:
    """The group coordinator. Requests return a `Deferred`, which is resolved with an error
    immediately if the shard is not available.

    `observer` is called with every event of groups, `state_observer` with every transition of a
    classic group to another state. The default `state_observer` logs the transition.
    """

    def __init__(
        self,
        config: GroupSettings,
        *,
        metadata: CoordinatorMetadata,
        internal_partition: Callable[[str, int], TransactionalPartition | None],
        clock: Clock,
        scheduler: Scheduler,
        slices: Slices,
        randomness: Randomness,
        share_states: ShareStateRequests,
        end_offset: Callable[[str, int], int | ErrorCode],
        partition_for: Callable[[str, int], int] = partition_for,
        observer: Observer = unobserved,
        state_observer: StateObserver = _log_transition,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._scheduler = scheduler
        self._randomness = randomness
        #: The ids of deleted topics whose offsets may still be on disk.
        self._undeleted: set[bytes] = set()
        self._delete_scheduled = False
        self._observer = observer
        self._state_observer = state_observer
        self._slices = slices
        #: The groups whose regular expressions are being matched; resolved at the end.
        self._matching: dict[str, Deferred[None]] = {}
        self.shards: Shards[GroupShard] = Shards(
            OFFSETS_TOPIC,
            "groups",
            self._new_shard,
            metadata=metadata,
            internal_partition=internal_partition,
            clock=clock,
            scheduler=scheduler,
            runtime_class=partial(SlicedTransactionalRuntime, slices),
            carry_out=lambda runtime: self.share.carry_out(runtime),
            check_key=_check_group_id,
            on_loaded=self._drop_missing_topics,
            partition_for=partition_for,
        )
        #: The requests about share groups (KIP-932).
        self.share = ShareRequests(self.shards, metadata, share_states, end_offset, slices)

    def _new_shard(self, index: int) -> GroupShard:
        return GroupShard(
            self._config, self._randomness, self._metadata, self._observer, self._state_observer
        )

    # --- Deleted topics ---

    @property
    def deletions_pending(self) -> bool:
        """True while offsets of a deleted topic may still be on disk. A snapshot of the metadata
        must wait: the next start needs the records of the removals (O-24)."""
        return bool(self._undeleted)

    def note_removed(self, topic_ids: Iterable[bytes]) -> None:
        """Note the removed topics that a start has found in the metadata log; to be called before
        the load, which deletes what is left of them."""
        self._undeleted.update(topic_ids)

    def topic_deleted(self, topic_id: bytes) -> Deferred[None]:
        """Delete the offsets of a deleted topic (O-15), and remove the topic from the records of
        share groups (H-27). The deletion of the topic itself must be durable before the call;
        otherwise a crash could bring back the topic without its offsets. Resolves when the offsets
        and records are durably deleted, or when that has failed and is to be tried again."""
        return self._delete_offsets({topic_id}, OffsetDeletion.TOPIC_DELETED)

    def _drop_missing_topics(self) -> None:
        """Finish the deletions that a crash or an error of the disk has interrupted: a topic was
        durably deleted, but its offsets and its entries in the records of share groups were not
        (O-15, O-24, H-27)."""
        stale = {each for shard in self.shards.cores for each in shard.offsets.stale_topic_ids()}
        self._delete_offsets(stale | self._undeleted, OffsetDeletion.TOPIC_MISSING)

    def _delete_offsets(
        self, topic_ids: set[bytes], reason: OffsetDeletion | None
    ) -> Deferred[None]:
        """Delete the offsets of deleted topics. What fails is tried again later; what is in a
        partition that is not loaded, when it is. `reason` None: observers know of the deletion."""
        self._undeleted |= topic_ids
        return self._slices.deferred(self._delete_in_slices(topic_ids, reason))

    async def _delete_in_slices(self, topic_ids: set[bytes], reason: OffsetDeletion | None) -> None:
        failed = bool(await (await self.share.forget_missing_topics()))
        deleted: list[Deferred[bool]] = []
        async for runtime in paced(self.shards, changing=True):
            offsets = runtime.core.offsets
            async for topic_id in paced(topic_ids, changing=True):
                async for group_id in paced(offsets.groups_of(topic_id), changing=True):
                    if runtime.state is RuntimeState.ACTIVE:
                        deleted.append(self._remove(runtime, group_id, topic_id, reason))
        async for each in paced(deleted, changing=True):
            failed = not await each or failed
        if failed:
            self._delete_again()
        elif self.shards.complete:
            self._undeleted -= topic_ids

    def _remove(
        self,
        runtime: Runtime[GroupShard],
        group_id: str,
        topic_id: bytes,
        reason: OffsetDeletion | None,
    ) -> Deferred[bool]:
        """Remove the stale offsets of a group for a topic id; false if an offset is left."""
        observer = unobserved if reason is None else self._observer

        async def decide(shard: GroupShard, deferred: Deferred[bool]) -> CoreOutcome:
            stale, waits = [], False
            partitions = shard.offsets.partitions_of_group(group_id)
            async for some in in_pieces(partitions):
                for partition in some:
                    removable, kept = shard.offsets.stale(group_id, partition, topic_id)
                    waits = waits or kept
                    if removable:
                        stale.append((group_id, partition))
            why = reason or OffsetDeletion.TOPIC_DELETED
            records = await remove_offsets(stale, why, observer)
            return _written(records, deferred, not waits, lambda _: False)

        return self.shards.ask_core(
            runtime, lambda shard, deferred, _: decide(shard, deferred), lambda _: False
        )

    def _delete_again(self) -> None:
        """Delete the rest later, when the disk may have room or a transaction may have ended."""

        def due() -> None:
            self._delete_scheduled = False
            self._delete_offsets(set(self._undeleted), None)

        if not self._delete_scheduled:
            self._delete_scheduled = True
            self._scheduler.call_later(DELETE_AGAIN_MS, due)

    # --- Requests ---

    def join(
        self,
        request: JoinGroupRequest,
        api_version: int,
        client_id: str,
        client_host: str,
    ) -> Deferred[JoinGroupResponse]:
        client_id = client_id[:CLIENT_ID_MAX_CHARS]
        return self.shards.ask(
            request.group_id,
            lambda shard, deferred, now: shard.join(
                JoinCall(request, deferred, api_version, client_id, client_host), now
            ),
            lambda error: join_error(error, request.member_id),
        )

    def sync(self, request: SyncGroupRequest) -> Deferred[SyncGroupResponse]:
        return self.shards.ask(
            request.group_id,
            lambda shard, deferred, now: shard.sync(request, deferred, now),
            sync_error,
        )

    def heartbeat(self, request: HeartbeatRequest) -> Deferred[HeartbeatResponse]:
        return self.shards.ask(
            request.group_id,
            lambda shard, deferred, now: shard.heartbeat(request, deferred, now),
            lambda error: HeartbeatResponse(error_code=error),
        )

    def leave(self, request: LeaveGroupRequest, api_version: int) -> Deferred[LeaveGroupResponse]:
        return self.shards.ask(
            request.group_id,
            lambda shard, deferred, now: shard.leave(request, api_version, deferred, now),
            lambda error: LeaveGroupResponse(error_code=error),
        )

    async def consumer_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        api_version: int,
        client_id: str,
        client_host: str,
        visible: Visible = every_topic,
    ) -> ConsumerGroupHeartbeatResponse:
        """Answer a heartbeat. Expressions that it needs are matched before the group decides: at
        most one work for a group runs at a time, and meanwhile members with expressions that the
        group has are answered without new matches, and others wait (G-147)."""
        more = (client_id[:CLIENT_ID_MAX_CHARS], client_host, api_version, visible)

        def ask(matches: Matches) -> Deferred[ConsumerGroupHeartbeatResponse]:
            return self.shards.ask(
                request.group_id,
                lambda shard, deferred, now: shard.consumer.heartbeat(
                    HeartbeatCall(request, deferred, *more, matches), now
                ),
                heartbeat_error,
            )

        while True:
            group = self.consumer_group(request.group_id)
            texts = unmatched(group, request, self._metadata)
            running = self._matching.get(request.group_id)
            known = {} if group is None else group.patterns
            if not texts or (
                running is not None and (request.subscribed_topic_regex or "") in ("", *known)
            ):
                return await ask(NO_MATCHES)
            if running is None:
                break
            await running
        others = self._matching[request.group_id] = Deferred()
        try:
            matches = await with_pauses(match(texts, known, self._metadata, visible))
            answer = ask(matches)
        except PatternError as error:
            return invalid_expression(error)
        finally:
            # Also if the connection was closed during a pause.
            del self._matching[request.group_id]
            others.resolve(None)
        return await answer

    def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> Deferred[StreamsAnswer]:
        """The heartbeat of a member of a streams group; the answer has the internal topics that the
        caller has to create."""
        client_id = client_id[:CLIENT_ID_MAX_CHARS]
        return self.shards.ask(
            request.group_id,
            lambda shard, deferred, now: shard.stream.heartbeat(
                HeartbeatCall(request, deferred, client_id, client_host), now
            ),
            streams_heartbeat_error,
        )

    def commit_offsets(
        self, call: CommitCall, producer: ProducerIdentity | None = None
    ) -> Deferred[list[ErrorCode]]:
        """Commit offsets; the answer has one code for each part of the call, in its order.

        Offsets of a producer become visible when its transaction is committed (O-17).
        """
        return self.shards.ask(
            call.group_id,
            lambda shard, deferred, now: shard.commit(call, deferred, now, producer),
            lambda error: [error] * len(call.parts),
        )

    def marker_written(
        self, index: int, producer_id: int, commit: bool, written: Deferred[ErrorCode]
    ) -> None:
        """Apply a marker that was appended to the partition of `__consumer_offsets` (O-17).

        `written` resolves when the marker is durable: until then no answer shows its effect.
        """
        runtime = self.shards.get(index)
        if runtime is not None:
            runtime.appended(lambda shard: shard.replay_marker(producer_id, commit), written)

    def fetch_offsets(
        self,
        group_id: str,
        partitions: list[TopicPartition] | None,
        require_stable: bool,
        member: FetchingMember = NOT_A_MEMBER,
    ) -> Deferred[FetchedOffsets]:
        """Fetch committed offsets; `partitions` None: all offsets of the group (O-08).

        A member of a consumer group sends its id and epoch, and is refused if the id or the epoch
        is no longer valid (O-21).
        """
        view = self.shards.read(
            group_id,
            lambda shard: shard.view_offsets(group_id, partitions, member),
            lambda error: OffsetsView(error=error),
        )
        return self._slices.deferred(_fetched(view, partitions, require_stable))

    # --- Administration (O-14) ---

    async def list_groups(self) -> tuple[ErrorCode, list[GroupSummary]]:
        """Every group that this broker coordinates, or the error of a shard that is not
        available."""
        error, found = await self.shards.read_all(
            lambda shard: shard.administration.groups(), summary
        )
        # A group may have been removed during a pause.
        dead = GroupState.DEAD.value
        return error, [each for each in found if each.state != dead]

    def describe_group(self, group_id: str) -> Deferred[DescribedGroup]:
        """The classic group with its members; GROUP_ID_NOT_FOUND with a message if there is no
        classic group of this id."""
        return self.shards.read(
            group_id,
            lambda shard: shard.administration.describe(group_id),
            lambda error: not_described(group_id, error),
        )

    def describe_consumer_group(self, group_id: str) -> Deferred[DescribedConsumerGroup]:
        """The consumer group with its members; GROUP_ID_NOT_FOUND with a message if there is no
        consumer group of this id."""
        return self.shards.read(
            group_id,
            lambda shard: shard.administration.describe_consumer(group_id),
            lambda error: consumer_not_described(group_id, error),
        )

    def describe_streams_group(self, group_id: str) -> Deferred[DescribedStreamsGroup]:
        """The streams group with its topology and members; GROUP_ID_NOT_FOUND with a message if
        there is no streams group of this id."""
        return self.shards.read(
            group_id,
            lambda shard: shard.stream.describe(group_id),
            lambda error: streams_not_described(group_id, error),
        )

    def delete_group(self, group_id: str, origin: str | None = None) -> Deferred[ErrorCode]:
        """Delete a group that has no members, and all its offsets. The states of a share group's
        partitions are deleted first (H-28). `origin`: the client that asks for it."""
        return self.share.delete_all_states(group_id).bind(
            lambda states: (
                Deferred.of(states)
                if isinstance(states, ErrorCode)
                else self._delete_group(group_id, states, origin)
            )
        )

    def _delete_group(
        self, group_id: str, states: StatesDecision, origin: str | None
    ) -> Deferred[ErrorCode]:
        async def decide(shard: GroupShard, deferred: Deferred[ErrorCode]) -> CoreOutcome:
            error = shard.share.deletion_error(group_id, states)
            records: list[Record] = []
            if error is ErrorCode.NONE:
                error, records = await shard.administration.deletion(group_id, origin)
            return _written(records, deferred, error, _identity)

        return self.shards.ask(
            group_id, lambda shard, deferred, _: decide(shard, deferred), _identity
        )

    def delete_offsets(
        self, group_id: str, partitions: list[TopicPartition], origin: str | None = None
    ) -> Deferred[DeletedOffsets]:
        """Delete the committed offsets of a group for these partitions. `origin`: the client that
        asks for it."""

        def refused(error: ErrorCode) -> DeletedOffsets:
            return DeletedOffsets(error, [])

        if not group_id:
            return Deferred.of(refused(ErrorCode.INVALID_GROUP_ID))

        async def decide(shard: GroupShard, deferred: Deferred[DeletedOffsets]) -> CoreOutcome:
            answer, records = await shard.administration.offset_deletion(
                group_id, partitions, origin
            )
            return _written(records, deferred, answer, refused)

        return self.shards.ask(
            group_id, lambda shard, deferred, _: decide(shard, deferred), refused
        )

    def expire_sessions(self, group_id: str, member: str | None = None) -> list[str]:
        """End the sessions of a group's members immediately, as if they had sent no heartbeat.

        `member`: a member id or a client id; None means all members. Returns the member ids.
        """
        runtime, _ = self.shards.find(group_id)
        if runtime is None or runtime.state is not RuntimeState.ACTIVE:
            return []
        now_ms = self._clock.monotonic_ms()
        expired = runtime.core.end_sessions(group_id, member, now_ms)
        self.shards.run_due(now_ms)
        return expired

    # --- For metrics and tools ---

    def groups(self) -> Iterator[GroupOverview]:
        """All loaded groups. Groups may be created and removed during the iteration."""
        for shard in self.shards.cores:
            for groups in shard.by_type:
                for group in list(groups.values()):
                    yield GroupOverview(
                        group.group_id,
                        group.state,
                        group.protocol_type,
                        group.generation if isinstance(group, ClassicGroup) else group.epoch,
                        len(group.members),
                        shard.offsets.count(group.group_id),
                    )

    def with_commits(self) -> Iterator[str]:
        """The groups that have committed offsets. Groups may be created and removed during the
        iteration."""
        for shard in self.shards.cores:
            yield from shard.offsets.group_ids()

    def group(self, group_id: str) -> ClassicGroup | None:
        """The classic group, for reading only; None if this broker does not have it."""
        core = self.shards.core(group_id)
        return None if core is None else core.groups.get(group_id)

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The group of the consumer protocol, for reading only; None if this broker does not have
        it."""
        core = self.shards.core(group_id)
        return None if core is None else core.consumers.get(group_id)

    def share_group(self, group_id: str) -> ShareGroup | None:
        """The share group, for reading only; None if this broker does not have it."""
        core = self.shards.core(group_id)
        return None if core is None else core.shares.get(group_id)

    def streams_group(self, group_id: str) -> StreamsGroup | None:
        """The streams group, for reading only; None if this broker does not have it."""
        core = self.shards.core(group_id)
        return None if core is None else core.streams.get(group_id)

    def session_end_ms(self, group_id: str, member_id: str) -> int | None:
        """The monotonic time at which a silent member is removed; None if it is not known."""
        core = self.shards.core(group_id)
        kinds = (GroupTimer.SESSION, GroupTimer.MEMBER_SESSION)
        names = (GroupTimerName(kind, group_id, member_id) for kind in kinds)
        ends = [] if core is None else [core.timers.deadline(name) for name in names]
        return next((end for end in ends if end is not None), None)

    def commits(self, group_id: str) -> Iterator[tuple[TopicPartition, OffsetCommitValue]]:
        """The committed offsets of a group as they are stored; none if this broker does not have
        them. They may change during the iteration."""
        core = self.shards.core(group_id)
        return iter(()) if core is None else core.offsets.each_of_group(group_id)

    def committed(self, group_id: str) -> Iterator[tuple[TopicPartition, int]]:
        """Like `commits`, but for each partition the offset alone."""
        return ((partition, value.offset) for partition, value in self.commits(group_id))

    def offset_count(self, group_id: str) -> int:
        """The number of committed offsets of a group."""
        core = self.shards.core(group_id)
        return 0 if core is None else core.offsets.count(group_id)


def _check_group_id(group_id: str) -> ErrorCode:
    too_long = len(group_id) > GROUP_ID_MAX_CHARS
    return ErrorCode.INVALID_GROUP_ID if too_long else ErrorCode.NONE


def _identity(error: ErrorCode) -> ErrorCode:
    return error


async def _fetched(
    reading: Deferred[OffsetsView], partitions: list[TopicPartition] | None, require_stable: bool
) -> FetchedOffsets:
    view = await reading
    if view.error:
        return FetchedOffsets(view.error, [])
    wanted = view.committed if partitions is None else partitions
    parts = [view.part(each, require_stable) async for each in paced(wanted)]
    return FetchedOffsets(ErrorCode.NONE, parts)


def _written(
    records: list[Record], deferred: Deferred[A], answer: A, refused: Callable[[ErrorCode], A]
) -> CoreOutcome:
    """The decision to write these records, in as many batches as they need, and then to answer."""
    reply = Reply(deferred, answer, refused)
    return CoreOutcome(records=records, replies=[reply], is_divisible=True)
