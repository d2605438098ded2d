"""All partition logs of one data directory: start, stop, checkpoints, retention (L-20,
L-30..L-38)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, repeat

from odradek_broker.platform.seams import Clock, Files, Randomness, Volume, write_atomically
from odradek_broker.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    decode_offsets,
    decode_partition_metadata,
    encode_meta_properties,
    encode_offsets,
    encode_topic_id,
    read_small_file,
)
from odradek_broker.storage.data_directory import read_identity, take_lock
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.disk_watch import DiskWatch
from odradek_broker.storage.errors import (
    DataDirectoryError,
    IndexesBeingRebuilt,
    StorageError,
)
from odradek_broker.storage.handles import BackgroundRunner, HandleCache
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_broker.storage.recovery import RecoveryReport
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID

_DELETED_SUFFIX = "-delete"
_STRAY_SUFFIX = "-stray"
_TRIAL_FILE = "disk-trial.tmp"
_PREPARED_POINTS = RECOVERY_POINTS + ".next"
_PREPARED_CLEANER_OFFSETS = CLEANER_OFFSETS + ".next"
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'


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


@dataclass(slots=True)
class _LastRun:
    """The state of the data directory that the last run left behind."""

    report: StartReport
    names: list[str]
    log_starts: dict[TopicPartition, int]
    recovery_points: dict[TopicPartition, int]
    log_ends: dict[TopicPartition, int]


class LogManager:
    """Owns a data directory from construction to `close`.

    The constructor takes its lock: DataDirectoryInUse if another broker has it, DataDirectoryError
    if the directory cannot be used or belongs to another node.
    """

    def __init__(
        self,
        data_dir: str,
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
    ) -> None:
        """`cluster_id` is what a new directory gets; None makes one up. `max_producer_ids` counts
        for each partition."""
        self.data_dir = data_dir
        self.default_config = default_config
        self.files = files
        self._clock = clock
        self._randomness = randomness
        self._logs: dict[TopicPartition, PartitionLog] = {}
        # Out of service; the flag: are the files to go? Until then they keep their names.
        self._retired: dict[TopicPartition, tuple[PartitionLog, bool]] = {}
        self._retention_due: dict[TopicPartition, None] = {}
        self._snapshots_due: dict[TopicPartition, None] = {}
        #: Up to where logs have been compacted (L-28); the cleaner changes it.
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self._cleaner_generation = 0
        self._written_points: dict[TopicPartition, int] = {}
        # Whom the checkpoints on disk may name. They know names only, and a name may come again.
        self._checkpointed: set[TopicPartition] = set()
        self._points_generation = 0
        self._prepared: tuple[int, dict[TopicPartition, int]] | None = None
        self._closed = False
        #: Log starts have moved that are not on disk; and whether `delete_records` will see to it.
        self._log_starts_moved = False
        self._holds_log_starts = False
        #: Of all partitions together, when they were counted last, and what the tally said then.
        self._producers_counted = self._producers_made = 0
        #: Told of writes that fail.
        self.disk = DiskWatch()
        handles = HandleCache(files, max_open_files, background=background)
        #: What was deleted, until its files are removed.
        self.deleted_files = DeletedFiles(handles)
        self._options = LogOptions(
            files,
            handles,
            randomness,
            self.deleted_files,
            max_producer_ids,
            producer_expiration_ms,
            disk=self.disk,
        )
        self._release = take_lock(files, data_dir)
        try:
            found = read_identity(files, data_dir, cluster_id, node_id)
            self.cluster_id = found or cluster_id or encode_topic_id(randomness.uuid())
            self.node_id = node_id
            if found is None:
                self._write(META_PROPERTIES, encode_meta_properties(self.cluster_id, node_id))
        except BaseException:
            self._release()
            raise

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    def _write(self, name: str, content: bytes) -> None:
        try:
            write_atomically(self.files, self._path(name), content)
        except OSError as problem:
            self.disk.failed(problem, len(content))
            raise DataDirectoryError(
                f"{self._path(name)} cannot be written: {problem.strerror or problem}"
            ) from problem

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
        left = self._read_what_was_left()
        keys = {key: name for name in left.names if (key := _parse_directory(name)) is not None}
        for key in sorted(keys, key=lambda key: (key[0] != first_topic, keys[key])):
            if key not in self._logs:
                self._adopt(key, configs(key[0]), left)
        left.report.logs = len(self._logs)
        return left.report

    def _read_what_was_left(self) -> _LastRun:
        """Names and checkpoints. The mark of a clean stop is taken away, for from here on a crash
        must be recognised as one; deletions that were begun are finished (L-38)."""
        try:
            names = self.files.list(self.data_dir)
            report = StartReport(clean=CLEAN_SHUTDOWN in names)
            if report.clean:
                self.files.remove(self._path(CLEAN_SHUTDOWN))
            # The names of partitions that a crash left in the page cache, too.
            self.files.sync_dir(self.data_dir)
            for name in names:
                if name.endswith(_DELETED_SUFFIX):
                    self.files.remove_tree(self._path(name))
        except OSError as problem:
            raise DataDirectoryError(f"{self.data_dir} cannot be read: {problem}") from problem
        self.cleaner_offsets = self._read_offsets(CLEANER_OFFSETS, report)
        self._written_points = self._read_offsets(RECOVERY_POINTS, report)
        return _LastRun(
            report,
            names,
            log_starts=self._read_offsets(LOG_STARTS, report),
            recovery_points=self._written_points,
            log_ends=self._read_offsets(HIGH_WATERMARKS, report),
        )

    def _read_offsets(self, name: str, report: StartReport) -> dict[TopicPartition, int]:
        try:
            text = read_small_file(self.files, self._path(name))
            offsets = {} if text is None else decode_offsets(text)
        except (CorruptCheckpoint, OSError) as problem:
            report.problems.append(f"{self._path(name)} is computed again: {problem}")
            return {}
        self._checkpointed |= offsets.keys()
        return offsets

    def _adopt(self, key: TopicPartition, config: LogConfig, left: _LastRun) -> None:
        """Take a partition that is there."""
        directory = self._path(f"{key[0]}-{key[1]}")
        start = LogStart(
            left.log_starts.get(key, 0),
            left.log_ends.get(key, 0),
            left.recovery_points.get(key, 0),
            left.report.clean and key in left.log_ends and key in left.log_starts,
            key in self.cleaner_offsets,
        )
        log = self._new_log(
            key, self._read_topic_id(directory, left.report), directory, config, start
        )
        self._logs[key] = log
        try:
            missing = log.missing_at_first_use() if start.clean else ""
            if missing:
                left.report.problems.append(
                    f"{directory}/{missing} is missing or damaged, and computed again"
                )
            if missing or not start.clean:
                left.report.recovered.append(log.load(self._clock.wall_ms()))
        except StorageError as problem:
            left.report.problems.append(str(problem))

    def _new_log(
        self,
        key: TopicPartition,
        topic_id: bytes,
        directory: str,
        config: LogConfig,
        start: LogStart,
    ) -> PartitionLog:
        log = PartitionLog(*key, topic_id, directory, config, self._options, start)
        log.on_log_start = self._keep_log_start
        return log

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

    def volume(self) -> Volume:
        """Where the data directory lies, and the room there. OSError if it cannot be told."""
        return self.files.volume(self.data_dir)

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
        directory = self._path(f"{topic}-{partition}")
        if key in self._checkpointed:
            self._forget_checkpoints(directory)
        log = self._new_log(key, topic_id, directory, config, LogStart())
        try:
            self._schedule_removal(key)
            log.create_files(self._clock.wall_ms())
        except OSError as problem:
            self.disk.failed(problem)
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{directory} cannot be made: {problem.strerror or problem}",
            ) from problem
        self._logs[key] = log
        return log

    def _forget_checkpoints(self, directory: str) -> None:
        """A partition of a deleted topic's name begins at 0: a crash must not give it the offsets
        of its predecessor, behind which its own records would be lost (L-10, L-30)."""
        self._points_generation += 1  # What a worker has prepared names the predecessor.
        try:
            self._write_log_starts()
            self._write_recovery_points()
            self._write(CLEANER_OFFSETS, encode_offsets(self.cleaner_offsets))
        except DataDirectoryError as problem:
            raise StorageError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} cannot be made: {problem}"
            ) from problem
        self._checkpointed = set(self._logs)

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
        log = self._logs.pop(key, None)
        if log is not None:
            log.abandon()
            self._retired[key] = log, False
            self.cleaner_offsets.pop(key, None)
        return log

    def remove_retired(self, log: PartitionLog) -> None:
        """Have the files of a retired partition renamed now and removed later (L-01, L-38). Where
        that fails, it is tried again with each `remove_deleted_files`."""
        key = (log.topic, log.partition)
        found = self._retired.get(key)
        if found is not None and found[0] is log:
            self._retired[key] = log, True
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
        self.deleted_files.add_directory(due_ms, renamed)

    def set_aside(self, topic: str, partition: int) -> str:
        """Take a partition that nobody knows out of service and out of the way, its records kept;
        the new name of its directory. KeyError if it is not there; OSError."""
        log = self._logs[topic, partition]
        kept_as = f"{log.directory}.{self._randomness.uuid().hex()}{_STRAY_SUFFIX}"
        self.files.rename(log.directory, kept_as)
        del self._logs[topic, partition]
        log.abandon()
        self.cleaner_offsets.pop((topic, partition), None)
        return kept_as

    # ---- maintenance

    def look_at_disk(self) -> None:
        """While writes fail, see whether there is room again: those who could tell by writing may
        be kept away until there is."""
        if not self.disk.problem:
            return
        path = self._path(_TRIAL_FILE)
        try:
            try:
                file = self.files.open(path, create=True)
                try:
                    file.append([bytes(self.disk.trial_bytes)])
                finally:
                    file.close()
            finally:
                self.files.remove(path)
        except OSError:
            return
        self.disk.works()

    def open_again(self, now_ms: int) -> None:
        """Try again to open the logs that could not be opened, one a call: a crash may have left it to
        be scanned. It is served again if that works."""
        oldest = next(iter(self._options.unopened.values()), None)
        if oldest is not None:
            oldest.open_again(now_ms)

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
        for key in [key for key, (_, remove) in self._retired.items() if remove]:
            try:
                self._schedule_removal(key)
            except OSError as problem:
                problems.append(f"deleted files could not be removed: {problem}")
        self.deleted_files.remove_due(now_ms)
        return self.deleted_files.take_problems() + problems

    @property
    def removals_pending(self) -> bool:
        """Whether a log that is to be removed still has its old name."""
        return any(remove for _, remove in self._retired.values())

    def sync_names(self) -> None:
        """Make the names of all logs durable. Waits for the disk; OSError."""
        self.files.sync_dir(self.data_dir)

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

    # ---- checkpoints

    def recovery_points_writer(self) -> Callable[[], None] | None:
        """The preparation of a file of where the logs are flushed to, so that a start after a crash
        has less to scan (L-30); None if that has not changed. Call it every minute or so and run
        the result in a worker thread, one at a time: it waits for the disk and raises OSError. Then
        call `use_recovery_points`."""
        points = {key: log.recovery_point for key, log in self._logs.items()}
        self._snapshots_due.update(
            (key, None) for key, log in self._logs.items() if log.wants_snapshot()
        )
        if points == self._written_points:
            return None
        self._prepared = self._points_generation, points
        self._checkpointed |= points.keys()
        prepared = self._path(_PREPARED_POINTS)
        return lambda: write_atomically(self.files, prepared, encode_offsets(points))

    def continue_snapshots(self, at_most: int = 10) -> None:
        """Take snapshots of some of the logs of which the last `recovery_points_writer` found that a start
        after a crash would have much to read (L-30)."""
        for key in list(islice(self._snapshots_due, at_most)):
            del self._snapshots_due[key]
            log = self._logs.get(key)
            if log is not None:
                log.take_snapshot(self._written_points.get(key, 0))

    def use_recovery_points(self) -> None:
        """Put what was prepared in place, unless it has become untrue meanwhile. OSError."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] == self._points_generation:
            self.files.rename(self._path(_PREPARED_POINTS), self._path(RECOVERY_POINTS))
            self._written_points = prepared[1]

    def cleaner_offsets_writer(self) -> Callable[[], None]:
        """What prepares a file of how far logs have been compacted (L-28), in whatever thread. OSError.
        Then call `use_cleaner_offsets`."""
        self._checkpointed |= self.cleaner_offsets.keys()
        self._cleaner_generation = self._points_generation
        content = encode_offsets(self.cleaner_offsets)
        return lambda: write_atomically(self.files, self._path(_PREPARED_CLEANER_OFFSETS), content)

    def use_cleaner_offsets(self) -> None:
        """Put what was prepared in place, unless it has become untrue meanwhile. OSError."""
        if self._cleaner_generation == self._points_generation:
            self.files.rename(self._path(_PREPARED_CLEANER_OFFSETS), self._path(CLEANER_OFFSETS))

    def _write_recovery_points(self) -> None:
        self._write(
            RECOVERY_POINTS,
            encode_offsets({key: log.recovery_point for key, log in self._logs.items()}),
        )

    def _write_log_starts(self) -> None:
        self._checkpointed |= self._logs.keys()
        self._write(
            LOG_STARTS,
            encode_offsets({key: log.log_start_offset for key, log in self._logs.items()}),
        )

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
        if self._log_starts_moved:
            try:
                self._write_log_starts()
            except DataDirectoryError as failure:
                # In memory they have moved; what is not on disk is not told (D5), nor next time.
                unkept = StorageError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
                return [unkept if isinstance(found, int) else found for found in done]
            self._log_starts_moved = False
        return done

    def _keep_log_start(self, log: PartitionLog) -> None:
        """DeleteRecords may not be taken back by a crash (L-10)."""
        self._log_starts_moved = True
        if self._holds_log_starts:
            return
        try:
            self._write_log_starts()
        except DataDirectoryError as problem:
            raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem)) from problem
        self._log_starts_moved = False

    def _write_all_checkpoints(self) -> None:
        """High watermarks count as log ends: a clean stop has flushed everything."""
        logs = self._logs.items()
        self._write_recovery_points()
        self._write_log_starts()
        self._write(HIGH_WATERMARKS, encode_offsets({key: log.high_watermark for key, log in logs}))

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
        problems = [problem for log in self if (problem := self._close_log(log, clean))]
        problems += [log.offline_reason for log in self if log.offline]
        try:
            if clean:
                self._write_all_checkpoints()
                if not problems:
                    self._write(CLEAN_SHUTDOWN, _CLEAN_SHUTDOWN_CONTENT)
        except DataDirectoryError as problem:
            problems.append(str(problem))
        finally:
            self._release()
        return problems

    def _close_log(self, log: PartitionLog, clean: bool) -> str:
        try:
            log.close(clean=clean)
        except (StorageError, OSError) as problem:
            return f"closing {log.name}: {problem}"
        return ""


def _parse_directory(name: str) -> TopicPartition | None:
    """`<topic>-<partition>`; None for anything else."""
    topic, separator, partition = name.rpartition("-")
    if not separator or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return topic, int(partition)
