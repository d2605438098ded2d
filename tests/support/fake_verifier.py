"""A transaction coordinator for the verification of transactions; a test sets the error and the
time of its responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek_broker.coordinator.transactions.verification import TransactionVerification
from odradek_broker.deferred import Deferred
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

Answer = Deferred[Mapping[TopicPartition, ErrorCode]]


@dataclass(frozen=True)
class Question:
    """A verification request of a partition's leader."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    add: bool


@dataclass
class FakeVerifier:
    """Responds with `error` for every partition. While `holding`, responses wait for `release`."""

    error: ErrorCode = ErrorCode.NONE
    holding: bool = False
    questions: list[Question] = field(default_factory=list)
    _held: list[tuple[Question, Answer]] = field(default_factory=list)

    def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        add: bool,
    ) -> Answer:
        question = Question(transactional_id, producer_id, producer_epoch, tuple(partitions), add)
        self.questions.append(question)
        answer: Answer = Deferred()
        if self.holding:
            self._held.append((question, answer))
        else:
            answer.resolve(dict.fromkeys(question.partitions, self.error))
        return answer

    @property
    def held(self) -> int:
        return len(self._held)

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Send the oldest waiting response."""
        question, answer = self._held.pop(0)
        answer.resolve(dict.fromkeys(question.partitions, error))

    def install(self, node: Any) -> None:
        """Let the node's partitions ask this coordinator."""
        node.verification = TransactionVerification(node.clock, node.scheduler, self)
