"""Plain batches are checked in C. Each batch that this check accepts passes the full check
unchanged and with the same header (P-07, R-03 to R-08)."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs import NOW_MS, make_batch
from odradek_broker.storage.errors import AppendRejected
from odradek_broker.storage.log_config import AppendOrigin, LogConfig
from odradek_broker.storage.validation import PlainRules, check_plain, prepare
from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import Codec
from odradek_protocol.records.batch import update_crc
from odradek_protocol.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_TIMESTAMP_AT,
    CRC_AT,
    CRC_START,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    RECORD_COUNT_AT,
)

pytestmark = pytest.mark.usefixtures("codec_twin")

CONFIGS = (
    LogConfig(),
    LogConfig(message_timestamp_type="LogAppendTime"),
    LogConfig(cleanup_policy=frozenset({"compact"})),
    LogConfig(cleanup_policy=frozenset({"compact"}), record_validation="header"),
    LogConfig(compression_type="uncompressed"),
    LogConfig(compression_type="zstd"),
    LogConfig(record_validation="header"),
    LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=2**63 - 1),
    LogConfig(message_timestamp_before_max_ms=0, message_timestamp_after_max_ms=0),
    LogConfig(max_message_bytes=120),
    LogConfig(segment_bytes=120),
)


def check(batch: bytes, config: LogConfig) -> bool:
    """True if the batch is plain. Checks that the full check then accepts it unchanged."""
    header = check_plain(memoryview(bytearray(batch)), PlainRules.of(config), NOW_MS)
    if header is None:
        return False
    given = memoryview(bytearray(batch))
    prepared = prepare(given, config, AppendOrigin.CLIENT, NOW_MS)
    assert (prepared.header, prepared.log_append_time_ms) == (header, -1)
    assert prepared.batch == batch
    return True


@pytest.mark.parametrize(
    "batch",
    [
        make_batch(1),
        make_batch(50),
        make_batch(3, key=None),
        make_batch(3, value=None),
        make_batch(3, producer_id=5, sequence=8),
        make_batch(3, producer_id=5, transactional=True),
    ],
)
def test_batches_of_producers_are_plain(batch: memoryview, codec_twin: str) -> None:
    assert check(bytes(batch), LogConfig()) is (codec_twin == "compiled")


@pytest.mark.parametrize(
    ("batch", "config"),
    [
        (make_batch(1), LogConfig(message_timestamp_type="LogAppendTime")),
        (make_batch(1), LogConfig(record_validation="header")),
        (make_batch(1), LogConfig(compression_type="gzip")),
        (make_batch(1), LogConfig(max_message_bytes=50)),
        (make_batch(1), LogConfig(segment_bytes=50)),
        (make_batch(2, key=None), LogConfig(cleanup_policy=frozenset({"compact"}))),
        (make_batch(1, codec=Codec.GZIP), LogConfig()),
        (make_batch(1, timestamp=-1), LogConfig()),
        (make_batch(1, timestamp=NOW_MS + 3_600_001), LogConfig()),
        (make_batch(1, timestamp=NOW_MS - 2), LogConfig(message_timestamp_before_max_ms=1)),
        (bytes(make_batch(1)) + b"x", LogConfig()),
        (bytes(make_batch(1))[:-1], LogConfig()),
        (b"", LogConfig()),
        (bytes(HEADER_BYTES), LogConfig()),
    ],
)
def test_other_batches_are_left_to_the_full_check(batch: Any, config: LogConfig) -> None:
    assert not check(bytes(batch), config)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (BASE_OFFSET_AT + 7, 1),
        (LENGTH_AT + 3, 0),
        (MAGIC_AT, 1),
        (ATTRIBUTES_AT, 1),
        (ATTRIBUTES_AT + 1, 0x01),
        (ATTRIBUTES_AT + 1, 0x08),
        (ATTRIBUTES_AT + 1, 0x20),
        (ATTRIBUTES_AT + 1, 0x40),
        (LAST_OFFSET_DELTA_AT + 3, 2),
        (BASE_TIMESTAMP_AT + 7, 7),
        (MAX_TIMESTAMP_AT + 7, 0),
        (RECORD_COUNT_AT + 3, 1),
        (RECORD_COUNT_AT, 0x80),
        # The first of two records has a wrong offset delta.
        (HEADER_BYTES + 3, 2),
    ],
)
def test_p07_a_batch_with_a_changed_header_field_is_not_plain(position: int, value: int) -> None:
    batch = bytearray(make_batch(2, producer_id=5, sequence=3))
    assert batch[position] != value
    batch[position] = value
    # The checksum matches the changed bytes.
    struct.pack_into(">I", batch, CRC_AT, crc32c(batch[CRC_START:]))
    assert check_plain(memoryview(batch), PlainRules.of(LogConfig()), NOW_MS) is None


@pytest.mark.parametrize(
    "batch",
    [make_batch(2, producer_id=5, sequence=-1), make_batch(2, transactional=True)],
    ids=["without a sequence", "without a producer id"],
)
def test_p07_a_batch_with_only_an_id_or_a_sequence_is_not_plain(batch: memoryview) -> None:
    assert check_plain(batch, PlainRules.of(LogConfig()), NOW_MS) is None


def test_p07_a_batch_with_a_wrong_checksum_is_not_plain() -> None:
    batch = make_batch(2)
    batch[CRC_AT] ^= 1
    assert check_plain(batch, PlainRules.of(LogConfig()), NOW_MS) is None


@given(
    data=st.data(),
    config=st.sampled_from(CONFIGS),
    batch=st.builds(
        make_batch,
        st.integers(1, 5),
        timestamp=st.sampled_from([NOW_MS, NOW_MS - 1001, NOW_MS + 3_600_001, -1, 0]),
        key=st.sampled_from([None, b"", b"key"]),
        value=st.sampled_from([None, b"", b"v" * 200]),
        producer_id=st.sampled_from([-1, 0, 7]),
        sequence=st.sampled_from([-1, 0, 2**31 - 1]),
        transactional=st.booleans(),
    ),
)
def test_r04_to_r08_plain_batches_pass_the_full_check(
    data: Any, config: LogConfig, batch: memoryview
) -> None:
    """Random bytes are changed. Some of the changed batches get a matching checksum."""
    content = bytearray(batch)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(
            st.one_of(st.integers(0, HEADER_BYTES + 10), st.integers(0, len(content) - 1))
        )
        content[at % len(content)] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()) and content[8:12] == batch[8:12]:
        update_crc(content, 0)
    check(bytes(content), config)


@given(content=st.binary(max_size=200))
def test_r04_bytes_that_the_full_check_refuses_are_not_plain(content: bytes) -> None:
    try:
        prepare(memoryview(bytearray(content)), LogConfig(), AppendOrigin.CLIENT, NOW_MS)
    except AppendRejected:
        assert not check(content, LogConfig())
