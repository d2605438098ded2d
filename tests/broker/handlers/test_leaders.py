"""ElectLeaders and the reassignment of partitions, on a single node, which leads all partitions."""

from __future__ import annotations

from typing import Any

import pytest

from acl_rules import RuleList
from handler_calls import ask
from node_world import NodeWorld
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek_protocol.schemas.elect_leaders import ElectLeadersRequest
from odradek_protocol.schemas.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

ALL = ElectLeadersRequest(topic_partitions=None)


@pytest.fixture
def world() -> NodeWorld:
    world = NodeWorld()
    for name in ("a", "b", "c"):
        world.create(name, 2)
    world.flush()
    return world


def elected(world: NodeWorld, *indexes: int, version: int = 2) -> Any:
    asked = [PartitionsOfTopic(topic="a", partitions=list(indexes))]
    return ask(world.node, ElectLeadersRequest(topic_partitions=asked), version)


def moved(world: NodeWorld, *replicas: list[int] | None, index: int = 0) -> list[int]:
    """Request a reassignment of one partition to each of these lists of replicas, in one request;
    returns the errors."""
    partitions = [ReassignablePartition(partition_index=index, replicas=ids) for ids in replicas]
    topics = [ReassignableTopic(name="a", partitions=partitions)]
    answer = ask(world.node, AlterPartitionReassignmentsRequest(topics=topics), 1)
    assert answer.error_code == ErrorCode.NONE
    (topic,) = answer.responses
    return [each.error_code for each in topic.partitions]


def errors_of(answer: Any) -> list[int]:
    (topic,) = answer.replica_election_results
    return [each.error_code for each in topic.partition_result]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_n38_an_election_of_the_current_leader_is_not_needed(
    world: NodeWorld, version: int
) -> None:
    assert errors_of(elected(world, 1, 7, -1, version=version)) == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_n38_n39_a_refusal_names_the_missing_topic_or_partition(world: NodeWorld) -> None:
    """A message does not repeat the topic's name, because a request may have many long names."""
    elections = [PartitionsOfTopic(topic=name, partitions=[7]) for name in ("a", "x" * 30_000)]
    moves = [
        ReassignableTopic(
            name=topic.topic, partitions=[ReassignablePartition(partition_index=7, replicas=[1])]
        )
        for topic in elections
    ]
    elected = ask(world.node, ElectLeadersRequest(topic_partitions=elections), 2)
    moved = ask(world.node, AlterPartitionReassignmentsRequest(topics=moves), 1)
    said = ["The topic has no partition 7.", "There is no such topic."]
    assert [
        each.partition_result[0].error_message for each in elected.replica_election_results
    ] == said
    assert [each.partitions[0].error_message for each in moved.responses] == said


def test_n38_a_partition_named_5000_times_is_answered_5000_times(world: NodeWorld) -> None:
    answer = elected(world, *[0] * 5_000)
    assert errors_of(answer) == [ErrorCode.ELECTION_NOT_NEEDED] * 5_000


@pytest.mark.parametrize("kind", [2, -1, 127])
def test_n38_an_unknown_type_of_election_is_refused(world: NodeWorld, kind: int) -> None:
    named = [PartitionsOfTopic(topic="a", partitions=[0])]
    codes = []
    for topics in (named, None, []):
        request = ElectLeadersRequest(election_type=kind, topic_partitions=topics)
        codes.append(ask(world.node, request, 2).error_code)
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


