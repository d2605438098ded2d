"""A transaction coordinator that knows what the test tells it, and answers when the test says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek_broker.coordinator.transactions.interfaces import TopicPartition
from odradek_broker.later import Later
from odradek_broker.transaction_gate import TransactionGate
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records import BatchBuilder
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek_protocol.schemas.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

PRODUCER = 4000
READ_COMMITTED = 1

Answer = Later[Mapping[TopicPartition, ErrorCode]]


@dataclass(frozen=True)
class Question:
    """What a partition's leader asked."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    add: bool


@dataclass
class FakeVerifier:
    """`error` goes for every partition; while `holding`, answers wait for `release`."""

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
        answer: Answer = Later()
        if self.holding:
            self._held.append((question, answer))
        else:
            answer.resolve(dict.fromkeys(question.partitions, self.error))
        return answer

    @property
    def held(self) -> int:
        return len(self._held)

    def release(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest question."""
        question, answer = self._held.pop(0)
        answer.resolve(dict.fromkeys(question.partitions, error))

    def install(self, node: Any) -> None:
        """Be the coordinator that this node's partitions ask."""
        node.gate = TransactionGate(node, self)


def transactional_batch(
    sequence: int,
    *values: bytes,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    transactional: bool = True,
) -> Any:
    builder = BatchBuilder()
    for value in values or (b"%d" % sequence,):
        builder.append(1_700_000_000_000, None, value)
    return builder.build(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def transactional_produce(
    batch: Any,
    *more: Any,
    topic: str = "t",
    transactional_id: str | None = "tx",
    acks: int = -1,
    timeout_ms: int = 20_000,
) -> ProduceRequest:
    """One batch for each partition from 0 on."""
    parts = [
        PartitionProduceData(index=index, records=data) for index, data in enumerate((batch, *more))
    ]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=parts)],
    )


def marker_request(
    *,
    commit: bool = True,
    producer_id: int = PRODUCER,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
    topic: str = "t",
    partitions: Iterable[int] = (0,),
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=epoch,
                transaction_result=commit,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
                coordinator_epoch=coordinator_epoch,
                transaction_version=version,
            )
        ]
    )


def marker_codes(response: Any) -> list[int]:
    """All codes of a WriteTxnMarkers answer, in order."""
    return [
        partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    ]


def fetch_request(
    offset: int = 0,
    *,
    topic: str = "t",
    isolation: int = READ_COMMITTED,
    max_wait_ms: int = 0,
    max_bytes: int = 1 << 20,
) -> FetchRequest:
    """For Fetch up to version 12, which names topics."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
