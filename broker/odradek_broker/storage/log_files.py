"""The open files of one log: segments, producer state and leader epochs, and the list of files that
are not durable yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from odradek_broker.platform.seams import Files
from odradek_broker.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    encode_epochs,
    encode_partition_metadata,
    write_unsynced,
)
from odradek_broker.storage.cleaner.swap import SegmentSwap
from odradek_broker.storage.leader_epochs import LeaderEpochs
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_broker.storage.producers.producer_files import Producers
from odradek_broker.storage.producers.state import ProducerTally
from odradek_broker.storage.recovery import (
    LoadedLog,
    LogLoader,
    RecoveryReport,
    fill_transaction_index,
    missing_at_first_use,
)
from odradek_broker.storage.segment import Segment, SegmentList
from odradek_broker.storage.transaction_index import TransactionIndex
from odradek_protocol.primitives import ZERO_UUID


def _nothing(*_: int) -> Iterator[bytes]:
    return iter(())


class PartitionDirectory:
    """The directory at `path`: its small files, and the names in it that are not durable yet
    (L-30). `dirty`: a file in it was made, renamed or removed since the last flush.

    Only `sync` waits for the disk: the next flush syncs files and names together with the segments.
    """

    __slots__ = ("_files", "_is_new", "_unsynced_paths", "dirty", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self.dirty = False
        self._is_new = False  # The parent directory does not durably name this one yet.
        self._unsynced_paths: set[str] = set()

    def make(self) -> None:
        """Make the directory, unsynced. Raises OSError."""
        self._files.make_dirs(self.path)
        self.dirty = self._is_new = True

    def write(self, name: str, content: bytes) -> None:
        """Replace the small file `name`, unsynced. Raises OSError."""
        path = f"{self.path}/{name}"
        write_unsynced(self._files, path, content)
        self.written([path])

    def written(self, paths: Iterable[str]) -> None:
        """Called when the files at `paths` were written: the next flush syncs them and their
        names."""
        self._unsynced_paths.update(paths)
        self.dirty = True

    def sync(self) -> None:
        """Make the names in the directory durable before the call returns. Waits for the disk.
        Raises OSError."""
        self._files.sync_dir(self.path)

    def take_unsynced_paths(self) -> set[str]:
        """The files that a flush has to sync. The next call does not return these files again."""
        taken, self._unsynced_paths = self._unsynced_paths, set()
        return taken

    def take_dirty(self) -> list[str]:
        """The directories whose names a flush has to make durable, outermost first."""
        if not self.dirty:
            return []
        parent = self.path.rpartition("/")[0] or "."
        taken = [parent, self.path] if self._is_new else [self.path]
        self.dirty = self._is_new = False
        return taken


class LogFiles:
    """The open files of a log. `segments`, `producers` and `epochs` exist once `opened` was called.
    `snapshot_at`: base offset and size of the active segment at the last producer snapshot of the
    log end. `swap`: the cleaned segment that is being swapped in, if there is one."""

    __slots__ = ("_options", "directory", "epochs", "producers", "segments", "snapshot_at", "swap")

    segments: SegmentList
    producers: Producers
    epochs: LeaderEpochs

    def __init__(self, path: str, options: LogOptions) -> None:
        self._options = options
        self.directory = PartitionDirectory(options.files, path)
        self.snapshot_at = (-1, 0)
        self.swap: SegmentSwap | None = None

    # ---- opening and closing

    def make(self, topic_id: bytes) -> None:
        """Make the directory of a new partition, unsynced. Raises OSError."""
        self.directory.make()
        self.write_topic_id(topic_id)

    def write_topic_id(self, topic_id: bytes) -> None:
        """Write the topic's id into partition.metadata, unsynced. Raises OSError."""
        self.directory.write(PARTITION_METADATA, encode_partition_metadata(topic_id))

    def loader(
        self,
        start: LogStart,
        config: LogConfig,
        topic_id: bytes,
        report: RecoveryReport,
        now_ms: int,
        later: list[Callable[[], None]] | None,
    ) -> LogLoader:
        """The loader that opens the files of a log; `start` is the state in which the log was
        left.
        """
        journal = self._options.journal
        restore: Callable[[int, int, int], Iterator[bytes]] = _nothing
        if journal is not None and journal.replay is not None and topic_id != ZERO_UUID:
            restore = partial(journal.replay.behind, topic_id, report.partition)
        return LogLoader(
            files=self._options.files,
            handles=self._options.handles,
            directory=self.directory.path,
            log_start_offset=start.log_start_offset,
            recovery_point=start.recovery_point,
            expected_end_offset=start.log_end_offset,
            clean=start.clean,
            index_interval_bytes=config.index_interval_bytes,
            compacted=config.compacted or start.cleaned,
            gaps_known=start.gaps_known,
            restore=restore,
            now_ms=now_ms,
            new_producers=self.new_producers,
            report=report,
            later=later,
        )

    def opened(self, loaded: LoadedLog, start: LogStart, report: RecoveryReport) -> None:
        """Use the files that the loader has opened."""
        self.segments = SegmentList(self.directory.path, self._options.handles, loaded.segments)
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        if not start.clean and not start.recovery_point:
            # The next flush syncs partition.metadata. The process that wrote the file may have died
            # before a flush, and the journal names partitions by topic ids (L-50).
            self.directory.written([f"{self.directory.path}/{PARTITION_METADATA}"])
        if not report.scanned_bytes:
            active = self.segments.active
            self.snapshot_at = active.base_offset, active.size_bytes

    def missing_at_first_use(self, log_end_offset: int) -> str:
        """The name of a missing or damaged file without which the log can only be opened by reading
        batches, maybe many, even after a clean stop; empty if there is no such file. Raises
        OSError."""
        return missing_at_first_use(self._options.files, self.directory.path, log_end_offset)

    def new_producers(self, tally: ProducerTally | None = None) -> Producers:
        """Empty producer state with this log's options."""
        return Producers(
            self._options.files,
            self.directory.path,
            max_producer_ids=self._options.max_producer_ids,
            expiration_ms=self._options.producer_expiration_ms(),
            tally=tally or self._options.producer_tally,
        )

    def seal(self, log_end_offset: int) -> None:
        """Complete the indexes and take a snapshot, so that the next start can trust them. Raises
        OSError."""
        self.segments.active.cut_torn()
        self.segments.active.indexes.seal()
        self.take_snapshot(log_end_offset)
        self.producers.remove_strays(self.segments.bases, log_end_offset)

    # ---- files that are written beside the segments

    def write_epochs(self) -> None:
        """Write the leader epochs. A failure is ignored: the file is written again with the next
        change or when the log is closed, and every batch has its epoch (L-31)."""
        try:
            self.directory.write(LEADER_EPOCHS, encode_epochs(self.epochs.entries))
        except OSError:
            return
        self.epochs.changed = False

    def take_snapshot(self, log_end_offset: int) -> None:
        """Take a producer snapshot of the log end, with the state of the active segment's indexes.
        The state is left out if the segment or the file of leader epochs needs a scan to be
        repaired. Raises OSError."""
        if self.epochs.changed:
            self.write_epochs()
        active = self.segments.active
        sound = active.size_bytes and not active.indexes.damage and not self.epochs.changed
        self.producers.take_snapshot(log_end_offset, active if sound else None)
        self.directory.written(active.path_of(suffix) for suffix in ("index", "timeindex"))
        self.snapshot_at = active.base_offset, active.size_bytes

    def roll(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        """Seal the active segment and begin a new one. If this raises OSError, the old segment
        stays active."""
        sealed = self.segments.roll(base_offset, config, self._options.randomness, now_ms)
        self.producers.aborted_transactions.begin(self.segments.active)
        self.directory.written((sealed.path_of("index"), sealed.path_of("timeindex")))
        # Without a snapshot nothing is lost: records are removed only when one is there (L-55).
        with suppress(OSError):
            self.take_snapshot_of_base(base_offset)
        self.producers.aborted_transactions.close_index(sealed)

    def take_snapshot_of_base(self, base_offset: int) -> None:
        """Take a producer snapshot at the base offset of the active segment, which is empty, with
        the state of the segment before it. The state is left out if that segment or the file of
        leader epochs needs a scan to be repaired. Raises OSError."""
        if self.epochs.changed:
            self.write_epochs()
        sealed = self.segments.all[-2] if len(self.segments) > 1 else None
        whole = (
            sealed is not None
            and sealed.size_bytes
            and not sealed.indexes.damage
            and not self.epochs.changed
        )
        self.producers.take_snapshot(base_offset, sealed if whole else None)

    def fill_transaction_index(
        self,
        segment: Segment,
        earlier: Sequence[Segment],
        index: TransactionIndex,
        log_start_offset: int,
    ) -> None:
        """Write a new transaction index of a segment, in any thread."""
        scratch = self.new_producers(ProducerTally())
        fill_transaction_index(segment, earlier, index, scratch, log_start_offset)
