"""A transactional id whose epochs run out at 32766 gets another producer id (T-13), and no producer
fences itself.

The tests of the whole sequence, with 33,000 identities of one transactional id, are slow (about a
minute for each test):

    pytest -m slow tests/broker/coordinator/transactions/test_epoch_exhaustion.py

By default the tests begin shortly before the last epoch, with the stored state of a transactional
id that has used all earlier epochs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka.client
import confluent_kafka
import pytest
from aiokafka.protocol.transaction import InitProducerIdRequest
from kafka.net.compat import KafkaNetClient
from kafka.protocol.producer.transaction import InitProducerIdRequest as RecoveryRequest

from broker_in_loop import RunningBroker, StartBroker
from broker_process import BrokerProcess
from foreign_topics import create_topic
from foreign_transactions import CLIENTS
from odradek import Consumer, Producer
from odradek_broker.coordinator.shards import partition_for
from odradek_broker.coordinator.transactions.transaction import (
    Transaction,
    TransactionState,
    encode,
)
from odradek_broker.metadata.cluster import TRANSACTIONS_TOPIC
from transactional_clients import transactional
from waiting import until

ID = "worn-out"
LAST_EPOCH = 32_766
IDENTITIES = 33_000
#: The number of epochs left when the short tests begin.
STEPS = 6

Identity = tuple[int, int]


# --- The requests of libraries ---


@asynccontextmanager
async def new_instances(address: str) -> AsyncIterator[Callable[[], Awaitable[Identity]]]:
    """A function that sends InitProducerId with aiokafka, each time as a new producer with the same
    transactional id."""
    client = aiokafka.client.AIOKafkaClient(bootstrap_servers=address)
    await client.bootstrap()
    try:
        node_id = await client.coordinator_lookup(aiokafka.client.CoordinationType.TRANSACTION, ID)
        request = InitProducerIdRequest(ID, 60_000)

        async def ask() -> Identity:
            while True:
                answer = await client.send(
                    node_id, request, group=aiokafka.client.ConnectionGroup.COORDINATION
                )
                if answer.error_code == 0:
                    return answer.producer_id, answer.producer_epoch
                assert answer.error_code == 14, "the coordinator is loading, and no other error"
                await asyncio.sleep(0.01)

        await client.ready(node_id, group=aiokafka.client.ConnectionGroup.COORDINATION)
        yield ask
    finally:
        await client.close()


class Recoveries:
    """Sends InitProducerId with kafka-python, each time with the identity of the last answer
    (KIP-360)."""

    def __init__(self, address: str) -> None:
        self._client = KafkaNetClient(bootstrap_servers=address)
        self._node = self._client.least_loaded_node(bootstrap_fallback=True)
        self._client.await_ready(self._node)
        self._held: Identity = (-1, -1)

    def __call__(self) -> Identity:
        request = RecoveryRequest[4](
            transactional_id=ID,
            transaction_timeout_ms=60_000,
            producer_id=self._held[0],
            producer_epoch=self._held[1],
        )
        answer = self._client.send_and_receive(self._node, request)
        assert answer.error_code == 0, answer
        self._held = (answer.producer_id, answer.producer_epoch)
        return self._held

    def close(self) -> None:
        self._client.close()


def assert_each_is_new(found: list[Identity]) -> None:
    """Check that epochs rise by one up to the last, and begin at 0 with another producer id."""
    for before, after in itertools.pairwise(found):
        if before[1] < LAST_EPOCH:
            assert after == (before[0], before[1] + 1)
        else:
            assert after[0] > before[0] and after[1] == 0
    assert len({producer_id for producer_id, _ in found}) == 2


def commit_and_read(address: str, expected: list[bytes]) -> None:
    """Check that another producer works: librdkafka commits a record, and then reads all committed
    records."""
    client = CLIENTS[0]
    with transactional(client, address, ID) as producer:
        producer.begin()
        producer.send("t", b"last")
        producer.commit()
    assert client.read(address, "t", b"last") == [*expected, b"last"]


# --- The last steps ---


async def near_the_end(start_broker: StartBroker, **fields: Any) -> RunningBroker:
    """A broker whose disk has a transactional id with STEPS - 1 epochs left."""
    broker = await start_broker()
    address = f"{broker.host}:{broker.port}"
    await asyncio.to_thread(create_topic, address, "t")
    async with new_instances(address) as ask:
        producer_id, _ = await ask()
    node = broker.node
    worn = Transaction(
        ID, producer_id, LAST_EPOCH - STEPS + 1, 60_000, TransactionState.EMPTY, **fields
    )
    index = partition_for(ID, node.metadata.partition_count(TRANSACTIONS_TOPIC))
    written = node.partition(TRANSACTIONS_TOPIC, index).append_internal(
        [encode(worn)], node.clock.wall_ms()
    )
    await until(lambda: written.done)
    await broker.stop()
    broker = await start_broker()
    await until(lambda: broker.node.transactions.transaction(ID) is not None)
    assert broker.node.transactions.transaction(ID).epoch == worn.epoch
    return broker


async def test_t13_new_instances_get_another_producer_id_after_the_last_epoch(
    start_broker: StartBroker,
) -> None:
    broker = await near_the_end(start_broker)
    address = f"{broker.host}:{broker.port}"
    async with new_instances(address) as ask:
        found = [await ask() for _ in range(STEPS + 5)]
    assert found[0][1] == LAST_EPOCH - STEPS + 2
    assert_each_is_new(found)
    await asyncio.to_thread(commit_and_read, address, [])


async def test_t13_recoveries_get_another_producer_id_after_the_last_epoch(
    start_broker: StartBroker,
) -> None:
    broker = await near_the_end(start_broker)
    address = f"{broker.host}:{broker.port}"

    def recover() -> list[Identity]:
        ask = Recoveries(address)
        try:
            return [ask() for _ in range(STEPS + 5)]
        finally:
            ask.close()

    assert_each_is_new(await asyncio.to_thread(recover))
    await asyncio.to_thread(commit_and_read, address, [])


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
@pytest.mark.full
async def test_t13_producers_of_other_libraries_continue_after_the_last_epoch(
    start_broker: StartBroker, client: Any
) -> None:
    """Real producers, one after the other, each with a transaction."""
    broker = await near_the_end(start_broker)
    address = f"{broker.host}:{broker.port}"

    def run() -> list[bytes]:
        values = []
        for number in range(STEPS + 3):
            with transactional(client, address, ID) as producer:
                producer.begin()
                values.append(b"%d" % number)
                producer.send("t", values[-1])
                producer.commit()
        return values

    values = await asyncio.to_thread(run)
    await asyncio.to_thread(commit_and_read, address, values)


async def run_transactions(address: str, count: int, epoch: int | None = None) -> set[Identity]:
    """Run `count` transactions with one Odradek producer, and abort every third. Returns the
    identities of the producer."""
    identities = set()
    async with Producer(bootstrap_servers=address, transactional_id=ID) as producer:
        await producer.init_transactions()
        for number in range(count):
            await producer.begin_transaction()
            await producer.send("t", b"%d" % number)
            identities.add(await producer_identity(producer))
            if number % 3:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
    return identities


async def producer_identity(producer: Any) -> Identity:
    """The producer id and epoch of the producer's batches."""
    await producer.flush()
    held = producer.transaction_manager.identity
    return held.producer_id, held.epoch


