"""The handlers of metadata and administration, without sockets or logs."""

from __future__ import annotations

from typing import Any

import pytest

from fake_node import FakeNode
from handler_calls import context, handled, received, send
from node_world import SoonScheduler
from odradek_broker.deferred import Deferred
from odradek_broker.handlers import (
    api_versions,
    describe_configs,
)
from odradek_broker.request import AnswerTooLarge
from odradek_protocol import codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey, api_of
from odradek_protocol.message import Message
from odradek_protocol.primitives import ZERO_UUID
from odradek_protocol.schemas.alter_configs import AlterableConfig as ReplacingConfig
from odradek_protocol.schemas.alter_configs import AlterConfigsRequest
from odradek_protocol.schemas.alter_configs import AlterConfigsResource as ReplacedResource
from odradek_protocol.schemas.api_versions import ApiVersionsRequest
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek_protocol.schemas.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek_protocol.schemas.describe_cluster import DescribeClusterRequest
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic

E = ErrorCode


def call(node: FakeNode, request: Message, version: int | None = None) -> Any:
    """The answer, after request and answer were encoded and decoded in that version."""
    if version is None:
        version = api_of(request).versions.last
    answer = send(node, request, version)
    return answer if isinstance(answer, Deferred) else received(request, version, answer)


