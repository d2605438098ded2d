"""A disk that fills up at any operation of a broker, and is full for a while: no partition goes
offline, the broker does not end, and everything works when there is room again (L-08)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import budget
import node_world
from filling_files import FillingFiles
from logs import NOW_MS, append, make_batch
from node_world import NodeWorld
from odradek_broker.metadata.cluster import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek_broker.partition import Partition
from odradek_broker.storage.errors import StorageError
from odradek_protocol.constants import RESOURCE_TOPIC
from odradek_protocol.stored.cluster_metadata import ConfigRecord

SETTINGS = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "log_segment_bytes": "2000",
    "log_retention_bytes": "4000",
    "metadata_log_max_record_bytes_between_snapshots": "1500",
}


class FullWorld(NodeWorld):
    """A node on a disk that fills up."""

    files: FillingFiles

    def led(self, topic: str, index: int = 0) -> Partition | None:
        return self.node.partition(topic, index)

    def configure(self, value: str) -> None:
        record = ConfigRecord(
            resource_type=RESOURCE_TOPIC, resource_name="t", name="retention.ms", value=value
        )
        self.node.metadata_log.commit([record])

    def append_some(self, producer_id: int) -> None:
        """Append a plain batch, and a batch of a transaction that ends later."""
        partition = self.led("t")
        if partition is not None:
            append(partition.log, make_batch(2, value=bytes(300)))
            partition.append(make_batch(1, producer_id=producer_id, transactional=True), NOW_MS)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        partition = self.led("t")
        if partition is not None:
            partition.append_marker(
                producer_id, 0, 0, commit=commit, transaction_version=1, now_ms=NOW_MS
            )

    def record_internally(self, topic: str) -> None:
        partition = self.led(topic)
        if partition is not None:
            partition.append_internal([(b"k", b"v" * 100)], NOW_MS)

    def settle(self) -> None:
        """Let flushes, timers and maintenance do the work that is due."""
        self.flush()
        self.soon.run()
        self.maintain_later()
        self.flush()
        self.soon.run()


def steps(world: FullWorld) -> Iterator[Callable[[], object]]:
    yield lambda: world.create("t", 2)
    yield world.settle
    yield lambda: world.node.ensure_internal_topic(OFFSETS_TOPIC)
    yield lambda: world.node.ensure_internal_topic(TRANSACTIONS_TOPIC)
    yield world.settle
    for turn in range(6):
        yield lambda turn=turn: world.append_some(turn)  # type: ignore[misc]
        yield lambda turn=turn: world.configure(str(turn + 1))  # type: ignore[misc]
        yield lambda: world.record_internally(OFFSETS_TOPIC)
        yield lambda: world.record_internally(TRANSACTIONS_TOPIC)
        yield lambda: world.node.producer_ids.next()
        yield lambda turn=turn: world.end_transaction(turn, commit=turn % 2 == 0)  # type: ignore[misc]
        yield lambda turn=turn: world.create(f"t{turn}")  # type: ignore[misc]
        yield world.settle
    yield lambda: world.node.metadata.topics.get("t1") and world.delete("t1")
    yield world.settle
    for directory in world.logs.directories:
        yield lambda directory=directory: (directory.recovery_points_writer() or world.settle)()  # type: ignore[misc]
        yield directory.use_recovery_points
    yield world.settle


def work(world: FullWorld) -> None:
    for step in steps(world):
        try:
            step()
        except (StorageError, OSError):
            continue


@pytest.fixture(autouse=True)
def filling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_world, "MemoryFiles", FillingFiles)


@pytest.mark.parametrize("lasts", budget.of_which([1, 3, 40], [3]))
def test_l08_a_broker_survives_a_disk_that_fills_up_at_any_operation(lasts: int) -> None:
    probe = FullWorld(**SETTINGS)
    created = probe.files.operations
    work(probe)
    total = probe.files.operations
    assert total - created > 150
    for begins in range(created, total, 1 + budget.is_short() * 4):
        world = FullWorld(**SETTINGS)
        world.files.full = range(begins, begins + lasts)
        work(world)
        world.files.full = range(0)
        world.settle()
        world.settle()
        assert world.fatal == [], begins
        assert [log.name for log in world.logs if log.offline] == [], begins
        if world.led("t") is None:
            world.create("t", 2)
        world.settle()
        end = world.end("t")
        world.produce("t", 2)
        assert world.end("t") == end + 2, begins
        names = set(world.node.metadata.topics)
        for keep_page_cache in (True, False):
            world.crash(keep_page_cache=keep_page_cache)
            assert set(world.node.metadata.topics) == names, begins
            assert world.end("t") == end + 2, begins
