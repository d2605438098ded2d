"""The transaction coordinator in a running broker: over sockets, through partitions and
restarts."""

from __future__ import annotations

from typing import Any

import pytest

from broker_in_loop import RunningBroker, StartBroker
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_protocol.constants import MAX_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raw_client import RawClient, batch_of, produce_request
from raw_transactions import fetch_request, transactional_batch, transactional_produce
from waiting import until

E = ErrorCode
S = TransactionState
ID = "tx"
Identity = tuple[int, int]


async def init(client: RawClient) -> Identity:
    await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 6)
    answer = await client.call(
        InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 5
    )
    assert answer.error_code == E.NONE
    return answer.producer_id, answer.producer_epoch


async def add(client: RawClient, who: Identity) -> None:
    answer = await client.call(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
    )
    (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code == E.NONE


async def produce(client: RawClient, who: Identity, version: int) -> int:
    batch = transactional_batch(0, producer_id=who[0], epoch=who[1])
    response = await client.call(transactional_produce(batch, transactional_id=ID), version)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


async def end(client: RawClient, who: Identity, version: int, commit: bool = True) -> Any:
    request = EndTxnRequest(
        transactional_id=ID, producer_id=who[0], producer_epoch=who[1], committed=commit
    )
    answer = await client.call(request, version)
    assert answer.error_code == E.NONE
    return answer


async def batches(client: RawClient) -> list[tuple[int, int, bool]]:
    """(producer id, epoch, True for a marker) of all batches in t-0."""
    found: list[tuple[int, int, bool]] = []
    offset = 0
    while True:
        response = await client.call(fetch_request(offset, isolation=0), 11)
        data = response.responses[0].partitions[0].records
        if not data:
            return found
        for _, header in iter_batches(data):
            found.append((header.producer_id, header.producer_epoch, header.is_control))
            offset = header.next_offset


def state(broker: RunningBroker) -> TransactionState:
    found: TransactionState = broker.node.transactions.transaction(ID).state
    return found


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
async def test_a_transaction_of_version_1_is_committed_under_its_epoch(
    start_broker: StartBroker, durability: str
) -> None:
    broker = await start_broker(log_durability=durability)
    client = await broker.client()
    await client.create_topic("t")
    who = await init(client)
    await add(client, who)
    assert await produce(client, who, 11) == E.NONE
    await end(client, who, 4)
    await until(lambda: state(broker) is S.COMPLETE_COMMIT)
    assert await batches(client) == [(*who, False), (*who, True)]


async def test_l53_read_committed_finds_no_largest_timestamp_in_an_open_transaction(
    start_broker: StartBroker,
) -> None:
    """It does not find the next largest timestamp either."""
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    await client.call(produce_request("t", batch_of(b"older", timestamp_ms=1)), 9)
    who = await init(client)
    await add(client, who)
    assert await produce(client, who, 11) == E.NONE
    asked = ListOffsetsPartition(partition_index=0, timestamp=MAX_TIMESTAMP)
    found = []
    for level in (READ_UNCOMMITTED, READ_COMMITTED):
        topics = [ListOffsetsTopic(name="t", partitions=[asked])]
        answer = await client.call(ListOffsetsRequest(isolation_level=level, topics=topics), 7)
        found.append(answer.topics[0].partitions[0].offset)
    assert found == [1, -1]


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
async def test_each_transaction_of_version_2_ends_under_a_new_epoch(
    start_broker: StartBroker, durability: str
) -> None:
    broker = await start_broker(log_durability=durability)
    client = await broker.client()
    await client.create_topic("t")
    who = await init(client)
    expected = []
    for commit in (True, False, True):
        assert await produce(client, who, 12) == E.NONE
        answer = await end(client, who, 5, commit)
        following = (answer.producer_id, answer.producer_epoch)
        assert following == (who[0], who[1] + 1)
        expected += [(*who, False), (*following, True)]
        who = following
    await until(lambda: state(broker) is S.COMPLETE_COMMIT)
    assert await batches(client) == expected


async def test_t57_every_start_of_the_broker_raises_the_coordinator_epoch(
    start_broker: StartBroker,
) -> None:
    settings = {"transaction_state_log_num_partitions": "3"}
    broker = await start_broker(**settings)
    client = await broker.client()
    await client.create_topic("t")
    who = await init(client)
    for start in range(1, 4):
        await broker.stop()
        broker = await start_broker(**settings)
        client = await broker.client()
        epochs = [
            broker.node.metadata.leader_epoch_of("__transaction_state", index) for index in range(3)
        ]
        assert epochs == [start] * 3
        assert broker.node.metadata.leader_epoch_of("t", 0) == 0
        await until(lambda: broker.node.transactions.transaction(ID))  # noqa: B023
        assert await init(client) == (who[0], start)


async def test_t57_markers_after_a_restart_carry_the_new_epoch(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    who = await init(client)
    await add(client, who)
    assert await produce(client, who, 11) == E.NONE
    await broker.stop()
    broker = await start_broker()
    client = await broker.client()
    await until(lambda: broker.node.transactions.transaction(ID))
    assert state(broker) is S.ONGOING
    await end(client, who, 4)
    await until(lambda: state(broker) is S.COMPLETE_COMMIT)
    entry = broker.node.partition("t", 0).log.producers.entry(who[0])
    assert entry.coordinator_epoch == 1


async def test_t55_a_timed_out_transaction_is_aborted_in_its_partitions(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms="20")
    client = await broker.client()
    await client.create_topic("t")
    await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 6)
    answer = await client.call(
        InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1), 5
    )
    who = (answer.producer_id, answer.producer_epoch)
    await add(client, who)
    await until(lambda: state(broker) is S.COMPLETE_ABORT)
    assert (await batches(client))[-1] == (who[0], who[1] + 1, True)
    assert await produce(client, who, 11) == E.INVALID_PRODUCER_EPOCH