def asked(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def versions(key: ApiKey) -> list[int]:
    return list(APIS[key].versions)


# --- ApiVersions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_n07_api_versions_lists_every_api_with_its_versions(version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a-b.c", client_software_version="1.0")
    answer = call(FakeNode(), request, version)
    assert answer.error_code == 0
    without_subscription = APIS.keys() - {
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
    assert [row.api_key for row in answer.api_keys] == sorted(without_subscription)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert ranges[ApiKey.PRODUCE][0] == 0, "librdkafka reads more as no compression"
    assert ranges[ApiKey.FETCH] == (4, 18)
    finalized = [(row.name, row.max_version_level) for row in answer.finalized_features]
    levels = [
        *(("group.version", 1), ("metadata.version", 30)),
        *(("share.version", 1), ("streams.version", 1), ("transaction.version", 2)),
    ]
    assert finalized == (levels if version >= 3 else [])
    supported = [(row.name, row.min_version, row.max_version) for row in answer.supported_features]
    from_0 = [
        *(("group.version", 0, 1), ("share.version", 0, 1)),
        *(("streams.version", 0, 1), ("transaction.version", 0, 2)),
    ]
    assert sorted(supported) == sorted(
        [("metadata.version", 7, 30)] * (version >= 3) + from_0 * (version >= 4)
    )
    assert (answer.finalized_features_epoch >= 0) is (version >= 3), "T-60: -1 would be ignored"
    assert not answer.zk_migration_ready


@pytest.mark.parametrize("name", ["", "-a", "a-", ".a", "a.", "a b", "ä", "a\n"])
def test_n07_invalid_software_names_are_refused(name: str) -> None:
    for request in (
        ApiVersionsRequest(client_software_name=name, client_software_version="1"),
        ApiVersionsRequest(client_software_name="a", client_software_version=name),
    ):
        assert call(FakeNode(), request, 3).error_code == ErrorCode.INVALID_REQUEST
        assert call(FakeNode(), request, 2).error_code == 0


def test_n07_an_unknown_version_of_api_versions_is_answered_with_the_known_ones() -> None:
    node: Any = FakeNode()
    answer = api_versions.handle_unsupported_version(node, context(99))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [
        (18, 0, 4)
    ]
    codec.encode_bytes(answer, 0)


# --- Metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_of_all_topics_in_every_version(version: int) -> None:
    node = FakeNode(broker_rack="r")
    topic_id = node.create("t", 2)
    node.metadata_log.commit(node.metadata.internal_topic_records("__consumer_offsets"))
    answer = call(node, MetadataRequest(topics=[] if version == 0 else None), version)
    assert [topic.name for topic in answer.topics] == ["t", "__consumer_offsets"]
    topic = answer.topics[0]
    assert [partition.partition_index for partition in topic.partitions] == [0, 1]
    partition = topic.partitions[1]
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (1, [1], [1])
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [
        (1, "host", 9092)
    ]
    if version >= 1:
        assert answer.controller_id == 1
        assert [topic.is_internal for topic in answer.topics] == [False, True]
        assert answer.brokers[0].rack == "r"
    if version >= 2:
        assert answer.cluster_id == "cluster"
    if version >= 7:
        assert partition.leader_epoch == 0
    if version >= 10:
        assert topic.topic_id == topic_id


@pytest.mark.parametrize("version", range(1, 14))
def test_metadata_with_an_empty_list_answers_no_topics(version: int) -> None:
    node = FakeNode()
    node.create("t")
    assert call(node, MetadataRequest(topics=[]), version).topics == []


def test_a11_metadata_creates_an_unknown_topic() -> None:
    node = FakeNode(num_partitions="2")
    answer = call(node, MetadataRequest(topics=asked("new", "new")))
    assert [(topic.error_code, topic.name, len(topic.partitions)) for topic in answer.topics] == [
        (0, "new", 2)
    ]
    assert answer.topics[0].topic_id == node.metadata.topic_id("new") != ZERO_UUID


@pytest.mark.parametrize(
    ("enabled", "allowed", "version", "created"),
    [
        ("true", True, 4, True),
        ("true", False, 4, False),
        ("false", True, 4, False),
        ("true", True, 3, True),
        ("false", True, 3, False),
    ],
)
def test_a11_automatic_creation_needs_the_consent_of_broker_and_client(
    enabled: str, allowed: bool, version: int, created: bool
) -> None:
    node = FakeNode(auto_create_topics_enable=enabled)
    request = MetadataRequest(topics=asked("t"), allow_auto_topic_creation=allowed)
    answer = call(node, request, version)
    assert ("t" in node.metadata.topics) is created
    expected = 0 if created else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[0].error_code == expected


def test_a11_metadata_creates_an_internal_topic_with_its_own_settings() -> None:
    node = FakeNode(offsets_topic_num_partitions="5")
    answer = call(node, MetadataRequest(topics=asked("__consumer_offsets")))
    assert (len(answer.topics[0].partitions), answer.topics[0].is_internal) == (5, True)
    assert node.metadata.log_config("__consumer_offsets").compacted


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_metadata_of_an_illegal_topic_name_is_an_invalid_topic(enabled: str) -> None:
    node = FakeNode(auto_create_topics_enable=enabled)
    answer = call(node, MetadataRequest(topics=asked("a b")))
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert node.metadata.topics == {}


def test_an_impossible_default_replication_factor_is_refused() -> None:
    node = FakeNode(default_replication_factor="3")
    answer = call(node, MetadataRequest(topics=asked("t")))
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_metadata_finds_topics_by_id_since_version_12() -> None:
    node = FakeNode()
    topic_id = node.create("t")
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=topic_id, name=None),
            MetadataRequestTopic(topic_id=b"x" * 16, name=None),
        ]
    )
    for version in (12, 13):
        answer = call(node, request, version)
        assert [(topic.error_code, topic.name) for topic in answer.topics] == [
            (0, "t"),
            (ErrorCode.UNKNOWN_TOPIC_ID, None),
        ]
        assert answer.topics[1].topic_id == b"x" * 16
    for version in (10, 11):
        answer = call(node, request, version)
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}
        assert (answer.brokers, answer.controller_id, answer.cluster_id) == ([], -1, None)


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_with_topic_ids_ignores_names(version: int) -> None:
    node = FakeNode()
    topic_id = node.create("t")
    both = [
        MetadataRequestTopic(topic_id=topic_id, name="other"),
        MetadataRequestTopic(topic_id=b"x" * 16, name="t"),
        *asked("t", "new"),
    ]
    answer = call(node, MetadataRequest(topics=both), version)
    assert [(topic.error_code, topic.name) for topic in answer.topics] == [
        (0, "t"),
        (ErrorCode.UNKNOWN_TOPIC_ID, None),
    ]
    assert "new" not in node.metadata.topics


