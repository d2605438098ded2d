"""The common Fetch request, read and answered without its codecs: one partition, or none of an
incremental session.

Nearly all requests of consumers are of this shape. `read_one_fetch` reads it straight from the
frame, and `fetch_answer` packs an answer without errors. Everything else (more partitions,
forgotten ones, tags, damage) is left to the codecs of `schemas/fetch.py`, which are the law: tests
hold both equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from odradek_protocol.codec import Buffer
from odradek_protocol.keys import ApiKey
from odradek_protocol.schemas.fetch import (
    SESSIONS_SINCE,
    TOP_LEVEL_ERROR_SINCE,
    TOPIC_IDS_SINCE,
    FetchRequest,
)

_VERSIONS = FetchRequest.versions
_FIRST, _LAST = _VERSIONS.first, _VERSIONS.last
#: From this version on lengths are varints, and there are tags.
_FLEXIBLE_SINCE = FetchRequest.flexible.first
_LOG_START_SINCE, _LEADER_EPOCHS_SINCE, _RACKS_SINCE = 5, 9, 11
#: From this version on the replica id is in a tag.
_REPLICA_TAG_SINCE = 15
_TOPIC_ID_BYTES = 16
#: Lengths in one byte of a varint, which are those of names that people give.
_ONE_BYTE = 0x80
#: Smaller records are joined with what surrounds them; a copy is cheaper than one more buffer.
_JOIN_BYTES = 4096

_REQUEST = Struct(">hhih")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_NO_SESSION = (0, -1)

# Replica id, max wait, min bytes, max bytes, isolation level; then session id and epoch.
_SETTINGS = Struct(">iiiib")
_SETTINGS_AND_SESSION = Struct(">iiiibii")
_SETTINGS_WITHOUT_REPLICA = Struct(">iiibii")
# Partition, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes.
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")

# Of an answer: throttle time, error, session; then the fields of a partition in front of its
# aborted transactions: index, error, high watermark, last stable offset, log start offset.
_HEAD = Struct(">ihi")
_ANSWER_4 = Struct(">ihqq")
_ANSWER_5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_SIZE_AND_ID = Struct(">ii")
_NO_REPLICA = b"\xff\xff\xff\xff"
_NO_TAGS = b"\0"
_BYTES = tuple(bytes([value]) for value in range(_ONE_BYTE))


class OneFetch(NamedTuple):
    """A Fetch request with at most one partition, of a consumer. Where it has none, `topic` is
    empty.

    `topic` is the name, or from version 13 on the 16 bytes of the id. Where a version lacks a
    field, it has its default.
    """

    version: int
    correlation_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topic: str | bytes
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    partition_max_bytes: int


class FetchedPartition(NamedTuple):
    """The answer for a partition without an error. `topic` is a name or 16 bytes of an id;
    `aborted` has (producer id, first offset), or is None with read_uncommitted."""

    topic: str | bytes
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]] | None
    records: Buffer


def read_one_fetch(frame: memoryview) -> OneFetch | None:
    """The request in a frame; None where the codecs have to look, be it sound or damaged."""
    try:
        key, version, correlation_id, size = _REQUEST.unpack_from(frame)
        if key != ApiKey.FETCH or not _FIRST <= version <= _LAST or size < -1:
            return None
        position = _REQUEST.size
        if size > 0:
            end = position + size
            if end > len(frame) or not bytes(frame[position:end]).isascii():
                return None
            position = end
        if version >= _FLEXIBLE_SINCE:
            return _read_flexible(frame, position, version, correlation_id)
        return _read_fixed(frame, position, version, correlation_id)
    except (struct_error, IndexError, UnicodeDecodeError):
        return None


def _read_fixed(
    frame: memoryview, position: int, version: int, correlation_id: int
) -> OneFetch | None:
    if version >= SESSIONS_SINCE:
        replica, *settings = _SETTINGS_AND_SESSION.unpack_from(frame, position)
        position += _SETTINGS_AND_SESSION.size
    else:
        replica, *settings = _SETTINGS.unpack_from(frame, position)
        settings += _NO_SESSION
        position += _SETTINGS.size
    (topics,) = _INT32.unpack_from(frame, position)
    position += _INT32.size
    if replica >= 0 or not 0 <= topics <= 1:
        return None
    asked = _NOTHING
    if topics:
        (size,) = _INT16.unpack_from(frame, position)
        start = position + _INT16.size
        position = start + size
        (partitions,) = _INT32.unpack_from(frame, position)
        if size <= 0 or partitions != 1:
            return None
        topic = str(frame[start:position], "utf-8")
        position += _INT32.size
        if version >= _LEADER_EPOCHS_SINCE:
            index, leader_epoch, offset, _, at_most = _PARTITION_9.unpack_from(frame, position)
            position += _PARTITION_9.size
        elif version >= _LOG_START_SINCE:
            index, offset, _, at_most = _PARTITION_5.unpack_from(frame, position)
            position += _PARTITION_5.size
            leader_epoch = -1
        else:
            index, offset, at_most = _PARTITION_4.unpack_from(frame, position)
            position += _PARTITION_4.size
            leader_epoch = -1
        asked = topic, index, leader_epoch, offset, -1, at_most
    if version >= SESSIONS_SINCE:
        (forgotten,) = _INT32.unpack_from(frame, position)
        position += _INT32.size
        if forgotten:
            return None
    if version >= _RACKS_SINCE:
        (size,) = _INT16.unpack_from(frame, position)
        position += _INT16.size
        end = position + size
        if size < 0 or end > len(frame) or not bytes(frame[position:end]).isascii():
            return None
    return OneFetch._make((version, correlation_id, *settings, *asked))


def _read_flexible(
    frame: memoryview, position: int, version: int, correlation_id: int
) -> OneFetch | None:
    if frame[position]:
        return None
    position += 1
    replica = -1
    if version >= _REPLICA_TAG_SINCE:
        settings = list(_SETTINGS_WITHOUT_REPLICA.unpack_from(frame, position))
        position += _SETTINGS_WITHOUT_REPLICA.size
    else:
        replica, *settings = _SETTINGS_AND_SESSION.unpack_from(frame, position)
        position += _SETTINGS_AND_SESSION.size
    # Lengths are one more than they are.
    topics = frame[position]
    position += 1
    if replica >= 0 or not 1 <= topics <= 2:
        return None
    asked = _NOTHING
    if topics == 2:
        topic: str | bytes
        if version >= TOPIC_IDS_SINCE:
            start, position = position, position + _TOPIC_ID_BYTES
            topic = bytes(frame[start:position])
        else:
            size = frame[position]
            start, position = position + 1, position + size
            if not 2 <= size < _ONE_BYTE:
                return None
            topic = str(frame[start:position], "utf-8")
        if frame[position] != 2:
            return None
        index, leader_epoch, offset, epoch, _, at_most = _PARTITION_12.unpack_from(
            frame, position + 1
        )
        position += 1 + _PARTITION_12.size
        # The tags of the partition and of the topic.
        if frame[position] or frame[position + 1]:
            return None
        position += 2
        asked = topic, index, leader_epoch, offset, epoch, at_most
    rack = frame[position + 1]
    end = position + 1 + rack
    if frame[position] != 1 or not 1 <= rack < _ONE_BYTE or frame[end]:
        return None
    if rack > 1 and not bytes(frame[position + 2 : end]).isascii():
        return None
    return OneFetch._make((version, correlation_id, *settings, *asked))


#: Topic, partition, current leader epoch, fetch offset, last fetched epoch, max bytes.
_NOTHING: tuple[str | bytes, int, int, int, int, int] = "", -1, -1, -1, -1, 0


def fetch_answer(
    version: int, correlation_id: int, session_id: int, fetched: Sequence[FetchedPartition]
) -> list[Buffer]:
    """The whole frame of an answer, length in front, as buffers. Neighbours of the same topic share
    its entry."""
    flexible = version >= _FLEXIBLE_SINCE
    runs = _runs(fetched)
    head = _HEAD.pack(0, 0, session_id) if version >= TOP_LEVEL_ERROR_SINCE else _INT32.pack(0)
    parts: list[Buffer] = [_NO_TAGS + head if flexible else head, _length(len(runs), flexible)]
    large: list[Buffer] = []
    for topic, partitions in runs:
        parts.append(_topic_field(topic, version))
        parts.append(_length(len(partitions), flexible))
        for one in partitions:
            parts.append(_partition_head(one, version))
            if len(one.records) > _JOIN_BYTES:
                large += (b"".join(parts), one.records)
                parts.clear()
            else:
                parts.append(one.records)
            if flexible:
                parts.append(_NO_TAGS)
        if flexible:
            parts.append(_NO_TAGS)
    if flexible:
        parts.append(_NO_TAGS)
    if parts:
        large.append(b"".join(parts))
    size = sum(map(len, large)) + _INT32.size
    large[0] = _SIZE_AND_ID.pack(size, correlation_id) + large[0]
    return large


def _runs(fetched: Sequence[FetchedPartition]) -> list[tuple[str | bytes, list[FetchedPartition]]]:
    runs: list[tuple[str | bytes, list[FetchedPartition]]] = []
    for one in fetched:
        if not runs or runs[-1][0] != one.topic:
            runs.append((one.topic, []))
        runs[-1][1].append(one)
    return runs


def _partition_head(one: FetchedPartition, version: int) -> bytes:
    """The fields of a partition that precede its records."""
    flexible = version >= _FLEXIBLE_SINCE
    if version >= _LOG_START_SINCE:
        head = _ANSWER_5.pack(
            one.partition, 0, one.high_watermark, one.last_stable_offset, one.log_start_offset
        )
    else:
        head = _ANSWER_4.pack(one.partition, 0, one.high_watermark, one.last_stable_offset)
    aborted = one.aborted
    if not aborted:
        head += _length(-1 if aborted is None else 0, flexible)
    else:
        end = _NO_TAGS if flexible else b""
        head += _length(len(aborted), flexible)
        head += b"".join([_ABORTED.pack(*each) + end for each in aborted])
    if version >= _RACKS_SINCE:
        head += _NO_REPLICA
    return head + _length(len(one.records), flexible)


@lru_cache(maxsize=1024)
def _topic_field(topic: str | bytes, version: int) -> bytes:
    if isinstance(topic, bytes):
        return topic
    name = topic.encode()
    if version >= _FLEXIBLE_SINCE:
        return _length(len(name), True) + name
    return _INT16.pack(len(name)) + name


def _length(count: int, flexible: bool) -> bytes:
    """The length in front of an array or bytes of `count` elements; -1 for null."""
    if not flexible:
        return _INT32.pack(count)
    value = count + 1
    if value < _ONE_BYTE:
        return _BYTES[value]
    out = bytearray()
    while value >= _ONE_BYTE:
        out.append(value & 0x7F | _ONE_BYTE)
        value >>= 7
    out.append(value)
    return bytes(out)
