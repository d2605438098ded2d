"""DescribeQuorum: the metadata quorum of one node."""

from __future__ import annotations

import pytest

from acl_rules import RuleList
from fake_node import FakeNode
from handler_calls import ask
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)


def _described(
    node: FakeNode, *topics: tuple[str, list[int]], version: int = 2
) -> DescribeQuorumResponse:
    asked = [
        TopicData(topic_name=name, partitions=[PartitionData(partition_index=i) for i in indexes])
        for name, indexes in topics
    ]
    answer = ask(node, DescribeQuorumRequest(topics=asked), version)
    assert isinstance(answer, DescribeQuorumResponse)
    return answer


@pytest.mark.parametrize("version", [0, 1, 2])
def test_n51_this_node_is_the_only_voter_of_the_quorum(version: int) -> None:
    node = FakeNode()
    node.create("t")
    answer = _described(node, ("__cluster_metadata", [0]), version=version)
    (partition,) = answer.topics[0].partitions
    (voter,) = partition.current_voters
    assert answer.error_code == partition.error_code == ErrorCode.NONE
    assert partition.leader_id == voter.replica_id == node.node_id
    assert partition.high_watermark == voter.log_end_offset == len(node.recorded) > 0
    times = {voter.last_fetch_timestamp, voter.last_caught_up_timestamp}
    assert times == {node.clock.wall_ms() if version >= 1 else -1}
    assert partition.observers == []
    assert [each.node_id for each in answer.nodes] == [node.node_id] * (version >= 2)


@pytest.mark.parametrize(
    "topics",
    [
        [("t", [0])],
        [("__cluster_metadata", [1])],
        [("__cluster_metadata", [0, 0])],
        [("__cluster_metadata", [0]), ("__cluster_metadata", [0])],
        [("__cluster_metadata", [0]), ("t", [0])],
        [("", [-1])],
    ],
)
def test_n51_a_request_with_another_partition_is_answered_as_unknown(
    topics: list[tuple[str, list[int]]],
) -> None:
    answer = _described(FakeNode(), *topics)
    assert [each.topic_name for each in answer.topics] == [name for name, _ in topics]
    partitions = [each for topic in answer.topics for each in topic.partitions]
    assert [each.partition_index for each in partitions] == [i for _, many in topics for i in many]
    assert {each.error_code for each in partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer.nodes == [] and answer.error_code == ErrorCode.NONE


def test_a77_describe_quorum_needs_describe_on_the_cluster() -> None:
    node = FakeNode()
    node.authorizer = RuleList()
    answer = _described(node, ("__cluster_metadata", [0]))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and answer.error_message
    assert answer.topics == [] and answer.nodes == []
