"""The answers about partitions and coordinators whose data directory has failed (L-42)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_in_loop import RunningBroker, StartBroker
from odradek_protocol.errors import ErrorCode as E
from odradek_protocol.schemas.find_coordinator import FindCoordinatorRequest
from odradek_protocol.schemas.heartbeat import HeartbeatRequest
from odradek_protocol.schemas.list_groups import ListGroupsRequest
from odradek_protocol.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from raw_client import RawClient, batch_of, produce_request
from waiting import until

BELOW = {"offsets_topic_num_partitions": "2", "transaction_state_log_num_partitions": "2"}


@pytest.fixture
async def broker(start_broker: StartBroker, tmp_path: Path) -> RunningBroker:
    """A broker with two data directories. The second directory, which the tests let fail, has the
    odd-numbered partitions of t."""
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    broker = await start_broker(log_dirs=dirs, **BELOW)
    client = await broker.client()
    await client.create_topic("t", 2)
    for key_type in (0, 1):
        await _find(client, key_type)
    return broker


async def _find(client: RawClient, key_type: int) -> dict[str, int]:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list("abcdefgh"))
    answer = await client.call(request, 4)
    return {found.key: found.error_code for found in answer.coordinators}


async def _fail(broker: RunningBroker, tmp_path: Path) -> None:
    """Let the second directory fail."""
    (tmp_path / "b").rename(tmp_path / "away")
    directory = broker.node.logs.directories[1]
    directory.disk.doubt(OSError(5, "Input/output error"))
    broker.node.maintain()
    await until(lambda: directory.failure)


def _keys(broker: RunningBroker, shards: Any, *, failed: bool) -> set[str]:
    """The keys whose coordinator is in the failed directory (`failed=True`) or in the other
    directory (`failed=False`)."""
    directory = broker.node.logs.directories[1 if failed else 0]
    lost = {index for topic, index in directory.logs if topic == shards._topic}
    assert lost, "both directories have some"
    return {key for key in "abcdefgh" if shards.partition_of(key) in lost}


async def test_l42_partitions_of_a_failed_directory_have_a_storage_error(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """Kafka 4.3.0 gave the same answers after its second directory was removed."""
    await _fail(broker, tmp_path)
    client = await broker.client()
    for index, expected in ((0, E.NONE), (1, E.KAFKA_STORAGE_ERROR)):
        request = produce_request("t", batch_of(b"a"), partition=index)
        answer = await client.call(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == expected
        asked = ListOffsetsPartition(partition_index=index, timestamp=-1)
        topic = ListOffsetsTopic(name="t", partitions=[asked])
        answer = await client.call(ListOffsetsRequest(topics=[topic]), 6)
        assert answer.topics[0].partitions[0].error_code == expected
    asked_topic = MetadataRequestTopic(name="t")
    found = (await client.call(MetadataRequest(topics=[asked_topic]), 12)).topics[0].partitions
    assert [
        (each.error_code, each.leader_id, each.isr_nodes, each.offline_replicas) for each in found
    ] == [
        (E.NONE, 1, [1], []),
        (E.LEADER_NOT_AVAILABLE, -1, [], [1]),
    ]
    await client.create_topic("late", 2)
    assert {("late", 0), ("late", 1)} <= broker.node.logs.directories[0].logs.keys()


@pytest.mark.parametrize(("key_type", "name"), [(0, "groups"), (1, "transactions")])
async def test_l42_coordinators_in_a_failed_directory_are_not_available(
    broker: RunningBroker, tmp_path: Path, key_type: int, name: str
) -> None:
    shards = getattr(broker.node, name).shards
    lost = _keys(broker, shards, failed=True)
    kept = _keys(broker, shards, failed=False)
    await _fail(broker, tmp_path)
    client = await broker.client()
    assert await _find(client, key_type) == dict.fromkeys(lost, E.COORDINATOR_NOT_AVAILABLE) | (
        dict.fromkeys(kept, E.NONE)
    )
    assert all(shards.find(key)[1] is E.NOT_COORDINATOR for key in lost)
    assert all(shards.find(key)[1] is E.NONE for key in kept)


@pytest.mark.parametrize("when", ["while it runs", "at the start"])
async def test_l42_groups_in_the_other_directories_are_still_served(
    broker: RunningBroker, start_broker: StartBroker, tmp_path: Path, when: str
) -> None:
    shards = broker.node.groups.shards
    lost, kept = (_keys(broker, shards, failed=failed) for failed in (True, False))
    if when == "at the start":
        await broker.stop()
        (tmp_path / "b").rename(tmp_path / "away")
        (tmp_path / "b").write_text("no directory")
        broker = await start_broker(log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}", **BELOW)
    else:
        await _fail(broker, tmp_path)
    client = await broker.client()
    for key in sorted(lost | kept):
        request = HeartbeatRequest(group_id=key, generation_id=1, member_id="m")
        expected = E.NOT_COORDINATOR if key in lost else E.UNKNOWN_MEMBER_ID
        assert (await client.call(request, 4)).error_code == expected
    listed = await client.call(ListGroupsRequest(), 4)
    assert (listed.error_code, listed.groups) == (E.NONE, [])