def test_the_metadata_log_is_an_unknown_topic_to_clients() -> None:
    (topic,) = call(FakeNode(), MetadataRequest(topics=asked("__cluster_metadata"))).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a19_all_operations_are_authorized_without_an_authorizer() -> None:
    node = FakeNode()
    node.create("t")
    request = MetadataRequest(
        topics=None,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = call(node, request, 9)
    assert answer.topics[0].topic_authorized_operations == 3576
    assert answer.cluster_authorized_operations == 8096
    silent = call(node, MetadataRequest(topics=None), 9)
    assert silent.topics[0].topic_authorized_operations == -(2**31)


def test_d5_an_offline_partition_has_no_leader() -> None:
    node = FakeNode()
    node.create("t", 2)
    node.offline.add(("t", 1))
    partitions = call(node, MetadataRequest(topics=asked("t"))).topics[0].partitions
    assert [(entry.error_code, entry.leader_id) for entry in partitions] == [
        (0, 1),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
    ]
    assert partitions[1].offline_replicas == [1]


# --- Durability -----------------------------------------------------------------------------------

WAITING: list[Message] = [
    MetadataRequest(topics=asked("new")),
    MetadataRequest(topics=None),
    CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    ),
    DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
    CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)]),
    DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="t")]),
    IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2,
                resource_name="t",
                configs=[AlterableConfig(name="retention.ms", value="5")],
            )
        ]
    ),
    AlterConfigsRequest(
        resources=[
            ReplacedResource(
                resource_type=2,
                resource_name="t",
                configs=[ReplacingConfig(name="retention.ms", value="5")],
            )
        ]
    ),
]


@pytest.mark.parametrize("request_", WAITING, ids=lambda request: type(request).__name__)
def test_d4_an_answer_waits_until_its_metadata_is_durable(request_: Message) -> None:
    node = FakeNode()
    node.create("t")
    node.durable = False
    answer = call(node, request_)
    assert isinstance(answer, Deferred) and not answer.done
    (timer,) = node.timers
    node.flush()
    assert answer.done and timer.cancelled
    timer.callback()  # a timeout that fires after the answer has no effect
    codec.encode_bytes(answer.result(), api_of(request_).versions.last)


@pytest.mark.parametrize("request_", WAITING, ids=lambda request: type(request).__name__)
def test_an_answer_that_waits_for_the_disk_times_out(request_: Message) -> None:
    node = FakeNode()
    node.create("t")
    node.durable = False
    answer = call(node, request_)
    node.timers[0].callback()
    assert answer.done
    node.flush()  # a flush after the timeout has no effect
    encoded = codec.encode_bytes(answer.result(), api_of(request_).versions.last)
    told = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.LEADER_NOT_AVAILABLE)
    assert any(int(code).to_bytes(2, "big") in encoded for code in told)


# --- CreateTopics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_create_topics_in_every_version(version: int) -> None:
    node = FakeNode()
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name="t",
                num_partitions=2,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="retention.ms", value="77")],
            ),
            CreatableTopic(name="bad name", num_partitions=1, replication_factor=1),
        ]
    )
    answer = call(node, request, version)
    good, bad = answer.topics
    assert (good.error_code, good.error_message) == (0, None)
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION and "bad name" in bad.error_message
    assert node.metadata.topic_overrides("t") == {"retention.ms": "77"}
    if version >= 5:
        assert (good.num_partitions, good.replication_factor) == (2, 1)
        configs = {entry.name: entry for entry in good.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("77", 1)
        assert configs["cleanup.policy"].config_source == 5
    if version >= 7:
        assert good.topic_id == node.metadata.topic_id("t")


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_create_topics_takes_defaults_for_minus_one_in_every_version(version: int) -> None:
    """kafkajs sends -1 in version 3."""
    topic = CreatableTopic(name="t", num_partitions=-1, replication_factor=-1)
    node = FakeNode(num_partitions="6")
    answer = call(node, CreateTopicsRequest(topics=[topic]), version)
    assert answer.topics[0].error_code == 0
    assert node.metadata.partition_count("t") == 6


def test_validate_only_creates_nothing() -> None:
    node = FakeNode()
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=1)
    answer = call(node, CreateTopicsRequest(topics=[topic], validate_only=True))
    assert (answer.topics[0].error_code, answer.topics[0].num_partitions) == (0, 3)
    assert answer.topics[0].topic_id != ZERO_UUID, "as in Kafka: the id that it would have"
    assert node.metadata.topics == {} and node.recorded == []


def test_a_partition_assigned_twice_is_an_invalid_assignment() -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    topic = CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment, assignment]
    )
    answer = call(FakeNode(), CreateTopicsRequest(topics=[topic]))
    assert answer.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_accept_policy_answers_the_replication_factor_of_1() -> None:
    node = FakeNode(replication_factor_policy="accept")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    answer = call(node, CreateTopicsRequest(topics=[topic])).topics[0]
    assert (answer.error_code, answer.replication_factor) == (0, 1)
    assert "one copy" in answer.error_message


