"""Requests that the network delayed past the end of their transaction, and requests of fenced
producers.

Version 2 of the transaction protocol refuses all these requests. Version 1 cannot distinguish the
transactions of one producer. The tests show which requests version 1 accepts, because Kafka accepts
the same requests, and users have to know (T-30, T-62, T-63).
"""

from __future__ import annotations

from typing import Any

import pytest

from broker_in_loop import RunningBroker
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek_protocol.schemas.describe_transactions import DescribeTransactionsRequest
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from raw_client import RawClient
from raw_transactions import fetch_request, transactional_batch, transactional_produce
from waiting import until

E = ErrorCode
S = TransactionState
ID = "tx"
Identity = tuple[int, int]
RESULTS = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


class Transactions:
    """A producer of raw requests, with topic `t`; `version` is that of the transaction protocol, 1
    or 2."""

    def __init__(self, client: RawClient, broker: RunningBroker, version: int) -> None:
        self._client, self._broker, self._version = client, broker, version
        self.who: Identity = (-1, -1)

    async def init(self, who: Identity = (-1, -1)) -> Identity:
        await self._client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 6)
        request = InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=60_000,
            producer_id=who[0],
            producer_epoch=who[1],
        )
        answer: Any = None

        async def answered() -> bool:
            nonlocal answer
            answer = await self._client.call(request, 5)
            return bool(answer.error_code != E.CONCURRENT_TRANSACTIONS)

        while not await answered():
            await self.complete()
        assert answer.error_code == E.NONE
        self.who = (answer.producer_id, answer.producer_epoch)
        return self.who

    async def add(self, who: Identity) -> ErrorCode:
        """Send AddPartitionsToTxn. A producer of version 1 has to send this request before
        Produce."""
        answer = await self._client.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=who[0],
                v3_and_below_producer_epoch=who[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
            ),
            3,
        )
        (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
        return ErrorCode(result.partition_error_code)

    async def write(self, who: Identity, sequence: int, value: bytes) -> ErrorCode:
        batch = transactional_batch(sequence, value, producer_id=who[0], epoch=who[1])
        request = transactional_produce(batch, transactional_id=ID)
        response = await self._client.call(request, 10 + self._version)
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def begin(self, who: Identity, sequence: int, value: bytes) -> None:
        if self._version == 1:
            assert await self.add(who) is E.NONE
        assert await self.write(who, sequence, value) is E.NONE
        assert self.state() is S.ONGOING

    async def end(self, who: Identity, commit: bool) -> tuple[ErrorCode, Identity]:
        request = EndTxnRequest(
            transactional_id=ID, producer_id=who[0], producer_epoch=who[1], committed=commit
        )
        answer = await self._client.call(request, 3 + self._version)
        following = (answer.producer_id, answer.producer_epoch) if self._version == 2 else who
        return ErrorCode(answer.error_code), following

    async def ended(self, who: Identity, commit: bool) -> Identity:
        """End the transaction, and wait for its markers; returns the identity for the next
        transaction."""
        error, following = await self.end(who, commit)
        assert error is E.NONE
        await self.complete()
        return following

    async def complete(self) -> None:
        """Wait until the markers are written and the completed transaction is durable."""
        await until(lambda: self.state() in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT))
        await self._client.call(DescribeTransactionsRequest(transactional_ids=[ID]), 0)

    def state(self) -> TransactionState:
        found: TransactionState = self._broker.node.transactions.transaction(ID).state
        return found

    @property
    def last_stable_offset(self) -> tuple[int, int]:
        """(last stable offset, log end offset) of the partition."""
        log = self._broker.node.partition("t", 0).log
        return log.last_stable_offset, log.log_end_offset

    async def aborted(self) -> list[int]:
        """The first offsets of the aborted transactions that fetches of committed records
        report."""
        found: set[int] = set()
        # one fetch reports only the aborted transactions of one segment
        for offset in range(self.last_stable_offset[1]):
            response = await self._client.call(fetch_request(offset), 11)
            (part,) = response.responses[0].partitions
            found.update(each.first_offset for each in part.aborted_transactions)
        return sorted(found)


@pytest.fixture
async def v1(client: RawClient, broker: RunningBroker) -> Transactions:
    await client.create_topic("t")
    return Transactions(client, broker, 1)


@pytest.fixture
async def v2(client: RawClient, broker: RunningBroker) -> Transactions:
    await client.create_topic("t")
    return Transactions(client, broker, 2)


# --- EndTxn that arrives when the next transaction is open ---


@RESULTS
async def test_t63_v2_a_delayed_end_does_not_end_the_next_transaction(
    v2: Transactions, commit: bool
) -> None:
    first = await v2.init()
    await v2.begin(first, 0, b"of the first")
    second = await v2.ended(first, commit)
    await v2.begin(second, 0, b"of the second")
    error, _ = await v2.end(first, commit)
    assert error is E.PRODUCER_FENCED
    assert v2.state() is S.ONGOING
    third = await v2.ended(second, True)
    assert third == (second[0], second[1] + 1)
    assert v2.state() is S.COMPLETE_COMMIT


