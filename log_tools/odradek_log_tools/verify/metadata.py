"""The cluster metadata that a start would replay, read without opening the log."""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.config.broker import default_config
from odradek_broker.config.types import BrokerConfigError
from odradek_broker.metadata.cluster import METADATA_TOPIC, ClusterMetadata
from odradek_broker.metadata.errors import MetadataError
from odradek_broker.metadata.snapshots import (
    CorruptMetadataSnapshot,
    MetadataSnapshot,
    MetadataSnapshotId,
    decode_snapshot,
    parse_file_name,
)
from odradek_broker.platform.seams import Files, Randomness
from odradek_log_tools.file_names import FileKind, parse_file
from odradek_log_tools.segment_file import Damaged, SegmentFile
from odradek_log_tools.verify.findings import Findings
from odradek_protocol.constants import RESOURCE_TOPIC
from odradek_protocol.primitives import WireError
from odradek_protocol.records.batch import BatchError
from odradek_protocol.records.record import read_records
from odradek_protocol.stored.cluster_metadata import (
    ConfigRecord,
    RemoveTopicRecord,
    decode_record,
)

METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"


class StoredMetadata:
    """The metadata. `readable`: true if a start can replay all of it; otherwise `cluster` is the
    state before the damage."""

    def __init__(self, randomness: Randomness) -> None:
        self.cluster = ClusterMetadata(default_config(), randomness)
        self.readable = True
        self.removed_topic_ids: set[bytes] = set()
        self._once_compacted: set[str] = set()

    def compacted(self, topic: str) -> bool:
        """True if the topic is or was compacted, so that its log may lack offsets."""
        return (
            topic in self._once_compacted
            or self.cluster.is_internal(topic)
            or self.cluster.log_config(topic).compacted
        )

    def replay(self, value: bytes) -> None:
        """Replay a record. Raises WireError, MetadataError, ConfigError."""
        record = decode_record(value)
        if isinstance(record, RemoveTopicRecord):
            self.removed_topic_ids.add(record.topic_id)
        elif (
            isinstance(record, ConfigRecord)
            and record.resource_type == RESOURCE_TOPIC
            and record.name == "cleanup.policy"
            and "compact" in (record.value or "")
        ):
            self._once_compacted.add(record.resource_name)
        self.cluster.replay(record)


def read_metadata(
    files: Files, data_dir: str, randomness: Randomness, findings: Findings
) -> StoredMetadata:
    """Replay the newest snapshot, if there is a snapshot, and the log. This function does not
    report damaged batches; the check of the partition reports them. Raises OSError."""
    metadata = StoredMetadata(randomness)
    for path, offset, value in _values(files, f"{data_dir}/{METADATA_DIRECTORY}", findings):
        try:
            metadata.replay(value)
        except (WireError, MetadataError, BrokerConfigError) as problem:
            metadata.readable = False
            findings.damaged(
                path,
                f"the record at offset {offset} cannot be used: {problem}",
                "the broker does not start on it; it may be of a later version, or of Apache Kafka",
            )
            break
    return metadata


def _values(files: Files, directory: str, findings: Findings) -> Iterator[tuple[str, int, bytes]]:
    """(path, offset, value) of every record that a start would replay."""
    segments = sorted(
        (parsed.offset or 0, name)
        for name in files.list(directory)
        if (parsed := parse_file(name)) is not None
        and parsed.kind is FileKind.SEGMENT
        and not parsed.leftover
    )
    first = segments[0][0] if segments else 0
    start, values = _newest_snapshot(files, directory, first, findings)
    if start < first:
        findings.damaged(
            directory,
            f"its log begins at offset {first}, and no snapshot stands for what was before",
            "the broker does not start: restore the directory from a backup",
        )
    yield from values
    for _, name in segments:
        yield from _records(files, f"{directory}/{name}", start)


def _newest_snapshot(
    files: Files, directory: str, first: int, findings: Findings
) -> tuple[int, list[tuple[str, int, bytes]]]:
    """The end offset and the records of the newest undamaged snapshot; all snapshots are checked
    (L-39)."""
    start, values = 0, list[tuple[str, int, bytes]]()
    for name in sorted(files.list(directory), reverse=True):
        snapshot = parse_file_name(name)
        if snapshot is None or snapshot.end_offset < first:
            continue
        path = f"{directory}/{name}"
        content = _read_snapshot(files, path, snapshot, findings)
        if content is not None and not values:
            start = snapshot.end_offset
            values = [(path, at, value) for at, value in enumerate(content.values)]
    return start, values


def _read_snapshot(
    files: Files, path: str, snapshot: MetadataSnapshotId, findings: Findings
) -> MetadataSnapshot | None:
    file = files.open(path)
    try:
        return decode_snapshot(file.read_at(0, file.size()))
    except CorruptMetadataSnapshot as problem:
        findings.recoverable(
            path, str(problem), "the next start takes the one before, and the log behind it"
        )
        return None
    finally:
        file.close()


def _records(files: Files, path: str, start: int) -> Iterator[tuple[str, int, bytes]]:
    file = files.open(path)
    try:
        for batch in SegmentFile(file).batches():
            if batch.problem or batch.data is None or batch.header.is_control:
                continue
            for record in read_records(batch.data, 0, batch.header):
                if record.value is not None and record.offset >= start:
                    yield path, record.offset, record.value
    except (Damaged, BatchError):
        return
    finally:
        file.close()
