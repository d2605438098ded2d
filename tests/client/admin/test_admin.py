"""The admin against a scripted broker: the nodes that get requests, retries, and errors."""

from __future__ import annotations

from typing import Any

import pytest

from odradek import Admin, ConfigResource, NewTopic, TopicPartition
from odradek_client.admin import ConfigChange, ConfigOperation, ConfigSource, requests
from odradek_client.errors import (
    InvalidConfig,
    LeaderUnknown,
    NotController,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from odradek_protocol.common_structs import AlterConfigsResourceResponse
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from odradek_protocol.schemas.create_topics import CreatableTopicResult, CreateTopicsResponse
from odradek_protocol.schemas.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from odradek_protocol.schemas.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek_protocol.schemas.incremental_alter_configs import IncrementalAlterConfigsResponse
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek_protocol.schemas.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from scripted_broker import DEFAULT, HANG_UP, ScriptedBroker

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def admin(broker: ScriptedBroker, **settings: Any) -> Admin:
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "reconnect_backoff_ms": 1}
    return Admin(bootstrap_servers=broker.address, **(quick | settings))


def created(broker: ScriptedBroker, **codes: ErrorCode) -> Any:
    """A handler of CreateTopics that creates the topics, except those with an error code."""

    def answer(request: Any, version: int) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            code = codes.get(topic.name, ErrorCode.NONE)
            if code is ErrorCode.NONE:
                broker.topics[topic.name] = topic.num_partitions
            results.append(
                CreatableTopicResult(
                    name=topic.name,
                    error_code=code,
                    num_partitions=topic.num_partitions if version >= 5 else -1,
                    replication_factor=1 if version >= 5 else -1,
                )
            )
        return CreateTopicsResponse(topics=results)

    return answer


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics_in_every_version(version: int) -> None:
    async with ScriptedBroker(versions={ApiKey.CREATE_TOPICS: (2, version)}) as broker:
        broker.always(ApiKey.CREATE_TOPICS, created(broker))
        async with admin(broker) as running:
            topic = NewTopic("t", 3, 1, configs={"retention.ms": "5"})
            results = await running.create_topics(topic, validate_only=True)
            assert results["t"].partitions == (3 if version >= 5 else -1)
        (request,) = broker.received(ApiKey.CREATE_TOPICS)
        (asked,) = request.topics
        assert (asked.num_partitions, asked.replication_factor) == (3, 1)
        assert [(c.name, c.value) for c in asked.configs] == [("retention.ms", "5")]
        assert request.validate_only


async def test_a_topic_is_created_with_a_manual_replica_assignment() -> None:
    async with ScriptedBroker() as broker:
        broker.always(ApiKey.CREATE_TOPICS, created(broker))
        async with admin(broker) as running:
            await running.create_topics(NewTopic("t", assignments={0: [1], 1: [2, 1]}))
        (asked,) = broker.received(ApiKey.CREATE_TOPICS)[0].topics
        assert (asked.num_partitions, asked.replication_factor) == (-1, -1)
        assert [(a.partition_index, a.broker_ids) for a in asked.assignments] == [
            (0, [1]),
            (1, [2, 1]),
        ]


async def test_the_first_error_is_raised_with_the_others_in_its_notes() -> None:
    async with ScriptedBroker() as broker:
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        broker.always(ApiKey.CREATE_TOPICS, created(broker, a=exists, c=exists))
        topics = [NewTopic(name) for name in "abc"]
        async with admin(broker) as running:
            with pytest.raises(TopicAlreadyExists, match="topic 'a'") as caught:
                await running.create_topics(topics)
            assert "topic 'c'" in str(caught.value.__notes__)
            results = await running.create_topics(topics, raise_errors=False)
        assert set(results) == {"b"} and set(results.errors) == {"a", "c"}


async def test_the_controller_is_looked_up_and_followed() -> None:
    async with ScriptedBroker(1) as one, ScriptedBroker(2) as two:
        one.peers = two.peers = [one, two]
        one.controller_id = two.controller_id = 1
        two.always(ApiKey.CREATE_TOPICS, created(two))

        def moved(request: Any, version: int) -> Any:
            one.controller_id = two.controller_id = 2
            return created(one, t=ErrorCode.NOT_CONTROLLER)(request, version)

        one.always(ApiKey.CREATE_TOPICS, moved)
        async with admin(one) as running:
            await running.create_topics(NewTopic("t"))
        assert len(one.received(ApiKey.CREATE_TOPICS)) >= 1
        assert len(two.received(ApiKey.CREATE_TOPICS)) == 1


