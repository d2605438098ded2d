"""Where transactional batches wait until the coordinator knows of their partition (T-61, T-62, T-68).

A partition in which the producer already has a transaction open lets its batches through at once:
that is nearly all of them. The first one of a transaction asks the coordinator, with what comes
behind it from the same producer kept in line, however long the answer takes (N-03, P-15).

The coordinator may still be busy with the producer's last transaction (51): its markers are on their
way. Asking again a moment later is cheaper than sending the client away, whose backoff is long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from odradek_broker.coordinator.transactions.interfaces import TopicPartition, TransactionVerifier
from odradek_broker.later import Later
from odradek_broker.partition import Partition
from odradek_broker.seams import Clock
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.producer_state import ProducerStateManager
from odradek_protocol.errors import ErrorCode

_E = ErrorCode
Answer = Later[Mapping[TopicPartition, ErrorCode]]

#: How long to wait before the coordinator is asked again: at first, at most, and in all.
RETRY_FIRST_MS = 1
RETRY_LONGEST_MS = 20
RETRY_TOTAL_MS = 500

#: Passes by itself: the coordinator is loading, moving or busy.
PASSING = frozenset(
    {
        _E.CONCURRENT_TRANSACTIONS,
        _E.NETWORK_EXCEPTION,
        _E.COORDINATOR_LOAD_IN_PROGRESS,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.NOT_COORDINATOR,
    }
)


class Scheduler(Protocol):
    """What the gate asks of the node."""

    @property
    def clock(self) -> Clock:
        """For how long has it waited?"""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> object:
        """Call once, then."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something to append in a transaction.

    `base_sequence` is -1 for offsets. `add`: the producer speaks transactions v2, so that a missing
    partition is added (T-61). `done` is called once, with NONE when it may be appended, and must
    then append before it returns; or with the coordinator's own code.
    """

    partition: Partition
    where: TopicPartition
    transactional_id: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    add: bool
    done: Callable[[ErrorCode], None]


class _Asking(NamedTuple):
    """Who asks, and whether to be let in."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    add: bool


