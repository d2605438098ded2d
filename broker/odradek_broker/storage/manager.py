"""All partition logs of one data directory: start, stop, checkpoints, retention (L-20, L-30..L-38)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from odradek_broker.seams import Clock, Files, Randomness, write_atomically
from odradek_broker.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    ZERO_UUID,
    CorruptCheckpoint,
    TopicPartition,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_meta_properties,
    encode_offsets,
    encode_topic_id,
    read_small_file,
)
from odradek_broker.storage.errors import DataDirectoryError, DataDirectoryInUse, StorageError
from odradek_broker.storage.handles import HandleCache
from odradek_broker.storage.log import LogOptions, LogStart, PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.recovery import RecoveryReport

_DELETED_SUFFIX = "-delete"
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'


@dataclass(slots=True)
class MaintenanceReport:
    """What a retention pass did."""

    deleted_segments: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Left:
    """What the last run left behind."""

    clean: bool
    names: list[str]
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    log_ends: dict[TopicPartition, int] = field(default_factory=dict)
    problems: list[RecoveryReport] = field(default_factory=list)


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
    ) -> None:
        """`cluster_id` is what a new directory gets; None makes one up. `max_producer_ids` counts
        for each partition."""
        self.data_dir = data_dir
        self.default_config = default_config
        self._files = files
        self._clock = clock
        self._randomness = randomness
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._doomed_directories: list[tuple[int, str]] = []
        self._left: _Left | None = None
        self._closed = False
        self._options = LogOptions(
            files,
            HandleCache(files, max_open_files),
            randomness,
            max_producer_ids,
            producer_expiration_ms,
        )
        self._release = self._take_lock()
        try:
            self.cluster_id, self.node_id = self._identify(cluster_id, node_id)
        except BaseException:
            self._release()
            raise

    def _path(self, name: str) -> str:
        return f"{self.data_dir}/{name}"

    # ---- the directory

    def _take_lock(self) -> Callable[[], None]:
        try:
            self._files.make_dirs(self.data_dir)
            return self._files.lock(self._path(LOCK))
        except BlockingIOError:
            raise DataDirectoryInUse(self.data_dir) from None
        except OSError as problem:
            raise DataDirectoryError(
                f"the data directory {self.data_dir} cannot be used: {problem}; make it writable or"
                " choose another --data-dir"
            ) from problem

    def _identify(self, cluster_id: str | None, node_id: int) -> tuple[str, int]:
        """Read or write meta.properties: a directory keeps its cluster and its node for life."""
        path = self._path(META_PROPERTIES)
        try:
            text = read_small_file(self._files, path)
        except CorruptCheckpoint as problem:
            raise DataDirectoryError(f"{problem}; this is not a broker's directory") from problem
        except OSError as problem:
            raise DataDirectoryError(f"{path} cannot be read: {problem}") from problem
        if text is None:
            cluster_id = cluster_id or encode_topic_id(self._randomness.uuid())
            self._write(META_PROPERTIES, encode_meta_properties(cluster_id, node_id))
            return cluster_id, node_id
        properties = decode_meta_properties(text)
        found = properties.get("cluster.id", "")
        if not found or properties.get("version") not in ("0", "1"):
            raise DataDirectoryError(
                f"{path} names no cluster.id, or has a version other than 0 and 1"
            )
        if cluster_id is not None and found != cluster_id:
            raise DataDirectoryError(
                f"{self.data_dir} belongs to cluster {found}, not {cluster_id}"
            )
        owner = properties.get("node.id", properties.get("broker.id", str(node_id)))
        if owner != str(node_id):
            raise DataDirectoryError(
                f"{self.data_dir} belongs to node {owner}, this one is node {node_id}; set node.id"
                " accordingly or choose another --data-dir"
            )
        return found, node_id

    def _write(self, name: str, content: bytes) -> None:
        try:
            write_atomically(self._files, self._path(name), content)
        except OSError as problem:
            raise DataDirectoryError(
                f"{self._path(name)} cannot be written: {problem}"
            ) from problem

    # ---- start

    def open_metadata(self, topic: str, topic_id: bytes) -> list[RecoveryReport]:
        """Open, or make, the one partition of the cluster's own metadata log, which says what else
        there should be. It keeps everything. Raises DataDirectoryError, StorageError."""
        left = self._read_what_was_left()
        config = LogConfig(
            retention_ms=-1,
            retention_bytes=-1,
            max_message_bytes=2**31 - 1,
            durability=self.default_config.durability,
        )
        key = (topic, 0)
        if f"{topic}-0" not in left.names:
            self.create(topic, 0, topic_id, config)
            return []
        log = self._adopt(key, config, left)
        log.load(self._clock.wall_ms())
        return [log.report] if log.report.problem else []

    def open_all(self, configs: Callable[[str], LogConfig]) -> list[RecoveryReport]:
        """Find every other partition; `configs` gives the settings of a topic.

        After a clean stop nothing but names and checkpoints is read, and logs open at first use
        (L-30). After a crash every log is opened and recovered now. Returns what was not as it
        should be: torn ends that were cut, checkpoints computed again, logs that are offline
        because they could not be opened. Raises DataDirectoryError.
        """
        left = self._read_what_was_left()
        reports = list(left.problems)
        left.problems.clear()
        for name in left.names:
            if name.endswith(_DELETED_SUFFIX):
                self._files.remove_tree(self._path(name))
                continue
            key = _parse_directory(name)
            if key is None or key in self._logs:
                continue
            log = self._adopt(key, configs(key[0]), left)
            if log.report.problem:
                reports.append(log.report)
        return reports

    def _read_what_was_left(self) -> _Left:
        """Names and checkpoints, read once; the mark of a clean stop is taken away, for from here
        on a crash must be recognised as one."""
        if self._left is not None:
            return self._left
        try:
            names = self._files.list(self.data_dir)
            left = _Left(clean=CLEAN_SHUTDOWN in names, names=names)
            if left.clean:
                self._files.remove(self._path(CLEAN_SHUTDOWN))
                self._files.sync_dir(self.data_dir)
        except OSError as problem:
            raise DataDirectoryError(f"{self.data_dir} cannot be read: {problem}") from problem
        left.log_starts = self._read_offsets(LOG_STARTS, left)
        left.recovery_points = self._read_offsets(RECOVERY_POINTS, left)
        left.log_ends = self._read_offsets(HIGH_WATERMARKS, left)
        self._left = left
        return left

    def _read_offsets(self, name: str, left: _Left) -> dict[TopicPartition, int]:
        try:
            text = read_small_file(self._files, self._path(name))
            return {} if text is None else decode_offsets(text)
        except (CorruptCheckpoint, OSError) as problem:
            report = RecoveryReport(name, -1)
            report.problem = f"{self._path(name)} is computed again: {problem}"
            left.problems.append(report)
            return {}

    def _adopt(self, key: TopicPartition, config: LogConfig, left: _Left) -> PartitionLog:
        """A partition that is there. What goes wrong stands in its report."""
        directory = self._path(f"{key[0]}-{key[1]}")
        start = LogStart(
            left.log_starts.get(key, 0),
            left.log_ends.get(key, 0),
            left.recovery_points.get(key, 0),
            left.clean and key in left.log_ends and key in left.log_starts,
        )
        log = self._new_log(key, ZERO_UUID, directory, config, start)
        self._logs[key] = log
        try:
            log.topic_id = self._read_topic_id(directory)
            if not start.clean:
                log.load(self._clock.wall_ms())
        except (CorruptCheckpoint, OSError) as problem:
            log.report.problem = f"{directory}/{PARTITION_METADATA}: {problem}"
        except StorageError as problem:
            log.report.problem = str(problem)
        return log

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

    def _read_topic_id(self, directory: str) -> bytes:
        """All zeros where the file did not reach the disk; the cluster's metadata knows it."""
        text = read_small_file(self._files, f"{directory}/{PARTITION_METADATA}")
        return ZERO_UUID if text is None else decode_partition_metadata(text)

    # ---- partitions

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        return self._logs.get((topic, partition))

    def require(self, topic: str, partition: int) -> PartitionLog:
        """KeyError if it is not there."""
        return self._logs[topic, partition]

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
        log = self._new_log(key, topic_id, directory, config, LogStart())
        try:
            log.create_files(self._clock.wall_ms())
        except OSError as problem:
            raise DataDirectoryError(f"{directory} cannot be made: {problem}") from problem
        self._logs[key] = log
        return log

    def _check_topic_id(self, log: PartitionLog, topic_id: bytes) -> None:
        if log.topic_id == topic_id:
            return
        if log.topic_id != ZERO_UUID:
            raise ValueError(
                f"{log.name} is there already, with topic id {encode_topic_id(log.topic_id)}"
                f" instead of {encode_topic_id(topic_id)}"
            )
        log.write_topic_id(topic_id)

    def delete(self, topic: str, partition: int) -> None:
        """Take a partition out of service now; its files are removed later (L-01, L-38).
        Silent if it is not there. OSError if it cannot be renamed: try again."""
        log = self._logs.get((topic, partition))
        if log is None:
            return
        doomed = f"{log.directory}.{self._randomness.uuid().hex()}{_DELETED_SUFFIX}"
        self._files.rename(log.directory, doomed)
        del self._logs[topic, partition]
        log.abandon()
        due_ms = self._clock.wall_ms() + log.config.file_delete_delay_ms
        self._doomed_directories.append((due_ms, doomed))

    # ---- maintenance

    def apply_retention(self, now_ms: int) -> MaintenanceReport:
        """One pass over all logs (L-20). A log that fails is named in the report."""
        report = MaintenanceReport()
        for log in self:
            self.apply_retention_to(log, now_ms, report)
        return report

    def apply_retention_to(self, log: PartitionLog, now_ms: int, report: MaintenanceReport) -> None:
        """The same for one log, for a shell that wants to breathe in between."""
        if log.offline:
            return
        try:
            count = log.apply_retention(now_ms)
        except (StorageError, OSError) as problem:
            report.problems.append(f"retention of {log.name}: {problem}")
            return
        if count:
            report.deleted_segments[log.name] = count

    def remove_deleted_files(self, now_ms: int) -> int:
        """Remove what was deleted long enough ago; how many files and directories. OSError."""
        count = sum(log.remove_deleted_files(now_ms) for log in self)
        while self._doomed_directories and self._doomed_directories[0][0] <= now_ms:
            self._files.remove_tree(self._doomed_directories[0][1])
            del self._doomed_directories[0]
            count += 1
        return count

    def remove_expired_producers(self, now_ms: int) -> int:
        """P-24, for the logs that are open; how many went."""
        return sum(
            len(log.producers.remove_expired(now_ms))
            for log in self
            if log.loaded and not log.offline
        )

    # ---- checkpoints

    def write_checkpoints(self) -> None:
        """Recovery points, log starts and high watermarks, so that a start after a crash has less
        to scan. Call it every minute or so; it waits for the disk. DataDirectoryError."""
        logs = self._logs.items()
        self._write(RECOVERY_POINTS, encode_offsets({key: log.recovery_point for key, log in logs}))
        self._write_log_starts()
        self._write(HIGH_WATERMARKS, encode_offsets({key: log.high_watermark for key, log in logs}))

    def _write_log_starts(self) -> None:
        self._write(
            LOG_STARTS,
            encode_offsets({key: log.log_start_offset for key, log in self._logs.items()}),
        )

    def _keep_log_start(self, log: PartitionLog) -> None:
        """DeleteRecords may not be taken back by a crash (L-10)."""
        self._write_log_starts()

    # ---- stop

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
                self.write_checkpoints()
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
