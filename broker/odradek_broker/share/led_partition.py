"""A share partition that this broker leads, and the stored states of share partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.partition import Later, Partition, Waiter, Wakes
from odradek_broker.platform.seams import Timer
from odradek_broker.share.dead_letters import DeadLetterOrigin
from odradek_broker.share.share_partition import SharePartition
from odradek_broker.share_state import (
    NO_DEAD_LETTERS,
    DeadLetterPosition,
    ShareKey,
    ShareState,
    StateBatch,
    StateResult,
)
from odradek_protocol.errors import ErrorCode

_E = ErrorCode


class SharePersister(Protocol):
    """The stored states of share partitions."""

    def read(self, key: ShareKey, leader_epoch: int, /) -> Deferred[StateResult]:
        """Read a state, and fence earlier leaders."""
        ...

    def write(self, key: ShareKey, change: ShareState, /) -> Deferred[StateResult]:
        """Add batches to a state; resolves when they are durable."""
        ...


class LedPartition:
    """A share partition that this broker leads. `state` is None until it is loaded; `error` is the
    reason why this broker no longer leads it, or NONE. `data_waiters` are called when records may
    be available, or after an error.

    `forgotten`: the group has no session left, so that the share partition is dropped once its dead
    letters are written. `dead_letters_from`: the position of dead letters in the stored state; None
    if the stored state has no position, or an unknown one. `unstored`: states that are final,
    because their dead letters are durable, but are perhaps not stored yet; every write includes
    these states (H-205).
    `letter_jobs`: the changes whose dead letters are written one after the other; the first one is
    being written.
    """

    __slots__ = (
        "_wakes",
        "data_waiters",
        "dead_letters_from",
        "error",
        "forgotten",
        "key",
        "leader_epoch",
        "letter_jobs",
        "partition",
        "state",
        "timer",
        "timer_at_ms",
        "topic",
        "unstored",
    )

    def __init__(self, key: ShareKey, topic: str, partition: Partition, later: Later) -> None:
        self.key = key
        self.topic = topic
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state: SharePartition | None = None
        self.error = _E.NONE
        self.data_waiters: dict[Waiter, None] = {}
        self._wakes = Wakes(later)
        self.timer: Timer | None = None
        self.timer_at_ms = 0
        self.forgotten = False
        self.dead_letters_from: DeadLetterPosition | None = None
        self.unstored: set[StateBatch] = set()
        self.letter_jobs: deque[Callable[[], None]] = deque()

    @property
    def source(self) -> DeadLetterOrigin:
        """The names that dead letters have for the share partition."""
        return DeadLetterOrigin(
            self.key.group_id, self.topic, self.key.topic_id, self.key.partition
        )

    def wake(self) -> None:
        """Make the fetches that wait for this share partition check again."""
        self._wakes.wake(self, self.data_waiters)

    def store(
        self,
        states: SharePersister,
        batches: Sequence[StateBatch],
        dead_letters_from: DeadLetterPosition | None = None,
    ) -> Deferred[StateResult]:
        """Add batches and the states `unstored` to the stored state."""
        assert self.state is not None
        earlier = sorted(self.unstored)
        if dead_letters_from is not None:
            # Until this write ends, it is unknown which position is stored.
            self.dead_letters_from = None

        def written(result: StateResult) -> None:
            if result.error is _E.NONE:
                self.unstored.difference_update(earlier)
                if dead_letters_from not in (None, NO_DEAD_LETTERS):
                    self.dead_letters_from = dead_letters_from

        change = ShareState(
            0,
            self.state.state_epoch,
            self.leader_epoch,
            self.state.start_offset,
            self.state.completed,
            (*earlier, *batches),
            dead_letters_from=dead_letters_from,
        )
        stored = states.write(self.key, change)
        stored.then(written)
        return stored
