"""States of share partitions, in the memory of their leaders and as stored.

Finished records stay finished, start offsets and delivery counts never decrease, the parts of a
state agree, and each state belongs to a group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from odradek_broker.coordinator.groups.share.group import StatePartitions, partitions_in
from odradek_broker.coordinator.runtime import RuntimeState
from odradek_broker.node import Node
from odradek_broker.share.in_flight import DEAD_LETTER_RETRY_MS, FINISHED, NOBODY, RecordState
from odradek_broker.share.share_partition import SharePartition
from odradek_broker.share_state import ShareKey, ShareState

#: The time by which the end of a lock may be overdue: the loop's timer is a little late.
_LATE_MS = 1_000
_FINISHED = frozenset(map(int, FINISHED))


def check_share_partitions(node: Node) -> Iterator[str]:
    """Check the share partitions that a node leads; may be called at any time."""
    now_ms = node.clock.monotonic_ms()
    sessions = node.share_sessions
    if len(sessions) > node.config.group_share_max_share_sessions:
        yield f"there are {len(sessions)} share sessions"
    for led in node.share_partitions._led.values():
        if led.state is not None:
            for problem in _check(led.state, now_ms):
                yield f"{led.key.group_id}, {led.topic}-{led.key.partition}: {problem}"


def _check(state: SharePartition, now_ms: int) -> Iterator[str]:
    completed = 0
    expected = None
    for batch in state.in_flight:
        if expected is not None and batch.first < expected:
            yield f"{batch} overlaps the batch before it"
        expected = batch.first
        for run in batch.runs:
            if run.first != expected or run.last < run.first:
                yield f"{batch} has a hole at {expected}"
            expected = run.last + 1
            if run.state in FINISHED:
                completed += max(0, run.last - max(run.first, state.start_offset) + 1)
            # Writing the dead letter of the expired record has failed, and is tried again soon.
            # Until then the record is acquired without a member.
            retried = (
                run.deadline_ms is not None and run.deadline_ms <= now_ms + DEAD_LETTER_RETRY_MS
            )
            if run.due_ms is not None and run.change is None and run.due_ms < now_ms - _LATE_MS:
                yield f"{run} waits {now_ms - run.due_ms} ms longer than its pause lasts"
            acquired = run.state is RecordState.ACQUIRED
            if acquired != (run.member_id != NOBODY) and not (acquired and retried):
                yield f"{run} is of {run.member_id or 'nobody'}"
            if run.state is not RecordState.ACQUIRED or run.deadline_ms is None:
                continue
            if run.deadline_ms < now_ms - _LATE_MS:
                yield f"{run} is locked {now_ms - run.deadline_ms} ms longer than its lock lasts"
            if state.next_deadline_ms is None or state.next_deadline_ms > run.deadline_ms:
                yield f"{run} ends before the first deadline, {state.next_deadline_ms}"
    # Records below the log start stay in flight until their locks end.
    end = state.end_offset + 1 if state.end_offset > state.start_offset else expected
    if expected is not None and expected != end:
        yield f"the last record in flight is {expected - 1}, and {state.end_offset} the end"
    if completed != state.completed:
        yield f"{completed} records in flight are finished, and {state.completed} are counted"


class StoredStates:
    """The stored states of share partitions, each compared with the state seen before."""

    def __init__(self) -> None:
        self._seen: dict[ShareKey, ShareState] = {}

    def restarted(self) -> None:
        """Forget the states seen before: a power cut may have removed states that were not
        durable."""
        self._seen.clear()

    def check(
        self, found: dict[ShareKey, ShareState], begun_anew: Collection[ShareKey] = ()
    ) -> Iterator[str]:
        """Compare the states with those seen before, except states that may have been reset
        since."""
        for key, state in found.items():
            before = None if key in begun_anew else self._seen.get(key)
            if before is not None and before.state_epoch == state.state_epoch:
                for problem in _went_back(before, state):
                    yield f"{key.group_id}, {key.topic_id.hex()[:6]}-{key.partition}: {problem}"
        self._seen = found


def _went_back(before: ShareState, after: ShareState) -> Iterator[str]:
    if after.start_offset < before.start_offset:
        yield f"the start offset went back from {before.start_offset} to {after.start_offset}"
    now = dict(_by_offset(after))
    for offset, (state, count) in _by_offset(before):
        if offset < after.start_offset:
            continue
        later = now.get(offset)
        if later is None:
            yield f"offset {offset} was stored in state {state}, and is not stored"
        elif state in _FINISHED and later[0] != state:
            yield f"offset {offset} went from state {state} to {later[0]}"
        elif later[1] < count:
            yield f"offset {offset} went from delivery {count} to {later[1]}"


def _by_offset(state: ShareState) -> Iterator[tuple[int, tuple[int, int]]]:
    for first, last, delivery_state, count in state.batches:
        for offset in range(max(first, state.start_offset), last + 1):
            yield offset, (delivery_state, count)


def stored_states(node: Node, group_id: str) -> dict[ShareKey, ShareState]:
    """The stored states of a group in a running node."""
    return {
        key: stored.state
        for core in node.share_state.shards.cores
        for key, stored in core.partitions.items()
        if key.group_id == group_id
    }


def check_noted(node: Node, group_id: str) -> Iterator[str]:
    """Check that the group of each stored state exists and has a note of the state; may be called
    at any time.

    States in shards that are still being loaded are not checked, nor are states of deleted topics:
    those states are deleted although their groups remain.
    """
    index = node.groups.shards.partition_of(group_id)
    runtime = None if index is None else node.groups.shards.get(index)
    if runtime is None or runtime.state is not RuntimeState.ACTIVE:
        return
    group = node.groups.share_group(group_id)
    stored = [
        key
        for runtime in node.share_state.shards
        if runtime.state is RuntimeState.ACTIVE
        for key in runtime.core.partitions
        if key.group_id == group_id and node.metadata.topic_name(key.topic_id) is not None
    ]
    yield from check_keys(stored, None if group is None else group.states)


def check_keys(stored: Iterable[ShareKey], noted: StatePartitions | None) -> Iterator[str]:
    """Yield the stored states of a group that are missing from the group's notes."""
    noted = noted or StatePartitions()
    made = [partitions_in(noted.initializing), partitions_in(noted.initialized)]
    for key in stored:
        if key.topic_id not in noted.deleting and not any(
            key.partition in each.get(key.topic_id, ()) for each in made
        ):
            name = f"{key.group_id}, {key.topic_id.hex()[:6]}-{key.partition}"
            yield f"{name} has a state that its group does not know"


def is_finished(state: ShareState, offset: int) -> bool:
    """True if a stored state shows the record as finished."""
    if offset < state.start_offset:
        return True
    return any(
        first <= offset <= last and delivery_state in _FINISHED
        for first, last, delivery_state, _ in state.batches
    )
