"""Foreign clients administer topics; each client sees the changes of the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import kafka.errors
import pytest

from foreign_clients import CLIENTS, DEADLINE_S, Record, Settings
from waiting import wait_until

#: confluent-kafka's type stubs do not export these public names.
_admin: Any = confluent_kafka.admin
ConfigResource, ResourceType = _admin.ConfigResource, _admin.ResourceType
NewPartitions, NewTopic = _admin.NewPartitions, _admin.NewTopic


@pytest.fixture(scope="module")
def admin(address: str) -> confluent_kafka.admin.AdminClient:
    """librdkafka's admin client."""
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": address, "log_level": 0})


def _partitions(admin: Any, topic: str) -> int | None:
    found = admin.list_topics(timeout=DEADLINE_S).topics.get(topic)
    return None if found is None else len(found.partitions)


def _config(admin: Any, topic: str, name: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (future,) = admin.describe_configs([resource]).values()
    value: str = future.result(DEADLINE_S)[name].value
    return value


def test_confluent_kafka_creates_describes_alters_and_deletes_topics(admin: Any) -> None:
    new = NewTopic("by-confluent", 2, 1, config={"retention.ms": "3600000"})
    admin.create_topics([new])["by-confluent"].result(DEADLINE_S)
    assert _partitions(admin, "by-confluent") == 2
    assert _config(admin, "by-confluent", "retention.ms") == "3600000"

    with pytest.raises(confluent_kafka.KafkaException) as again:
        admin.create_topics([new])["by-confluent"].result(DEADLINE_S)
    assert again.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS

    change = ConfigResource(ResourceType.TOPIC, "by-confluent")
    change.add_incremental_config(
        _admin.ConfigEntry(
            "retention.ms",
            "7200000",
            incremental_operation=_admin.AlterConfigOpType.SET,
        )
    )
    admin.incremental_alter_configs([change])[change].result(DEADLINE_S)
    assert _config(admin, "by-confluent", "retention.ms") == "7200000"

    admin.create_partitions([NewPartitions("by-confluent", 5)])["by-confluent"].result(DEADLINE_S)
    assert _partitions(admin, "by-confluent") == 5

    admin.delete_topics(["by-confluent"])["by-confluent"].result(DEADLINE_S)
    assert _partitions(admin, "by-confluent") is None


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad name", 1, 1), confluent_kafka.KafkaError.TOPIC_EXCEPTION),
        (NewTopic("no-partitions", 0, 1), confluent_kafka.KafkaError.INVALID_PARTITIONS),
        (NewTopic("three-copies", 1, 3), confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR),
        (
            NewTopic("bad-config", 1, 1, config={"retention.ms": "soon"}),
            confluent_kafka.KafkaError.INVALID_CONFIG,
        ),
    ],
    ids=lambda value: getattr(value, "topic", None),
)
def test_confluent_kafka_gets_an_error_for_a_topic_that_cannot_be_created(
    admin: Any, topic: Any, code: int
) -> None:
    with pytest.raises(confluent_kafka.KafkaException) as error:
        admin.create_topics([topic])[topic.topic].result(DEADLINE_S)
    assert error.value.args[0].code() == code
    assert _partitions(admin, topic.topic) is None


def test_n12_confluent_kafka_finds_the_cluster(admin: Any, address: str) -> None:
    cluster = admin.describe_cluster().result(DEADLINE_S)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == address
    assert cluster.controller.id == node.id
    metadata = admin.list_topics(timeout=DEADLINE_S)
    assert metadata.cluster_id == cluster.cluster_id
    assert list(metadata.brokers) == [node.id]


@pytest.fixture
def kafka_python(address: str) -> Iterator[Any]:
    """kafka-python's admin client."""
    client = kafka.KafkaAdminClient(bootstrap_servers=address)
    yield client
    client.close()


def test_kafka_python_creates_describes_alters_and_deletes_topics(
    kafka_python: Any, admin: Any
) -> None:
    kafka_python.create_topics({"by-kafka-python": {"num_partitions": 2, "replication_factor": 1}})
    assert _partitions(admin, "by-kafka-python") == 2
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        kafka_python.create_topics({"by-kafka-python": {"num_partitions": 1}})

    resource = kafka.admin.ConfigResource(
        kafka.admin.ConfigResourceType.TOPIC, "by-kafka-python", {"retention.ms": "7200000"}
    )
    kafka_python.alter_configs([resource])
    assert _config(admin, "by-kafka-python", "retention.ms") == "7200000"

    kafka_python.create_partitions({"by-kafka-python": 4})
    (described,) = kafka_python.describe_topics(["by-kafka-python"])
    assert len(described["partitions"]) == 4
    assert kafka_python.describe_cluster()["cluster_id"]
    assert "by-kafka-python" in str(kafka_python.describe_log_dirs())

    kafka_python.delete_topics(["by-kafka-python"])
    assert "by-kafka-python" not in kafka_python.list_topics()


def test_aiokafka_creates_describes_and_deletes_topics(address: str, admin: Any) -> None:
    async def run() -> None:
        client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=address)
        await client.start()
        try:
            new = aiokafka.admin.NewTopic("by-aiokafka", 3, 1)
            response = await client.create_topics([new])
            assert [error for _, error, *_ in response.topic_errors] == [0]
            assert "by-aiokafka" in await client.list_topics()
            (described,) = await client.describe_topics(["by-aiokafka"])
            assert len(described["partitions"]) == 3
            await client.create_partitions({"by-aiokafka": aiokafka.admin.NewPartitions(4)})
            assert _partitions(admin, "by-aiokafka") == 4
            kind = aiokafka.admin.config_resource.ConfigResourceType.TOPIC
            for key in ("retention.ms", "segment.ms"):
                change = aiokafka.admin.config_resource.ConfigResource(
                    kind, "by-aiokafka", configs={key: "7200000"}
                )
                (altered,) = await client.alter_configs([change])
                assert [error for error, *_ in altered.resources] == [0]
            # AlterConfigs replaces all settings: the setting changed before has its default again.
            assert _config(admin, "by-aiokafka", "segment.ms") == "7200000"
            assert _config(admin, "by-aiokafka", "retention.ms") != "7200000"
            await client.delete_topics(["by-aiokafka"])
            assert "by-aiokafka" not in await client.list_topics()
        finally:
            await client.close()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_S))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_topic_is_created_by_producing_to_it(client: Any, address: str, admin: Any) -> None:
    topic = f"made-by-{client.name}"
    client.produce(address, topic, [Record(b"k", b"v")], Settings())
    assert _partitions(admin, topic) == 1
    assert client.consume(address, topic, 1) == [Record(b"k", b"v")]


def test_f_a_parked_fetch_is_answered_when_a_record_is_written(
    address: str, new_topic: Callable[..., str]
) -> None:
    """The fetch could wait for a minute; the written record ends its wait."""
    topic = new_topic()
    got: list[Any] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "fetch.wait.max.ms": 60_000,
            "socket.timeout.ms": 70_000,
            "log_level": 0,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.3) is None
    reader = threading.Thread(target=lambda: got.append(consumer.poll(DEADLINE_S)), daemon=True)
    reader.start()
    CLIENTS[0].produce(address, topic, [Record(None, b"awaited")], Settings())
    wait_until(lambda: bool(got), "the parked fetch is answered")
    assert got[0].value() == b"awaited"
    consumer.close()