# --- DeleteTopics, CreatePartitions ---------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_delete_topics_in_every_version(version: int) -> None:
    node = FakeNode()
    topic_id = node.create("t")
    if version >= 6:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=topic_id), DeleteTopicState(name="nobody")]
        )
    else:
        request = DeleteTopicsRequest(topic_names=["t", "nobody"])
    answer = call(node, request, version)
    assert [(entry.name, entry.error_code) for entry in answer.responses] == [
        ("t", 0),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert node.metadata.topics == {}


def test_delete_topics_is_refused_if_it_is_disabled() -> None:
    node = FakeNode(delete_topic_enable="false")
    node.create("t")
    for version in versions(ApiKey.DELETE_TOPICS):
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
        if version < 6:
            request = DeleteTopicsRequest(topic_names=["t"])
        expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert call(node, request, version).responses[0].error_code == expected
    assert "t" in node.metadata.topics


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_create_partitions_in_every_version(version: int) -> None:
    node = FakeNode()
    node.create("t")
    for count, validate_only, error, present in (
        (3, True, 0, 1),
        (3, False, 0, 3),
        (2, False, ErrorCode.INVALID_PARTITIONS, 3),
    ):
        topic = CreatePartitionsTopic(name="t", count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
        assert call(node, request, version).results[0].error_code == error
        assert node.metadata.partition_count("t") == present


def test_create_partitions_refuses_an_assignment_to_another_broker() -> None:
    node = FakeNode()
    node.create("t")
    topic = CreatePartitionsTopic(
        name="t", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[9])]
    )
    answer = call(node, CreatePartitionsRequest(topics=[topic]))
    assert answer.results[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


# --- Settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_describe_configs_in_every_version(version: int) -> None:
    node = FakeNode(log_retention_ms="1000")
    node.create("t", segment_bytes="4096")
    node.create("u")
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None),
            DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
            DescribeConfigsResource(resource_type=2, resource_name="no", configuration_keys=None),
            DescribeConfigsResource(
                resource_type=2, resource_name="u", configuration_keys=["retention.ms", "nothing"]
            ),
        ],
        include_synonyms=True,
        include_documentation=version >= 3,
    )
    topic, broker, missing, some = call(node, request, version).results
    entries = {entry.name: entry for entry in topic.configs}
    assert len(entries) > 20
    assert (entries["segment.bytes"].value, entries["segment.bytes"].config_source) == ("4096", 1)
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("1000", 4)
    assert [entry.source for entry in entries["retention.ms"].synonyms] == [4, 5]
    broker_entries = {entry.name: entry for entry in broker.configs}
    assert len(broker_entries) > 60
    assert broker_entries["log.retention.hours"].value == "168"
    assert broker_entries["node.id"].read_only
    if version >= 3:
        assert entries["retention.ms"].config_type == 5
        assert entries["retention.ms"].documentation
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and missing.error_message
    assert [entry.name for entry in some.configs] == ["retention.ms"]


def test_describe_configs_leaves_out_unrequested_synonyms_and_docs() -> None:
    node = FakeNode()
    node.create("t")
    resource = DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=["retention.ms"]
    )
    (entry,) = call(node, DescribeConfigsRequest(resources=[resource])).results[0].configs
    assert (entry.synonyms, entry.documentation) == ([], None)


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_alter_configs_in_every_version(version: int) -> None:
    node = FakeNode()
    node.create("t")
    node.create("u")

    def alter(resource_type: int, name: str, key: str, value: str, **more: Any) -> int:
        resource = AlterConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configs=[AlterableConfig(name=key, config_operation=0, value=value)],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], **more)
        code: int = call(node, request, version).responses[0].error_code
        return code

    assert alter(2, "t", "retention.ms", "9", validate_only=True) == 0
    assert node.metadata.topic_overrides("t") == {} and node.changed == []
    assert alter(2, "t", "retention.ms", "9") == 0
    assert node.metadata.topic_overrides("t") == {"retention.ms": "9"}
    assert node.changed == ["t"], "the running log is told"
    assert alter(2, "t", "retention.ms", "9") == 0
    assert node.changed == ["t"], "nothing has changed"
    assert alter(4, "", "log.retention.ms", "8") == 0
    assert node.changed == ["t", "t", "u"], "a broker's setting lies under all topics"
    assert alter(2, "t", "retention.ms", "soon") == ErrorCode.INVALID_CONFIG


