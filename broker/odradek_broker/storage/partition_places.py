"""In which directory a partition is, where a start has found its name in several (L-41)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from odradek_broker.platform.seams import Clock, Files, Randomness
from odradek_broker.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CorruptCheckpoint,
    decode_epochs,
    decode_partition_metadata,
    read_small_file,
)
from odradek_broker.storage.errors import DataDirectoryError
from odradek_broker.storage.log_directory import DELETED_SUFFIX, STRAY_SUFFIX, LastRun
from odradek_broker.storage.segment import segment_name
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.primitives import ZERO_UUID

_FIRST_SEGMENT = f"{0:020d}.log"


class KnownTopics(Protocol):
    """What the metadata says of topics."""

    def topic_id(self, topic: str, /) -> bytes | None:
        """None if there is no such topic."""
        ...

    def is_removed(self, topic_id: bytes, /) -> bool:
        """Whether the removal of a topic is recorded; it may be, and not be known any more."""
        ...


def read_topic_id(files: Files, directory: str, problems: list[str]) -> bytes:
    """The id in the directory of a partition; all zeros where the file did not reach the disk: the
    cluster's metadata knows it."""
    try:
        text = read_small_file(files, f"{directory}/{PARTITION_METADATA}")
        return ZERO_UUID if text is None else decode_partition_metadata(text)
    except (CorruptCheckpoint, OSError) as problem:
        problems.append(f"{directory}/{PARTITION_METADATA}: {problem}")
        return ZERO_UUID


def read_first_epoch_start(files: Files, directory: str) -> int:
    """Where the first leader epoch of a partition begins, which is where its log does: both move
    together (L-10). 0 if its file does not say."""
    try:
        text = read_small_file(files, f"{directory}/{LEADER_EPOCHS}")
        epochs = [] if text is None else decode_epochs(text)
    except (CorruptCheckpoint, OSError):
        return 0  # Told where the log is opened.
    return min((start for _, start in epochs), default=0)


def begins_inside_a_segment(files: Files, directory: str, log_start_offset: int) -> bool:
    """Does a log begin where none of its segments does? DeleteRecords alone lets it, and has
    written so (L-10); retention and snapshots of the metadata let a log begin with a segment, and
    have not."""
    with suppress(OSError):  # Told where the log is opened.
        return f"{segment_name(log_start_offset)}.log" not in files.list(directory)
    return False


class PartitionPlaces:
    """`problems` gets what people are to know."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        randomness: Randomness,
        topics: KnownTopics,
        problems: list[str],
    ) -> None:
        self._files = files
        self._clock = clock
        self._randomness = randomness
        self._topics = topics
        self._problems = problems

    def choose(self, key: TopicPartition, found: Sequence[LastRun]) -> LastRun | None:
        """The directory that has the partition, of those with its name; None if none of them does.

        The others are of another topic of its name, deleted while a directory could not be used, or
        were begun and never finished: they are put out of the way. DataDirectoryError if it is in
        two.
        """
        name = f"{key[0]}-{key[1]}"
        wanted = self._topics.topic_id(key[0])
        ids = {left: read_topic_id(self._files, left.directory.path_of(name), []) for left in found}
        own = [left for left in found if ids[left] == wanted]
        # Where the id has not reached the disk, nothing was acknowledged.
        own = own or [left for left in found if wanted is None or ids[left] == ZERO_UUID]
        if len(own) > 1:
            # What was begun while a disk failed, and then made elsewhere.
            written = [e for e in own if not self._is_blank(e.directory.path_of(name))]
            own = written or own[:1]
        if len(own) > 1 and wanted is not None:
            paths = " and ".join(left.directory.path_of(name) for left in own)
            raise DataDirectoryError(
                f"the partition {name} is in two data directories, {paths}: move the one that is not"
                " wanted out of the way"
            )
        for left in found:
            if left not in own[:1]:
                self._put_away(left, name, ids[left])
        return own[0] if own else None

    def _is_blank(self, path: str) -> bool:
        """Has the partition never had a record?"""
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

    def _put_away(self, left: LastRun, name: str, topic_id: bytes) -> None:
        """It is kept, unless its topic is known to be removed or there is nothing in it."""
        path = left.directory.path_of(name)
        gone = self._is_blank(path) or self._topics.is_removed(topic_id)
        suffix = DELETED_SUFFIX if gone else STRAY_SUFFIX
        renamed = f"{path}.{self._randomness.uuid().hex()}{suffix}"
        try:
            self._files.rename(path, renamed)
        except OSError as problem:
            raise DataDirectoryError(f"{path} cannot be renamed: {problem}") from problem
        if gone:
            left.directory.deleted_files.add_directory(self._clock.wall_ms(), renamed)
        else:
            self._problems.append(
                f"{path} is of a deleted topic of the same name; it is kept as {renamed}"
            )
