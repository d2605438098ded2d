"""Several data directories: their owner, their partitions, and their failures (L-41 to L-43)."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest

from logs import append, make_batch, small_file
from node_world import NodeWorld
from odradek_broker.metadata.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek_broker.partition import Partition
from odradek_broker.platform.machine import RealClock, RealFiles, RealRandomness
from odradek_broker.storage.checkpoints import (
    decode_meta_properties,
    encode_partition_metadata,
)
from odradek_broker.storage.errors import AppendRejected, DataDirectoryError, DataDirectoryInUse
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.manager import LogManager
from odradek_protocol.errors import ErrorCode
from odradek_testkit.simulation.disk import DiskFailure, MemoryFiles

BOTH = "data,more"


@pytest.fixture
def world() -> NodeWorld:
    """A node with two data directories. The first has the even-numbered partitions of t."""
    world = NodeWorld(log_dirs=BOTH)
    world.create("t", 4)
    world.flush()
    for index in range(4):
        world.produce("t", index + 1, index)
    return world


def restart(world: NodeWorld, log_dirs: str = BOTH, *, clean: bool = True, **more: str) -> None:
    """Stop or kill the node, and start it with other settings. Raises the error of the start."""
    if clean:
        world.logs.close()
    world.files.heal()
    world.files.crash(keep_page_cache=True)
    world.settings = {"log.dirs": log_dirs} | {k.replace("_", "."): v for k, v in more.items()}
    world.start()


def properties(files: MemoryFiles, directory: str) -> dict[str, str]:
    return decode_meta_properties(files.content(f"{directory}/meta.properties").decode())


def partitions_in(world: NodeWorld, directory: str) -> list[str]:
    """The names of the partition directories on disk."""
    return [name for name in world.files.list(directory) if name.rpartition("-")[2].isdigit()]


def partition(world: NodeWorld, name: str, index: int) -> Partition:
    found = world.node.partition(name, index)
    assert found is not None
    return found


def offline(world: NodeWorld) -> list[str]:
    return sorted(log.name for log in world.logs if log.offline)


def break_disk(world: NodeWorld, directory: str) -> None:
    """Let every disk operation in the directory fail."""
    for kind in ("append", "sync", "sync_dir", "open", "rename", "read", "remove", "volume"):
        world.files.fail(DiskFailure(kind, path_part=directory, for_ever=True))


def lose(world: NodeWorld, directory: str = "more", index: int = 1) -> None:
    """Break the disk of a directory, let a flush fail there, and let the broker check the
    directory."""
    break_disk(world, directory)
    log = partition(world, "t", index).log
    with suppress(AppendRejected):
        append(log, make_batch(1))
    world.asked[log.durability] = None
    world.flush()
    world.node.maintain()


# ---- owners


def test_l41_each_directory_has_its_own_identity_and_checkpoints(world: NodeWorld) -> None:
    first, second = (properties(world.files, name) for name in ("data", "more"))
    assert first["cluster.id"] == second["cluster.id"] == world.node.cluster_id
    assert first["node.id"] == second["node.id"] == "1"
    assert first["version"] == second["version"] == "1"
    assert first["directory.id"] != second["directory.id"]
    ids = {first["directory.id"], second["directory.id"]}
    assert set(first["odradek.directory.ids"].split(",")) == ids
    assert "odradek.directory.ids" not in second
    assert world.logs.close() == []
    for name, lines in (
        ("data", "0\n3\n__cluster_metadata 0 5\nt 0 1\nt 2 3\n"),
        ("more", "0\n2\nt 1 2\nt 3 4\n"),
    ):
        content = world.files.content(f"{name}/recovery-point-offset-checkpoint")
        assert small_file(content) == lines
        assert world.files.exists(f"{name}/.kafka_cleanshutdown")
        assert world.files.exists(f"{name}/log-start-offset-checkpoint")


def test_l41_each_directory_keeps_its_identity_and_has_its_own_clean_stop(world: NodeWorld) -> None:
    before = [properties(world.files, name) for name in ("data", "more")]
    world.logs.close()
    world.files.remove("more/.kafka_cleanshutdown")
    world.files.crash(keep_page_cache=True)
    world.start()
    assert [properties(world.files, name) for name in ("data", "more")] == before
    assert not world.report.clean
    assert sorted(f"{each.topic}-{each.partition}" for each in world.report.recovered) == [
        "t-1",
        "t-3",
    ]
    assert [world.end("t", index) for index in range(4)] == [1, 2, 3, 4]


def test_g06_t01_a_directory_of_an_early_version_keeps_its_hash() -> None:
    world = NodeWorld()
    assert properties(world.files, "data")["odradek.coordinator.hash"] == "absolute"
    world.node.ensure_internal_topic(OFFSETS_TOPIC)
    world.node.ensure_internal_topic(TRANSACTIONS_TOPIC)
    world.flush()
    _assert_partition_of_hello_world(world, 862545276 % 50)
    restart(world)
    for directory in ("data", "more"):
        assert properties(world.files, directory)["odradek.coordinator.hash"] == "absolute"
    _assert_partition_of_hello_world(world, 862545276 % 50)

    _drop_hash(world, "data")
    restart(world, clean=False)
    _assert_partition_of_hello_world(world, 862545276 % 50)
    for directory in ("data", "more"):
        _drop_hash(world, directory)
    for directories in ("data,more", "data,more,third"):
        restart(world, directories, clean=False)
        assert "odradek.coordinator.hash" not in properties(world.files, "data")
        _assert_partition_of_hello_world(world, (-862545276 & 0x7FFFFFFF) % 50)


def _drop_hash(world: NodeWorld, directory: str) -> None:
    """Make the meta.properties of a directory like that of an early version."""
    world.logs.close()
    path = f"{directory}/meta.properties"
    text = world.files.content(path).decode()
    world.files.put(path, text.replace("odradek.coordinator.hash=absolute\n", "").encode())


def _assert_partition_of_hello_world(world: NodeWorld, expected: int) -> None:
    """The name "Hello World" has a negative hash."""
    node = world.node
    assert node.groups.shards.partition_of("Hello World") == expected
    assert node.transactions.shards.partition_of("Hello World") == expected


def test_l41_a_second_directory_may_be_added_to_one_of_an_older_version() -> None:
    world = NodeWorld()
    world.create("t", 2)
    world.flush()
    world.produce("t", 2)
    old = f"version=1\ncluster.id={world.node.cluster_id}\nnode.id=1\n"
    world.logs.close()
    world.files.put("data/meta.properties", old.encode())
    restart(world, "data", clean=False)
    assert world.report.clean and world.end("t") == 2
    assert len(properties(world.files, "data")["directory.id"]) == 22
    assert "odradek.directory.ids" not in properties(world.files, "data")
    restart(world)
    assert world.report.clean and world.end("t") == 2
    world.create("u", 3)
    assert partitions_in(world, "more") == ["u-0", "u-1"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("cluster.id=another", "belongs to cluster another"),
        ("node.id=8", "belongs to node 8"),
        ("directory.id=short", "is no id"),
    ],
)
def test_l41_a_directory_of_another_cluster_or_node_is_refused(
    world: NodeWorld, line: str, says: str
) -> None:
    world.logs.close()
    found = properties(world.files, "more") | dict([line.split("=")])
    text = "".join(f"{name}={value}\n" for name, value in found.items())
    world.files.put("more/meta.properties", text.encode())
    with pytest.raises(DataDirectoryError, match=f"more.*{says}"):
        restart(world, clean=False)
    # a refusal releases all locks
    world.files.lock("data/.lock")


def test_l41_a_copy_of_a_directory_is_refused(world: NodeWorld) -> None:
    world.logs.close()
    world.files.put("more/meta.properties", world.files.content("data/meta.properties"))
    with pytest.raises(DataDirectoryError, match=r"data and more have the same directory\.id"):
        restart(world, clean=False)


def test_l41_one_directory_under_two_names_is_refused() -> None:
    with pytest.raises(DataDirectoryError, match=r"data and \./data are the same directory"):
        NodeWorld(log_dirs="data,./data")


def test_l41_a_directory_in_use_by_another_broker_stops_the_start(world: NodeWorld) -> None:
    world.logs.close()
    world.files.lock("more/.lock")
    with pytest.raises(DataDirectoryInUse, match="more"):
        world.start()


def test_l41_a_partition_in_two_directories_is_refused(world: NodeWorld) -> None:
    world.logs.close()
    for path in world.files.paths():
        if path.startswith("data/t-0/"):
            world.files.put("more" + path[4:], world.files.content(path))
    with pytest.raises(
        DataDirectoryError, match="t-0 is in two data directories, data/t-0 and more/t-0"
    ):
        restart(world, clean=False)


def test_l41_a_start_fails_if_the_metadata_log_is_in_another_directory(world: NodeWorld) -> None:
    with pytest.raises(
        DataDirectoryError, match=r"data/__cluster_metadata-0 is a metadata log.*more"
    ):
        restart(world, "more,data")
    with pytest.raises(
        DataDirectoryError, match=r"data belongs to cluster .* new: set metadata.log.dir"
    ):
        restart(world, "new,data", clean=False)
    restart(world, "more,data", clean=False, metadata_log_dir="data")
    assert [world.end("t", index) for index in range(4)] == [1, 2, 3, 4]


def test_l41_the_metadata_log_may_have_its_own_directory() -> None:
    world = NodeWorld(log_dirs=BOTH, metadata_log_dir="meta")
    world.create("t", 2)
    world.flush()
    assert partitions_in(world, "meta") == ["__cluster_metadata-0"]
    assert (partitions_in(world, "data"), partitions_in(world, "more")) == (["t-0"], ["t-1"])


# ---- new partitions


def test_l41_new_partitions_go_to_the_directory_with_the_fewest(world: NodeWorld) -> None:
    assert partitions_in(world, "data") == ["__cluster_metadata-0", "t-0", "t-2"]
    assert partitions_in(world, "more") == ["t-1", "t-3"]
    world.create("u", 1)
    world.flush()
    assert "u-0" in partitions_in(world, "data")
    world.delete("t")
    world.flush()
    world.create("v", 3)
    assert partitions_in(world, "data") == ["__cluster_metadata-0", "u-0", "v-1"]
    assert partitions_in(world, "more") == ["v-0", "v-2"]


def test_l41_a_full_directory_gets_no_partition_while_another_has_room(world: NodeWorld) -> None:
    world.files.fail(DiskFailure("append", code=errno.ENOSPC, path_part="more", for_ever=True))
    with pytest.raises(AppendRejected):
        append(partition(world, "t", 1).log, make_batch(1))
    world.create("u", 3)
    assert [name for name in partitions_in(world, "data") if name[0] == "u"] == [
        "u-0",
        "u-1",
        "u-2",
    ]
    world.node.maintain()
    assert not world.logs.directories[1].failure
    world.files.heal()
    world.node.maintain()
    world.create("v", 1)
    assert "v-0" in partitions_in(world, "more")


def test_l41_a_failed_creation_leaves_no_files_in_its_directory(
    world: NodeWorld,
) -> None:
    world.files.fail(DiskFailure("open", code=errno.ENOSPC, path_part="data/u-0", for_ever=True))
    world.create("u", 1)
    world.flush()
    assert world.node.partition("u", 0) is None
    world.maintain_later()
    assert "u-0" not in partitions_in(world, "data") and "u-0" in partitions_in(world, "more")
    world.flush()
    restart(world)
    assert offline(world) == []


# ---- a failed directory


def test_l42_a_broken_disk_takes_only_its_directory_offline(world: NodeWorld) -> None:
    lost: list[str] = []
    world.logs.directories[1].disk.on_lost = lost.append
    lose(world)
    assert len(lost) == 1
    assert offline(world) == ["t-1", "t-3"]
    assert "more has failed" in partition(world, "t", 3).log.offline_reason
    world.produce("t", 2, 0)
    assert (world.end("t", 0), world.fatal) == (3, [])
    world.create("u", 2)
    world.flush()
    world.produce("u", 1, 1)
    assert {"u-0", "u-1"} <= set(partitions_in(world, "data"))
    assert world.maintain_later() == []
    problems = world.logs.close()
    assert problems == [f"more has failed: {lost[0]}"]
    assert world.files.exists("data/.kafka_cleanshutdown")
    assert not world.files.exists("more/.kafka_cleanshutdown")
    restart(world, clean=False)
    assert (offline(world), world.end("t", 3), world.end("u", 1)) == ([], 4, 1)


def test_l42_waiters_in_a_failed_directory_get_a_storage_error(world: NodeWorld) -> None:
    waiting = partition(world, "t", 3)
    append(waiting.log, make_batch(1))
    told: list[ErrorCode] = []
    waiting.when_durable(waiting.log.log_end_offset - 1, told.append)
    lose(world)
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_l42_one_error_of_a_working_disk_takes_only_its_partition_offline(world: NodeWorld) -> None:
    """The failed fsync takes its partition offline (L-40). The check of the directory finds no
    failure."""
    log = partition(world, "t", 1).log
    world.files.fail(DiskFailure("sync", path_part="more/t-1"))
    append(log, make_batch(1))
    world.asked[log.durability] = None
    world.flush()
    world.node.maintain()
    assert offline(world) == ["t-1"]
    assert not world.logs.directories[1].failure


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EMFILE])
def test_l42_a_disk_that_can_be_read_has_not_failed(world: NodeWorld, code: int) -> None:
    world.logs.directories[1].disk.doubted = True
    world.files.fail(DiskFailure("open", code=code, path_part="more", for_ever=True))
    for _ in range(2):
        world.node.maintain()
    assert (offline(world), world.logs.directories[1].failure) == ([], "")


def test_l42_an_empty_directory_in_place_of_a_mount_counts_as_failed(world: NodeWorld) -> None:
    """The disk was unmounted: the directory is now an empty one on another disk, and writable."""
    world.files.rename("more", "away")
    world.files.make_dirs("more")
    world.logs.directories[1].disk.doubt(OSError(errno.EIO, "checkpoint"))
    world.node.maintain()
    assert offline(world) == ["t-1", "t-3"]


def test_l42_the_directory_of_the_metadata_log_never_fails_as_a_whole(world: NodeWorld) -> None:
    """Partitions of this directory follow L-08 and L-40; the broker stops when the metadata log is
    lost."""
    lose(world, "data", index=0)
    assert (offline(world), world.logs.directories[0].failure, world.fatal) == ([], "", [])
    world.files.heal()
    world.files.fail(DiskFailure("sync", path_part="data/__cluster_metadata"))
    world.create("u")
    world.flush()
    assert world.fatal == ["the metadata log cannot be written: KAFKA_STORAGE_ERROR"]


def test_l42_the_broker_stops_when_all_partition_directories_have_failed() -> None:
    world = NodeWorld(log_dirs=BOTH, metadata_log_dir="meta")
    world.create("t", 2)
    world.flush()
    lose(world, "data", 0)
    assert world.fatal == []
    lose(world, "more", 1)
    assert world.fatal == ["all data directories have failed, the last one was more"]


def test_l42_a_topic_in_a_failed_directory_can_be_deleted_and_recreated(world: NodeWorld) -> None:
    lose(world)
    world.delete("t")
    world.flush()
    assert not world.logs.removals_pending
    world.create("t", 4)
    world.flush()
    for index in range(4):
        world.produce("t", 7, index)
    assert set(partitions_in(world, "data")) >= {f"t-{index}" for index in range(4)}
    restart(world)
    assert [world.end("t", index) for index in range(4)] == [7] * 4
    assert partitions_in(world, "more") == [] and world.report.problems == []
    world.maintain_later()
    assert not any(name.startswith("t-") for name in world.files.list("more"))


def test_l41_a_second_copy_with_another_topic_id_is_set_aside(world: NodeWorld) -> None:
    """The copy is of a removed topic, and the record of the removal is not in the log any more."""
    world.logs.close()
    for path in world.files.paths():
        if path.startswith("data/t-0/"):
            world.files.put("more" + path[4:], world.files.content(path))
    stranger = encode_partition_metadata(bytes(range(16)))
    world.files.put("more/t-0/partition.metadata", stranger)
    restart(world, clean=False)
    assert [world.end("t", index) for index in range(4)] == [1, 2, 3, 4]
    (kept,) = [name for name in world.files.list("more") if name.endswith("-stray")]
    assert kept.startswith("t-0.")
    assert any(
        "t-0 is of a topic of the same name that the metadata does not have" in each
        for each in world.report.problems
    )


def test_l41_a_partition_with_another_topic_id_is_set_aside(world: NodeWorld) -> None:
    """The partition is of a later topic with the same name. The creation of that topic was not
    durable when the power failed."""
    world.logs.close()
    stranger = encode_partition_metadata(bytes(range(16)))
    world.files.put("more/t-1/partition.metadata", stranger)
    restart(world, clean=False)
    assert (world.end("t", 1), world.end("t", 3)) == (0, 4)
    assert len([name for name in world.files.list("more") if name.endswith("-stray")]) == 1


@pytest.mark.parametrize("topic_id", ["its own", "none"])
def test_l41_an_unfinished_creation_in_another_directory_is_removed(
    world: NodeWorld, topic_id: str
) -> None:
    world.logs.close()
    known = world.files.content("data/t-0/partition.metadata")
    world.files.put("more/t-0/partition.metadata", known if topic_id == "its own" else b"")
    world.files.put("more/t-0/00000000000000000000.log", b"")
    if topic_id == "none":
        world.files.put("data/t-0/partition.metadata", b"")
    restart(world, clean=False)
    assert (offline(world), world.end("t", 0)) == ([], 1)
    assert "t-0" not in partitions_in(world, "more")


# ---- a missing directory


def test_l43_partitions_of_a_directory_that_fails_at_the_start_are_offline(
    world: NodeWorld,
) -> None:
    world.logs.close()
    world.files.crash(keep_page_cache=True)
    world.files.fail(DiskFailure("read", path_part="more/meta.properties", for_ever=True))
    world.start()
    assert offline(world) == ["t-1", "t-3"]
    assert world.logs.directories[1].failure
    assert any("more" in each for each in world.report.problems)
    assert partition(world, "t", 1).log.topic_id == partition(world, "t", 0).log.topic_id
    world.produce("t", 1, 2)
    world.create("u", 2)
    world.flush()
    assert {"u-0", "u-1"} <= set(partitions_in(world, "data"))
    assert partitions_in(world, "more") == ["t-1", "t-3"]
    restart(world)
    assert (offline(world), [world.end("t", index) for index in range(4)]) == ([], [1, 2, 4, 4])


def test_l43_the_directory_of_the_metadata_log_must_work_at_the_start(world: NodeWorld) -> None:
    world.logs.close()
    world.files.crash(keep_page_cache=True)
    world.files.fail(DiskFailure("read", path_part="data/meta.properties", for_ever=True))
    with pytest.raises(DataDirectoryError, match=r"data/meta\.properties cannot be read"):
        world.start()


def test_l43_a_start_fails_without_a_usable_directory_for_partitions() -> None:
    world = NodeWorld(log_dirs="data", metadata_log_dir="meta")
    world.logs.close()
    world.files.crash(keep_page_cache=True)
    world.files.fail(DiskFailure("read", path_part="data/meta.properties", for_ever=True))
    with pytest.raises(DataDirectoryError, match=r"none of log\.dirs can be used"):
        world.start()


@pytest.mark.parametrize("clean", [True, False])
def test_l43_partitions_of_an_absent_directory_are_offline(world: NodeWorld, clean: bool) -> None:
    """An empty new partition would reuse offsets, and hide the loss."""
    restart(world, "data", clean=clean)
    assert offline(world) == ["t-1", "t-3"]
    gone = properties(world.files, "more")["directory.id"]
    assert any(
        gone in each and "2 partitions are offline" in each for each in world.report.problems
    )
    restart(world, "data,fresh")
    assert offline(world) == ["t-1", "t-3"] and partitions_in(world, "fresh") == []
    restart(world, "data,more,fresh")
    assert (offline(world), [world.end("t", index) for index in range(4)]) == ([], [1, 2, 3, 4])


def test_l43_an_absent_directory_is_forgotten_when_its_topics_are_deleted(world: NodeWorld) -> None:
    restart(world, "data")
    world.delete("t")
    world.flush()
    restart(world, "data")
    assert offline(world) == []
    assert "odradek.directory.ids" not in properties(world.files, "data")
    restart(world, "data")
    assert not any("directory.id" in each for each in world.report.problems)


def test_l43_the_operator_may_declare_a_directory_lost(world: NodeWorld) -> None:
    world.logs.close()
    lines = world.files.content("data/meta.properties").decode().splitlines()
    kept = [line for line in lines if not line.startswith("odradek.directory.ids")]
    world.files.put("data/meta.properties", "\n".join(kept).encode())
    restart(world, "data", clean=False)
    assert (offline(world), world.end("t", 1), world.end("t", 2)) == ([], 0, 3)


def test_l43_a_directory_may_move(world: NodeWorld) -> None:
    world.logs.close()
    world.files.rename("more", "moved")
    restart(world, "data,moved", clean=False)
    assert (offline(world), world.report.clean) == ([], True)


def test_l43_a_real_file_in_place_of_a_directory_counts_as_failed(tmp_path: Path) -> None:
    paths = [f"{tmp_path}/{name}" for name in ("a", "b")]

    def manager() -> LogManager:
        made = LogManager(paths, RealFiles(), RealClock(), RealRandomness(), LogConfig())
        made.open_all(lambda _: LogConfig())
        return made

    manager().close()
    files = RealFiles()
    files.remove_tree(paths[1])
    files.open(paths[1], create=True).close()
    found = manager()
    assert [bool(directory.failure) for directory in found.directories] == [False, True]
    assert found.directories[1].absolute_path == paths[1]
    found.close()


def test_l41_a_partition_may_be_moved_while_the_broker_is_stopped(world: NodeWorld) -> None:
    world.logs.close()
    world.files.rename("data/t-2", "more/t-2")
    restart(world, clean=False)
    assert (offline(world), [world.end("t", index) for index in range(4)]) == ([], [1, 2, 3, 4])
    assert partition(world, "t", 2).log.directory == "more/t-2"
