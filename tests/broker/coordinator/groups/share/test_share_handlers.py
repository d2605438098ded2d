"""The handlers of the APIs of share groups: rights, errors, and the form of the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from handler_calls import ask
from odradek_broker.share_state import ShareKey, ShareState
from odradek_protocol.errors import ErrorCode as E
from odradek_protocol.message import Message
from odradek_protocol.schemas.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek_protocol.schemas.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek_protocol.schemas.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.list_groups import ListGroupsRequest
from odradek_protocol.schemas.share_group_describe import ShareGroupDescribeRequest
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from share_group_world import GROUP, ShareGroupWorld, T


@pytest.fixture
def world() -> ShareGroupWorld:
    return ShareGroupWorld()


def beat(**more: Any) -> ShareGroupHeartbeatRequest:
    fields = {"group_id": GROUP, "member_id": "m", "subscribed_topic_names": ["topic"], **more}
    return ShareGroupHeartbeatRequest(**fields)


def describe(*names: str) -> ShareGroupDescribeRequest:
    return ShareGroupDescribeRequest(group_ids=list(names or (GROUP,)))


def offsets(*topics: tuple[str, list[int]], group: str = GROUP) -> DescribeShareGroupOffsetsRequest:
    wanted = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
        for name, indexes in topics
    ]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted or None)
    return DescribeShareGroupOffsetsRequest(groups=[asked])


def alter(*topics: tuple[str, dict[int, int]], group: str = GROUP) -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=start
                    )
                    for index, start in starts.items()
                ],
            )
            for name, starts in topics
        ],
    )


def delete(*names: str, group: str = GROUP) -> DeleteShareGroupOffsetsRequest:
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return DeleteShareGroupOffsetsRequest(group_id=group, topics=topics)


ERRORS: dict[str, tuple[Message, int, Callable[[Any], int]]] = {
    "ShareGroupHeartbeat": (beat(), 1, lambda answer: answer.error_code),
    "ShareGroupDescribe": (describe(), 1, lambda answer: answer.groups[0].error_code),
    "DescribeShareGroupOffsets": (offsets(), 1, lambda answer: answer.groups[0].error_code),
    "AlterShareGroupOffsets": (alter(("topic", {0: 1})), 0, lambda answer: answer.error_code),
    "DeleteShareGroupOffsets": (delete("topic"), 0, lambda answer: answer.error_code),
}


@pytest.mark.parametrize("api", ERRORS)
def test_h31_every_request_is_refused_while_the_feature_is_off(
    world: ShareGroupWorld, api: str
) -> None:
    request, version, error = ERRORS[api]
    world.metadata.share_groups_off = "the feature share.version is at level 0"
    assert error(ask(world, request, version)) == E.UNSUPPORTED_VERSION
    assert not world.log.records


def test_h10_a_heartbeat_request_makes_a_member_join(world: ShareGroupWorld) -> None:
    answer = ask(world, beat(), 1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (E.NONE, "m", 2)
    assert ask(world, beat(member_id="x" * 37), 1).error_code == E.INVALID_REQUEST
    described = ask(world, describe(GROUP, "", "none", GROUP), 1).groups
    assert [(each.group_id, each.error_code) for each in described] == [
        (GROUP, E.NONE),
        ("", E.INVALID_GROUP_ID),
        ("none", E.GROUP_ID_NOT_FOUND),
    ]
    assert described[0].members[0].client_host.startswith("/")


def test_h05_list_groups_filters_share_groups(world: ShareGroupWorld) -> None:
    ask(world, beat(), 1)
    world.enter(group="classic")
    for request, expected in (
        (ListGroupsRequest(types_filter=["Share"]), [GROUP]),
        (ListGroupsRequest(types_filter=["share"], states_filter=["stable"]), [GROUP]),
        (ListGroupsRequest(types_filter=["share"], states_filter=["empty"]), []),
        (ListGroupsRequest(types_filter=["classic"]), ["classic"]),
    ):
        assert [each.group_id for each in ask(world, request, 5).groups] == expected


@pytest.mark.parametrize("version", [0, 1])
def test_h24_share_group_offsets_are_described(world: ShareGroupWorld, version: int) -> None:
    world.share_join("m", ["topic"])
    world.share_states.states[ShareKey(GROUP, T, 1)] = ShareState(0, 2, 7, 40, 3)
    world.end_offsets["topic", 1] = 50
    [found] = ask(world, offsets(("none", [5]), ("topic", [1, 0])), version).groups
    assert [(topic.topic_name, topic.topic_id) for topic in found.topics] == [
        ("topic", T),
        ("none", bytes(16)),
    ]
    [one, zero], [missing] = (topic.partitions for topic in found.topics)
    assert (one.partition_index, one.start_offset, one.leader_epoch) == (1, 40, 7)
    assert one.lag == (7 if version else -1)
    assert (zero.partition_index, zero.start_offset, zero.lag) == (0, -1, -1)
    assert (missing.partition_index, missing.start_offset, missing.error_code) == (5, -1, E.NONE)
    [everything] = ask(world, offsets(), version).groups
    assert [each.partition_index for each in everything.topics[0].partitions] == list(range(10))
    [nothing] = ask(world, offsets(group="none"), version).groups
    assert (nothing.topics, nothing.error_code) == ([], E.NONE)


def test_h25_share_group_offsets_are_altered(world: ShareGroupWorld) -> None:
    answer = ask(world, alter(("topic", {0: 5, 10: 6}), ("none", {0: 1})), 0)
    assert answer.error_code == E.NONE
    found = {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.responses
        for each in topic.partitions
    }
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {("topic", 0): E.NONE, ("topic", 10): unknown, ("none", 0): unknown}
    assert world.share_states.states[ShareKey(GROUP, T, 0)].start_offset == 5
    assert ask(world, alter(group=""), 0).error_code == E.INVALID_GROUP_ID
    ask(world, beat(), 1)
    refused = ask(world, alter(("topic", {0: 5})), 0)
    assert (refused.error_code, refused.responses) == (E.NON_EMPTY_GROUP, [])


def test_h26_share_group_offsets_are_deleted(world: ShareGroupWorld) -> None:
    ask(world, alter(("topic", {0: 5})), 0)
    answer = ask(world, delete("none", "topic"), 0)
    assert [(topic.topic_name, topic.topic_id, topic.error_code) for topic in answer.responses] == [
        ("topic", T, E.NONE),
        ("none", bytes(16), E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert ask(world, delete(group=""), 0).error_code == E.INVALID_GROUP_ID
    missing = ask(world, delete("topic", group="none"), 0)
    assert (missing.error_code, missing.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        "Group none not found.",
    )


SHARE = f"{GROUP}:AAAAAAAAAAAAAAAAAAAACQ:7"


@pytest.mark.parametrize(
    ("key", "version", "error"),
    [
        (SHARE, 6, E.NONE),
        (f"a:b:{SHARE}::", 6, E.NONE),
        (SHARE.replace(":7", ":-7"), 6, E.NONE),
        (SHARE, 5, E.INVALID_REQUEST),
        (GROUP, 6, E.INVALID_REQUEST),
        ("", 6, E.INVALID_REQUEST),
        (SHARE.removesuffix(":7"), 6, E.INVALID_REQUEST),
        (SHARE.removeprefix(GROUP), 6, E.INVALID_REQUEST),
        (SHARE.replace(":7", ":x"), 6, E.INVALID_REQUEST),
        (SHARE.replace(":7", f":{1 << 31}"), 6, E.INVALID_REQUEST),
        (SHARE.replace("AAAA", "AA"), 6, E.INVALID_REQUEST),
        (SHARE.replace("AAAA", "A"), 6, E.INVALID_REQUEST),
    ],
)
def test_h32_the_coordinator_of_a_share_partition_is_found(
    world: ShareGroupWorld, key: str, version: int, error: E
) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    [found] = ask(world, request, version).coordinators
    assert (found.key, found.error_code) == (key, error)
    assert (found.node_id == 1) is (error is E.NONE)
