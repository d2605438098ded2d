"""The handlers of the APIs of streams groups: the feature, rights, and internal topics (J-01, J-24,
J-25, J-50, J-53)."""

from __future__ import annotations

from typing import Any

import pytest

from acl_rules import Rule, RuleList
from handler_calls import context, received
from node_world import NodeWorld
from odradek_broker.metadata.features import STREAMS_VERSION
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.server.dispatch import HANDLERS
from odradek_protocol.common_structs import StreamsProperty
from odradek_protocol.errors import ErrorCode as E
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_protocol.schemas.list_groups import ListGroupsRequest
from odradek_protocol.schemas.streams_group_describe import StreamsGroupDescribeRequest
from odradek_protocol.schemas.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsTopology,
)
from odradek_protocol.stored.cluster_metadata import FeatureLevelRecord
from streams_group_world import internal, subtopology, topology

STATEFUL = topology(subtopology("0", ["in"], changelogs=[internal("changes")]))


class StreamsNode(NodeWorld):
    """A node with the topic `in` of two partitions; streams groups are enabled."""

    def __init__(self) -> None:
        super().__init__(
            offsets_topic_num_partitions="1",
            group_streams_initial_rebalance_delay_ms="0",
            group_streams_assignment_interval_ms="0",
        )
        self.create("in", 2)
        self.node.ensure_internal_topic("__consumer_offsets")
        self.switch(1)

    def switch(self, level: int) -> None:
        record = FeatureLevelRecord(name=STREAMS_VERSION, feature_level=level)
        self.node.metadata_log.commit([record])
        self.flush()

    def ask(self, request: Message) -> Any:
        """Send a request. Returns its answer after everything is durable."""
        version = api_of(request).versions.last
        answer = HANDLERS[api_of(request).key](self.node, context(version), request)
        for _ in range(3):
            self.flush()
            self.soon.run()
        return received(request, version, answer)

    def join(self, made: StreamsTopology = STATEFUL, epoch: int = 0, **more: Any) -> Any:
        first: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "process_id": "p",
            "topology": made,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        }
        fields: dict[str, Any] = {"group_id": "g", "member_id": "m", "member_epoch": epoch, **more}
        return self.ask(StreamsGroupHeartbeatRequest(**({} if epoch else first), **fields))

    def describe(self, *names: str) -> Any:
        request = StreamsGroupDescribeRequest(
            group_ids=list(names or ("g",)), include_authorized_operations=True
        )
        return self.ask(request).groups

    def allow(self, *rules: Rule) -> None:
        """Allow only these operations from now on."""
        self.node.authorizer = RuleList(*rules)


@pytest.fixture
def world() -> StreamsNode:
    return StreamsNode()


def right(operation: Operation, kind: ResourceType, name: str) -> Rule:
    return Rule(operation, kind, name)


READ = right(Operation.READ, ResourceType.GROUP, "g")
SEE = [right(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in ("in", "changes")]
CREATE = right(Operation.CREATE, ResourceType.TOPIC, "changes")


def test_j01_every_request_is_refused_while_the_feature_is_off(world: StreamsNode) -> None:
    world.switch(0)
    assert world.join().error_code == E.UNSUPPORTED_VERSION
    assert world.describe()[0].error_code == E.UNSUPPORTED_VERSION


def test_j24_internal_topics_are_created_after_the_heartbeat(world: StreamsNode) -> None:
    answer = world.join()
    assert [each.status_detail for each in answer.status] == [
        "Internal topics are missing: changes"
    ]
    assert world.node.metadata.partition_count("changes") == 2
    answer = world.join(epoch=answer.member_epoch)
    assert answer.status == []
    assert [each.partitions for each in answer.active_tasks] == [[0, 1]]


def test_j24_a_missing_right_to_create_topics_is_reported(world: StreamsNode) -> None:
    world.allow(READ, *SEE)
    (status,) = world.join().status
    assert status.status_detail.endswith("; Unauthorized to CREATE on topics changes.")
    assert not world.node.metadata.partition_count("changes")
    world.allow(READ, *SEE, CREATE)
    world.join()
    assert world.node.metadata.partition_count("changes") == 2


def test_j24_a_failed_topic_creation_is_reported_with_its_reason(world: StreamsNode) -> None:
    broken = internal("changes")
    broken.topic_configs = [StreamsProperty(key="cleanup.policy", value="none")]
    answer = world.join(topology(subtopology("0", ["in"], changelogs=[broken])))
    assert "; Creation failed: changes (" in answer.status[0].status_detail
    assert "cleanup.policy" in answer.status[0].status_detail


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "__consumer_offsets",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams",
        ),
        ("a b", "Topic names a b are not valid topic names."),
    ],
)
def test_j25_a_topology_with_invalid_topic_names_is_refused(
    world: StreamsNode, name: str, message: str
) -> None:
    answer = world.join(topology(subtopology("0", ["in"], sinks=[name])))
    assert answer.error_code == E.STREAMS_INVALID_TOPOLOGY
    assert answer.error_message.startswith(message)


def test_j53_a_heartbeat_needs_rights_to_the_group_and_the_topics(world: StreamsNode) -> None:
    world.allow(*SEE)
    assert world.join().error_code == E.GROUP_AUTHORIZATION_FAILED
    for seen in SEE:
        world.allow(READ, seen)
        assert world.join().error_code == E.TOPIC_AUTHORIZATION_FAILED
    world.allow(READ, *SEE)
    answer = world.join()
    assert answer.error_code == E.NONE
    world.allow(READ)
    assert world.join(epoch=answer.member_epoch).error_code == E.NONE


def test_j50_streams_groups_are_described_and_listed(world: StreamsNode) -> None:
    world.join()
    world.join(epoch=2)
    found, none, unnamed = world.describe("g", "none", "", "g")
    assert (found.error_code, found.group_state, found.group_epoch) == (E.NONE, "Stable", 3)
    (part,) = found.topology.subtopologies
    assert [(each.name, each.partitions) for each in part.state_changelog_topics] == [
        ("changes", 2)
    ]
    (member,) = found.members
    assert (member.process_id, member.client_host) == ("p", "//127.0.0.1")
    assert member.assignment == member.target_assignment
    assert (none.error_code, unnamed.error_code) == (E.GROUP_ID_NOT_FOUND, E.INVALID_GROUP_ID)
    listed = world.ask(ListGroupsRequest()).groups
    assert [(each.group_id, each.group_type, each.protocol_type) for each in listed] == [
        ("g", "streams", "streams")
    ]


def test_j50_j53_a_description_needs_rights_to_the_group_and_its_topics(world: StreamsNode) -> None:
    world.join()
    world.allow(*SEE)
    assert world.describe()[0].error_code == E.GROUP_AUTHORIZATION_FAILED
    world.allow(right(Operation.DESCRIBE, ResourceType.GROUP, "g"), SEE[0])
    (hidden,) = world.describe()
    assert hidden.error_code == E.TOPIC_AUTHORIZATION_FAILED
    assert (hidden.topology, hidden.members) == (None, [])
