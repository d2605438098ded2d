"""Producer state of a partition together with its files: snapshots and transaction indexes.

`state` decides what a batch means for its producer; this module writes and reads the files
(P-26..P-28, L-04)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from odradek_broker.platform.seams import Files, write_atomically
from odradek_broker.storage.aborted_transactions import AbortedTransactions
from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.log_config import AppendOrigin
from odradek_broker.storage.producers.snapshot import (
    CorruptProducerSnapshot,
    check_snapshot,
    decode_snapshot,
    encode_snapshot,
    read_segment_state,
)
from odradek_broker.storage.producers.state import ProducerStateManager, ProducerTally
from odradek_broker.storage.segment import Segment, segment_name
from odradek_broker.storage.segment_scanner import read_batches
from odradek_broker.storage.segment_state import (
    SegmentState,
    encode_segment_state,
)
from odradek_broker.storage.transaction_index import AbortedTxn
from odradek_protocol.errors import ErrorCode
from odradek_protocol.records.batch import BatchError, BatchHeader, CorruptBatch
from odradek_protocol.records.record import read_records
from odradek_protocol.stored.control_marker import ControlMarkerError, decode_marker

_SNAPSHOT = "snapshot"
_BEYOND_ALL = 2**63

EndMarker = tuple[int, int]


def snapshot_name(offset: int) -> str:
    """The name of the file with the producer state before an offset."""
    return f"{segment_name(offset)}.{_SNAPSHOT}"


def has_snapshot(files: Files, directory: str, offset: int) -> bool:
    """True if a partition's directory has a whole snapshot of an offset. Raises OSError."""
    try:
        check_snapshot(_read(files, f"{directory}/{snapshot_name(offset)}"))
    except (FileNotFoundError, CorruptProducerSnapshot):
        return False
    return True


def _read(files: Files, path: str) -> bytes:
    file = files.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def read_end_marker(header: BatchHeader, batch: memoryview) -> EndMarker | None:
    """(control type, coordinator epoch) of a COMMIT or ABORT marker; None for other control batches
    (R-31). Longer keys and values are accepted (R-32). Raises CorruptBatch."""
    records = read_records(batch, 0, header)
    if not records:
        return None  # Compaction may leave a control batch empty.
    try:
        marker = decode_marker(records[0].key, records[0].value)
    except ControlMarkerError as problem:
        raise CorruptBatch(f"batch at offset {header.base_offset}: {problem}") from problem
    return None if marker is None else (int(marker.kind), marker.coordinator_epoch)


