"""The verification of transactional batches: a batch waits until the coordinator has added its
partition to the transaction, or has confirmed that the transaction has the partition already (T-61,
T-62, T-68).

Nearly all batches are appended immediately, because their producer has a transaction open in the
partition already. The first batch of a transaction needs a request to the coordinator, and later
batches of the same producer wait in a queue until the answer arrives (N-03, P-15).

The coordinator may still be writing the markers of the producer's last transaction
(CONCURRENT_TRANSACTIONS). A retry after a short pause is faster than passing the error to the
client, whose backoff is long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.partition import Partition
from odradek_broker.platform.seams import Clock, Scheduler
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.producers.state import ProducerStateManager
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple


class TransactionVerifier(Protocol):
    """The methods of the transaction coordinator that a partition's leader uses."""

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        add: bool,
    ) -> Deferred[Mapping[TopicPartition, ErrorCode]]:
        """Verify that the partitions are part of the producer's open transaction.

        With `add`, missing partitions are added durably, as by AddPartitionsToTxn (T-61, T-20);
        otherwise they get TRANSACTION_ABORTABLE (T-62). The error codes are the coordinator's; the
        leader maps them to the error codes of its API.
        """
        ...


_E = ErrorCode
Answer = Deferred[Mapping[TopicPartition, ErrorCode]]

#: The pauses between requests to the coordinator: the first, the longest, and the sum of all.
RETRY_FIRST_MS = 1
RETRY_LONGEST_MS = 20
RETRY_TOTAL_MS = 500

#: Temporary errors: the coordinator is loading, moving or busy.
TRANSIENT_ERRORS = frozenset(
    {
        _E.CONCURRENT_TRANSACTIONS,
        _E.NETWORK_EXCEPTION,
        _E.COORDINATOR_LOAD_IN_PROGRESS,
        _E.COORDINATOR_NOT_AVAILABLE,
        _E.NOT_COORDINATOR,
    }
)


def refused_verification(
    error: ErrorCode, transient: ErrorCode, *, knows_abortable: bool
) -> ErrorCode:
    """The error that a client gets if the coordinator refuses the verification (T-61, T-62).

    `transient`: the error of its API after which the client retries. `knows_abortable`: the version
    of the request has TRANSACTION_ABORTABLE.
    """
    if error in TRANSIENT_ERRORS:
        return transient
    if error is _E.PRODUCER_FENCED:
        return _E.INVALID_PRODUCER_EPOCH
    if error is _E.TRANSACTION_ABORTABLE and not knows_abortable:
        return _E.INVALID_TXN_STATE
    return error


@dataclass(frozen=True, slots=True)
class UnverifiedAppend:
    """An append whose transaction is not verified yet.

    `base_sequence` is -1 for committed offsets. `add`: the producer uses transactions of version 2,
    so that a missing partition is added (T-61). `done` is called once, with NONE or the
    coordinator's code. If `done` gets NONE, it appends the batch before it returns.
    """

    partition: Partition
    where: TopicPartition
    transactional_id: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    add: bool
    done: Callable[[ErrorCode], None]


class _Question(NamedTuple):
    """A request to the coordinator; `add`: also add the partitions to the transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    add: bool


class TransactionVerification:
    """The verification of this broker's transactional appends. The queues are bounded by the
    requests that connections may have in flight (N-14).

    `verifies`: the present value of `transaction.partition.verification.enable`. While it is false,
    producers of version 1 are trusted to have added their partitions, and only the batches of
    producers of version 2 are verified, because they never add partitions themselves (T-61).
    """

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        verifier: TransactionVerifier,
        *,
        verifies: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._verifier = verifier
        self._verifies = verifies
        self._queues: dict[tuple[TopicPartition, int], _ProducerQueue] = {}
        self._nesting = 0
        self._questions: dict[_Question, tuple[list[TopicPartition], Answer]] = {}

    @contextmanager
    def one_request(self) -> Iterator[None]:
        """Send one request to the coordinator for all partitions that are verified in the `with`
        block."""
        self._nesting += 1
        try:
            yield
        finally:
            self._nesting -= 1
            if not self._nesting and self._questions:
                questions, self._questions = self._questions, {}
                for question, (partitions, answer) in questions.items():
                    self._verify_or_add(question, partitions).then(answer.resolve)

    def _ask_coordinator(self, append: UnverifiedAppend) -> Answer:
        """Request the verification of a partition; the request may include other partitions."""
        question = _Question(
            append.transactional_id,
            append.producer_id,
            append.producer_epoch,
            append.add,
        )
        if not self._nesting:
            return self._verify_or_add(question, [append.where])
        partitions, answer = self._questions.setdefault(question, ([], Deferred()))
        partitions.append(append.where)
        return answer

    def _verify_or_add(self, question: _Question, partitions: list[TopicPartition]) -> Answer:
        return self._verifier.verify_or_add(
            question.transactional_id,
            question.producer_id,
            question.producer_epoch,
            partitions,
            add=question.add,
        )

    @property
    def waiting(self) -> int:
        return sum(len(queue.waiting) for queue in self._queues.values())

    def may_append(
        self, partition: Partition, where: TopicPartition, producer_id: int, epoch: int
    ) -> bool:
        """True if a batch of this producer may be appended without verification."""
        return (where, producer_id) not in self._queues and (
            partition.log.producers.has_open_transaction(producer_id, epoch)
        )

    def verify(self, append: UnverifiedAppend) -> None:
        """Call `append.done`: immediately if the batch needs no verification, otherwise when the
        coordinator has verified the batch's partition."""
        key = (append.where, append.producer_id)
        queue = self._queues.get(key)
        if queue is None:
            if _has_open_transaction(append) or not (append.add or self._verifies()):
                append.done(_E.NONE)
                return
            queue = self._queues[key] = _ProducerQueue(
                self._clock,
                self._scheduler,
                self._ask_coordinator,
                lambda: self._queues.pop(key, None),
            )
        queue.waiting.append(append)
        queue.proceed()


