"""Administration of a running broker: changes take effect immediately, and survive a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from broker_in_loop import StartBroker
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek_protocol.schemas.create_topics import CreatableTopic, CreateTopicsRequest
from odradek_protocol.schemas.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek_protocol.schemas.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek_protocol.schemas.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek_protocol.schemas.init_producer_id import InitProducerIdRequest
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from raw_client import RawClient, batch_of, produce_request


async def alter(client: RawClient, kind: int, name: str, key: str, value: str) -> int:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=0, value=value)],
    )
    answer = await client.call(IncrementalAlterConfigsRequest(resources=[resource]))
    code: int = answer.responses[0].error_code
    return code


async def produce(client: RawClient, topic: str, size_bytes: int) -> int:
    """Produce one record with a value of `size_bytes`. Returns the error."""
    request = produce_request(topic, batch_of(b"x" * size_bytes))
    answer = await client.call(request, 12)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


async def topics_of(client: RawClient) -> dict[str, Any]:
    answer = await client.call(MetadataRequest(topics=None))
    return {topic.name: topic for topic in answer.topics}


async def test_topics_settings_and_ids_survive_a_restart(start_broker: StartBroker) -> None:
    first = await start_broker()
    client = await first.client()
    await client.create_topic("t", 3, retention_ms="1234")
    await client.create_topic("gone")
    assert await alter(client, 2, "t", "segment.bytes", "4096") == 0
    assert await alter(client, 4, "", "log.roll.ms", "5678") == 0
    grown = CreatePartitionsTopic(name="t", count=5, assignments=None)
    await client.call(CreatePartitionsRequest(topics=[grown], timeout_ms=5000))
    await client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5000))
    before = await topics_of(client)
    producer_id = (await client.call(InitProducerIdRequest(transactional_id=None))).producer_id
    cluster_id = first.node.cluster_id
    await first.stop()

    second = await start_broker()
    client = await second.client()
    after = await topics_of(client)
    assert list(after) == ["t"]
    assert after["t"].topic_id == before["t"].topic_id
    assert len(after["t"].partitions) == 5
    assert second.node.cluster_id == cluster_id
    log_config = second.node.partition("t", 4).log.config
    assert (log_config.retention_ms, log_config.segment_bytes, log_config.segment_ms) == (
        1234,
        4096,
        5678,
    )
    again = (await client.call(InitProducerIdRequest(transactional_id=None))).producer_id
    assert (producer_id, again) == (0, 1000), "P-29: the rest of a block is skipped"


async def test_a_setting_takes_effect_at_once(start_broker: StartBroker) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    await client.create_topic("own", max_message_bytes="100000")
    assert await produce(client, "t", 5000) == 0
    assert await alter(client, 2, "t", "max.message.bytes", "1000") == 0
    assert await produce(client, "t", 5000) == ErrorCode.MESSAGE_TOO_LARGE
    assert await alter(client, 2, "t", "max.message.bytes", "10000") == 0
    assert await produce(client, "t", 5000) == 0
    assert await alter(client, 4, "1", "message.max.bytes", "2000") == 0
    await client.create_topic("new")
    assert await produce(client, "new", 5000) == ErrorCode.MESSAGE_TOO_LARGE
    assert await produce(client, "own", 5000) == 0


async def test_message_max_bytes_does_not_limit_the_metadata_log(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(message_max_bytes="300")
    client = await broker.client()
    await client.create_topic("t", 100)
    assert len((await topics_of(client))["t"].partitions) == 100


async def test_f14_a_recreated_topic_is_empty_and_has_a_new_id(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker()
    client = await broker.client()
    await client.create_topic("t")
    old = (await topics_of(client))["t"].topic_id
    assert await produce(client, "t", 10) == 0
    assert (tmp_path / "data" / "t-0").is_dir()
    await client.call(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=old)], timeout_ms=5000))
    assert not (tmp_path / "data" / "t-0").exists()
    assert await produce(client, "t", 10) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await client.create_topic("t")
    assert (await topics_of(client))["t"].topic_id != old
    assert broker.node.partition("t", 0).log.log_end_offset == 0


async def test_a11_auto_created_topics_can_be_written_at_once(start_broker: StartBroker) -> None:
    broker = await start_broker(num_partitions="2")
    client = await broker.client()
    answer = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9)
    assert [entry.leader_id for entry in answer.topics[0].partitions] == [1, 1]
    assert await produce(client, "t", 10) == 0


async def test_many_clients_create_the_same_topic_once(start_broker: StartBroker) -> None:
    broker = await start_broker()
    clients = [await broker.client() for _ in range(8)]
    request = CreateTopicsRequest(
        timeout_ms=5000,
        topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)],
    )
    answers = await asyncio.gather(*(client.call(request) for client in clients))
    codes = sorted(answer.topics[0].error_code for answer in answers)
    assert codes == [0] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 7


async def test_describe_configs_names_the_source_of_each_value(start_broker: StartBroker) -> None:
    broker = await start_broker(log_retention_ms="11")
    client = await broker.client()
    await client.create_topic("t", segment_bytes="4096")
    await alter(client, 4, "", "log.segment.bytes", "8192")
    resource = DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=["segment.bytes", "retention.ms"]
    )
    answer = await client.call(DescribeConfigsRequest(resources=[resource], include_synonyms=True))
    retention, segment = answer.results[0].configs
    assert (retention.value, retention.config_source) == ("11", 4)
    assert [(entry.value, entry.source) for entry in segment.synonyms] == [
        ("4096", 1),
        ("8192", 3),
        ("1073741824", 5),
    ]
