"""Markers: written through the leader, from any source (rules T-40 to T-45, F-03, F-08, F-09)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker, StartBroker
from fake_verifier import FakeVerifier
from odradek_broker.coordinator.transactions.completion import MarkerRequest
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.records.record import read_records
from odradek_protocol.schemas.describe_producers import DescribeProducersRequest, TopicRequest
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.write_txn_markers import WriteTxnMarkersRequest
from odradek_protocol.stored.control_marker import ControlType, EndTransactionMarker, decode_marker
from raw_client import RawClient, batch_of, produce_request
from raw_transactions import (
    PRODUCER,
    fetch_request,
    marker_codes,
    marker_request,
    transactional_batch,
    transactional_produce,
)
from waiting import until

E = ErrorCode
#: A segment.ms that keeps old records and new markers in one segment, so that one fetch reads both.
ONE_SEGMENT = str(2**62)


@pytest.fixture
async def verifier(broker: RunningBroker, client: RawClient) -> FakeVerifier:
    """A verifier that allows all writes to `t`, a topic of two partitions."""
    await client.create_topic("t", partitions=2, segment_ms=ONE_SEGMENT)
    fake = FakeVerifier()
    fake.install(broker.node)
    return fake


async def write(client: RawClient, sequence: int, **identity: Any) -> int:
    """Append one record in a transaction. Returns its offset."""
    batch = transactional_batch(sequence, **identity)
    answer = (await client.call(transactional_produce(batch), 11)).responses[0]
    assert answer.partition_responses[0].error_code == 0
    return int(answer.partition_responses[0].base_offset)


async def fetch(client: RawClient, offset: int = 0, **options: Any) -> Any:
    response = await client.call(fetch_request(offset, **options), 11)
    return response.responses[0].partitions[0]


def last_offset(data: Any) -> int:
    """The last offset in a fetch answer; -1 if the answer has no records."""
    return max((header.last_offset for _, header in iter_batches(data.records)), default=-1)


async def latest(client: RawClient, isolation: int) -> int:
    response = await client.call(
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsTopic(
                    name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
                )
            ],
        ),
        5,
    )
    return int(response.topics[0].partitions[0].offset)


async def producers(client: RawClient, topic: str = "t", index: int = 0) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    return (await client.call(request)).topics[0].partitions[0]


# --- The batch ---


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [1, 2])
async def test_t40_r30_r31_a_marker_is_one_control_record(
    client: RawClient, verifier: FakeVerifier, commit: bool, version: int
) -> None:
    await write(client, 0)
    request = marker_request(commit=commit, epoch=1, coordinator_epoch=7, version=2)
    assert marker_codes(await client.call(request, version)) == [E.NONE]
    data = (await fetch(client, isolation=0)).records
    position, header = list(iter_batches(data))[-1]
    (record,) = read_records(data, position, header)
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (PRODUCER, 1)
    assert (header.base_sequence, header.record_count, header.base_offset) == (-1, 1, 1)
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    assert decode_marker(record.key, record.value) == EndTransactionMarker(kind, 7)


async def test_t40_the_coordinator_of_this_broker_writes_markers_the_same_way(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    await write(client, 0)
    marker = MarkerRequest(PRODUCER, 0, 3, True, 1, [("t", 0), ("t", 1), ("t", 9), ("absent", 0)])
    results: list[Any] = []
    broker.node.markers.write(marker).then(results.append)
    await until(lambda: results)
    assert results == [
        {
            ("t", 0): E.NONE,
            ("t", 1): E.NONE,
            ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
            ("absent", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        }
    ]
    assert await latest(client, 1) == 2
    nothing: list[Any] = []
    broker.node.markers.write(replace(marker, partitions=[])).then(nothing.append)
    assert nothing == [{}]


async def test_t40_a_marker_may_exceed_the_size_limits_of_its_topic(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    """Markers never get MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE (T-43)."""
    await client.create_topic("tiny", max_message_bytes="70", segment_bytes="70")
    response = await client.call(marker_request(topic="tiny"))
    assert marker_codes(response) == [E.NONE]


async def test_t40_a_marker_is_not_compressed_and_keeps_its_kind_with_log_append_time(
    client: RawClient, verifier: FakeVerifier
) -> None:
    await client.create_topic(
        "set", compression_type="zstd", message_timestamp_type="LogAppendTime"
    )
    assert marker_codes(await client.call(marker_request(topic="set"))) == [E.NONE]
    data = (await fetch(client, topic="set", isolation=0)).records
    ((_, header),) = iter_batches(data)
    assert header.is_control and header.codec == 0


# --- T-41, T-43: the log's answer ---


async def test_t41_a_marker_with_an_older_producer_epoch_is_refused(
    client: RawClient, verifier: FakeVerifier
) -> None:
    await write(client, 0, epoch=4)
    response = await client.call(marker_request(epoch=3))
    assert marker_codes(response) == [E.INVALID_PRODUCER_EPOCH]
    assert await latest(client, 0) == 1, "nothing was written"


async def test_t41_a_marker_of_an_older_coordinator_is_fenced(
    client: RawClient, verifier: FakeVerifier
) -> None:
    assert marker_codes(await client.call(marker_request(coordinator_epoch=5))) == [E.NONE]
    response = await client.call(marker_request(coordinator_epoch=4))
    assert marker_codes(response) == [E.TRANSACTION_COORDINATOR_FENCED]


async def test_t41_v2_a_marker_with_the_epoch_of_the_data_is_refused(
    client: RawClient, verifier: FakeVerifier
) -> None:
    await write(client, 0, epoch=4)
    late = marker_request(epoch=4, version=2)
    assert marker_codes(await client.call(late, 2)) == [E.INVALID_PRODUCER_EPOCH]
    assert marker_codes(await client.call(marker_request(epoch=5, version=2), 2)) == [E.NONE]
    again = marker_request(epoch=5, version=2)
    assert marker_codes(await client.call(again, 2)) == [E.NONE], "sent again"


async def test_t41_a_marker_with_a_new_epoch_restarts_the_sequences(
    client: RawClient, verifier: FakeVerifier
) -> None:
    await write(client, 0)
    await write(client, 1)
    await client.call(marker_request(epoch=1))
    assert await write(client, 0, epoch=1) == 3


async def test_t42_a_marker_without_a_transaction_changes_nothing_for_readers(
    client: RawClient, verifier: FakeVerifier
) -> None:
    assert marker_codes(await client.call(marker_request(commit=False))) == [E.NONE]
    data = await fetch(client)
    assert data.aborted_transactions == []
    assert (data.last_stable_offset, data.high_watermark) == (1, 1)


async def test_t43_each_partition_of_each_marker_has_its_own_code(
    client: RawClient, verifier: FakeVerifier
) -> None:
    await write(client, 0, epoch=2)
    first = marker_request(epoch=1, partitions=[0, 1, 9]).markers[0]
    second = marker_request(producer_id=PRODUCER + 1, topic="absent").markers[0]
    response = await client.call(WriteTxnMarkersRequest(markers=[first, second]))
    assert [marker.producer_id for marker in response.markers] == [PRODUCER, PRODUCER + 1]
    assert marker_codes(response) == [
        E.INVALID_PRODUCER_EPOCH,
        E.NONE,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]


async def test_t43_two_producers_end_on_one_partition_in_one_request(
    client: RawClient, verifier: FakeVerifier
) -> None:
    await write(client, 0)
    await write(client, 0, producer_id=PRODUCER + 1)
    markers = [
        marker_request(commit=False).markers[0],
        marker_request(producer_id=PRODUCER + 1).markers[0],
    ]
    response = await client.call(WriteTxnMarkersRequest(markers=markers))
    assert marker_codes(response) == [E.NONE, E.NONE]
    data = await fetch(client)
    assert [one.producer_id for one in data.aborted_transactions] == [PRODUCER]
    assert data.last_stable_offset == 4


async def test_t44_a08_write_txn_markers_needs_the_right_to_the_cluster(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    rules = broker.node.authorizer = RuleList()
    response = await client.call(marker_request(partitions=[0, 1]))
    assert marker_codes(response) == [E.CLUSTER_AUTHORIZATION_FAILED] * 2
    for operation in (Operation.ALTER, Operation.CLUSTER_ACTION):
        rules.rules = [Rule(operation, ResourceType.CLUSTER, "kafka-cluster")]
        assert marker_codes(await client.call(marker_request())) == [E.NONE]


async def test_t44_a_request_without_markers_gets_an_empty_answer(
    client: RawClient, verifier: FakeVerifier
) -> None:
    assert (await client.call(WriteTxnMarkersRequest())).markers == []


async def test_t51_a_marker_is_acknowledged_when_it_is_durable(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier, monkeypatch: Any
) -> None:
    await write(client, 0)
    held: list[Any] = []
    partition = broker.node.partition("t", 0)
    monkeypatch.setattr(partition, "_request_flush", held.append)
    results: list[Any] = []
    marker = MarkerRequest(PRODUCER, 0, 0, True, 1, [("t", 0)])
    broker.node.markers.write(marker).then(results.append)
    assert partition.log.log_end_offset == 2
    assert (results, partition.log.last_stable_offset) == ([], 0)
    broker.server.group_commit.request(held[0])
    await until(lambda: results)
    assert partition.log.last_stable_offset == 2


# --- T-45, F-03, F-08, F-09: the view of readers ---


async def test_t45_f08_the_last_stable_offset_stays_below_an_open_transaction(
    client: RawClient, verifier: FakeVerifier
) -> None:
    await client.call(produce_request("t", batch_of(b"plain")), 9)
    assert await write(client, 0) == 1
    await client.call(produce_request("t", batch_of(b"behind")), 9)
    committed, everything = await fetch(client), await fetch(client, isolation=0)
    assert (committed.high_watermark, committed.last_stable_offset) == (3, 1)
    assert committed.aborted_transactions == []
    assert everything.aborted_transactions is None
    assert (last_offset(committed), last_offset(everything)) == (0, 2)
    assert (await latest(client, 1), await latest(client, 0)) == (1, 3)
    await client.call(marker_request())
    assert (await latest(client, 1), await latest(client, 0)) == (4, 4)
    assert last_offset(await fetch(client)) == 3


async def test_f03_a_marker_wakes_fetches_that_wait_for_stable_records(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    await write(client, 0)
    reader = await broker.client()
    reader.send(fetch_request(max_wait_ms=600_000), 11)
    await until(lambda: broker.node.parked_fetches)
    await write(client, 1)
    assert broker.node.parked_fetches, "more of the open transaction is nothing to read"
    await client.call(marker_request())
    response = await reader.receive()
    assert last_offset(response.responses[0].partitions[0]) == 2


async def test_f09_a_fetch_lists_the_aborted_transactions_of_its_records(
    client: RawClient, verifier: FakeVerifier
) -> None:
    for number in range(3):
        first = await write(client, 0, producer_id=PRODUCER + number)
        assert first == 2 * number
        await client.call(marker_request(commit=False, producer_id=PRODUCER + number))
    everything = await fetch(client)
    aborted = [(one.producer_id, one.first_offset) for one in everything.aborted_transactions]
    assert sorted(aborted) == [(PRODUCER, 0), (PRODUCER + 1, 2), (PRODUCER + 2, 4)]
    one_batch = await fetch(client, 2, max_bytes=1)
    assert last_offset(one_batch) == 2
    aborted = [(one.producer_id, one.first_offset) for one in one_batch.aborted_transactions]
    assert aborted == [(PRODUCER + 1, 2)]
    from_its_marker = await fetch(client, 3, max_bytes=1)
    aborted = [(one.producer_id, one.first_offset) for one in from_its_marker.aborted_transactions]
    assert aborted == [(PRODUCER + 1, 2)], "it began before the fetch offset"


async def test_t50d_p28_transactions_are_the_same_after_a_restart(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t", segment_ms=ONE_SEGMENT)
    FakeVerifier().install(broker.node)
    await write(client, 0)
    await client.call(marker_request(commit=False))
    await write(client, 0, producer_id=PRODUCER + 1)
    before = await fetch(client), (await producers(client)).active_producers
    await broker.stop()
    broker = await start_broker()
    client = await broker.client()
    after = await fetch(client), (await producers(client)).active_producers
    assert after == before
    assert before[0].last_stable_offset == 2
    verifier = FakeVerifier()
    verifier.install(broker.node)
    await write(client, 1, producer_id=PRODUCER + 1)
    assert verifier.questions == [], "the transaction is still open here (T-62)"


# --- DescribeProducers ---


async def test_p01_describe_producers_returns_the_producers_of_a_partition(
    client: RawClient, verifier: FakeVerifier
) -> None:
    await write(client, 0)
    await write(client, 1)
    await client.call(marker_request(coordinator_epoch=6))
    await write(client, 0, producer_id=PRODUCER + 1, epoch=3)
    found = {one.producer_id: one for one in (await producers(client)).active_producers}
    ended, still_open = found[PRODUCER], found[PRODUCER + 1]
    assert (ended.producer_epoch, ended.last_sequence, ended.coordinator_epoch) == (0, 1, 6)
    assert ended.current_txn_start_offset == -1
    assert (still_open.producer_epoch, still_open.last_sequence) == (3, 0)
    assert (still_open.coordinator_epoch, still_open.current_txn_start_offset) == (-1, 3)
    assert still_open.last_timestamp == 1_700_000_000_000


async def test_d11_describe_producers_answers_for_a_partition_once(
    client: RawClient, verifier: FakeVerifier
) -> None:
    await write(client, 0)
    named = TopicRequest(name="t", partition_indexes=[0] * 1_000)
    answer = await client.call(DescribeProducersRequest(topics=[named] * 10))
    found = [part for asked in answer.topics for part in asked.partitions]
    assert [(part.partition_index, len(part.active_producers)) for part in found] == [(0, 1)]


async def test_describe_producers_explains_the_error_of_a_partition(
    client: RawClient, verifier: FakeVerifier
) -> None:
    for name in ("", "b@d!", "x" * 250):
        found = await producers(client, name)
        assert found.error_code == E.INVALID_TOPIC_EXCEPTION
        assert "illegal" in found.error_message
    found = await producers(client, "t", 5)
    assert found.error_message == "this broker has no partition 5 of topic 't'"


async def test_a18_a20_describe_producers_checks_rights_before_existence(
    client: RawClient, broker: RunningBroker, verifier: FakeVerifier
) -> None:
    assert (await producers(client, "absent")).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await producers(client, "t", 5)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    broker.node.authorizer = RuleList(Rule(Operation.READ, ResourceType.TOPIC, "t"))
    assert (await producers(client, "absent")).error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert (await producers(client)).error_code == E.NONE