def replacing(name: str, resource_type: int = 2, **configs: str | None) -> ReplacedResource:
    return ReplacedResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            ReplacingConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_alter_configs_replaces_all_settings_of_a_topic(version: int) -> None:
    node = FakeNode()
    node.create("t", retention_ms="9", segment_bytes="1048576")

    def replace(resource: ReplacedResource, **more: Any) -> int:
        request = AlterConfigsRequest(resources=[resource], **more)
        code: int = call(node, request, version).responses[0].error_code
        return code

    assert replace(replacing("t", retention_ms="5"), validate_only=True) == 0
    assert replace(replacing("t", retention_ms="x"), validate_only=True) == E.INVALID_CONFIG
    assert node.metadata.topic_overrides("t") == {"retention.ms": "9", "segment.bytes": "1048576"}
    assert replace(replacing("t", retention_ms="5")) == 0
    assert node.metadata.topic_overrides("t") == {"retention.ms": "5"}
    assert node.changed == ["t"], "the running log is told"
    assert replace(replacing("t", retention_ms=None)) == E.INVALID_REQUEST
    assert replace(replacing("u", retention_ms="5")) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(replacing("t")) == 0
    assert node.metadata.topic_overrides("t") == {}


def test_alter_configs_refuses_a_resource_that_is_named_twice() -> None:
    node = FakeNode()
    node.create("t")
    twice = [replacing("t", retention_ms="5"), replacing("t", segment_ms="5")]
    answer = call(node, AlterConfigsRequest(resources=twice))
    assert {row.error_code for row in answer.responses} == {E.INVALID_REQUEST}
    assert node.metadata.topic_overrides("t") == {}


def test_describe_configs_with_an_empty_list_of_keys_answers_all_keys() -> None:
    node = FakeNode()
    node.create("t")
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[])
    (result,) = call(node, DescribeConfigsRequest(resources=[resource])).results
    assert len(result.configs) > 20


def groups(*names: str) -> DescribeConfigsRequest:
    resources = [
        DescribeConfigsResource(resource_type=32, resource_name=name, configuration_keys=None)
        for name in names
    ]
    return DescribeConfigsRequest(
        resources=resources, include_synonyms=True, include_documentation=True
    )


