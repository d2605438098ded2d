"""The producer's classes without I/O, and a model of the broker, in virtual time and without an
event loop.

A request is in flight until a test delivers, answers or loses it.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from odradek_client.backoff import Backoff
from odradek_client.config.producer import ProducerConfig
from odradek_client.errors import (
    ConnectionLost,
)
from odradek_client.network.cluster import ClusterView
from odradek_client.producer.accumulator import Accumulator
from odradek_client.producer.batch import Delivery, ProducerBatch
from odradek_client.producer.idempotence import IdempotenceManager
from odradek_client.producer.sender import (
    Produce,
    Sender,
)
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_client.structs import TopicPartition
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.init_producer_id import InitProducerIdResponse
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek_protocol.schemas.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from scripted_broker import PartitionLog, topic_id

_T0 = TopicPartition("t", 0)


class World:
    """One producer, two nodes, and virtual time."""

    def __init__(self, *, partitions: int = 1, seed: int = 0, **settings: Any) -> None:
        self.random = random.Random(seed)
        self.config = ProducerConfig.from_settings(settings)
        self.now_ms = 0.0
        self.cluster = ClusterView(10**9)
        self.partitions = partitions
        self.set_leaders([1 + index % 2 for index in range(partitions)], epoch=1)
        self.accumulator = self.new_accumulator()
        self.transactions: IdempotenceManager | TransactionManager | None = (
            IdempotenceManager() if self.config.enable_idempotence else None
        )
        self.sender = Sender(
            self.config,
            self.cluster,
            self.accumulator,
            self.transactions,
            Backoff(self.config.retry_backoff_ms, 1000, self.random),
        )
        self.logs = [PartitionLog() for _ in range(partitions)]
        self.sent: list[Sending] = []
        self.on_wire: dict[int, deque[tuple[Produce, Any]]] = {1: deque(), 2: deque()}
        self.failed: list[ProducerBatch] = []
        self.next_id = 50
        self.refreshes = 0

    def new_accumulator(self) -> Accumulator:
        return Accumulator(
            batch_size=self.config.batch_size,
            linger_ms=self.config.linger_ms,
            buffer_memory=self.config.buffer_memory,
            codec=Codec.of_name(self.config.compression_type),
            delivery_timeout_ms=self.config.delivery_timeout_ms,
            new_future=None,  # type: ignore[arg-type]
        )

    def set_leaders(self, leaders: list[int], epoch: int) -> None:
        self.cluster.update(
            MetadataResponse(
                brokers=[
                    MetadataResponseBroker(node_id=node, host="h", port=node) for node in (1, 2)
                ],
                topics=[
                    MetadataResponseTopic(
                        name="t",
                        topic_id=topic_id("t"),
                        partitions=[
                            MetadataResponsePartition(
                                partition_index=index, leader_id=leader, leader_epoch=epoch
                            )
                            for index, leader in enumerate(leaders)
                        ],
                    )
                ],
            ),
            0.0,
        )

    def send(self, partition: int = 0, size: int = 20) -> Delivery:
        value = b"%d:" % len(self.sent) + b"x" * size
        queue = self.accumulator.queue(TopicPartition("t", partition))
        delivery = queue.try_append(0, None, value, ())
        if delivery is None:
            limit, reserved = self.accumulator.batch_bytes("t", None, value, ())
            batch = self.accumulator.begin(queue, limit, reserved, self.now_ms)
            delivery = Delivery(batch, batch.builder.append(0, None, value, ()))
        self.sent.append(Sending(partition, value, delivery))
        return delivery

    def step(self, *, identity: bool = True) -> int:
        """Do one pass of the sender: it sends the requests that are ready. Returns the number of
        these requests."""
        plan = self.sender.step(self.now_ms, lambda node: True)
        self.failed += plan.failed
        self.refreshes += plan.refresh_metadata
        if plan.init_producer_id is not None and identity:
            self.next_id += 1
            self.sender.identity_answered(
                InitProducerIdResponse(producer_id=self.next_id, producer_epoch=0), self.now_ms
            )
            return self.step()
        for produce in plan.produce:
            request = self.sender.request(produce, 12)
            data = {
                part.index: bytes(part.records or b"")
                for topic in request.topic_data
                for part in topic.partition_data
            }
            self.on_wire[produce.node_id].append((produce, data))
        return len(plan.produce)

    def run(self, ms: float = 20.0) -> int:
        """Let `ms` pass, and then do one pass of the sender."""
        self.now_ms += ms
        return self.step()

    def arrive(self, node: int = 1) -> tuple[Produce, ProduceResponse]:
        """Deliver the oldest request to its broker. Returns the request and the broker's
        response."""
        produce, data = self.on_wire[node].popleft()
        answers = []
        for index, records in data.items():
            code, offset = self.logs[index].append(records)
            answers.append(
                PartitionProduceResponse(index=index, error_code=code, base_offset=offset)
            )
        return produce, response(*answers)

    def answer(self, node: int = 1, *codes: ErrorCode, **extra: Any) -> list[ProducerBatch]:
        """Answer the oldest request with the broker's response. If there are `codes`, answer with
        the first of them instead, and append nothing."""
        if not codes:
            produce, answered = self.arrive(node)
        else:
            produce, _ = self.on_wire[node].popleft()
            answered = response(
                *(
                    PartitionProduceResponse(
                        index=b.tp.partition, error_code=codes[0], base_offset=-1, **extra
                    )
                    for b in produce.batches
                )
            )
        failed = self.sender.answered(produce, answered, self.now_ms)
        self.failed += failed
        return failed

    def lose(self, node: int = 1, *, written: bool) -> None:
        """Break a connection after its oldest request was appended (`written`), or before."""
        if written:
            produce, _ = self.arrive(node)
            self._unanswered(produce)
        for produce, _ in self.on_wire[node]:
            self._unanswered(produce)
        self.on_wire[node].clear()

    def _unanswered(self, produce: Produce) -> None:
        self.failed += self.sender.unanswered(
            produce, ErrorCode.NETWORK_EXCEPTION, ConnectionLost("cut"), self.now_ms
        )

    def settle(self, passes: int = 400) -> None:
        """Run without faults until every record is delivered or has failed."""
        for _ in range(passes):
            for node in (1, 2):
                while self.on_wire[node]:
                    self.answer(node)
            if not self.accumulator.incomplete:
                return
            self.run(50.0)
        raise AssertionError(f"left over: {list(self.accumulator.incomplete)}")


@dataclass
class Sending:
    partition: int
    value: bytes
    delivery: Delivery


def batch(tp: TopicPartition = _T0, count: int = 1) -> ProducerBatch:
    """A closed batch of `count` records, for tests without an event loop: nobody can await it."""
    made = ProducerBatch(tp, Codec.NONE, 1 << 30, 0, 0.0, lambda: None)  # type: ignore[arg-type,return-value]
    for _ in range(count):
        made.builder.append(0, None, b"v", ())
    made.close()
    return made


def response(*answers: PartitionProduceResponse) -> ProduceResponse:
    return ProduceResponse(
        responses=[TopicProduceResponse(name="t", partition_responses=list(answers))]
    )


def known(world: World) -> None:
    """Send one batch and wait for it, so that the broker knows the producer and accepts later
    sequences (P-14)."""
    world.send()
    world.settle()


def check(world: World, *, exactly_once: bool = True) -> None:
    """Check the invariants that hold at the end of any run (C-05)."""
    assert world.accumulator.available_bytes == world.accumulator.buffer_memory
    assert not world.accumulator._active
    for partition, log in enumerate(world.logs):
        sent = [s for s in world.sent if s.partition == partition]
        written = [s for s in sent if s.delivery.exception() is None]
        assert all(s.delivery.done() for s in sent)
        for s in written:
            offset = s.delivery.result().offset
            assert offset == -1 or log.values[offset] == s.value, "the offset told is the record's"
        assert {s.value for s in written} <= set(log.values), "acknowledged, so it is there"
        if exactly_once:
            assert len(log.values) == len(set(log.values)), "once"
            order = {s.value: at for at, s in enumerate(sent)}
            places = [order[value] for value in log.values if value is not None]
            assert places == sorted(places), "in order"