async def assert_committed(address: str, count: int) -> None:
    expected = [b"%d" % number for number in range(count) if number % 3]
    found: list[bytes] = []
    async with Consumer(bootstrap_servers=address, isolation_level="read_committed") as consumer:
        consumer.assign([("t", 0)])
        await consumer.seek_to_beginning()
        async with asyncio.timeout(120):
            while len(found) < len(expected):
                found += [bytes(record.value) for record in await consumer.poll(1_000)]
    assert found == expected


async def test_t64_t66_our_producer_continues_after_the_last_epoch(
    start_broker: StartBroker,
) -> None:
    broker = await near_the_end(start_broker, client_version=2)
    address = f"{broker.host}:{broker.port}"
    identities = await run_transactions(address, STEPS + 5)
    assert len(identities) == STEPS + 5, "version 2: each transaction has its own"
    assert len({producer_id for producer_id, _ in identities}) == 2
    assert max(epoch for _, epoch in identities) == LAST_EPOCH
    await assert_committed(address, STEPS + 5)


# --- The whole sequence ---


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path, ["log.durability=page-cache", "num.partitions=1"])
    broker.start()
    create_topic(broker.address, "t")
    yield broker
    broker.stop()


@pytest.mark.slow
async def test_t13_33000_instances_of_another_library_get_new_identities(
    process: BrokerProcess,
) -> None:
    async with new_instances(process.address) as ask:
        found = [await ask() for _ in range(IDENTITIES)]
    assert found[0][1] == 0
    assert len(set(found)) == IDENTITIES
    assert_each_is_new(found)
    await asyncio.to_thread(commit_and_read, process.address, [])


@pytest.mark.slow
def test_t13_33000_recoveries_of_another_library_get_new_identities(process: BrokerProcess) -> None:
    consumer = confluent_kafka.Producer(
        {"bootstrap.servers": process.address, "transactional.id": ID, "log_level": 0}
    )
    consumer.init_transactions(30)
    ask = Recoveries(process.address)
    try:
        found = [ask() for _ in range(IDENTITIES)]
    finally:
        ask.close()
    assert len(set(found)) == IDENTITIES
    assert_each_is_new(found)
    commit_and_read(process.address, [])


@pytest.mark.slow
async def test_t64_33000_transactions_of_version_2_get_new_identities(
    process: BrokerProcess,
) -> None:
    identities = await run_transactions(process.address, IDENTITIES)
    assert len(identities) == IDENTITIES
    assert len({producer_id for producer_id, _ in identities}) == 2
    assert max(epoch for _, epoch in identities) == LAST_EPOCH
    await assert_committed(process.address, IDENTITIES)