class Producers:
    """The producer state of a log, against which appends are checked, and the files of that state
    in `directory`."""

    __slots__ = (
        "_directory",
        "_files",
        "_options",
        "aborted_transactions",
        "restored_to",
        "state",
        "unsynced",
        "volatile",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        max_producer_ids: int,
        expiration_ms: int,
        tally: ProducerTally | None = None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._options: dict[str, Any] = {
            "max_producer_ids": max_producer_ids,
            "expiration_ms": expiration_ms,
            "tally": tally,
        }
        self.state = ProducerStateManager(**self._options)
        self.restored_to = 0
        """The result of `load`: state of batches below this offset."""
        #: The paths of files that were written since the last flush began.
        self.unsynced: set[str] = set()
        #: Snapshots that may not be on disk yet.
        self.volatile: set[str] = set()
        self.aborted_transactions = AbortedTransactions(
            files, self.unsynced, self.segment_state, self._first_open_at
        )

    # ---- appended and replayed batches

    def check_marker(
        self,
        header: BatchHeader,
        batch: memoryview,
        origin: AppendOrigin,
        transaction_version: int,
    ) -> EndMarker | None:
        """The marker in a control batch to be appended (T-41). Raises AppendRejected."""
        try:
            marker = read_end_marker(header, batch)
        except BatchError as problem:
            raise AppendRejected(ErrorCode.INVALID_RECORD, str(problem)) from None
        if marker is not None and origin is AppendOrigin.COORDINATOR:
            self.state.check_marker(
                header.producer_id,
                header.producer_epoch,
                marker[1],
                transaction_version=transaction_version,
            )
        return marker

    def apply(
        self,
        header: BatchHeader,
        marker: EndMarker | None,
        segment: Segment,
        base_offset: int,
        last_offset: int,
        now_ms: int,
    ) -> None:
        """Apply a batch that is in the log (P-18). Raises OSError: see
        `AbortedTransactions.append`."""
        self.state.update(header, base_offset, last_offset, now_ms)
        if marker is not None:
            aborted = self._apply_marker(header, marker, last_offset)
            if aborted is not None:
                self.aborted_transactions.append(segment, aborted)

    def _apply_marker(
        self, header: BatchHeader, marker: EndMarker, offset: int
    ) -> AbortedTxn | None:
        control_type, coordinator_epoch = marker
        return self.state.apply_marker(
            header.producer_id,
            header.producer_epoch,
            coordinator_epoch,
            control_type,
            offset,
            header.max_timestamp,
        )

    def replay(self, header: BatchHeader, batch: memoryview, segment: Segment) -> None:
        """Apply a batch that a scan found, and fill the transaction index of its segment."""
        marker = read_end_marker(header, batch) if header.is_control else None
        self.apply(header, marker, segment, header.base_offset, header.last_offset, 0)

    def follow(self, header: BatchHeader, batch: memoryview) -> AbortedTxn | None:
        """Apply a batch without writing the transaction index; returns the index entry, if there is
        one."""
        marker = read_end_marker(header, batch) if header.is_control else None
        self.state.update(header, header.base_offset, header.last_offset, 0)
        if marker is None:
            return None
        return self._apply_marker(header, marker, header.last_offset)

    # ---- loading

    def load(
        self,
        segments: Sequence[Segment],
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        *,
        alone: bool = False,
    ) -> None:
        """Load the state as of `end_offset`: the newest undamaged snapshot, then the batches after
        it (P-28). `alone`: the call may be made in any thread, and changes nothing on disk.

        Raises SegmentCorrupt or BatchError if a batch between the snapshot and `end_offset` cannot
        be read.
        """
        # Snapshots between the start of the first segment and the log start are also used, because
        # producers that wrote before the first segment are known only from a snapshot.
        lowest = min(log_start_offset, segments[0].base_offset) if segments else log_start_offset
        start = self._load_snapshot(lowest, end_offset, keep_damaged=alone)
        self.state.remove_expired(now_ms)
        for segment in segments:
            if segment.next_offset <= start or segment.base_offset >= end_offset:
                continue
            position = 0
            if start > segment.base_offset and not alone:
                segment.indexes.load()
                position = segment.indexes.position_of(start)
            for _, header, batch in read_batches(segment, position):
                if header.base_offset >= end_offset:
                    break
                if header.last_offset >= start:
                    self.follow(header, batch)
        self.state.map_end_offset = self.restored_to = end_offset
        self.state.high_watermark_moved(end_offset)

    def _load_snapshot(self, lowest: int, end_offset: int, *, keep_damaged: bool) -> int:
        """Load the newest undamaged snapshot; returns the offset from which batches must be
        replayed.
        """
        for offset in sorted(self.snapshot_offsets(), reverse=True):
            if not lowest <= offset <= end_offset:
                continue
            try:
                self.state = self._restored(offset, **self._options)
            except CorruptProducerSnapshot:
                if not keep_damaged:
                    self._files.remove(self._snapshot_path(offset))
                continue
            return offset
        self.state = ProducerStateManager(**self._options)
        return lowest

    def go_on_from_snapshot(self, offset: int, now_ms: int) -> None:
        """Take the state of the snapshot at `offset`, up to which batches were followed, if there
        is an undamaged one: in a compacted log it knows more than the batches that are left
        (L-55). Raises OSError."""
        try:
            state = self._restored(offset, **self._options)
        except (FileNotFoundError, CorruptProducerSnapshot):
            return
        state.remove_expired(now_ms)
        state.high_watermark_moved(offset)
        self.state = state

    def _restored(self, offset: int, **options: Any) -> ProducerStateManager:
        """The state in the snapshot at `offset`. Raises CorruptSnapshot, OSError."""
        state = ProducerStateManager(**options)
        content = _read(self._files, self._snapshot_path(offset))
        state.restore(decode_snapshot(content, map_end_offset=offset), offset)
        return state

    def start_empty(self, offset: int) -> None:
        self.state.map_end_offset = offset
        self.remove_snapshots(lambda _: True)

    def forget_all(self, end_offset: int) -> None:
        """Forget all producers of a log that ends at an offset, as if none had written. Old
        snapshots stay, so the caller must take a new snapshot for the next start."""
        self.state = ProducerStateManager(**self._options)
        self.state.map_end_offset = end_offset

    # ---- snapshots

    def snapshot_offsets(self) -> Iterator[int]:
        for name in self._files.list(self._directory):
            stem, _, suffix = name.partition(".")
            if suffix == _SNAPSHOT and stem.isdigit():
                yield int(stem)

    def segment_state(self, offset: int) -> SegmentState | None:
        """The state of the segment in the snapshot at `offset`; None if the snapshot is missing or
        damaged, or has no such state. Raises OSError."""
        return read_segment_state(self._files, self._snapshot_path(offset))

    def _first_open_at(self, offset: int) -> int:
        """The first offset of the earliest transaction that was open at `offset`. Returns
        _BEYOND_ALL if no transaction was open, and -1 if there is no undamaged snapshot of that
        offset. Raises OSError."""
        try:
            state = self._restored(offset, **{**self._options, "tally": ProducerTally()})
        except (FileNotFoundError, CorruptProducerSnapshot):
            return -1
        first = state.first_open_transaction
        return _BEYOND_ALL if first is None else first[0]

    def take_snapshot(self, offset: int, segment: Segment | None = None) -> None:
        """Write a snapshot of the state at `offset` (P-27), with the state of the `segment` that
        contains this offset or ends at it. Raises OSError.

        A torn snapshot has a wrong checksum (P-26), so nothing waits for the disk here, unless
        another snapshot of this offset is replaced, which must stay until then (L-55).
        """
        path = self._snapshot_path(offset)
        segment_state = b""
        if segment is not None:
            aborted = self.aborted_transactions.state(segment)
            if aborted is not None:
                segment_state = encode_segment_state(segment.indexes.state(*aborted))
        content = encode_snapshot(self.state.entries(), segment_state)
        if self._files.exists(path):
            if _read(self._files, path) != content:
                write_atomically(self._files, path, content)
            return
        file = self._files.open(path, create=True)
        try:
            file.append([content])
        except OSError:
            # A torn snapshot must not pass for one that is there.
            self._files.remove(path)
            raise
        finally:
            file.close()
        self.unsynced.add(path)
        self.volatile.add(path)

    def is_volatile(self, offset: int) -> bool:
        """True if the snapshot of this offset is written but not synced, so that a power cut may
        remove it."""
        return self._snapshot_path(offset) in self.volatile

    def sync(self) -> None:
        """Sync the files that were written. Waits for the disk. Raises OSError."""
        for path in sorted(self.unsynced):
            if self._files.exists(path):
                file = self._files.open(path)
                try:
                    file.sync()
                finally:
                    file.close()
        self.volatile -= self.unsynced
        self.unsynced.clear()

    def remove_snapshots(self, unwanted: Callable[[int], bool]) -> None:
        for offset in list(self.snapshot_offsets()):
            if unwanted(offset):
                self._files.remove(self._snapshot_path(offset))

    def remove_strays(self, segment_bases: Sequence[int], end_offset: int) -> None:
        """Remove all snapshots but those at segment starts and at the log end (P-27), and the
        newest one that is on disk (L-55)."""
        on_disk = (offset for offset in self.snapshot_offsets() if offset <= end_offset)
        newest = max((offset for offset in on_disk if not self.is_volatile(offset)), default=-1)
        kept = {*segment_bases, end_offset, newest}
        self.remove_snapshots(lambda offset: offset not in kept)

    def remove_outdated(self, segment_bases: Sequence[int], recovery_point: int) -> None:
        """Remove old snapshots inside segments. The newest snapshot at or below the recovery point
        that is on disk is kept, and so are all newer snapshots (L-30, L-55). Raises OSError."""
        inside = sorted(set(self.snapshot_offsets()).difference(segment_bases))
        reached = [
            offset for offset in inside if offset <= recovery_point and not self.is_volatile(offset)
        ]
        outdated = set(reached[:-1])
        self.remove_snapshots(lambda offset: offset in outdated)

    def _snapshot_path(self, offset: int) -> str:
        return f"{self._directory}/{snapshot_name(offset)}"
