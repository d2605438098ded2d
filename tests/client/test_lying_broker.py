"""The client with a broker that lies: every answer ends in a clear error, and no lie takes memory,
a wait without a limit, or requests without a pause (rule C-84)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek import Admin, ConfigResource, Consumer, NewTopic, Producer
from odradek_client.admin import AclBindingFilter
from odradek_client.admin.quotas import QuotaEntity
from odradek_client.errors import BadAnswer, ConnectionLost, MetadataTimeout, OdradekError
from odradek_client.structs import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.message import Message
from odradek_protocol.schemas.alter_client_quotas import AlterClientQuotasResponse
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from odradek_protocol.schemas.create_partitions import CreatePartitionsResponse
from odradek_protocol.schemas.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek_protocol.schemas.delete_acls import DeleteAclsResponse
from odradek_protocol.schemas.delete_topics import DeleteTopicsResponse
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek_protocol.schemas.fetch import FetchResponse
from odradek_protocol.schemas.find_coordinator import Coordinator, FindCoordinatorResponse
from odradek_protocol.schemas.incremental_alter_configs import IncrementalAlterConfigsResponse
from odradek_protocol.schemas.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from scripted_broker import ScriptedBroker

ESCAPES = "evil\x1b]0;owned\x07\nnext"
QUICK: dict[str, Any] = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
}
#: A pause between requests that no test waits for.
FOR_EVER: dict[str, Any] = {"retry_backoff_ms": 3_600_000, "retry_backoff_max_ms": 3_600_000}


async def test_c84_partitions_that_are_not_0_to_n_are_none() -> None:
    """A producer made a queue for each number below the largest one."""
    for numbers in ([], [2**31 - 1], [0, 2], [-1], [-(2**31), 0]):
        async with ScriptedBroker(topics={"t": 1}) as broker:
            topic = MetadataResponseTopic(
                name="t",
                partitions=[
                    MetadataResponsePartition(partition_index=each, leader_id=1) for each in numbers
                ],
            )
            answer = MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port)],
                topics=[topic],
            )
            broker.always(ApiKey.METADATA, lambda *_, answer=answer: answer)
            async with Producer(
                bootstrap_servers=broker.address, max_block_ms=100, **QUICK
            ) as producer:
                with pytest.raises(MetadataTimeout, match="INVALID_PARTITIONS"):
                    await producer.send("t", key=b"k")


_CHANGES: dict[ApiKey, tuple[Message, Callable[[Admin], Awaitable[Any]]]] = {
    ApiKey.CREATE_TOPICS: (
        CreateTopicsResponse(topics=[CreatableTopicResult(name="other")]),
        lambda admin: admin.create_topics(NewTopic("t", partitions=1)),
    ),
    ApiKey.DELETE_TOPICS: (DeleteTopicsResponse(), lambda admin: admin.delete_topics("t")),
    ApiKey.CREATE_PARTITIONS: (
        CreatePartitionsResponse(),
        lambda admin: admin.create_partitions({"t": 2}),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        IncrementalAlterConfigsResponse(),
        lambda admin: admin.alter_configs({ConfigResource.topic("t"): {"retention.ms": "1"}}),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (
        AlterClientQuotasResponse(),
        lambda admin: admin.alter_client_quotas({QuotaEntity(user="a"): {"request_percentage": 1}}),
    ),
    ApiKey.DELETE_ACLS: (
        DeleteAclsResponse(),
        lambda admin: admin.delete_acls(AclBindingFilter(name="t")),
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_type=99, resource_name="t")]
        ),
        lambda admin: admin.describe_configs(ConfigResource.topic("t")),
    ),
}


@pytest.mark.parametrize("key", _CHANGES, ids=lambda key: key.name.lower())
async def test_c84_what_an_answer_leaves_out_has_not_succeeded(key: ApiKey) -> None:
    answer, ask = _CHANGES[key]
    async with ScriptedBroker(topics={"t": 1}) as broker:
        broker.always(key, lambda request, version: answer)
        async with Admin(bootstrap_servers=broker.address, **QUICK) as admin:
            with pytest.raises(BadAnswer, match="has not answered about"):
                await ask(admin)


async def test_c84_positions_that_the_answer_leaves_out_are_asked_for_after_a_pause() -> None:
    other = ListOffsetsTopicResponse(
        name="other", partitions=[ListOffsetsPartitionResponse(partition_index=7, offset=1)]
    )
    none = ListOffsetsTopicResponse(
        name="t", partitions=[ListOffsetsPartitionResponse(partition_index=0, offset=-1)]
    )
    for topics in ([], [other], [none]):
        async with ScriptedBroker(topics={"t": 1}) as broker:
            answer = ListOffsetsResponse(topics=topics)
            broker.always(ApiKey.LIST_OFFSETS, lambda *_, answer=answer: answer)
            async with Consumer(
                bootstrap_servers=broker.address, auto_offset_reset="earliest", **FOR_EVER
            ) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                while not broker.received(ApiKey.LIST_OFFSETS):
                    await consumer.poll(1)
                for _ in range(20):
                    await consumer.poll(1)
                assert len(broker.received(ApiKey.LIST_OFFSETS)) == 1


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", -1), ("127.0.0.1", 2**31 - 1), ("x" * 100, 1), (ESCAPES, 1)]
)
async def test_c84_an_address_that_is_none_is_a_lost_connection(
    host: str, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "odradek.client")
    async with ScriptedBroker(topics={"t": 1}) as broker:
        broker.always(
            ApiKey.FIND_COORDINATOR,
            lambda request, version: FindCoordinatorResponse(
                coordinators=[
                    Coordinator(key=each, node_id=2, host=host, port=port)
                    for each in request.coordinator_keys
                ]
            ),
        )
        async with Admin(
            bootstrap_servers=broker.address, default_api_timeout_ms=100, **QUICK
        ) as admin:
            with pytest.raises(ConnectionLost) as raised:
                await admin.list_group_offsets("g")
    assert "\x1b" not in str(raised.value) + caplog.text
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


async def test_c84_texts_of_brokers_are_escaped_in_errors() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker:
        refused = CreatableTopicResult(
            name="t", error_code=ErrorCode.POLICY_VIOLATION, error_message=ESCAPES
        )
        broker.always(ApiKey.CREATE_TOPICS, lambda *_: CreateTopicsResponse(topics=[refused]))
        async with Admin(bootstrap_servers=broker.address, **QUICK) as admin:
            with pytest.raises(OdradekError, match=r"evil\\x1b\]0;owned\\x07\\nnext"):
                await admin.create_topics(NewTopic("t", partitions=1))


async def test_c84_joins_that_are_refused_again_and_again_have_pauses() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker:
        unknown = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        broker.always(ApiKey.JOIN_GROUP, lambda *_: unknown)
        async with Consumer(
            "t", bootstrap_servers=broker.address, group_id="g", **FOR_EVER
        ) as consumer:
            while len(broker.received(ApiKey.JOIN_GROUP)) < 3:
                await consumer.poll(1)
            for _ in range(20):
                await consumer.poll(1)
            assert len(broker.received(ApiKey.JOIN_GROUP)) == 3


async def test_c84_a_member_that_is_fenced_again_and_again_pauses() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker:
        fenced = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        broker.always(ApiKey.CONSUMER_GROUP_HEARTBEAT, lambda *_: fenced)
        async with Consumer(
            "t",
            bootstrap_servers=broker.address,
            group_id="g",
            group_protocol="consumer",
            **FOR_EVER,
        ) as consumer:
            while len(broker.received(ApiKey.CONSUMER_GROUP_HEARTBEAT)) < 2:
                await consumer.poll(1)
            for _ in range(20):
                await consumer.poll(1)
            assert len(broker.received(ApiKey.CONSUMER_GROUP_HEARTBEAT)) == 2


async def test_c84_a_subscription_that_cannot_be_read_is_a_bad_answer() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker:
        member = JoinGroupResponseMember(member_id="m", metadata=b"\xff")
        joined = JoinGroupResponse(
            generation_id=1,
            protocol_name="range",
            protocol_type="consumer",
            leader="m",
            member_id="m",
            members=[member],
        )
        broker.always(ApiKey.JOIN_GROUP, lambda *_: joined)
        async with Consumer(
            "t", bootstrap_servers=broker.address, group_id="g", **QUICK
        ) as consumer:
            with pytest.raises(BadAnswer, match="group 'g': a subscription"):
                while True:
                    await consumer.poll(10)


@pytest.mark.parametrize("code", [999, ErrorCode.INVALID_REQUEST])
async def test_k20_c84_a_fetch_that_is_refused_as_a_whole_is_an_error_of_the_poll(
    code: int,
) -> None:
    """It was sent again for ever, and `odradek consume -e` never ended."""
    async with ScriptedBroker(topics={"t": 1}) as broker:
        broker.always(ApiKey.FETCH, lambda *_: FetchResponse(error_code=code))
        async with Consumer(bootstrap_servers=broker.address, **QUICK) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek(TopicPartition("t", 0), 0)
            with pytest.raises(OdradekError, match="a fetch from node 1"):
                while True:
                    await consumer.poll(10)
