"""The meaning of names in a data directory: the format of a file, and the partition of a directory
(L-01)."""

from __future__ import annotations

import re
from enum import StrEnum

from odradek_broker.explain.group_lags_file import NAME as GROUP_LAGS
from odradek_broker.storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from odradek_broker.storage.journal_format import JOURNAL
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.lazy_tuple import NamedTuple

QUORUM_STATE = "quorum-state"

#: Suffixes of files that are being replaced, or wait for their removal.
LEFTOVER_SUFFIXES = (
    "deleted",
    "compacted",
    "retention",
    "cleaned",
    "swap",
    "tmp",
    "next",
    "part",
    "damaged",
)


class FileKind(StrEnum):
    """The formats of files."""

    SEGMENT = "log"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    METADATA_SNAPSHOT = "metadata-snapshot"
    LEADER_EPOCHS = "leader-epochs"
    OFFSET_CHECKPOINT = "offsets"
    PARTITION_METADATA = "partition-metadata"
    META_PROPERTIES = "meta-properties"
    CLEAN_SHUTDOWN = "clean-shutdown"
    QUORUM_STATE = "quorum-state"
    SOURCES = "sources"
    JOURNAL = "journal"
    GROUP_LAGS = "group-lags"


class FileName(NamedTuple):
    """The name of a file. `offset`: the offset at the start of the name, None if there is none;
    `leftover`: the suffix that marks a file that is not in use, empty if there is none."""

    kind: FileKind
    offset: int | None
    leftover: str


class DirectoryName(NamedTuple):
    """The name of a partition's directory; `fate`: the suffix `delete`, `stray` or `future`, empty
    if there is none."""

    partition: TopicPartition
    fate: str


_WHOLE_NAMES = {
    LEADER_EPOCHS: FileKind.LEADER_EPOCHS,
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
    META_PROPERTIES: FileKind.META_PROPERTIES,
    CLEAN_SHUTDOWN: FileKind.CLEAN_SHUTDOWN,
    QUORUM_STATE: FileKind.QUORUM_STATE,
    JOURNAL: FileKind.JOURNAL,
    GROUP_LAGS: FileKind.GROUP_LAGS,
    **dict.fromkeys(
        (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS), FileKind.OFFSET_CHECKPOINT
    ),
}
_BY_SUFFIX = {
    kind.value: kind
    for kind in (
        FileKind.SEGMENT,
        FileKind.OFFSET_INDEX,
        FileKind.TIME_INDEX,
        FileKind.TRANSACTION_INDEX,
        FileKind.PRODUCER_SNAPSHOT,
        FileKind.SOURCES,
    )
}
_OFFSET_NAME = re.compile(r"(\d{20})\.([a-z]+)((?:\.\w+)*)", re.ASCII)
_METADATA_SNAPSHOT = re.compile(r"(\d{20})-\d{10}\.checkpoint((?:\.\w+)*)", re.ASCII)
_BOOTSTRAP_SNAPSHOT = "bootstrap.checkpoint"
_DIRECTORY = re.compile(
    r"(?P<topic>.+)-(?P<index>\d+)(?:\.[0-9a-f]{32}-(?P<fate>delete|stray|future))?", re.ASCII
)


def parse_file(name: str) -> FileName | None:
    """The meaning of a file's name; None if logs and brokers have no such file."""
    stem, leftover = name, ""
    while stem.rpartition(".")[2] in LEFTOVER_SUFFIXES:
        stem, _, suffix = stem.rpartition(".")
        # The suffix before `.deleted` is that of the mechanism that deleted the file (L-27).
        leftover = suffix if suffix in ("compacted", "retention") else leftover or suffix
    if stem in _WHOLE_NAMES:
        return FileName(_WHOLE_NAMES[stem], None, leftover)
    if stem == _BOOTSTRAP_SNAPSHOT:
        return FileName(FileKind.METADATA_SNAPSHOT, None, leftover)
    snapshot = _METADATA_SNAPSHOT.fullmatch(stem)
    if snapshot is not None:
        return FileName(FileKind.METADATA_SNAPSHOT, int(snapshot[1]), leftover)
    found = _OFFSET_NAME.fullmatch(stem)
    if found is None or found[2] not in _BY_SUFFIX:
        return None
    return FileName(_BY_SUFFIX[found[2]], int(found[1]), leftover)


def parse_directory(name: str) -> DirectoryName | None:
    """The meaning of a directory's name; None if it is not the directory of a partition."""
    found = _DIRECTORY.fullmatch(name)
    if found is None:
        return None
    return DirectoryName((found["topic"], int(found["index"])), found["fate"] or "")
