"""The admin's calls about share groups, against a scripted broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek import Admin
from odradek_client.admin import ShareGroupOffset
from odradek_client.errors import InvalidGroup, UnknownTopicOrPartition
from odradek_client.structs import TopicPartition
from odradek_protocol.common_structs import DescribedAssignment, TopicPartitionsInfo
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.alter_share_group_offsets import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from odradek_protocol.schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from odradek_protocol.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from odradek_protocol.schemas.share_group_describe import (
    DescribedShareGroup,
    DescribedShareMember,
    ShareGroupDescribeResponse,
)
from scripted_broker import ScriptedBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker(topics={"t": 2}) as broker:
        yield broker


@pytest.fixture
async def admin(broker: ScriptedBroker) -> AsyncIterator[Admin]:
    async with Admin(bootstrap_servers=broker.address, default_api_timeout_ms=5_000) as admin:
        yield admin


def offsets(*partitions: dict[str, Any], **more: Any) -> DescribeShareGroupOffsetsResponse:
    topic = DescribeShareGroupOffsetsResponseTopic(
        topic_name="t",
        topic_id=bytes(16),
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index, **{"leader_epoch": 3, **each}
            )
            for index, each in enumerate(partitions)
        ],
    )
    group = DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic], **more)
    return DescribeShareGroupOffsetsResponse(groups=[group])


async def test_a_share_group_is_described(broker: ScriptedBroker, admin: Admin) -> None:
    member = DescribedShareMember(
        member_id="m",
        member_epoch=4,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["u", "t"],
        assignment=DescribedAssignment(
            topic_partitions=[
                TopicPartitionsInfo(topic_id=bytes(16), topic_name="t", partitions=[1, 0])
            ]
        ),
    )
    group = DescribedShareGroup(
        group_id="g", group_state="Stable", group_epoch=5, assignor_name="simple", members=[member]
    )
    missing = DescribedShareGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_id="x")
    broker.on(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeResponse(groups=[group, missing]))
    found = await admin.describe_share_groups(["g", "x"], raise_errors=False)
    described = found["g"]
    assert (described.type, described.state, described.epoch) == ("share", "Stable", 5)
    assert described.members[0].topics == ["t", "u"]
    assert described.members[0].assignment == [T0, T1]
    assert isinstance(found.errors["x"], InvalidGroup)


async def test_start_offsets_are_listed_with_their_lag(
    broker: ScriptedBroker, admin: Admin
) -> None:
    broker.on(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        offsets({"start_offset": 7, "lag": 2}, {"start_offset": -1, "lag": -1}),
    )
    assert await admin.list_share_group_offsets("g") == {T0: ShareGroupOffset(7, 3, 2), T1: None}
    (request,) = broker.received(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
    assert request.groups[0].topics is None


async def test_partitions_missing_in_the_answer_have_no_start_offset(
    broker: ScriptedBroker, admin: Admin
) -> None:
    broker.on(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, offsets({"start_offset": 7}))
    found = await admin.list_share_group_offsets("g", [("t", 0), ("t", 1)])
    assert found == {T0: ShareGroupOffset(7, 3, None), T1: None}
    (request,) = broker.received(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
    assert request.groups[0].topics[0].partitions == [0, 1]


async def test_a_coordinator_that_has_moved_is_asked_again(
    broker: ScriptedBroker, admin: Admin
) -> None:
    broker.on(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        offsets(error_code=ErrorCode.NOT_COORDINATOR),
        offsets({"start_offset": 7}),
    )
    assert (await admin.list_share_group_offsets("g"))[T0] == ShareGroupOffset(7, 3, None)
    assert len(broker.received(ApiKey.FIND_COORDINATOR)) == 2


async def test_offsets_are_altered_by_partition(broker: ScriptedBroker, admin: Admin) -> None:
    broker.on(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        AlterShareGroupOffsetsResponse(
            responses=[
                AlterShareGroupOffsetsResponseTopic(
                    topic_name="t",
                    topic_id=bytes(16),
                    partitions=[
                        AlterShareGroupOffsetsResponsePartition(partition_index=0),
                        AlterShareGroupOffsetsResponsePartition(
                            partition_index=1, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    ],
                )
            ]
        ),
    )
    done = await admin.alter_share_group_offsets("g", {T0: 4, ("t", 1): 5}, raise_errors=False)
    assert dict(done) == {T0: None}
    assert isinstance(done.errors[T1], UnknownTopicOrPartition)
    (request,) = broker.received(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
    sent = [(p.partition_index, p.start_offset) for p in request.topics[0].partitions]
    assert sent == [(0, 4), (1, 5)]


async def test_the_brokers_reason_is_shown(broker: ScriptedBroker, admin: Admin) -> None:
    broker.on(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        AlterShareGroupOffsetsResponse(
            error_code=ErrorCode.NON_EMPTY_GROUP, error_message="The group is not empty: g"
        ),
    )
    with pytest.raises(InvalidGroup, match="not empty"):
        await admin.alter_share_group_offsets("g", {T0: 4})


async def test_offsets_are_deleted_by_topic(broker: ScriptedBroker, admin: Admin) -> None:
    broker.on(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        DeleteShareGroupOffsetsResponse(
            responses=[
                DeleteShareGroupOffsetsResponseTopic(topic_name="t", topic_id=bytes(16)),
                DeleteShareGroupOffsetsResponseTopic(
                    topic_name="u",
                    topic_id=bytes(16),
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ),
            ]
        ),
    )
    done = await admin.delete_share_group_offsets("g", ["t", "u"], raise_errors=False)
    assert dict(done) == {"t": None}
    assert isinstance(done.errors["u"], UnknownTopicOrPartition)
