"""One thing with thousands of partitions, and thousands of things that end or begin together: no
work about them holds the loop (rule N-57). The steps of the longest callback are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from logs import make_batch
from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_broker.metadata.cluster import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from odradek_broker.request import Peer
from odradek_broker.share.share_partition import AcknowledgeType
from odradek_broker.share_state import ShareKey, ShareState, StateBatch
from odradek_protocol.common_structs import (
    AcknowledgementBatch,
    InternalTopicInfo,
    ReadPartition,
    ReadTopic,
    StreamsProperty,
    StreamsSubtopology,
    StreamsTaskIds,
)
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.delete_groups import DeleteGroupsRequest
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest
from odradek_protocol.schemas.end_txn import EndTxnRequest
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.read_share_group_state import ReadShareGroupStateRequest
from odradek_protocol.schemas.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from odradek_protocol.schemas.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsTopology,
)
from timed_broker import TimedBroker

E = ErrorCode
#: The most steps of one callback. A turn takes 6,000, and what begins in it may end later.
STEPS_MAX = 13_000
PARTITIONS = 3_000
TOPIC, GROUP, ID = "topic", "group", "id"
ACCEPT, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RENEW


class LargeTopic(TimedBroker):
    """A broker with a topic of many partitions, and these internal topics."""

    def __init__(self, *internal: str, **settings: str) -> None:
        super().__init__(
            **settings,
            patience_ms=5_000,
            share_coordinator_state_topic_num_partitions="1",
            group_streams_initial_rebalance_delay_ms="0",
            log_retention_ms="-1",
        )
        for name in internal:
            self.world.node.ensure_internal_topic(name)
        self.world.create(TOPIC, PARTITIONS)
        self.wait(1_000)
        self.longest = 0
        self.topic_id = self.world.node.metadata.topic_id(TOPIC)


def test_n57_a_new_partition_of_a_large_topic_takes_a_few_steps() -> None:
    """They are made in one piece, because nobody may see a part of them."""
    broker = LargeTopic()
    wanted = CreatableTopic(name="large", num_partitions=PARTITIONS, replication_factor=1)
    created = broker.ask(CreateTopicsRequest(topics=[wanted]))
    assert created.topics[0].error_code == E.NONE
    assert broker.longest <= 10 * PARTITIONS


def _transaction_is_committed(
    broker: LargeTopic,
    topics: Sequence[str],
    partitions: int,
    before_end: Callable[[], object],
    after: TransactionState = TransactionState.COMPLETE_COMMIT,
) -> None:
    """A transaction with so many partitions of each topic is committed in short callbacks."""
    made = broker.ask(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4)
    broker.longest = 0
    added = broker.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=list(range(partitions)))
                for name in topics
            ],
        ),
        3,
    )
    results = added.results_by_topic_v3_and_below
    codes = [each.partition_error_code for topic in results for each in topic.results_by_partition]
    assert codes == [E.NONE] * PARTITIONS
    assert broker.longest <= STEPS_MAX
    before_end()
    ended = broker.ask(
        EndTxnRequest(
            transactional_id=ID,
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            committed=True,
        ),
        4,
    )
    assert ended.error_code == E.NONE
    broker.wait(100)
    transaction = broker.world.node.transactions.transaction(ID)
    assert transaction is not None and transaction.state is after
    assert broker.longest <= STEPS_MAX


@pytest.mark.parametrize("deleted", [False, True])
def test_n57_no_large_transaction_holds_the_loop(deleted: bool) -> None:
    broker = LargeTopic(TRANSACTIONS_TOPIC)

    def delete() -> None:
        if deleted:
            broker.ask(DeleteTopicsRequest(topic_names=[TOPIC]), 5)

    _transaction_is_committed(broker, [TOPIC], PARTITIONS, delete)


def test_n57_no_large_transaction_on_a_failed_disk_holds_the_loop() -> None:
    broker = LargeTopic(TRANSACTIONS_TOPIC)

    def fail() -> None:
        for log in broker.world.logs:
            if log.topic == TOPIC:
                log.take_offline("the disk has failed")

    prepared = TransactionState.PREPARE_COMMIT
    _transaction_is_committed(broker, [TOPIC], PARTITIONS, fail, prepared)


def test_n57_no_transaction_over_many_topics_holds_the_loop() -> None:
    broker = LargeTopic(TRANSACTIONS_TOPIC)
    topics = [f"topic-{number}" for number in range(PARTITIONS)]
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in topics]
    broker.ask(CreateTopicsRequest(topics=wanted))
    broker.wait(1_000)
    _transaction_is_committed(broker, topics, 1, lambda: None)


def _member(broker: LargeTopic, epoch: int) -> Any:
    return broker.ask(
        ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id="member",
            member_epoch=epoch,
            subscribed_topic_names=[TOPIC] if epoch >= 0 else None,
        )
    )


def test_n57_no_deletion_of_a_large_share_group_holds_the_loop() -> None:
    broker = LargeTopic(OFFSETS_TOPIC, SHARE_STATE_TOPIC)
    answer = _member(broker, 0)
    for _ in range(20):
        broker.wait(100)
        answer = _member(broker, answer.member_epoch)
    assert _member(broker, -1).error_code == E.NONE
    deleted = broker.ask(DeleteGroupsRequest(groups_names=[GROUP]))
    assert deleted.results[0].error_code == E.NONE
    assert broker.longest <= STEPS_MAX


def _share_fetch(broker: LargeTopic, epoch: int) -> Any:
    partitions = [ShareFetchPartition(partition_index=n) for n in range(0 if epoch else PARTITIONS)]
    return broker.ask(
        ShareFetchRequest(
            group_id=GROUP,
            member_id="member",
            share_session_epoch=epoch,
            max_bytes=1_000_000,
            min_bytes=1,
            max_records=500,
            batch_size=500,
            topics=[ShareFetchTopic(topic_id=broker.topic_id, partitions=partitions)],
        ),
        2,
    )


@pytest.mark.parametrize("closes", [True, False])
def test_n57_no_end_of_a_large_share_session_holds_the_loop(closes: bool) -> None:
    broker = LargeTopic(OFFSETS_TOPIC, SHARE_STATE_TOPIC)
    answer = _member(broker, 0)
    for _ in range(20):
        broker.wait(100)
        answer = _member(broker, answer.member_epoch)
    broker.longest = 0
    assert _share_fetch(broker, 0).error_code == E.NONE
    broker.wait(1_000)
    node = broker.world.node
    assert len(node.share_sessions) == 1 and len(node.share_partitions) == PARTITIONS
    if closes:
        assert _share_fetch(broker, -1).error_code == E.NONE
    else:
        broker.do(lambda: node.connection_closed(Peer("127.0.0.1", 1)))
    broker.wait(1_000)
    assert not len(node.share_sessions) and not len(node.share_partitions)
    assert broker.longest <= STEPS_MAX


def _acknowledge(broker: LargeTopic, epoch: int, ranges: Iterable[tuple[int, int]], kind: int) -> E:
    batches = [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last in ranges
    ]
    partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
    answer = broker.ask(
        ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id="member",
            share_session_epoch=epoch,
            is_renew_ack=kind == RENEW,
            topics=[AcknowledgeTopic(topic_id=broker.topic_id, partitions=[partition])],
        )
    )
    assert answer.error_code == E.NONE
    return E(answer.responses[0].partitions[0].error_code)


@pytest.mark.parametrize(
    ("offsets", "kind", "error"),
    [
        (range(1_000, 1_500), ACCEPT, E.NONE),
        ([0] * 20_000, ACCEPT, E.NONE),
        ([1_000] * 20_000, RENEW, E.NONE),
        (range(2_000, 22_000), ACCEPT, E.INVALID_REQUEST),
    ],
    ids=["one by one", "gone", "renewed", "unknown"],
)
def test_n57_no_acknowledgements_of_one_partition_hold_the_loop(
    offsets: Sequence[int], kind: int, error: E
) -> None:
    broker = LargeTopic(OFFSETS_TOPIC, SHARE_STATE_TOPIC)
    epoch = _member(broker, 0).member_epoch
    for _ in range(20):
        broker.wait(100)
        epoch = _member(broker, epoch).member_epoch
    _share_fetch(broker, 0)
    broker.wait(1_000)
    partition = broker.world.node.partition(TOPIC, 0)
    assert partition is not None
    partition.append(make_batch(2_000), broker.world.clock.wall_ms())
    broker.wait(100)
    (topic,) = _share_fetch(broker, 1).responses
    (acquired,) = topic.partitions[0].acquired_records
    assert acquired.last_offset == 1_999
    assert _acknowledge(broker, 2, [(0, 999)], ACCEPT) is E.NONE
    broker.longest = 0
    assert _acknowledge(broker, 3, ((each, each) for each in offsets), kind) is error
    assert broker.longest <= STEPS_MAX


def test_n57_no_first_use_of_the_share_state_by_many_holds_the_loop() -> None:
    """Thousands of share partitions are read while the internal topic is being made."""
    broker = LargeTopic(log_durability="fsync")
    assert _share_fetch(broker, 0).error_code == E.NONE
    broker.wait(1_000)
    assert broker.world.node.metadata.partition_count(SHARE_STATE_TOPIC)
    assert broker.longest <= STEPS_MAX


def test_n57_no_read_of_a_large_state_of_a_share_partition_holds_the_loop() -> None:
    broker = LargeTopic(OFFSETS_TOPIC, SHARE_STATE_TOPIC)
    epoch = _member(broker, 0).member_epoch
    for _ in range(20):
        broker.wait(100)
        epoch = _member(broker, epoch).member_epoch
    batches = tuple(StateBatch(2 * n, 2 * n, 2, 1) for n in range(2_000))
    key = ShareKey(GROUP, broker.topic_id, 0)
    states = broker.world.node.share_state
    broker.do(lambda: states.write(key, ShareState(0, -1, -1, 0, batches=batches)))
    broker.wait(100)
    broker.longest = 0
    request = ReadShareGroupStateRequest(
        group_id=GROUP,
        topics=[ReadTopic(topic_id=broker.topic_id, partitions=[ReadPartition(partition=0)])],
    )
    (topic,) = broker.ask(request).results
    assert len(topic.partitions[0].state_batches) == len(batches)
    assert _share_fetch(broker, 0).error_code == E.NONE
    broker.wait(1_000)
    led = broker.world.node.share_partitions.led(key)
    assert led is not None and led.state is not None and len(led.state.in_flight.batches) > 1_000
    assert broker.longest <= STEPS_MAX


def test_n57_no_session_that_needs_the_room_of_many_holds_the_loop() -> None:
    broker = LargeTopic()
    sessions = broker.world.node.fetch_sessions
    sessions._partitions_max = PARTITIONS

    def fetch(partitions: int) -> Any:
        asked = [FetchPartition(partition=n) for n in range(partitions)]
        topic = FetchTopic(topic=TOPIC, topic_id=broker.topic_id, partitions=asked)
        return broker.ask(FetchRequest(session_epoch=0, max_bytes=1, topics=[topic]))

    for _ in range(PARTITIONS // 10):
        assert fetch(10).session_id
    broker.wait(200_000)
    assert fetch(PARTITIONS).session_id and len(sessions) == 1
    assert broker.longest <= STEPS_MAX


def _internal(names: int, configs: int) -> list[InternalTopicInfo]:
    return [
        InternalTopicInfo(
            name=f"changelog-{name}",
            topic_configs=[StreamsProperty(key=f"key-{n}", value="value") for n in range(configs)],
        )
        for name in range(names)
    ]


def _words(source: str, changelogs: list[InternalTopicInfo]) -> StreamsTopology:
    words = StreamsSubtopology(
        subtopology_id="words", source_topics=[source], state_changelog_topics=changelogs
    )
    return StreamsTopology(subtopologies=[words])


def _stream(
    broker: LargeTopic,
    member_id: str,
    epoch: int,
    topology: StreamsTopology | None = None,
    owned: Sequence[StreamsTaskIds] = (),
) -> Any:
    answer = broker.ask(
        StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            process_id=member_id,
            topology=topology,
            active_tasks=list(owned),
            standby_tasks=[],
            warmup_tasks=[],
        )
    )
    assert answer.error_code == E.NONE
    return answer


def test_n57_no_tasks_of_a_large_topic_hold_the_loop() -> None:
    broker = LargeTopic(OFFSETS_TOPIC, group_streams_assignment_interval_ms="0")
    words = _words(TOPIC, [])
    first = _stream(broker, "a", 0, words)
    assert len(first.active_tasks[0].partitions) == PARTITIONS
    second = _stream(broker, "b", 0, words)
    kept = _stream(broker, "a", first.member_epoch, owned=first.active_tasks)
    assert len(kept.active_tasks[0].partitions) == PARTITIONS // 2
    _stream(broker, "a", kept.member_epoch, owned=kept.active_tasks)
    second = _stream(broker, "b", second.member_epoch)
    assert len(second.active_tasks[0].partitions) == PARTITIONS // 2
    _stream(broker, "b", -1)
    assert broker.longest <= STEPS_MAX


@pytest.mark.parametrize("topics", [_internal(1_000, 0), _internal(1, 4_000)], ids=["many", "one"])
def test_n57_no_creation_of_internal_topics_holds_the_loop(
    topics: list[InternalTopicInfo],
) -> None:
    broker = LargeTopic(OFFSETS_TOPIC)
    broker.world.create("t10", 2)
    broker.wait(100)
    _stream(broker, "member", 0, _words("t10", topics))
    made = broker.world.node.metadata.partition_count("changelog-0")
    assert made == (2 if len(topics) > 1 else 0), "the keys are no settings"
    assert broker.longest <= STEPS_MAX


def test_n57_the_internal_topics_of_a_large_topic_are_made_one_by_one() -> None:
    broker = LargeTopic(OFFSETS_TOPIC)
    broker.longest = 0
    wanted = CreatableTopic(name="large", num_partitions=PARTITIONS, replication_factor=1)
    broker.ask(CreateTopicsRequest(topics=[wanted]))
    one, broker.longest = broker.longest, 0
    _stream(broker, "member", 0, _words(TOPIC, _internal(3, 0)))
    assert broker.world.node.metadata.partition_count("changelog-2") == PARTITIONS
    assert broker.longest <= one + STEPS_MAX
