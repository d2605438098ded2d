"""The rights that each request needs (A-09 to A-18, A-20).

A real broker has a list of rules as its authorizer; everything without a rule is denied. The rights
of transactions and Produce (A-01 to A-08), and of group administration (A-16), are tested with
their handlers.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from acl_rules import Rule, RuleList
from broker_in_loop import RunningBroker
from handler_calls import handled
from many_cases import looped
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import (
    ALLOW_EVERYTHING,
    CLUSTER,
    AllowEverything,
    Operation,
    Resource,
    ResourceType,
    denied_topics,
)
from odradek_broker.server.dispatch import HANDLERS, import_handler
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.alter_configs import AlterableConfig as ReplacingConfig
from odradek_protocol.schemas.alter_configs import AlterConfigsRequest
from odradek_protocol.schemas.alter_configs import AlterConfigsResource as ReplacedResource
from odradek_protocol.schemas.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek_protocol.schemas.describe_cluster import DescribeClusterRequest
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek_protocol.schemas.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek_protocol.schemas.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek_protocol.schemas.leave_group import LeaveGroupRequest, MemberIdentity
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
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
from odradek_protocol.schemas.sync_group import SyncGroupRequest
from odradek_protocol.stored.cluster_metadata import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from raw_client import RawClient, batch_of, produce_request

E = ErrorCode
O = Operation
TOPIC, GROUP, THE_CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
DENIED = E.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = E.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
async def rules(broker: RunningBroker, client: RawClient) -> RuleList:
    """The broker's list of rules, empty at first. Each of the topics `seen` and `hidden` has a
    record."""
    for name in ("seen", "hidden"):
        await client.create_topic(name)
        await client.call(produce_request(name, batch_of(b"value")), 9)
    await client.call(FindCoordinatorRequest(key="g"), 3)
    await client.set_for_brokers(**{"group.consumer.assignment.interval.ms": "0"})
    rules = broker.node.authorizer = RuleList()
    return rules


def allow(rules: RuleList, operation: Operation, kind: ResourceType, name: str = "*") -> None:
    rules.rules.append(Rule(operation, kind, name))


def topic_id(broker: RunningBroker, name: str) -> bytes:
    found: bytes = broker.node.metadata.topic_id(name)
    return found


# --- Fetch ---


def fetch(*names: str, **fields: Any) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=5_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=name, partitions=[part]) for name in names],
        **fields,
    )


def fetched(response: Any) -> dict[str, tuple[int, bool]]:
    """Topic -> (error, True if the answer has records)."""
    return {
        topic.topic: (topic.partitions[0].error_code, bool(topic.partitions[0].records))
        for topic in response.responses
    }


async def test_a09_fetch_needs_read_on_each_topic_existing_or_not(
    client: RawClient, rules: RuleList
) -> None:
    allow(rules, O.READ, TOPIC, "seen")
    answer = await client.call(fetch("seen", "hidden", "absent"), 11)
    assert fetched(answer) == {
        "seen": (E.NONE, True),
        "hidden": (DENIED, False),
        "absent": (DENIED, False),
    }
    denied = answer.responses[1].partitions[0]
    assert (denied.high_watermark, denied.last_stable_offset, denied.log_start_offset) == (-1,) * 3


async def test_a09_a_denied_partition_is_answered_at_once(
    client: RawClient, rules: RuleList
) -> None:
    request = fetch("hidden")
    request.max_wait_ms = 2**31 - 1
    assert fetched(await client.call(request, 11)) == {"hidden": (DENIED, False)}


async def test_a09_rights_are_checked_with_every_fetch_of_a_session(
    client: RawClient, rules: RuleList
) -> None:
    first = fetch("seen", session_epoch=0)
    allow(rules, O.READ, TOPIC, "seen")
    answer = await client.call(first, 11)
    assert fetched(answer) == {"seen": (E.NONE, True)}
    rules.rules.clear()
    again = fetch(session_id=answer.session_id, session_epoch=1)
    assert fetched(await client.call(again, 11)) == {"seen": (DENIED, False)}
    allow(rules, O.READ, TOPIC, "seen")
    again.session_epoch = 2
    assert fetched(await client.call(again, 11)) == {"seen": (E.NONE, True)}


async def test_a09_a_fetch_by_unknown_or_denied_topic_id_is_refused(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    request = fetch("", "")
    request.topics[0].topic_id = topic_id(broker, "hidden")
    request.topics[1].topic_id = b"x" * 16
    answer = await client.call(request, 13)
    codes = [topic.partitions[0].error_code for topic in answer.responses]
    assert codes == [E.UNKNOWN_TOPIC_ID, DENIED]


@pytest.mark.parametrize("version", [11, 15])
async def test_a09_a_fetch_of_a_follower_needs_cluster_action(
    client: RawClient, broker: RunningBroker, rules: RuleList, version: int
) -> None:
    allow(rules, O.READ, TOPIC)
    request = fetch("seen")
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=2)
        request.topics[0].topic_id = topic_id(broker, "seen")
    else:
        request.replica_id = 2
    answer = await client.call(request, version)
    assert answer.responses[0].partitions[0].error_code == DENIED
    allow(rules, O.CLUSTER_ACTION, THE_CLUSTER)
    answer = await client.call(request, version)
    # The broker has no followers.
    assert answer.responses[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER


# --- ListOffsets, Metadata ---


async def test_a10_list_offsets_needs_describe_on_each_topic(
    client: RawClient, rules: RuleList
) -> None:
    allow(rules, O.DESCRIBE, TOPIC, "seen")
    part = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=name, partitions=[part]) for name in ("seen", "hidden", "absent")
        ],
    )
    answer = await client.call(request, 7)
    found = [
        (topic.partitions[0].error_code, topic.partitions[0].offset) for topic in answer.topics
    ]
    assert found == [(E.NONE, 1), (DENIED, -1), (DENIED, -1)]


def metadata(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


@pytest.mark.parametrize("version", [0, 1, 9, 12])
async def test_a10_metadata_of_all_topics_leaves_out_topics_without_describe(
    client: RawClient, rules: RuleList, version: int
) -> None:
    allow(rules, O.DESCRIBE, TOPIC, "seen")
    request = MetadataRequest(topics=[] if version == 0 else None)
    answer = await client.call(request, version)
    assert [topic.name for topic in answer.topics] == ["seen"]


async def test_a10_metadata_denies_existing_and_unknown_topics_alike(
    client: RawClient, rules: RuleList
) -> None:
    allow(rules, O.DESCRIBE, TOPIC, "seen")
    request = metadata("seen", "hidden", "absent", allow_auto_topic_creation=False)
    answer = await client.call(request, 12)
    seen, hidden, absent = answer.topics
    assert (seen.error_code, len(seen.partitions)) == (E.NONE, 1)
    for topic in (hidden, absent):
        assert (topic.error_code, topic.topic_id, topic.partitions) == (DENIED, ZERO_UUID, [])
    assert (hidden.name, absent.name) == ("hidden", "absent")


async def test_a10_metadata_by_id_without_describe_hides_the_topic_name(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    asked = MetadataRequestTopic(topic_id=topic_id(broker, "hidden"), name=None)
    (answer,) = (await client.call(MetadataRequest(topics=[asked]), 12)).topics
    assert (answer.error_code, answer.name, answer.partitions) == (DENIED, None, [])


async def test_a11_automatic_creation_needs_create_on_the_cluster_or_the_topic(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    request = metadata("new-1", "new-2", "new-3", allow_auto_topic_creation=True)

    async def codes() -> list[int]:
        return [topic.error_code for topic in (await client.call(request, 12)).topics]

    assert await codes() == [DENIED] * 3
    allow(rules, O.DESCRIBE, TOPIC)
    assert await codes() == [DENIED] * 3
    allow(rules, O.CREATE, TOPIC, "new-1")
    assert await codes() == [E.NONE, DENIED, DENIED]
    assert set(broker.node.metadata.topics) >= {"new-1"}
    assert "new-2" not in broker.node.metadata.topics
    allow(rules, O.CREATE, THE_CLUSTER)
    assert await codes() == [E.NONE] * 3


async def test_a11_create_without_describe_creates_no_topic(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    allow(rules, O.CREATE, THE_CLUSTER)
    answer = await client.call(metadata("new", allow_auto_topic_creation=True), 12)
    assert answer.topics[0].error_code == DENIED
    assert "new" not in broker.node.metadata.topics


async def test_a19_authorized_operations_are_a_bit_field(
    client: RawClient, rules: RuleList
) -> None:
    allow(rules, O.WRITE, TOPIC, "seen")
    request = metadata(
        "seen",
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = await client.call(request, 9)
    assert answer.topics[0].topic_authorized_operations == 1 << 4 | 1 << 8
    assert answer.cluster_authorized_operations == 0, "who may not describe it learns nothing"
    allow(rules, O.ALTER, THE_CLUSTER)
    assert (await client.call(request, 9)).cluster_authorized_operations == 1 << 7 | 1 << 8
    described = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await client.call(described, 0)
    assert answer.cluster_authorized_operations == 1 << 7 | 1 << 8


# --- groups ---


@pytest.mark.parametrize("version", [1, 3, 4, 6])
async def test_a12_find_coordinator_needs_describe_on_the_group(
    client: RawClient, rules: RuleList, version: int
) -> None:
    async def code() -> int:
        many = version >= 4
        request = FindCoordinatorRequest(coordinator_keys=["g"]) if many else None
        answer = await client.call(request or FindCoordinatorRequest(key="g"), version)
        found: int = answer.coordinators[0].error_code if many else answer.error_code
        return found

    assert await code() == E.GROUP_AUTHORIZATION_FAILED
    allow(rules, O.DESCRIBE, GROUP, "g")
    assert await code() == E.NONE


def member_requests() -> list[tuple[Any, int]]:
    return [
        (
            JoinGroupRequest(
                group_id="g",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            ),
            version,
        )
        for version in range(2, 10)
    ] + [
        *((SyncGroupRequest(group_id="g", generation_id=1, member_id="m"), v) for v in range(5)),
        (
            SyncGroupRequest(
                group_id="g",
                generation_id=1,
                member_id="m",
                protocol_type="consumer",
                protocol_name="range",
            ),
            5,
        ),
        *((HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), v) for v in range(5)),
        *((LeaveGroupRequest(group_id="g", member_id="m"), v) for v in range(3)),
        *(
            (LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), v)
            for v in range(3, 6)
        ),
    ]


@pytest.mark.full
async def test_a13_group_membership_needs_read_on_the_group(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    for request, version in member_requests():
        answer = await client.call(request, version)
        assert answer.error_code == E.GROUP_AUTHORIZATION_FAILED, (request, version)
    assert broker.node.groups.group("g") is None, "nobody came in"
    allow(rules, O.READ, GROUP, "g")
    for request, version in member_requests():
        answer = await client.call(request, version)
        assert answer.error_code != E.GROUP_AUTHORIZATION_FAILED, (request, version)


def commit(*names: str, ids: list[bytes] | None = None) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name=name, partitions=[part]) for name in names]
    for topic, each in zip(topics, ids or [], strict=False):
        topic.topic_id = each
    return OffsetCommitRequest(group_id="g", topics=topics)


def committed(answer: Any) -> list[int]:
    return [topic.partitions[0].error_code for topic in answer.topics]


async def test_a14_offset_commit_needs_read_on_the_group_and_on_each_topic(
    client: RawClient, rules: RuleList
) -> None:
    request = commit("seen", "hidden", "absent")
    allow(rules, O.READ, TOPIC)
    assert committed(await client.call(request, 8)) == [E.GROUP_AUTHORIZATION_FAILED] * 3
    twice = commit("seen", "seen")
    assert committed(await client.call(twice, 8)) == [E.GROUP_AUTHORIZATION_FAILED] * 2
    rules.rules.clear()
    allow(rules, O.READ, GROUP, "g")
    allow(rules, O.READ, TOPIC, "seen")
    assert committed(await client.call(request, 8)) == [E.NONE, DENIED, DENIED]


async def test_a14_offset_commit_by_topic_id_needs_read_on_each_topic(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    ids = [topic_id(broker, "seen"), topic_id(broker, "hidden"), b"x" * 16]
    allow(rules, O.READ, GROUP, "g")
    allow(rules, O.READ, TOPIC, "seen")
    answer = await client.call(commit("", "", "", ids=ids), 10)
    assert committed(answer) == [E.NONE, DENIED, E.UNKNOWN_TOPIC_ID]


@pytest.fixture
async def positions(client: RawClient, broker: RunningBroker, rules: RuleList) -> RuleList:
    """Commit offsets of a group `g` in both topics."""
    broker.node.authorizer = ALLOW_EVERYTHING
    assert committed(await client.call(commit("seen", "hidden"), 8)) == [E.NONE] * 2
    broker.node.authorizer = rules
    return rules


@pytest.mark.parametrize("version", range(1, 8))
async def test_a15_offset_fetch_needs_describe_on_the_group_and_on_each_topic(
    client: RawClient, positions: RuleList, version: int
) -> None:
    names = ("seen", "hidden", "absent")
    topics = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in names]
    request = OffsetFetchRequest(group_id="g", topics=topics)
    answer = await client.call(request, version)
    refused = E.GROUP_AUTHORIZATION_FAILED
    if version >= 2:
        assert (answer.error_code, answer.topics) == (refused, [])
    else:
        assert [topic.partitions[0].error_code for topic in answer.topics] == [refused] * 3
    allow(positions, O.DESCRIBE, GROUP, "g")
    allow(positions, O.DESCRIBE, TOPIC, "seen")
    answer = await client.call(request, version)
    found = {
        topic.name: (topic.partitions[0].error_code, topic.partitions[0].committed_offset)
        for topic in answer.topics
    }
    assert found == {"seen": (E.NONE, 1), "hidden": (DENIED, -1), "absent": (DENIED, -1)}
    if version >= 2:
        request.topics = None
        everything = await client.call(request, version)
        assert [topic.name for topic in everything.topics] == ["seen"], "no word of the others"


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_a15_offset_fetch_of_many_groups_checks_each_group(
    client: RawClient, broker: RunningBroker, positions: RuleList, version: int
) -> None:
    allow(positions, O.DESCRIBE, GROUP, "g")
    allow(positions, O.DESCRIBE, TOPIC, "seen")
    topics = [
        OffsetFetchRequestTopics(name=name, topic_id=topic_id(broker, name), partition_indexes=[0])
        for name in ("seen", "hidden")
    ]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=topics),
            OffsetFetchRequestGroup(group_id="other", topics=topics),
        ]
    )
    named, other = (await client.call(request, version)).groups
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (everything,) = (await client.call(request, version)).groups
    assert [topic.partitions[0].error_code for topic in named.topics] == [E.NONE, DENIED]
    assert [len(topic.partitions) for topic in everything.topics] == [1]
    assert (other.error_code, other.topics) == (E.GROUP_AUTHORIZATION_FAILED, [])


# --- administration ---


async def test_a17_create_topics_needs_create_on_the_cluster_or_the_topic(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    request = CreateTopicsRequest(
        timeout_ms=5_000,
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in ("new", "seen")
        ],
    )

    async def topics() -> dict[str, Any]:
        return {topic.name: topic for topic in (await client.call(request, 7)).topics}

    assert {topic.error_code for topic in (await topics()).values()} == {DENIED}
    assert "new" not in broker.node.metadata.topics
    allow(rules, O.CREATE, TOPIC, "new")
    found = await topics()
    assert (found["new"].error_code, found["seen"].error_code) == (E.NONE, DENIED)
    assert found["new"].topic_config_error_code == DENIED, "its settings are another right"
    assert (found["new"].num_partitions, found["new"].configs) == (-1, None)
    allow(rules, O.CREATE, THE_CLUSTER)
    allow(rules, O.DESCRIBE_CONFIGS, TOPIC)
    request.topics[0].name = "newer"
    found = await topics()
    assert found["seen"].error_code == E.TOPIC_ALREADY_EXISTS
    assert (found["newer"].topic_config_error_code, found["newer"].num_partitions) == (E.NONE, 1)
    assert found["newer"].configs


async def test_a17_create_partitions_needs_alter_on_the_topic(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    request = CreatePartitionsRequest(
        timeout_ms=5_000,
        topics=[
            CreatePartitionsTopic(name=name, count=2, assignments=None)
            for name in ("seen", "hidden", "absent")
        ],
    )
    allow(rules, O.ALTER, TOPIC, "seen")
    answer = await client.call(request, 3)
    found = {result.name: result.error_code for result in answer.results}
    assert found == {"seen": E.NONE, "hidden": DENIED, "absent": DENIED}
    assert broker.node.metadata.partition_count("hidden") == 1


async def test_a17_delete_topics_needs_delete_on_the_topic(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    by_name = DeleteTopicsRequest(topic_names=["seen", "hidden", "absent"], timeout_ms=5_000)
    allow(rules, O.DELETE, TOPIC, "seen")
    answer = await client.call(by_name, 5)
    found = {result.name: result.error_code for result in answer.responses}
    assert found == {"seen": E.NONE, "hidden": DENIED, "absent": DENIED}
    hidden = topic_id(broker, "hidden")
    by_id = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=each) for each in (hidden, b"x" * 16)],
        timeout_ms=5_000,
    )
    answer = await client.call(by_id, 6)
    told = {result.topic_id: (result.name, result.error_code) for result in answer.responses}
    assert told == {hidden: (None, DENIED), b"x" * 16: (None, E.UNKNOWN_TOPIC_ID)}
    allow(rules, O.DESCRIBE, TOPIC, "hidden")
    answer = await client.call(by_id, 6)
    told = {result.topic_id: (result.name, result.error_code) for result in answer.responses}
    assert told[hidden] == ("hidden", DENIED)
    assert "hidden" in broker.node.metadata.topics


RESOURCES = [(2, "seen"), (2, "hidden"), (2, "absent"), (4, "")]


async def test_a18_describe_configs_needs_describe_configs_on_the_resource(
    client: RawClient, rules: RuleList
) -> None:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in RESOURCES
        ]
    )

    async def codes() -> list[int]:
        return [result.error_code for result in (await client.call(request, 4)).results]

    assert await codes() == [DENIED] * 3 + [E.CLUSTER_AUTHORIZATION_FAILED]
    allow(rules, O.DESCRIBE_CONFIGS, TOPIC, "seen")
    assert await codes() == [E.NONE, DENIED, DENIED, E.CLUSTER_AUTHORIZATION_FAILED]
    allow(rules, O.ALTER_CONFIGS, THE_CLUSTER)
    assert await codes() == [E.NONE, DENIED, DENIED, E.NONE], "A-20: implied"


async def test_a18_incremental_alter_configs_needs_alter_configs(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    change = AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    of_broker = AlterableConfig(name="log.retention.ms", config_operation=0, value="1000")
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[change if kind == 2 else of_broker],
            )
            for kind, name in RESOURCES
        ]
    )

    async def codes() -> dict[tuple[int, str], int]:
        answer = await client.call(request, 1)
        return {(one.resource_type, one.resource_name): one.error_code for one in answer.responses}

    allow(rules, O.ALTER_CONFIGS, TOPIC, "seen")
    found = await codes()
    assert [found[each] for each in RESOURCES] == [
        E.NONE,
        DENIED,
        DENIED,
        E.CLUSTER_AUTHORIZATION_FAILED,
    ]
    assert broker.node.metadata.topic_overrides("hidden") == {}
    assert broker.node.metadata.topic_overrides("seen") == {"retention.ms": "1000"}
    allow(rules, O.ALTER_CONFIGS, THE_CLUSTER)
    assert (await codes())[4, ""] == E.NONE


async def test_a18_alter_configs_needs_alter_configs_on_the_topic(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    change = ReplacingConfig(name="retention.ms", value="1000")
    request = AlterConfigsRequest(
        resources=[
            ReplacedResource(resource_type=2, resource_name=name, configs=[change])
            for name in ("seen", "hidden", "absent")
        ]
    )
    allow(rules, O.ALTER_CONFIGS, TOPIC, "seen")
    answer = await client.call(request, 2)
    found = {one.resource_name: one.error_code for one in answer.responses}
    assert found == {"seen": E.NONE, "hidden": DENIED, "absent": DENIED}
    assert broker.node.metadata.topic_overrides("hidden") == {}


async def test_a18_settings_of_a_group_need_rights_on_the_group(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    described = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=32, resource_name=n, configuration_keys=None)
            for n in ("g", "h")
        ]
    )
    change = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
    changed = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(resource_type=32, resource_name=n, configs=[change])
            for n in ("g", "h")
        ]
    )
    allow(rules, O.ALTER_CONFIGS, GROUP, "g")
    answer = await client.call(described, 4)
    assert [one.error_code for one in answer.results] == [E.NONE, E.GROUP_AUTHORIZATION_FAILED]
    found = {one.resource_name: one.error_code for one in (await client.call(changed)).responses}
    assert found == {"g": E.NONE, "h": E.GROUP_AUTHORIZATION_FAILED}
    assert broker.node.metadata.overrides(32, "h") == {}


# --- regular expressions of consumer groups ---


def beat(epoch: int, member_id: str = "m", **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="cg",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        topic_partitions=[],
        **more,
    )


async def test_a67_a_subscribed_regex_matches_topics_with_describe_only(
    client: RawClient, broker: RunningBroker, rules: RuleList
) -> None:
    await client.call(FindCoordinatorRequest(key="cg"), 3)
    ids = {topic_id(broker, name): name for name in ("seen", "hidden")}

    def assigned(answer: Any) -> set[str]:
        assert answer.error_code == E.NONE
        return {ids[part.topic_id] for part in answer.assignment.topic_partitions}

    allow(rules, O.READ, GROUP, "cg")
    allow(rules, O.DESCRIBE, TOPIC, "seen")
    join = beat(0, subscribed_topic_regex="seen|hidden")
    joined = await client.call(join, 1)
    assert assigned(joined) == {"seen"}
    allow(rules, O.DESCRIBE, TOPIC, "hidden")
    # A new ACL would raise this version; the rules of the tests are not ACLs.
    broker.node.metadata.topics_version += 1
    again = await client.call(beat(0, subscribed_topic_regex="seen|hidden"), 1)
    assert assigned(again) == {"seen", "hidden"}


async def test_a67_a_changed_acl_causes_a_new_match_of_subscribed_regexes(
    broker: RunningBroker,
) -> None:
    metadata = broker.node.metadata
    before = metadata.topics_version
    acl = AccessControlEntryRecord(
        id=b"a" * 16,
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:u",
        host="*",
        operation=8,
        permission_type=3,
    )
    metadata.replay(acl)
    metadata.replay(RemoveAccessControlEntryRecord(id=acl.id))
    assert metadata.topics_version == before + 2


# --- A-19, A-20 ---


def test_a19_no_topic_is_checked_without_an_authorizer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*_: object) -> bool:
        raise AssertionError("it costs something")

    def names() -> Any:
        raise AssertionError("not even looked at")
        yield

    monkeypatch.setattr(AllowEverything, "allows", asked)
    context = RequestContext(0, None, "host", 1)
    found = handled(denied_topics(ALLOW_EVERYTHING, context, O.READ, names()))
    assert found == frozenset()


def test_a20_the_right_to_each_topic_is_checked_once() -> None:
    rules = RuleList(Rule(O.READ, TOPIC, "a*"), Rule(O.READ, TOPIC, "ab", deny=True))
    context = RequestContext(0, None, "host", 1)
    names = ["a", "ab", "b", "a", "b"]
    found = handled(denied_topics(rules, context, O.READ, names))
    assert found == {"ab", "b"}
    assert rules.asked == [(O.READ, Resource(TOPIC, name)) for name in ("a", "ab", "b")]
    assert CLUSTER.type is THE_CLUSTER


#: Requests that need no right, and the reasons.
OPEN_TO_ALL = {
    ApiKey.API_VERSIONS: "what a client asks before anybody knows who it is",
    ApiKey.SASL_HANDSHAKE: "by which a client says who it is",
    ApiKey.SASL_AUTHENTICATE: "by which a client says who it is",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "every client asks, and is told what it is to push",
    ApiKey.PUSH_TELEMETRY: "every client may say how it is, within limits",
    ApiKey.RENEW_DELEGATION_TOKEN: "the owner and the renewers of a token may",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "the owner and the renewers of a token may",
}


@looped("key", HANDLERS, ids=lambda key: key.name)
def test_a20_every_request_asks_the_authorizer(key: ApiKey) -> None:
    module = inspect.getmodule(import_handler(key))
    # A handler may call the authorizer in a function that several handlers share. Such a function
    # is in a module named `_...` or in the module of another handler.
    shared = {
        sys.modules[value.__module__]
        for value in vars(module).values()
        if inspect.isfunction(value)
        and str(value.__module__).startswith("odradek_broker.handlers.")
    }
    source = "".join(inspect.getsource(each) for each in (module, *shared))  # type: ignore[arg-type]
    assert ("authorizer" in source) != (key in OPEN_TO_ALL)
