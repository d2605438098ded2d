"""Answers are never larger than fetch.max.bytes, however often a request repeats a name (D11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_in_loop import StartBroker
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek_protocol.schemas.describe_groups import DescribeGroupsRequest
from odradek_protocol.schemas.describe_producers import DescribeProducersRequest, TopicRequest
from odradek_protocol.schemas.describe_transactions import DescribeTransactionsRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek_protocol.schemas.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raw_client import RawClient

_TOPIC = 2
_GROUP = 32


async def coordinator(client: RawClient, key_type: int = 0) -> None:
    """Find the coordinator of groups (0) or transactional ids (1). The request creates the
    coordinator's topic."""
    await client.call(FindCoordinatorRequest(key="g", key_type=key_type), 3)


async def member_with(client: RawClient, group: str, assignment_bytes: int) -> None:
    """A stable classic group, whose only member has an assignment of `assignment_bytes` bytes."""
    await coordinator(client)
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = await client.call(join, 3)
    await client.call(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=joined.member_id, assignment=bytes(assignment_bytes)
                )
            ],
        ),
        3,
    )


async def commit(client: RawClient, group: str, metadata: str = "") -> None:
    await coordinator(client)
    position = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=metadata
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[position])
    answer = await client.call(OffsetCommitRequest(group_id=group, topics=[topic]), 8)
    assert answer.topics[0].partitions[0].error_code == 0


TIMES = 2_000
REPEATED: dict[str, tuple[Message, int, Callable[[Any], list[Any]]]] = {
    "DescribeGroups": (
        DescribeGroupsRequest(groups=["g", "none"] * TIMES),
        6,
        lambda answer: [group.group_id for group in answer.groups],
    ),
    "ConsumerGroupDescribe": (
        ConsumerGroupDescribeRequest(group_ids=["g", "none"] * TIMES),
        1,
        lambda answer: [group.group_id for group in answer.groups],
    ),
    "DescribeTransactions": (
        DescribeTransactionsRequest(transactional_ids=["g", "none"] * TIMES),
        0,
        lambda answer: [state.transactional_id for state in answer.transaction_states],
    ),
    "DescribeConfigs": (
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=_TOPIC, resource_name=name, configuration_keys=None
                )
                for name in ["t", "none"] * TIMES
            ]
        ),
        4,
        lambda answer: [result.resource_name for result in answer.results],
    ),
    "DescribeProducers": (
        DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 0])] * TIMES),
        0,
        lambda answer: [len(topic.partitions) for topic in answer.topics],
    ),
    "Metadata": (
        MetadataRequest(topics=[MetadataRequestTopic(name="t")] * TIMES),
        12,
        lambda answer: [topic.name for topic in answer.topics],
    ),
    "OffsetFetch, one group": (
        OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 0])] * TIMES,
        ),
        7,
        lambda answer: [len(topic.partitions) for topic in answer.topics],
    ),
    "OffsetFetch, groups": (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id=name, topics=None) for name in ["g", "h"] * TIMES
            ]
        ),
        9,
        lambda answer: [(group.group_id, len(group.topics)) for group in answer.groups],
    ),
    "OffsetFetch, positions": (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0, 0])],
                )
                for _ in range(TIMES)
            ]
        ),
        9,
        lambda answer: [len(topic.partitions) for topic in answer.groups[0].topics],
    ),
}
ONCE: dict[str, list[Any]] = {
    "DescribeGroups": ["g", "none"],
    "ConsumerGroupDescribe": ["g", "none"],
    "DescribeTransactions": ["g", "none"],
    "DescribeConfigs": ["t", "none"],
    "DescribeProducers": [1],
    "Metadata": ["t"],
    "OffsetFetch, one group": [1],
    "OffsetFetch, groups": [("g", 1), ("h", 0)],
    "OffsetFetch, positions": [1],
}


