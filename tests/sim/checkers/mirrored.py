"""Mirror topics have exactly the batches, transactions and offsets of their source until they are
promoted."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from odradek_broker.partition import Partition
from odradek_protocol.records.batch import BatchHeader, iter_batches, stamp
from odradek_protocol.records.builder import BatchBuilder, control_batch
from odradek_protocol.records.record import read_records
from odradek_protocol.stored.control_marker import ControlType

_TIME_MS = 1_700_000_000_000
_PRODUCERS = (5, 1_000, 7_777)
_BATCHES_MAX = 200


class SourcePartition:
    """A partition of another cluster: batches with gaps, transactions, leader epochs and a log
    start.

    The model uses nothing of the broker's storage.
    """

    def __init__(self, start: int = 0) -> None:
        self.start = self.end = start
        self.leader_epoch = 0
        #: The acknowledged end offset of the mirror when a promotion began.
        self.copied_max = 0
        self._gap = 0
        self._batches: list[tuple[BatchHeader, bytes]] = []
        self._open: dict[int, int] = {}
        self._sequences: dict[int, int] = {}
        self._values: dict[int, bytes | None] = {}
        #: Offset -> True if the record was committed, False if its transaction was aborted. Records
        #: of open transactions are missing.
        self._committed: dict[int, bool] = {}
        self._of_open: dict[int, list[int]] = {}

    # --- Changes ---

    def change(self, random: Random) -> None:
        """Make one random change of a kind that happens in a source."""
        if len(self._batches) >= _BATCHES_MAX:
            return
        kind = random.random()
        if kind < 0.05:
            self.leader_epoch += random.randint(1, 3)
        elif kind < 0.12:
            # Compaction has removed all offsets before the next batch.
            self._gap = random.randint(1, 20)
        elif kind < 0.18 and self._batches:
            # DeleteRecords or retention moves the log start, sometimes into the middle of a batch.
            self.start = min(self.end, self.start + random.randint(1, 6))
        elif kind < 0.4:
            self._data(random, -1)
        else:
            producer_id = random.choice(_PRODUCERS)
            if producer_id in self._open and random.random() < 0.4:
                self._marker(producer_id, commit=random.random() < 0.6)
            else:
                self._data(random, producer_id)

    def _data(self, random: Random, producer_id: int) -> None:
        builder = BatchBuilder()
        count = random.randint(1, 4)
        self.end, self._gap = self.end + self._gap, 0
        for number in range(count):
            value = f"{self.end + number}".encode()
            builder.append(_TIME_MS + self.end, b"k", value)
            self._values[self.end + number] = value
            if producer_id < 0:
                self._committed[self.end + number] = True
            else:
                self._of_open.setdefault(producer_id, []).append(self.end + number)
        if producer_id < 0:
            self._append(builder.build())
            return
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + count
        self._open.setdefault(producer_id, self.end)
        self._append(
            builder.build(
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
        )

    def _marker(self, producer_id: int, *, commit: bool) -> None:
        del self._open[producer_id]
        for offset in self._of_open.pop(producer_id):
            self._committed[offset] = commit
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        self._append(control_batch(kind, 0, producer_id, 0, _TIME_MS))

    def _append(self, batch: bytearray) -> None:
        stamp(batch, 0, self.end, self.leader_epoch)
        (_, header) = next(iter_batches(batch))
        self._batches.append((header, bytes(batch)))
        self.end = header.next_offset

    # --- Questions ---

    def read(self, offset: int, batches: int) -> tuple[bytes, int]:
        """Return some batches from an offset (or the log start) on, and the offset after them."""
        offset = max(offset, self.start)
        found = [each for each in self._batches if each[0].next_offset > offset][:batches]
        behind = found[-1][0].next_offset if found else offset
        return b"".join(content for _, content in found), behind

    def problem_with(self, offset: int, value: bytes | None) -> str:
        """The reason why a committed record cannot be at an offset; empty if it can."""
        if offset not in self._values:
            return f"the source has no record at offset {offset}, the mirror has {value!r}"
        if self._values[offset] != value:
            return f"{value!r} is at offset {offset}, where the source has {self._values[offset]!r}"
        if not self._committed.get(offset, False):
            return f"the record at offset {offset} is not committed at the source"
        return ""

    def batches_from(self, start: int) -> list[tuple[BatchHeader, bytes]]:
        """All batches that have an offset of at least `start`."""
        return [each for each in self._batches if each[0].next_offset > start]


def check_partition(
    partition: Partition, source: SourcePartition, acknowledged: int
) -> Iterator[str]:
    """Yield violations in the log of a promoted partition.

    The log must begin with the source's batches; markers that abort the open transactions follow,
    and then records of our producers.
    """
    log = partition.log
    stored: list[tuple[BatchHeader, bytes]] = []
    offset = log.log_start_offset
    while data := log.read(offset, 2**30, upper_bound=log.high_watermark, minimum_one=True):
        for position, header in iter_batches(data):
            stored.append((header, data[position : position + header.size_bytes]))
        offset = stored[-1][0].next_offset
    wanted = source.batches_from(log.log_start_offset)
    copied = 0
    for (header, mine), (_, theirs) in zip(stored, wanted, strict=False):
        if mine != theirs:
            if header.base_offset < acknowledged:
                yield f"the batch at offset {header.base_offset} is not the source's"
            break
        copied += 1
    end = stored[copied - 1][0].next_offset if copied else log.log_start_offset
    lost = [h.base_offset for h, _ in wanted[copied:] if h.next_offset <= acknowledged]
    if lost:
        yield f"acknowledged batches are lost, from offset {lost[0]} on"
    if log.log_start_offset > source.start:
        yield f"the log starts at {log.log_start_offset}, the source at {source.start}"
    if acknowledged == source.end and log.log_start_offset != source.start:
        yield f"the log starts at {log.log_start_offset}, and not at {source.start}"
    opened: set[int] = set()
    for header, _ in source.batches_from(0):
        if header.next_offset > end:
            break
        if header.is_control:
            opened.discard(header.producer_id)
        elif header.is_transactional and header.next_offset > log.log_start_offset:
            opened.add(header.producer_id)
    yield from _check_markers(stored[copied:], opened)
    if log.last_stable_offset != log.high_watermark:
        yield f"committed records end at {log.last_stable_offset} of {log.high_watermark}"
    newest = max((header.leader_epoch for header, _ in stored), default=-1)
    if (
        partition.leader_epoch
        <= max((header.leader_epoch for header, _ in stored[:copied]), default=-1)
        or newest > partition.leader_epoch
    ):
        yield f"the leader epoch {partition.leader_epoch} is not above those of batches, {newest}"
    known = {entry.producer_id for entry in log.producers.entries()}
    ours = {h.producer_id for h, _ in stored[copied:] if not h.is_control}
    if not known <= ours:
        yield f"producers of the source are known after the promotion: {sorted(known - ours)}"


def _check_markers(behind: list[tuple[BatchHeader, bytes]], opened: set[int]) -> Iterator[str]:
    aborted = set()
    for header, content in behind:
        if not header.is_control:
            break
        (record,) = read_records(content, 0, header)
        if record.key is None or record.key[3] != ControlType.ABORT:
            yield f"the marker at offset {header.base_offset} is no ABORT"
        aborted.add(header.producer_id)
    if not opened <= aborted:
        yield f"open transactions were not aborted: producers {sorted(opened - aborted)}"
