"""The share coordinator of this broker: finds the shard of a share partition (KIP-932).

Share partitions are spread over the partitions of `__share_group_state` (H-101), which is created
at the first call; this broker coordinates the share partitions of the internal partitions that it
leads. Each partition has a `ShareShard` that decides and a `Runtime` that writes. The group
coordinator and the leaders of share partitions call this module directly; other brokers send
requests.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import structlog

from odradek_broker.coordinator.runtime import (
    CoreOutcome,
    Instant,
    OffsetPartition,
    OffsetRuntime,
    Runtime,
    RuntimeState,
)
from odradek_broker.coordinator.shards import GROUP_ID_MAX_CHARS, PartitionCounts, Shards
from odradek_broker.coordinator.share.shard import ShareShard, ShareStateSettings
from odradek_broker.deferred import Deferred, gather
from odradek_broker.metadata.cluster import SHARE_STATE_TOPIC
from odradek_broker.platform.seams import Clock, Scheduler
from odradek_broker.share_state import ShareKey, ShareState, StateResult
from odradek_broker.slices import Slices, in_order, paced, pause_in_change
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import uuid_text

log = structlog.get_logger("odradek.share_state")

_PARTITION = re.compile(r"[+-]?[0-9]+")
_TOPIC_ID_BYTES = 16
_NEGATIVE = "The partition id cannot be a negative number."

_TOO_LONG = f"The group id is longer than {GROUP_ID_MAX_CHARS} characters."

#: The pause before the next attempt to delete the states of a deleted topic.
DELETE_AGAIN_MS = 1_000
#: The limit of share partitions that are handled in one turn of the event loop.
_TURN_MAX = 25

Decide = Callable[[ShareShard, Deferred[StateResult], Instant], CoreOutcome]
DecideEach = Callable[[ShareShard, ShareKey, Deferred[StateResult], Instant], CoreOutcome]
Results = Mapping[ShareKey, StateResult]
Answers = Mapping[ShareKey, Deferred[StateResult]]


#: The most states of a deleted topic that are deleted at once.
DELETED_AT_ONCE = 50


class NamedPartitionCounts(PartitionCounts, Protocol):
    """The topics in the cluster metadata."""

    def topic_name(self, topic_id: bytes, /) -> str | None: ...


def coordinator_key(key: ShareKey) -> str:
    """The name of a share partition, by which FindCoordinator asks for its coordinator."""
    return f"{key.group_id}:{uuid_text(key.topic_id)}:{key.partition}"


def decode_coordinator_key(name: str) -> ShareKey | None:
    """The share partition of this name; None if the text is no such name. The group id may contain
    colons."""
    tokens = name.split(":")
    while tokens and not tokens[-1]:
        # Java's split drops empty parts at the end.
        tokens.pop()
    if len(tokens) < 3:
        return None
    *group, topic_id, partition = tokens
    group_id = ":".join(group)
    if not group_id.strip() or not _PARTITION.fullmatch(partition):
        return None
    try:
        decoded = urlsafe_b64decode(topic_id + "=" * (-len(topic_id) % 4))
    except ValueError:
        return None
    index = int(partition)
    if len(decoded) != _TOPIC_ID_BYTES or not -(1 << 31) <= index < 1 << 31:
        return None
    return ShareKey(group_id, decoded, index)


def _problem_of(key: ShareKey) -> str:
    """The reason why no share partition can have this key; empty if the key is valid."""
    if key.partition < 0:
        return _NEGATIVE
    return _TOO_LONG if len(key.group_id) > GROUP_ID_MAX_CHARS else ""


class _Turn(NamedTuple):
    """The share partitions of one call that are handled in one turn of the event loop."""

    decide: DecideEach
    keys: Sequence[ShareKey]
    decided: Callable[[Answers], None]
    done: Deferred[Results]


class ShareCoordinator:
    """The share coordinator. Calls return a `Deferred`, which is resolved when the records of the
    decision are durable.

    `ensure_topic` creates the internal topic and resolves when the topic may be used. It raises
    StorageError if the topic's metadata records cannot be appended. `prune` deletes the records of
    partitions of the internal topic below an offset. `state_changed` is called with a share
    partition when its group initializes or deletes the partition's state.
    """

    def __init__(
        self,
        settings: ShareStateSettings,
        *,
        metadata: NamedPartitionCounts,
        internal_partition: Callable[[str, int], OffsetPartition | None],
        ensure_topic: Callable[[str], Deferred[None]],
        prune: Callable[[dict[int, int]], None],
        state_changed: Callable[[ShareKey], None],
        clock: Clock,
        scheduler: Scheduler,
        slices: Slices,
    ) -> None:
        self._slices = slices
        self._settings = settings
        self._metadata = metadata
        self._ensure_topic = ensure_topic
        self._prune = prune
        self._state_changed = state_changed
        self._scheduler = scheduler
        #: True once a call has found the internal topic.
        self._usable = False
        #: The calls that wait for the internal topic, and whether they are being asked.
        self._is_asking = False
        self._waiting: deque[tuple[ShareKey, Decide, Deferred[StateResult]]] = deque()
        #: The parts of calls about many share partitions. `_scheduled` is true while a part is
        #: being carried out or is scheduled.
        self._turns: deque[_Turn] = deque()
        self._scheduled = False
        #: The deleted topics with states that could not be deleted.
        self._undeleted: set[bytes] = set()
        #: Partition of the internal topic -> the offset below which the partition's records are to
        #: be deleted.
        self._redundant: dict[int, int] = {}
        #: For metrics: the number of calls that write; and, for each partition of the internal
        #: topic, the offset below which records were deleted.
        self.writes = 0
        self.pruned: dict[int, int] = {}
        self.shards: Shards[ShareShard] = Shards(
            SHARE_STATE_TOPIC,
            "share state",
            self._new_shard,
            metadata=metadata,
            internal_partition=internal_partition,
            clock=clock,
            scheduler=scheduler,
            runtime_class=OffsetRuntime,
            carry_out=self._carry_out,
            on_loaded=self._delete_state_of_missing_topics,
        )

    def _new_shard(self, index: int) -> ShareShard:
        return ShareShard(index, self._settings, self._exists)

    def _exists(self, topic_id: bytes, partition: int) -> bool:
        name = self._metadata.topic_name(topic_id)
        return name is not None and partition < self._metadata.partition_count(name)

    # --- Calls ---

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int
    ) -> Deferred[StateResult]:
        """Set the state of a share partition to a new one that begins at an offset; -1 if the
        offset is not known yet (H-103)."""
        return self._ask(
            key,
            lambda shard, deferred, now: shard.initialize(
                key, state_epoch, start_offset, deferred, now
            ),
        )

    def read(self, key: ShareKey, leader_epoch: int) -> Deferred[StateResult]:
        """The state of a share partition for its leader. Leaders with an older epoch are refused
        afterwards (H-104)."""
        return self._ask(
            key, lambda shard, deferred, now: shard.read(key, leader_epoch, deferred, now)
        )

    def read_summary(self, key: ShareKey, leader_epoch: int) -> Deferred[StateResult]:
        """The state of a share partition, without a check of the leader epoch, as in Kafka
        (H-104)."""
        return self._ask(key, lambda shard, deferred, _: shard.read_summary(key, deferred))

    def write(self, key: ShareKey, change: ShareState) -> Deferred[StateResult]:
        """Merge batches into the state of a share partition, and move its start offset unless the
        given start offset is -1 (H-105)."""
        self.writes += 1
        return self._ask(key, lambda shard, deferred, now: shard.write(key, change, deferred, now))

    def delete(self, key: ShareKey) -> Deferred[StateResult]:
        """Delete the state of a share partition (H-103)."""
        return self._ask(key, lambda shard, deferred, _: shard.delete(key, deferred))

    def _ask(self, key: ShareKey, decide: Decide) -> Deferred[StateResult]:
        problem = _problem_of(key)
        if problem:
            return Deferred.of(StateResult(ErrorCode.INVALID_REQUEST, problem))
        if self._usable:
            return self.shards.ask(coordinator_key(key), decide, StateResult)
        answer: Deferred[StateResult] = Deferred()
        self._waiting.append((key, decide, answer))
        if not self._is_asking:
            self._is_asking = True
            self._slices.run(self._ask_waiting(), is_shared=True)
        return answer

    async def _ask_waiting(self) -> None:
        """Ask what waits for the internal topic. Thousands of calls may wait."""
        try:
            error = await self._when_usable()
            while self._waiting:
                key, decide, answer = self._waiting.popleft()
                if error:
                    answer.resolve(StateResult(error))
                else:
                    asked = self.shards.ask(coordinator_key(key), decide, StateResult)
                    asked.then(answer.resolve)
                await pause_in_change()
        finally:
            self._is_asking = False

    def _when_usable(self) -> Deferred[ErrorCode]:
        """Create the internal topic if it is missing. Resolves with NONE when the topic exists, or
        with an error."""
        if self._usable:
            return Deferred.of(ErrorCode.NONE)
        try:
            ready = self._ensure_topic(SHARE_STATE_TOPIC)
        except StorageError as problem:
            log.warning("the topic __share_group_state cannot be created", error=str(problem))
            return Deferred.of(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        def usable(_: None) -> ErrorCode:
            self._usable = True
            return ErrorCode.NONE

        return ready.map(usable)

    # --- Calls about many share partitions ---

    def initialize_all(
        self, state_epoch: int, offsets: Mapping[ShareKey, int]
    ) -> Deferred[Results]:
        """`initialize` for many share partitions, each with its start offset; the leaders of the
        partitions drop their copies of the states."""
        return self._ask_all(
            offsets,
            lambda shard, key, deferred, now: shard.initialize(
                key, state_epoch, offsets[key], deferred, now
            ),
            self._tell_leaders,
        )

    def read_summaries(self, keys: Iterable[ShareKey]) -> Deferred[Results]:
        return self._ask_all(
            keys, lambda shard, key, deferred, _: shard.read_summary(key, deferred)
        )

    def delete_all(self, keys: Iterable[ShareKey]) -> Deferred[Results]:
        """`delete` for many share partitions; the leaders of the partitions drop their copies of
        the states."""
        return self._ask_all(
            keys,
            lambda shard, key, deferred, _: shard.delete(key, deferred),
            self._tell_leaders,
        )

    def _tell_leaders(self, answers: Answers) -> None:
        """Have leaders drop their copies of states that are being changed. The leaders are notified
        before the change is durable; if they were notified later, a leader could write its old
        state into the new one."""
        for key, answer in answers.items():
            if not answer.done or answer.result().error is ErrorCode.NONE:
                self._state_changed(key)

    def _ask_all(
        self,
        keys: Iterable[ShareKey],
        decide: DecideEach,
        decided: Callable[[Answers], None] = lambda answers: None,
    ) -> Deferred[Results]:
        """The results for many share partitions. A turn of the event loop handles a limited number
        of share partitions, and writes the records of each shard as one batch. An earlier call of
        this function is carried out before a later one. `decided` is called with the answers of
        share partitions whose records are being written."""
        turns = [
            _Turn(decide, some, decided, Deferred())
            for some in in_order(list(dict.fromkeys(keys)), _TURN_MAX)
        ]
        if not turns:
            return Deferred.of({})

        def begin(error: ErrorCode) -> None:
            if error:
                for turn in turns:
                    turn.done.resolve(dict.fromkeys(turn.keys, StateResult(error)))
                return
            self._turns += turns
            if not self._scheduled:
                self._take_turn()

        self._when_usable().then(begin)
        return gather([turn.done for turn in turns]).map(_merged)

    def _take_turn(self) -> None:
        """Carry out the oldest of the turns, and schedule the next one."""
        if not self._turns:
            return
        turn = self._turns.popleft()
        self._scheduled = True
        try:
            self._carry_out_turn(turn)
        finally:
            self._scheduled = bool(self._turns)
            if self._turns:
                self._scheduler.call_later(0, self._take_turn)

    def _carry_out_turn(self, turn: _Turn) -> None:
        by_shard: dict[int | None, dict[ShareKey, Deferred[StateResult]]] = {}
        all_answers: dict[ShareKey, Deferred[StateResult]] = {key: Deferred() for key in turn.keys}
        gather(list(all_answers.values())).then(
            lambda found: turn.done.resolve(dict(zip(all_answers, found, strict=True)))
        )
        for key, answer in all_answers.items():
            problem = _problem_of(key)
            if problem:
                answer.resolve(StateResult(ErrorCode.INVALID_REQUEST, problem))
            else:
                index = self.shards.partition_of(coordinator_key(key))
                by_shard.setdefault(index, {})[key] = answer
        for answers in by_shard.values():
            runtime, error = self.shards.find(coordinator_key(next(iter(answers))))
            if runtime is None or error is not ErrorCode.NONE:
                _refuse(answers.values(), StateResult(error))
            else:
                runtime.run(partial(_together, turn.decide, runtime.core, answers))
                turn.decided(answers)

    # --- Deleted topics ---

    def topic_deleted(self, topic_id: bytes) -> Deferred[None]:
        """Delete the states of a deleted topic (H-108). The deletion of the topic itself must be
        durable before the call. Resolves when the deletion of the states is durable, or has failed
        with an error of the disk."""
        return self._delete_states({topic_id})

    def _delete_state_of_missing_topics(self) -> None:
        """Delete the states of topics that do not exist any more. A crash after the deletion of
        these topics has prevented the deletion of their states (H-108)."""
        found = {key.topic_id for shard in self.shards.cores for key in shard.partitions}
        self._delete_states({each for each in found if self._metadata.topic_name(each) is None})

    def _delete_states(self, topic_ids: set[bytes]) -> Deferred[None]:
        return self._slices.deferred(self._delete_in_slices(topic_ids))

    async def _delete_in_slices(self, topic_ids: set[bytes]) -> None:
        written: list[Deferred[ErrorCode]] = []
        async for runtime in paced(self.shards, changing=True):
            if runtime.state is RuntimeState.ACTIVE:
                keys = runtime.core.of_topics(topic_ids)
                async for batch in paced(in_order(keys, DELETED_AT_ONCE), changing=True):
                    records = runtime.core.without(batch)
                    written.append(runtime.write(records, ErrorCode.NONE, lambda error: error))
        errors = [await each async for each in paced(written, changing=True)]
        if any(errors):
            self._delete_again(topic_ids)

    def _delete_again(self, topic_ids: set[bytes]) -> None:
        """Delete the states later, when the disk may have room again."""
        if not self._undeleted:
            self._scheduler.call_later(DELETE_AGAIN_MS, self._delete_undeleted)
        self._undeleted |= topic_ids

    def _delete_undeleted(self) -> None:
        topic_ids, self._undeleted = self._undeleted, set()
        self._delete_states(topic_ids)

    # --- Old records ---

    def _carry_out(self, runtime: Runtime[ShareShard]) -> None:
        """Called when a shard no longer needs some records. The records of several shards are
        deleted together."""
        shard = runtime.core
        if shard.prune_to is None:
            return
        if not self._redundant:
            self._scheduler.call_later(0, self._prune_redundant)
        self._redundant[shard.index], shard.prune_to = shard.prune_to, None

    def _prune_redundant(self) -> None:
        redundant, self._redundant = self._redundant, {}
        self._prune(redundant)
        self.pruned |= redundant


def _refuse(answers: Iterable[Deferred[StateResult]], result: StateResult) -> None:
    for answer in answers:
        answer.resolve(result)


def _merged(parts: Iterable[Results]) -> Results:
    merged: dict[ShareKey, StateResult] = {}
    for part in parts:
        merged.update(part)
    return merged


def _together(
    decide: DecideEach,
    shard: ShareShard,
    answers: Mapping[ShareKey, Deferred[StateResult]],
    now: Instant,
) -> CoreOutcome:
    """The decisions about share partitions of one shard as a single outcome."""
    together = CoreOutcome()
    for key, answer in answers.items():
        outcome = decide(shard, key, answer, now)
        together.records += outcome.records
        together.replies += outcome.replies
    return together
