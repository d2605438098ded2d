"""Mirror topics over the wire: AppendMirrorRecords, PromoteMirrorTopics, and refused requests
(rules I-02, I-09, I-13)."""

from __future__ import annotations

import pytest

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker
from logs import headers
from mirror_world import SOURCE, SourceLog
from odradek_broker.coordinator.transactions.completion import ANSWERS, MarkerRequest
from odradek_broker.coordinator.transactions.events import MarkerAnswer
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.share.dead_letter_topics import DeadLetterSettings, DeadLetterTopics, NoTarget
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas import describe_history
from odradek_protocol.schemas.add_partitions_to_txn import (
    BETWEEN_BROKERS_SINCE,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    MirroredPartition,
    MirroredPartitionResult,
    MirroredTopic,
)
from odradek_protocol.schemas.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek_protocol.schemas.describe_history import DescribeHistoryRequest
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from odradek_protocol.schemas.produce import TOPIC_IDS_SINCE
from odradek_protocol.schemas.promote_mirror_topics import PromoteMirrorTopicsRequest
from raw_client import RawClient, batch_of, produce_request
from raw_transactions import marker_request, transactional_batch, transactional_produce

E = ErrorCode


async def append(
    client: RawClient, topic: str, part: MirroredPartition, source: str = SOURCE
) -> MirroredPartitionResult:
    names = [MetadataRequestTopic(name=topic)]
    found = await client.call(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12)
    asked = MirroredTopic(
        name=topic, topic_id=found.topics[0].topic_id, source=source, partitions=[part]
    )
    request = AppendMirrorRecordsRequest(timeout_ms=5_000, topics=[asked])
    (answer,) = (await client.call(request, 0)).topics
    assert answer.name == topic
    result: MirroredPartitionResult = answer.partitions[0]
    return result


async def promote(client: RawClient, *topics: str) -> list[int]:
    request = PromoteMirrorTopicsRequest(timeout_ms=5_000, topics=list(topics))
    answer = await client.call(request, 0)
    assert [each.name for each in answer.topics] == list(topics)
    return [each.error_code for each in answer.topics]


async def history(client: RawClient, topic: str) -> tuple[list[str], list[str]]:
    """The sentences of the events and those of the states."""
    request = DescribeHistoryRequest(subject_type=describe_history.MIRROR, subject=topic)
    answer = await client.call(request, 0)
    assert answer.error_code == E.NONE, answer
    return [each.text for each in answer.events], [each.text for each in answer.states]


@pytest.fixture
def source() -> SourceLog:
    """A source log with three records of a producer, and two in an open transaction."""
    made = SourceLog()
    made.leader_epoch = 2
    made.data(3, producer_id=7)
    made.data(2, producer_id=8, transactional=True)
    return made


@pytest.fixture(autouse=True)
async def topics(client: RawClient, source: SourceLog) -> None:
    """Create the ordinary topic t, and the mirror topic m with the records of the source."""
    await client.create_topic("t")
    await client.create_topic("m", mirror_source=SOURCE)
    part = MirroredPartition(
        partition_index=0,
        expected_end_offset=0,
        fetch_offset=0,
        source_leader_epoch=3,
        source_log_start_offset=0,
        source_high_watermark=12,
        records=source.read(),
    )
    result = await append(client, "m", part)
    assert (result.error_code, result.log_end_offset, result.last_leader_epoch) == (0, 5, 2)


async def fetched(client: RawClient, isolation: int = 0) -> bytes:
    request = FetchRequest(
        isolation_level=isolation,
        max_wait_ms=0,
        topics=[
            FetchTopic(
                topic="m",
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)],
            )
        ],
    )
    (part,) = (await client.call(request, 12)).responses[0].partitions
    assert part.error_code == 0
    return bytes(part.records or b"")


async def test_a24_appends_and_promotions_need_their_rights(
    client: RawClient, broker: RunningBroker
) -> None:
    rights = ((Operation.CLUSTER_ACTION, True, False), (Operation.ALTER, False, True))
    for operation, appends, promotes in rights:
        broker.node.authorizer = RuleList(Rule(operation, ResourceType.CLUSTER))
        refused = E.CLUSTER_AUTHORIZATION_FAILED
        result = await append(client, "t", MirroredPartition(partition_index=0))
        assert (result.error_code == refused) is not appends
        assert (await promote(client, "t") == [refused]) is not promotes
        assert (result.log_end_offset, result.log_start_offset) == (-1, -1)


