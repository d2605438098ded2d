"""Foreign readers read our batches, and our reader reads theirs.

aiokafka (its Cython codec and its pure Python codec) and kafka-python are called directly.
librdkafka has its own implementations of snappy, lz4 and zstd; it is reached over a socket through
its mock cluster, with the two necessary requests encoded by hand.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka.record import default_records as aio
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kp
from kafka.record.memory_records import MemoryRecords as KpMemoryRecords

import budget
from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import (
    iter_batches,
    read_header,
    set_log_append_time,
    stamp,
    verify_crc,
)
from odradek_protocol.records.builder import BatchBuilder, control_batch
from odradek_protocol.records.record import Record, TimestampType, read_records
from odradek_protocol.records.validation import RecordRules, validate_records
from odradek_protocol.stored.control_marker import ControlType

pytestmark = pytest.mark.usefixtures("codec_twin")

NOW = 1_700_000_000_000

AIO_BUILDERS = [aio.DefaultRecordBatchBuilder, aio._DefaultRecordBatchBuilderPy]
AIO_READERS = [aio.DefaultRecordBatch, aio._DefaultRecordBatchPy]
KAFKA_PYTHON_CODECS = [Codec.NONE, Codec.GZIP]  # The other codecs need additional packages.

ROWS: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (NOW, b"key", b"value", []),
    (NOW + 1, None, b"value without key" * 30, []),
    (NOW - 5, b"tombstone", None, []),
    (NOW, None, None, []),
    (NOW + 100_000, b"", b"", [("", b""), ("empty", None)]),
    (NOW, b"k" * 200, b"v" * 70_000, [("schlüssel", b"\x00\xff"), ("schlüssel", b"again")]),
    *[(NOW + n, None, b"%05d" % n, []) for n in range(9000)],
]

OCTETS = st.none() | st.binary(max_size=40) | st.integers(0, 300).map(bytes)
DRAWN_ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**42),
        OCTETS,
        OCTETS,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


def ours(rows: Any, codec: Codec, **stamped: Any) -> bytearray:
    builder = BatchBuilder(codec)
    for row in rows:
        builder.append(*row)
    return builder.build(**stamped)


def theirs(builder_class: Any, rows: Any, codec: Codec, **extra: Any) -> bytes:
    settings = {"magic": 2, "is_transactional": 0, "producer_id": 9, "producer_epoch": 1}
    settings |= {"base_sequence": 5, "batch_size": 1 << 30, **extra}
    builder = builder_class(compression_type=int(codec), **settings)
    for n, (timestamp, key, value, headers) in enumerate(rows):
        metadata = builder.append(n, timestamp, key, value, headers)
        assert metadata is not None
    return bytes(builder.build())


def as_rows(records: list[Record]) -> list[Any]:
    return [(r.timestamp, r.key, r.value, list(r.headers)) for r in records]


def read_all(batch: bytes) -> list[Record]:
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    verify_crc(batch, 0, header)
    return read_records(batch, 0, header)


@pytest.mark.parametrize("codec", budget.of_which(Codec, [Codec.NONE, Codec.ZSTD]))
@pytest.mark.parametrize("builder_class", AIO_BUILDERS)
def test_the_reader_reads_batches_of_aiokafka(builder_class: Any, codec: Codec) -> None:
    batch = theirs(builder_class, ROWS, codec, is_transactional=1)
    header = read_header(batch)
    assert (header.codec, header.is_transactional) == (codec, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 5)
    records = read_all(batch)
    assert as_rows(records) == ROWS
    assert [record.offset for record in records] == list(range(len(ROWS)))
    assert validate_records(batch, 0, header, RecordRules(), NOW).accepted


@pytest.mark.parametrize("codec", budget.of_which(Codec, [Codec.NONE, Codec.ZSTD]))
@pytest.mark.parametrize("reader_class", AIO_READERS)
def test_aiokafka_reads_the_builders_batches(reader_class: Any, codec: Codec) -> None:
    batch = ours(ROWS, codec, base_offset=1000, transactional=True, producer_id=3)
    reader = reader_class(bytes(batch))
    assert reader.validate_crc()
    assert (reader.base_offset, reader.producer_id, reader.is_transactional) == (1000, 3, True)
    assert reader.next_offset == 1000 + len(ROWS)
    assert reader.compression_type == codec
    found = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in reader]
    assert found == [(1000 + n, *row) for n, row in enumerate(ROWS)]


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_the_reader_reads_batches_of_kafka_python(codec: Codec) -> None:
    assert as_rows(read_all(theirs(kp.DefaultRecordBatchBuilder, ROWS, codec))) == ROWS


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_kafka_python_reads_the_builders_batches(codec: Codec) -> None:
    reader = kp.DefaultRecordBatch(bytes(ours(ROWS, codec, base_offset=50, base_sequence=7)))
    assert reader.validate_crc()
    assert (reader.base_offset, reader.base_sequence, reader.leader_epoch) == (50, 7, -1)
    assert reader.last_sequence == 7 + len(ROWS) - 1
    found = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in reader]
    assert found == [(50 + n, *row) for n, row in enumerate(ROWS)]


@given(DRAWN_ROWS, st.sampled_from(Codec))
@settings(deadline=None)
def test_batches_of_aiokafka_and_the_builder_have_the_same_bytes(rows: Any, codec: Codec) -> None:
    """Records have only one valid encoding; only compressed bytes may differ."""
    mine = ours(rows, codec, producer_id=9, producer_epoch=1, base_sequence=5)
    other = theirs(aio.DefaultRecordBatchBuilder, rows, codec)
    assert read_header(other).max_timestamp == read_header(mine).max_timestamp
    if codec is Codec.NONE:
        # Only the leader epoch may differ: a client may leave any value in it.
        stamp(mine, 0, 0, read_header(other).leader_epoch)
        assert mine == other
    assert as_rows(read_all(other)) == rows
    assert [
        (r.timestamp, r.key, r.value, r.headers) for r in aio.DefaultRecordBatch(bytes(mine))
    ] == rows


@given(DRAWN_ROWS)
@settings(deadline=None)
def test_batches_of_kafka_python_and_the_builder_have_the_same_bytes(rows: Any) -> None:
    mine = ours(rows, Codec.NONE, producer_id=9, producer_epoch=1, base_sequence=5)
    other = theirs(kp.DefaultRecordBatchBuilder, rows, Codec.NONE)
    stamp(mine, 0, 0, read_header(other).leader_epoch)
    assert mine == other


def test_r03_aiokafka_and_kafka_python_read_log_append_time() -> None:
    batch = ours(ROWS[:4], Codec.ZSTD)
    set_log_append_time(batch, 0, NOW + 7)
    for reader in (aio.DefaultRecordBatch(bytes(batch)), kp.DefaultRecordBatch(bytes(batch))):
        assert reader.validate_crc()
        if isinstance(reader, aio.DefaultRecordBatch):
            assert {(r.timestamp, r.timestamp_type) for r in reader} == {(NOW + 7, 1)}
        else:
            assert (reader.timestamp_type, reader.max_timestamp) == (1, NOW + 7)


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_r30_aiokafka_and_kafka_python_read_transaction_markers(kind: ControlType) -> None:
    batch = bytes(control_batch(kind, 7, 9, 1, NOW))
    (marker,) = kp.DefaultRecordBatch(batch)
    assert (marker.version, marker.commit, marker.abort) == (0, bool(kind), not kind)
    reader = aio.DefaultRecordBatch(batch)
    assert reader.is_control_batch and reader.is_transactional and reader.validate_crc()
    (record,) = reader
    assert record.key == bytes([0, 0, 0, kind])


def test_r14_aiokafka_and_kafka_python_read_consecutive_batches() -> None:
    row = ours(ROWS[:5], Codec.LZ4) + ours(ROWS[5:9], Codec.NONE, base_offset=5)
    cut = bytes(row + ours(ROWS[:1], Codec.NONE, base_offset=9)[:-1])
    assert [header.base_offset for _, header in iter_batches(cut)] == [0, 5]
    aio_records, kp_records = AioMemoryRecords(cut), KpMemoryRecords(cut)
    found = []
    while aio_records.has_next():
        found.append(aio_records.next_batch().next_offset)
    assert found == [5, 9]
    found = []
    while kp_records.has_next():
        found.append(kp_records.next_batch().next_offset)
    assert found == [5, 9]


# --- librdkafka ---------------------------------------------------------------------------------


class MockCluster:
    """librdkafka's mock cluster, which exists as long as the producer that creates it. Requests are
    sent to its socket as bytes."""

    def __init__(self) -> None:
        self.owner = confluent_kafka.Producer({"test.mock.num.brokers": 1})
        broker = next(iter(self.owner.list_topics(timeout=10).brokers.values()))
        self.address = (broker.host, broker.port)
        self.bootstrap = f"{broker.host}:{broker.port}"

    def request(self, key: int, version: int, body: bytes) -> bytes:
        with socket.create_connection(self.address, timeout=10) as line:
            message = struct.pack(">hhih", key, version, 1, -1) + body
            line.sendall(struct.pack(">i", len(message)) + message)
            stream = line.makefile("rb")
            (size,) = struct.unpack(">i", stream.read(4))
            return stream.read(size)[4:]

    def create(self, topic: str) -> None:
        """Create a topic by Metadata v4 with allow_auto_topic_creation."""
        name = topic.encode()
        self.request(3, 4, struct.pack(">ih", 1, len(name)) + name + b"\x01")

    def fetch(self, topic: str, offset: int) -> bytes:
        """Return the stored batch of partition 0 that has this offset, by Fetch v4."""
        name = topic.encode()
        body = struct.pack(">iiiibi", -1, 100, 1, 1 << 30, 0, 1)
        body += struct.pack(">h", len(name)) + name
        answer = self.request(1, 4, body + struct.pack(">iiqi", 1, 0, offset, 1 << 30))
        at = 4 + 4 + 2 + len(name) + 4  # throttle, topics, name, partitions
        _, error, _, _, aborted, size = struct.unpack_from(">ihqqii", answer, at)
        assert (error, max(aborted, 0)) == (0, 0)
        return answer[at + 30 : at + 30 + size]

    def produce(self, topic: str, batch: bytes) -> None:
        """Write a batch to partition 0 with acks=all, by Produce v7."""
        name = topic.encode()
        body = struct.pack(">hhiih", -1, -1, 10_000, 1, len(name)) + name
        answer = self.request(0, 7, body + struct.pack(">iii", 1, 0, len(batch)) + batch)
        (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(name) + 4 + 4)
        assert error == 0


@pytest.fixture(scope="module")
def mock() -> Iterator[MockCluster]:
    yield MockCluster()


LIBRDKAFKA_ROWS: list[Any] = [(t, k, v, h) for t, k, v, h in ROWS if t >= 0]


@pytest.mark.parametrize("codec", budget.of_which(Codec, [Codec.NONE, Codec.ZSTD]))
def test_the_reader_reads_batches_of_librdkafka(mock: MockCluster, codec: Codec) -> None:
    topic = f"from-librdkafka-{codec.name}"
    mock.create(topic)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": mock.bootstrap,
            "compression.type": codec.name.lower(),
            "linger.ms": 50,
            "batch.num.messages": 5000,
        }
    )
    for timestamp, key, value, headers in LIBRDKAFKA_ROWS:
        producer.produce(topic, value, key, 0, timestamp=timestamp, headers=headers)
    assert producer.flush(20) == 0
    found: list[Record] = []
    codecs = set()
    while len(found) < len(LIBRDKAFKA_ROWS):
        data = mock.fetch(topic, len(found))
        batches = list(iter_batches(data))
        assert batches, f"only {len(found)} records are there"
        for position, header in batches:
            verify_crc(data, position, header)
            codecs.add(header.codec)
            assert validate_records(data, position, header, RecordRules(), NOW).accepted
            found += read_records(data, position, header)
    assert as_rows(found) == LIBRDKAFKA_ROWS
    assert codec in codecs  # librdkafka does not compress a batch that would not become smaller
    assert all(record.timestamp_type is TimestampType.CREATE_TIME for record in found)


@pytest.mark.parametrize("codec", budget.of_which(Codec, [Codec.NONE, Codec.ZSTD]))
def test_librdkafka_reads_the_builders_batches(mock: MockCluster, codec: Codec) -> None:
    topic = f"to-librdkafka-{codec.name}"
    mock.create(topic)
    mock.produce(topic, bytes(ours(LIBRDKAFKA_ROWS, codec)))
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": mock.bootstrap, "group.id": "g", "check.crcs": True}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        while len(found) < len(LIBRDKAFKA_ROWS):
            messages = consumer.consume(len(LIBRDKAFKA_ROWS) - len(found), timeout=10)
            assert messages, f"only {len(found)} arrived"
            found += messages
    finally:
        consumer.close()
    assert [message.error() for message in found if message.error()] == []
    rows = [(m.timestamp()[1], m.key(), m.value(), m.headers() or []) for m in found]
    assert rows == LIBRDKAFKA_ROWS