class _ProducerQueue:
    """The waiting appends of one producer to one partition, in the order of their arrival. Only the
    first append is being verified."""

    __slots__ = (
        "_answer",
        "_ask_coordinator",
        "_at_work",
        "_clock",
        "_delay_ms",
        "_guard",
        "_on_empty",
        "_paused",
        "_scheduler",
        "_since_ms",
        "waiting",
    )

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        ask_coordinator: Callable[[UnverifiedAppend], Answer],
        on_empty: Callable[[], object],
    ) -> None:
        self.waiting: deque[UnverifiedAppend] = deque()
        self._clock = clock
        self._scheduler = scheduler
        self._ask_coordinator = ask_coordinator
        self._on_empty = on_empty
        self._at_work = False
        self._paused = False
        self._answer: Answer | None = None
        self._guard = 0
        self._begin_next()

    def _begin_next(self) -> None:
        """Begin the verification of the next append, with a new time limit."""
        self._since_ms = self._clock.monotonic_ms()
        self._delay_ms = RETRY_FIRST_MS

    def proceed(self) -> None:
        """Append the queued batches until a batch has to wait for the coordinator. When the
        coordinator answers, this method is called again."""
        if self._at_work or self._paused:
            return
        self._at_work = True
        try:
            while self.waiting:
                verdict = self._verdict(self.waiting[0])
                if verdict is None:
                    return
                self.waiting.popleft().done(verdict)
                self._begin_next()
        finally:
            self._at_work = False
        self._on_empty()

    def _verdict(self, first: UnverifiedAppend) -> ErrorCode | None:
        """The verdict on an append; None while it is unknown."""
        if self._answer is None:
            if _has_open_transaction(first):
                return _E.NONE
            try:
                self._begin_verification(first)
            except StorageError as error:
                return error.error
        answer = self._answer
        if answer is None or not answer.done:
            return None
        self._answer = None
        code = answer.result().get(first.where, _E.UNKNOWN_SERVER_ERROR)
        if code is _E.NONE and not self._is_still_verified(first):
            # The answer is about the previous transaction, which a marker has ended since the
            # request (T-68).
            code = _E.CONCURRENT_TRANSACTIONS
        if code is _E.CONCURRENT_TRANSACTIONS and self._pause():
            return None
        if code is not _E.NONE and code not in TRANSIENT_ERRORS:
            # A log that was deleted or went offline meanwhile has no sequences to remember.
            with suppress(StorageError):
                _producers(first).verifications.refuse(first.producer_id)
        return code

    def _begin_verification(self, first: UnverifiedAppend) -> None:
        self._guard = first.partition.log.producers.begin_verification(
            first.producer_id,
            first.producer_epoch,
            first.base_sequence,
            must_start_at_zero=first.add,
            now_ms=self._clock.wall_ms(),
        )
        answer = self._answer = self._ask_coordinator(first)
        if not answer.done:
            answer.then(lambda _: self.proceed())

    def _is_still_verified(self, first: UnverifiedAppend) -> bool:
        if _has_open_transaction(first):
            return True
        return _producers(first).verifications.is_verified(first.producer_id, self._guard)

    def _pause(self) -> bool:
        """Send the request again after a pause; False if the time limit has passed."""
        waited_ms = self._clock.monotonic_ms() - self._since_ms
        if waited_ms >= RETRY_TOTAL_MS:
            return False
        self._paused = True
        self._scheduler.call_later(self._delay_ms, self._resume)
        self._delay_ms = min(self._delay_ms * 2, RETRY_LONGEST_MS)
        return True

    def _resume(self) -> None:
        self._paused = False
        self.proceed()


def _producers(append: UnverifiedAppend) -> ProducerStateManager:
    return append.partition.log.producers


def _has_open_transaction(append: UnverifiedAppend) -> bool:
    """True if the transaction is open under this producer epoch (T-62); an older epoch belongs to
    another transaction (T-68)."""
    try:
        producers = _producers(append)
    except StorageError:
        return True  # The append itself will report the error of the partition.
    return producers.has_open_transaction(append.producer_id, append.producer_epoch)
