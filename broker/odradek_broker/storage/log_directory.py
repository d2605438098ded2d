"""A data directory (one of `log.dirs`): the logs in it, their checkpoints, and the state of its
disk (L-30, L-35, L-41 to L-43)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from odradek_broker.platform.seams import Volume, write_atomically
from odradek_broker.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_LOCK,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    OffsetLines,
    decode_meta_properties,
    decode_offsets,
    decode_sound_offsets,
    encode_meta_properties,
    encode_offsets,
    read_small_file,
)
from odradek_broker.storage.deleted_files import DeletedFiles
from odradek_broker.storage.disk_watch import DiskWatch
from odradek_broker.storage.errors import (
    DataDirectoryFailed,
    DataDirectoryInUse,
    StorageError,
    no_room,
    out_of_files,
)
from odradek_broker.storage.journal import CommitJournal
from odradek_broker.storage.log import PartitionLog
from odradek_broker.storage.log_config import LogConfig
from odradek_broker.storage.log_options import LogOptions, LogStart
from odradek_broker.storage.meta_properties import MetaProperties, read_meta_properties
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import ZERO_UUID, uuid_text

#: Suffixes of directories that are to be removed, and of strays, which are kept.
DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
_TRIAL_FILE = "disk-trial.tmp"
_PREPARED_POINTS = RECOVERY_POINTS + ".next"
_PREPARED_CLEANING_POINTS = RECOVERY_POINTS + ".cleaning.next"
_PREPARED_CLEANER_OFFSETS = CLEANER_OFFSETS + ".next"
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'


def _nothing() -> None:
    pass


def _ignore(_: object) -> None:
    pass


class _Entries(NamedTuple):
    """The entries of a checkpoint, the partitions whose entry has a checksum, and a flag: true if
    no entry is missing."""

    offsets: dict[TopicPartition, int]
    checked: Collection[TopicPartition]
    whole: bool


@dataclass(slots=True, eq=False)
class LastRun:
    """The state in which the last run left a directory.

    `log_starts_known`: the checkpoint of log starts is complete. `checked_points`: the partitions
    whose recovery point this broker wrote, so that no gap above it comes from the cleaner;
    `all_points_checked`: `checked_points` has every partition that existed when the recovery
    points were written, so a partition without a recovery point was created later.
    """

    directory: LogDirectory
    clean: bool
    names: list[str]
    log_starts: dict[TopicPartition, int]
    recovery_points: dict[TopicPartition, int]
    log_ends: dict[TopicPartition, int]
    log_starts_known: bool
    checked_points: Collection[TopicPartition]
    all_points_checked: bool


class LogDirectory:
    """The data directory at `path`, which is used only between `take` and `close`. `logs`: its logs
    that are in service; the manager adds and removes them."""

    def __init__(
        self, path: str, shared: LogOptions, on_failed: Callable[[LogDirectory], None] = _ignore
    ) -> None:
        """`shared`: the options that all directories share. `on_failed` is called when the
        directory has failed and all of its logs are offline."""
        self.path = path
        self.absolute_path = shared.files.absolute(path)
        #: A random id, which the directory keeps for its whole life.
        self.directory_id = ZERO_UUID
        #: The reason why the directory is not used until the next start; empty while it is used.
        self.failure = ""
        #: False for the metadata log's directory, which is never given up as a whole (L-42).
        self.may_fail = True
        self.logs: dict[TopicPartition, PartitionLog] = {}
        #: The state of the disk, to which failed writes are reported.
        self.disk = DiskWatch()
        #: Deleted partitions and segments whose files are not removed yet.
        self.deleted_files = DeletedFiles(shared.handles)
        self.journal = CommitJournal(
            shared.handles, shared.randomness, path, shared.journal_bytes_max
        )
        self.journal.on_failed = self._journal_failed
        self.options = replace(
            shared,
            deleted=self.deleted_files,
            disk=self.disk,
            unopened={},
            journal=self.journal,
        )
        #: The offsets up to which logs have been compacted (L-28); the cleaner changes them.
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        #: The log start offsets as they are in the checkpoint on disk.
        self._start_lines = OffsetLines()
        self._log_starts_on_disk: dict[TopicPartition, int] = {}
        self._has_checked_points = False
        self._files = shared.files
        self._cleaner_generation = 0
        self._written_points: dict[TopicPartition, int] = {}
        self._snapshots_due: dict[TopicPartition, None] = {}
        # The partitions that checkpoints on disk may name. The name of a deleted partition may be
        # used again.
        self._checkpointed: set[TopicPartition] = set()
        self._points_generation = 0
        self._prepared: tuple[int, dict[TopicPartition, int]] | None = None
        self._release: Callable[[], None] = _nothing
        self._on_failed = on_failed
        self._trying = self._closed = False
        self._node_id = 0

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def new_log(
        self, key: TopicPartition, topic_id: bytes, config: LogConfig, start: LogStart
    ) -> PartitionLog:
        """A log of this directory, with its files not open yet."""
        path = self.path_of(f"{key[0]}-{key[1]}")
        return PartitionLog(*key, topic_id, path, config, self.options, start)

    def volume(self) -> Volume:
        """The volume of the directory, with its free bytes. Raises OSError."""
        return self._files.volume(self.path)

    def write(self, name: str, content: bytes) -> None:
        """Replace a small file. Raises DataDirectoryFailed."""
        try:
            write_atomically(self._files, self.path_of(name), content)
        except OSError as problem:
            self.disk.failed(problem, len(content))
            raise DataDirectoryFailed(
                f"{self.path_of(name)} cannot be written: {problem.strerror or problem}"
            ) from problem

    # ---- start

    def take(self, cluster_id: str | None, node_id: int) -> MetaProperties | None:
        """Lock the directory, after creating it if it does not exist, and read its meta.properties;
        None if the directory is new. Raises DataDirectoryInUse, DataDirectoryFailed or another
        DataDirectoryError; then the directory is not locked."""
        self._node_id = node_id
        self._release = self._take_lock()
        try:
            return read_meta_properties(self._files, self.path, cluster_id, node_id)
        except BaseException:
            self.release()
            raise

    def _take_lock(self) -> Callable[[], None]:
        """Create the directory if it does not exist, and lock it; call the result to unlock it.
        Raises DataDirectoryInUse, DataDirectoryFailed."""
        try:
            if not self._files.exists(self.path):
                self._files.make_dirs(self.path)
                self._files.sync_dir(self.path.rpartition("/")[0] or ".")
            return self._files.lock(self.path_of(LOCK))
        except BlockingIOError:
            raise DataDirectoryInUse(self.path) from None
        except OSError as problem:
            raise DataDirectoryFailed(
                f"the data directory {self.path} cannot be used: {problem}; make it writable or"
                " choose another --data-dir"
            ) from problem

    def write_meta_properties(
        self, cluster_id: str, directory_ids: Collection[bytes] = (), coordinator_hash: str = ""
    ) -> None:
        """Write the directory's meta.properties; the last two arguments are for the metadata log's
        directory, see `encode_meta_properties`. Raises DataDirectoryFailed."""
        self.write(
            META_PROPERTIES,
            encode_meta_properties(
                cluster_id, self._node_id, self.directory_id, directory_ids, coordinator_hash
            ),
        )

    def release(self) -> None:
        release, self._release = self._release, _nothing
        release()

    def read_what_was_left(self, problems: list[str]) -> LastRun:
        """Read names and checkpoints. The mark of a clean stop is removed, so that a later crash is
        recognised; deletions that were begun are finished (L-38). `problems` gets the checkpoints
        that are computed again. Raises DataDirectoryFailed, even if only the log starts cannot be
        read, because deleted records would become readable again."""
        starts = self._read_offsets(LOG_STARTS, problems, needed=True)
        try:
            names = self._files.list(self.path)
            clean = CLEAN_SHUTDOWN in names
            if clean:
                self._files.remove(self.path_of(CLEAN_SHUTDOWN))
            # The sync also makes the names of partitions durable that a crash has left in the page
            # cache.
            self._files.sync_dir(self.path)
            for name in names:
                if name.endswith(DELETED_SUFFIX):
                    self._files.remove_tree(self.path_of(name))
            if clean:
                # After a clean stop the journal is not needed: all of its records were synced, or a
                # broker without a journal has run since.
                self.journal.remove()
            else:
                self.journal.read(problems)
        except OSError as problem:
            raise DataDirectoryFailed(
                f"{self.path} cannot be read: {problem}; check the disk and the owner of its files"
            ) from problem
        self.cleaner_offsets = self._read_offsets(CLEANER_OFFSETS, problems).offsets
        points = self._read_offsets(RECOVERY_POINTS, problems)
        self._written_points = points.offsets
        checked = points.checked if CLEANER_LOCK in names else frozenset()
        self._has_checked_points = (
            CLEANER_LOCK in names and points.whole and checked == points.offsets.keys()
        )
        self._log_starts_on_disk = starts.offsets
        return LastRun(
            self,
            clean,
            names,
            log_starts=starts.offsets,
            recovery_points=points.offsets,
            log_ends=self._read_offsets(HIGH_WATERMARKS, problems).offsets,
            log_starts_known=starts.whole,
            checked_points=checked,
            all_points_checked=self._has_checked_points,
        )

    def _read_offsets(self, name: str, problems: list[str], *, needed: bool = False) -> _Entries:
        path = self.path_of(name)
        text, offsets, whole = None, {}, False
        checked: set[TopicPartition] = set()
        try:
            text = read_small_file(self._files, path)
            if text is not None:
                offsets, whole = decode_offsets(text, checked), True
        except OSError as problem:
            if needed:
                raise DataDirectoryFailed(
                    f"{path} cannot be read: {problem.strerror or problem}"
                ) from problem
            problems.append(f"{path} is computed again: {problem}")
        except CorruptCheckpoint as problem:
            offsets = decode_sound_offsets(text or "")
            checked = set(offsets)
            problems.append(f"{path} is computed again, but for {len(offsets)} entries: {problem}")
        self._checkpointed |= offsets.keys()
        return _Entries(offsets, checked, whole)

    # ---- the disk

    def look_at_disk(self) -> None:
        """Try a write while writes fail, because producers may stay silent until there is room.
        After an error that may affect more than one partition, try the whole directory (L-42)."""
        if self.failure or self._trying:
            return
        if self.disk.doubted and self.may_fail:
            self._trying = True
            size_bytes = self.disk.trial_bytes
            self.options.handles.run(lambda: self._try_everything(size_bytes), self._tried)
        elif self.disk.problem:
            try:
                self._try_write(self.disk.trial_bytes, sync=False)
            except OSError:
                return
            self.disk.works()

    def _try_write(self, size_bytes: int, *, sync: bool) -> None:
        path = self.path_of(_TRIAL_FILE)
        try:
            file = self._files.open(path, create=True)
            try:
                file.append([bytes(size_bytes)])
                if sync:
                    file.sync()
            finally:
                file.close()
        finally:
            self._files.remove(path)

    def _try_everything(self, size_bytes: int) -> None:
        """Check, in any thread, that this directory is still at its path and can be read and
        written. Raises OSError, CorruptCheckpoint."""
        text = read_small_file(self._files, self.path_of(META_PROPERTIES)) or ""
        found = decode_meta_properties(text).get("directory.id")
        if found != uuid_text(self.directory_id):
            raise CorruptCheckpoint("another directory is in its place, or none")
        self._files.list(self.path)
        self._try_write(size_bytes, sync=True)
        self._files.sync_dir(self.path)

    def _tried(self, problem: Exception | None) -> None:
        self._trying = False
        if self._closed or self.failure or isinstance(problem, InterruptedError):
            return
        if problem is None:
            self.disk.doubted = False
            self.disk.works()
        elif not isinstance(problem, OSError):
            self.fail(str(problem))
        elif not out_of_files(problem) and not no_room(problem):
            self.fail(problem.strerror or str(problem))

    def fail(self, reason: str) -> None:
        """Give the directory up until the next start: all of its partitions are offline (L-42)."""
        self.failure = reason
        self.journal.stop()
        self.disk.lost(reason)
        for log in list(self.logs.values()):
            log.take_offline(f"its directory {self.path} has failed: {reason}")
        self._on_failed(self)

    def begin_journal(self, request_flush: Callable[[Any], None]) -> None:
        """Begin to use the journal, once logs have been recovered. If a log could not be recovered,
        the old journal stays for the next start, and flushes sync the files."""
        # A log that could not be opened for lack of file descriptors is not offline; its first use
        # recovers it.
        missing = any(log.offline or not log.loaded for log in self.logs.values())
        if self.journal.replay is None or not missing:
            self.journal.start(request_flush)

    def _journal_failed(self, reason: str) -> None:
        for log in list(self.logs.values()):
            log.take_offline(reason)

    def open_again(self, now_ms: int) -> None:
        """Try again to open one of the logs that could not be opened: the log whose last attempt
        was the longest ago. A call tries only one log, because the log may have to be scanned."""
        oldest = next(iter(self.options.unopened.values()), None)
        if oldest is not None:
            oldest.open_again(now_ms)

    def sync_names(self) -> None:
        """Make the names of the directory's logs durable. Waits for the disk. Raises OSError."""
        self._files.sync_dir(self.path)

    # ---- checkpoints

    def forget_checkpoints(self, key: TopicPartition) -> None:
        """Remove a partition's name from the checkpoints, before a new partition of the name begins
        at 0. Otherwise, after a crash, the new partition would get the offsets of the old one, and
        would lose all records below these offsets (L-10, L-30). Raises DataDirectoryError."""
        if key not in self._checkpointed:
            return
        self._points_generation += 1  # A file that a worker has prepared has the old name.
        self.write_log_starts()
        self._write_recovery_points()
        self.write(CLEANER_OFFSETS, encode_offsets(self.cleaner_offsets))
        self._checkpointed = set(self.logs)

    def recovery_points_writer(self) -> Callable[[], None] | None:
        """The function that prepares the file of recovery points, so that a start after a crash has
        less to scan (L-30); None if the recovery points have not changed. Call this method every
        minute or so. The returned function waits for the disk and raises OSError: call it in a
        worker thread, never two at the same time, and afterwards `use_recovery_points`."""
        points = {key: log.durability.recovery_point for key, log in self.logs.items()}
        self._snapshots_due.update(dict.fromkeys(self.logs))
        self.journal.checkpoint()
        if points == self._written_points:
            return None
        self._prepared = self._points_generation, points
        self._checkpointed |= points.keys()
        prepared = self.path_of(_PREPARED_POINTS)
        unchecked = self._unchecked_points()
        return lambda: write_atomically(self._files, prepared, encode_offsets(points, unchecked))

    def _unchecked_points(self) -> Collection[TopicPartition]:
        """The logs that may have gaps of compaction above their recovery point, because they were
        not opened since the start, and this broker did not write their recovery point."""
        return {key for key, log in self.logs.items() if not log.durability.gaps_known}

    def continue_snapshots(self, at_most: int = 10, looked_at: int = 500) -> None:
        """Take snapshots of logs of which a start after a crash would read much (L-30).
        `recovery_points_writer` marks all logs for one check. Each call checks at most `looked_at`
        of the marked logs and takes at most `at_most` snapshots, so as not to hold up the loop."""
        for key in list(islice(self._snapshots_due, looked_at)):
            del self._snapshots_due[key]
            log = self.logs.get(key)
            if log is not None and log.durability.wants_snapshot():
                log.durability.take_snapshot(self._written_points.get(key, 0))
                at_most -= 1
                if not at_most:
                    return

    def use_recovery_points(self) -> None:
        """Rename the prepared file, unless its content is no longer valid. Raises OSError."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0] == self._points_generation:
            self._files.rename(self.path_of(_PREPARED_POINTS), self.path_of(RECOVERY_POINTS))
            self._written_points = prepared[1]

    def recovery_point_on_disk(self, key: TopicPartition) -> int:
        """The recovery point that a start after a crash would read for a log."""
        return self._written_points.get(key, 0)

    def recovery_points_for_cleaning(self) -> tuple[Callable[[], None], Callable[[], bool]]:
        """The functions that prepare and use recovery points for the cleaner. After a log has been
        cleaned, its recovery point on disk must never decrease (L-32), so recovery points that
        `recovery_points_writer` prepared before are not used. The second function returns True if
        the file was renamed into place; the new name is durable once `sync_names` has been called.
        Raises OSError."""
        self._points_generation += 1
        generation = self._points_generation
        points = {key: log.durability.recovery_point for key, log in self.logs.items()}
        self._checkpointed |= points.keys()
        unchecked = self._unchecked_points()
        prepared = self.path_of(_PREPARED_CLEANING_POINTS)

        def use() -> bool:
            if generation != self._points_generation:
                return False
            self._files.rename(prepared, self.path_of(RECOVERY_POINTS))
            self._written_points = points
            return True

        def write() -> None:
            # The lock file is written before the recovery points, because a start trusts recovery
            # points only if the lock file exists.
            self._files.open(self.path_of(CLEANER_LOCK), create=True).close()
            write_atomically(self._files, prepared, encode_offsets(points, unchecked))

        return write, use

    def cleaner_offsets_writer(self) -> Callable[[], None]:
        """A function that prepares the file of cleaner offsets (L-28), in any thread. It raises
        OSError. Call `use_cleaner_offsets` after it."""
        self._checkpointed |= self.cleaner_offsets.keys()
        self._cleaner_generation = self._points_generation
        content = encode_offsets(self.cleaner_offsets)
        prepared = self.path_of(_PREPARED_CLEANER_OFFSETS)
        return lambda: write_atomically(self._files, prepared, content)

    def use_cleaner_offsets(self) -> None:
        """Rename the prepared file, unless its content is no longer valid. Raises OSError."""
        if self._cleaner_generation == self._points_generation:
            prepared = self.path_of(_PREPARED_CLEANER_OFFSETS)
            self._files.rename(prepared, self.path_of(CLEANER_OFFSETS))

    def begin_recovery_points(self) -> None:
        """Write the recovery points at the end of a start, unless the last run left the recovery
        points of all partitions. Without recovery points, a gap that a power cut makes in a
        compacted log would be taken for a gap that compaction left (L-32). Raises
        DataDirectoryError."""
        if self._has_checked_points:
            return
        try:
            self._files.open(self.path_of(CLEANER_LOCK), create=True).close()
        except OSError as problem:
            raise DataDirectoryFailed(f"{self.path} cannot be written: {problem}") from problem
        self._write_recovery_points()
        self._has_checked_points = True

    def _write_recovery_points(self) -> None:
        points = {key: log.durability.recovery_point for key, log in self.logs.items()}
        self.write(RECOVERY_POINTS, encode_offsets(points, self._unchecked_points()))
        self._written_points = points

    def write_recovery_points(self) -> None:
        """Write the recovery points before the call returns. A file with older recovery points that
        a worker has prepared is not used. Waits for the disk. Raises DataDirectoryError."""
        self._points_generation += 1
        self._checkpointed |= self.logs.keys()
        self._write_recovery_points()

    def write_log_starts(self, moving: Mapping[TopicPartition, int] | None = None) -> None:
        """Write the log starts. `moving`: the new offsets of log starts that are about to move.
        Raises DataDirectoryError."""
        self._checkpointed |= self.logs.keys()
        starts = {key: log.log_start_offset for key, log in self.logs.items()} | dict(moving or {})
        self.write(LOG_STARTS, self._start_lines.encode(starts))
        self._log_starts_on_disk = starts

    def has_written_log_starts(self, starts: Mapping[TopicPartition, int]) -> bool:
        """True if these logs would start at or above these offsets after a crash."""
        written = self._log_starts_on_disk
        return all(written.get(key, 0) >= offset for key, offset in starts.items())

    def _write_all_checkpoints(self) -> None:
        """Write all checkpoints of a clean stop. Everything was flushed, so the high watermarks are
        the log ends."""
        self._write_recovery_points()
        self.write_log_starts()
        ends = {key: log.high_watermark for key, log in self.logs.items()}
        self.write(HIGH_WATERMARKS, encode_offsets(ends))

    # ---- stop

    def close(self, *, clean: bool) -> list[str]:
        """Close the logs and unlock the directory; returns the problems.

        `clean`: flush every log, write the checkpoints, and, if all of this worked, write the
        marker of a clean stop, so that the next start trusts the logs and checkpoints (L-30).
        """
        self._closed = True
        self.journal.stop()
        logs = list(self.logs.values())
        if self.failure:
            for log in logs:
                _close_log(log, clean=False)
            self.journal.close()
            self.release()
            return [f"{self.path} has failed: {self.failure}"]
        problems = [problem for log in logs if (problem := _close_log(log, clean=clean))]
        problems += [log.offline_reason for log in logs if log.offline]
        try:
            if clean:
                self._write_all_checkpoints()
                if not problems:
                    self.journal.remove()
                    self.write(CLEAN_SHUTDOWN, _CLEAN_SHUTDOWN_CONTENT)
        except (DataDirectoryFailed, OSError) as problem:
            problems.append(str(problem))
        finally:
            self.journal.close()
            self.release()
        return problems


def _close_log(log: PartitionLog, *, clean: bool) -> str:
    try:
        log.close(clean=clean)
    except (StorageError, OSError) as problem:
        return f"closing {log.name}: {problem}"
    return ""
