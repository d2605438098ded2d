"""The share partitions of one partition of `__share_group_state`: the core that a runtime runs.

An initialization writes a snapshot record, and a change writes an update record. After a number of
updates, a change writes a snapshot in place of an update, so that a load has little to merge. Older
records of the share partition are then redundant. All records up to the oldest snapshot that is
still needed can be deleted (`prune_to`); share partitions that change rarely are snapshotted from
time to time, so that they do not prevent the deletion of old records of other share partitions
(H-106, H-107).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Protocol

from odradek_broker.coordinator.runtime import CoreOutcome, Instant, Record, Reply
from odradek_broker.coordinator.share.records import (
    decode_change,
    snapshot_record,
    tombstone_record,
    update_record,
)
from odradek_broker.coordinator.timers import Timers
from odradek_broker.deferred import Deferred
from odradek_broker.share_state import (
    NO_DEAD_LETTERS,
    DeadLetterPosition,
    ShareKey,
    ShareState,
    StateBatch,
    StateResult,
)
from odradek_protocol.constants import NO_DELIVERY_COUNT, NO_OFFSET
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass

_E = ErrorCode

#: The epoch that every check of epochs accepts.
ANY_EPOCH = -1

#: The greatest number of state batches of a share partition, which a snapshot encodes in one piece.
#: Leaders of share partitions need at most two thirds of this number.
STATE_BATCHES_MAX = 15_000

#: The greatest size of a batch with snapshots of rarely changed share partitions; further snapshots
#: are written in another batch.
_COLD_BATCH_BYTES = 256 * 1024
_COLD_BATCH_RECORDS = 20

_UNINITIALIZED = "operation on uninitialized share partition not allowed."
_MESSAGES = {
    _E.FENCED_LEADER_EPOCH: (
        "The leader epoch in the request is older than the epoch on the broker."
    ),
    _E.FENCED_STATE_EPOCH: (
        "The share coordinator rejected the request because the share-group state epoch did not"
        " match."
    ),
    _E.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
}


class ShareStateSettings(Protocol):
    """The settings of the broker that the share coordinator reads."""

    @property
    def share_coordinator_snapshot_update_records_per_snapshot(self) -> int: ...
    @property
    def share_coordinator_state_topic_prune_interval_ms(self) -> int: ...
    @property
    def share_coordinator_cold_partition_snapshot_interval_ms(self) -> int: ...
    @property
    def share_coordinator_write_timeout_ms(self) -> int: ...


class Periodic(Enum):
    """The work that a shard does from time to time."""

    SNAPSHOTS = "Snapshots"
    #: Not periodic: the next batch of snapshots.
    MORE_SNAPSHOTS = "More snapshots"
    PRUNING = "Pruning"


@dataclass(slots=True)
class StoredPartition:
    """A share partition in memory. The epochs are the highest ones since the state was deleted
    last; `updates` counts the records since the last snapshot, and `needed_from` is the offset of
    the first record that a load needs. `settled`: see `is_settled`."""

    state: ShareState
    highest_state_epoch: int
    highest_leader_epoch: int
    updates: int
    needed_from: int
    settled: bool


class ShareShard:
    """The core of one partition of `__share_group_state`; see `runtime.OffsetCore`.

    `exists`: true if the topic with this id has a partition with this number. `prune_to`: the
    offset below which records may be deleted; the owner of the shard deletes them and sets it to
    None.
    """

    def __init__(
        self, index: int, settings: ShareStateSettings, exists: Callable[[bytes, int], bool]
    ) -> None:
        self.index = index
        self._settings = settings
        self._exists = exists
        #: The share partitions that the present snapshots have yet to cover.
        self._cold: deque[ShareKey] = deque()
        self.timers: Timers[Periodic] = Timers()
        self.partitions: dict[ShareKey, StoredPartition] = {}
        self.next_offset = 0
        self.prune_to: int | None = None
        #: The offset of the last record that deleted a state. If no share partition is left, a load
        #: needs no record below this offset.
        self._deleted_until = 0

    @property
    def append_timeout_ms(self) -> int:
        """See `runtime.OffsetCore`."""
        return self._settings.share_coordinator_write_timeout_ms

    # --- Replay ---

    def replay(self, key: bytes, value: bytes | None) -> None:
        """See `runtime.Core`."""
        change = decode_change(key, value)
        if change is None:
            return
        share_partition, found, is_snapshot = change
        if found is None:
            if self.partitions.pop(share_partition, None) is not None:
                self._deleted_until = self.next_offset
        elif is_snapshot:
            self._replay_snapshot(share_partition, found)
        else:
            self._replay_update(share_partition, found)

    def _replay_snapshot(self, key: ShareKey, state: ShareState) -> None:
        stored = self.partitions.get(key)
        if stored is None:
            self.partitions[key] = StoredPartition(
                state,
                state.state_epoch,
                state.leader_epoch,
                0,
                self.next_offset,
                is_settled(state.batches),
            )
            return
        stored.state = state
        stored.settled = is_settled(state.batches)
        stored.highest_state_epoch = max(stored.highest_state_epoch, state.state_epoch)
        stored.highest_leader_epoch = max(stored.highest_leader_epoch, state.leader_epoch)
        stored.updates = 0
        stored.needed_from = self.next_offset

    def _replay_update(self, key: ShareKey, change: ShareState) -> None:
        stored = self.partitions.get(key)
        if stored is None:
            self.partitions[key] = StoredPartition(
                change._replace(dead_letters_from=_open(change.dead_letters_from)),
                change.state_epoch,
                change.leader_epoch,
                1,
                self.next_offset,
                is_settled(change.batches),
            )
            return
        stored.state, stored.settled = _merged(stored, change)
        stored.highest_leader_epoch = max(stored.highest_leader_epoch, change.leader_epoch)
        stored.updates += 1

    # --- Requests ---

    def initialize(
        self,
        key: ShareKey,
        state_epoch: int,
        start_offset: int,
        deferred: Deferred[StateResult],
        now: Instant,
    ) -> CoreOutcome:
        """Replace the state by a new one that begins at an offset (H-103)."""
        stored = self.partitions.get(key)
        if stored is not None and _is_fenced(state_epoch, stored.highest_state_epoch):
            return _refused(deferred, _E.FENCED_STATE_EPOCH)
        if not self._exists(key.topic_id, key.partition):
            return _refused(deferred, _E.UNKNOWN_TOPIC_OR_PARTITION)
        fresh = start_offset == NO_OFFSET
        state = ShareState(
            snapshot_epoch=0 if stored is None else stored.state.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            delivery_complete_count=NO_DELIVERY_COUNT if fresh else 0,
            created_ms=now.wall_ms,
            written_ms=now.wall_ms,
        )
        return _answered(deferred, StateResult(), [snapshot_record(key, state)])

    def read(
        self, key: ShareKey, leader_epoch: int, deferred: Deferred[StateResult], now: Instant
    ) -> CoreOutcome:
        """The state; a newer leader epoch is stored, so that older leaders are refused (H-104)."""
        stored = self.partitions.get(key)
        if stored is None:
            return _refused(deferred, _E.INVALID_REQUEST, f"Read {_UNINITIALIZED}")
        if leader_epoch < stored.highest_leader_epoch:
            return _refused(deferred, _E.FENCED_LEADER_EPOCH)
        if not self._exists(key.topic_id, key.partition):
            return _refused(deferred, _E.UNKNOWN_TOPIC_OR_PARTITION)
        state = stored.state
        records = []
        if leader_epoch not in (ANY_EPOCH, stored.highest_leader_epoch):
            records.append(
                self._change(
                    key,
                    stored,
                    state._replace(leader_epoch=leader_epoch, batches=(), dead_letters_from=None),
                    now,
                )
            )
        return _answered(deferred, StateResult(state=state), records)

    def read_summary(self, key: ShareKey, deferred: Deferred[StateResult]) -> CoreOutcome:
        """The present state, for any leader epoch; for an unknown share partition, the state before
        the first fetch (H-104)."""
        if not self._exists(key.topic_id, key.partition):
            return _refused(deferred, _E.UNKNOWN_TOPIC_OR_PARTITION)
        stored = self.partitions.get(key)
        state = ShareState(0, 0, 0, NO_OFFSET) if stored is None else stored.state
        return _answered(deferred, StateResult(state=state), [])

    def write(
        self, key: ShareKey, change: ShareState, deferred: Deferred[StateResult], now: Instant
    ) -> CoreOutcome:
        """Merge the batches of a change into the state. The start offset of the change replaces the
        stored one unless it is -1 (H-105). The position of dead letters of the change replaces the
        stored one unless it is None (H-206)."""
        stored = self.partitions.get(key)
        if stored is None:
            return _refused(deferred, _E.INVALID_REQUEST, f"Write {_UNINITIALIZED}")
        if _is_fenced(change.leader_epoch, stored.highest_leader_epoch):
            return _refused(deferred, _E.FENCED_LEADER_EPOCH)
        if _is_fenced(change.state_epoch, stored.highest_state_epoch):
            return _refused(deferred, _E.FENCED_STATE_EPOCH)
        if not self._exists(key.topic_id, key.partition):
            return _refused(deferred, _E.UNKNOWN_TOPIC_OR_PARTITION)
        change = change._replace(
            snapshot_epoch=stored.state.snapshot_epoch,
            state_epoch=stored.state.state_epoch,
            leader_epoch=stored.state.leader_epoch,
        )
        problem = _problem_of(change.batches) or _too_many(stored, change)
        if problem:
            return _refused(deferred, _E.INVALID_REQUEST, problem)
        return _answered(deferred, StateResult(), [self._change(key, stored, change, now)])

    def delete(self, key: ShareKey, deferred: Deferred[StateResult]) -> CoreOutcome:
        """Delete the state; nothing is written if there is none (H-103)."""
        if not self._exists(key.topic_id, key.partition):
            return _refused(deferred, _E.UNKNOWN_TOPIC_OR_PARTITION)
        records = [tombstone_record(key)] if key in self.partitions else []
        return _answered(deferred, StateResult(), records)

    def _change(
        self, key: ShareKey, stored: StoredPartition, change: ShareState, now: Instant
    ) -> Record:
        """The record of a change: an update, or a snapshot when enough updates were written."""
        limit = self._settings.share_coordinator_snapshot_update_records_per_snapshot
        if stored.updates < limit:
            merged = merge_batches(change.batches, change.start_offset)
            return update_record(key, change._replace(batches=merged))
        state, _ = _merged(stored, change)
        return snapshot_record(
            key,
            state._replace(
                snapshot_epoch=state.snapshot_epoch + 1,
                created_ms=now.wall_ms,
                written_ms=now.wall_ms,
            ),
        )

    # --- Deleted topics ---

    def of_topics(self, topic_ids: set[bytes]) -> list[ShareKey]:
        return [key for key in self.partitions if key.topic_id in topic_ids]

    def without(self, keys: Sequence[ShareKey]) -> list[Record]:
        """The records that delete the states of share partitions (H-108)."""
        return [tombstone_record(key) for key in keys if key in self.partitions]

    # --- Periodic work ---

    def loaded(self, now: Instant) -> CoreOutcome:
        for name in (Periodic.SNAPSHOTS, Periodic.PRUNING):
            self._set_timer(name, now)
        return CoreOutcome()

    def on_timer(self, name: Periodic, now: Instant) -> CoreOutcome:
        if name is Periodic.MORE_SNAPSHOTS:
            return self._snapshot_some(now)
        self._set_timer(name, now)
        if name is Periodic.PRUNING:
            return self._prune()
        self._cold = self._cold_partitions(now)
        return self._snapshot_some(now)

    def closed(self, error: ErrorCode) -> CoreOutcome:
        """See `runtime.Core`; no request is parked here."""
        return CoreOutcome()

    def _set_timer(self, name: Periodic, now: Instant) -> None:
        settings = self._settings
        interval_ms = {
            Periodic.PRUNING: settings.share_coordinator_state_topic_prune_interval_ms,
            Periodic.SNAPSHOTS: settings.share_coordinator_cold_partition_snapshot_interval_ms,
        }[name]
        self.timers.set(name, now.monotonic_ms + interval_ms)

    def _prune(self) -> CoreOutcome:
        """Once the snapshots up to now are durable, request the deletion of the records that no
        load needs (H-106)."""
        offset = self.redundant_until()

        def durable(error: ErrorCode, now: Instant) -> CoreOutcome:
            if error is _E.NONE and offset > 0:
                self.prune_to = offset
            return CoreOutcome()

        return CoreOutcome(after_append=durable)

    def redundant_until(self) -> int:
        """The offset below which no load needs a record."""
        needed = [stored.needed_from for stored in self.partitions.values()]
        return min(needed, default=self._deleted_until)

    def _cold_partitions(self, now: Instant) -> deque[ShareKey]:
        """The share partitions whose last snapshot is older than the setting; none if the timer
        has written the last snapshot of every share partition (H-107)."""
        interval_ms = self._settings.share_coordinator_cold_partition_snapshot_interval_ms
        states = [(key, stored.state) for key, stored in self.partitions.items()]
        if not [key for key, state in states if state.created_ms == state.written_ms]:
            return deque()
        return deque(
            [key for key, state in states if now.wall_ms - state.written_ms >= interval_ms]
        )

    def _snapshot_some(self, now: Instant) -> CoreOutcome:
        """Write snapshots of the cold share partitions in batches of a limited size. The next batch
        is written in another turn of the loop, once the previous batch is durable. After an error,
        the next call of the timer writes the rest."""
        keys = self._cold
        records: list[Record] = []
        size_bytes = 0
        while keys and size_bytes < _COLD_BATCH_BYTES and len(records) < _COLD_BATCH_RECORDS:
            key = keys.popleft()
            stored = self.partitions.get(key)
            if stored is None:
                continue
            state = stored.state
            record = snapshot_record(
                key,
                state._replace(snapshot_epoch=state.snapshot_epoch + 1, written_ms=now.wall_ms),
            )
            if records and size_bytes + _size_bytes(record) > _COLD_BATCH_BYTES:
                keys.appendleft(key)
                break
            records.append(record)
            size_bytes += _size_bytes(record)
        if not records:
            return CoreOutcome()

        def durable(error: ErrorCode, later: Instant) -> CoreOutcome:
            if error is _E.NONE and keys:
                self.timers.set(Periodic.MORE_SNAPSHOTS, later.monotonic_ms)
            return CoreOutcome()

        return CoreOutcome(records=records, after_append=durable)


def _merged(stored: StoredPartition, change: ShareState) -> tuple[ShareState, bool]:
    """The state after a change, and true if the batches of the state are settled. The state keeps
    its start offset if the start offset of the change is -1."""
    state = stored.state
    start = state.start_offset if change.start_offset == NO_OFFSET else change.start_offset
    leader_epoch = state.leader_epoch if change.leader_epoch == ANY_EPOCH else change.leader_epoch
    if stored.settled:
        batches, settled = merge_into(state.batches, change.batches, start)
    else:
        batches = merge_batches((*state.batches, *change.batches), start)
        settled = is_settled(batches)
    merged = state._replace(
        leader_epoch=leader_epoch,
        start_offset=start,
        delivery_complete_count=change.delivery_complete_count,
        batches=batches,
        dead_letters_from=state.dead_letters_from
        if change.dead_letters_from is None
        else _open(change.dead_letters_from),
    )
    return merged, settled


def _open(position: DeadLetterPosition | None) -> DeadLetterPosition | None:
    return None if position == NO_DEAD_LETTERS else position


def _is_fenced(epoch: int, highest: int) -> bool:
    return epoch != ANY_EPOCH and epoch < highest


def _problem_of(batches: Iterable[StateBatch]) -> str:
    for batch in batches:
        if batch.last_offset < batch.first_offset:
            return (
                f"A state batch ends at offset {batch.last_offset}, before its first offset"
                f" {batch.first_offset}."
            )
    return ""


def _too_many(stored: StoredPartition, change: ShareState) -> str:
    # Each batch that is merged into others may split one of them in two.
    if len(stored.state.batches) + 2 * len(change.batches) <= STATE_BATCHES_MAX:
        return ""
    count = len(_merged(stored, change)[0].batches)
    if count <= STATE_BATCHES_MAX:
        return ""
    return (
        f"The share partition would have {count} state batches, more than {STATE_BATCHES_MAX}:"
        " move its start offset."
    )


def _answered(
    deferred: Deferred[StateResult], result: StateResult, records: list[Record]
) -> CoreOutcome:
    return CoreOutcome(records=records, replies=[Reply(deferred, result, StateResult)])


def _refused(
    deferred: Deferred[StateResult], error: ErrorCode, message: str | None = None
) -> CoreOutcome:
    return _answered(deferred, StateResult(error, message or _MESSAGES[error]), [])


def _size_bytes(record: Record) -> int:
    return len(record[0]) + len(record[1] or b"")


# --- the merge of state batches -------------------------------------------------------------------

#: A batch in the order of the merge: first and last offset, delivery count, delivery state.
_Sorted = tuple[int, int, int, int]


def merge_batches(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Sorted batches without overlaps and without offsets below the start offset (H-109).

    Where batches overlap, the higher delivery count wins; if the counts are equal, the higher
    delivery state wins. Adjacent batches with equal counts and states become one batch. A batch
    that ends before it begins is dropped.

    The result has the same batches as Kafka's, with the same first and last offsets. Kafka
    processes the batches in their order, and finishes a batch when the next one does not touch it.
    Two adjacent batches stay separate if they became equal only after the first of them was
    finished.
    """
    pending: list[_Sorted] = []
    for first, last, state, count in batches:
        if start_offset != NO_OFFSET:
            first = max(first, start_offset)
        if first <= last:
            pending.append((first, last, count, state))
    if len(pending) > 1:
        heapify(pending)
        pending = list(_without_overlaps(pending))
    return tuple(StateBatch(first, last, state, count) for first, last, count, state in pending)