async def test_not_controller_is_raised_when_the_call_times_out() -> None:
    async with ScriptedBroker() as broker:
        broker.always(ApiKey.CREATE_TOPICS, created(broker, t=ErrorCode.NOT_CONTROLLER))
        async with admin(broker, default_api_timeout_ms=100) as running:
            with pytest.raises(NotController):
                await running.create_topics(NewTopic("t"))
        assert len(broker.received(ApiKey.CREATE_TOPICS)) > 3


async def test_only_failed_topics_are_retried_after_a_lost_connection_or_throttling() -> None:
    async with ScriptedBroker() as broker:
        throttled = created(broker, b=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        broker.on(ApiKey.CREATE_TOPICS, HANG_UP, throttled, created(broker))
        async with admin(broker) as running:
            results = await running.create_topics([NewTopic("a"), NewTopic("b")])
        assert set(results) == {"a", "b"} and not results.errors
        asked = [[t.name for t in r.topics] for r in broker.received(ApiKey.CREATE_TOPICS)]
        assert asked == [["a", "b"], ["a", "b"], ["b"]]


@pytest.mark.parametrize("version", [1, 4, 5, 6])
async def test_delete_topics_by_name_in_every_version(version: int) -> None:
    def answer(request: Any, _: int) -> DeleteTopicsResponse:
        names = request.topic_names or [state.name for state in request.topics]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=name,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name == "no" else 0,
                )
                for name in names
            ]
        )

    async with ScriptedBroker(versions={ApiKey.DELETE_TOPICS: (1, version)}) as broker:
        broker.always(ApiKey.DELETE_TOPICS, answer)
        async with admin(broker) as running:
            assert await running.delete_topics("t") == {"t": None}
            with pytest.raises(UnknownTopicOrPartition, match="'no'"):
                await running.delete_topics(["t", "no"])
        assert len(broker.received(ApiKey.DELETE_TOPICS)) == 2, "missing is an answer here"


async def test_topics_are_listed_and_described() -> None:
    async with ScriptedBroker(topics={"b": 2, "a": 1}) as broker:
        broker.leaders = {("b", 1): -1}
        async with admin(broker) as running:
            assert await running.list_topics() == ["a", "b"]
            found = await running.describe_topics(["b"])
            assert [p.leader for p in found["b"].partitions] == [1, None]
            with pytest.raises(UnknownTopicOrPartition, match="'no'"):
                await running.describe_topics("no")
        assert not broker.received(ApiKey.METADATA)[-1].allow_auto_topic_creation


async def test_create_partitions_sends_the_new_partition_count() -> None:
    async with ScriptedBroker() as broker:
        broker.always(
            ApiKey.CREATE_PARTITIONS,
            lambda request, version: CreatePartitionsResponse(
                results=[CreatePartitionsTopicResult(name=t.name) for t in request.topics]
            ),
        )
        async with admin(broker) as running:
            assert await running.create_partitions({"t": 6}) == {"t": None}
        (request,) = broker.received(ApiKey.CREATE_PARTITIONS)
        assert [(t.name, t.count, t.assignments) for t in request.topics] == [("t", 6, None)]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
async def test_describe_configs_of_a_broker_goes_to_that_broker(version: int) -> None:
    def answer(request: Any, _: int) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                    configs=[
                        DescribeConfigsResourceResult(name="x", value="1", config_source=5),
                        DescribeConfigsResourceResult(name="y", value=None, is_sensitive=True),
                    ],
                )
                for r in request.resources
            ]
        )

    versions = {ApiKey.DESCRIBE_CONFIGS: (1, version)}
    async with (
        ScriptedBroker(1, versions=dict(versions)) as one,
        ScriptedBroker(2, versions=dict(versions)) as two,
    ):
        one.peers = two.peers = [one, two]
        for broker in (one, two):
            broker.always(ApiKey.DESCRIBE_CONFIGS, answer)
        async with admin(one) as running:
            resource = ConfigResource.broker(2)
            found = await running.describe_configs(resource, names=["x"], documentation=True)
            entry = found[resource]["x"]
            assert (entry.value, entry.is_default, entry.source) == (
                "1",
                True,
                ConfigSource.DEFAULT,
            )
            assert found[resource]["y"].is_sensitive
        (request,) = two.received(ApiKey.DESCRIBE_CONFIGS)
        assert request.resources[0].configuration_keys == ["x"]
        assert request.include_documentation == (version >= 3)


