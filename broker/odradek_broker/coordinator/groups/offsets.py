"""Committed offsets: stored, checked, fetched (rules O-01 to O-10, O-17, O-18).

The state of `OffsetStore` is durable: it is changed only by `replay` and `end_transaction`, which
are called for records of the log. Decisions are returned as records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from odradek_broker.coordinator.groups.classic.group import ClassicGroup, GroupState
from odradek_broker.coordinator.groups.consumer.group import ConsumerGroup
from odradek_broker.coordinator.groups.events import OffsetsMoved
from odradek_broker.coordinator.groups.modern.group import M, ModernGroup, ModernMember
from odradek_broker.coordinator.groups.streams.group import StreamsGroup
from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import in_pieces
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.constants import (
    NO_EXPIRY,
    NO_GENERATION,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_PRODUCER_ID,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.offset_commit import CONSUMER_GROUPS_SINCE
from odradek_protocol.settings import INT64_MAX
from odradek_protocol.stored.offset_commit import OffsetCommitValue, encode_key, encode_value

#: The limit of the length of an offset's metadata, even if the settings have a higher limit: the
#: metadata, encoded in UTF-8, must fit into a field of the record that has a 16-bit length.
METADATA_MAX_CHARS = 8_000
#: For more partitions, all offsets of a group are copied.
_FEW = 64

#: Storage error of a commit -> error in the answer. Errors that are not in the table are answered
#: unchanged (O-03).
OFFSET_APPEND_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    # Kafka answers NOT_COORDINATOR, which makes clients look for another coordinator. A cluster of
    # Odradek has no other broker, so librdkafka would search until its session has expired. After
    # COORDINATOR_LOAD_IN_PROGRESS librdkafka keeps its membership and reports the error to its
    # user.
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


@dataclass(frozen=True, slots=True)
class CommitPart:
    """An offset to commit. `leader_epoch` -1: unknown; `metadata`: a text of the client;
    `topic_id`: the id of the topic for which the client sent the offset."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes


@dataclass(frozen=True, slots=True)
class CommitCall:
    """An OffsetCommit. Generation -1 and no ids: the client is no member, and `origin` tells who it
    is. `retention_ms` -1: the broker's setting."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    api_version: int
    retention_ms: int
    parts: list[CommitPart]
    origin: str = ""


class FetchingMember(NamedTuple):
    """The sender of an OffsetFetch as a member of a consumer group. The default values mean a
    client that is no member (O-21)."""

    member_id: str | None = None
    epoch: int = NO_GENERATION


NOT_A_MEMBER = FetchingMember()


@dataclass(frozen=True, slots=True)
class FetchedPart:
    """An offset in the answer to OffsetFetch; -1 if none is committed (O-08)."""

    topic: str
    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class FetchedOffsets:
    """The answer to an OffsetFetch of one group; `error` applies to the whole group."""

    error: ErrorCode
    parts: list[FetchedPart]


@dataclass(frozen=True, slots=True)
class Committed:
    """A stored offset. `position`: the number of records of the partition that were replayed before
    the offset's record (O-17)."""

    value: OffsetCommitValue
    position: int


