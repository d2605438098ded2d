"""Record batches: read by the pure and the compiled codec, checked as in a Produce request,
fetched by the client.

If bit 0 of the first byte is set, the length and the checksum of the first batch are corrected, so
that inputs reach the later checks. The other bits choose the settings of the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from tests.adversity.fuzz.target import MEGABYTE, Broken, Target

import record_codecs
from logs import NOW_MS, make_batch, make_marker
from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.validation import (
    DecompressionBudget,
    PlainRules,
    check_plain,
    prepare,
)
from odradek_client.consumer.completed_fetch import CompletedFetch, DecodeSettings
from odradek_client.consumer.errors import CorruptRecord, OversizedRecord
from odradek_client.structs import TopicPartition
from odradek_protocol.compression import Codec, compress
from odradek_protocol.records import native
from odradek_protocol.records.arrow import PureRows
from odradek_protocol.records.batch import (
    BatchError,
    BatchHeader,
    CorruptBatch,
    iter_batches,
    read_header,
    update_crc,
    verify_crc,
)
from odradek_protocol.records.builder import seal
from odradek_protocol.records.layout import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD_BYTES,
)
from odradek_protocol.records.record import read_body, read_records, scan_records
from odradek_protocol.schemas.fetch import AbortedTransaction
from rewritten_batches import rewrite_batch

_BODY_BYTES_MAX = MEGABYTE
_TAKES_MAX = 10_000
_MAX_OFFSET = 2**63 - 1

_COMPILED = record_codecs.compiled()
_TWINS = (None, None if isinstance(_COMPILED, str) else _COMPILED)

_TOPICS = (
    LogConfig(),
    LogConfig(message_timestamp_type="LogAppendTime"),
    LogConfig(cleanup_policy=frozenset({"compact"})),
    LogConfig(compression_type="zstd"),
    LogConfig(compression_type="uncompressed"),
    LogConfig(record_validation="header"),
    LogConfig(compression_type="gzip", message_timestamp_type="LogAppendTime"),
    LogConfig(max_message_bytes=200, message_timestamp_before_max_ms=1000),
)


def _seeds() -> Iterator[bytes]:
    for codec in Codec:
        yield b"\1" + make_batch(3, codec=codec)
    for topic in range(len(_TOPICS)):
        yield bytes([1 + 2 * topic]) + make_batch(2, value=None)
    yield b"\1" + make_batch(70, key=None, value=b"v")
    yield b"\1" + make_batch(2, value=bytes(300), producer_id=7, epoch=1, transactional=True)
    yield b"\1" + make_batch(2, log_append_time_ms=NOW_MS)
    yield b"\1" + make_marker(True, 7)
    yield b"\0" + make_marker(False, 7) + make_batch(1)
    header = read_header(make_batch(2, codec=Codec.NONE))
    rows = b"\x18\0\0\0\2k\2v\4\2h\2x\4hh\1" + b"\x0e\0\2\2\1\1\0"
    yield b"\1" + seal(header, rows)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        bomb = read_header(make_batch(1, codec=codec))
        yield b"\1" + seal(bomb, compress(codec, bytes(4 * MEGABYTE)))[:4000]


@contextmanager
def _twin(codec: ModuleType | None) -> Iterator[None]:
    held, native.CODEC = native.CODEC, codec
    try:
        yield
    finally:
        native.CODEC = held


def _alike(call: Callable[[], Any]) -> Any:
    """The result of both codecs; if both raise a BatchError, its class name and its text."""
    answers = []
    for codec in _TWINS:
        with _twin(codec):
            try:
                answers.append(call())
            except BatchError as problem:
                answers.append((type(problem).__name__, str(problem)))
    if answers[0] != answers[1]:
        raise Broken(f"pure: {answers[0]!r:.300}, compiled: {answers[1]!r:.300}")
    return answers[0]


def _check_reading(data: bytearray, position: int, header: BatchHeader) -> None:
    """Check that both codecs agree, and that the records can be written and read again."""
    records = _alike(lambda: read_records(data, position, header, _BODY_BYTES_MAX))
    if not isinstance(records, list):
        return
    body = read_body(data, position, header, _BODY_BYTES_MAX)
    if header.record_count > 0:
        _alike(lambda: scan_records(body, header.record_count))
    _check_rows(body, header)
    if header.has_delete_horizon or header.is_log_append_time:
        return
    again = _alike(lambda: bytes(rewrite_batch(header, records)))
    if read_records(again, 0, read_header(again)) != records:
        raise Broken("records change when they are written and read")


def _check_rows(body: bytes, header: BatchHeader) -> None:
    """Check that both codecs make the same Arrow columns of the records."""
    append_time = header.max_timestamp if header.is_log_append_time else None
    place = (header.base_offset, header.last_offset_delta, header.base_timestamp, append_time)
    found = []
    for codec in _TWINS:
        rows: Any = PureRows(15) if codec is None else codec.Rows(15)
        try:
            left = rows.add(body, header.record_count, *place, 0, _MAX_OFFSET, 1000)
        except CorruptBatch:
            left = None
        found.append((left, rows.count, rows.take()))
    if found[0] != found[1]:
        raise Broken(f"rows: pure {found[0]!r:.300}, compiled {found[1]!r:.300}")


def _check_plain(data: bytearray, topic: LogConfig, answer: tuple[Any, ...]) -> None:
    """Check that every batch that the compiled check accepts passes the full check unchanged."""
    if _TWINS[1] is None:
        return
    with _twin(_TWINS[1]):
        header = check_plain(memoryview(data), PlainRules.of(topic), NOW_MS)
    if header is not None and answer != (bytes(data), header, -1):
        raise Broken(f"a batch that is no plain one passes for one: {answer}")


def _check_produce(data: bytearray, topic: LogConfig) -> None:
    """Check that a batch is refused with a code, or changed into one that every reader accepts."""

    def prepared() -> Any:
        batch = memoryview(bytearray(data))
        try:
            made = prepare(
                batch, topic, AppendOrigin.CLIENT, NOW_MS, DecompressionBudget(_BODY_BYTES_MAX)
            )
        except AppendRejected as problem:
            return problem.error, str(problem)
        return bytes(made.batch), made.header, made.log_append_time_ms

    log_append_time_claimed = len(data) >= HEADER_BYTES and bool(
        data[ATTRIBUTES_AT + 1] & LOG_APPEND_TIME_BIT
    )
    answer = _alike(prepared)
    _check_plain(data, topic, answer)
    if len(answer) != 3:
        return
    batch, header, append_time_ms = answer
    if read_header(batch) != header and read_header(batch).crc == header.crc:
        raise Broken(f"the header is {read_header(batch)}, not {header}")
    header = read_header(batch)
    verify_crc(batch, 0, header)
    if not topic.opens_records:
        return
    records = read_records(batch, 0, header)
    counting_up = [record.offset for record in records] == list(range(len(records)))
    if header.codec is not Codec.NONE and not counting_up:
        raise Broken("offsets of compressed records do not count up")
    if append_time_ms != -1 and {record.timestamp for record in records} != {append_time_ms}:
        raise Broken("LogAppendTime, and other timestamps")
    if log_append_time_claimed:
        return  # With this bit, readers give every record the header's largest timestamp.
    if append_time_ms == -1 and header.max_timestamp != max(max(r.timestamp for r in records), -1):
        raise Broken(f"the largest timestamp is not {header.max_timestamp}")


def _check_fetch(data: bytearray, *, read_committed: bool) -> None:
    """Check that the consumer reads the batch to its end, or raises a declared error."""
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    settings = DecodeSettings(read_committed=read_committed, check_crcs=not read_committed)
    fetch = CompletedFetch(TopicPartition("t", 0), 0, data, aborted, settings)
    for _ in range(_TAKES_MAX):
        try:
            fetch.take(3)
        except (CorruptRecord, OversizedRecord):
            return
        if fetch.exhausted:
            return
    raise Broken(f"a fetch of {len(data)} bytes does not end")


def _check(data: bytes) -> None:
    if not data:
        return
    how, batch = data[0], bytearray(data[1:])
    if how & 1 and len(batch) >= HEADER_BYTES:
        length = len(batch) - LOG_OVERHEAD_BYTES
        batch[LENGTH_AT : LENGTH_AT + 4] = length.to_bytes(4, "big")
        update_crc(batch, 0)
    try:
        for position, header in iter_batches(batch):
            verify_crc(batch, position, header)
            _check_reading(batch, position, header)
    except BatchError:
        pass
    _check_produce(batch, _TOPICS[how // 2 % len(_TOPICS)])
    _check_fetch(batch, read_committed=bool(how & 0x80))


TARGET = Target(_check, _seeds, memory_bytes=64 * MEGABYTE)