class TransactionGate:
    """One for the broker. Its lines are as long as what connections may have in flight (N-14).

    `verifies`: is `transaction.partition.verification.enable` on now? Without it, producers of version 1 are
    believed that they have added their partitions; those of version 2 never have (T-61).
    """

    def __init__(
        self,
        scheduler: Scheduler,
        verifier: TransactionVerifier,
        *,
        verifies: Callable[[], bool] = lambda: True,
    ) -> None:
        self._scheduler = scheduler
        self._verifier = verifier
        self._verifies = verifies
        self._lines: dict[tuple[TopicPartition, int], _Line] = {}
        self._together = 0
        self._questions: dict[_Asking, tuple[list[TopicPartition], Answer]] = {}

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is admitted in here is one question to the coordinator, not one a partition."""
        self._together += 1
        try:
            yield
        finally:
            self._together -= 1
            if not self._together and self._questions:
                questions, self._questions = self._questions, {}
                for asking, (partitions, answer) in questions.items():
                    self._put(asking, partitions).then(answer.resolve)

    def _ask(self, candidate: Candidate) -> Answer:
        """Is it in its transaction? What the coordinator says of it and of others."""
        asking = _Asking(
            candidate.transactional_id,
            candidate.producer_id,
            candidate.producer_epoch,
            candidate.add,
        )
        if not self._together:
            return self._put(asking, [candidate.where])
        partitions, answer = self._questions.setdefault(asking, ([], Later()))
        partitions.append(candidate.where)
        return answer

    def _put(self, asking: _Asking, partitions: list[TopicPartition]) -> Answer:
        return self._verifier.verify_or_add(
            asking.transactional_id,
            asking.producer_id,
            asking.producer_epoch,
            partitions,
            add=asking.add,
        )

    @property
    def waiting(self) -> int:
        """How many candidates wait."""
        return sum(len(line.queue) for line in self._lines.values())

    def is_open(
        self, partition: Partition, where: TopicPartition, producer_id: int, epoch: int
    ) -> bool:
        """May a batch of this producer be appended without any further question?"""
        return (where, producer_id) not in self._lines and (
            partition.log.producers.has_open_transaction(producer_id, epoch)
        )

    def admit(self, candidate: Candidate) -> None:
        """Let it through now, or when the coordinator has said that it belongs there."""
        key = (candidate.where, candidate.producer_id)
        line = self._lines.get(key)
        if line is None:
            if _has_open_transaction(candidate) or not (candidate.add or self._verifies()):
                candidate.done(_E.NONE)
                return
            line = self._lines[key] = _Line(
                self._scheduler, self._ask, lambda: self._lines.pop(key, None)
            )
        line.queue.append(candidate)
        line.advance()


class _Line:
    """What waits for one producer in one partition, in order. Only the first is being verified."""

    __slots__ = (
        "_advancing",
        "_answer",
        "_ask_coordinator",
        "_delay_ms",
        "_guard",
        "_on_empty",
        "_paused",
        "_scheduler",
        "_since_ms",
        "queue",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        ask_coordinator: Callable[[Candidate], Answer],
        on_empty: Callable[[], object],
    ) -> None:
        self.queue: deque[Candidate] = deque()
        self._scheduler = scheduler
        self._ask_coordinator = ask_coordinator
        self._on_empty = on_empty
        self._advancing = False
        self._paused = False
        self._answer: Answer | None = None
        self._guard = 0
        self._begin_next()

    def _begin_next(self) -> None:
        """The next candidate has all the time again."""
        self._since_ms = self._scheduler.clock.monotonic_ms()
        self._delay_ms = RETRY_FIRST_MS

    def advance(self) -> None:
        """Work off the line until the first in it must wait. Whoever it waits for comes here."""
        if self._advancing or self._paused:
            return
        self._advancing = True
        try:
            while self.queue:
                verdict = self._verdict(self.queue[0])
                if verdict is None:
                    return
                self.queue.popleft().done(verdict)
                self._begin_next()
        finally:
            self._advancing = False
        self._on_empty()

    def _verdict(self, first: Candidate) -> ErrorCode | None:
        """None while it is not known."""
        if self._answer is None:
            if _has_open_transaction(first):
                return _E.NONE
            try:
                self._ask(first)
            except StorageError as error:
                return error.error
        answer = self._answer
        if answer is None or not answer.done:
            return None
        self._answer = None
        code = answer.result().get(first.where, _E.UNKNOWN_SERVER_ERROR)
        if code is _E.NONE and not self._still_true(first):
            # A marker came in between: that was about the transaction before (T-68).
            code = _E.CONCURRENT_TRANSACTIONS
        if code is _E.CONCURRENT_TRANSACTIONS and self._pause():
            return None
        if code is not _E.NONE and code not in PASSING:
            _producers(first).forget_verification(first.producer_id)
        return code

    def _ask(self, first: Candidate) -> None:
        self._guard = first.partition.log.producers.begin_verification(
            first.producer_id,
            first.producer_epoch,
            first.base_sequence,
            must_start_at_zero=first.add,
            now_ms=self._scheduler.clock.wall_ms(),
        )
        answer = self._answer = self._ask_coordinator(first)
        if not answer.done:
            answer.then(lambda _: self.advance())

    def _still_true(self, first: Candidate) -> bool:
        if _has_open_transaction(first):
            return True
        return _producers(first).is_verified(first.producer_id, self._guard)

    def _pause(self) -> bool:
        """Ask again a little later; False if it has taken too long already."""
        waited_ms = self._scheduler.clock.monotonic_ms() - self._since_ms
        if waited_ms >= RETRY_TOTAL_MS:
            return False
        self._paused = True
        self._scheduler.call_later(self._delay_ms, self._resume)
        self._delay_ms = min(self._delay_ms * 2, RETRY_LONGEST_MS)
        return True

    def _resume(self) -> None:
        self._paused = False
        self.advance()


def _producers(candidate: Candidate) -> ProducerStateManager:
    return candidate.partition.log.producers


def _has_open_transaction(candidate: Candidate) -> bool:
    """T-62, with the epoch: another one's transaction is another transaction (T-68)."""
    try:
        producers = _producers(candidate)
    except StorageError:
        return True  # The append will say what is wrong with the partition.
    return producers.has_open_transaction(candidate.producer_id, candidate.producer_epoch)
