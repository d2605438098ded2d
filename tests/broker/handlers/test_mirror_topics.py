"""AppendMirrorRecords and PromoteMirrorTopics over the wire."""

from __future__ import annotations

import pytest

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.append_mirror_records import (
    AppendMirrorRecordsRequest,
    MirroredPartition,
    MirroredPartitionResult,
    MirroredTopic,
)
from odradek_protocol.schemas.promote_mirror_topics import PromoteMirrorTopicsRequest
from raw_client import RawClient

E = ErrorCode


async def append(client: RawClient, topic: str, part: MirroredPartition) -> MirroredPartitionResult:
    request = AppendMirrorRecordsRequest(
        timeout_ms=5_000, topics=[MirroredTopic(name=topic, partitions=[part])]
    )
    (answer,) = (await client.call(request, 0)).topics
    assert answer.name == topic
    result: MirroredPartitionResult = answer.partitions[0]
    return result


async def promote(client: RawClient, *topics: str) -> list[int]:
    request = PromoteMirrorTopicsRequest(timeout_ms=5_000, topics=list(topics))
    answer = await client.call(request, 0)
    assert [each.name for each in answer.topics] == list(topics)
    return [each.error_code for each in answer.topics]


@pytest.fixture(autouse=True)
async def topic(client: RawClient) -> None:
    await client.create_topic("t")


async def test_a24_the_right_to_append_and_to_promote(
    client: RawClient, broker: RunningBroker
) -> None:
    rights = ((Operation.CLUSTER_ACTION, True, False), (Operation.ALTER, False, True))
    for operation, appends, promotes in rights:
        broker.node.authorizer = RuleList(Rule(operation, ResourceType.CLUSTER))
        refused = E.CLUSTER_AUTHORIZATION_FAILED
        result = await append(client, "t", MirroredPartition(partition_index=0))
        assert (result.error_code == refused) is not appends
        assert (await promote(client, "t") == [refused]) is not promotes


async def test_an_ordinary_topic_takes_no_records_of_a_mirror(client: RawClient) -> None:
    result = await append(client, "t", MirroredPartition(partition_index=0))
    assert result.error_code == E.INVALID_REQUEST
    assert "not a mirror topic" in (result.error_message or "")
    result = await append(client, "absent", MirroredPartition(partition_index=0))
    assert result.error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_ordinary_topic_is_promoted_already(client: RawClient) -> None:
    assert await promote(client, "t", "absent") == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