@pytest.mark.parametrize("name", REPEATED)
async def test_d11_a_name_repeated_in_a_request_is_answered_once(
    client: RawClient, name: str
) -> None:
    await client.create_topic("t")
    await commit(client, "g")
    if name == "DescribeTransactions":
        await coordinator(client, 1)
    request, version, named = REPEATED[name]
    assert named(await client.call(request, version)) == ONCE[name]


async def test_a18_a_repeated_resource_is_described_with_all_requested_keys(
    client: RawClient,
) -> None:
    await client.create_topic("t")

    def asking(*keys: list[str] | None) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=_TOPIC, resource_name="t", configuration_keys=each
                )
                for each in keys
            ]
        )

    two = await client.call(asking(["segment.bytes"], ["cleanup.policy"]), 4)
    assert [config.name for config in two.results[0].configs] == ["cleanup.policy", "segment.bytes"]
    everything = await client.call(asking(["segment.bytes"], None, ["cleanup.policy"]), 4)
    assert everything.results == (await client.call(asking(None), 4)).results


async def test_d11_every_name_is_refused_if_the_answer_would_be_too_large(
    start_broker: StartBroker,
) -> None:
    """Each name gets an error code, the log gets one line, and the connection stays open."""
    broker = await start_broker(fetch_max_bytes="100000")
    client = await broker.client()
    for group in ("a", "b"):
        await member_with(client, group, 60_000)
    one = await client.call(DescribeGroupsRequest(groups=["a"]), 6)
    assert len(one.groups[0].members[0].member_assignment) == 60_000
    with capture_logs() as lines:
        for _ in range(3):
            both = await client.call(DescribeGroupsRequest(groups=["a", "b", "a"]), 6)
        await client.call(DescribeGroupsRequest(groups=["a"]), 6)
    assert [(group.group_id, group.error_code) for group in both.groups] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.INVALID_REQUEST),
    ]
    (line,) = [line for line in lines if line["log_level"] == "warning"]
    assert "DescribeGroups" in line["reason"] and "fetch.max.bytes" in line["reason"]


async def test_d11_too_many_settings_of_unknown_groups_are_refused_by_name(
    start_broker: StartBroker,
) -> None:
    """The groups need not exist. The broker stops building the answer, and the connection stays
    open."""
    broker = await start_broker(fetch_max_bytes="100000")
    client = await broker.client()

    def asking(count: int) -> DescribeConfigsRequest:
        return DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=_GROUP, resource_name=f"g{number}", configuration_keys=None
                )
                for number in range(count)
            ],
            include_documentation=True,
        )

    with capture_logs() as lines:
        for _ in range(3):
            refused = await client.call(asking(2_000), 4)
    assert [line["event"] for line in lines] == ["refused a request"]
    assert [result.resource_name for result in refused.results] == [f"g{n}" for n in range(2_000)]
    assert {result.error_code for result in refused.results} == {ErrorCode.INVALID_REQUEST}
    text = refused.results[0].error_message
    assert "at least" in text and "at most 100000 are sent (fetch.max.bytes)" in text
    described = await client.call(asking(2), 4)
    assert [result.error_code for result in described.results] == [0, 0]


async def test_d11_a_too_large_answer_without_an_error_code_closes_the_connection(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(fetch_max_bytes="2000")
    client = await broker.client()
    for number in range(40):
        await client.create_topic(f"topic-with-a-long-name-{number}")
    with capture_logs() as lines:
        client.send(MetadataRequest(topics=None), 9)
        assert await client.closed()
    (line,) = [line for line in lines if line["log_level"] == "warning"]
    assert "Metadata" in line["reason"] and "fetch.max.bytes" in line["reason"]


async def test_d11_a_too_large_offset_fetch_answer_is_replaced_by_an_error_code(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(fetch_max_bytes="3000")
    client = await broker.client()
    await client.create_topic("t")
    await commit(client, "g", "m" * 4000)
    refused = await client.call(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert (refused.error_code, refused.topics) == (ErrorCode.INVALID_REQUEST, [])
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    refused = await client.call(OffsetFetchRequest(groups=groups), 9)
    assert [group.error_code for group in refused.groups] == [ErrorCode.INVALID_REQUEST]
