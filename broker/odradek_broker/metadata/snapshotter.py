"""The snapshots of the metadata log: when they are taken, how they are written while the broker
serves requests, and the deletion of records and old snapshots (KIP-630)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from odradek_broker.config.broker import BrokerConfig
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.snapshots import (
    MetadataSnapshotId,
    SnapshotDirectory,
    StoredSnapshot,
    encode_snapshot,
)
from odradek_broker.partition import Partition
from odradek_broker.platform.seams import Clock, Scheduler
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode

#: The interval between deletions of old snapshots, as in Kafka.
CLEANUP_INTERVAL_MS = 60_000
#: The pause after a snapshot that could not be written.
_RETRY_MS = 60_000
#: The maximum number of changes that are applied to the image in one turn of the loop after a
#: snapshot has ended.
_CHANGES_AT_ONCE = 2_000


class LogDirectoryNames(Protocol):
    """The parts of the log manager that a snapshot uses."""

    @property
    def removals_pending(self) -> bool:
        """True if a log whose removal is recorded has not been renamed yet."""
        ...

    def sync_names(self) -> None:
        """Make the directory names of all partition logs durable. Waits for the disk; raises
        OSError."""
        ...

    def run_in_background(
        self, work: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        """Call `work` in another thread, and then `done` on the event loop."""
        ...


class MetadataSnapshotter:
    """Snapshots of one metadata log, one at a time.

    A snapshot of the image is encoded in slices on the loop, and written in another thread. The
    snapshot is written only after two conditions are met: all records that it covers are durable,
    and the files of deleted topics are renamed and their committed offsets deleted
    (`deletions_pending`). Without the snapshot, a start after a crash finishes an interrupted
    removal, because it finds the removal's record in the log. Once there is a snapshot, this record
    may be deleted from the log.
    """

    def __init__(
        self,
        partition: Partition,
        image: MetadataImage,
        directory: SnapshotDirectory,
        logs: LogDirectoryNames,
        clock: Clock,
        scheduler: Scheduler,
        config: BrokerConfig,
        deletions_pending: Callable[[], bool],
    ) -> None:
        self._deletions_pending = deletions_pending
        self._partition = partition
        self._log = partition.log
        self._image = image
        self._directory = directory
        self._logs = logs
        self._clock = clock
        self._scheduler = scheduler
        self._config = config
        #: The usable snapshots, oldest first.
        self._snapshots: list[StoredSnapshot] = []
        self._bytes_since = 0
        self._last_record_ms = -1
        self._due_from_ms = clock.monotonic_ms()
        self._next_clean_ms = 0
        self._busy = False
        self._problems: list[str] = []

    def found(self, snapshots: list[StoredSnapshot], tail_bytes: int, last_record_ms: int) -> None:
        """Take over the state that a start has found: the snapshots (oldest first), the size of the
        records after the newest snapshot, and the timestamp of the last record."""
        self._snapshots = snapshots
        self._bytes_since = tail_bytes
        self._last_record_ms = last_record_ms

    def appended(self, size_bytes: int, now_ms: int) -> None:
        """Called when the log has grown. `now_ms`: wall time."""
        self._bytes_since += size_bytes
        self._last_record_ms = now_ms

    def maintain(self) -> list[str]:
        """Begin a snapshot if one is due, and delete old snapshots if that is due. Returns the
        problems since the last call.
        """
        self._image.apply_changes(_CHANGES_AT_ONCE)
        now_ms = self._clock.monotonic_ms()
        if self._is_due(now_ms):
            self._begin(now_ms)
        if now_ms >= self._next_clean_ms:
            self._next_clean_ms = now_ms + CLEANUP_INTERVAL_MS
            try:
                self._clean(self._clock.wall_ms())
            except (StorageError, OSError) as problem:
                self._problems.append(f"the metadata log could not be trimmed: {problem}")
        problems, self._problems = self._problems, []
        return problems

    def _is_due(self, now_ms: int) -> bool:
        if self._busy or not self._bytes_since or now_ms < self._due_from_ms:
            return False
        if self._bytes_since >= self._config.metadata_log_max_record_bytes_between_snapshots:
            return True
        interval_ms = self._config.metadata_log_max_snapshot_interval_ms
        return interval_ms > 0 and now_ms >= self._due_from_ms + interval_ms

    # --- Writing one ---

    def _begin(self, now_ms: int) -> None:
        log = self._log
        end = log.log_end_offset
        if self._snapshots and end <= self._snapshots[-1].id.end_offset:
            return
        try:
            # A new segment begins, so that the log can be trimmed here: only whole segments are
            # deleted.
            log.roll(self._clock.wall_ms())
        except (StorageError, OSError) as problem:
            self._failed(problem)
            return
        self._busy = True
        self._bytes_since = 0
        self._due_from_ms = now_ms
        wall_ms = self._clock.wall_ms()
        snapshot = MetadataSnapshotId(end, self._partition.leader_epoch)
        covered_ms = self._last_record_ms
        batches = encode_snapshot(self._image.values(), snapshot.epoch, covered_ms, wall_ms)
        self._encode(snapshot, covered_ms, batches, [])

    def _encode(
        self,
        snapshot: MetadataSnapshotId,
        timestamp_ms: int,
        batches: Iterator[bytes | bytearray],
        parts: list[bytes | bytearray],
    ) -> None:
        """Encode one batch in each turn of the loop; then write the snapshot when its records are
        durable."""
        batch = next(batches, None)
        if batch is not None:
            parts.append(batch)
            self._scheduler.call_later(
                0, lambda: self._encode(snapshot, timestamp_ms, batches, parts)
            )
            return

        def durable(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._write(snapshot, timestamp_ms, parts)

        self._partition.when_durable(snapshot.end_offset - 1, durable)

    def _write(
        self, snapshot: MetadataSnapshotId, timestamp_ms: int, parts: list[bytes | bytearray]
    ) -> None:
        def work() -> None:
            self._logs.sync_names()
            self._directory.write(snapshot, parts)

        def done(problem: Exception | None) -> None:
            self._busy = False
            if problem is None:
                size_bytes = sum(map(len, parts))
                self._snapshots.append(StoredSnapshot(snapshot, size_bytes, timestamp_ms))
            elif not isinstance(problem, InterruptedError):
                self._failed(problem)

        if self._logs.removals_pending:
            self._busy = False
            self._failed("files of a deleted topic cannot be renamed")
            return
        if self._deletions_pending():
            self._busy = False
            self._failed("committed offsets of a deleted topic cannot be deleted")
            return
        self._logs.run_in_background(work, done)

    def _failed(self, problem: Exception | str) -> None:
        """Note a failure, and delay the next attempt."""
        self._problems.append(f"the metadata log got no snapshot: {problem}")
        self._bytes_since = max(self._bytes_since, 1)
        self._due_from_ms = self._clock.monotonic_ms() + _RETRY_MS

    # --- Deleting ---

    def _clean(self, now_ms: int) -> None:
        """Delete the oldest snapshot, and the records below the end of the next snapshot, while the
        total size is too large or the oldest snapshot is too old. The newest snapshot stays."""
        while len(self._snapshots) > 1 and self._may_go(self._snapshots[0], now_ms):
            following = self._snapshots[1]
            # The log is trimmed first. A start deletes a snapshot that ends below the log start, so
            # it never uses a snapshot after which records are missing.
            self._log.trimming.advance_log_start(following.id.end_offset)
            self._log.trimming.apply_retention(now_ms)
            due_ms = now_ms + self._log.config.file_delete_delay_ms
            self._directory.delete(self._snapshots[0].id, due_ms)
            del self._snapshots[0]

    def _may_go(self, oldest: StoredSnapshot, now_ms: int) -> bool:
        retention_ms = self._config.metadata_max_retention_ms
        if 0 <= retention_ms < now_ms - oldest.timestamp_ms:
            return True
        most_bytes = self._config.metadata_max_retention_bytes
        snapshots_bytes = sum(snapshot.size_bytes for snapshot in self._snapshots)
        return 0 <= most_bytes < self._log.size_bytes + snapshots_bytes
