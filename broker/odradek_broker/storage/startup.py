"""The opening of all logs when the broker starts (L-30 to L-35, L-41, L-46)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Protocol

from odradek_broker.platform.seams import Clock, Files, Randomness
from odradek_broker.storage.checkpoints import (
    LEADER_EPOCHS,
    LOG_STARTS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    decode_epochs,
    decode_partition_metadata,
    read_small_file,
)
from odradek_broker.storage.errors import DataDirectoryError, DataDirectoryFailed, StorageError
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_directories import LogDirectories
from odradek_broker.storage.log_directory import (
    DELETED_SUFFIX,
    STRAY_SUFFIX,
    LastRun,
    LogDirectory,
)
from odradek_broker.storage.log_options import LogStart
from odradek_broker.storage.recovery import RecoveryReport
from odradek_broker.storage.segment import segment_name
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.primitives import ZERO_UUID

_FIRST_SEGMENT = f"{segment_name(0)}.log"
#: Makes all calls, in any order and in any threads. Returns for each call the OSError that it
#: raised, or None.
ParallelRunner = Callable[[Sequence[Callable[[], None]]], list[OSError | None]]


def one_by_one(works: Sequence[Callable[[], None]]) -> list[OSError | None]:
    """A `ParallelRunner` without threads."""
    return list(map(attempt, works))


def attempt(work: Callable[[], None]) -> OSError | None:
    """The OSError that a call raised; None if it succeeded."""
    try:
        work()
    except OSError as problem:
        return problem
    return None


class KnownTopics(Protocol):
    """The topics in the cluster's metadata."""

    def topic_id(self, topic: str, /) -> bytes | None:
        """The id of a topic; None if there is no such topic."""
        ...

    def is_removed(self, topic_id: bytes, /) -> bool:
        """True if the metadata records the removal of the topic. Old removals are dropped from the
        metadata after some time."""
        ...


