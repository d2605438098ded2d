"""A start on a damaged data directory: it succeeds, or its error names the damage and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import budget
from logs import NOW_MS, append, make_batch
from node_world import NodeWorld
from odradek_broker.coordinator.groups.offsets import CommitCall, CommitPart
from odradek_broker.metadata.cluster import METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek_broker.storage.checkpoints import PARTITION_METADATA, encode_partition_metadata
from odradek_broker.storage.errors import DataDirectoryError
from odradek_broker.storage.startup import StartReport
from odradek_protocol.constants import RESOURCE_TOPIC
from odradek_protocol.records.batch import iter_batches
from odradek_protocol.stored.cluster_metadata import ConfigRecord
from odradek_testkit.simulation.disk import MemoryFiles

METADATA_LOG = f"data/{METADATA_TOPIC}-0/{0:020}.log"
SETTINGS = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
#: A remedy tells the reader what to do.
REMEDY = re.compile(
    r"\b(restore|move|remove|set|name|start|choose|make|delete|take|use|add|stop)\b[^:]*$"
)


def written(**settings: str) -> MemoryFiles:
    """A directory with every kind of metadata record that a user can cause, and a topic that was
    made, deleted and made again."""
    world = NodeWorld(**SETTINGS, **settings)
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        world.node.ensure_internal_topic(name)
    world.create("other", 2)
    for turn in range(3):
        world.create("t")
        record = ConfigRecord(
            resource_type=RESOURCE_TOPIC, resource_name="t", name="retention.ms", value="-1"
        )
        world.node.metadata_log.commit([record])
        world.flush()
        world.produce("t", turn + 1)
        if turn < 2:
            world.delete("t")
            world.flush()
            world.maintain_later()
    world.node.producer_ids.next()
    world.flush()
    world.soon.run()
    partition = world.node.partition("t", 0)
    assert partition is not None
    append(partition.log, make_batch(1, producer_id=1, transactional=True))
    partition.append_marker(1, 0, 0, commit=False, transaction_version=1, now_ms=NOW_MS)
    partition.log.durability.flush()
    world.produce("other", 2, 1)
    world.node.groups.commit_offsets(
        CommitCall(
            "group",
            -1,
            "",
            None,
            9,
            -1,
            [CommitPart("t", 0, 1, -1, "", world.node.metadata.topic_id("t"))],
        )
    )
    world.flush()
    world.maintain_later()
    world.soon.run()
    world.node.close()
    world.logs.close()
    return world.files


class FoundWorld(NodeWorld):
    """A node that starts on a copy of an existing disk."""

    def __init__(self, disk: MemoryFiles, **settings: str) -> None:
        self._disk: MemoryFiles | None = disk.copy()
        super().__init__(**SETTINGS, **settings)

    def start(self) -> StartReport:
        self.files, self._disk = self._disk or self.files, None
        return super().start()


def start(files: MemoryFiles, **settings: str) -> NodeWorld | None:
    """Start a broker on a copy of the directory; None if it refuses with a remedy."""
    try:
        return FoundWorld(files, **settings)
    except DataDirectoryError as refusal:
        assert REMEDY.search(str(refusal)), refusal
        return None


def strays(world: NodeWorld, directory: str = "data") -> list[str]:
    return [name for name in world.files.list(directory) if name.endswith("-stray")]


def batch_ends(content: bytes) -> list[int]:
    """The position of each batch of a log, and the end of the last one."""
    return [position for position, _ in iter_batches(content)] + [len(content)]


@pytest.mark.parametrize("directories", [{}, {"log_dirs": "data,more"}], ids=["one", "two"])
def test_l54_a_start_follows_a_metadata_log_that_was_cut_anywhere(
    directories: dict[str, str],
) -> None:
    files = written(**directories)
    content = files.content(METADATA_LOG)
    ends = batch_ends(content)
    aside = 0
    # A start cuts a log at the end of its last whole batch.
    for cut in sorted({*ends, *(end + 1 for end in ends[:-1])}):
        damaged = files.copy()
        damaged.put(METADATA_LOG, content[:cut])
        for clean in (True, False):
            if not clean:
                damaged.remove("data/.kafka_cleanshutdown")
            world = start(damaged, **directories)
            assert world is not None, cut
            kept = sum(
                len(strays(world, each)) for each in directories.get("log_dirs", "data").split(",")
            )
            aside += kept
            for name, topic in world.node.metadata.topics.items():
                for index in topic.partitions:
                    log = world.logs.get(name, index)
                    assert log is not None
                    assert not log.offline
                    assert log.topic_id == topic.topic_id
            if "t" in world.node.metadata.topics:
                world.produce("t", 1)
                assert world.crash().problems == []
    assert aside > 0


def test_l54_the_directory_of_a_topic_that_the_metadata_lost_is_kept_as_a_stray() -> None:
    """The metadata log ends where the first topic of the name existed; the directory is that of
    the last one."""
    files = written()
    content = files.content(METADATA_LOG)
    kept = {}
    for end in batch_ends(content):
        damaged = files.copy()
        damaged.put(METADATA_LOG, content[:end])
        world = start(damaged)
        assert world is not None
        topic = world.node.metadata.topics.get("t")
        kept[None if topic is None else topic.topic_id] = world
    assert len(kept) == 4
    own_id = files.content(f"data/t-0/{PARTITION_METADATA}")
    for topic_id, world in kept.items():
        if topic_id is not None and encode_partition_metadata(topic_id) == own_id:
            assert strays(world) == []
            assert world.end("t") == 5
        else:
            (stray,) = [name for name in strays(world) if name.startswith("t-0.")]
            assert world.files.content(f"data/{stray}/{PARTITION_METADATA}") == own_id
            assert any(stray in problem for problem in world.report.problems)
        if topic_id is not None and strays(world):
            assert world.end("t") == 0


def test_l54_the_metadata_log_is_never_set_aside() -> None:
    """Without it every partition would be a stray."""
    files = written()
    path = f"data/{METADATA_TOPIC}-0/{PARTITION_METADATA}"
    files.put(path, encode_partition_metadata(bytes(range(16))))
    settings: list[dict[str, str]] = [{}, {"log_dirs": "data,more"}]
    for directories in settings:
        with pytest.raises(DataDirectoryError, match=f"{path}.*restore") as refusal:
            FoundWorld(files, **directories)
        assert "00010203" not in str(refusal.value)
    files.remove(path)
    world = start(files)
    assert world is not None
    assert world.end("t") == 5


@pytest.mark.parametrize("clean", [True, False])
def test_p29_no_producer_id_of_a_log_is_given_out_again(clean: bool) -> None:
    """The metadata log has lost the records of blocks whose ids were used."""
    world = NodeWorld(**SETTINGS)
    world.create("t")
    world.flush()

    def begin_producer(of: NodeWorld) -> int:
        given = of.node.producer_ids.next()
        of.flush()
        producer_id = given.result()
        assert producer_id is not None
        return producer_id

    for _ in range(3):
        producer_id = begin_producer(world)
        partition = world.node.partition("t", 0)
        assert partition is not None
        append(partition.log, make_batch(1, producer_id=producer_id))
        partition.log.durability.flush()
        world.node.close()
        world.logs.close()
        last, _ = producer_id, world.start()
    world.node.close()
    world.logs.close()
    if not clean:
        world.files.remove("data/.kafka_cleanshutdown")
    content = world.files.content(METADATA_LOG)
    kept = 0
    for end in batch_ends(content):
        damaged = world.files.copy()
        damaged.put(METADATA_LOG, content[:end])
        found = start(damaged)
        assert found is not None
        if "t" not in found.node.metadata.topics or found.end("t") < 3:
            continue
        kept += 1
        assert begin_producer(found) > last, end
        # What was given out is durable.
        found.crash()
        assert begin_producer(found) > last + 1, end
    assert kept > 2


@pytest.mark.parametrize("clean", [True, False])
def test_t57_f13_leader_epochs_are_never_older_than_those_in_the_logs(clean: bool) -> None:
    """The metadata log has lost the records of newer epochs. Participants refuse the markers of a
    coordinator with an older epoch, and clients that know a newer epoch find no end of it."""
    world = NodeWorld(**SETTINGS)
    world.node.ensure_internal_topic(TRANSACTIONS_TOPIC)
    world.create("t")
    topics = ("t", TRANSACTIONS_TOPIC)
    for _ in range(3):
        epochs = world.node.metadata.leader_epoch_records("t", {0: 7})
        world.node.metadata_log.commit(epochs)
        world.flush()
        for topic in topics:
            partition = world.node.partition(topic, 0)
            assert partition is not None
            append(partition.log, make_batch(1), leader_epoch=partition.leader_epoch)
            partition.log.durability.flush()
        world.node.close()
        world.logs.close()
        world.start()
    world.node.close()
    world.logs.close()
    if not clean:
        world.files.remove("data/.kafka_cleanshutdown")
    content = world.files.content(METADATA_LOG)
    for end in batch_ends(content):
        damaged = world.files.copy()
        damaged.put(METADATA_LOG, content[:end])
        found = start(damaged)
        assert found is not None
        found.flush()
        for topic in topics:
            partition = found.node.partition(topic, 0)
            if partition is not None:
                partition.log.ensure_loaded()
                newest = partition.log.leader_epochs.latest
                assert partition.leader_epoch >= newest + (topic == TRANSACTIONS_TOPIC), end


def test_p29_the_id_of_a_producer_that_writes_after_the_loss_is_not_given_out_again() -> None:
    """The block was lost before its producer wrote for the first time."""
    world = NodeWorld(**SETTINGS)
    world.create("t")
    world.flush()
    partition = world.node.partition("t", 0)
    assert partition is not None
    append(partition.log, make_batch(1, producer_id=1_234))
    for producer_id in (0, 2**62):
        append(partition.log, make_batch(1, producer_id=producer_id))
    given = world.node.producer_ids.next()
    world.flush()
    assert 1_234 < (given.result() or 0) < 10_000


def test_p29_a_made_up_producer_id_uses_up_no_others() -> None:
    world = NodeWorld(**SETTINGS)
    world.create("t")
    world.flush()
    partition = world.node.partition("t", 0)
    assert partition is not None
    append(partition.log, make_batch(1, producer_id=2**63 - 1))
    partition.log.durability.flush()
    world.crash()
    given = world.node.producer_ids.next()
    world.flush()
    assert given.result() == 0


def damages(content: bytes, step: int) -> Iterator[bytes]:
    """The content cut, with changed bytes, zeroed, empty, and with something behind it."""
    for at in range(0, len(content), step):
        yield content[:at]
        yield content[:at] + bytes([content[at] ^ 0x11]) + content[at + 1 :]
        yield content[:at] + bytes(len(content) - at)
    yield content + b"\x00garbage\xff\n"


@pytest.mark.parametrize("clean", [True, False])
def test_l54_a_start_on_any_damaged_file_succeeds_or_names_a_remedy(clean: bool) -> None:
    files = written(metadata_log_max_record_bytes_between_snapshots="300")
    if not clean:
        files.remove("data/.kafka_cleanshutdown")
    assert [path for path in files.paths() if path.endswith(".checkpoint")]
    started = refused = 0
    for path in files.paths():
        content = bytes(files.content(path))
        step = max(1, len(content) // (4 if budget.is_short() else 20))
        for changed in (None, *damages(content, step)):
            damaged = files.copy()
            if changed is None:
                damaged.remove(path)
            else:
                damaged.put(path, changed)
            if start(damaged) is None:
                refused += 1
            else:
                started += 1
    assert started > refused > 0