async def test_alter_configs_sets_and_unsets_single_settings() -> None:
    def answer(request: Any, _: int) -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    resource_type=r.resource_type,
                    resource_name=r.resource_name,
                    error_code=ErrorCode.INVALID_CONFIG if r.resource_name == "bad" else 0,
                    error_message="no such setting",
                )
                for r in request.resources
            ]
        )

    async with ScriptedBroker() as broker:
        broker.always(ApiKey.INCREMENTAL_ALTER_CONFIGS, answer)
        async with admin(broker) as running:
            topic = ConfigResource.topic("t")
            assert await running.alter_configs({topic: {"a": "1", "b": None}}) == {topic: None}
            append = ConfigChange("c", "x", ConfigOperation.APPEND)
            await running.alter_configs({topic: [append]})
            with pytest.raises(InvalidConfig, match="no such setting"):
                await running.alter_configs({ConfigResource.topic("bad"): {"a": "1"}})
        first, second, _ = broker.received(ApiKey.INCREMENTAL_ALTER_CONFIGS)
        assert [(c.name, c.config_operation, c.value) for c in first.resources[0].configs] == [
            ("a", 0, "1"),
            ("b", 1, None),
        ]
        assert second.resources[0].configs[0].config_operation == 2


@pytest.mark.parametrize("served", [True, False])
async def test_describe_cluster_also_works_on_brokers_without_its_api(served: bool) -> None:
    versions: dict[ApiKey, Any] = {} if served else {ApiKey.DESCRIBE_CLUSTER: None}
    async with ScriptedBroker(3, versions=versions) as broker:
        broker.always(
            ApiKey.DESCRIBE_CLUSTER,
            lambda request, version: DescribeClusterResponse(
                cluster_id="scripted",
                controller_id=3,
                brokers=[DescribeClusterBroker(broker_id=3, host="127.0.0.1", port=broker.port)],
            ),
        )
        async with admin(broker) as running:
            found = await running.describe_cluster()
        assert (found.cluster_id, found.controller_id) == ("scripted", 3)
        assert [(b.node_id, b.port) for b in found.brokers] == [(3, broker.port)]


def offsets(code: ErrorCode = ErrorCode.NONE) -> Any:
    def answer(request: Any, _: int) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=part.partition_index,
                            error_code=code,
                            offset=-1 if part.timestamp == 99 else 7,
                            timestamp=part.timestamp,
                        )
                        for part in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


async def test_list_offsets_asks_every_leader() -> None:
    async with ScriptedBroker(1, topics={"t": 2}) as one, ScriptedBroker(2) as two:
        two.topics = one.topics
        one.peers = two.peers = [one, two]
        one.leaders = two.leaders = {("t", 0): 1, ("t", 1): 2}
        for broker in (one, two):
            broker.always(ApiKey.LIST_OFFSETS, offsets())
        async with admin(one) as running:
            found = await running.list_offsets({("t", 0): 5, ("t", 1): 99}, read_committed=True)
        at = found[TopicPartition("t", 0)]
        assert at is not None and (at.offset, at.timestamp) == (7, 5)
        assert found[TopicPartition("t", 1)] is None, "no record that late"
        (request,) = two.received(ApiKey.LIST_OFFSETS)
        assert request.isolation_level == 1 and request.replica_id == -1


async def test_list_offsets_follows_a_moved_leader_and_names_missing_partitions() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker:
        not_leader = offsets(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        broker.on(ApiKey.LIST_OFFSETS, not_leader, HANG_UP, offsets())
        async with admin(broker, default_api_timeout_ms=300) as running:
            found = await running.list_offsets({("t", 0): -1})
            assert found[TopicPartition("t", 0)] is not None
            with pytest.raises(UnknownTopicOrPartition, match="t-5"):
                await running.list_offsets({("t", 5): -1})
            broker.leaders = {("t", 0): -1}
            with pytest.raises(LeaderUnknown):
                await running.list_offsets({("t", 0): -1})


# --- A topic that not all nodes have heard of ---


def unknown_at_first(times: int) -> Any:
    """A handler of Metadata: the first `times` requests about topics are answered without the
    topics."""
    left = [times]

    def answer(request: Any, version: int) -> Any:
        if not request.topics or left[0] <= 0:
            return DEFAULT
        left[0] -= 1
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)],
            topics=[
                MetadataResponseTopic(error_code=UNKNOWN, name=topic.name)
                for topic in request.topics
            ],
        )

    return answer


