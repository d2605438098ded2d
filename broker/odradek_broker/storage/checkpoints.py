"""The small text files of data directories and partitions, in Kafka's own formats.

    recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint
        version 0; number of lines; then `<topic> <partition> <offset>`
    leader-epoch-checkpoint
        version 0; number of lines; then `<epoch> <start offset>`
    cleaner-offset-checkpoint
        like the recovery points: the end of the cleaned part of each log
    <offset>.sources.swap
        version 0; number of lines; then `<base offset>` of each segment that a cleaned
        segment replaces (not in Kafka)
    partition.metadata      `version: 0`, `topic_id: <base64>`
    meta.properties         `version=1`, `cluster.id=...`, `node.id=...`, `directory.id=<base64>`;
        the meta.properties of the metadata log's directory also has the ids of all directories, if
        there are several (not in Kafka)

A file that cannot be parsed raises `CorruptCheckpoint`; its content is then computed again (L-35).
To detect a changed digit, each entry that this broker writes has a checksum in 32 blanks, which
Kafka skips: a space for 0 and a tab for 1, at the end of a checkpoint's line and before a topic id.
Entries without a checksum, as Kafka writes them, are trusted.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from odradek_broker.platform.seams import Files
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.checksums import crc32c, crc32c_of_each
from odradek_protocol.primitives import uuid_text

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
#: The recovery points in a directory with this file were written by this broker, which compacts a
#: log only below its recovery point (L-32).
CLEANER_LOCK = ".cleaner.lock"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
#: The property in the meta.properties of the metadata log's directory that has the ids of all
#: directories.
DIRECTORY_IDS = "odradek.directory.ids"
#: The property of meta.properties that says how the hash of a group or transactional id chooses a
#: partition. ABSOLUTE_HASH: as in Kafka. Without the property: by masking the sign bit, as in early
#: versions.
COORDINATOR_HASH = "odradek.coordinator.hash"
ABSOLUTE_HASH = "absolute"

# The limit of the size of a file that is read, far above the size of any that the broker writes.
_CHECKPOINT_BYTES_MAX = 64 * 1024 * 1024
_BLANKS = str.maketrans("01", " \t")
_CHECKSUM_CHARACTERS = 32


class CorruptCheckpoint(Exception):
    """The file does not have its format."""


def read_small_file(files: Files, path: str) -> str | None:
    """The content of a text file; None if it does not exist. Raises CorruptCheckpoint, OSError."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        size_bytes = file.size()
        if size_bytes > _CHECKPOINT_BYTES_MAX:
            raise CorruptCheckpoint(f"{path} has {size_bytes} bytes")
        return file.read_at(0, size_bytes).decode()
    except UnicodeDecodeError as problem:
        raise CorruptCheckpoint(f"{path} is not text") from problem
    finally:
        file.close()


def write_unsynced(files: Files, path: str, content: bytes) -> None:
    """Replace a small file without waiting for the disk: a later fsync covers the content, or a
    scan can restore it. Raises OSError."""
    temporary = path + ".tmp"
    files.remove(temporary)
    file = files.open(temporary, create=True)
    try:
        file.append([content])
    finally:
        file.close()
    files.rename(temporary, path)


def encode_offsets(
    offsets: Mapping[TopicPartition, int], unchecked: Collection[TopicPartition] = ()
) -> bytes:
    """Kafka's offset checkpoint: version, count, then `topic partition offset` in each line,
    without a checksum for the partitions in `unchecked`."""
    lines = _offset_lines(offsets.items())
    if unchecked:
        lines = [
            line[:-_CHECKSUM_CHARACTERS] if key in unchecked else line
            for key, line in zip(offsets, lines, strict=True)
        ]
    return _joined(lines)


def _offset_lines(offsets: Iterable[tuple[TopicPartition, int]]) -> list[str]:
    entries = [f"{key[0]} {key[1]} {offset}" for key, offset in offsets]
    if not entries:
        return []
    # All checksums are computed together: a call for each of tens of thousands takes long.
    sums = crc32c_of_each("\n".join(entries).encode().split(b"\n"))
    checksums = "\n".join([f"{each:032b}" for each in sums]).translate(_BLANKS).split("\n")
    return [entry + checksum for entry, checksum in zip(entries, checksums, strict=True)]


class OffsetLines:
    """The lines of a checkpoint that is written again and again, of which few change: no call is
    made for a line that stays, because there may be tens of thousands."""

    def __init__(self) -> None:
        self._lines: dict[TopicPartition, tuple[int, str]] = {}

    def encode(self, offsets: Mapping[TopicPartition, int]) -> bytes:
        """Like `encode_offsets`."""
        lines = self._lines
        for key in [key for key in lines if key not in offsets]:
            del lines[key]
        changed = [
            (key, offset)
            for key, offset in offsets.items()
            if key not in lines or lines[key][0] != offset
        ]
        for (key, offset), line in zip(changed, _offset_lines(changed), strict=True):
            lines[key] = offset, line
        return _joined([lines[key][1] for key in offsets])


