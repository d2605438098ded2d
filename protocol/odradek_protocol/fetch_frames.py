"""A second codec for the common Fetch request: a request with one partition, or with none in an
incremental session.

Nearly all requests of consumers are of this shape. `read_one_fetch` reads it straight from the
frame, and `OneFetch.encode_response` packs a response without errors. All other requests and
responses (several partitions, forgotten partitions, tags, damaged bytes) use the codecs of
`schemas/fetch.py`; tests check that both codecs agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from struct import error as struct_error

from odradek_protocol.codec import Buffer
from odradek_protocol.constants import READ_COMMITTED, READ_UNCOMMITTED
from odradek_protocol.keys import ApiKey
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.schemas.fetch import (
    SESSIONS_SINCE,
    TOP_LEVEL_ERROR_SINCE,
    TOPIC_IDS_SINCE,
    FetchRequest,
    PartitionData,
)

_VERSIONS = FetchRequest.versions
_FIRST, _LAST = _VERSIONS.first, _VERSIONS.last
#: From this version on lengths are varints, and there are tags.
_FLEXIBLE_SINCE = FetchRequest.flexible.first
_LOG_START_SINCE, _LEADER_EPOCHS_SINCE, _RACKS_SINCE = 5, 9, 11
#: From this version on the replica id is in a tag.
_REPLICA_TAG_SINCE = 15
_TOPIC_ID_BYTES = 16
#: The limit below which the varint of a length has one byte; the lengths of ordinary names are
#: below it.
_ONE_BYTE = 0x80
#: Record sets up to this size are joined with the bytes around them, because a copy is cheaper than
#: one more buffer.
_JOIN_BYTES = 4096

_REQUEST = Struct(">hhih")
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_NO_SESSION = (0, -1)

#: Version, correlation id, client id.
_Header = tuple[int, int, str | None]
#: Topic, partition, current leader epoch, fetch offset, last fetched epoch, max bytes.
_Asked = tuple[str | bytes, int, int, int, int, int]
_NOTHING: _Asked = "", -1, -1, -1, -1, 0

# Settings: replica id, max wait, min bytes, max bytes, isolation level. Session: id and epoch.
_SETTINGS = Struct(">iiiib")
_SETTINGS_AND_SESSION = Struct(">iiiibii")
_SETTINGS_WITHOUT_REPLICA = Struct(">iiibii")
# Partition, current leader epoch (since version 9), fetch offset, last fetched epoch (since 12),
# log start offset (since 5), max bytes.
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")

# The beginning of a response: throttle time, error, session.
_HEAD = Struct(">ihi")
# The fields of a partition before its aborted transactions: index, error, high watermark, last
# stable offset, log start offset (since version 5).
_ANSWER_4 = Struct(">ihqq")
_ANSWER_5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_SIZE_AND_ID = Struct(">ii")
_NO_REPLICA = b"\xff\xff\xff\xff"
_NO_TAGS = b"\0"
_BYTES = tuple(bytes([value]) for value in range(_ONE_BYTE))


class OneFetch(NamedTuple):
    """A Fetch request of a consumer with at most one partition; `topic` is empty if it has none.

    `topic` is the name, or from version 13 on the 16 bytes of the id. A field that a version lacks
    has its default.
    """

    version: int
    correlation_id: int
    client_id: str | None
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

    def encode_response(
        self, session_id: int, answers: Sequence[tuple[str | bytes, PartitionData]]
    ) -> list[Buffer] | None:
        """The whole frame of a response, with its length, as buffers; None if the response has
        errors or diverging epochs and so needs the generated codec.

        `answers`: the partitions, each with the name of its topic, from version 13 on with the
        topic id. Consecutive partitions of a topic are put into one entry.
        """
        version = self.version
        flexible = version >= _FLEXIBLE_SINCE
        end = _NO_TAGS if flexible else b""
        topics = _by_topic(answers)
        head = _INT32.pack(0)
        if version >= TOP_LEVEL_ERROR_SINCE:
            head = _HEAD.pack(0, 0, session_id)
        parts: list[Buffer] = [end + head + _length(len(topics), flexible)]
        large: list[Buffer] = []
        for topic, partitions in topics:
            parts.append(_topic_field(topic, version) + _length(len(partitions), flexible))
            for one in partitions:
                if one.error_code or one.diverging_epoch.epoch >= 0:
                    return None
                parts.append(_partition_head(one, version))
                records = one.records or b""
                if len(records) > _JOIN_BYTES:
                    large += (b"".join(parts), records)
                    parts.clear()
                else:
                    parts.append(records)
                parts.append(end)
            parts.append(end)
        parts.append(end)
        if tail := b"".join(parts):
            large.append(tail)
        size = sum(map(len, large)) + _INT32.size
        large[0] = _SIZE_AND_ID.pack(size, self.correlation_id) + large[0]
        return large


_new = tuple.__new__


def read_one_fetch(frame: memoryview) -> OneFetch | None:
    """The request in a frame; None for any frame that needs the generated codec, whether valid or
    damaged."""
    try:
        key, version, correlation_id, size = _REQUEST.unpack_from(frame)
        if key != ApiKey.FETCH or not _FIRST <= version <= _LAST or size < -1:
            return None
        position = _REQUEST.size
        client_id: str | None = None
        if size >= 0:
            end = position + size
            if end > len(frame):
                return None
            client_id = str(frame[position:end], "utf-8")
            position = end
        header = version, correlation_id, client_id
        if version >= _FLEXIBLE_SINCE:
            return _read_flexible(frame, position, header)
        return _read_fixed(frame, position, header)
    except (struct_error, IndexError, UnicodeDecodeError):
        return None


def _read_fixed(frame: memoryview, position: int, header: _Header) -> OneFetch | None:
    version = header[0]
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
    return _request(header, settings, asked)


def _read_flexible(frame: memoryview, position: int, header: _Header) -> OneFetch | None:
    version = header[0]
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
    # A compact array begins with its number of elements plus one, so 1 means no topic and 2 means
    # one topic.
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
    return _request(header, settings, asked)


def _request(header: _Header, settings: list[int], asked: _Asked) -> OneFetch | None:
    if settings[3] not in (READ_UNCOMMITTED, READ_COMMITTED):
        return None
    return _new(OneFetch, (*header, *settings, *asked))


def _by_topic(
    answers: Sequence[tuple[str | bytes, PartitionData]],
) -> list[tuple[str | bytes, list[PartitionData]]]:
    topics: list[tuple[str | bytes, list[PartitionData]]] = []
    for topic, answer in answers:
        if not topics or topics[-1][0] != topic:
            topics.append((topic, []))
        topics[-1][1].append(answer)
    return topics


def _partition_head(one: PartitionData, version: int) -> bytes:
    """The fields of a partition that precede its records."""
    flexible = version >= _FLEXIBLE_SINCE
    index, high_watermark = one.partition_index, one.high_watermark
    if version >= _LOG_START_SINCE:
        head = _ANSWER_5.pack(
            index, 0, high_watermark, one.last_stable_offset, one.log_start_offset
        )
    else:
        head = _ANSWER_4.pack(index, 0, high_watermark, one.last_stable_offset)
    aborted = one.aborted_transactions
    if not aborted:
        head += _length(-1 if aborted is None else 0, flexible)
    else:
        end = _NO_TAGS if flexible else b""
        head += _length(len(aborted), flexible)
        head += b"".join(
            [_ABORTED.pack(each.producer_id, each.first_offset) + end for each in aborted]
        )
    if version >= _RACKS_SINCE:
        head += _NO_REPLICA
    return head + _length(len(one.records or b""), flexible)


@lru_cache(maxsize=1024)
def _topic_field(topic: str | bytes, version: int) -> bytes:
    if isinstance(topic, bytes):
        return topic
    name = topic.encode()
    if version >= _FLEXIBLE_SINCE:
        return _length(len(name), True) + name
    return _INT16.pack(len(name)) + name


def _length(count: int, flexible: bool) -> bytes:
    """The length that precedes an array or bytes of `count` elements. `count` -1: null."""
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