async def test_calls_wait_for_the_metadata_of_a_topic_just_created() -> None:
    """The controller has created the topic, so the calls wait for it until their time-out."""
    async with ScriptedBroker() as broker:
        broker.always(ApiKey.CREATE_TOPICS, created(broker))
        broker.always(ApiKey.LIST_OFFSETS, offsets())
        async with admin(broker) as running:
            await running.create_topics([NewTopic("t", partitions=1)])
            broker.always(ApiKey.METADATA, unknown_at_first(3))
            found = await running.describe_topics("t")
            assert len(found["t"].partitions) == 1
            broker.always(ApiKey.METADATA, unknown_at_first(3))
            assert await running.list_offsets({("t", 0): -1})


async def test_calls_wait_for_the_metadata_of_a_topic_that_already_exists() -> None:
    async with ScriptedBroker(topics={"t": 1}) as broker:
        exists = created(broker, t=ErrorCode.TOPIC_ALREADY_EXISTS)
        broker.always(ApiKey.CREATE_TOPICS, exists)
        async with admin(broker) as running:
            with pytest.raises(TopicAlreadyExists):
                await running.create_topics([NewTopic("t")])
            broker.always(ApiKey.METADATA, unknown_at_first(3))
            assert await running.describe_topics("t")


async def test_a_topic_that_was_not_created_is_missing_at_once() -> None:
    """Topics that were only validated, or that were deleted again, are also missing immediately."""
    async with ScriptedBroker() as broker:
        broker.always(ApiKey.CREATE_TOPICS, created(broker))
        broker.always(
            ApiKey.DELETE_TOPICS,
            lambda request, version: DeleteTopicsResponse(
                responses=[DeletableTopicResult(name=each.name) for each in request.topics]
            ),
        )
        async with admin(broker) as running:
            await running.create_topics([NewTopic("validated", 1)], validate_only=True)
            await running.create_topics([NewTopic("deleted", 1)])
            await running.delete_topics("deleted")
            broker.topics.clear()
            for topic in ("validated", "deleted", "typo"):
                before = len(broker.received(ApiKey.METADATA))
                with pytest.raises(UnknownTopicOrPartition, match=topic):
                    await running.list_offsets({(topic, 0): -1})
                with pytest.raises(UnknownTopicOrPartition, match=topic):
                    await running.describe_topics(topic)
                assert len(broker.received(ApiKey.METADATA)) == before + 2


async def test_a_topic_created_long_ago_and_deleted_is_missing_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes learn of a new topic within seconds, so this topic must have been deleted."""
    async with ScriptedBroker() as broker:
        broker.always(ApiKey.CREATE_TOPICS, created(broker))
        async with admin(broker) as running:
            await running.create_topics([NewTopic("t", 1)])
            broker.topics.clear()
            monkeypatch.setattr(requests, "CREATED_PATIENCE_MS", 0)
            before = len(broker.received(ApiKey.METADATA))
            with pytest.raises(UnknownTopicOrPartition):
                await running.describe_topics("t")
            assert len(broker.received(ApiKey.METADATA)) == before + 1


async def test_list_offsets_retries_a_leader_that_does_not_know_the_topic_yet() -> None:
    async with ScriptedBroker(1, topics={"t": 1}) as one, ScriptedBroker(2) as two:
        one.peers = two.peers = [one, two]
        for broker in (one, two):
            broker.leaders = {("t", 0): 1}
        one.always(ApiKey.LIST_OFFSETS, offsets())
        two.always(ApiKey.LIST_OFFSETS, offsets())
        one.on(ApiKey.LIST_OFFSETS, offsets(UNKNOWN), offsets(UNKNOWN), offsets())
        async with admin(one) as running:
            assert await running.list_offsets({("t", 0): -1})
