"""Random runs of a transactional producer against a model of the broker, in virtual time and
without a loop.

One seed determines losses, refusals, delays, lost connections, the times of markers, and the
upgrade of the cluster to version 2 of transactions. At the end the complete records of each
committed transaction must be visible in order and once, and no other records (C-05, T-68).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

import budget
from odradek_client.backoff import Backoff
from odradek_client.errors import Abortable, ConnectionLost, Fatal, ProducerFenced
from odradek_client.producer.sender import Produce, Sender
from odradek_client.producer.transaction_manager import TransactionManager
from odradek_client.producer.transaction_requests import (
    RequestPriority,
    TransactionCall,
    TxnRequestHandler,
)
from odradek_client.producer.transaction_states import ClientTxnState
from odradek_client.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    TopicPartition,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.produce import PartitionProduceResponse, ProduceResponse
from producer_world import Sending, World, response
from scripted_broker import PartitionLog
from transaction_model import TransactionModel
from transaction_refusals import refusal

_E = ErrorCode
GROUP = ConsumerGroupMetadata("g", 1, "m")
HELD = [_E.COORDINATOR_LOAD_IN_PROGRESS, _E.NOT_COORDINATOR, _E.COORDINATOR_NOT_AVAILABLE]


@dataclass
class Transaction:
    """A transaction: its records, and its outcome as far as the application knows it."""

    records: list[Sending] = field(default_factory=list)
    offset: int = -1
    committed: bool | None = None


class TransactionWorld(World):
    """A World whose producer has a transactional id."""

    def __init__(self, *, level: int, seed: int = 0, partitions: int = 3, **settings: Any) -> None:
        super().__init__(
            seed=seed, partitions=partitions, transactional_id="id", linger_ms=5, **settings
        )
        self.level = level
        self.model = TransactionModel(lambda _, index: self.logs[index])
        self.asks: deque[tuple[TxnRequestHandler, Any, int]] = deque()
        self.history: list[Transaction] = []
        self.tm = self.producer()

    def producer(self) -> TransactionManager:
        """Create a new instance of the producer, without the state of the old instance."""
        backoff = Backoff(100, 1000, self.random)
        manager = TransactionManager(
            "id",
            60_000,
            new_future=None,  # type: ignore[arg-type]
            feature_level=lambda: self.level,
            backoff=backoff,
        )
        self.transactions = manager
        self.sender = Sender(self.config, self.cluster, self.accumulator, manager, backoff)
        return manager

    def set_aside(self) -> tuple[Any, ...]:
        """Interrupt the producer in its work, lose its requests, and replace it by a new producer.
        Returns the old producer."""
        old = (self.tm, self.sender, self.accumulator)
        for node in (1, 2):
            self.lose(node, written=False)
        while self.asks:
            self.lose_ask(carried_out=False)
        self.accumulator = self.new_accumulator()
        self.tm = self.producer()
        return old

    def take_back(self, other: tuple[Any, ...]) -> tuple[Any, ...]:
        """Continue with another instance. Returns the instance that was replaced."""
        present = (self.tm, self.sender, self.accumulator)
        self.tm, self.sender, self.accumulator = other
        self.transactions = self.tm
        return present

    # --- network ----------------------------------------------------------------------------------

    def step(self, *, identity: bool = True) -> int:
        plan = self.sender.step(self.now_ms, lambda node: True)
        self.failed += plan.failed
        assert plan.init_producer_id is None, "only a coordinator gives a transactional identity"
        if plan.txn_request is not None:
            message = plan.txn_request.message(self.tm.identity)
            newest = {
                RequestPriority.INIT: 5,
                RequestPriority.BUMP: 5,
                RequestPriority.ADD_OFFSETS: 4,
            }.get(plan.txn_request.kind, 5)
            limit = plan.txn_request.max_version
            version = newest if limit is None else min(newest, limit)
            plan.txn_request.check_version(version, "it")
            self.asks.append((plan.txn_request, message, version))
        for produce in plan.produce:
            limit = self.sender.version_limit(produce.batches)
            version = 13 if limit is None else limit
            request = self.sender.request(produce, version)
            assert request.transactional_id == "id"
            data = {
                part.index: bytes(part.records or b"")
                for topic in request.topic_data
                for part in topic.partition_data
            }
            self.on_wire[produce.node_id].append((produce, (data, version)))
        return len(plan.produce)

    def arrive(self, node: int = 1) -> tuple[Produce, ProduceResponse]:
        produce, (data, version) = self.on_wire[node].popleft()
        answers = []
        for index, records in data.items():
            code, offset = self.model.append("t", index, "id", records, version)
            answers.append(
                PartitionProduceResponse(index=index, error_code=code, base_offset=offset)
            )
        return produce, response(*answers)

    def carry_out(self, ask: TxnRequestHandler, message: Any, version: int) -> Any:
        serve: dict[RequestPriority, Any] = {
            RequestPriority.INIT: self.model.init_producer_id,
            RequestPriority.BUMP: self.model.init_producer_id,
            RequestPriority.ADD_PARTITIONS: self.model.add_partitions,
            RequestPriority.ADD_OFFSETS: self.model.add_offsets,
            RequestPriority.COMMIT_OFFSETS: self.model.commit_offsets,
            RequestPriority.END: self.model.end,
        }
        if isinstance(message, EndTxnRequest):
            assert message.producer_epoch < 32767, "T-66"
        return serve[ask.kind](message, version)

    def answer_ask(self) -> None:
        ask, message, version = self.asks.popleft()
        done = self.carry_out(ask, message, version)
        self.sender.request_answered(ask, done, version, self.now_ms)

    def lose_ask(self, *, carried_out: bool) -> None:
        ask, message, version = self.asks.popleft()
        if carried_out:
            self.carry_out(ask, message, version)
        self.sender.request_failed(ask, ConnectionLost("cut"), self.now_ms)

    def refuse_ask(self, code: ErrorCode) -> None:
        ask, _, version = self.asks.popleft()
        self.sender.request_answered(ask, refusal(ask, code), version, self.now_ms)

    def until(self, operation: TransactionCall, trouble: float = 0.0) -> None:
        """Run until an operation ends. `trouble`: the probability of faults in the first 200
        steps."""
        for count in range(4000):
            if operation.done:
                return
            self.happen(trouble if count < 200 else 0.0)
        raise AssertionError(f"{operation.name} never ends; {self.tm.state}")

    def happen(self, trouble: float) -> None:
        rng = self.random
        self.now_ms += rng.choice([0.0, 1.0, 7.0, 60.0, 300.0])
        self.step()
        if rng.random() < 0.3:
            self.model.finish()
        if self.asks:
            luck = rng.random()
            if luck >= trouble:
                self.answer_ask()
            elif luck < trouble * 0.6:
                self.lose_ask(carried_out=rng.random() < 0.5)
            else:
                self.refuse_ask(rng.choice(HELD))
        node = rng.choice([1, 2])
        if not self.on_wire[node]:
            return
        luck = rng.random()
        if luck >= trouble:
            self.answer(node)
        elif luck < trouble * 0.5:
            self.lose(node, written=rng.random() < 0.5)
        elif luck < trouble * 0.9:
            self.answer(node, rng.choice([_E.NOT_ENOUGH_REPLICAS, _E.REQUEST_TIMED_OUT]))
        elif all(b.attempts == 0 for b in self.on_wire[node][0][0].batches):
            self.answer(node, _E.INVALID_RECORD)

    # --- the application --------------------------------------------------------------------------

    def init(self, trouble: float = 0.0) -> None:
        operation = self.tm.lifecycle.operation("init_transactions", self.tm.init)
        self.until(operation, trouble)
        self.tm.lifecycle.seen(operation)

    def transact(self, trouble: float) -> Transaction:
        """Run a transaction, and commit it, or abort it by choice or after an error."""
        rng = self.random
        held = Transaction()
        self.history.append(held)
        self.tm.begin()
        try:
            for _ in range(rng.randrange(0, 12)):
                self.tm.check_open("send")
                self.send(rng.randrange(self.partitions), rng.randrange(1, 250))
                held.records.append(self.sent[-1])
                if rng.random() < 0.5:
                    self.happen(trouble)
            if rng.random() < 0.4:
                offsets = {TopicPartition("in", 0): OffsetAndMetadata(len(self.history))}
                given = self.tm.send_offsets(offsets, GROUP)
                held.offset = len(self.history)
                if rng.random() < 0.7:
                    self.until(given, trouble)
                    self.tm.lifecycle.seen(given)
            if rng.random() < 0.2:
                raise Abortable("the application has changed its mind")
            commit = self.tm.lifecycle.operation("commit_transaction", self.tm.commit)
            self.until(commit, trouble)
            self.tm.lifecycle.seen(commit)
            held.committed = True
        except Abortable:
            held.committed = False
            abort = self.tm.lifecycle.operation("abort_transaction", self.tm.abort)
            self.until(abort, trouble)
            self.tm.lifecycle.seen(abort)
        assert self.tm.state is ClientTxnState.READY
        assert not self.accumulator.incomplete
        return held


def check(world: TransactionWorld) -> None:
    world.model.finish()
    assert world.accumulator.available_bytes == world.accumulator.buffer_memory
    for index in range(world.partitions):
        expected = [
            sent.value
            for held in world.history
            if held.committed
            for sent in held.records
            if sent.partition == index
        ]
        assert world.model.committed("t", index) == expected
    for held in world.history:
        assert held.committed is not None
        for sent in held.records:
            assert sent.delivery.done()
            if held.committed:
                offset = sent.delivery.result().offset
                log: PartitionLog = world.logs[sent.partition]
                assert offset == -1 or log.values[offset] == sent.value
    last = max((h.offset for h in world.history if h.committed), default=-1)
    assert world.model.offsets.get(("g", "in", 0), -1) == last
    decided = [committed for _, committed in world.model.decisions]
    assert decided.count(True) <= sum(h.committed is True for h in world.history)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("seed", budget.of_which(range(40), range(15)))
def test_c05_every_committed_transaction_is_visible_once_and_whole(seed: int, level: int) -> None:
    world = TransactionWorld(level=level, seed=seed, batch_size=300)
    world.model.prompt = seed % 2 == 0
    world.init(0.2)
    for _ in range(25):
        world.transact(0.25)
    check(world)
    assert any(held.committed for held in world.history)


@pytest.mark.parametrize("seed", range(20))
def test_c70_random_transactions_stay_whole_while_the_version_changes(seed: int) -> None:
    world = TransactionWorld(level=0, seed=seed, batch_size=300)
    world.model.prompt = False
    world.init(0.2)
    for number in range(30):
        if number == 10 + seed % 5:
            world.level = 2
        if number == 20 + seed % 5:
            world.level = 1
        world.transact(0.2)
    check(world)


@pytest.mark.parametrize("level", [0, 2])
def test_t66_an_exhausted_epoch_fences_no_producer(level: int) -> None:
    world = TransactionWorld(level=level, seed=3)
    world.init()
    world.model.ids["id"].epoch = 32760
    world.tm.identity = world.tm.identity._replace(epoch=32760)
    for _ in range(20):
        world.tm.begin()
        held = Transaction()
        world.history.append(held)
        world.send(0)
        held.records.append(world.sent[-1])
        if level == 0:
            # In version 1 only a failure leads to the next epoch.
            world.tm.batch_failed(Abortable("x"))
            held.committed = False
            operation = world.tm.lifecycle.operation("abort_transaction", world.tm.abort)
        else:
            held.committed = True
            operation = world.tm.lifecycle.operation("commit_transaction", world.tm.commit)
        world.until(operation)
        world.tm.lifecycle.seen(operation)
    assert world.tm.identity.epoch < 32766
    assert world.tm.identity.producer_id != 101
    check(world)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("seed", range(10))
def test_t56_t59_a_new_instance_fences_the_older_one_and_its_transaction(
    seed: int, level: int
) -> None:
    world = TransactionWorld(level=level, seed=seed, batch_size=300)
    world.init()
    world.transact(0.1)
    old = world.tm
    old.begin()
    doomed = Transaction(committed=False)
    world.history.append(doomed)
    for index in range(3):
        world.send(index)
        doomed.records.append(world.sent[-1])
    while not any(sent.delivery.done() for sent in doomed.records):
        world.happen(0.0)
    aside = world.set_aside()
    world.init()
    world.transact(0.1)
    successor = world.tm
    world.transact(0.1)
    # The old instance returns and tries to continue.
    since = world.take_back(aside)
    commit = old.lifecycle.operation("commit_transaction", old.commit)
    with pytest.raises((Fatal, Abortable)) as refused:
        world.until(commit)
        old.lifecycle.seen(commit)
    if isinstance(refused.value, Abortable):
        abort = old.lifecycle.operation("abort_transaction", old.abort)
        world.until(abort)
        with pytest.raises(Fatal):
            old.lifecycle.seen(abort)
    assert isinstance(old.fatal_error, ProducerFenced)
    assert all(sent.delivery.done() for sent in doomed.records)
    world.take_back(since)
    assert world.tm is successor
    world.transact(0.1)
    check(world)
