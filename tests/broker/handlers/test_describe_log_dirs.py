"""DescribeLogDirs: the data directory and the size of each partition (A-18)."""

from __future__ import annotations

from typing import Any

import pytest

from acl_rules import Rule, RuleList
from handler_calls import ask
from logs import append, make_batch
from node_world import NodeWorld
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.schemas.describe_log_dirs import DescribeLogDirsRequest
from odradek_testkit.simulation.disk import VOLUME_BYTES, DiskFailure


def asked(**partitions: list[int]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=[PartitionsOfTopic(topic=name, partitions=p) for name, p in partitions.items()]
    )


EVERYTHING = DescribeLogDirsRequest(topics=None)


def call(world: NodeWorld, request: DescribeLogDirsRequest, version: int = 5) -> Any:
    return ask(world.node, request, version)


def told(answer: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """{(topic, partition): (bytes, lag)} of the only directory."""
    (found,) = answer.results
    return {
        (topic.name, row.partition_index): (row.partition_size, row.offset_lag)
        for topic in found.topics
        for row in topic.partitions
    }


@pytest.fixture
def world() -> NodeWorld:
    world = NodeWorld()
    for name, partitions in (("a", 2), ("b", 1)):
        world.create(name, partitions)
    world.flush()
    world.produce("a", 3, partition=1)
    return world


@pytest.mark.parametrize("version", list(APIS[ApiKey.DESCRIBE_LOG_DIRS].versions))
def test_every_version_answers_the_size_of_every_partition(world: NodeWorld, version: int) -> None:
    answer = call(world, EVERYTHING, version)
    partition = world.node.partition("a", 1)
    assert partition is not None and partition.log.size_bytes > 0
    size_bytes = partition.log.size_bytes
    assert told(answer) == {("a", 0): (0, 0), ("a", 1): (size_bytes, 0), ("b", 0): (0, 0)}
    (found,) = answer.results
    assert (answer.error_code, found.error_code, found.log_dir) == (0, 0, "/data")
    assert not any(row.is_future_key for topic in found.topics for row in topic.partitions)
    if version >= 4:
        assert found.total_bytes == VOLUME_BYTES
        assert 0 < found.usable_bytes < VOLUME_BYTES - size_bytes
    else:
        assert (found.total_bytes, found.usable_bytes) == (-1, -1)
    assert not found.is_cordoned


def test_records_that_are_not_durable_yet_are_the_lag(world: NodeWorld) -> None:
    partition = world.node.partition("b", 0)
    assert partition is not None
    append(partition.log, make_batch(4))
    (size_bytes, lag), *_ = told(call(world, asked(b=[0]))).values()
    assert lag == 4 and size_bytes > 0


def test_requested_partitions_are_answered_once(world: NodeWorld) -> None:
    request = asked(b=[0, 0, 7], nope=[0], a=[])
    request.topics = [*(request.topics or []), *(asked(b=[0]).topics or [])]
    assert list(told(call(world, request))) == [("b", 0)]
    assert [topic.name for topic in call(world, request).results[0].topics] == ["b"]
    assert told(call(world, asked())) == {}


def test_a_name_repeated_5000_times_is_answered_once(world: NodeWorld) -> None:
    request = DescribeLogDirsRequest(topics=[PartitionsOfTopic(topic="a", partitions=[0])] * 5000)
    assert list(told(call(world, request))) == [("a", 0)]


def test_the_metadata_log_and_deleted_topics_are_left_out(world: NodeWorld) -> None:
    assert told(call(world, asked(__cluster_metadata=[0]))) == {}
    world.delete("a")
    world.flush()
    assert list(told(call(world, EVERYTHING))) == [("b", 0)]


def test_a_partition_that_is_offline_is_left_out(world: NodeWorld) -> None:
    partition = world.node.partition("a", 1)
    assert partition is not None
    partition.log.go_offline("the disk is broken")
    assert list(told(call(world, EVERYTHING))) == [("a", 0), ("b", 0)]


def test_an_unreadable_directory_is_a_storage_error(world: NodeWorld) -> None:
    world.files.fail(DiskFailure("volume"))
    (found,) = call(world, EVERYTHING).results
    assert (found.error_code, found.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert (found.total_bytes, found.usable_bytes) == (-1, -1)


def test_a18_describe_log_dirs_needs_describe_on_the_cluster(world: NodeWorld) -> None:
    rules = world.node.authorizer = RuleList()
    denied = call(world, EVERYTHING)
    assert (denied.error_code, denied.results) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
    rules.rules.append(Rule(Operation.DESCRIBE, ResourceType.CLUSTER, "*"))
    assert len(told(call(world, EVERYTHING))) == 3


def test_l42_every_directory_has_an_entry_and_a_failed_one_its_error() -> None:
    """The answer of Kafka 4.3.0 with two directories, the second of which was removed."""
    world = NodeWorld(log_dirs="data,more")
    world.create("t", 3)
    world.flush()
    world.produce("t", 2, partition=1)
    answer = call(world, EVERYTHING)
    assert [
        (
            each.error_code,
            each.log_dir,
            [(t.name, [p.partition_index for p in t.partitions]) for t in each.topics],
        )
        for each in answer.results
    ] == [(0, "/data", [("t", [0, 2])]), (0, "/more", [("t", [1])])]
    assert all(each.total_bytes == VOLUME_BYTES for each in answer.results)
    world.logs.directories[1].fail("broken")
    sound, failed = call(world, EVERYTHING).results
    assert (sound.error_code, len(sound.topics)) == (0, 1)
    assert (failed.error_code, failed.log_dir, failed.topics) == (
        ErrorCode.KAFKA_STORAGE_ERROR,
        "/more",
        [],
    )
    assert (failed.total_bytes, failed.usable_bytes) == (-1, -1)


def test_l42_a_directory_with_only_the_metadata_log_is_not_described() -> None:
    world = NodeWorld(log_dirs="data", metadata_log_dir="meta")
    assert [each.log_dir for each in call(world, EVERYTHING).results] == ["/data"]
