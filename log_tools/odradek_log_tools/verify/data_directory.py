"""The check of a data directory: its small files, its metadata, and every partition."""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.explain.group_lags_file import NAME as GROUP_LAGS
from odradek_broker.explain.group_lags_file import read_group_lags
from odradek_broker.platform.seams import Files
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
    decode_meta_properties,
    decode_offsets,
    read_small_file,
)
from odradek_broker.storage.journal_format import JOURNAL, CorruptJournal, UnknownJournal
from odradek_broker.storage.journal_replay import JournalReplay
from odradek_broker.topic_partition import TopicPartition
from odradek_log_tools.file_names import parse_directory, parse_file
from odradek_log_tools.verify.findings import Findings
from odradek_log_tools.verify.metadata import METADATA_DIRECTORY, StoredMetadata
from odradek_log_tools.verify.partition import Expected, PartitionCheck, PartitionSummary
from odradek_log_tools.verify.partition_files import note_leftover
from odradek_protocol.lazy_dataclass import dataclass

_CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
#: Files of the broker process that a start ignores.
_OTHER_FILES = (LOCK, CLEANER_LOCK, "odradek.pid", "odradek.pid.link", "odradek.log")
FATES = {
    "delete": ("is of a deleted topic", "it goes at the next start"),
    "stray": ("belongs to no topic", "no start touches it; look at it and remove it by hand"),
    "future": ("is a copy that Apache Kafka had begun", "no start touches it"),
}


@dataclass(slots=True)
class Totals:
    """The numbers of checked objects."""

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    scanned_bytes: int = 0

    def add(self, summary: PartitionSummary) -> None:
        """Count a partition."""
        self.partitions += 1
        self.segments += summary.segments
        self.size_bytes += summary.size_bytes
        self.scanned_bytes += summary.scanned_bytes

    def add_all(self, other: Totals) -> None:
        """Add the counts of another check."""
        self.partitions += other.partitions
        self.segments += other.segments
        self.size_bytes += other.size_bytes
        self.scanned_bytes += other.scanned_bytes


