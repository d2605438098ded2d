"""A whole data directory: its small files, its metadata, and every partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek_broker.platform.seams import Files, Randomness
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
    encode_topic_id,
    read_small_file,
)
from odradek_broker.tools.file_names import parse_directory, parse_file
from odradek_broker.tools.segment_file import no_wait
from odradek_broker.tools.verify.findings import Findings
from odradek_broker.tools.verify.metadata import METADATA_DIRECTORY, StoredMetadata, read_metadata
from odradek_broker.tools.verify.partition import Expected, PartitionCheck, Summary
from odradek_broker.tools.verify.partition_files import note_leftover
from odradek_broker.topic_partition import TopicPartition

_CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
#: Of the process, and of no interest to a start.
_OTHER_FILES = (LOCK, CLEANER_LOCK, "odradek.pid", "odradek.log")
_FATES = {
    "delete": ("is of a deleted topic", "it goes at the next start"),
    "stray": ("belongs to no topic", "no start touches it; look at it and remove it by hand"),
    "future": ("is a copy that Apache Kafka had begun", "no start touches it"),
}
_METADATA_PARTITION: TopicPartition = (METADATA_DIRECTORY.rpartition("-")[0], 0)


@dataclass(slots=True)
class Totals:
    """Counts of everything that was read."""

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    scanned_bytes: int = 0

    def add(self, summary: Summary) -> None:
        """Count a partition."""
        self.partitions += 1
        self.segments += summary.segments
        self.size_bytes += summary.size_bytes
        self.scanned_bytes += summary.scanned_bytes


class DataDirectoryCheck:
    """Checks a data directory, once. `live`: a broker is running on it."""

    def __init__(
        self,
        files: Files,
        data_dir: str,
        findings: Findings,
        randomness: Randomness,
        *,
        live: bool = False,
        progress: Callable[[int], None] = lambda _: None,
        wait: Callable[[], None] = no_wait,
    ) -> None:
        self._files = files
        self._data_dir = data_dir
        self._findings = findings
        self._randomness = randomness
        self._live = live
        self._progress = progress
        self._wait = wait
        self._clean = False
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        self._metadata: StoredMetadata | None = None
        self._topic_ids: dict[TopicPartition, bytes | None] = {}
        self._ends: dict[TopicPartition, int] = {}
        self.totals = Totals()

    def run(self) -> Totals:
        """OSError where the directory itself cannot be read."""
        names = self._files.list(self._data_dir)
        self._clean = CLEAN_SHUTDOWN in names
        self._offsets = {name: self._read_offsets(name, names) for name in _CHECKPOINTS}
        if METADATA_DIRECTORY in names:
            self._metadata = read_metadata(
                self._files, self._data_dir, self._randomness, self._findings
            )
        directories = self._explain(names)
        for name, partition in directories:
            self._check_partition(name, partition)
        if directories:
            self._check_identity(names)
            self._check_metadata()
            self._check_checkpoints()
            self._report_unclean()
        return self.totals

    def _path(self, name: str) -> str:
        return f"{self._data_dir}/{name}"

    # ---- small files

    def _read_offsets(self, name: str, names: list[str]) -> dict[TopicPartition, int]:
        path = self._path(name)
        try:
            text = read_small_file(self._files, path)
            if text is not None:
                # Kafka makes this one before there is anything to say.
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
        if self._clean and name != CLEANER_OFFSETS:
            self._findings.recoverable(path, "is missing", "the next start reads all logs")
        return {}

    def _check_identity(self, names: list[str]) -> None:
        path = self._path(META_PROPERTIES)
        try:
            text = read_small_file(self._files, path)
            if text is not None and decode_meta_properties(text).get("cluster.id"):
                return
            problem = "is missing" if text is None else "names no cluster.id"
        except CorruptCheckpoint as error:
            problem = str(error)
        self._findings.damaged(
            path, problem, "restore it: without it the directory belongs to no cluster and no node"
        )

    def _explain(self, names: list[str]) -> list[tuple[str, TopicPartition]]:
        """The directories of partitions; notes tell of what is no part of the data."""
        directories = []
        for name in names:
            directory, file = parse_directory(name), parse_file(name)
            if directory is not None and self._is_directory(name):
                if directory.fate:
                    self._findings.note(self._path(name), *_FATES[directory.fate])
                else:
                    directories.append((name, directory.partition))
            elif file is not None and file.leftover:
                note_leftover(self._path(name), file.leftover, self._findings)
            elif file is None and name not in _OTHER_FILES:
                self._findings.note(self._path(name), "is no part of the data", "")
        return directories

    def _is_directory(self, name: str) -> bool:
        try:
            self._files.list(self._path(name))
        except NotADirectoryError:
            return False
        return True

    # ---- partitions

    def _check_partition(self, name: str, partition: TopicPartition) -> None:
        path = self._path(name)
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
        self._topic_ids[partition] = summary.topic_id
        self._ends[partition] = summary.log_end_offset

    def _expected(self, partition: TopicPartition) -> Expected:
        known = {name: offsets.get(partition) for name, offsets in self._offsets.items()}
        trusted = known[LOG_STARTS] is not None and known[HIGH_WATERMARKS] is not None
        if self._clean and not trusted and not self._live:
            self._findings.recoverable(
                self._path("-".join(map(str, partition))),
                f"it is not in {LOG_STARTS} or {HIGH_WATERMARKS}",
                "the next start reads it",
            )
        topic = partition[0]
        compacted = self._metadata is not None and self._metadata.compacted(topic)
        return Expected(
            clean=self._clean and trusted,
            live=self._live,
            compacted=compacted or known[CLEANER_OFFSETS] is not None,
            log_start_offset=known[LOG_STARTS],
            recovery_point=known[RECOVERY_POINTS],
            gaps_known=self._files.exists(self._path(CLEANER_LOCK)),
            log_end_offset=known[HIGH_WATERMARKS],
        )

    # ---- together

    def _check_metadata(self) -> None:
        metadata = self._metadata
        if metadata is None:
            self._findings.damaged(
                self._path(METADATA_DIRECTORY),
                "is missing",
                "without it the next start knows no topic, and sets all partitions aside: restore it",
            )
            return
        if self._live or not metadata.readable:
            return  # Topics come and go; or it is not known which there are.
        for partition, topic_id in self._topic_ids.items():
            if partition != _METADATA_PARTITION:
                self._check_topic(partition, topic_id, metadata)
        for topic in metadata.cluster.topics.values():
            for index in topic.partitions:
                if (topic.name, index) not in self._topic_ids:
                    self._missing((topic.name, index))

    def _check_topic(
        self, partition: TopicPartition, topic_id: bytes | None, metadata: StoredMetadata
    ) -> None:
        name, index = partition
        path = self._path(f"{name}-{index}")
        topic = metadata.cluster.topics.get(name)
        if topic_id in metadata.removed_topic_ids:
            self._findings.note(path, *_FATES["delete"])
        elif topic is None or index not in topic.partitions:
            self._findings.recoverable(
                path,
                "belongs to no topic",
                "the next start renames it to *-stray, or removes it if it is empty",
            )
        elif topic_id is not None and topic_id != topic.topic_id:
            self._findings.damaged(
                path,
                f"is of topic id {encode_topic_id(topic_id)}, the metadata has"
                f" {encode_topic_id(topic.topic_id)} for {name}",
                "the broker does not start: move the directory away, or restore the right one",
            )

    def _missing(self, partition: TopicPartition) -> None:
        name, index = partition
        path = self._path(f"{name}-{index}")
        known_end = max(
            self._offsets[RECOVERY_POINTS].get(partition, 0),
            self._offsets[HIGH_WATERMARKS].get(partition, 0),
        )
        if self._clean or known_end:
            self._findings.damaged(
                path,
                f"is missing, with offsets up to {known_end}",
                "the next start makes an empty one: restore it from a backup first",
            )
        else:
            self._findings.recoverable(path, "is missing", "the next start makes it, empty")

    def _check_checkpoints(self) -> None:
        for name, offsets in self._offsets.items():
            for partition, offset in offsets.items():
                topic, index = partition
                if partition not in self._topic_ids:
                    self._findings.note(
                        self._path(name),
                        f"names {topic}-{index}, which is not here",
                        "it is written again when the broker stops",
                    )
                elif offset < 0:
                    self._findings.damaged(
                        self._path(name),
                        f"has offset {offset} for {topic}-{index}",
                        "remove the line",
                    )
                elif name == CLEANER_OFFSETS and offset > self._ends[partition]:
                    self._findings.recoverable(
                        self._path(name),
                        f"has offset {offset} for {topic}-{index}, which ends at"
                        f" {self._ends[partition]}",
                        "compaction begins at the log start",
                    )

    def _report_unclean(self) -> None:
        if not self._clean and not self._live:
            self._findings.recoverable(
                self._path(CLEAN_SHUTDOWN),
                "is missing: the last stop was not clean",
                f"the next start reads {self.totals.scanned_bytes} bytes, from the recovery points on,"
                " and makes their indexes and snapshots anew",
            )
