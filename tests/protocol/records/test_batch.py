"""The batch header: its declaration and its compiled reader, damaged headers, stamping, timestamps,
sequences."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_protocol.checksums import crc32c
from odradek_protocol.compression import Codec
from odradek_protocol.records import layout
from odradek_protocol.records.batch import (
    MAX_SEQUENCE,
    BatchHeader,
    CorruptBatch,
    TruncatedBatch,
    UnsupportedMagic,
    iter_batches,
    next_sequence,
    peek,
    previous_sequence,
    read_header,
    read_header_alone,
    set_create_time,
    set_log_append_time,
    stamp,
    verify_crc,
)
from odradek_protocol.records.builder import BatchBuilder, simple_batch
from odradek_protocol.records.layout import (
    BATCH_HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    PACKED_COVERED,
    PACKED_FRONT,
    PACKED_HEADER,
)
from odradek_protocol.records.record import read_records

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HEADERS = st.builds(
    BatchHeader,
    base_offset=INT64,
    size_bytes=st.integers(HEADER_BYTES, 2**31 - 1),
    leader_epoch=INT32,
    magic=st.just(2),
    crc=st.integers(0, 2**32 - 1),
    attributes=INT16,
    last_offset_delta=INT32,
    base_timestamp=INT64,
    max_timestamp=INT64,
    producer_id=INT64,
    producer_epoch=INT16,
    base_sequence=INT32,
    record_count=INT32,
)


def batch_of(count: int = 3, **stamped: Any) -> bytearray:
    pairs = [(b"key-%d" % n, b"value-%d" % n) for n in range(count)]
    return simple_batch(pairs, 1_700_000_000_000, **stamped)


def test_crc32c_has_the_known_values_also_in_pieces() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C/iSCSI
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(b"456789", crc32c(b"123")) == crc32c(bytearray(b"123456789"))


@given(HEADERS)
def test_the_packed_header_equals_the_declaration(header: BatchHeader) -> None:
    packed = header.pack()
    assert len(packed) == BATCH_HEADER.sizeof() == PACKED_HEADER.size == HEADER_BYTES
    declared = BATCH_HEADER.parse(packed)
    assert declared.batch_length == header.size_bytes - LOG_OVERHEAD_BYTES
    for name in BatchHeader.__slots__:
        if name != "size_bytes":
            assert declared[name] == getattr(header, name), name
    assert BATCH_HEADER.build(declared) == packed
    fields = PACKED_HEADER.unpack(packed)
    assert PACKED_FRONT.pack(*fields[:5]) + PACKED_COVERED.pack(*fields[5:]) == packed
    assert layout.PACKED_EXTENT.unpack_from(packed) == (
        header.base_offset,
        declared.batch_length,
        header.last_offset_delta,
        header.max_timestamp,
    )
    assert peek(packed) == (
        header.magic,
        header.attributes,
        header.producer_id,
        header.producer_epoch,
    )
    assert peek(packed[:-1]) is None
    assert read_header_alone(b"~~" + packed, 2) == header


def test_attribute_bits_are_read_from_the_batch_header() -> None:
    assert read_header(batch_of()).codec is Codec.NONE
    header = read_header(batch_of())
    for bits, name in (
        (0x08, "is_log_append_time"),
        (0x10, "is_transactional"),
        (0x20, "is_control"),
        (0x40, "has_delete_horizon"),
    ):
        header.attributes = bits | Codec.ZSTD
        flags = ("is_log_append_time", "is_transactional", "is_control", "has_delete_horizon")
        assert [flag for flag in flags if getattr(header, flag)] == [name]
        assert header.codec is Codec.ZSTD
    assert header.delete_horizon_ms == header.base_timestamp
    for number in (5, 6, 7):
        header.attributes = number
        with pytest.raises(CorruptBatch, match=f"unknown compression codec {number}"):
            _ = header.codec


def test_r02_the_last_offset_is_computed_from_the_delta_not_the_count() -> None:
    header = read_header(batch_of(3, base_offset=100))
    header.last_offset_delta = 9  # as after compaction
    assert (header.last_offset, header.next_offset, header.record_count) == (109, 110, 3)


@pytest.mark.parametrize("codec", Codec)
def test_every_truncated_batch_is_recognized(codec: Codec) -> None:
    batch = bytes(simple_batch([(None, b"value" * 20)] * 4, 1, codec=codec))
    for end in range(len(batch)):
        with pytest.raises(TruncatedBatch) as caught:
            read_header(batch[:end])
        assert caught.value.present_bytes == end
        assert caught.value.needed_bytes == (HEADER_BYTES if end < HEADER_BYTES else len(batch))
        assert list(iter_batches(batch[:end])) == []
    assert read_header(batch).size_bytes == len(batch)


@pytest.mark.parametrize("codec", Codec)
def test_every_bit_flip_behind_the_crc_is_detected(codec: Codec) -> None:
    batch = simple_batch([(b"k", b"value" * 9), (None, None)], 1, codec=codec)
    header = read_header(batch)
    verify_crc(batch, 0, header)
    for at in range(17, len(batch)):
        for bit in range(8):
            batch[at] ^= 1 << bit
            with pytest.raises(CorruptBatch, match="checksum"):
                verify_crc(batch, 0, read_header(batch))
            batch[at] ^= 1 << bit
    verify_crc(batch, 0, header)


def test_verify_crc_at_a_position_covers_that_batch_only() -> None:
    buffer = memoryview(bytes(batch_of(2)) + bytes(batch_of(5)) + b"trailing")
    for position, header in iter_batches(buffer, 0, len(buffer) - 8):
        verify_crc(buffer, position, header)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13])
def test_an_impossible_batch_length_is_refused(length: int) -> None:
    batch = batch_of()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match=f"batch length {length} is impossible"):
        read_header(batch)


def test_a_batch_length_shorter_than_the_header_is_refused() -> None:
    batch = batch_of()
    batch[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="the header alone has 49"):
        read_header(batch)


def test_zeros_are_damage_and_not_an_old_format() -> None:
    for size in (17, 40, 61, 4096):
        with pytest.raises(CorruptBatch, match="batch length 0 is impossible"):
            read_header(bytes(size))


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_r13_other_magic_is_refused(magic: int) -> None:
    batch = batch_of()
    batch[16] = magic & 0xFF
    for end in (18, 30, 61, len(batch)):
        with pytest.raises(UnsupportedMagic) as caught:
            read_header(batch[:end])
        assert caught.value.magic == magic
    with pytest.raises(UnsupportedMagic):
        list(iter_batches(batch))


def test_r13_an_old_message_shorter_than_a_batch_header_is_refused() -> None:
    """The message has magic 1, and null as key and value: it is 34 bytes long. It must not be taken
    for a batch that was cut off."""
    message = bytes(8) + (22).to_bytes(4, "big") + bytes(4) + b"\x01\x00" + bytes(8) + b"\xff" * 8
    with pytest.raises(UnsupportedMagic, match="message format 1"):
        read_header(message)


def test_r14_a_trailing_partial_batch_is_ignored() -> None:
    one, two, three = bytes(batch_of(1)), bytes(batch_of(2)), bytes(batch_of(3))
    whole = one + two
    for cut in range(len(three)):
        found = list(iter_batches(whole + three[:cut]))
        assert [(p, h.record_count) for p, h in found] == [(0, 1), (len(one), 2)]
    assert len(list(iter_batches(whole + three))) == 3
    assert [h.record_count for _, h in iter_batches(whole + three, len(one))] == [2, 3]
    assert [h.record_count for _, h in iter_batches(whole + three, 0, len(whole) + 5)] == [1, 2]
    assert list(iter_batches(b"")) == []


def test_iter_batches_yields_sound_batches_before_a_damaged_one() -> None:
    damaged = batch_of(2)
    damaged[8:12] = b"\xff\xff\xff\xff"
    batches = iter_batches(bytes(batch_of(1)) + bytes(damaged))
    assert next(batches)[1].record_count == 1
    with pytest.raises(CorruptBatch):
        next(batches)


def test_r01_stamp_leaves_the_checksum_valid() -> None:
    buffer = bytearray(b"####") + batch_of()
    with memoryview(buffer) as view:
        stamp(view, 4, 2**40 + 7, 12)
    header = read_header(buffer, 4)
    assert (header.base_offset, header.leader_epoch) == (2**40 + 7, 12)
    verify_crc(buffer, 4, header)
    assert buffer[:4] == b"####"


@pytest.mark.parametrize("codec", Codec)
def test_r03_log_append_time_is_the_timestamp_of_every_record(codec: Codec) -> None:
    builder = BatchBuilder(codec)
    for n in range(5):
        builder.append(1000 + n, None, b"value")
    buffer = bytearray(3) + builder.build()
    base = read_header(buffer, 3)
    set_log_append_time(memoryview(buffer), 3, 9_999)
    header = read_header(buffer, 3)
    verify_crc(buffer, 3, header)
    assert header.is_log_append_time and header.max_timestamp == 9_999
    assert (header.base_timestamp, header.codec) == (base.base_timestamp, codec)
    assert {record.timestamp for record in read_records(buffer, 3, header)} == {9_999}
    assert {record.timestamp_type.name for record in read_records(buffer, 3, header)} == {
        "LOG_APPEND_TIME"
    }


def test_r04_setting_create_time_again_restores_the_same_bytes() -> None:
    original = batch_of()
    changed = bytearray(original)
    set_log_append_time(changed, 0, 5)
    assert changed != original
    set_create_time(changed, 0, read_header(original).max_timestamp)
    assert changed == original


def test_p20_sequences_wrap_at_the_largest_int32() -> None:
    assert next_sequence(0, 1) == 1
    assert next_sequence(MAX_SEQUENCE, 1) == 0
    assert next_sequence(MAX_SEQUENCE - 1, 3) == 1
    assert previous_sequence(0, 1) == MAX_SEQUENCE
    assert previous_sequence(1, 3) == MAX_SEQUENCE - 1
    straddling = read_header(batch_of(3, producer_id=1, producer_epoch=0, base_sequence=2147483646))
    assert straddling.last_sequence == 0
    assert read_header(batch_of(3)).last_sequence == -1


@given(st.integers(0, MAX_SEQUENCE), st.integers(0, MAX_SEQUENCE))
def test_p20_previous_sequence_is_the_inverse_of_next_sequence(sequence: int, count: int) -> None:
    assert 0 <= next_sequence(sequence, count) <= MAX_SEQUENCE
    assert previous_sequence(next_sequence(sequence, count), count) == sequence
    assert next_sequence(previous_sequence(sequence, count), count) == sequence
