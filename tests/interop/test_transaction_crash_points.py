"""The crash table T-50: at each point of the table, a broker kills itself while a client waits for
a response.

The processes are real. The broker dies at a fault point (`odradek_broker/platform/fault_points.py`)
and is restarted on the same port; the rule for the point must hold.
`tests/broker/coordinator/transactions/test_transactions_crash.py` tests the same table in memory,
with more variants.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import budget
from crashing_broker import CrashingBroker
from foreign_clients import CLIENTS as PLAIN_CLIENTS
from foreign_clients import Record, Settings
from foreign_topics import create_topic
from foreign_transactions import CLIENTS as FOREIGN
from foreign_transactions import committed_position, end_of_committed
from odradek_broker.platform.fault_points import FaultPoint
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.schemas.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek_protocol.schemas.describe_transactions import DescribeTransactionsRequest
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek_protocol.schemas.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from own_transactions import Own
from raw_client import RawClient
from raw_transactions import fetch_request, transactional_batch, transactional_produce
from transactional_clients import TransactionalClient, transactional

E = ErrorCode
P = FaultPoint
END = b"end"
ID = "tx"
OWN = Own()
PLAIN = Settings(idempotent=False)
SETTINGS = [
    "group.initial.rebalance.delay.ms=0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=100",
]

#: librdkafka uses version 1 of transactions, our client version 2.
BOTH_CLIENTS = pytest.mark.parametrize(
    "client",
    budget.of_which([FOREIGN[0], OWN], [FOREIGN[0]]),
    ids=lambda client: str(client.name),
)
EVERY_CLIENT = pytest.mark.parametrize(
    "client", budget.of_which([*FOREIGN, OWN], [OWN]), ids=lambda client: str(client.name)
)
#: librdkafka's client commits, and our client aborts. Each result is tested with one client,
#: because the broker does the same for both clients in these tests.
EACH_ITS_RESULT = pytest.mark.parametrize(
    ("client", "commit"),
    budget.of_which([(FOREIGN[0], True), (OWN, False)], [(FOREIGN[0], True)]),
    ids=["confluent-kafka", "odradek"],
)
RESULTS = pytest.mark.parametrize(
    "commit", budget.of_which([True, False], [False]), ids=["commit", "abort"]
)


def carried_out(
    client: TransactionalClient,
    folder: Path,
    point: FaultPoint,
    *,
    commit: bool = True,
    nth: int = 1,
    also: Callable[[CrashingBroker], None] = lambda broker: None,
) -> None:
    """Consume, transform and produce while the broker dies, and check that the decision was carried
    out.

    If the decision was to commit, the records are there once and in order, with the group's
    position.
    """
    broker = CrashingBroker(folder, point, SETTINGS, nth=nth)
    broker.start_armed()
    try:
        for topic in ("source", "target"):
            create_topic(broker.address, topic)
        records = [Record(None, b"%d" % number) for number in range(6)]
        PLAIN_CLIENTS[0].produce(broker.address, "source", records, PLAIN)
        values = client.transform(broker.address, "source", "target", "g", 3, commit=commit)
        assert values == [b"0", b"1", b"2"]
        assert broker.has_come_back()
        assert point.value in broker.last_words, "it says that it is armed"
        PLAIN_CLIENTS[0].produce(broker.address, "target", [Record(None, END)], PLAIN)
        assert client.read(broker.address, "target", END) == [*(values if commit else ()), END]
        assert committed_position(broker.address, "g", "source") == (3 if commit else None)
        also(broker)
    finally:
        broker.stop()


def torn_logs(broker: CrashingBroker) -> list[str]:
    """The lines in the broker's log about logs that it truncated when it started."""
    return [line for line in broker.log.splitlines() if "cut off the torn end of a log" in line]


# --- A process and raw requests ---


@asynccontextmanager
async def dying(folder: Path, point: FaultPoint, *, nth: int = 1) -> AsyncIterator[CrashingBroker]:
    broker = CrashingBroker(folder, point, SETTINGS, nth=nth)
    broker.start_armed()
    try:
        client = await connected(broker)
        await client.create_topic("t")
        await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 6)
        client.close()
        yield broker
    finally:
        broker.stop()


async def connected(broker: CrashingBroker) -> RawClient:
    return RawClient(*await asyncio.open_connection("127.0.0.1", broker.port))


