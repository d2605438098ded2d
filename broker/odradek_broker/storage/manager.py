"""All partition logs of a broker, wherever they lie: start, stop, retention (L-20, L-30..L-38)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, repeat

from odradek_broker.platform.seams import Clock, Files, Randomness
from odradek_broker.storage.checkpoints import (
    META_PROPERTIES,
    PARTITION_METADATA,
    CorruptCheckpoint,
    decode_partition_metadata,
    encode_meta_properties,
    encode_topic_id,
    read_small_file,
)
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.errors import (
    DataDirectoryError,
    IndexesBeingRebuilt,
    StorageError,
)
from odradek_broker.storage.handles import BackgroundRunner, HandleCache
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_directory import LastRun, LogDirectory
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_broker.storage.recovery import RecoveryReport
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID

#: Directories that are renamed while everybody else waits.
_RENAMED_AT_ONCE_MAX = 50
#: Calls all of them, in whatever order and threads, and returns what each raised.
ParallelRunner = Callable[[Sequence[Callable[[], None]]], list[OSError | None]]
_DELETED_SUFFIX = "-delete"
_STRAY_SUFFIX = "-stray"


def one_by_one(works: Sequence[Callable[[], None]]) -> list[OSError | None]:
    """A `ParallelRunner` without threads."""
    return list(map(attempt, works))


def attempt(work: Callable[[], None]) -> OSError | None:
    """What a call raised of the operating system's errors."""
    try:
        work()
    except OSError as problem:
        return problem
    return None