async def test_mirrored_records_for_an_ordinary_topic_are_refused(client: RawClient) -> None:
    result = await append(client, "t", MirroredPartition(partition_index=0))
    assert result.error_code == E.INVALID_REQUEST
    assert "not a mirror topic" in (result.error_message or "")
    result = await append(client, "absent", MirroredPartition(partition_index=0))
    assert result.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_i14_the_records_of_another_source_are_refused(client: RawClient) -> None:
    for source in ("kafka:BBBBBBBBBBBBBBBBBBBBBB", SOURCE.replace("kafka", "other"), ""):
        result = await append(client, "m", MirroredPartition(partition_index=0), source)
        assert (result.error_code, result.log_end_offset) == (E.INVALID_REQUEST, -1)
        assert f"is the mirror of {SOURCE}" in (result.error_message or "")


async def test_the_promotion_of_an_ordinary_topic_has_no_effect(client: RawClient) -> None:
    assert await promote(client, "t", "absent") == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]


async def test_i09_an_append_with_null_records_answers_the_end_offset(client: RawClient) -> None:
    result = await append(client, "m", MirroredPartition(partition_index=0))
    assert (result.error_code, result.log_start_offset, result.log_end_offset) == (0, 0, 5)


async def test_a_fetch_from_a_mirror_topic_returns_the_sources_batches(
    client: RawClient, source: SourceLog
) -> None:
    assert await fetched(client) == source.read()
    assert [each.base_offset for each in headers(await fetched(client, 1))] == [0]


# --- What is refused ---


@pytest.mark.parametrize("version", list(APIS[ApiKey.PRODUCE].versions))
async def test_i02_a_produce_to_a_mirror_topic_is_refused(
    client: RawClient, broker: RunningBroker, source: SourceLog, version: int
) -> None:
    topic_id = broker.node.metadata.topic_id("m") if version >= TOPIC_IDS_SINCE else bytes(16)
    name = "" if version >= TOPIC_IDS_SINCE else "m"
    batches = [batch_of(b"x"), batch_of(b"x", producer_id=1, producer_epoch=0, base_sequence=0)]
    for acks in (1, -1):
        for batch in batches:
            request = produce_request(name, batch, acks=acks, topic_id=topic_id)
            (part,) = (await client.call(request, version)).responses[0].partition_responses
            assert (part.error_code, part.base_offset) == (E.INVALID_REQUEST, -1)
            if version >= 8:
                assert "read-only until `odradek mirror promote`" in part.error_message
    transactional = transactional_produce(transactional_batch(0), topic=name)
    transactional.topic_data[0].topic_id = topic_id
    (part,) = (await client.call(transactional, version)).responses[0].partition_responses
    assert part.error_code == E.INVALID_REQUEST
    client.send(produce_request(name, batch_of(b"x"), acks=0, topic_id=topic_id), version)
    assert await client.closed()
    again = await broker.client()
    assert await fetched(again) == source.read()


async def test_i02_a_refused_mirror_partition_does_not_affect_other_topics(
    client: RawClient,
) -> None:
    request = produce_request("m", batch_of(b"x"))
    request.topic_data += produce_request("t", batch_of(b"x")).topic_data
    answer = await client.call(request, 9)
    codes = {each.name: each.partition_responses[0].error_code for each in answer.responses}
    assert codes == {"m": E.INVALID_REQUEST, "t": E.NONE}


@pytest.mark.parametrize("version", [0, 3, 4, 5])
async def test_i02_adding_a_mirror_partition_to_a_transaction_is_refused(
    client: RawClient, version: int
) -> None:
    given = await client.call(InitProducerIdRequest(transactional_id="tx"), 4)
    topics = [AddPartitionsToTxnTopic(name="m", partitions=[0])]
    if version >= BETWEEN_BROKERS_SINCE:
        asked = AddPartitionsToTxnTransaction(
            transactional_id="tx",
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            topics=topics,
        )
        answer = await client.call(AddPartitionsToTxnRequest(transactions=[asked]), version)
        (result,) = answer.results_by_transaction[0].topic_results
    else:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=topics,
        )
        (result,) = (await client.call(request, version)).results_by_topic_v3_and_below
    (part,) = result.results_by_partition
    assert part.partition_error_code == E.INVALID_REQUEST


