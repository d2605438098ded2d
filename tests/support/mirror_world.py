"""A node with mirror topics, and a log that plays a partition of their source."""

from __future__ import annotations

from typing import Any

from logs import NOW_MS, append, headers, make_batch, make_log, make_marker
from node_world import NodeWorld
from odradek_broker.deferred import Deferred
from odradek_broker.metadata.topics import RequestedTopic, create_topics
from odradek_broker.mirror.appends import MirrorAppend
from odradek_broker.mirror.promotion import Promoted
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import AppendOrigin
from odradek_protocol.compression import Codec
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas.append_mirror_records import (
    MirroredPartition,
    MirroredPartitionResult,
)
from odradek_testkit.simulation.disk import MemoryFiles

SOURCE = "kafka:AAAAAAAAAAAAAAAAAAAAAA"


class SourceLog:
    """A partition of the source. As in a leader, batches get their offsets and leader epochs when
    they are appended."""

    def __init__(self, first_offset: int = 0) -> None:
        self.log: PartitionLog = make_log(MemoryFiles(), directory="source/t-0")
        self.leader_epoch = 0
        if first_offset:
            self.log.trimming.restart_at(first_offset, NOW_MS)

    @property
    def end(self) -> int:
        return self.log.log_end_offset

    def data(self, count: int = 1, codec: Codec = Codec.NONE, **build: object) -> int:
        """Append a batch. Returns its base offset. `build`: further arguments of `make_batch`."""
        batch = make_batch(count, codec=codec, **build)  # type: ignore[arg-type]
        return append(self.log, batch, leader_epoch=self.leader_epoch).base_offset

    def marker(self, commit: bool, producer_id: int, epoch: int = 0) -> int:
        batch = make_marker(commit, producer_id, epoch=epoch)
        coordinator = AppendOrigin.COORDINATOR
        result = append(self.log, batch, origin=coordinator, leader_epoch=self.leader_epoch)
        return result.base_offset

    def skip(self, offsets: int) -> None:
        """Leave a gap before the next batch, as compaction would."""
        batch = make_batch(1, base_offset=self.end + offsets, leader_epoch=self.leader_epoch)
        append(self.log, batch, origin=AppendOrigin.REPLAY)

    def read(self, offset: int = -1) -> bytes:
        """Read whole batches, from the batch with this offset on; by default from the log start
        on."""
        return _read(self.log, self.log.log_start_offset if offset < 0 else offset, self.end)


def _read(log: PartitionLog, offset: int, end: int) -> bytes:
    parts = []
    while data := log.read(offset, 2**30, upper_bound=end, minimum_one=True):
        parts.append(data)
        offset = headers(data)[-1].next_offset
    return b"".join(parts)


class MirrorWorld(NodeWorld):
    """A node. Nothing is durable on its disk before `flush`."""

    def mirror_topic(self, name: str = "t", partitions: int = 1, **configs: str) -> None:
        given = {"mirror.source": SOURCE, **{k.replace("_", "."): v for k, v in configs.items()}}
        wanted = [RequestedTopic(name, partitions, configs=given)]
        records, results = create_topics(self.node.metadata, wanted)
        assert results[0].error is ErrorCode.NONE, results
        self.node.metadata_log.commit(records)
        self.flush()

    def log_of(self, name: str = "t", index: int = 0) -> PartitionLog:
        found = self.node.partition(name, index)
        assert found is not None
        return found.log

    def send(self, records: bytes | None, **more: Any) -> Deferred[list[MirroredPartitionResult]]:
        """Send batches of one partition. `more`: the arguments of `wanted`."""
        return self.node.mirrors.append([self.wanted(records, **more)])

    def wanted(
        self,
        records: bytes | None,
        *,
        end: int | None = None,
        topic: str = "t",
        index: int = 0,
        topic_id: bytes | None = None,
        source: str = SOURCE,
        epoch: int = 0,
        start: int = 0,
        high_watermark: int = -1,
        fetch_offset: int | None = None,
    ) -> MirrorAppend:
        """The part of a request for one partition.

        `end`: the expected end offset, by default the present one. `fetch_offset`: where the
        batches were fetched, by default at `end`, or at the source's log start if that is greater.
        `topic_id`: by default that of the topic.
        """
        if end is None:
            end = self.log_of(topic, index).log_end_offset
        if fetch_offset is None:
            fetch_offset = max(end, start)
        part = MirroredPartition(
            partition_index=index,
            expected_end_offset=end,
            fetch_offset=fetch_offset,
            source_leader_epoch=epoch,
            source_log_start_offset=start,
            source_high_watermark=high_watermark,
            records=records,
        )
        if topic_id is None:
            topic_id = self.node.metadata.topic_id(topic)
        return MirrorAppend(topic, topic_id, source, part)

    def flush_all(self) -> None:
        """Let everything go on, and flush until no log requests a flush any more."""
        for _ in range(20):
            self.soon.run()
            if not self.asked:
                return
            self.flush()
        raise AssertionError("a log asks for flushes without end")

    def append(self, records: bytes | None, **more: object) -> MirroredPartitionResult:
        """Send batches and flush. Returns the result."""
        answer = self.send(records, **more)
        self.flush_all()
        (result,) = answer.result()
        return result

    def follow(self, source: SourceLog, topic: str = "t", index: int = 0) -> None:
        """Append all batches that the source has and the mirror topic does not have yet."""
        end = max(self.log_of(topic, index).log_end_offset, source.log.log_start_offset)
        data = source.read(end) if end < source.end else None
        result = self.append(
            data,
            topic=topic,
            index=index,
            epoch=source.leader_epoch,
            start=source.log.log_start_offset,
            high_watermark=source.end,
        )
        assert result.error_code == ErrorCode.NONE, result
        assert result.log_end_offset == source.end

    def promote(self, name: str = "t") -> Promoted:
        outcome = self.node.promotions.promote(name)
        self.flush_all()
        return outcome.result()

    def stored(self, name: str = "t", index: int = 0, start: int = -1) -> bytes:
        """Read all batches below the high watermark, by default from the log start on."""
        log = self.log_of(name, index)
        return _read(log, log.log_start_offset if start < 0 else start, log.high_watermark)


def same_state(world: MirrorWorld, source: SourceLog) -> None:
    """Assert that the mirror topic has the same batches and aborted transactions as its source."""
    log = world.log_of()
    assert world.stored() == source.read()
    assert log.high_watermark == source.end
    assert log.log_start_offset == source.log.log_start_offset
    assert log.last_stable_offset == source.log.last_stable_offset
    start = log.log_start_offset
    assert log.aborted_transactions(start, source.end) == source.log.aborted_transactions(
        start, source.end
    )


def base_offsets(data: bytes) -> list[int]:
    return [header.base_offset for header in headers(data)]
