"""No request holds the loop: every API is asked for many things at a time, and the steps of the
longest callback are counted (rule N-57)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

import budget
from at_once import at_once
from large_requests import CountedBroker, array_paths, large_request
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.cluster import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from odradek_broker.request import CloseConnection
from odradek_broker.server.dispatch import elements_of
from odradek_protocol import frames
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek_protocol.schemas.share_fetch import (
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)

#: The most steps of one callback. A turn takes 6,000, and what begins in it may end later.
STEPS_MAX = 20_000
#: The elements of the array that is made large.
ELEMENTS = 4_000 if budget.is_short() else 10_000
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def _arrays() -> Iterator[Any]:
    for key, api in APIS.items():
        for path in array_paths(api.request, api.versions.last):
            yield pytest.param(key, path, id=f"{api.name}-{'.'.join(path)}")


@pytest.fixture(scope="module")
def broker() -> CountedBroker:
    """A broker that waits for its disk, and whose coordinators have one partition each, so that
    many answers wait for one record."""
    broker = CountedBroker(
        authorizer_class_name=AUTHORIZER,
        super_users="User:admin",
        log_durability="fsync",
        offsets_topic_num_partitions="1",
        transaction_state_log_num_partitions="1",
        share_coordinator_state_topic_num_partitions="1",
    )
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC):
        broker.world.node.ensure_internal_topic(name)
    broker.world.create("t")
    broker.settle()
    return broker


def _let_coordinators_wait(broker: CountedBroker) -> None:
    """Have two coordinators write what is not on disk before a flush."""
    topic = OffsetCommitRequestTopic(
        name="t", partitions=[OffsetCommitRequestPartition(committed_offset=1)]
    )
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
    broker.begin(commit, 8)
    broker.begin(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 4)
    assert broker.world.asked


@pytest.mark.parametrize("user", ["nobody", "admin"])
@pytest.mark.parametrize(("key", "path"), list(_arrays()))
def test_n57_no_request_holds_the_loop(
    broker: CountedBroker, key: ApiKey, path: tuple[str, ...], user: str
) -> None:
    request = large_request(key, path, ELEMENTS, lambda number: f"name-{number:05}")
    broker.settle()
    _let_coordinators_wait(broker)
    steps, answer = broker.longest_callback(request, APIS[key].versions.last, user)
    assert answer is None or isinstance(answer, list | CloseConnection)
    assert steps <= STEPS_MAX


#: The partitions of the topic that is fetched from.
PARTITIONS = 1_000 if budget.is_short() else 3_000


@pytest.fixture(scope="module")
def large_topic() -> CountedBroker:
    """A broker with a topic of many partitions."""
    broker = CountedBroker()
    broker.world.create("t", PARTITIONS)
    broker.settle()
    return broker


@pytest.mark.parametrize("by_id", [True, False])
def test_n57_no_fetch_of_many_partitions_holds_the_loop(
    large_topic: CountedBroker, by_id: bool
) -> None:
    version = 18 if by_id else 12
    metadata = large_topic.world.node.metadata
    everything = FetchTopic(
        topic="t",
        topic_id=metadata.topic_id("t"),
        partitions=[FetchPartition(partition=n, partition_max_bytes=1) for n in range(PARTITIONS)],
    )

    def ask(epoch: int, session_id: int = 0, **fields: Any) -> FetchResponse:
        request = FetchRequest(session_id=session_id, session_epoch=epoch, max_bytes=1000, **fields)
        steps, answer = large_topic.longest_callback(request, version, "user")
        assert steps <= STEPS_MAX
        response = frames.decode_response(
            APIS[ApiKey.FETCH], version, memoryview(b"".join(answer))[4:]
        )
        assert isinstance(response, FetchResponse)
        return response

    whole = ask(0, topics=[everything])
    assert sum(len(topic.partitions) for topic in whole.responses) == PARTITIONS
    session_id = whole.session_id
    assert ask(1, session_id).responses == []
    # All are looked up again after a change of the topics.
    metadata.topics_version += 1
    assert ask(2, session_id).responses == []
    forgotten = ForgottenTopic(
        topic="t", topic_id=everything.topic_id, partitions=list(range(1, PARTITIONS))
    )
    assert ask(3, session_id, forgotten_topics_data=[forgotten]).responses == []
    assert ask(-1, session_id).responses == []


def test_n57_no_waiting_fetch_of_many_partitions_holds_the_loop(large_topic: CountedBroker) -> None:
    """The partitions that change are looked at, and not all others of the fetch."""
    asked = [FetchPartition(partition=n, partition_max_bytes=1) for n in range(PARTITIONS)]
    request = FetchRequest(
        session_epoch=-1,
        max_wait_ms=500,
        min_bytes=1_000_000,
        max_bytes=1_000_000,
        topics=[FetchTopic(topic="t", partitions=asked)],
    )
    steps, answer = large_topic.longest_callback(request, 12, "user")
    assert steps <= STEPS_MAX and isinstance(answer, Deferred) and not answer.done
    partition = large_topic.world.node.partition("t", 7)
    assert partition is not None
    steps, _ = large_topic.counter.steps_of(partition.wake)
    assert steps <= 100 and not answer.done
    steps, _ = large_topic.counter.steps_of(answer.abandon)
    assert steps <= STEPS_MAX
    large_topic.settle()
    assert not partition.data_waiters


def test_n57_no_share_fetch_of_many_partitions_holds_the_loop(large_topic: CountedBroker) -> None:
    large_topic.world.node.ensure_internal_topic(SHARE_STATE_TOPIC)
    large_topic.settle()
    topic_id = large_topic.world.node.metadata.topic_id("t")
    for epoch, waits in ((0, False), (1, False), (2, True)):
        partitions = [
            ShareFetchPartition(partition_index=n) for n in range(0 if epoch else PARTITIONS)
        ]
        request = ShareFetchRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=epoch,
            max_wait_ms=500 if waits else 0,
            min_bytes=1,
            max_bytes=1_000_000,
            max_records=500,
            batch_size=500,
            topics=[ShareFetchTopic(topic_id=topic_id, partitions=partitions)],
        )
        steps, answer = large_topic.longest_callback(request, 2, "user")
        large_topic.settle()
        assert steps <= STEPS_MAX
        assert isinstance(answer, list) is not waits
    assert isinstance(answer, Deferred) and not answer.done
    partition = large_topic.world.node.partition("t", 7)
    assert partition is not None
    steps, _ = large_topic.counter.steps_of(partition.wake)
    assert steps <= 100 and not answer.done
    steps, _ = large_topic.counter.steps_of(answer.abandon)
    assert steps <= STEPS_MAX
    large_topic.settle()
    assert not partition.data_waiters


def test_n57_the_elements_of_a_long_request_are_freed_one_by_one() -> None:
    """Else the partitions of a topic would be freed with it."""
    partitions = [[ListOffsetsPartition(partition_index=n)] * 2 for n in range(3)]
    topics = [ListOffsetsTopic(name="a", partitions=each) for each in partitions]
    elements = at_once(elements_of(ListOffsetsRequest(topics=topics)))
    assert elements == [*chain(*partitions), *topics]