def decode_offsets(
    text: str, checked: set[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """The offset of each partition. `checked` gets the partitions whose entry has a checksum.
    Raises CorruptCheckpoint."""
    offsets: dict[TopicPartition, int] = {}
    for line in _lines(text):
        content = _checked(line)
        key, offset = _offset(content)
        offsets[key] = offset
        if checked is not None and content != line:
            checked.add(key)
    return offsets


def decode_sound_offsets(text: str) -> dict[TopicPartition, int]:
    """The entries with a right checksum, of a checkpoint that may be damaged."""
    offsets: dict[TopicPartition, int] = {}
    for line in text.splitlines():
        with suppress(CorruptCheckpoint):
            content = _checked(line)
            if content != line:
                key, offset = _offset(content)
                offsets[key] = offset
    return offsets


def _offset(line: str) -> tuple[TopicPartition, int]:
    topic, partition, offset = _fields(line, 3)
    return (topic, _number(partition)), _number(offset)


def encode_epochs(epochs: Iterable[tuple[int, int]]) -> bytes:
    """Kafka's leader epoch checkpoint: version, count, then `epoch offset` in each line."""
    return _encode_lines(f"{epoch} {start_offset}" for epoch, start_offset in epochs)


# A start reads the same text for most partitions, because most have had only one leader epoch.
@lru_cache(maxsize=16)
def decode_epochs(text: str) -> tuple[tuple[int, int], ...]:
    """(epoch, start offset), as written. Raises CorruptCheckpoint."""
    entries = []
    for line in map(_checked, _lines(text)):
        epoch, start_offset = _fields(line, 2)
        entries.append((_number(epoch), _number(start_offset)))
    return tuple(entries)


def encode_sources(bases: Iterable[int]) -> bytes:
    """A list of sources: version, count, then a base offset in each line."""
    return _encode_lines(map(str, bases))


def decode_sources(text: str) -> list[int]:
    """The base offsets, as written. Raises CorruptCheckpoint."""
    return [_number(_checked(line)) for line in _lines(text)]


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """Kafka's partition.metadata, which ties a folder to its topic id."""
    text = uuid_text(topic_id)
    return f"version: 0\ntopic_id:{_checksum(text)}{text}\n".encode()


# A start reads the same text for every partition of a topic, one partition after the other.
@lru_cache(maxsize=16)
def decode_partition_metadata(text: str) -> bytes:
    """The topic id, 16 bytes. Raises CorruptCheckpoint."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            content = value.strip()
            blanks = value[: -len(value.lstrip())]
            if len(blanks) > 1 and blanks != _checksum(content):
                raise CorruptCheckpoint(f"{content!r} does not have its checksum")
            return decode_uuid(content)
    raise CorruptCheckpoint("no topic_id line")


def decode_uuid(text: str) -> bytes:
    """The 16 bytes of a UUID in Kafka's text form. Raises CorruptCheckpoint."""
    try:
        found = urlsafe_b64decode(text.strip() + "==")
    except ValueError as problem:
        raise CorruptCheckpoint(f"{text.strip()!r} is no id") from problem
    if len(found) != 16:
        raise CorruptCheckpoint(f"{text.strip()!r} is no id")
    return found


def encode_meta_properties(
    cluster_id: str,
    node_id: int,
    directory_id: bytes,
    directory_ids: Collection[bytes] = (),
    coordinator_hash: str = "",
) -> bytes:
    """Kafka's meta.properties, which ties a data directory to its node. `directory_ids`: the ids of
    all directories that may have partitions (L-43). `coordinator_hash`: see COORDINATOR_HASH."""
    lines = [
        "version=1",
        f"cluster.id={cluster_id}",
        f"node.id={node_id}",
        f"directory.id={uuid_text(directory_id)}",
    ]
    if directory_ids:
        lines.append(f"{DIRECTORY_IDS}={','.join(map(uuid_text, sorted(directory_ids)))}")
    if coordinator_hash:
        lines.append(f"{COORDINATOR_HASH}={coordinator_hash}")
    return ("\n".join(lines) + "\n").encode()


def decode_meta_properties(text: str) -> dict[str, str]:
    """The properties by name; comments and lines without `=` are left out."""
    properties = {}
    for line in text.splitlines():
        name, separator, value = line.partition("=")
        if separator and not name.lstrip().startswith("#"):
            properties[name.strip()] = value.strip()
    return properties


def _checksum(text: str) -> str:
    """A CRC-32C as text of 32 blanks (see the module)."""
    return f"{crc32c(text.encode()):032b}".translate(_BLANKS)


def _checked(line: str) -> str:
    """A line without its checksum. Raises CorruptCheckpoint if the checksum is wrong."""
    if not line.endswith((" ", "\t")):
        return line
    content = line[:-_CHECKSUM_CHARACTERS]
    if line[-_CHECKSUM_CHARACTERS:] != _checksum(content):
        raise CorruptCheckpoint(f"line {line.rstrip()!r} does not have its checksum")
    return content


def _encode_lines(entries: Iterable[str]) -> bytes:
    return _joined([entry + _checksum(entry) for entry in entries])


def _joined(lines: Sequence[str]) -> bytes:
    return ("\n".join(["0", str(len(lines)), *lines]) + "\n").encode()


def _lines(text: str) -> list[str]:
    """The entries with their checksums. Raises CorruptCheckpoint unless the file has as many
    entries as it says."""
    lines = text.splitlines()
    if len(lines) < 2 or _number(lines[0]) != 0:
        raise CorruptCheckpoint("unknown version")
    entries = [line for line in lines[2:] if line]
    if _number(lines[1]) != len(entries):
        raise CorruptCheckpoint(f"{lines[1]} entries announced, {len(entries)} are there")
    return entries


def _fields(line: str, count: int) -> list[str]:
    fields = line.split(" ")
    if len(fields) != count:
        raise CorruptCheckpoint(f"line {line!r}")
    return fields


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as problem:
        raise CorruptCheckpoint(f"{text!r} is not a number") from problem
