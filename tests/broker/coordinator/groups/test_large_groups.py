"""Groups with thousands of members, names, offsets, and thousands of groups: no request about them,
and no deadline of theirs, holds the loop (rule N-57). The steps of the longest callback are
counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import budget
from odradek_broker.metadata.cluster import OFFSETS_TOPIC, SHARE_STATE_TOPIC
from odradek_protocol.common_structs import PartitionsOfTopic, StreamsSubtopology
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message
from odradek_protocol.schemas import describe_history
from odradek_protocol.schemas.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek_protocol.schemas.delete_groups import DeleteGroupsRequest
from odradek_protocol.schemas.describe_groups import DescribeGroupsRequest
from odradek_protocol.schemas.describe_history import DescribeHistoryRequest
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from odradek_protocol.schemas.list_groups import ListGroupsRequest
from odradek_protocol.schemas.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek_protocol.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek_protocol.schemas.share_group_describe import ShareGroupDescribeRequest
from odradek_protocol.schemas.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek_protocol.schemas.streams_group_describe import StreamsGroupDescribeRequest
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsTopology,
)
from odradek_protocol.schemas.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek_protocol.stored.assignment import (
    ConsumerAssignment,
    encode_assignment,
)
from odradek_protocol.stored.subscription import ConsumerSubscription, encode_subscription
from steps import steps_of
from timed_broker import TimedBroker

E = ErrorCode
#: The most steps of one callback. A turn takes 6,000, and what begins in it may end later.
STEPS_MAX = 20_000
MEMBERS = 300 if budget.is_short() else 1_000
NAMES = 4_000 if budget.is_short() else 20_000
PARTITIONS = 100
TOPIC, GROUP = "topic", "group"
JOIN_VERSION = 9
SESSION_MS = 45_000
SUBSCRIPTION = encode_subscription(ConsumerSubscription(topics=[TOPIC]), 1)


class LargeGroups(TimedBroker):
    """A broker with one partition of offsets."""

    def __init__(self, **settings: str) -> None:
        super().__init__(
            patience_ms=5_000,
            offsets_topic_num_partitions="1",
            share_coordinator_state_topic_num_partitions="1",
            group_share_max_size="1000",
            group_initial_rebalance_delay_ms="3000",
            group_streams_initial_rebalance_delay_ms="0",
            **settings,
        )
        for name in (OFFSETS_TOPIC, SHARE_STATE_TOPIC):
            self.world.node.ensure_internal_topic(name)
        self.world.create(TOPIC, PARTITIONS)
        self.wait(1_000)
        self.longest = 0


# --- The members of large groups ---


def consumer_beat(member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    how: dict[str, Any] = {"topic_partitions": []}
    if not epoch:
        how |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC]}
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, **{**how, **fields}
    )


def share_beat(member_id: str, epoch: int, **fields: Any) -> ShareGroupHeartbeatRequest:
    how: dict[str, Any] = {} if epoch else {"subscribed_topic_names": [TOPIC]}
    return ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member_id, member_epoch=epoch, **{**how, **fields}
    )


def streams_beat(member_id: str, epoch: int, **fields: Any) -> StreamsGroupHeartbeatRequest:
    how: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    if not epoch:
        topology = StreamsTopology(
            epoch=0, subtopologies=[StreamsSubtopology(subtopology_id="0", source_topics=[TOPIC])]
        )
        how |= {"rebalance_timeout_ms": 60_000, "topology": topology, "process_id": member_id}
        how |= {"client_tags": []}
    return StreamsGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        endpoint_information_epoch=0,
        **{**how, **fields},
    )


Beat = Callable[..., Message]


def crowd(beat: Beat, number: int = MEMBERS) -> LargeGroups:
    """A group of many members, which have joined and reached the assignment."""
    groups = LargeGroups()
    epochs = dict.fromkeys([f"m{at:05}" for at in range(number)], 0)
    for each_round in range(4):
        for member_id, epoch in epochs.items():
            answer = groups.ask(beat(member_id, epoch))
            assert answer.error_code == E.NONE, answer
            epochs[member_id] = answer.member_epoch
        if each_round and len(set(epochs.values())) == 1:
            break
        groups.wait(1_100)
    assert len(set(epochs.values())) == 1
    return groups


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Have the codecs compiled, which each process does once."""
    for beat in (consumer_beat, share_beat, streams_beat):
        crowd(beat, 3)