@RESULTS
async def test_t30_v1_a_delayed_end_ends_the_next_transaction(
    v1: Transactions, commit: bool
) -> None:
    """Version 1 has one epoch for all transactions of a producer, so a delayed EndTxn ends the next
    transaction too early. Later batches of that transaction are refused."""
    who = await v1.init()
    await v1.begin(who, 0, b"of the first")
    assert await v1.ended(who, commit) == who
    await v1.begin(who, 1, b"of the second")
    error, _ = await v1.end(who, commit)
    assert error is E.NONE, "Kafka takes it for the end of the second as well"
    await v1.complete()
    assert v1.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    # The producer learns that its transaction has ended: the next batch is refused.
    assert await v1.write(who, 2, b"of the second, too") is E.TRANSACTION_ABORTABLE
    assert await v1.aborted() == ([] if commit else [0, 2])


# --- Records that arrive after the end of their transaction ---


async def test_t63_v2_records_delayed_past_the_abort_are_refused(
    v2: Transactions,
) -> None:
    first = await v2.init()
    await v2.begin(first, 0, b"in time")
    second = await v2.ended(first, False)
    assert await v2.write(first, 1, b"too late") is E.INVALID_PRODUCER_EPOCH
    assert v2.last_stable_offset == (2, 2), "nothing is open, nobody waits"
    await v2.begin(second, 0, b"of the second")
    assert await v2.write(first, 1, b"too late") is E.INVALID_PRODUCER_EPOCH
    await v2.ended(second, True)
    assert v2.last_stable_offset == (4, 4)
    assert await v2.aborted() == [0]


async def test_t62_v1_records_delayed_past_the_abort_are_refused(
    v1: Transactions,
) -> None:
    who = await v1.init()
    await v1.begin(who, 0, b"in time")
    await v1.ended(who, False)
    assert await v1.write(who, 1, b"too late") is E.TRANSACTION_ABORTABLE
    assert v1.last_stable_offset == (2, 2), "nothing is open, nobody waits"


async def test_t62_v1_records_delayed_past_the_abort_get_into_the_next_transaction(
    v1: Transactions,
) -> None:
    """With version 1, the leader cannot recognize a delayed record of the previous transaction once
    the partition is part of the next transaction."""
    who = await v1.init()
    await v1.begin(who, 0, b"in time")
    await v1.ended(who, False)
    assert await v1.add(who) is E.NONE
    assert await v1.write(who, 1, b"of the aborted one") is E.NONE
    await v1.ended(who, True)
    assert await v1.aborted() == [0], "it was committed with the second transaction"
    assert v1.last_stable_offset == (4, 4)


# --- The same end again ---


@RESULTS
async def test_t65_v2_an_end_sent_again_gets_the_same_answer(
    v2: Transactions, commit: bool
) -> None:
    first = await v2.init()
    await v2.begin(first, 0, b"once")
    second = await v2.ended(first, commit)
    before = v2.last_stable_offset
    for _ in range(2):
        assert await v2.end(first, commit) == (E.NONE, second)
        error, _ = await v2.end(first, not commit)
        assert error is E.INVALID_TXN_STATE
    assert v2.last_stable_offset == before == (2, 2), "no second marker"
    # Another InitProducerId fences the producer, and so its retry.
    await v2.init(second)
    error, _ = await v2.end(first, commit)
    assert error is E.PRODUCER_FENCED
    assert v2.last_stable_offset == before


@RESULTS
async def test_t30_v1_an_end_sent_again_gets_the_same_answer(
    v1: Transactions, commit: bool
) -> None:
    who = await v1.init()
    await v1.begin(who, 0, b"once")
    await v1.ended(who, commit)
    for _ in range(2):
        assert (await v1.end(who, commit))[0] is E.NONE
        assert (await v1.end(who, not commit))[0] is E.INVALID_TXN_STATE
    assert v1.last_stable_offset == (2, 2), "no second marker"
    await v1.init()
    assert (await v1.end(who, commit))[0] is E.PRODUCER_FENCED


# --- A producer whose successor has begun ---


def add_offsets(who: Identity) -> Message:
    return AddOffsetsToTxnRequest(
        transactional_id=ID, producer_id=who[0], producer_epoch=who[1], group_id="g"
    )


def commit_offsets(who: Identity) -> Message:
    return TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id="g",
        producer_id=who[0],
        producer_epoch=who[1],
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
        ],
    )


@pytest.mark.parametrize("version", [1, 2])
async def test_t56_a_fenced_producer_cannot_write_commit_offsets_or_end(
    client: RawClient, broker: RunningBroker, version: int
) -> None:
    await client.create_topic("t")
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
    transactions = Transactions(client, broker, version)
    zombie = await transactions.init()
    await transactions.begin(zombie, 0, b"of the zombie")
    heir = await transactions.init()
    assert heir[0] == zombie[0] and heir[1] > zombie[1]
    await transactions.begin(heir, 0, b"of the heir")
    end_before = transactions.last_stable_offset[1]

    assert await transactions.write(zombie, 1, b"again") is E.INVALID_PRODUCER_EPOCH
    assert await transactions.add(zombie) is E.PRODUCER_FENCED
    added = await client.call(add_offsets(zombie), 2 + version)
    assert added.error_code == E.PRODUCER_FENCED
    committed = await client.call(commit_offsets(zombie), 3 + version)
    assert committed.topics[0].partitions[0].error_code == E.INVALID_PRODUCER_EPOCH
    for commit in (True, False):
        error, _ = await transactions.end(zombie, commit)
        assert error is E.PRODUCER_FENCED

    assert transactions.state() is S.ONGOING
    assert transactions.last_stable_offset[1] == end_before
    await transactions.ended(heir, True)
    assert transactions.state() is S.COMPLETE_COMMIT
    assert await transactions.aborted() == [0]