async def test_i02_transaction_markers_for_a_mirror_topic_are_refused(
    client: RawClient, source: SourceLog
) -> None:
    answer = await client.call(marker_request(producer_id=8, topic="m"), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == E.INVALID_REQUEST
    assert await fetched(client) == source.read()


async def test_i02_a_coordinator_counts_refused_mirror_markers_as_written(
    broker: RunningBroker,
) -> None:
    """A coordinator that did not count the markers would request them again until the promotion."""
    marker = MarkerRequest(8, 0, 0, True, 1, [("m", 0)])
    assert broker.node.markers.write(marker).result() == {("m", 0): E.INVALID_REQUEST}
    assert ANSWERS[E.INVALID_REQUEST] is MarkerAnswer.DONE


async def test_i02_delete_records_of_a_mirror_topic_is_refused(
    client: RawClient, broker: RunningBroker
) -> None:
    asked = DeleteRecordsTopic(
        name="m", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)]
    )
    answer = await client.call(DeleteRecordsRequest(topics=[asked], timeout_ms=5_000), 2)
    (part,) = answer.topics[0].partitions
    assert (part.error_code, part.low_watermark) == (E.INVALID_REQUEST, -1)
    assert broker.node.partition("m", 0).log.log_start_offset == 0


async def test_i02_share_groups_write_no_dead_letters_to_a_mirror_topic(
    client: RawClient, broker: RunningBroker
) -> None:
    await client.create_topic(
        "dlq.m", mirror_source=SOURCE, errors_deadletterqueue_group_enable="true"
    )
    node = broker.node
    topics = DeadLetterTopics(
        node.metadata,
        node.partition,
        lambda: DeadLetterSettings("dlq.", creates=False),
        node.create_dead_letter_topic,
        node.metadata_log.durable,
    )
    found = topics.target_for("dlq.m", "t", 0).result()
    assert isinstance(found, NoTarget) and "mirror" in found.reason


async def test_i11_a_promoted_topic_takes_producers_and_refuses_mirrored_records(
    client: RawClient,
) -> None:
    assert await promote(client, "m") == [E.NONE]
    batch = batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    (part,) = (await client.call(produce_request("m", batch), 9)).responses[0].partition_responses
    assert (part.error_code, part.base_offset) == (E.NONE, 6)
    result = await append(client, "m", MirroredPartition(partition_index=0))
    assert result.error_code == E.INVALID_REQUEST


# --- History ---


async def test_i13_the_history_of_a_mirror_topic_has_its_events_and_states(
    client: RawClient, broker: RunningBroker
) -> None:
    await client.call(produce_request("m", batch_of(b"x")), 9)
    await append(client, "m", MirroredPartition(partition_index=0, records=b"x" * 99))
    bad = MirroredPartition(
        partition_index=0, expected_end_offset=5, fetch_offset=5, records=b"x" * 99
    )
    await append(client, "m", bad)
    events, states = await history(client, "m")
    assert [text.partition(";")[0] for text in events] == [
        "m-0: the leader epoch rises to 3, as at the source",
        "m-0: a mirror sent its first request since the start of the broker",
        "records of the source were appended to m",
        (
            "m-0: records of a producer were refused with INVALID_REQUEST: the topic is read-only"
            " until it is promoted"
        ),
        *[text for text in events if "batches of the mirror were refused" in text],
    ]
    assert sum("were refused with CORRUPT_MESSAGE" in text for text in events) == 1
    assert (
        states[0] == f"m is a mirror of {SOURCE}, with 1 partitions: read-only until it is promoted"
    )
    assert states[1].startswith("m-0: offsets 0 to 5")
    assert (await history(client, ""))[1] == states[:1]
    assert (await history(client, "t"))[1] == [
        "t is no mirror topic: it takes records of producers"
    ]
    await promote(client, "m")
    assert (await history(client, "m"))[0][-1] == (
        "m was promoted to an ordinary topic; 1 open transactions were aborted"
    )
    assert (await history(client, ""))[1] == []


async def test_i13_the_lag_counts_to_the_last_reported_end_of_the_source(client: RawClient) -> None:
    (_, behind) = (await history(client, "m"))[1]
    assert behind.startswith(
        "m-0: offsets 0 to 5; 7 records behind the source, which ended at 12 when the mirror reported"
    )


async def test_a18_the_history_of_a_mirror_topic_needs_describe(
    client: RawClient, broker: RunningBroker
) -> None:
    broker.node.authorizer = RuleList(Rule(Operation.DESCRIBE, ResourceType.TOPIC, "t"))
    request = DescribeHistoryRequest(subject_type=describe_history.MIRROR, subject="m")
    assert (await client.call(request, 0)).error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert (await history(client, ""))[1] == []
    request.subject = "t"
    assert (await client.call(request, 0)).error_code == E.NONE
    broker.node.authorizer = RuleList(Rule(Operation.DESCRIBE, ResourceType.TOPIC))
    request.subject = "absent"
    assert (await client.call(request, 0)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