@pytest.mark.parametrize("beat", [consumer_beat, share_beat, streams_beat])
def test_n57_a_large_group_does_not_hold_the_loop(beat: Beat) -> None:
    groups = crowd(beat)
    assert groups.longest <= STEPS_MAX


# --- Subscriptions to many topics ---


def many_names(number: int = NAMES) -> list[str]:
    return [f"{at:05}-name" for at in range(number)]


@pytest.mark.parametrize("beat", [consumer_beat, share_beat])
def test_n57_a_subscription_to_many_topics_does_not_hold_the_loop(beat: Beat) -> None:
    groups = LargeGroups()
    names = many_names()
    epoch = groups.ask(beat("a", 0, subscribed_topic_names=[TOPIC, *names])).member_epoch
    assert epoch > 0
    groups.wait(1_100)
    assert groups.ask(beat("b", 0, subscribed_topic_names=[TOPIC])).error_code == E.NONE
    changed = beat("a", epoch, subscribed_topic_names=[TOPIC, *names[1:]])
    assert groups.ask(changed).error_code == E.NONE
    assert groups.ask(beat("a", -1)).error_code == E.NONE
    assert groups.ask(beat("b", -1)).error_code == E.NONE
    assert groups.longest <= STEPS_MAX


def test_n57_a_topology_of_many_topics_does_not_hold_the_loop() -> None:
    groups = LargeGroups()
    topology = StreamsTopology(
        epoch=0,
        subtopologies=[
            StreamsSubtopology(subtopology_id=name, source_topics=[TOPIC, f"{name}-t"])
            for name in many_names(NAMES // 4)
        ],
    )
    assert groups.ask(streams_beat("a", 0, topology=topology)).error_code == E.NONE
    assert groups.ask(streams_beat("b", 0, topology=topology)).error_code == E.NONE
    assert groups.longest <= STEPS_MAX


# --- Classic groups ---


def join(member_id: str = "", metadata: bytes = SUBSCRIPTION) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def sync(member_id: str, generation: int, ids: Sequence[str] = ()) -> SyncGroupRequest:
    assignment = encode_assignment(
        ConsumerAssignment(assigned_partitions=[PartitionsOfTopic(topic=TOPIC, partitions=[0])]), 1
    )
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=each, assignment=assignment) for each in ids
        ],
    )


def classic_crowd(number: int = 2 * MEMBERS) -> tuple[LargeGroups, list[str]]:
    """A stable classic group of many members. Returns their ids; the first is the leader."""
    groups = LargeGroups()
    ids = [groups.ask(join(), JOIN_VERSION).member_id for _ in range(number)]
    answers = groups.ask_all([join(member_id) for member_id in ids], JOIN_VERSION)
    leader = next(answer for answer in answers if answer.members)
    assert len(leader.members) == number
    ids.remove(leader.member_id)
    ids.insert(0, leader.member_id)
    synced = groups.ask_all(
        [*(sync(each, 1) for each in ids[1:]), sync(ids[0], 1, ids)],
    )
    assert {answer.error_code for answer in synced} == {E.NONE}
    return groups, ids


def test_n57_a_generation_of_a_large_classic_group_does_not_hold_the_loop() -> None:
    groups, ids = classic_crowd()
    assert groups.longest <= STEPS_MAX
    described = groups.ask(DescribeGroupsRequest(groups=[GROUP])).groups[0]
    assert (described.group_state, len(described.members)) == ("Stable", len(ids))
    assert groups.longest <= STEPS_MAX