class DataDirectoryCheck:
    """The check of one of the data directories of a broker; `DataDirectoriesCheck` calls its steps.
    `live`: a broker is running on it."""

    def __init__(
        self,
        files: Files,
        data_dir: str,
        findings: Findings,
        *,
        live: bool,
        progress: Callable[[int], None],
        wait: Callable[[], None],
    ) -> None:
        self._files = files
        self.data_dir = data_dir
        self._findings = findings
        self._live = live
        self._progress = progress
        self._wait = wait
        self._names: list[str] = []
        self._metadata: StoredMetadata | None = None
        self._ends: dict[TopicPartition, int] = {}
        #: True if the last stop of the broker was clean.
        self.clean = False
        #: The offsets of each checkpoint, by its name.
        self.offsets: dict[str, dict[TopicPartition, int]] = {}
        #: The topic ids of the partitions in the directory; None for an unreadable topic id.
        self.topic_ids: dict[TopicPartition, bytes | None] = {}
        self.properties: dict[str, str] = {}
        self.totals = Totals()

    @property
    def has_metadata(self) -> bool:
        """True if the directory has the metadata log."""
        return METADATA_DIRECTORY in self._names

    def read(self) -> None:
        """Read names and checkpoints. Raises OSError if the directory itself cannot be read."""
        self._names = self._files.list(self.data_dir)
        self.clean = CLEAN_SHUTDOWN in self._names
        self.offsets = {name: self._read_offsets(name) for name in _CHECKPOINTS}

    def check_partitions(self, metadata: StoredMetadata | None) -> None:
        """Check every partition separately, and meta.properties. Raises OSError."""
        self._metadata = metadata
        for name, partition in self._explain(self._names):
            self._check_partition(name, partition)
        if self.totals.partitions:
            self._check_identity()

    def check_checkpoints(self) -> None:
        """Check the small files against the partitions."""
        self._check_checkpoints()
        self._check_journal()
        self._check_group_lags()
        self._report_unclean()

    def path_of(self, name: str) -> str:
        """The path of a file or subdirectory."""
        return f"{self.data_dir}/{name}"

    # ---- small files

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = self.path_of(name)
        try:
            text = read_small_file(self._files, path)
            if text is not None:
                # Kafka creates this file before it has an entry.
                return {} if name == CLEANER_OFFSETS and not text else decode_offsets(text)
        except CorruptCheckpoint as problem:
            lost = (
                "; records that DeleteRecords had removed may be seen again"
                if name == LOG_STARTS
                else ""
            )
            self._findings.recoverable(
                path, str(problem), f"the next start computes it from the logs{lost}"
            )
            return {}
        if self.clean and name != CLEANER_OFFSETS:
            self._findings.recoverable(path, "is missing", "the next start reads all logs")
        return {}

    def _check_identity(self) -> None:
        path = self.path_of(META_PROPERTIES)
        try:
            text = read_small_file(self._files, path)
            self.properties = {} if text is None else decode_meta_properties(text)
            if self.properties.get("cluster.id"):
                return
            problem = "is missing" if text is None else "names no cluster.id"
        except CorruptCheckpoint as error:
            problem = str(error)
        self._findings.damaged(
            path, problem, "restore it: without it the directory belongs to no cluster and no node"
        )

    def _explain(self, names: list[str]) -> list[tuple[str, TopicPartition]]:
        """The directories of partitions. Other files and directories are reported as notes."""
        directories = []
        for name in names:
            directory, file = parse_directory(name), parse_file(name)
            if directory is not None and self._is_directory(name):
                if directory.fate:
                    self._findings.note(self.path_of(name), *FATES[directory.fate])
                else:
                    directories.append((name, directory.partition))
            elif file is not None and file.leftover:
                # A running broker may be writing the file at this moment.
                if not (self._live and file.leftover == "tmp"):
                    note_leftover(self.path_of(name), file.leftover, self._findings)
            elif file is None and name not in _OTHER_FILES:
                self._findings.note(self.path_of(name), "is no part of the data", "")
        return directories

    def _is_directory(self, name: str) -> bool:
        try:
            self._files.list(self.path_of(name))
        except NotADirectoryError:
            return False
        return True

    # ---- partitions

    def _check_partition(self, name: str, partition: TopicPartition) -> None:
        path = self.path_of(name)
        check = PartitionCheck(
            self._files, path, self._expected(partition), self._findings, self._progress, self._wait
        )
        try:
            summary = check.run()
        except FileNotFoundError as problem:
            if not self._live:
                raise
            self._findings.note(
                path, f"{problem.filename} was removed meanwhile", "verify it again"
            )
            return
        self.totals.add(summary)
        self.topic_ids[partition] = summary.topic_id
        self._ends[partition] = summary.log_end_offset

    def _expected(self, partition: TopicPartition) -> Expected:
        known = {name: offsets.get(partition) for name, offsets in self.offsets.items()}
        trusted = known[LOG_STARTS] is not None and known[HIGH_WATERMARKS] is not None
        if self.clean and not trusted and not self._live:
            self._findings.recoverable(
                self.path_of("-".join(map(str, partition))),
                f"it is not in {LOG_STARTS} or {HIGH_WATERMARKS}",
                "the next start reads it",
            )
        topic = partition[0]
        compacted = self._metadata is not None and self._metadata.compacted(topic)
        return Expected(
            clean=self.clean and trusted,
            live=self._live,
            compacted=compacted or known[CLEANER_OFFSETS] is not None,
            log_start_offset=known[LOG_STARTS],
            recovery_point=known[RECOVERY_POINTS],
            gaps_known=self._files.exists(self.path_of(CLEANER_LOCK)),
            log_end_offset=known[HIGH_WATERMARKS],
        )

    # ---- the checkpoints

    def _check_checkpoints(self) -> None:
        for name, offsets in self.offsets.items():
            for partition, offset in offsets.items():
                topic, index = partition
                if partition not in self.topic_ids:
                    self._findings.note(
                        self.path_of(name),
                        f"names {topic}-{index}, which is not here",
                        "it is written again when the broker stops",
                    )
                elif offset < 0:
                    self._findings.damaged(
                        self.path_of(name),
                        f"has offset {offset} for {topic}-{index}",
                        "remove the line",
                    )
                elif name == CLEANER_OFFSETS and offset > self._ends[partition]:
                    self._findings.recoverable(
                        self.path_of(name),
                        f"has offset {offset} for {topic}-{index}, which ends at"
                        f" {self._ends[partition]}",
                        "compaction begins at the log start",
                    )

    def _check_group_lags(self) -> None:
        path = self.path_of(GROUP_LAGS)
        try:
            read_group_lags(self._files, path)
        except ValueError as problem:
            remedy = "the next start ignores it: the lag of groups over time begins anew"
            self._findings.note(path, str(problem), remedy)

    def _check_journal(self) -> None:
        path = self.path_of(JOURNAL)
        if self._live or JOURNAL not in self._names:
            return
        if self.clean:
            self._findings.note(
                path, "is left over: the last stop was clean", "the next start removes it"
            )
            return
        try:
            found = JournalReplay(self._files, path)
        except UnknownJournal as problem:
            self._findings.damaged(path, str(problem), "start the version that wrote it")
        except CorruptJournal as problem:
            self._findings.damaged(
                path,
                str(problem),
                "restore it: without it records that were acknowledged shortly before the crash may be lost",
            )
        else:
            self._findings.note(
                path,
                f"has the last records of {len(found)} partitions",
                "the next start puts back what their files have lost",
            )

    def _report_unclean(self) -> None:
        if not self.clean and not self._live:
            self._findings.recoverable(
                self.path_of(CLEAN_SHUTDOWN),
                "is missing: the last stop was not clean",
                f"the next start reads {self.totals.scanned_bytes} bytes, from the recovery points on,"
                " and creates their indexes and snapshots again",
            )