async def dies_of(broker: CrashingBroker, request: Message, version: int) -> None:
    """Send a request at which the broker dies. There is no response; returns when the broker is up
    again."""
    client = await connected(broker)
    client.send(request, version)
    assert await client.closed()
    assert broker.has_come_back()
    client.close()


async def told(broker: CrashingBroker, request: Message, version: int) -> Any:
    """Repeat a request on a new connection while the coordinator loads (T-58). Returns the
    response."""
    client = await connected(broker)
    try:
        async with asyncio.timeout(20):
            while True:
                answer = await client.call(request, version)
                if answer.error_code != E.COORDINATOR_LOAD_IN_PROGRESS:
                    return answer
                await asyncio.sleep(0.01)
    finally:
        client.close()


async def becomes(what: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    async with asyncio.timeout(20):
        while await what() != wanted:  # noqa: ASYNC110  another process sets no event
            await asyncio.sleep(0.02)


def init_request(producer_id: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> Message:
    return InitProducerIdRequest(
        transactional_id=ID,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


async def begun(broker: CrashingBroker, timeout_ms: int = 60_000) -> tuple[int, int]:
    answer = await told(broker, init_request(timeout_ms=timeout_ms), 5)
    assert answer.error_code == E.NONE
    return answer.producer_id, answer.producer_epoch


def add_request(who: tuple[int, int]) -> Message:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )


def end_request(who: tuple[int, int], commit: bool = True) -> Message:
    return EndTxnRequest(
        transactional_id=ID, producer_id=who[0], producer_epoch=who[1], committed=commit
    )


async def state(broker: CrashingBroker, name: str = ID) -> Any:
    client = await connected(broker)
    try:
        answer = await client.call(DescribeTransactionsRequest(transactional_ids=[name]), 0)
    finally:
        client.close()
    (found,) = answer.transaction_states
    return found


async def state_name(broker: CrashingBroker) -> str:
    return str((await state(broker)).transaction_state)


async def batches(broker: CrashingBroker) -> list[tuple[int, bool]]:
    """(epoch, True for a marker) of all batches in t-0."""
    found: list[tuple[int, bool]] = []
    offset = 0
    client = await connected(broker)
    try:
        while True:  # A response ends at the end of a segment.
            response = await client.call(fetch_request(offset, isolation=0), 11)
            data = response.responses[0].partitions[0].records
            if not data:
                return found
            for _, header in iter_batches(data):
                found.append((header.producer_epoch, header.is_control))
                offset = header.next_offset
    finally:
        client.close()


# --- T-50a, T-50b: identities ---


@pytest.mark.full
@BOTH_CLIENTS
def test_t50a_a_retried_init_producer_id_raises_the_epoch_again(
    client: TransactionalClient, tmp_path: Path
) -> None:
    def also(broker: CrashingBroker) -> None:
        found = asyncio.run(state(broker, "transform-g"))
        ended = 1 if client is OWN else 0
        assert found.producer_epoch == 1 + ended, "0 was lost; version 2 raises it at the end"

    carried_out(client, tmp_path, P.INIT_PRODUCER_ID_DURABLE, also=also)


@pytest.mark.full
async def test_t50a_a_recovery_without_answer_is_answered_with_the_same_epoch(
    tmp_path: Path,
) -> None:
    async with dying(tmp_path, P.INIT_PRODUCER_ID_DURABLE, nth=2) as broker:
        who = await begun(broker)
        await dies_of(broker, init_request(*who), 5)
        for _ in range(2):
            answer = await told(broker, init_request(*who), 5)
            assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
                E.NONE,
                who[0],
                who[1] + 1,
            )


@BOTH_CLIENTS
@pytest.mark.full
def test_t50b_unused_producer_ids_of_a_block_are_skipped(
    client: TransactionalClient, tmp_path: Path
) -> None:
    def also(broker: CrashingBroker) -> None:
        assert asyncio.run(state(broker, "transform-g")).producer_id == 1_000

    carried_out(client, tmp_path, P.PRODUCER_ID_BLOCK_DURABLE, also=also)


# --- T-50c, T-50d: an open transaction ---


@pytest.mark.full
@EACH_ITS_RESULT
def test_t50c_partitions_whose_answer_was_lost_are_added_again(
    client: TransactionalClient, tmp_path: Path, commit: bool
) -> None:
    carried_out(client, tmp_path, P.PARTITIONS_ADDED_DURABLE, commit=commit)


@pytest.mark.full
async def test_t50c_an_abandoned_transaction_is_aborted_with_markers(
    tmp_path: Path,
) -> None:
    async with dying(tmp_path, P.PARTITIONS_ADDED_DURABLE) as broker:
        who = await begun(broker, timeout_ms=1_500)
        await dies_of(broker, add_request(who), 3)
        await becomes(lambda: state_name(broker), "CompleteAbort")
        assert await batches(broker) == [(who[1] + 1, True)]


@pytest.mark.full
@EACH_ITS_RESULT
def test_t50d_the_retry_of_a_batch_that_was_written_is_a_duplicate(
    client: TransactionalClient, tmp_path: Path, commit: bool
) -> None:
    carried_out(client, tmp_path, P.TRANSACTIONAL_BATCH_WRITTEN, commit=commit)


@BOTH_CLIENTS
@pytest.mark.full
def test_t50d_read_committed_waits_before_an_open_transaction(
    client: TransactionalClient, tmp_path: Path
) -> None:
    broker = CrashingBroker(tmp_path, P.TRANSACTIONAL_BATCH_WRITTEN, SETTINGS, nth=2)
    broker.start_armed()
    try:
        create_topic(broker.address, "t")
        with transactional(client, broker.address, ID) as producer:
            producer.begin()
            producer.send("t", b"one")
            producer.send("t", b"two")
            assert broker.has_come_back()
            assert end_of_committed(broker.address, "t") == 0
            producer.send("t", END)
            producer.commit()
        assert client.read(broker.address, "t", END) == [b"one", b"two", END]
    finally:
        broker.stop()


# --- T-50e to T-50g: decided ---


@EVERY_CLIENT
def test_t50e_a_decided_commit_is_completed(client: TransactionalClient, tmp_path: Path) -> None:
    carried_out(client, tmp_path, P.PREPARE_COMMIT_DURABLE)


@pytest.mark.full
@RESULTS
@pytest.mark.parametrize("version", budget.of_which([1, 2], [2]))
async def test_t50e_t50f_a_retried_end_txn_is_answered_like_the_first(
    tmp_path: Path, version: int, commit: bool
) -> None:
    """The broker responds with CONCURRENT_TRANSACTIONS until the markers are written, then with
    NONE. In version 2 the response has the producer id and epoch of the lost response."""
    point = P.PREPARE_COMMIT_DURABLE if commit else P.PREPARE_ABORT_DURABLE
    async with dying(tmp_path, point) as broker:
        who = await begun(broker)
        if version == 1:
            await assert_added(broker, who)
        await written(broker, who, version)
        end, api_version = end_request(who, commit), 5 if version == 2 else 4
        await dies_of(broker, end, api_version)
        answers = []

        async def retried() -> int:
            answers.append(await told(broker, end, api_version))
            code: int = answers[-1].error_code
            assert code in (E.NONE, E.CONCURRENT_TRANSACTIONS)
            return code

        await becomes(retried, E.NONE)
        if version == 2:
            assert (answers[-1].producer_id, answers[-1].producer_epoch) == (who[0], who[1] + 1)
        marker_epoch = who[1] + (version == 2)
        assert await batches(broker) == [(who[1], False), (marker_epoch, True)]


@pytest.mark.full
@EVERY_CLIENT
def test_t50f_a_decided_abort_is_completed(client: TransactionalClient, tmp_path: Path) -> None:
    carried_out(client, tmp_path, P.PREPARE_ABORT_DURABLE, commit=False)


@pytest.mark.full
@BOTH_CLIENTS
@RESULTS
def test_t50e_t50f_a_transaction_with_some_markers_is_completed(
    client: TransactionalClient, tmp_path: Path, commit: bool
) -> None:
    """The broker has written one of two markers: that of `target` or that of the offsets topic."""
    carried_out(client, tmp_path, P.MARKER_WRITTEN, commit=commit)


@pytest.mark.full
@EVERY_CLIENT
@RESULTS
def test_t50g_a_transaction_with_all_markers_is_completed(
    client: TransactionalClient, tmp_path: Path, commit: bool
) -> None:
    carried_out(client, tmp_path, P.ALL_MARKERS_DURABLE, commit=commit)


# --- T-50h, T-50i: not decided ---


@pytest.mark.full
@BOTH_CLIENTS
@RESULTS
def test_t50h_an_unwritten_decision_is_made_by_the_retry(
    client: TransactionalClient, tmp_path: Path, commit: bool
) -> None:
    carried_out(client, tmp_path, P.PREPARE_DECIDED, commit=commit)


@pytest.mark.full
@EACH_ITS_RESULT
def test_t50i_a_torn_decision_does_not_count(
    client: TransactionalClient, tmp_path: Path, commit: bool
) -> None:
    def also(broker: CrashingBroker) -> None:
        (cut,) = torn_logs(broker)
        assert "__transaction_state-" in cut

    carried_out(client, tmp_path, P.PREPARE_TORN, commit=commit, also=also)


@pytest.mark.parametrize(
    "point",
    budget.of_which([P.PREPARE_DECIDED, P.PREPARE_TORN], [P.PREPARE_TORN]),
    ids=lambda each: each.value,
)
@pytest.mark.parametrize("version", budget.of_which([1, 2], [2]))
@pytest.mark.full
async def test_t50h_t50i_an_unwritten_commit_without_a_retry_is_aborted(
    tmp_path: Path, point: FaultPoint, version: int
) -> None:
    async with dying(tmp_path, point) as broker:
        who = await begun(broker, timeout_ms=3_000)
        if version == 1:
            await assert_added(broker, who)
        await written(broker, who, version)
        await dies_of(broker, end_request(who), 5 if version == 2 else 4)
        await becomes(lambda: state_name(broker), "CompleteAbort")
        assert await batches(broker) == [(who[1], False), (who[1] + 1, True)]


async def written(broker: CrashingBroker, who: tuple[int, int], version: int) -> None:
    """Write a batch in the transaction."""
    client = await connected(broker)
    batch = transactional_batch(0, producer_id=who[0], epoch=who[1])
    request = transactional_produce(batch, transactional_id=ID)
    answer = await client.call(request, 12 if version == 2 else 11)
    assert answer.responses[0].partition_responses[0].error_code == E.NONE
    client.close()


async def assert_added(broker: CrashingBroker, who: tuple[int, int]) -> None:
    client = await connected(broker)
    answer = await client.call(add_request(who), 3)
    (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code == E.NONE
    client.close()


# --- T-50j, T-50k ---


@BOTH_CLIENTS
@RESULTS
@pytest.mark.full
def test_t50j_a_torn_marker_is_written_again(
    client: TransactionalClient, tmp_path: Path, commit: bool
) -> None:
    def also(broker: CrashingBroker) -> None:
        (cut,) = torn_logs(broker)
        assert "target-0" in cut or "__consumer_offsets-" in cut

    carried_out(client, tmp_path, P.MARKER_TORN, commit=commit, also=also)


@pytest.mark.full
@EACH_ITS_RESULT
def test_t50k_offsets_whose_answer_was_lost_are_sent_again(
    client: TransactionalClient, tmp_path: Path, commit: bool
) -> None:
    carried_out(client, tmp_path, P.TRANSACTIONAL_OFFSETS_DURABLE, commit=commit)


@pytest.mark.full
@RESULTS
async def test_t50k_o09_offsets_of_an_undecided_transaction_stay_pending(
    tmp_path: Path, commit: bool
) -> None:
    async with dying(tmp_path, P.TRANSACTIONAL_OFFSETS_DURABLE) as broker:
        who = await begun(broker)
        added = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=who[0], producer_epoch=who[1], group_id="g"
        )
        assert (await told(broker, added, 3)).error_code == E.NONE
        part = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=""
        )
        commit_offsets = TxnOffsetCommitRequest(
            transactional_id=ID,
            group_id="g",
            producer_id=who[0],
            producer_epoch=who[1],
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[part])],
        )
        await dies_of(broker, commit_offsets, 3)

        async def position() -> tuple[int, int]:
            topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
            group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
            client = await connected(broker)
            answer = await client.call(OffsetFetchRequest(groups=[group], require_stable=True), 8)
            client.close()
            if answer.groups[0].error_code == E.COORDINATOR_LOAD_IN_PROGRESS:
                return -1, -1
            (found,) = answer.groups[0].topics[0].partitions
            return found.error_code, found.committed_offset

        await becomes(position, (E.UNSTABLE_OFFSET_COMMIT, -1))
        assert (await told(broker, end_request(who, commit), 4)).error_code == E.NONE
        await becomes(position, (E.NONE, 7 if commit else -1))