def test_n57_many_members_of_a_classic_group_leave_without_holding_the_loop() -> None:
    groups, ids = classic_crowd()
    groups.longest = 0
    left = groups.ask(
        LeaveGroupRequest(
            group_id=GROUP, members=[MemberIdentity(member_id=each) for each in ids[1:]]
        )
    )
    assert {each.error_code for each in left.members} == {E.NONE}
    assert groups.longest <= STEPS_MAX


def test_n57_many_sessions_of_a_classic_group_end_without_holding_the_loop() -> None:
    groups, ids = classic_crowd()
    groups.longest = 0
    groups.wait(SESSION_MS + 5_000)
    described = groups.ask(DescribeGroupsRequest(groups=[GROUP])).groups[0]
    assert (described.group_state, described.members) == ("Empty", [])
    assert groups.longest <= STEPS_MAX and ids


# --- Descriptions, leaving, sessions of modern groups ---

DESCRIBE: dict[Beat, Message] = {
    consumer_beat: ConsumerGroupDescribeRequest(group_ids=[GROUP]),
    share_beat: ShareGroupDescribeRequest(group_ids=[GROUP]),
    streams_beat: StreamsGroupDescribeRequest(group_ids=[GROUP]),
}


@pytest.mark.parametrize("beat", DESCRIBE)
def test_n57_the_description_of_a_large_group_does_not_hold_the_loop(beat: Beat) -> None:
    groups = crowd(beat)
    groups.longest = 0
    (described,) = groups.ask(DESCRIBE[beat]).groups
    assert (described.group_state, len(described.members)) == ("Stable", MEMBERS)
    assert groups.longest <= STEPS_MAX


@pytest.mark.parametrize("beat", DESCRIBE)
def test_n57_many_sessions_of_a_group_end_without_holding_the_loop(beat: Beat) -> None:
    groups = crowd(beat)
    groups.longest = 0
    groups.wait(SESSION_MS + 5_000)
    (described,) = groups.ask(DESCRIBE[beat]).groups
    assert described.members == []
    assert groups.longest <= STEPS_MAX


@pytest.mark.parametrize("beat", DESCRIBE)
def test_n57_members_that_join_a_large_group_do_not_hold_the_loop(beat: Beat) -> None:
    groups = crowd(beat, MEMBERS - 10)
    groups.longest = 0
    epoch = groups.ask(DESCRIBE[beat]).groups[0].group_epoch
    for at in range(3):
        groups.wait(1_100)
        more = groups.ask(beat(f"n{at}", 0))
        assert more.error_code == E.NONE
    assert groups.ask(DESCRIBE[beat]).groups[0].assignment_epoch > epoch
    assert groups.longest <= STEPS_MAX


def test_n57_a_large_classic_group_is_converted_without_holding_the_loop() -> None:
    """A member of the consumer protocol joins, and leaves again."""
    groups, ids = classic_crowd(MEMBERS)
    groups.longest = 0
    answer = groups.ask(consumer_beat("new", 0))
    assert answer.error_code == E.NONE
    described = groups.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP])).groups[0]
    assert len(described.members) == len(ids) + 1
    assert groups.ask(consumer_beat("new", -1)).error_code == E.NONE
    described = groups.ask(DescribeGroupsRequest(groups=[GROUP])).groups[0]
    assert len(described.members) == len(ids)
    assert groups.longest <= STEPS_MAX


