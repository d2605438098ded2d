"""AlterReplicaLogDirs: partitions can only stay in their directory (A-18)."""

from __future__ import annotations

import pytest

from acl_rules import Rule, RuleList
from handler_calls import ask
from node_world import NodeWorld
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek_testkit.simulation.disk import DiskFailure

#: The path of the world's data directory, as DescribeLogDirs reports it.
HERE = "/data"


@pytest.fixture
def world() -> NodeWorld:
    world = NodeWorld()
    world.create("t", 2)
    world.flush()
    return world


def moved(world: NodeWorld, *dirs: tuple[str, str, list[int]]) -> dict[tuple[str, int], ErrorCode]:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=partitions)]
            )
            for path, name, partitions in dirs
        ]
    )
    answer = ask(world.node, request, 2)
    return {
        (topic.topic_name, row.partition_index): ErrorCode(row.error_code)
        for topic in answer.results
        for row in topic.partitions
    }


def test_the_last_directory_named_for_a_partition_counts(world: NodeWorld) -> None:
    assert moved(world, (HERE, "t", [0, 1, 0]), ("/else", "t", [1]), ("/x", "u", [0])) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.LOG_DIR_NOT_FOUND,
        ("u", 0): ErrorCode.LOG_DIR_NOT_FOUND,
    }


def test_a18_alter_replica_log_dirs_needs_alter_on_the_cluster(world: NodeWorld) -> None:
    rules = world.node.authorizer = RuleList()
    refused = {("t", 0): ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    assert moved(world, (HERE, "t", [0])) == refused
    rules.rules.append(Rule(Operation.ALTER, ResourceType.CLUSTER, "*"))
    assert moved(world, (HERE, "t", [0])) == {("t", 0): ErrorCode.NONE}


def test_an_offline_partition_and_an_unusable_directory_are_storage_errors(
    world: NodeWorld,
) -> None:
    partition = world.node.partition("t", 1)
    assert partition is not None
    partition.log.go_offline("the disk is broken")
    assert moved(world, (HERE, "t", [0, 1])) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.KAFKA_STORAGE_ERROR,
    }
    world.files.fail(DiskFailure("volume"))
    assert moved(world, (HERE, "t", [0])) == {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}


def test_a_partition_that_could_not_be_created_is_not_available(world: NodeWorld) -> None:
    world.files.fail(DiskFailure("open", path_part="data/new-0/", for_ever=True))
    world.create("new")
    world.flush()
    assert moved(world, (HERE, "new", [0])) == {("new", 0): ErrorCode.REPLICA_NOT_AVAILABLE}


def test_l44_no_partition_is_moved_to_another_directory() -> None:
    world = NodeWorld(log_dirs="data,more")
    world.create("t", 2)
    world.flush()
    assert moved(world, (HERE, "t", [0, 1]), ("/more", "u", [0])) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.UNSUPPORTED_VERSION,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert moved(world, ("/more", "t", [0, 1])) == {
        ("t", 0): ErrorCode.UNSUPPORTED_VERSION,
        ("t", 1): ErrorCode.NONE,
    }
    world.logs.directories[1].fail("broken")
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert moved(world, ("/more", "t", [0, 1])) == {
        ("t", 0): storage_error,
        ("t", 1): storage_error,
    }
    assert moved(world, (HERE, "t", [0, 1])) == {("t", 0): ErrorCode.NONE, ("t", 1): storage_error}