@dataclass(slots=True)
class StartReport:
    """The result of a start. `recovered`: one report for each log that was recovered, after a crash
    or because a file of the log is missing, even if no damage was found. `problems`: texts about
    logs that are offline and files whose content was computed again."""

    clean: bool
    logs: int = 0
    recovered: list[RecoveryReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class LogStartup:
    """A start of the broker's logs. `configs` returns the settings of a topic; it is called for
    `metadata_topic` first, because the settings of all others are read from that log. `topics`:
    None if no topic is known. `opened` is called with each log and its directory; `in_parallel`
    runs functions that wait for the disk."""

    def __init__(
        self,
        directories: LogDirectories,
        files: Files,
        clock: Clock,
        randomness: Randomness,
        configs: Callable[[str], LogConfig],
        opened: Callable[[PartitionLog, LogDirectory], None],
        in_parallel: ParallelRunner,
        metadata_topic: str,
        topics: KnownTopics | None,
    ) -> None:
        self._directories = directories
        self._files = files
        self._clock = clock
        self._randomness = randomness
        self._configs = configs
        self._opened = opened
        self._in_parallel = in_parallel
        self._metadata_topic = metadata_topic
        self._topics = topics
        self._report = StartReport(clean=False)
        #: Syncs of recovered logs, to be called before the logs are read.
        self._unsynced: list[tuple[PartitionLog, Callable[[], None]]] = []

    def open_all(self) -> StartReport:
        """Open the logs of all partitions in all directories. Raises DataDirectoryError.

        After a clean stop nothing but names and checkpoints is read, and logs open at first use
        (L-30). Only logs that cannot be opened without reading their batches are opened in this
        call, so that no client has to wait for it later. After a crash every log is opened and
        recovered in this call. A log that cannot be opened is offline and named in the report.
        """
        report, first = self._report, self._metadata_topic
        found = self._find_all()
        for key in sorted(found, key=lambda key: (key[0] != first, f"{key[0]}-{key[1]}")):
            if key[0] == first:
                self._check_metadata_directory(key, found[key])
            config = self._configs(key[0])
            # The settings of the first other topic are read after the metadata log, which has the
            # topic ids.
            known_id = None if self._topics is None else self._topics.topic_id(key[0])
            chosen = self._choose(key, found[key], known_id)
            if chosen is not None:
                self._open(key, config, *chosen, known_id)
                report.logs += 1
            if key[0] == first:
                self._sync_recovered()
        self._sync_recovered()
        for directory in self._directories.online:
            try:
                directory.begin_recovery_points()
            except DataDirectoryError as problem:
                report.problems.append(str(problem))
        return report

    def _sync_recovered(self) -> None:
        """Make durable what recovery wrote, for all logs at the same time (D5)."""
        unsynced, self._unsynced = self._unsynced, []
        problems = self._in_parallel([sync for _, sync in unsynced])
        for (log, _), problem in zip(unsynced, problems, strict=True):
            if problem is not None and not log.offline:
                self._report.problems.append(str(log.recovery_failed(problem)))

    # ---- finding partitions

    def _find_all(self) -> dict[TopicPartition, list[LastRun]]:
        """All partitions, each with the directories that have a partition of this name. Raises
        DataDirectoryError."""
        report = self._report
        found: dict[TopicPartition, list[LastRun]] = {}
        clean: dict[bool, bool] = {}
        for directory in self._directories.all:
            try:
                if not directory.failure:
                    left = directory.read_what_was_left(report.problems)
            except DataDirectoryFailed as problem:
                if directory is self._directories.metadata:
                    raise
                directory.failure = str(problem)
            if directory.failure:
                report.problems.append(
                    f"{directory.failure}; what is in it is offline until a start can use it"
                )
                continue
            keys = {key for name in left.names if (key := _parse_name(name)) is not None}
            for key in keys:
                found.setdefault(key, []).append(left)
            # A new directory has no mark of a clean stop. Directories without partitions are
            # counted separately, so that a new directory does not make the last stop unclean.
            clean[bool(keys)] = clean.get(bool(keys), True) and left.clean
        report.clean = clean.get(True, clean.get(False, False))
        if not self._directories.usable:
            raise DataDirectoryError(
                f"none of log.dirs can be used: {'; '.join(report.problems)}; check the disks, or set"
                " log.dirs to other directories"
            )
        return found

    def _check_metadata_directory(self, key: TopicPartition, found: Sequence[LastRun]) -> None:
        """Raise DataDirectoryError if there is a metadata log in another directory than the one
        that the settings name.
        """
        here = self._directories.metadata
        for left in found:
            if left.directory is not here:
                raise DataDirectoryError(
                    f"{left.directory.path_of(f'{key[0]}-{key[1]}')} is a metadata log, but that is"
                    f" looked for in {here.path}: set metadata.log.dir to {left.directory.path}, or"
                    " remove the one that is wrong"
                )

    def _choose(
        self, key: TopicPartition, found: Sequence[LastRun], wanted: bytes | None
    ) -> tuple[LastRun, bytes] | None:
        """The data directory that has the partition itself (L-41, L-54), among those that have a
        subdirectory of its name, and the topic id in that subdirectory; None if none of them has
        the partition. `wanted`: the topic's id in the metadata, None for an unknown topic.

        The other subdirectories of this name are renamed: they belong to a topic that was deleted
        while a data directory could not be used, to a topic that the metadata log has lost, or to a
        partition whose creation was never finished. Raises DataDirectoryError if two data
        directories have the partition, or if the metadata log has another topic id.
        """
        name = f"{key[0]}-{key[1]}"
        problems = self._report.problems
        ids = {
            left: _read_topic_id(self._files, left.directory.path_of(name), problems)
            for left in found
        }
        own = [left for left in found if ids[left] == wanted]
        # A partition whose topic id has not reached the disk has acknowledged no record.
        own = own or [left for left in found if wanted is None or ids[left] == ZERO_UUID]
        if len(own) > 1:
            # If the disk failed while the partition was created, an empty partition was left there,
            # and the partition was created in another data directory.
            written = [e for e in own if not self._is_blank(e.directory.path_of(name))]
            own = written or own[:1]
        if len(own) > 1 and wanted is not None:
            paths = " and ".join(left.directory.path_of(name) for left in own)
            raise DataDirectoryError(
                f"the partition {name} is in two data directories, {paths}: move the one that is not"
                " wanted out of the way"
            )
        if key[0] == self._metadata_topic and not own:
            path = found[0].directory.path_of(name)
            raise DataDirectoryError(
                f"{path}/{PARTITION_METADATA} has the topic id of another topic, not that of the"
                f" cluster's metadata: restore {path} from a backup; if its log is the right one,"
                f" remove {PARTITION_METADATA}, and the next start writes it again"
            )
        for left in found:
            if left not in own[:1]:
                removed = self._topics is not None and self._topics.is_removed(ids[left])
                self._rename_unwanted(left, left.directory.path_of(name), removed=removed)
        return (own[0], ids[own[0]]) if own else None

    def _is_blank(self, path: str) -> bool:
        """True if the partition at a path has never had a record."""
        try:
            segments = [each for each in self._files.list(path) if each.endswith(".log")]
            return all(
                each == _FIRST_SEGMENT and self._size_bytes(f"{path}/{each}") == 0
                for each in segments
            )
        except OSError:
            return False

    def _size_bytes(self, path: str) -> int:
        file = self._files.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _rename_unwanted(self, left: LastRun, path: str, *, removed: bool) -> None:
        """Rename a partition's directory. The directory will be deleted if the topic was removed or
        the partition has no record; otherwise it is kept as a stray. Raises DataDirectoryError."""
        gone = self._is_blank(path) or removed
        suffix = DELETED_SUFFIX if gone else STRAY_SUFFIX
        renamed = f"{path}.{self._randomness.uuid().hex()}{suffix}"
        try:
            self._files.rename(path, renamed)
        except OSError as problem:
            raise DataDirectoryError(
                f"{path} is of a topic of the same name that the metadata does not have, and cannot be"
                f" renamed: {problem}; make room or move it out of the way"
            ) from problem
        if gone:
            left.directory.deleted_files.add_directory(self._clock.wall_ms(), renamed)
        else:
            self._report.problems.append(
                f"{path} is of a topic of the same name that the metadata does not have; it is kept"
                f" as {renamed}"
            )

    # ---- opening a partition

    def _open(
        self,
        key: TopicPartition,
        config: LogConfig,
        left: LastRun,
        topic_id: bytes,
        topic_id_known: bytes | None,
    ) -> None:
        """Take a partition into service. `topic_id`: the id in its directory, all zeros if there is
        none; `topic_id_known`: the topic's id in the metadata."""
        problems = self._report.problems
        path = left.directory.path_of(f"{key[0]}-{key[1]}")
        start = self._start_of(key, left, path)
        log = left.directory.new_log(key, topic_id, config, start)
        unwritten = topic_id == ZERO_UUID and topic_id_known is not None
        if unwritten:
            # The id is set before the log is opened, because the journal's entries have it (L-52).
            with suppress(OSError):
                log.write_topic_id(topic_id_known or ZERO_UUID)
                unwritten = False
        self._opened(log, left.directory)
        try:
            missing = log.missing_at_first_use() if start.clean else ""
            if missing:
                problems.append(f"{path}/{missing} is missing or damaged, and computed again")
            if missing or not start.clean:
                syncs: list[Callable[[], None]] = []
                self._report.recovered.append(log.load(self._clock.wall_ms(), syncs))
                self._unsynced += ((log, sync) for sync in syncs)
        except StorageError as problem:
            problems.append(str(problem))
        if unwritten:
            log.topic_id = ZERO_UUID

    def _start_of(self, key: TopicPartition, left: LastRun, path: str) -> LogStart:
        """The offsets at which the last run left a log."""
        log_start_offset = left.log_starts.get(key, 0)
        if key not in left.log_starts and not left.log_starts_known:
            log_start_offset = self._first_epoch_start(path)
            if log_start_offset and self._begins_inside_a_segment(path, log_start_offset):
                self._report.problems.append(
                    f"{path} is taken to begin at offset {log_start_offset}, as its {LEADER_EPOCHS}"
                    f" says: {LOG_STARTS} does not say it any more"
                )
        recovery_point = left.recovery_points.get(key, 0)
        cleaned_to = left.directory.cleaner_offsets.get(key)
        return LogStart(
            log_start_offset,
            left.log_ends.get(key, 0),
            recovery_point,
            left.clean and key in left.log_ends and key in left.log_starts,
            cleaned_to is not None,
            # `gaps_known`. If false, the recovery point is missing, was written by another broker,
            # or is an old copy, and it is unknown which segments were compacted.
            (
                key in left.checked_points
                or (left.all_points_checked and key not in left.recovery_points)
            )
            and (cleaned_to or 0) <= recovery_point,
        )

    def _first_epoch_start(self, path: str) -> int:
        """The start offset of a partition's first leader epoch. The log start is the same offset,
        because both move together (L-10). 0 if the checkpoint of leader epochs does not have it."""
        try:
            text = read_small_file(self._files, f"{path}/{LEADER_EPOCHS}")
            epochs = () if text is None else decode_epochs(text)
        except (CorruptCheckpoint, OSError):
            return 0  # Opening the log reports the error.
        return min((start for _, start in epochs), default=0)

    def _begins_inside_a_segment(self, path: str, log_start_offset: int) -> bool:
        """True if no segment begins at the log start. Only DeleteRecords moves a log start into a
        segment, and DeleteRecords writes the new log start to disk (L-10). Retention and snapshots
        of the metadata move a log start to the start of a segment, and do not write it to disk."""
        with suppress(OSError):  # Opening the log reports the error.
            return f"{segment_name(log_start_offset)}.log" not in self._files.list(path)
        return False


def _read_topic_id(files: Files, path: str, problems: list[str]) -> bytes:
    """The topic id in a partition's directory; all zeros if the file did not reach the disk: the
    cluster's metadata has the id."""
    try:
        text = read_small_file(files, f"{path}/{PARTITION_METADATA}")
        return ZERO_UUID if text is None else decode_partition_metadata(text)
    except (CorruptCheckpoint, OSError) as problem:
        problems.append(f"{path}/{PARTITION_METADATA}: {problem}")
        return ZERO_UUID


def _parse_name(name: str) -> TopicPartition | None:
    """`<topic>-<partition>`; None for any other name."""
    topic, separator, partition = name.rpartition("-")
    if not separator or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return topic, int(partition)
