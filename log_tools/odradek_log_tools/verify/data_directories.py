"""The check that all data directories of a broker belong to one cluster, and contain one metadata
log and each partition only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_broker.platform.seams import Files, Randomness
from odradek_broker.storage.checkpoints import (
    DIRECTORY_IDS,
    HIGH_WATERMARKS,
    META_PROPERTIES,
    RECOVERY_POINTS,
)
from odradek_broker.topic_partition import TopicPartition
from odradek_log_tools.segment_file import no_wait
from odradek_log_tools.verify.data_directory import FATES, DataDirectoryCheck, Totals
from odradek_log_tools.verify.findings import Findings
from odradek_log_tools.verify.metadata import METADATA_DIRECTORY, StoredMetadata, read_metadata
from odradek_protocol.primitives import uuid_text

_METADATA_PARTITION: TopicPartition = (METADATA_DIRECTORY.rpartition("-")[0], 0)


class DataDirectoriesCheck:
    """The check of the data directories of a broker, made once. `live`: the broker is running."""

    def __init__(
        self,
        files: Files,
        data_dirs: Sequence[str],
        findings: Findings,
        randomness: Randomness,
        *,
        live: bool = False,
        progress: Callable[[int], None] = lambda _: None,
        wait: Callable[[], None] = no_wait,
    ) -> None:
        self._files = files
        self._findings = findings
        self._randomness = randomness
        self._live = live
        self._all = [
            DataDirectoryCheck(files, path, findings, live=live, progress=progress, wait=wait)
            for path in data_dirs
        ]
        #: The directories of each partition.
        self._found: dict[TopicPartition, DataDirectoryCheck] = {}
        self.totals = Totals()

    def run(self) -> Totals:
        """Check all directories. Raises OSError if a directory itself cannot be read."""
        for each in self._all:
            each.read()
        with_metadata = [each for each in self._all if each.has_metadata]
        metadata = None
        if with_metadata:
            metadata = read_metadata(
                self._files, with_metadata[0].data_dir, self._randomness, self._findings
            )
        for each in self._all:
            each.check_partitions(metadata)
            self.totals.add_all(each.totals)
        if self.totals.partitions:
            self._check_identities()
            self._check_places()
            self._check_metadata(metadata, with_metadata)
            for each in self._all:
                if each.totals.partitions:
                    each.check_checkpoints()
        return self.totals

    def _check_identities(self) -> None:
        """Check that all directories belong to the same cluster and node, and that none is given
        twice.
        """
        first = next(each for each in self._all if each.totals.partitions)
        ids: dict[str, str] = {}
        for each in self._all:
            for name in ("cluster.id", "node.id"):
                own, other = each.properties.get(name), first.properties.get(name)
                if own and other and own != other:
                    self._findings.damaged(
                        each.path_of(META_PROPERTIES),
                        f"has {name} {own}, {first.data_dir} has {other}",
                        "the broker does not start on both: take one of them out of log.dirs",
                    )
            directory_id = each.properties.get("directory.id")
            if directory_id and ids.setdefault(directory_id, each.data_dir) != each.data_dir:
                self._findings.damaged(
                    each.path_of(META_PROPERTIES),
                    f"has the directory.id of {ids[directory_id]}: one is a copy of the other",
                    "the broker does not start on both: take one of them out of log.dirs",
                )

    def _check_places(self) -> None:
        for each in self._all:
            for partition in each.topic_ids:
                other = self._found.setdefault(partition, each)
                if other is not each:
                    name = "-".join(map(str, partition))
                    self._findings.damaged(
                        each.path_of(name),
                        f"is in {other.data_dir} too",
                        "the broker does not start, unless one is of a deleted topic: move the one that"
                        " is not wanted out of the way",
                    )

    def _check_metadata(
        self, metadata: StoredMetadata | None, with_metadata: list[DataDirectoryCheck]
    ) -> None:
        if metadata is None:
            self._findings.damaged(
                self._all[0].path_of(METADATA_DIRECTORY),
                "is missing",
                "without it the next start knows no topic, and sets all partitions aside: restore it, or"
                " verify all directories of the broker together",
            )
            return
        if self._live or not metadata.readable:
            # The topics are compared only if the metadata is readable, and if no running broker
            # creates or deletes topics at the same time.
            return
        for each in self._all:
            for partition, topic_id in each.topic_ids.items():
                if partition != _METADATA_PARTITION:
                    self._check_topic(each, partition, topic_id, metadata)
        missing = [
            (topic.name, index)
            for topic in metadata.cluster.topics.values()
            for index in topic.partitions
            if (topic.name, index) not in self._found
        ]
        home = with_metadata[0]
        absent = self._absent_ids(home)
        if missing and absent:
            self._findings.damaged(
                home.path_of(META_PROPERTIES),
                f"{len(missing)} partitions are nowhere, and the directory with directory.id"
                f" {', '.join(absent)} is none of those that are verified",
                "verify all directories of the broker together; at a start without that one these"
                " partitions are offline",
            )
        else:
            for partition in missing:
                self._missing(partition, home)

    def _absent_ids(self, home: DataDirectoryCheck) -> list[str]:
        here = {each.properties.get("directory.id") for each in self._all}
        known = home.properties.get(DIRECTORY_IDS, "").split(",")
        return [directory_id for directory_id in known if directory_id and directory_id not in here]

    def _check_topic(
        self,
        check: DataDirectoryCheck,
        partition: TopicPartition,
        topic_id: bytes | None,
        metadata: StoredMetadata,
    ) -> None:
        name, index = partition
        path = check.path_of(f"{name}-{index}")
        topic = metadata.cluster.topics.get(name)
        if topic_id in metadata.removed_topic_ids:
            self._findings.note(path, *FATES["delete"])
        elif topic is None or index not in topic.partitions:
            self._findings.recoverable(
                path,
                "belongs to no topic",
                "the next start renames it to *-stray, or removes it if it is empty",
            )
        elif topic_id is not None and topic_id != topic.topic_id:
            self._findings.damaged(
                path,
                f"is of topic id {uuid_text(topic_id)}, the metadata has"
                f" {uuid_text(topic.topic_id)} for {name}",
                "the broker does not start: move the directory away, or restore the right one",
            )

    def _missing(self, partition: TopicPartition, home: DataDirectoryCheck) -> None:
        name, index = partition
        ends = {
            each: max(
                each.offsets[checkpoint].get(partition, 0)
                for checkpoint in (RECOVERY_POINTS, HIGH_WATERMARKS)
            )
            for each in self._all
        }
        known_end = max(ends.values())
        path = max(ends, key=lambda each: (ends[each], each is home)).path_of(f"{name}-{index}")
        if known_end or all(each.clean for each in self._all):
            self._findings.damaged(
                path,
                f"is missing, with offsets up to {known_end}",
                "the next start makes an empty one: restore it from a backup first",
            )
        else:
            self._findings.recoverable(path, "is missing", "the next start makes it, empty")