@dataclass(frozen=True, slots=True)
class OffsetsView:
    """The offsets of a group at one moment. `undecided`: the partitions for which an open
    transaction has an offset."""

    committed: Mapping[TopicPartition, OffsetCommitValue] = field(default_factory=dict)
    undecided: Collection[TopicPartition] = ()
    error: ErrorCode = ErrorCode.NONE

    def part(self, partition: TopicPartition, require_stable: bool) -> FetchedPart:
        """The offset of a partition (O-08, O-09)."""
        if require_stable and partition in self.undecided:
            return FetchedPart(*partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        value = self.committed.get(partition)
        if value is None:
            return FetchedPart(*partition)
        return FetchedPart(*partition, value.offset, value.leader_epoch, value.metadata)


class OffsetStore:
    """The committed offsets, and the pending offsets of open transactions, of all groups of one
    partition of `__consumer_offsets`.

    `topic_id`: the present id of a topic, zeros if there is no such topic. An offset that was
    committed for another id is *stale*: its topic was deleted, and no answer shows it (O-24).
    """

    def __init__(self, topic_id: Callable[[str], bytes]) -> None:
        self._topic_id = topic_id
        self._committed: dict[str, dict[TopicPartition, Committed]] = {}
        #: producer id -> group -> partition; pending until the marker of the producer is replayed.
        self._pending: dict[int, dict[str, dict[TopicPartition, Committed]]] = {}
        #: topic id -> group -> the number of offsets that were committed for this id.
        self._of_topic_id: dict[bytes, dict[str, int]] = {}
        self._position = 0

    # --- Replay ---

    def replay(
        self,
        group_id: str,
        partition: TopicPartition,
        value: OffsetCommitValue | None,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Apply one record; None is a tombstone. A record with a producer id is pending (O-18)."""
        self._position += 1
        if value is None:
            self._remove(group_id, partition)
        elif producer_id == NO_PRODUCER_ID:
            self._put(group_id, partition, Committed(value, self._position))
        else:
            undecided = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
            undecided[partition] = Committed(value, self._position)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply the marker of a transaction: if it commits, each pending offset replaces the stored
        offset, unless the stored offset is newer (O-17)."""
        ended = self._pending.pop(producer_id, {})
        for group_id, undecided in ended.items():
            if not commit:
                continue
            for partition, candidate in undecided.items():
                existing = self._committed.get(group_id, {}).get(partition)
                if existing is None or existing.position < candidate.position:
                    self._put(group_id, partition, candidate)

    def _put(self, group_id: str, partition: TopicPartition, committed: Committed) -> None:
        stored = self._committed.setdefault(group_id, {})
        before, stored[partition] = stored.get(partition), committed
        topic_id = committed.value.topic_id
        if before is None or before.value.topic_id != topic_id:
            groups = self._of_topic_id.setdefault(topic_id, {})
            groups[group_id] = groups.get(group_id, 0) + 1
            if before is not None:
                self._uncount(group_id, before)

    def _uncount(self, group_id: str, committed: Committed) -> None:
        """Take an offset that is no longer stored out of the index by topic id."""
        topic_id = committed.value.topic_id
        groups = self._of_topic_id[topic_id]
        groups[group_id] -= 1
        if not groups[group_id]:
            del groups[group_id]
            if not groups:
                del self._of_topic_id[topic_id]

    def _remove(self, group_id: str, partition: TopicPartition) -> None:
        """Remove an offset and its pending values, whose commit would restore it."""
        stored = self._committed.get(group_id, {})
        removed = stored.pop(partition, None)
        if removed is not None:
            self._uncount(group_id, removed)
            if not stored:
                del self._committed[group_id]
        for groups in self._pending.values():
            undecided = groups.get(group_id)
            if undecided is not None:
                undecided.pop(partition, None)
                if not undecided:
                    del groups[group_id]

    # --- Questions ---

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    def _is_stale(self, partition: TopicPartition, committed: Committed) -> bool:
        return committed.value.topic_id != self._topic_id(partition[0])

    def of_group(self, group_id: str) -> dict[TopicPartition, OffsetCommitValue]:
        """All committed offsets of a group, except stale ones."""
        found: dict[TopicPartition, OffsetCommitValue] = {}
        topic, topic_id = "", b""
        for partition, committed in self._committed.get(group_id, {}).items():
            if partition[0] != topic:
                # A group may have thousands of partitions, mostly of one topic after the other.
                topic = partition[0]
                topic_id = self._topic_id(topic)
            if committed.value.topic_id == topic_id:
                found[partition] = committed.value
        return found

    def each_of_group(self, group_id: str) -> Iterator[tuple[TopicPartition, OffsetCommitValue]]:
        """Like `of_group`, one after the other. They may change during the iteration."""
        for partition, committed in tuple(self._committed.get(group_id, {}).items()):
            if not self._is_stale(partition, committed):
                yield partition, committed.value

    def reset_by(
        self, call: CommitCall, errors: Sequence[ErrorCode], *, of_members: bool
    ) -> OffsetsMoved | None:
        """The reset that a commit of a client that is no member means (O-25); None if it only goes
        on, as a client does that has its partitions without members. `errors`: of each part."""
        moved, back, ahead = [], 0, 0
        committed = self._committed.get(call.group_id, {})
        for part, error in zip(call.parts, errors, strict=True):
            partition = part.topic, part.partition
            known = committed.get(partition)
            if error or known is None or part.offset == known.value.offset:
                continue
            if self._is_stale(partition, known):
                continue  # It is of a deleted topic.
            moved.append(partition)
            back += max(known.value.offset - part.offset, 0)
            ahead += max(part.offset - known.value.offset, 0)
        if not back and not (moved and of_members):
            return None
        return OffsetsMoved(call.group_id, moved, back, ahead, call.origin)

    def group_ids(self) -> list[str]:
        return list(self._committed)

    async def all_of_group(self, group_id: str) -> dict[TopicPartition, OffsetCommitValue]:
        """Like `of_group`, with pauses."""
        return {
            partition: committed.value
            async for some in in_pieces(self._committed.get(group_id, {}).items())
            for partition, committed in some
            if not self._is_stale(partition, committed)
        }

    def has(self, group_id: str) -> bool:
        """True if the group has an offset, committed or pending."""
        return group_id in self._committed or self.in_transaction(group_id)

    def count(self, group_id: str) -> int:
        return len(self._committed.get(group_id, ()))

    def in_transaction(self, group_id: str) -> bool:
        """True if an open transaction has offsets of the group."""
        return any(group_id in groups for groups in self._pending.values())

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """True if an open transaction has an offset for this partition that is not stale."""
        found = (groups.get(group_id, {}).get(partition) for groups in self._pending.values())
        return any(each is not None and not self._is_stale(partition, each) for each in found)

    def holds(self, group_id: str, partition: TopicPartition) -> bool:
        """True if the partition has an offset, committed or pending."""
        return partition in self._committed.get(group_id, ()) or self.is_pending(
            group_id, partition
        )

    def partitions_of_group(self, group_id: str) -> list[TopicPartition]:
        """The partitions for which the group has an offset, committed or pending."""
        partitions = dict.fromkeys(self._committed.get(group_id, ()))
        for groups in self._pending.values():
            partitions.update(dict.fromkeys(groups.get(group_id, ())))
        return list(partitions)

    def _all(self) -> Iterator[tuple[str, TopicPartition, Committed]]:
        """Every offset, committed or pending, with its group and partition."""
        for groups in (self._committed, *self._pending.values()):
            for group_id, committed in groups.items():
                for partition, each in committed.items():
                    yield group_id, partition, each

    def stale_topic_ids(self) -> set[bytes]:
        """The topic ids of all stale offsets, and zeros if there is an offset without an id in a
        topic that does not exist."""
        return {
            each.value.topic_id
            for _, partition, each in self._all()
            if self._is_gone(partition, each)
        }

    def _is_gone(self, partition: TopicPartition, committed: Committed) -> bool:
        present = self._topic_id(partition[0])
        return committed.value.topic_id != present or present == ZERO_UUID

    def groups_of(self, topic_id: bytes) -> list[str]:
        """The groups that have an offset, committed or pending, that was committed for this topic
        id."""
        groups = dict.fromkeys(self._of_topic_id.get(topic_id, ()))
        for pending in self._pending.values():
            for group_id, undecided in pending.items():
                if [each for each in undecided.values() if each.value.topic_id == topic_id]:
                    groups[group_id] = None
        return list(groups)

    def stale(self, group_id: str, partition: TopicPartition, topic_id: bytes) -> tuple[bool, bool]:
        """Two answers about offsets that were committed for this topic id: whether one can be
        removed now; and whether one cannot, because a tombstone would also drop a pending offset of
        the present topic."""
        committed = self._committed.get(group_id, {}).get(partition)
        offsets = [
            committed,
            *(groups.get(group_id, {}).get(partition) for groups in self._pending.values()),
        ]
        if not any(
            each is not None and each.value.topic_id == topic_id and self._is_gone(partition, each)
            for each in offsets
        ):
            return False, False
        waits = self.is_pending(group_id, partition)
        if committed is not None and not self._is_gone(partition, committed):
            return False, waits  # The offset of the present topic has replaced the stale one.
        return not waits, waits

    def view(self, group_id: str, partitions: Collection[TopicPartition] | None) -> OffsetsView:
        """The offsets of a group at this moment, except stale ones; those of `partitions` at
        least, or all."""
        undecided: set[TopicPartition] = set()
        for groups in self._pending.values():
            for partition, pending in groups.get(group_id, {}).items():
                if not self._is_stale(partition, pending):
                    undecided.add(partition)
        if partitions is None or len(partitions) > _FEW:
            return OffsetsView(self.of_group(group_id), undecided)
        stored = self._committed.get(group_id, {})
        found = [(each, stored[each]) for each in partitions if each in stored]
        return OffsetsView(
            {each: held.value for each, held in found if not self._is_stale(each, held)}, undecided
        )


def check_commit(
    group: ClassicGroup | None, call: CommitCall, transactional: bool = False
) -> ErrorCode:
    """The error that forbids a commit, or NONE (O-04; with `transactional` O-05).

    A simple group need not exist: NONE for a missing group means that the commit creates the group.
    """
    if group is None:
        if call.generation < 0:
            return ErrorCode.NONE
        named = not transactional and call.api_version >= CONSUMER_GROUPS_SINCE
        return ErrorCode.GROUP_ID_NOT_FOUND if named else ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if call.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if call.generation >= 0 or call.member_id or call.instance_id is not None:
        error = group.check_member(call.member_id, call.instance_id)
        if error is ErrorCode.NONE and call.generation != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            return error
    elif not transactional:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not transactional and group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def commit_records(
    call: CommitCall, topic_id: Callable[[str], bytes], metadata_max: int, wall_ms: int
) -> tuple[list[Record], list[ErrorCode]]:
    """The records of the parts that can be stored, and the error of each part (O-06). `topic_id`:
    the present id of a topic."""
    expire_ms = NO_EXPIRY
    if call.retention_ms != NO_EXPIRY:
        # A time below zero has passed, as in Kafka.
        expire_ms = min(max(wall_ms + call.retention_ms, 0), INT64_MAX)
    records: list[Record] = []
    errors = []
    for part in call.parts:
        if not _fits(part, metadata_max):
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        if part.topic_id != topic_id(part.topic):
            # The topic was deleted while the transaction was verified.
            errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        value = OffsetCommitValue(
            offset=part.offset,
            leader_epoch=part.leader_epoch,
            metadata=part.metadata,
            commit_timestamp=wall_ms,
            expire_timestamp=expire_ms,
            topic_id=part.topic_id,
        )
        records.append((encode_key(call.group_id, part.topic, part.partition), encode_value(value)))
        errors.append(ErrorCode.NONE)
    return records, errors


def _fits(part: CommitPart, metadata_max: int) -> bool:
    """True if the metadata may be stored."""
    return len(part.metadata) <= min(metadata_max, METADATA_MAX_CHARS)


_E = ErrorCode


def check_consumer_commit(
    group: ConsumerGroup,
    call: CommitCall,
    transactional: bool,
    metadata_max: int,
    topic_id: Callable[[str], bytes],
) -> ErrorCode:
    """The error that forbids a commit in a consumer group, or NONE (O-20; with `transactional`
    O-22)."""
    member = _committing_member(group, call, transactional)
    if isinstance(member, ErrorCode):
        return member
    if not transactional and member.classic is None and call.api_version < CONSUMER_GROUPS_SINCE:
        return _E.UNSUPPORTED_VERSION

    def got(part: CommitPart) -> int | None:
        return member.epochs.get((topic_id(part.topic), part.partition))

    return _check_epoch(member, call, transactional, metadata_max, got)


def check_streams_commit(
    group: StreamsGroup, call: CommitCall, transactional: bool, metadata_max: int
) -> ErrorCode:
    """The error that forbids a commit in a streams group, or NONE (J-52)."""
    member = _committing_member(group, call, transactional)
    if isinstance(member, ErrorCode):
        return member
    if not transactional and call.api_version < CONSUMER_GROUPS_SINCE:
        return _E.UNSUPPORTED_VERSION
    assigned, pending = member.assigned.epochs, member.pending.epochs

    def got(part: CommitPart) -> int | None:
        source = group.topology and group.topology.source_of(part.topic)
        epoch = assigned.get(source or "", {}).get(part.partition)
        return pending.get(source or "", {}).get(part.partition) if epoch is None else epoch

    return _check_epoch(member, call, transactional, metadata_max, got)


def _check_epoch(
    member: ModernMember,
    call: CommitCall,
    transactional: bool,
    metadata_max: int,
    got: Callable[[CommitPart], int | None],
) -> ErrorCode:
    """NONE if the epoch of the commit is the member's, or an earlier one in which the member
    already had every partition (KIP-1251). `got`: the epoch in which the member got a partition;
    None if the member does not have the partition."""
    if call.generation == member.epoch:
        return _E.NONE
    # TxnOffsetCommit has no error for a stale epoch.
    stale = _E.ILLEGAL_GENERATION if transactional else member.stale_epoch_error
    if call.generation > member.epoch:
        return stale
    for part in call.parts:
        # A part that is refused for its metadata is not checked.
        since = got(part) if _fits(part, metadata_max) else call.generation
        if since is None or call.generation < since:
            return stale
    return _E.NONE


def _committing_member(
    group: ModernGroup[M, Any], call: CommitCall, transactional: bool
) -> M | ErrorCode:
    """The member that commits, whose epoch is not checked yet. If there is no member, the result of
    the check: NONE if the commit needs no member, else an error."""
    if call.generation < 0 and not group.members:
        # An administrator or a simple consumer commits while the group has no members.
        return _E.NONE
    anonymous = call.generation < 0 and not call.member_id and call.instance_id is None
    if transactional and anonymous:
        return _E.NONE
    return group.members.get(call.member_id) or _E.UNKNOWN_MEMBER_ID


def check_fetch(group: ModernGroup[Any, Any], asker: FetchingMember) -> ErrorCode:
    """The error that forbids a fetch of offsets, or NONE. A client that sends a member id must be a
    member (O-21, J-52)."""
    if asker.member_id is None and asker.epoch < 0:
        return _E.NONE
    member = group.members.get(asker.member_id or "")
    if member is None:
        return _E.UNKNOWN_MEMBER_ID
    error: ErrorCode = member.stale_epoch_error
    return _E.NONE if asker.epoch == member.epoch else error
