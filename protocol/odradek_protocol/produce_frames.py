"""A second codec for the common Produce request: one topic, one partition, one batch.

Nearly all requests of producers are of this shape. `read_one_batch` reads it straight from the
frame, and `OneBatch.encode_response` packs the response to a batch that was appended. All other
requests and responses (several partitions, tags, no records, old batches, errors, damage) use the
codecs of `schemas/produce.py`; tests check that both codecs agree. The compiled twin of the reader
is in `records/_native.c`.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from odradek_protocol.codec import Buffer
from odradek_protocol.keys import ApiKey
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.records import native
from odradek_protocol.records.layout import ATTRIBUTES_AT, HEADER_BYTES, MAGIC, MAGIC_AT
from odradek_protocol.schemas.produce import (
    TOPIC_IDS_SINCE,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

_VERSIONS = ProduceRequest.versions
_FIRST, _LAST = _VERSIONS.first, _VERSIONS.last
#: From this version on lengths are varints, and there are tags.
_FLEXIBLE_SINCE = ProduceRequest.flexible.first
#: The first versions in which the answer has the log start offset, and errors of records.
_LOG_START_SINCE, _RECORD_ERRORS_SINCE = 5, 8
_TOPIC_ID_BYTES = 16

_REQUEST = Struct(">hhih")
_INT16 = Struct(">h")
_SETTINGS = Struct(">hi")
_SETTINGS_AND_TOPICS = Struct(">hii")
_PARTITION = Struct(">iii")
_INDEX = Struct(">i")
_ATTRIBUTES = Struct(">h")

# The fields of a response before the topic (HEAD) and after it (TAIL).
_HEAD = Struct(">iii")
_FLEXIBLE_HEAD = Struct(">iiBB")
_TAIL = Struct(">iihqqi")
_TAIL_LOG_START = Struct(">iihqqqi")
_TAIL_RECORD_ERRORS = Struct(">iihqqqihi")
_FLEXIBLE_TAIL = Struct(">BihqqqBBBBiB")


class OneBatch(NamedTuple):
    """A Produce request with one batch of magic 2.

    `topic` is the name, or from version 13 on the 16 bytes of the id. `topic_field` is the encoded
    topic in the frame; the answer repeats these bytes. `records` has at least the bytes of a
    batch's header, but its content is not checked. `attributes` is the field of the batch's header.
    """

    version: int
    correlation_id: int
    client_id: str | None
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic: str | bytes
    topic_field: bytes
    partition: int
    attributes: int
    records: memoryview

    def encode_response(
        self, base_offset: int, log_append_time_ms: int, log_start_offset: int
    ) -> list[Buffer]:
        """The whole frame of the response to a batch that was appended, with its length."""
        version, topic = self.version, self.topic_field
        if version >= _FLEXIBLE_SINCE:
            size = _FLEXIBLE_HEAD.size + len(topic) + _FLEXIBLE_TAIL.size - 4
            return [
                _FLEXIBLE_HEAD.pack(size, self.correlation_id, 0, 2)
                + topic
                + _FLEXIBLE_TAIL.pack(
                    2, self.partition, 0, base_offset, log_append_time_ms,
                    log_start_offset, 1, 0, 0, 0, 0, 0,
                )
            ]  # fmt: skip
        offset_and_time = self.partition, 0, base_offset, log_append_time_ms
        if version >= _RECORD_ERRORS_SINCE:
            tail = _TAIL_RECORD_ERRORS.pack(1, *offset_and_time, log_start_offset, 0, -1, 0)
        elif version >= _LOG_START_SINCE:
            tail = _TAIL_LOG_START.pack(1, *offset_and_time, log_start_offset, 0)
        else:
            tail = _TAIL.pack(1, *offset_and_time, 0)
        size = _HEAD.size + len(topic) + len(tail) - 4
        return [_HEAD.pack(size, self.correlation_id, 1) + topic + tail]

    def response(self, answer: PartitionProduceResponse) -> ProduceResponse:
        """The response with `answer` for the only partition, for the generated codec."""
        topic = TopicProduceResponse(partition_responses=[answer])
        if isinstance(self.topic, str):
            topic.name = self.topic
        else:
            topic.topic_id = self.topic
        return ProduceResponse(responses=[topic])


_new = tuple.__new__


def read_one_batch(frame: memoryview) -> OneBatch | None:
    """The request in a frame; None for any frame that needs the generated codec, whether valid or
    damaged."""
    compiled = native.CODEC
    if compiled is not None:
        found = compiled.read_one_batch(frame)
        return None if found is None else _new(OneBatch, found)
    try:
        return _read(frame)
    except (struct_error, IndexError, UnicodeDecodeError):
        return None


def _read(frame: memoryview) -> OneBatch | None:
    key, version, correlation_id, size = _REQUEST.unpack_from(frame)
    if key != ApiKey.PRODUCE or not _FIRST <= version <= _LAST:
        return None
    position = _REQUEST.size
    client_id: str | None = None
    if size >= 0:
        end = position + size
        client_id = str(frame[position:end], "utf-8")
        position = end
    elif size != -1:
        return None
    if version < _FLEXIBLE_SINCE:
        return _read_fixed(frame, position, version, correlation_id, client_id)
    return _read_flexible(frame, position, version, correlation_id, client_id)


def _read_fixed(
    frame: memoryview, position: int, version: int, correlation_id: int, client_id: str | None
) -> OneBatch | None:
    transactional_id: str | None = None
    size = _INT16.unpack_from(frame, position)[0]
    position += 2
    if size >= 0:
        end = position + size
        transactional_id = str(frame[position:end], "utf-8")
        position = end
    elif size != -1:
        return None
    acks, timeout_ms, topics = _SETTINGS_AND_TOPICS.unpack_from(frame, position)
    start = position + _SETTINGS_AND_TOPICS.size
    size = _INT16.unpack_from(frame, start)[0]
    position = start + 2 + size
    if topics != 1 or size < 0:
        return None
    topic_field = bytes(frame[start:position])
    partitions, index, size = _PARTITION.unpack_from(frame, position)
    position += _PARTITION.size
    if partitions != 1 or size < HEADER_BYTES or position + size != len(frame):
        return None
    if frame[position + MAGIC_AT] != MAGIC:
        return None
    return OneBatch(
        version,
        correlation_id,
        client_id,
        transactional_id,
        acks,
        timeout_ms,
        str(topic_field[2:], "utf-8"),
        topic_field,
        index,
        _ATTRIBUTES.unpack_from(frame, position + ATTRIBUTES_AT)[0],
        frame[position:],
    )


def _read_flexible(
    frame: memoryview, position: int, version: int, correlation_id: int, client_id: str | None
) -> OneBatch | None:
    if frame[position]:
        return None
    transactional_id: str | None = None
    size, position = _size(frame, position + 1)
    if size >= 0:
        end = position + size
        transactional_id = str(frame[position:end], "utf-8")
        position = end
    acks, timeout_ms = _SETTINGS.unpack_from(frame, position)
    position += _SETTINGS.size
    topics, start = _size(frame, position)
    topic: str | bytes
    if version < TOPIC_IDS_SINCE:
        size, position = _size(frame, start)
        name_at, position = position, position + size
        if size < 0:
            return None
        topic = str(frame[name_at:position], "utf-8")
        topic_field = bytes(frame[start:position])
    else:
        position = start + _TOPIC_ID_BYTES
        topic = topic_field = bytes(frame[start:position])
    partitions, position = _size(frame, position)
    index = _INDEX.unpack_from(frame, position)[0]
    size, position = _size(frame, position + _INDEX.size)
    end = position + size
    # The records are followed by the tags of the partition, the topic and the request.
    if topics != 1 or partitions != 1 or size < HEADER_BYTES or end + 3 != len(frame):
        return None
    if frame[end] or frame[end + 1] or frame[end + 2] or frame[position + MAGIC_AT] != MAGIC:
        return None
    return OneBatch(
        version,
        correlation_id,
        client_id,
        transactional_id,
        acks,
        timeout_ms,
        topic,
        topic_field,
        index,
        _ATTRIBUTES.unpack_from(frame, position + ATTRIBUTES_AT)[0],
        frame[position:end],
    )


def _size(frame: memoryview, position: int) -> tuple[int, int]:
    """(a compact length, position after it). The length is -1 for null. Raises IndexError for a
    varint that is longer than necessary, or has more than four bytes."""
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 21:
            raise IndexError
    if shift and not byte:
        raise IndexError
    return value - 1, position
