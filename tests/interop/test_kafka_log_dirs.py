"""A broker with two data directories, one of which is removed: Apache Kafka and our broker must
respond in the same way (L-41, L-42, L-44)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess
from kafka_cluster import KafkaCluster
from odradek_protocol.errors import ErrorCode as E
from odradek_protocol.schemas.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek_protocol.schemas.describe_log_dirs import DescribeLogDirsRequest
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from raw_client import RawClient, batch_of, produce_request

pytestmark = pytest.mark.kafka

_TRIES_MAX = 200
_PAUSE_S = 0.1
_SETTINGS = {"offsets.topic.num.partitions": "2", "log.segment.bytes": "1048576"}


@pytest.fixture(params=["kafka", "odradek"])
def port(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """The port of a broker that uses the directories a and b below `tmp_path`."""
    settings = {**_SETTINGS, "log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    if request.param == "kafka":
        with KafkaCluster(tmp_path / "cluster", settings=settings) as cluster:
            yield cluster.nodes[0].port
        return
    broker = BrokerProcess(tmp_path, [f"{name}={value}" for name, value in _SETTINGS.items()])
    broker.data_dir = Path(settings["log.dirs"])
    broker.start()
    yield broker.port
    broker.kill()


async def _described(client: RawClient) -> dict[str, tuple[int, bool, dict[str, list[int]]]]:
    """{name of the directory: (error, True if the response has its size, partitions by topic)}."""
    answer = await client.call(DescribeLogDirsRequest(topics=None))
    assert answer.error_code == E.NONE
    return {
        Path(each.log_dir).name: (
            each.error_code,
            min(each.total_bytes, each.usable_bytes) > 0,
            {
                topic.name: sorted(p.partition_index for p in topic.partitions)
                for topic in each.topics
            },
        )
        for each in answer.results
    }


async def _alter(client: RawClient, path: object, name: str, index: int) -> int:
    topic = AlterReplicaLogDirTopic(name=name, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[topic])])
    error: int = (await client.call(request)).results[0].partitions[0].error_code
    return error


async def _produce(client: RawClient, index: int) -> int:
    """Produce a batch that is larger than half a segment. Returns the error code."""
    request = produce_request("t", batch_of(b"x" * 600_000), partition=index)
    error: int = (await client.call(request, 9)).responses[0].partition_responses[0].error_code
    return error


async def _latest(client: RawClient, index: int) -> int:
    asked = ListOffsetsPartition(partition_index=index, timestamp=-1)
    topic = ListOffsetsTopic(name="t", partitions=[asked])
    error: int = (
        (await client.call(ListOffsetsRequest(topics=[topic]), 6))
        .topics[0]
        .partitions[0]
        .error_code
    )
    return error


async def _coordinators(client: RawClient) -> set[int]:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=list("abcdefgh"))
    answer = await client.call(request, 4)
    return {found.error_code for found in answer.coordinators}


async def _until(condition: Any, what: str) -> None:
    for _ in range(_TRIES_MAX):
        if await condition():
            return
        await asyncio.sleep(_PAUSE_S)
    raise TimeoutError(what)


async def test_l41_l42_l44_a_removed_data_directory_is_handled_as_in_kafka(
    port: int, tmp_path: Path
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    client = RawClient(*await asyncio.open_connection("127.0.0.1", port))

    async def led() -> bool:
        return [await _latest(client, index) for index in (0, 1)] == [E.NONE, E.NONE]

    async def coordinated() -> bool:
        return await _coordinators(client) == {E.NONE}

    await client.create_topic("t", 2)
    await _until(led, "t has leaders")
    await _until(coordinated, "groups have coordinators")
    found = await _described(client)
    assert [each[:2] for each in found.values()] == [(E.NONE, True), (E.NONE, True)]
    (kept,), (gone,) = found["a"][2]["t"], found["b"][2]["t"]
    assert {kept, gone} == {0, 1}
    assert sum(len(each[2]["__consumer_offsets"]) for each in found.values()) == 2
    assert await _alter(client, a, "t", kept) == E.NONE
    assert await _alter(client, tmp_path / "nowhere", "t", kept) == E.LOG_DIR_NOT_FOUND
    assert await _alter(client, a, "absent", 0) == E.UNKNOWN_TOPIC_OR_PARTITION

    async def lost() -> bool:
        return (
            await _produce(client, gone) == E.KAFKA_STORAGE_ERROR
            and (await _described(client))["b"][0] == E.KAFKA_STORAGE_ERROR
            and E.COORDINATOR_NOT_AVAILABLE in await _coordinators(client)
        )

    b.rename(tmp_path / "away")
    await _until(lost, "the directory has failed")
    found = await _described(client)
    assert found["b"] == (E.KAFKA_STORAGE_ERROR, False, {})
    assert found["a"][2]["t"] == [kept]
    assert [await _produce(client, index) for index in (kept, gone)] == [
        E.NONE,
        E.KAFKA_STORAGE_ERROR,
    ]
    assert [await _latest(client, index) for index in (kept, gone)] == [
        E.NONE,
        E.KAFKA_STORAGE_ERROR,
    ]
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    partitions = (await client.call(asked, 12)).topics[0].partitions
    told = [
        (each.error_code, each.leader_id, each.isr_nodes, each.offline_replicas)
        for each in sorted(partitions, key=lambda each: each.partition_index == gone)
    ]
    assert told == [(E.NONE, 1, [1], []), (E.LEADER_NOT_AVAILABLE, -1, [], [1])]
    assert await _coordinators(client) == {E.NONE, E.COORDINATOR_NOT_AVAILABLE}
    assert await _alter(client, b, "t", kept) == E.KAFKA_STORAGE_ERROR
    assert await _alter(client, a, "t", gone) == E.KAFKA_STORAGE_ERROR
    await client.create_topic("late", 2)

    async def made() -> bool:
        return (await _described(client))["a"][2].get("late") == [0, 1]

    await _until(made, "a new topic is in the other directory")
    client.close()
