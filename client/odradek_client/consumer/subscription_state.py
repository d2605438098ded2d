"""SubscriptionState: the subscription of a consumer, its assigned partitions, and their positions.

Each assigned partition is in one of four fetch states; `FETCH_STATE_STEPS` has the legal steps::

    INITIALIZING       nothing known: the group's committed offset must be fetched (K-25)
    AWAIT_RESET        ListOffsets must find the log's end, its start or a time (O-16)
    FETCHING           the position is known: the only state in which the partition is fetched
    AWAIT_VALIDATION   the position is known, but there is a newer leader: OffsetForLeaderEpoch must
                       confirm that its log has the position (K-26); nothing is fetched before

A seek leads from any state to FETCHING, a reset from any state to AWAIT_RESET.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum

from odradek_client.consumer.errors import IllegalState, NotAssigned
from odradek_client.structs import OffsetAndMetadata, TopicPartition


class FetchState(Enum):
    """The state of one assigned partition."""

    INITIALIZING = "initializing"
    AWAIT_RESET = "resetting"
    FETCHING = "fetching"
    AWAIT_VALIDATION = "validating"


FETCH_STATE_STEPS: dict[FetchState, frozenset[FetchState]] = {
    FetchState.INITIALIZING: frozenset({FetchState.AWAIT_RESET, FetchState.FETCHING}),
    FetchState.AWAIT_RESET: frozenset({FetchState.AWAIT_RESET, FetchState.FETCHING}),
    FetchState.FETCHING: frozenset(
        {FetchState.AWAIT_RESET, FetchState.FETCHING, FetchState.AWAIT_VALIDATION}
    ),
    FetchState.AWAIT_VALIDATION: frozenset({FetchState.AWAIT_RESET, FetchState.FETCHING}),
}


class SubscriptionType(Enum):
    """The ways in which a consumer gets partitions; only one at a time."""

    NONE = "no subscription"
    TOPICS = "a subscription to topics"
    PATTERN = "a subscription to a pattern"
    ASSIGNED = "partitions assigned by hand"


class TopicPartitionState:
    """The state of an assigned partition.

    `position`: the next offset to return; None unless the state is FETCHING or AWAIT_VALIDATION,
    and None after the partition was removed from the assignment. `leader_epoch`: the epoch of the
    record before the position, -1 if unknown. `checked_epoch`: the epoch of the last leader whose
    log is known to contain the position. `high_watermark`, `last_stable_offset`,
    `log_start_offset`: the values in the last answer, or None. `retry_at_ms`: the earliest time of
    the next request.
    """

    __slots__ = (
        "checked_epoch",
        "fetch_state",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "paused",
        "pending_revocation",
        "position",
        "reset_timestamp",
        "retry_at_ms",
    )

    def __init__(self) -> None:
        self.fetch_state = FetchState.INITIALIZING
        self.position: int | None = None
        self.leader_epoch = -1
        self.checked_epoch = -1
        self.reset_timestamp: int | None = None
        self.paused = False
        self.pending_revocation = False
        self.retry_at_ms = 0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None

    def step(self, state: FetchState) -> None:
        """Enter a state. IllegalState for a step that is not in the table."""
        if state not in FETCH_STATE_STEPS[self.fetch_state]:
            raise IllegalState(
                f"a partition cannot go from {self.fetch_state.value} to {state.value}"
            )
        self.fetch_state = state

    def found(self, offset: int, leader_epoch: int = -1) -> None:
        """Set a position that a commit, a reset or a seek has determined."""
        self.step(FetchState.FETCHING)
        self.position = offset
        self.leader_epoch = self.checked_epoch = leader_epoch
        self.reset_timestamp = None
        self.retry_at_ms = 0

    @property
    def must_wait(self) -> bool:
        """True if fetched records must not be returned to the application yet."""
        return (
            self.paused
            or self.pending_revocation
            or self.fetch_state is FetchState.AWAIT_VALIDATION
        )

    def reset(self, timestamp: int) -> None:
        """Let ListOffsets find the position, with this timestamp."""
        self.step(FetchState.AWAIT_RESET)
        self.position = None
        self.reset_timestamp = timestamp
        self.retry_at_ms = 0


class SubscriptionState:
    """A consumer's subscription, and its assigned partitions in fetching order."""

    def __init__(self) -> None:
        self.kind = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        #: The pattern as a text, so that a broker may resolve it (KIP-848). None if the pattern was
        #: not given as a text.
        self.pattern_text: str | None = None
        self._partitions: OrderedDict[TopicPartition, TopicPartitionState] = OrderedDict()
        #: The partitions that this consumer got from its group and has revoked. Only the new owners
        #: may commit offsets of these partitions.
        self.given_up: set[TopicPartition] = set()
        #: The number of changes so far. Positions that move because records were returned are not
        #: changes.
        self.changes = 0

    # --- subscription and assignment ---

    def subscribe_topics(self, topics: Iterable[str]) -> None:
        """Subscribe to topics. IllegalState while partitions are assigned manually or a pattern is
        subscribed."""
        self._set_type(SubscriptionType.TOPICS)
        self.topics = frozenset(topics)
        self.changes += 1

    def subscribe_pattern(self, pattern: str | re.Pattern[str]) -> None:
        """Subscribe to a pattern; `match` sets the topics. Errors as in `subscribe_topics`."""
        compiled = re.compile(pattern)
        self._set_type(SubscriptionType.PATTERN)
        self.pattern = compiled
        self.pattern_text = pattern if isinstance(pattern, str) else None

    def match(self, topics: Iterable[str]) -> bool:
        """Set the topics that match the pattern. True if they have changed."""
        pattern = self.pattern
        if pattern is None:
            return False
        matching = frozenset(topic for topic in topics if pattern.fullmatch(topic))
        if matching == self.topics:
            return False
        self.topics = matching
        self.changes += 1
        return True

    def assign_by_user(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions manually. Partitions that were assigned before keep their state.
        IllegalState when subscribed."""
        self._set_type(SubscriptionType.ASSIGNED)
        self._replace(partitions)

    def assign_by_group(self, partitions: Iterable[TopicPartition]) -> None:
        """Take over the group's assignment. IllegalState unless subscribed."""
        if not self.by_group:
            raise IllegalState(f"a group's assignment, but {self.kind.value}")
        self._replace(partitions)

    def unsubscribe(self) -> None:
        """End the subscription and the assignment."""
        self.kind = SubscriptionType.NONE
        self.topics = frozenset()
        self.pattern = self.pattern_text = None
        self._replace(())
        self.given_up.clear()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions from the assignment. Data that was fetched for them becomes stale."""
        for partition in partitions:
            state = self._partitions.pop(partition, None)
            if state is not None:
                state.position = None
                if self.by_group:
                    self.given_up.add(partition)
        self.changes += 1

    @property
    def by_group(self) -> bool:
        """True if partitions come from a subscription, not from a manual assignment."""
        return self.kind in (SubscriptionType.TOPICS, SubscriptionType.PATTERN)

    def _set_type(self, kind: SubscriptionType) -> None:
        if self.kind not in (SubscriptionType.NONE, kind):
            raise IllegalState(
                f"this consumer has {self.kind.value}; unsubscribe() first for {kind.value}"
            )
        self.kind = kind

    def _replace(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = dict.fromkeys(partitions)
        self.drop([partition for partition in self._partitions if partition not in wanted])
        for partition in wanted:
            self._partitions.setdefault(partition, TopicPartitionState()).pending_revocation = False
        self.given_up.difference_update(wanted)
        self.changes += 1

    # --- positions ---

    def assigned(self) -> set[TopicPartition]:
        return set(self._partitions)

    def get(self, partition: TopicPartition) -> TopicPartitionState | None:
        """The state of a partition, None if it is not assigned."""
        return self._partitions.get(partition)

    def state(self, partition: TopicPartition) -> TopicPartitionState:
        """The state of an assigned partition. Raises NotAssigned."""
        state = self._partitions.get(partition)
        if state is None:
            raise NotAssigned(partition)
        return state

    def items(self) -> Iterator[tuple[TopicPartition, TopicPartitionState]]:
        """The partitions with their states, in fetching order."""
        return iter(self._partitions.items())

    def move_to_end(self, partition: TopicPartition) -> None:
        """Move a partition to the end of the fetching order, because its data was fetched."""
        self._partitions.move_to_end(partition)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        """Set a position. NotAssigned, or ValueError for a negative offset."""
        if offset < 0:
            raise ValueError(f"cannot seek to offset {offset}: offsets begin at 0")
        self.state(partition).found(offset, leader_epoch)
        self.changes += 1

    def reset(self, partition: TopicPartition, timestamp: int) -> None:
        """Let ListOffsets find the position. Raises NotAssigned."""
        self.state(partition).reset(timestamp)
        self.changes += 1

    def validate(self, leader_epoch_of: Callable[[TopicPartition], int]) -> None:
        """Begin the validation of positions that were last checked with an earlier leader than the
        present one. Positions without a known leader epoch of the preceding record are not
        validated (K-26)."""
        for partition, state in self._partitions.items():
            if state.fetch_state is not FetchState.FETCHING or state.leader_epoch < 0:
                continue
            if leader_epoch_of(partition) > state.checked_epoch:
                state.step(FetchState.AWAIT_VALIDATION)
                self.changes += 1

    def validated(self, partition: TopicPartition, checked_epoch: int) -> None:
        """Called when the position is in the log of the leader of this epoch. Raises
        NotAssigned."""
        state = self.state(partition)
        state.step(FetchState.FETCHING)
        state.checked_epoch = checked_epoch
        self.changes += 1

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching and returning the records of these partitions until they are resumed.
        Raises NotAssigned."""
        for state in [self.state(partition) for partition in partitions]:
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`. Raises NotAssigned."""
        for state in [self.state(partition) for partition in partitions]:
            state.paused = False
        self.changes += 1

    def paused(self) -> set[TopicPartition]:
        return {partition for partition, state in self._partitions.items() if state.paused}

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Called when partitions are about to be revoked: no more of their records are returned
        (K-31)."""
        for partition in partitions:
            state = self._partitions.get(partition)
            if state is not None:
                state.pending_revocation = True

    def in_fetch_state(self, wanted: FetchState, now_ms: int) -> list[TopicPartition]:
        """The partitions in this state whose next request is due."""
        return [
            partition
            for partition, state in self._partitions.items()
            if state.fetch_state is wanted and state.retry_at_ms <= now_ms
        ]

    def all_fetching(self) -> bool:
        """True if every assigned partition is in the state FETCHING."""
        return all(state.fetch_state is FetchState.FETCHING for state in self._partitions.values())

    def consumed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Every known position, as offsets to commit (K-39, K-40)."""
        return {
            partition: OffsetAndMetadata(state.position, "", state.leader_epoch)
            for partition, state in self._partitions.items()
            if state.position is not None
        }