@dataclass(slots=True)
class StartReport:
    """The result of `open_all`. `recovered`: one report for each log that had to be looked at,
    after a crash or because a file of it is missing, even if nothing was wrong with it. `problems`:
    logs that are offline, files computed again."""

    clean: bool
    logs: int = 0
    recovered: list[RecoveryReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class MaintenanceReport:
    """The outcome of a retention pass."""

    deleted_segments: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class LogManager:
    """Owns the data directories from construction to `close`.

    The constructor takes their locks: DataDirectoryInUse if another broker has one,
    DataDirectoryError if one cannot be used or belongs to another node.
    """

    def __init__(
        self,
        data_dirs: Sequence[str],
        files: Files,
        clock: Clock,
        randomness: Randomness,
        default_config: LogConfig,
        *,
        node_id: int = 1,
        cluster_id: str | None = None,
        max_open_files: int = 512,
        max_producer_ids: int = 100_000,
        producer_expiration_ms: int = 86_400_000,
        background: BackgroundRunner | None = None,
        in_parallel: ParallelRunner = one_by_one,
    ) -> None:
        """`cluster_id` is what a new directory gets; None makes one up. `max_producer_ids` counts
        for each partition. `in_parallel` waits for the disk during the start."""
        self.default_config = default_config
        self.files = files
        self._clock = clock
        self._randomness = randomness
        self._logs: dict[TopicPartition, PartitionLog] = {}
        # Out of service; the flag: are the files to go? Until then they keep their names.
        self._retired: dict[TopicPartition, tuple[PartitionLog, bool]] = {}
        self._retention_due: dict[TopicPartition, None] = {}
        self._closed = False
        self._in_parallel = in_parallel
        #: What recovered logs must have synced before anybody reads them.
        self._unsynced: list[tuple[PartitionLog, Callable[[], None]]] = []
        #: Whether `delete_records` will see to it that moved log starts get on disk.
        self._holds_log_starts = False
        #: Of all partitions together, when they were counted last, and what the tally said then.
        self._producers_counted = self._producers_made = 0
        handles = HandleCache(files, max_open_files, background=background)
        self._options = LogOptions(
            files,
            handles,
            randomness,
            DeletedFiles(handles),
            max_producer_ids,
            producer_expiration_ms,
        )
        #: In the order of the settings.
        self.directories = [LogDirectory(path, self._options) for path in data_dirs]
        self._by_path = {directory.path: directory for directory in self.directories}
        #: Where the metadata log lies.
        self.metadata_directory = self.directories[0]
        self.node_id = node_id
        self.cluster_id = self._take_directories(cluster_id)

    def _take_directories(self, cluster_id: str | None) -> str:
        """The id of their cluster."""
        directory = self.metadata_directory
        found = directory.take(cluster_id, self.node_id)
        if found is not None:
            return found.cluster_id
        cluster_id = cluster_id or encode_topic_id(self._randomness.uuid())
        try:
            directory.write(META_PROPERTIES, encode_meta_properties(cluster_id, self.node_id))
        except BaseException:
            directory.release()
            raise
        return cluster_id

    def directory_of(self, log: PartitionLog) -> LogDirectory:
        """Where a log lies."""
        return self._by_path[log.directory.rpartition("/")[0]]

    # ---- start

    def open_all(
        self, configs: Callable[[str], LogConfig], *, first_topic: str = ""
    ) -> StartReport:
        """Find every partition; `configs` gives the settings of a topic, those of `first_topic`
        before all others: it may be where the settings are read from.

        After a clean stop nothing but names and checkpoints is read, and logs open at first use
        (L-30), but for those that could be opened only by reading their batches, for which nobody
        shall wait later. After a crash every log is opened and recovered now. A log that cannot be
        opened is offline and named in the report. Raises DataDirectoryError.
        """
        report = StartReport(clean=True)
        found: dict[TopicPartition, LastRun] = {}
        for directory in self.directories:
            left = directory.read_what_was_left(report.problems)
            report.clean &= left.clean
            keys = (key for name in left.names if (key := _parse_directory(name)) is not None)
            found.update(dict.fromkeys(keys, left))
        for key in sorted(found, key=lambda key: (key[0] != first_topic, f"{key[0]}-{key[1]}")):
            if key not in self._logs:
                self._adopt(key, configs(key[0]), found[key], report)
            if key[0] == first_topic:
                self._sync_recovered(report)
        self._sync_recovered(report)
        report.logs = len(self._logs)
        return report

    def _sync_recovered(self, report: StartReport) -> None:
        """Make durable what was found, of all logs together (D5)."""
        unsynced, self._unsynced = self._unsynced, []
        problems = self._in_parallel([sync for _, sync in unsynced])
        for (log, _), problem in zip(unsynced, problems, strict=True):
            if problem is not None and not log.offline:
                report.problems.append(str(log.recovery_failed(problem)))

    def _adopt(
        self, key: TopicPartition, config: LogConfig, left: LastRun, report: StartReport
    ) -> None:
        """Take a partition that is there."""
        path = left.directory.path_of(f"{key[0]}-{key[1]}")
        start = LogStart(
            left.log_starts.get(key, 0),
            left.log_ends.get(key, 0),
            left.recovery_points.get(key, 0),
            left.clean and key in left.log_ends and key in left.log_starts,
            key in left.directory.cleaner_offsets,
            # Where its recovery point is not known, nobody knows what had been compacted.
            key in left.recovery_points,
        )
        topic_id = self._read_topic_id(path, report)
        log = self._new_log(key, topic_id, left.directory, config, start)
        self._add(log, left.directory)
        try:
            missing = log.missing_at_first_use() if start.clean else ""
            if missing:
                report.problems.append(
                    f"{path}/{missing} is missing or damaged, and computed again"
                )
            if missing or not start.clean:
                syncs: list[Callable[[], None]] = []
                report.recovered.append(log.load(self._clock.wall_ms(), syncs))
                self._unsynced += ((log, sync) for sync in syncs)
        except StorageError as problem:
            report.problems.append(str(problem))

    def _new_log(
        self,
        key: TopicPartition,
        topic_id: bytes,
        directory: LogDirectory,
        config: LogConfig,
        start: LogStart,
    ) -> PartitionLog:
        path = directory.path_of(f"{key[0]}-{key[1]}")
        log = PartitionLog(*key, topic_id, path, config, directory.options, start)
        log.on_log_start = self._keep_log_start
        return log

    def _add(self, log: PartitionLog, directory: LogDirectory) -> None:
        self._logs[log.topic, log.partition] = directory.logs[log.topic, log.partition] = log

    def _remove(self, log: PartitionLog) -> LogDirectory:
        """Out of service; where it lies."""
        key = (log.topic, log.partition)
        directory = self.directory_of(log)
        del self._logs[key], directory.logs[key]
        directory.cleaner_offsets.pop(key, None)
        return directory

    def _read_topic_id(self, directory: str, report: StartReport) -> bytes:
        """All zeros where the file did not reach the disk; the cluster's metadata knows it."""
        try:
            text = read_small_file(self.files, f"{directory}/{PARTITION_METADATA}")
            return ZERO_UUID if text is None else decode_partition_metadata(text)
        except (CorruptCheckpoint, OSError) as problem:
            report.problems.append(f"{directory}/{PARTITION_METADATA}: {problem}")
            return ZERO_UUID

    # ---- partitions

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def run_in_background(
        self, work: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        """For what waits for the disk; at once where there is no background."""
        self._options.handles.run(work, done)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def create(
        self, topic: str, partition: int, topic_id: bytes, config: LogConfig | None = None
    ) -> PartitionLog:
        """Make a partition. One that is there with the same id, or none, is taken as it is: what a
        start finds in the cluster's metadata need not have reached the disk.

        ValueError if it is there with another topic id; StorageError if its files cannot be made.
        """
        key = (topic, partition)
        config = config or self.default_config
        known = self._logs.get(key)
        if known is not None:
            self._check_topic_id(known, topic_id)
            known.config = config
            return known
        directory = self.directories[0]
        path = directory.path_of(f"{topic}-{partition}")
        try:
            directory.forget_checkpoints(key)
        except DataDirectoryError as problem:
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{path} cannot be made: {problem}"
            ) from problem
        log = self._new_log(key, topic_id, directory, config, LogStart())
        try:
            self._schedule_removal(key)
            log.create_files(self._clock.wall_ms())
        except OSError as problem:
            directory.disk.failed(problem)
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
            raise ValueError(
                f"{log.name} is there already, with topic id {encode_topic_id(log.topic_id)}"
                f" instead of {encode_topic_id(topic_id)}"
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
        """Take a partition out of service; its files stay where they are until `remove_retired`,
        or until another partition of the name is made. None if it is not there."""
        key = (topic, partition)
        log = self._logs.get(key)
        if log is not None:
            self._remove(log)
            log.abandon()
            self._retired[key] = log, False
        return log

    def mark_removed(self, log: PartitionLog) -> None:
        """The files of a retired partition are to be removed: `remove_retired` follows, or else it is done by
        `remove_deleted_files`."""
        key = (log.topic, log.partition)
        found = self._retired.get(key)
        if found is not None and found[0] is log:
            self._retired[key] = log, True

    def remove_retired(self, log: PartitionLog) -> None:
        """Have the files of a retired partition renamed now and removed later (L-01, L-38). Where
        that fails, it is tried again with each `remove_deleted_files`."""
        self.mark_removed(log)
        key = (log.topic, log.partition)
        if self._retired.get(key, (None, False))[0] is log:
            with suppress(OSError):
                self._schedule_removal(key)

    def delete(self, topic: str, partition: int) -> None:
        """`retire` and `remove_retired` at once. Silent if it is not there."""
        log = self.retire(topic, partition)
        if log is not None:
            self.remove_retired(log)

    def _schedule_removal(self, key: TopicPartition) -> None:
        """Free the name of a retired partition. OSError."""
        found = self._retired.get(key)
        if found is None:
            return
        log = found[0]
        renamed = f"{log.directory}.{self._randomness.uuid().hex()}{_DELETED_SUFFIX}"
        self.files.rename(log.directory, renamed)
        del self._retired[key]
        due_ms = self._clock.wall_ms() + log.config.file_delete_delay_ms
        self.directory_of(log).deleted_files.add_directory(due_ms, renamed)

    def set_aside(self, topic: str, partition: int) -> str:
        """Take a partition that nobody knows out of service and out of the way, its records kept;
        the new name of its directory. KeyError if it is not there; OSError."""
        log = self._logs[topic, partition]
        kept_as = f"{log.directory}.{self._randomness.uuid().hex()}{_STRAY_SUFFIX}"
        self.files.rename(log.directory, kept_as)
        self._remove(log)
        log.abandon()
        return kept_as

    # ---- maintenance

    def look_at_disks(self) -> None:
        """While writes fail, see whether there is room again."""
        for directory in self.directories:
            directory.look_at_disk()

    def open_again(self, now_ms: int) -> None:
        """Try again to open the logs that could not be opened, one of each directory a call."""
        for directory in self.directories:
            directory.open_again(now_ms)

    def continue_snapshots(self) -> None:
        """Take some of the snapshots that are due in each directory (L-30)."""
        for directory in self.directories:
            directory.continue_snapshots()

    def begin_retention(self) -> None:
        """Have `continue_retention` look at every log once (L-20); one that waits still is not
        asked twice."""
        self._retention_due.update(dict.fromkeys(self._logs))

    def continue_retention(self, now_ms: int, at_most: int = 20) -> MaintenanceReport:
        """Apply retention to some of the logs that are due: it may have to open them, and the loop
        has other things to do. A log that fails is named in the report."""
        report = MaintenanceReport()
        for key in list(islice(self._retention_due, at_most)):
            del self._retention_due[key]
            log = self._logs.get(key)
            if log is not None and not log.offline:
                self._apply_retention(log, now_ms, report)
        return report

    def apply_retention(self, now_ms: int) -> MaintenanceReport:
        """The whole pass at once."""
        self.begin_retention()
        return self.continue_retention(now_ms, len(self._logs))

    def _apply_retention(self, log: PartitionLog, now_ms: int, report: MaintenanceReport) -> None:
        try:
            count = log.apply_retention(now_ms)
        except IndexesBeingRebuilt:
            self._retention_due[log.topic, log.partition] = None
            return
        except (StorageError, OSError) as problem:
            report.problems.append(f"retention of {log.name}: {problem}")
            return
        if count:
            report.deleted_segments[log.name] = count

    def remove_deleted_files(self, now_ms: int) -> list[str]:
        """Begin to remove what was deleted long enough ago; what went wrong since the last call, and
        is tried again later."""
        problems = []
        due = (key for key, (_, remove) in self._retired.items() if remove)
        for key in list(islice(due, _RENAMED_AT_ONCE_MAX)):
            try:
                self._schedule_removal(key)
            except OSError as problem:
                problems.append(f"deleted files could not be removed: {problem}")
                self._retired[key] = self._retired.pop(key)  # After the others.
        for directory in self.directories:
            directory.deleted_files.remove_due(now_ms)
            problems = directory.deleted_files.take_problems() + problems
        return problems

    @property
    def removals_pending(self) -> bool:
        """Whether a log that is to be removed still has its old name."""
        return any(remove for _, remove in self._retired.values())

    def sync_names(self) -> None:
        """Make the names of all logs durable. Waits for the disk; OSError."""
        for directory in self.directories:
            directory.sync_names()

    def in_background(
        self, work: Callable[[], None], done: Callable[[Exception | None], None]
    ) -> None:
        """Work beside the loop, then call `done` on it with what ended the work; at once where there
        is no loop."""
        background = self._options.handles.background
        if background is not None:
            background(work, done)
            return
        try:
            work()
        except OSError as problem:
            done(problem)
        else:
            done(None)

    def remove_expired_producers(self, now_ms: int) -> int:
        """P-24, for the logs that are open; how many went."""
        return sum(
            log.remove_expired_producers(now_ms) for log in self if log.loaded and not log.offline
        )

    def forget_producers_beyond(self, most: int) -> int:
        """Forget those that wrote longest ago in whatever partition, so that `most` are left in all
        partitions together; how many went. Those with an open transaction stay.

        It looks at the partitions only where there could be so many: idle ones cost nothing.
        """
        made = self._options.producer_tally.made
        if self._producers_counted + made - self._producers_made <= most:
            return 0
        states = [log.producers for log in self if log.loaded and not log.offline]
        count = sum(map(len, states))
        self._producers_counted, self._producers_made = count, made
        excess = count - most
        if excess <= 0:
            return 0
        # Each partition in the order in which it was written, also where timestamps fall: what is
        # behind a newer one is no older than that, as far as anybody can tell.
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
        """`PartitionLog.delete_records` on several logs, with one checkpoint for all of them; the
        new log start of each, or why there is none."""
        done: list[int | StorageError] = []
        self._holds_log_starts = True
        try:
            for log, offset in wanted:
                try:
                    done.append(log.delete_records(offset))
                except StorageError as problem:
                    done.append(problem)
        finally:
            self._holds_log_starts = False
        for directory in self.directories:
            if not directory.log_starts_moved:
                continue
            try:
                directory.write_log_starts()
            except DataDirectoryError as failure:
                # In memory they have moved; what is not on disk is not told (D5), nor next time.
                unkept = StorageError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
                for place, (log, _) in enumerate(wanted):
                    if isinstance(done[place], int) and self.directory_of(log) is directory:
                        done[place] = unkept
            else:
                directory.log_starts_moved = False
        return done

    def _keep_log_start(self, log: PartitionLog) -> None:
        """DeleteRecords may not be taken back by a crash (L-10)."""
        directory = self.directory_of(log)
        directory.log_starts_moved = True
        if self._holds_log_starts:
            return
        try:
            directory.write_log_starts()
        except DataDirectoryError as problem:
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
        directory.log_starts_moved = False

    # ---- stop

    def stop_background(self) -> None:
        """Let what reads in the background give up at its next block. It must have ended before
        `close`, which lets others have the directory."""
        self._options.handles.halted = True

    def close(self, *, clean: bool = True) -> list[str]:
        """Stop using the directory; what went wrong, if anything.

        `clean`: flush every log, write the checkpoints, and, if all of that worked, leave the
        marker that lets the next start trust them (L-30). Does nothing the second time.
        """
        if self._closed:
            return []
        self._closed = True
        return [
            problem for directory in self.directories for problem in directory.close(clean=clean)
        ]


def _parse_directory(name: str) -> TopicPartition | None:
    """`<topic>-<partition>`; None for anything else."""
    topic, separator, partition = name.rpartition("-")
    if not separator or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return topic, int(partition)