def merge_into(
    settled: tuple[StateBatch, ...], batches: Sequence[StateBatch], start_offset: int
) -> tuple[tuple[StateBatch, ...], bool]:
    """The result of `merge_batches` for `settled` and `batches`; and true if the result is settled.

    Only the settled batches that one of `batches` may touch are looked at, because a share
    partition may have thousands of settled batches.
    """
    settled = _from_offset(settled, start_offset)
    if not batches:
        return settled, True
    lowest = min(batch.first_offset for batch in batches) - 1
    highest = max(batch.last_offset for batch in batches) + 1
    begin = bisect_left(settled, lowest, key=_last_offset)
    end = bisect_right(settled, highest, key=_first_offset)
    merged = merge_batches((*settled[begin:end], *batches), start_offset)
    return settled[:begin] + merged + settled[end:], is_settled(merged)


def is_settled(batches: tuple[StateBatch, ...]) -> bool:
    """True if a merge of these batches alone would change nothing."""
    return all(
        before.last_offset < after.first_offset - 1
        or (before.last_offset < after.first_offset and before[2:] != after[2:])
        for before, after in pairwise(batches)
    )


def _from_offset(settled: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
    """Settled batches, cut at the start offset."""
    if start_offset == NO_OFFSET or not settled or settled[0].first_offset >= start_offset:
        return settled
    kept = settled[bisect_left(settled, start_offset, key=_last_offset) :]
    if kept and kept[0].first_offset < start_offset:
        return (kept[0]._replace(first_offset=start_offset), *kept[1:])
    return kept


def _first_offset(batch: StateBatch) -> int:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset


def _without_overlaps(heap: list[_Sorted]) -> Iterator[_Sorted]:
    """The batches of a heap, sorted, and cut or joined so that no two of them overlap."""
    while heap:
        earlier = heappop(heap)
        if heap and _meets(earlier, heap[0]):
            for piece in _pieces(earlier, heappop(heap)):
                heappush(heap, piece)
        else:
            yield earlier


def _meets(earlier: _Sorted, later: _Sorted) -> bool:
    """True if the batches overlap, or touch and are equal in count and state."""
    if later[0] <= earlier[1]:
        return True
    return later[0] == earlier[1] + 1 and later[2:] == earlier[2:]


def _pieces(earlier: _Sorted, later: _Sorted) -> list[_Sorted]:
    """Divide two overlapping batches into batches that do not overlap. Two batches with equal
    counts and states become one batch."""
    (first, end, *kept), (begin, last, *new) = earlier, later
    if kept == new:
        return [(first, max(end, last), earlier[2], earlier[3])]
    if new < kept:
        rest = [(end + 1, last, later[2], later[3])] if last > end else []
        return [earlier, *rest]
    before = [(first, begin - 1, earlier[2], earlier[3])] if first < begin else []
    after = [(last + 1, end, earlier[2], earlier[3])] if end > last else []
    return [*before, later, *after]