def test_n57_a_static_member_returns_to_a_large_classic_group_without_holding_the_loop() -> None:
    groups, ids = classic_crowd(MEMBERS)
    static = join()
    static.group_instance_id = "static"
    joining = [static, *(join(member_id) for member_id in ids)]
    answers = groups.ask_all(joining, JOIN_VERSION)
    assert {answer.error_code for answer in answers} == {E.NONE}
    leader = next(answer for answer in answers if answer.members)
    followers = [each.member_id for each in leader.members if each.member_id != leader.member_id]
    everyone = [leader.member_id, *followers]
    synced = groups.ask_all(
        [
            *(sync(each, leader.generation_id) for each in followers),
            sync(leader.member_id, leader.generation_id, everyone),
        ]
    )
    assert {answer.error_code for answer in synced} == {E.NONE}
    groups.longest = 0
    again = groups.ask(static, JOIN_VERSION)
    assert (again.error_code, again.generation_id) == (E.NONE, leader.generation_id)
    assert groups.longest <= STEPS_MAX


# --- Expressions ---


def test_n57_an_expression_that_matches_many_topics_does_not_hold_the_loop() -> None:
    groups = LargeGroups()
    for name in many_names(NAMES // 20):
        groups.world.create(name)
    groups.wait(1_000)
    groups.longest = 0
    for at in range(3):
        answer = groups.ask(
            consumer_beat(
                f"m{at}", 0, subscribed_topic_names=None, subscribed_topic_regex=".*-name"
            )
        )
        assert answer.error_code == E.NONE
        groups.wait(1_100)
        for other in range(at + 1):
            epoch = groups.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP])).groups[0]
            member = next(each for each in epoch.members if each.member_id == f"m{other}")
            assert groups.ask(consumer_beat(f"m{other}", member.member_epoch)).error_code == E.NONE
    assert groups.longest <= STEPS_MAX


# --- Many groups, many offsets ---


def commit(group_id: str, partitions: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name=TOPIC,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
                    for index in range(partitions)
                ],
            )
        ],
    )


COMMIT_VERSION, FETCH_VERSION = 9, 8


def test_n57_many_groups_are_listed_and_expire_without_holding_the_loop() -> None:
    groups = LargeGroups(offsets_retention_minutes="1", offsets_retention_check_interval_ms="30000")
    for at in range(MEMBERS):
        groups.ask(commit(f"g{at:05}", 3), COMMIT_VERSION)
    assert len(groups.ask(ListGroupsRequest()).groups) == MEMBERS
    groups.wait(100_000)
    assert groups.ask(ListGroupsRequest()).groups == []
    assert groups.longest <= STEPS_MAX


def test_n57_a_group_with_many_offsets_is_deleted_without_holding_the_loop() -> None:
    many = 10 * MEMBERS
    groups = LargeGroups()
    groups.world.create("wide", many)
    request = commit(GROUP, many)
    request.topics[0].name = "wide"
    answer = groups.ask(request, COMMIT_VERSION)
    assert {each.error_code for each in answer.topics[0].partitions} == {E.NONE}
    groups.longest = 0
    fetched = groups.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]),
        FETCH_VERSION,
    )
    assert len(fetched.groups[0].topics[0].partitions) == many
    about = DescribeHistoryRequest(subject_type=describe_history.GROUP, subject=GROUP)
    assert groups.ask(about).error_code == E.NONE
    coordinator = groups.world.node.groups
    assert steps_of(lambda: next(iter(coordinator.committed(GROUP)))) < 500, "one at a time"
    assert coordinator.offset_count(GROUP) == many
    deleted = groups.ask(DeleteGroupsRequest(groups_names=[GROUP]))
    assert [each.error_code for each in deleted.results] == [E.NONE]
    assert groups.longest <= STEPS_MAX


def test_n57_the_offsets_of_a_deleted_topic_are_removed_without_holding_the_loop() -> None:
    many = 10 * MEMBERS
    groups = LargeGroups()
    groups.world.create("wide", many)
    request = commit(GROUP, many)
    request.topics[0].name = "wide"
    groups.ask(request, COMMIT_VERSION)
    node = groups.world.node
    topic_id = node.metadata.topic_id("wide")
    groups.world.delete("wide")
    groups.longest = 0
    node.groups.topic_deleted(topic_id)
    groups.wait(1_000)
    assert list(node.groups.commits(GROUP)) == []
    assert groups.longest <= STEPS_MAX
