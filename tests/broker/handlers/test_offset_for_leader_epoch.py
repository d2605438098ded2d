"""OffsetForLeaderEpoch: the ends of epochs (rules F-11, F-13, A-10)."""

from __future__ import annotations

from typing import Any

import pytest

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker
from odradek_broker.partition import Partition
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from raw_client import RawClient, batch_of, produce_request

E = ErrorCode


async def ask(
    client: RawClient,
    epoch: int,
    *,
    current: int = -1,
    topic: str = "t",
    partition: int = 0,
    version: int = 4,
) -> Any:
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    )
    response = await client.call(request, version)
    (topic_answer,) = response.topics
    (answer,) = topic_answer.partitions
    assert (topic_answer.topic, answer.partition) == (topic, partition)
    return answer


@pytest.fixture(autouse=True)
async def topic(client: RawClient) -> None:
    await client.create_topic("t", partitions=2)
    for _ in range(2):
        await client.call(produce_request("t", batch_of(b"a", b"b", b"c")), 9)


def partition_of(broker: RunningBroker) -> Partition:
    found = broker.node.partition("t", 0)
    assert isinstance(found, Partition)
    return found


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_f13_the_latest_epoch_ends_at_the_log_end(client: RawClient, version: int) -> None:
    answer = await ask(client, 0, version=version)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (E.NONE, 0, 6)


@pytest.mark.parametrize("epoch", [-1, 1, 2**31 - 1])
async def test_f13_an_epoch_that_never_existed_is_unknown(client: RawClient, epoch: int) -> None:
    answer = await ask(client, epoch)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (E.NONE, -1, -1)


@pytest.mark.parametrize("epoch", [-2, -(2**31)])
async def test_f13_an_epoch_below_minus_1_ends_where_the_first_epoch_begins(
    client: RawClient, epoch: int
) -> None:
    answer = await ask(client, epoch)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (E.NONE, epoch, 0)


async def test_f13_the_epoch_of_an_empty_log_ends_at_offset_0(client: RawClient) -> None:
    answer = await ask(client, 0, partition=1)
    assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (E.NONE, 0, 0)


async def test_f13_an_epoch_ends_at_the_start_of_the_next_epoch(
    client: RawClient, broker: RunningBroker
) -> None:
    partition_of(broker).leader_epoch = 3
    await client.call(produce_request("t", batch_of(b"d")), 9)
    partition_of(broker).leader_epoch = 5
    told = [await ask(client, epoch) for epoch in range(7)]
    assert [(answer.leader_epoch, answer.end_offset) for answer in told] == [
        (0, 6),
        (0, 6),
        (0, 6),
        (3, 7),
        (3, 7),
        (5, 7),  # the current epoch of the leader, which has no records yet
        (-1, -1),
    ]


async def test_f13_an_epoch_older_than_the_log_ends_at_the_log_start(
    client: RawClient, broker: RunningBroker
) -> None:
    partition = partition_of(broker)
    partition.leader_epoch = 3
    await client.call(produce_request("t", batch_of(b"d", b"e")), 9)
    partition.log.trimming.delete_records(7)
    answer = await ask(client, 0)
    assert (answer.leader_epoch, answer.end_offset) == (0, 7)


async def test_f11_another_leader_epoch_is_refused(
    client: RawClient, broker: RunningBroker
) -> None:
    partition_of(broker).leader_epoch = 2
    older, own, newer = [await ask(client, 0, current=epoch) for epoch in (1, 2, 3)]
    assert own.error_code == E.NONE
    assert (older.error_code, newer.error_code) == (E.FENCED_LEADER_EPOCH, E.UNKNOWN_LEADER_EPOCH)
    assert (older.leader_epoch, older.end_offset) == (-1, -1)


async def test_f13_unknown_topics_and_partitions_are_refused(client: RawClient) -> None:
    assert (await ask(client, 0, partition=7)).error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    assert (await ask(client, 0, topic="nowhere")).error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_a10_offset_for_leader_epoch_needs_describe_on_the_topic(
    client: RawClient, broker: RunningBroker
) -> None:
    broker.node.authorizer = RuleList(Rule(Operation.READ, ResourceType.TOPIC, "t"))
    assert (await ask(client, 0)).error_code == E.NONE
    assert (await ask(client, 0, topic="hidden")).error_code == E.TOPIC_AUTHORIZATION_FAILED