def test_n39_a_reassignment_to_other_replicas_is_refused(world: NodeWorld) -> None:
    own = world.node.node_id
    wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    before = world.node.metadata.topics["a"].partitions[0].replicas[:]
    assert moved(world, [own], [own + 1], [], [own, own], [own, own + 1], None) == [
        *(ErrorCode.NONE, wrong, wrong, wrong, wrong),
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    assert moved(world, [own], None, index=9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert moved(world, *[[own]] * 5_000) == [ErrorCode.NONE] * 5_000
    assert world.node.metadata.topics["a"].partitions[0].replicas == before


def test_n39_no_reassignments_are_listed(world: NodeWorld) -> None:
    assert moved(world, [world.node.node_id]) == [ErrorCode.NONE]
    named = [ListPartitionReassignmentsTopics(name="a", partition_indexes=[0, 7])]
    for topics in (None, named, []):
        answer = ask(world.node, ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (answer.error_code, answer.topics) == (ErrorCode.NONE, [])


def test_a76_a_refusal_names_each_partition(world: NodeWorld) -> None:
    world.node.authorizer = RuleList()
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    answer = elected(world, 0, 7)
    assert (answer.error_code, errors_of(answer)) == (denied, [denied] * 2)
    assert errors_of(elected(world, 0, 7, version=0)) == [denied] * 2
    assert ask(world.node, ALL, 2).replica_election_results == []
    named = [ListPartitionReassignmentsTopics(name="a", partition_indexes=[0, 7])]
    listed = ask(world.node, ListPartitionReassignmentsRequest(topics=named), 0)
    (topic,) = listed.topics
    assert (listed.error_code, [each.replicas for each in topic.partitions]) == (denied, [[], []])
    moves = [
        ReassignableTopic(
            name="a", partitions=[ReassignablePartition(partition_index=0, replicas=None)]
        )
    ]
    altered = ask(world.node, AlterPartitionReassignmentsRequest(topics=moves), 0)
    assert altered.error_code == altered.responses[0].partitions[0].error_code == denied


@pytest.mark.parametrize("timeout_ms", [0, -1, -(1 << 31), (1 << 31) - 1])
def test_n54_elections_and_reassignments_ignore_their_timeout(
    world: NodeWorld, timeout_ms: int
) -> None:
    elect = ElectLeadersRequest(
        topic_partitions=[PartitionsOfTopic(topic="a", partitions=[0])], timeout_ms=timeout_ms
    )
    assert errors_of(ask(world.node, elect, 2)) == [ErrorCode.ELECTION_NOT_NEEDED]
    move = ReassignableTopic(
        name="a", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]
    )
    request = AlterPartitionReassignmentsRequest(topics=[move], timeout_ms=timeout_ms)
    (moved,) = ask(world.node, request, 0).responses
    assert [each.error_code for each in moved.partitions] == [ErrorCode.NONE]
    listed = ask(
        world.node, ListPartitionReassignmentsRequest(topics=None, timeout_ms=timeout_ms), 0
    )
    assert listed.error_code == ErrorCode.NONE and listed.topics == []


@pytest.mark.parametrize("timeout_ms", [-1, -(1 << 31)])
def test_n54_topics_are_not_changed_after_a_negative_timeout(
    world: NodeWorld, timeout_ms: int
) -> None:
    late = ErrorCode.REQUEST_TIMED_OUT
    new = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("n", "")]
    created = ask(world.node, CreateTopicsRequest(topics=new, timeout_ms=timeout_ms), 7)
    assert [each.error_code for each in created.topics] == [late, late]
    grown = [CreatePartitionsTopic(name=name, count=9, assignments=None) for name in ("a", "no")]
    added = ask(world.node, CreatePartitionsRequest(topics=grown, timeout_ms=timeout_ms), 3)
    assert [each.error_code for each in added.results] == [late, late]
    gone = [DeleteTopicState(name=name) for name in ("a", "no")]
    deleted = ask(world.node, DeleteTopicsRequest(topics=gone, timeout_ms=timeout_ms), 6)
    assert [(each.name, each.error_code) for each in deleted.responses] == [
        ("a", late),
        ("no", late),
    ]
    repeated = DeleteTopicsRequest(topics=gone[1:] * 2, timeout_ms=timeout_ms)
    assert [each.error_code for each in ask(world.node, repeated, 6).responses] == [
        ErrorCode.INVALID_REQUEST
    ]
    assert world.node.metadata.partition_count("a") < 9 and "n" not in world.node.metadata.topics