def count_described(monkeypatch: pytest.MonkeyPatch, slice_size: int) -> list[str]:
    """Returns a list that gets the names of all resources described from now on."""
    names: list[str] = []
    describe = describe_configs._describe

    def counted(*given: Any) -> Any:
        names.append(given[-1].resource_name)
        return describe(*given)

    monkeypatch.setattr(describe_configs, "_MEASURED", slice_size)
    monkeypatch.setattr(describe_configs, "_describe", counted)
    return names


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_d11_describe_configs_stops_when_its_answer_is_too_large(
    monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The groups are measured ten at a time. The description stops when all together exceed the
    limit, not earlier."""
    one = handled(describe_configs.handle(FakeNode(), context(version), groups("g00000")))  # type: ignore[arg-type]
    assert isinstance(one, DescribeConfigsResponse)
    one_bytes = len(codec.encode_bytes(one, version))
    described = count_described(monkeypatch, 10)
    node = FakeNode(fetch_max_bytes=str(one_bytes * 30))
    request = groups(*(f"g{number:05}" for number in range(10_000)))
    turns = SoonScheduler()
    answer = handled(describe_configs.handle(node, context(version), request), turns)  # type: ignore[arg-type]
    turns.run()
    assert 30 <= len(described) <= 40
    given_up = answer.result()
    assert isinstance(given_up, AnswerTooLarge)
    assert one_bytes * 30 < given_up.least_bytes < one_bytes * 41
    assert not node.timers


def test_an_invalid_stored_value_is_described_and_can_be_replaced() -> None:
    """The setting can be replaced and removed, and other settings of the topic can be changed."""
    key = "follower.replication.throttled.replicas"

    def topic_with_it() -> FakeNode:
        node = FakeNode()
        node.create("t", follower_replication_throttled_replicas="foo")
        return node

    def change(node: FakeNode, name: str, operation: int, value: str | None) -> int:
        config = AlterableConfig(name=name, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
        answer = call(node, IncrementalAlterConfigsRequest(resources=[resource]))
        error: int = answer.responses[0].error_code
        return error

    node = topic_with_it()
    resource = DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=[key, "retention.ms"]
    )
    (result,) = call(node, DescribeConfigsRequest(resources=[resource])).results
    assert [(entry.name, entry.value) for entry in result.configs] == [
        (key, "foo"),
        ("retention.ms", "604800000"),
    ]
    assert change(node, "retention.ms", 0, "5") == 0
    assert node.metadata.topic_overrides("t") == {key: "foo", "retention.ms": "5"}
    assert change(node, key, 0, "bar") == E.INVALID_CONFIG
    assert change(node, key, 2, "0:1") == E.INVALID_CONFIG
    assert change(node, key, 3, "foo") == 0
    assert node.metadata.topic_overrides("t") == {key: "", "retention.ms": "5"}
    for operation, value in ((0, "0:1"), (1, None)):
        assert change(topic_with_it(), key, operation, value) == 0


def test_the_empty_broker_name_describes_the_dynamic_defaults_only() -> None:
    node = FakeNode(log_retention_ms="1000")
    resource = AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[AlterableConfig(name="message.max.bytes", config_operation=0, value="5000")],
    )
    call(node, IncrementalAlterConfigsRequest(resources=[resource]))
    described = DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=None)
    (result,) = call(node, DescribeConfigsRequest(resources=[described])).results
    assert [(entry.name, entry.value, entry.config_source) for entry in result.configs] == [
        ("message.max.bytes", "5000", 3),
        ("min.insync.replicas", "1", 3),
    ]


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_settings_of_groups_and_client_metrics_are_described(version: int) -> None:
    node = FakeNode(group_consumer_heartbeat_interval_ms="7000")
    for kind, name, key, value in (
        (32, "g", "consumer.session.timeout.ms", "50000"),
        (16, "s", "interval.ms", "1000"),
    ):
        change = AlterableConfig(name=key, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
        call(node, IncrementalAlterConfigsRequest(resources=[resource]))
    asked_for = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((32, "g"), (16, "s"), (32, ""), (16, ""))
    ]
    request = DescribeConfigsRequest(resources=asked_for, include_synonyms=True)
    group, metrics, *nameless = call(node, request, version).results
    settings = {entry.name: entry for entry in group.configs}
    session = settings["consumer.session.timeout.ms"]
    assert (session.value, session.config_source, session.read_only) == ("50000", 8, False)
    assert [(place.value, place.source) for place in session.synonyms] == [
        ("50000", 8),
        ("45000", 5),
    ]
    heartbeat = settings["consumer.heartbeat.interval.ms"]
    assert (heartbeat.value, heartbeat.config_source) == ("7000", 4)
    assert settings["share.isolation.level"].config_source == 5
    assert [(entry.name, entry.value, entry.config_source) for entry in metrics.configs] == [
        ("interval.ms", "1000", 7),
        ("match", "", 5),
        ("metrics", "", 5),
    ]
    assert [result.error_code for result in nameless] == [E.INVALID_REQUEST] * 2


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (2, "nobody", E.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a b", E.INVALID_TOPIC_EXCEPTION),
        (2, "", E.INVALID_TOPIC_EXCEPTION),
        (4, "9", E.INVALID_REQUEST),
        (4, "x", E.INVALID_REQUEST),
        (8, "9", E.INVALID_REQUEST),
        (8, "x", E.INVALID_REQUEST),
        (1, "t", E.INVALID_REQUEST),
        (0, "t", E.INVALID_REQUEST),
    ],
)
def test_describe_configs_refuses_unknown_and_invalid_resources(
    kind: int, name: str, error: ErrorCode
) -> None:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    (result,) = call(FakeNode(), DescribeConfigsRequest(resources=[resource])).results
    assert (result.error_code, result.configs) == (error, []) and result.error_message


# --- DescribeCluster ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_describe_cluster_in_every_version(version: int) -> None:
    node = FakeNode(broker_rack="r")
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = call(node, request, version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster", 1)
    assert [(row.broker_id, row.host, row.port, row.rack) for row in answer.brokers] == [
        (1, "host", 9092, "r")
    ]
    assert answer.cluster_authorized_operations == 8096
    if version >= 1:
        for kind, error in (
            (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        ):
            refused = call(node, DescribeClusterRequest(endpoint_type=kind), version)
            assert refused.error_code == error and refused.error_message


def test_n12_the_effective_addresses_and_protocol_are_described() -> None:
    keys = ["advertised.listeners", "security.inter.broker.protocol"]
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=keys)
    answer = call(FakeNode(), DescribeConfigsRequest(resources=[resource], include_synonyms=True))
    assert {each.name: each.value for each in answer.results[0].configs} == {
        "advertised.listeners": "PLAINTEXT://host:9092,LOCAL://[::1]:9094",
        "security.inter.broker.protocol": "PLAINTEXT",
    }
