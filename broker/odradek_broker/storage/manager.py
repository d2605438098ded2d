"""All partition logs of a broker, in all data directories: start, stop, retention (L-20,
L-30..L-38)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import islice, repeat
from typing import Any

from odradek_broker.platform.seams import Clock, Files, Randomness
from odradek_broker.storage.checkpoints import ABSOLUTE_HASH
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.errors import (
    DataDirectoryError,
    IndexesBeingRebuilt,
    StorageError,
)
from odradek_broker.storage.handles import BackgroundRunner, HandleCache
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_directories import LogDirectories
from odradek_broker.storage.log_directory import (
    DELETED_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
)
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_broker.storage.startup import (
    KnownTopics,
    LogStartup,
    ParallelRunner,
    StartReport,
    one_by_one,
)
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import ZERO_UUID, uuid_text

#: The limit of directories that are renamed in one call, because the loop waits for the call.
_RENAMED_AT_ONCE_MAX = 50


@dataclass(slots=True)
class MaintenanceReport:
    """The outcome of a retention pass."""

    deleted_segments: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class LogManager:
    """All logs of a broker, and their data directories, which are locked from construction until
    `close`.

    The constructor raises DataDirectoryInUse if another broker has a lock, DataDirectoryError if a
    directory cannot be used or belongs to another node.
    """

    def __init__(
        self,
        data_dirs: Sequence[str],
        files: Files,
        clock: Clock,
        randomness: Randomness,
        default_config: LogConfig,
        *,
        metadata_dir: str | None = None,
        node_id: int = 1,
        cluster_id: str | None = None,
        max_open_files: int = 512,
        files_scarce: Callable[[], bool] = lambda: False,
        producer_expiration_ms: int = 86_400_000,
        background: BackgroundRunner | None = None,
        in_parallel: ParallelRunner = one_by_one,
        journal_bytes_max: int = 0,
    ) -> None:
        """`metadata_dir`: the metadata log's directory; None: the first of `data_dirs`.
        `cluster_id`: the cluster id of new directories; None: a random one. `files_scarce`: see
        `HandleCache`. `in_parallel` runs the syncs of the start."""
        self.default_config = default_config
        self.files = files
        self._clock = clock
        self._randomness = randomness
        self._logs: dict[TopicPartition, PartitionLog] = {}
        # Logs out of service whose files keep their names, with a flag: true if the files are to be
        # removed.
        self._retired: dict[TopicPartition, tuple[PartitionLog, bool]] = {}
        self._retention_due: dict[TopicPartition, None] = {}
        self._closed = False
        self._in_parallel = in_parallel
        # The number of producers of all partitions at the last count, and the tally at that time.
        self._producers_counted = self._producers_made = 0
        #: The time for which producers are kept; a dynamic setting (P-24).
        self.producer_expiration_ms = producer_expiration_ms
        handles = HandleCache(files, max_open_files, background=background, scarce=files_scarce)
        self._options = LogOptions(
            files,
            handles,
            randomness,
            DeletedFiles(handles),
            producer_expiration_ms=lambda: self.producer_expiration_ms,
            journal_bytes_max=journal_bytes_max,
        )
        #: Called when a directory has failed and its logs are offline (L-42).
        self.on_directory_failed: Callable[[LogDirectory], None] = lambda _: None
        self._directories = LogDirectories(
            data_dirs, metadata_dir or data_dirs[0], self._options, self._directory_failed
        )
        #: The topic of the metadata log, whose directory may be set by metadata.log.dir.
        self._first_topic = ""
        self.node_id = node_id
        self.cluster_id = self._directories.take(cluster_id, node_id, randomness)
        #: True if the directories are of an early version; see `masked_partition_for`.
        self.masks_hashes = self._directories.coordinator_hash != ABSOLUTE_HASH

    @property
    def directories(self) -> list[LogDirectory]:
        """All directories in the order of the settings, failed ones included."""
        return self._directories.all

    @property
    def log_dirs(self) -> list[LogDirectory]:
        """The directories that partitions are in: `log.dirs`."""
        return self._directories.of_partitions

    @property
    def metadata_directory(self) -> LogDirectory:
        return self._directories.metadata

    @property
    def usable(self) -> bool:
        """True unless all directories for partitions have failed."""
        return self._directories.usable

    def directory_of(self, log: PartitionLog) -> LogDirectory:
        return self._directories.at(log.directory.rpartition("/")[0])

    def _directory_failed(self, directory: LogDirectory) -> None:
        for key, (log, _) in list(self._retired.items()):
            if self.directory_of(log) is directory:
                del self._retired[key]
        self.on_directory_failed(directory)

    # ---- start

    def open_all(
        self,
        configs: Callable[[str], LogConfig],
        *,
        first_topic: str = "",
        topics: KnownTopics | None = None,
    ) -> StartReport:
        """Find and open every partition; see `LogStartup`. `first_topic`: the topic of the metadata
        log. Raises DataDirectoryError."""
        self._first_topic = first_topic
        report = LogStartup(
            self._directories,
            self.files,
            self._clock,
            self._randomness,
            configs,
            self._add,
            self._in_parallel,
            first_topic,
            topics,
        ).open_all()
        report.logs = len(self._logs)
        return report

    def _add(self, log: PartitionLog, directory: LogDirectory) -> None:
        self._logs[log.topic, log.partition] = directory.logs[log.topic, log.partition] = log

    def _remove(self, log: PartitionLog) -> LogDirectory:
        """Take a log out of service; returns its directory."""
        key = (log.topic, log.partition)
        directory = self.directory_of(log)
        del self._logs[key], directory.logs[key]
        directory.cleaner_offsets.pop(key, None)
        return directory

    # ---- partitions

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def run_in_background(
        self, work: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        """Run `work`, which waits for the disk, in the background. Without a background, `work` is
        run before this call returns."""
        self._options.handles.run(work, done)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def open_known(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig
    ) -> PartitionLog:
        """Open a partition of the metadata, or create it. If a directory is missing, a partition
        that was not found is assumed to be in it: the partition is offline, and not created again
        (L-43)."""
        key = (topic, partition)
        missing = self._directories.missing
        if key in self._logs or missing is None:
            return self.create(topic, partition, topic_id, config)
        log = missing.new_log(key, topic_id, config, LogStart())
        log.take_offline(f"it is in no directory that can be used: {missing.failure}")
        self._add(log, missing)
        return log

    def found_all(self) -> str:
        """End the start: every partition has been opened. Returns a text about partitions that
        could not be found; empty if all were found."""
        missing = self._directories.missing
        self._directories.found_all()
        if missing is None or not missing.logs:
            return ""
        return f"{len(missing.logs)} partitions are offline: {missing.failure}"

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig | None = None,
        directory: LogDirectory | None = None,
    ) -> PartitionLog:
        """Create a partition, in `directory` or in the directory with the fewest partitions (L-41).
        An existing partition with the same topic id, or without a topic id, is used unchanged: its
        partition.metadata may not have reached the disk.

        Raises DataDirectoryError if the partition exists with another topic id; raises StorageError
        if its files cannot be made."""
        key = (topic, partition)
        config = config or self.default_config
        known = self._logs.get(key)
        if known is not None:
            self._check_topic_id(known, topic_id)
            known.config = config
            return known
        directory = directory or self._directories.for_new_partition(self._first_topic)
        path = directory.path_of(f"{topic}-{partition}")
        try:
            directory.forget_checkpoints(key)
        except DataDirectoryError as problem:
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be made: {problem}"
            ) from problem
        log = directory.new_log(key, topic_id, config, LogStart())
        try:
            self._schedule_removal(key)
            log.create_files(self._clock.wall_ms())
        except OSError as problem:
            directory.disk.failed(problem)
            if len(self.directories) > 1:
                # The next attempt may choose another directory, so nothing is left in this one.
                with suppress(OSError):
                    self.files.remove_tree(path)
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{path} cannot be made: {problem.strerror or problem}",
            ) from problem
        self._add(log, directory)
        return log

    def _check_topic_id(self, log: PartitionLog, topic_id: bytes) -> None:
        if log.topic_id == topic_id:
            return
        if log.topic_id != ZERO_UUID:
            raise DataDirectoryError(
                f"{log.directory} is there already, with topic id {uuid_text(log.topic_id)}"
                f" instead of {uuid_text(topic_id)}: move it out of the way, and start again"
            )
        try:
            log.write_topic_id(topic_id)
        except OSError as problem:
            log.topic_id = ZERO_UUID
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the topic id of {log.name} cannot be written: {problem}",
            ) from problem

    def retire(self, topic: str, partition: int) -> PartitionLog | None:
        """Take a partition out of service; its files keep their names until `remove_retired`, or
        until another partition of the name is created. None if there is no such partition."""
        key = (topic, partition)
        log = self._logs.get(key)
        if log is not None:
            directory = self._remove(log)
            log.abandon()
            if not directory.failure:
                self._retired[key] = log, False
        return log

    def mark_removed(self, log: PartitionLog) -> None:
        """Mark the files of a retired partition for removal, by `remove_retired` or later by
        `remove_deleted_files`."""
        key = (log.topic, log.partition)
        found = self._retired.get(key)
        if found is not None and found[0] is log:
            self._retired[key] = log, True

    def remove_retired(self, log: PartitionLog) -> None:
        """Rename the files of a retired partition in this call, and have them removed later (L-01,
        L-38). A failed rename is tried again with each `remove_deleted_files`."""
        self.mark_removed(log)
        key = (log.topic, log.partition)
        if self._retired.get(key, (None, False))[0] is log:
            with suppress(OSError):
                self._schedule_removal(key)

    def delete(self, topic: str, partition: int) -> None:
        """Call `retire` and `remove_retired`. Nothing happens if there is no such partition."""
        log = self.retire(topic, partition)
        if log is not None:
            self.remove_retired(log)

    def _schedule_removal(self, key: TopicPartition) -> None:
        """Free the name of a retired partition. Raises OSError."""
        found = self._retired.get(key)
        if found is None:
            return
        log = found[0]
        renamed = f"{log.directory}.{self._randomness.uuid().hex()}{DELETED_SUFFIX}"
        self.files.rename(log.directory, renamed)
        del self._retired[key]
        due_ms = self._clock.wall_ms() + log.config.file_delete_delay_ms
        self.directory_of(log).deleted_files.add_directory(due_ms, renamed)

    def set_aside(self, topic: str, partition: int) -> str:
        """Take a partition of an unknown topic out of service, and rename its directory as a stray.
        Returns the new name. Raises KeyError if there is no such partition; raises OSError."""
        log = self._logs[topic, partition]
        kept_as = self._stray_name(log.directory)
        self.files.rename(log.directory, kept_as)
        self._remove(log)
        log.abandon()
        return kept_as

    def _stray_name(self, path: str) -> str:
        return f"{path}.{self._randomness.uuid().hex()}{STRAY_SUFFIX}"

    # ---- maintenance

    def look_at_disks(self) -> None:
        """Try the directories that had errors: see `LogDirectory.look_at_disk`."""
        for directory in self._directories.online:
            directory.look_at_disk()

    def open_again(self, now_ms: int) -> None:
        """Try again to open the logs that could not be opened; each call tries one log of each
        directory.
        """
        for directory in self._directories.online:
            directory.open_again(now_ms)

    def continue_snapshots(self) -> None:
        """Take a few of the snapshots that are due in each directory (L-30)."""
        for directory in self._directories.online:
            directory.continue_snapshots()

    def begin_retention(self) -> None:
        """Have `continue_retention` check every log once (L-20)."""
        self._retention_due.update(dict.fromkeys(self._logs))

    def continue_retention(self, now_ms: int, at_most: int = 20) -> MaintenanceReport:
        """Apply retention to some of the logs that are due; a log may have to be opened for it. A
        log that fails is named in the report."""
        report = MaintenanceReport()
        for key in list(islice(self._retention_due, at_most)):
            del self._retention_due[key]
            log = self._logs.get(key)
            if log is not None and not log.offline:
                self._apply_retention(log, now_ms, report)
        return report

    def apply_retention(self, now_ms: int) -> MaintenanceReport:
        self.begin_retention()
        return self.continue_retention(now_ms, len(self._logs))

    def _apply_retention(self, log: PartitionLog, now_ms: int, report: MaintenanceReport) -> None:
        try:
            count = log.trimming.apply_retention(now_ms)
        except IndexesBeingRebuilt:
            self._retention_due[log.topic, log.partition] = None
            return
        except (StorageError, OSError) as problem:
            report.problems.append(f"retention of {log.name}: {problem}")
            return
        if count:
            report.deleted_segments[log.name] = count

    def remove_deleted_files(self, now_ms: int) -> list[str]:
        """Begin to remove files that were deleted long enough ago. Returns the failures since the
        last call; those removals are tried again later."""
        problems = []
        due = (key for key, (_, remove) in self._retired.items() if remove)
        for key in list(islice(due, _RENAMED_AT_ONCE_MAX)):
            try:
                self._schedule_removal(key)
            except OSError as problem:
                problems.append(f"deleted files could not be removed: {problem}")
                self._retired[key] = self._retired.pop(key)  # The others are tried first.
        for directory in self._directories.online:
            directory.deleted_files.remove_due(now_ms)
            problems = directory.deleted_files.take_problems() + problems
        return problems

    @property
    def removals_pending(self) -> bool:
        """True while a log that is to be removed still has its old name."""
        return any(remove for _, remove in self._retired.values())

    def sync_names(self) -> None:
        """Make the names of all logs durable. Waits for the disk. Raises OSError."""
        for directory in self._directories.online:
            directory.sync_names()

    def begin_journals(self, request_flush: Callable[[Any], None]) -> None:
        """Allow the journals to make small appends durable."""
        for directory in self._directories.online:
            directory.begin_journal(request_flush)

    def stop_journals(self) -> None:
        """Have every flush from now on sync the files."""
        for directory in self.directories:
            directory.journal.stop()

    def remove_expired_producers(self, now_ms: int) -> Generator[None, None, int]:
        """Remove expired producers of open logs (P-24), with a pause before each log; returns their
        number."""
        removed = 0
        for log in self:
            yield
            if log.loaded and not log.offline:
                removed += log.remove_expired_producers(now_ms)
        return removed

    def forget_producers_beyond(self, most: int) -> Generator[None, None, int]:
        """Drop producers, those that wrote longest ago first, until all partitions together have at
        most `most` producers. Returns the number of dropped producers. Producers with an open
        transaction stay. The producers are counted only if there could be more than `most`. There
        are pauses."""
        made = self._options.producer_tally.made
        if self._producers_counted + made - self._producers_made <= most:
            return 0
        states, count = [], 0
        for log in self:
            yield
            if log.loaded and not log.offline and len(log.producers):
                states.append(log.producers)
                count += len(log.producers)
        self._producers_counted, self._producers_made = count, made
        excess = count - most
        if excess <= 0:
            return 0
        # The producers of a partition are in the order of their last writes, even if timestamps
        # decrease: a producer that comes after one with a newer timestamp wrote later, so its idle
        # time is shorter.
        idle = heapq.merge(
            *(zip(state.idle(), repeat(number)) for number, state in enumerate(states))
        )
        chosen = list(islice(idle, excess))
        for (_, producer_id), number in chosen:
            states[number].forget(producer_id)
        self._producers_counted -= len(chosen)
        return len(chosen)

    # ---- log starts

    def delete_records(
        self, wanted: Sequence[tuple[PartitionLog, int]]
    ) -> list[int | StorageError]:
        """`LogTrimming.delete_records` on several logs, each named once, with one checkpoint for
        all logs of a directory. Returns the new log start of each, or the error.

        A log start moves only when the checkpoint is on disk, so an error leaves the log unchanged
        (L-10).
        """
        targets: list[int | StorageError] = []
        for log, offset in wanted:
            try:
                targets.append(log.trimming.delete_records_target(offset))
            except StorageError as problem:
                targets.append(problem)
        return self.advance_log_starts([log for log, _ in wanted], targets)

    def advance_log_starts(
        self, logs: Sequence[PartitionLog], targets: Sequence[int | StorageError]
    ) -> list[int | StorageError]:
        """Move the starts of several logs up to these offsets as `delete_records` does, but under
        any cleanup policy. An error among the targets is returned unchanged; if a log has several
        targets, the highest is used."""
        done = list(targets)
        for directory in self._directories.online:
            moved = {
                number: (log, target)
                for number, (log, target) in enumerate(zip(logs, done, strict=True))
                if isinstance(target, int) and self.directory_of(log) is directory
            }
            starts: dict[TopicPartition, int] = {}
            for log, target in moved.values():
                where = (log.topic, log.partition)
                starts[where] = max(target, starts.get(where, target))
            try:
                if not directory.has_written_log_starts(starts):
                    directory.write_log_starts(starts)
            except DataDirectoryError as failure:
                for number in moved:
                    done[number] = StorageError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
                continue
            for log, target in moved.values():
                log.trimming.advance_log_start(target)
        return done

    def write_recovery_points(self, logs: Iterable[PartitionLog]) -> None:
        """Write the recovery points of the directories of some logs. Waits for the disk. Raises
        DataDirectoryError."""
        for directory in {id(each): each for each in map(self.directory_of, logs)}.values():
            directory.write_recovery_points()

    # ---- stop

    def stop_background(self) -> None:
        """Make scans in the background end at their next block. The scans must have ended before
        `close`, which unlocks the directories."""
        self._options.handles.halted = True

    def close(self, *, clean: bool = True) -> list[str]:
        """Close all directories; returns the problems.

        `clean`: flush every log, write the checkpoints, and, if all of this worked, write the
        marker of a clean stop, so that the next start trusts the logs and checkpoints (L-30). A
        second call does nothing.
        """
        if self._closed:
            return []
        self._closed = True
        return [
            problem for directory in self.directories for problem in directory.close(clean=clean)
        ]
