"""The codecs: frames of foreign compressors, damaged frames, and decompression bombs."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import struct
import tracemalloc
import zlib

import cramjam
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from odradek_protocol.compression import (
    BytesBehind,
    Codec,
    CompressionError,
    DecompressionLimitExceeded,
    check_portable,
    compress,
    decompress,
    inflate,
)

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
LIMIT = 16 * 1024 * 1024

AIOKAFKA_ENCODE = {
    Codec.GZIP: aiokafka_codec.gzip_encode,
    Codec.SNAPPY: aiokafka_codec.snappy_encode,
    Codec.LZ4: aiokafka_codec.lz4_encode,
    Codec.ZSTD: aiokafka_codec.zstd_encode,
}
AIOKAFKA_DECODE = {
    Codec.GZIP: aiokafka_codec.gzip_decode,
    Codec.SNAPPY: aiokafka_codec.snappy_decode,
    Codec.LZ4: aiokafka_codec.lz4_decode,
    Codec.ZSTD: aiokafka_codec.zstd_decode,
}

SAMPLES = {
    "one byte": b"x",
    "short text": b"a short text",
    "zeros": bytes(300_000),
    "noise": os.urandom(100_000),
    "mixed": b"".join(bytes([i % 256]) * (i % 97) + os.urandom(i % 31) for i in range(3000)),
    "one block exactly": b"0123456789abcdef" * 4096,
}


def test_a_codec_is_found_by_its_name() -> None:
    assert [Codec.of_name(n) for n in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Codec)
    with pytest.raises(ValueError, match="unknown compression 'lzo'; known: none, gzip"):
        Codec.of_name("lzo")


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=5000), repeat=st.integers(1, 60))
@settings(max_examples=budget.examples(40), deadline=None)
def test_compressed_data_is_decompressed_to_the_same_bytes(
    codec: Codec, data: bytes, repeat: int
) -> None:
    original = data * repeat
    assert decompress(codec, compress(codec, original), len(original)) == original


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_compressed_and_decompressed(codec: Codec, kind: type[bytes]) -> None:
    original = SAMPLES["mixed"]
    packed = compress(codec, kind(original))
    assert type(packed) is bytes
    unpacked = decompress(codec, memoryview(b"##" + packed)[2:], LIMIT)
    assert type(unpacked) is bytes
    assert unpacked == original


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("name", SAMPLES)
def test_aiokafka_decompresses_our_data(codec: Codec, name: str) -> None:
    assert AIOKAFKA_DECODE[codec](compress(codec, SAMPLES[name])) == SAMPLES[name]


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("name", SAMPLES)
def test_data_compressed_by_aiokafka_is_decompressed(codec: Codec, name: str) -> None:
    assert decompress(codec, AIOKAFKA_ENCODE[codec](SAMPLES[name]), LIMIT) == SAMPLES[name]


@pytest.mark.parametrize("codec", Codec)
def test_data_one_byte_over_the_decompression_limit_is_refused(codec: Codec) -> None:
    original = SAMPLES["mixed"]
    packed = compress(codec, original)
    assert decompress(codec, packed, len(original)) == original
    with pytest.raises(DecompressionLimitExceeded, match="more than the limit") as caught:
        decompress(codec, packed, len(original) - 1)
    assert caught.value.max_bytes == len(original) - 1


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("name", ["short text", "mixed", "zeros"])
def test_every_truncation_of_compressed_data_is_an_error(codec: Codec, name: str) -> None:
    packed = compress(codec, SAMPLES[name])
    ends = {*range(min(len(packed), 2000)), *range(0, len(packed), 997)}
    for end in ends:
        if codec is Codec.SNAPPY and end in _xerial_boundaries(packed):
            # A xerial stream has no end mark: if it is cut between blocks, it is a valid shorter
            # stream. Then the record count of the batch will not match.
            assert SAMPLES[name].startswith(decompress(codec, packed[:end], LIMIT))
            continue
        if codec is Codec.ZSTD and not end:
            # For this codec, no frame at all means empty content.
            assert decompress(codec, b"", LIMIT) == b""
            continue
        with pytest.raises(CompressionError):
            decompress(codec, packed[:end], LIMIT)


def _xerial_boundaries(packed: bytes) -> set[int]:
    position = 16
    boundaries = {position}
    while position < len(packed):
        position += 4 + int(struct.unpack_from(">i", packed, position)[0])
        boundaries.add(position)
    return boundaries


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.binary(max_size=200))
@settings(max_examples=budget.examples(300), deadline=None)
def test_arbitrary_bytes_give_bytes_or_a_compression_error(codec: Codec, data: bytes) -> None:
    for start in (b"", compress(codec, b"abc" * 50)[:7], compress(codec, b"abc" * 50)[:20]):
        with contextlib.suppress(CompressionError):
            assert len(decompress(codec, start + data, 100_000)) <= 100_000


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.data())
@settings(max_examples=budget.examples(150), deadline=None)
def test_damaged_frames_give_bytes_or_a_compression_error(
    codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, b"".join(b"%d," % n for n in range(2000))))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(CompressionError):
        assert len(decompress(codec, packed, 1_000_000)) <= 1_000_000


# --- gzip (R-11) --------------------------------------------------------------------------------


def test_r11_several_gzip_members_and_zero_padding_are_read() -> None:
    members = gzip.compress(b"one ") + gzip.compress(b"") + gzip.compress(b"two" * 100_000)
    assert decompress(Codec.GZIP, members, LIMIT) == b"one " + b"two" * 100_000
    assert decompress(Codec.GZIP, members + bytes(700), LIMIT) == b"one " + b"two" * 100_000


@pytest.mark.parametrize("size_bytes", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_r11_a_gzip_member_is_inflated_a_megabyte_at_a_time(size_bytes: int) -> None:
    """Its input is at its end long before its output is."""
    data = random.Random(size_bytes).randbytes(500) * (size_bytes // 500 + 1)
    packed = gzip.compress(data[:size_bytes]) + gzip.compress(b"end")
    assert decompress(Codec.GZIP, packed, size_bytes + 3) == data[:size_bytes] + b"end"
    with pytest.raises(DecompressionLimitExceeded):
        decompress(Codec.GZIP, packed, size_bytes + 2)
    with pytest.raises(CompressionError, match="ends within a member"):
        decompress(Codec.GZIP, gzip.compress(data[:size_bytes])[:-1], size_bytes)


@pytest.mark.parametrize("codec", COMPRESSING, ids=lambda codec: codec.name)
@pytest.mark.parametrize("size_bytes", [1, 1 << 20, 3 << 20])
def test_inflate_gives_what_decompress_gives(codec: Codec, size_bytes: int) -> None:
    data = random.Random(1).randbytes(1000) * (size_bytes // 1000 + 1)
    packed = compress(codec, data)
    assert bytes(inflate(codec, packed, len(data))) == decompress(codec, packed) == data
    with pytest.raises(DecompressionLimitExceeded):
        inflate(codec, packed, len(data) - 1)


def test_r11_garbage_behind_a_gzip_member_is_an_error() -> None:
    with pytest.raises(BytesBehind, match="7 bytes behind"):
        decompress(Codec.GZIP, gzip.compress(b"one") + b"garbage", LIMIT)


def test_number_of_gzip_members_is_limited() -> None:
    with pytest.raises(CompressionError, match="more than 1024 gzip members"):
        decompress(Codec.GZIP, gzip.compress(b"") * 1025, LIMIT)


def _empty_blocks(codec: Codec, count: int) -> bytes:
    """Data of so many blocks, or frames, without content."""
    match codec:
        case Codec.SNAPPY:
            return compress(Codec.SNAPPY, b"")[:16] + b"\0\0\0\1\0" * count
        case Codec.LZ4:
            return compress(Codec.LZ4, b"") * count
        case _:
            return compress(Codec.ZSTD, b"x") + b"\x50\x2a\x4d\x18\0\0\0\0" * count


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_r12_the_number_of_blocks_without_content_is_limited(codec: Codec) -> None:
    assert decompress(codec, _empty_blocks(codec, 1)) in (b"", b"x")
    with pytest.raises(CompressionError, match="more than 8192 blocks"):
        decompress(codec, _empty_blocks(codec, 8_193))


def test_r12_blocks_within_one_frame_are_counted_too() -> None:
    raw = bytes(cramjam.zstd.compress(b""))
    head = raw[:-3]
    with pytest.raises(CompressionError, match="more than 8192 blocks"):
        decompress(Codec.ZSTD, head + b"\0\0\0" * 8_192 + b"\1\0\0")
    with pytest.raises(CompressionError, match="more than 8192 blocks"):
        decompress(Codec.LZ4, compress(Codec.LZ4, b"")[:7] + b"\1\0\0\x80a" * 8_193 + bytes(4))


def test_r12_many_blocks_of_snappy_with_content_are_read() -> None:
    block = bytes(cramjam.snappy.compress_raw(bytes(1024)))
    data = compress(Codec.SNAPPY, b"")[:16] + (len(block).to_bytes(4, "big") + block) * 9_000
    assert decompress(Codec.SNAPPY, data) == bytes(1024 * 9_000)


def test_gzip_checksum_is_verified() -> None:
    packed = bytearray(gzip.compress(b"hello" * 10))
    packed[-6] ^= 1
    with pytest.raises(CompressionError, match="damaged gzip data"):
        decompress(Codec.GZIP, packed, LIMIT)


# --- snappy (R-10) ------------------------------------------------------------------------------


def test_r10_snappy_is_written_as_xerial() -> None:
    packed = compress(Codec.SNAPPY, bytes(100_000))
    assert packed[:16] == bytes.fromhex("82534e4150505900 00000001 00000001")
    (first,) = struct.unpack_from(">i", packed, 16)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32 * 1024


def test_r10_raw_snappy_is_read() -> None:
    raw = aiokafka_codec.snappy_encode(SAMPLES["mixed"], xerial_compatible=False)
    assert decompress(Codec.SNAPPY, bytes(raw), LIMIT) == SAMPLES["mixed"]


def test_r10_joined_xerial_streams_are_read() -> None:
    both = compress(Codec.SNAPPY, b"one ") + compress(Codec.SNAPPY, b"two")
    assert decompress(Codec.SNAPPY, both, LIMIT) == b"one two"


@pytest.mark.parametrize("length", [-1, 0, 5000])
def test_an_impossible_xerial_block_length_is_an_error(length: int) -> None:
    packed = compress(Codec.SNAPPY, b"")[:16] + struct.pack(">i", length) + b"abc"
    with pytest.raises(CompressionError, match="xerial block of"):
        decompress(Codec.SNAPPY, packed, LIMIT)


# --- lz4 (R-10) ---------------------------------------------------------------------------------


def _linked_lz4(data: bytes, **flags: bool) -> bytes:
    compressor = cramjam.lz4.Compressor(**flags)
    compressor.compress(data)
    return bytes(compressor.finish())


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_r10_lz4_frames_of_any_flags_are_read(linked: bool, checksum: bool) -> None:
    for name, sample in SAMPLES.items():
        packed = _linked_lz4(sample, block_linked=linked, content_checksum=checksum)
        assert decompress(Codec.LZ4, packed, LIMIT) == sample, name


def test_r10_only_a_single_lz4_frame_of_independent_blocks_is_portable() -> None:
    """Java reads only such frames; our decompressor also reads the other frames."""
    check_portable(Codec.LZ4, compress(Codec.LZ4, b"one"))
    check_portable(Codec.GZIP, b"not looked at")
    linked = _linked_lz4(SAMPLES["mixed"], block_linked=True)
    two = compress(Codec.LZ4, b"one ") + compress(Codec.LZ4, b"two")
    for packed, error, match in (
        (linked, CompressionError, "linked blocks"),
        (two, BytesBehind, "behind the lz4 frame"),
        (b"\0" * 12, CompressionError, "does not begin with a frame"),
        (two[:3], CompressionError, "damaged"),
        (two[:9], CompressionError, "damaged"),
    ):
        with pytest.raises(error, match=match):
            check_portable(Codec.LZ4, packed)


def test_r10_lz4_is_written_with_independent_blocks_of_64_kib() -> None:
    packed = compress(Codec.LZ4, SAMPLES["noise"] + SAMPLES["zeros"])
    assert packed[:7] == bytes.fromhex("04224d18 60 40 82")
    assert packed[-4:] == bytes(4)


def test_joined_and_skippable_lz4_frames_are_read() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"5byte"
    both = compress(Codec.LZ4, b"one ") + compress(Codec.LZ4, b"two")
    assert decompress(Codec.LZ4, both, LIMIT) == b"one two"
    assert decompress(Codec.LZ4, skippable + both, LIMIT) == b"one two"


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 0x05, "no frame starts at byte 0"),
        (4, 0x20, "unknown version 0"),
        (4, 0x61, "needs a dictionary"),
        (5, 0x30, "impossible block size"),
        (6, 0x00, "damaged lz4 data"),
    ],
)
def test_a_damaged_lz4_frame_header_is_an_error(at: int, value: int, message: str) -> None:
    packed = bytearray(compress(Codec.LZ4, b"hello " * 20))
    packed[at] = value
    with pytest.raises(CompressionError, match=message):
        decompress(Codec.LZ4, packed, LIMIT)


def test_an_lz4_block_larger_than_its_frame_allows_is_an_error() -> None:
    frame = compress(Codec.LZ4, b"")[:7] + struct.pack("<I", 70_000 | 1 << 31) + bytes(70_004)
    with pytest.raises(CompressionError, match="block of 70000 bytes, more than the frame allows"):
        decompress(Codec.LZ4, frame, LIMIT)


# --- zstd ---------------------------------------------------------------------------------------


def _zstd_stream(data: bytes) -> bytes:
    """A zstd frame without its content size, as the Java client writes it."""
    compressor = cramjam.zstd.Compressor(level=3)
    for start in range(0, len(data), 1000):
        compressor.compress(data[start : start + 1000])
    return bytes(compressor.finish())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_zstd_frame_without_content_size_is_read(name: str) -> None:
    packed = _zstd_stream(SAMPLES[name])
    assert packed[4] >> 6 == 0 and not packed[4] & 0x20, "the frame was to have no content size"
    assert decompress(Codec.ZSTD, packed, len(SAMPLES[name])) == SAMPLES[name]
    if len(SAMPLES[name]) > 1:
        with pytest.raises(DecompressionLimitExceeded):
            decompress(Codec.ZSTD, packed, len(SAMPLES[name]) - 1)


def test_joined_and_skippable_zstd_frames_are_read() -> None:
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"3by"
    both = compress(Codec.ZSTD, b"one ") + skippable + _zstd_stream(b"two")
    assert decompress(Codec.ZSTD, both, LIMIT) == b"one two"


def test_a_false_zstd_content_size_is_an_error() -> None:
    packed = bytearray(compress(Codec.ZSTD, bytes(1000)))
    assert packed[4] == 0x60, "single segment, two bytes of content size"
    for claimed in (999, 1001, 60_000):
        packed[5:7] = struct.pack("<H", claimed - 256)
        with pytest.raises(CompressionError):
            decompress(Codec.ZSTD, packed, LIMIT)


@pytest.mark.parametrize("window_log", [23, 27])
def test_r12_a_zstd_window_does_not_count_as_content(window_log: int) -> None:
    """The highest level of compression has a window of 128 MiB, and Java's client does not write
    the size of the content."""
    data = random.Random(3).randbytes(300_000)
    before_kib = _peak_resident_kib()
    assert decompress(Codec.ZSTD, _with_zstd_window(data, window_log), len(data)) == data
    assert _peak_resident_kib() - before_kib < 16 * 1024
    with pytest.raises(DecompressionLimitExceeded):
        decompress(Codec.ZSTD, _with_zstd_window(data, window_log), len(data) - 1)


def test_r12_a_zstd_window_above_128_mib_is_refused_by_its_name() -> None:
    with pytest.raises(CompressionError, match="window of 268435456 bytes; at most 134217728"):
        decompress(Codec.ZSTD, _with_zstd_window(b"short", 28), LIMIT)


def _with_zstd_window(data: bytes, window_log: int) -> bytes:
    """A zstd frame of raw blocks with this window, and without the size of its content."""
    frame = struct.pack("<IBB", 0xFD2FB528, 0x00, (window_log - 10) << 3)
    for start in range(0, len(data), 1 << 17):
        block = data[start : start + (1 << 17)]
        last = start + len(block) == len(data)
        frame += struct.pack("<I", len(block) << 3 | last)[:3] + block
    return frame


# --- bombs (R-12) -------------------------------------------------------------------------------


def _bomb(codec: Codec) -> bytes:
    """A frame of a megabyte at most, whose content is much larger than the limit."""
    huge = 512 << 20
    if codec is Codec.GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join([packer.compress(bytes(1 << 20)) for _ in range(512)]) + packer.flush()
    if codec is Codec.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
        length = struct.pack(">i", len(block))
        return compress(codec, b"")[:16] + (length + block) * 512
    if codec is Codec.LZ4:
        block = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
        frame = compress(codec, b"")
        size = struct.pack("<I", len(block))
        # The flags are 0x60, the blocks have 4 MiB, and the header checksum matches.
        return frame[:4] + bytes.fromhex("607073") + (size + block) * 128 + bytes(4)
    # Run-length blocks: each has four bytes, and expands to 128 KiB.
    block = struct.pack("<I", (1 << 17) << 3 | 1 << 1)[:3] + b"\x00"
    last = struct.pack("<I", 1 << 3 | 1 << 1 | 1)[:3] + b"\x00"
    return struct.pack("<IBB", 0xFD2FB528, 0x00, 17 << 3) + block * (huge >> 17) + last


BOMB_LIMIT = 4 << 20


@pytest.mark.parametrize("codec", budget.of_which(COMPRESSING, [Codec.LZ4, Codec.ZSTD]))
def test_r12_a_decompression_bomb_is_refused_within_the_memory_limit(codec: Codec) -> None:
    bomb = _bomb(codec)
    before_kib = _peak_resident_kib()
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionLimitExceeded):
            decompress(codec, bomb, BOMB_LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * BOMB_LIMIT + (1 << 20)
    # tracemalloc does not see allocations by the codecs' own libraries.
    assert _peak_resident_kib() - before_kib < 64 * 1024


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.full
def test_r12_the_decompression_bombs_are_valid_data(codec: Codec) -> None:
    """With a higher limit, the refused bombs are accepted; to save time, only a part of each is
    decompressed."""
    if codec is Codec.LZ4:
        bomb = _bomb(codec)
        block_bytes = 4 + struct.unpack_from("<I", bomb, 7)[0]
        small = bomb[: 7 + 2 * block_bytes] + bytes(4)
        assert decompress(codec, small, 8 << 20) == bytes(8 << 20)
    elif codec is Codec.ZSTD:
        bomb = _bomb(codec)
        assert decompress(codec, bomb[: 6 + 4 * 16] + bomb[-4:], 3 << 20) == bytes((2 << 20) + 1)
    elif codec is Codec.SNAPPY:
        bomb = _bomb(codec)
        block_bytes = 4 + struct.unpack_from(">i", bomb, 16)[0]
        assert decompress(codec, bomb[: 16 + 2 * block_bytes], 2 << 20) == bytes(2 << 20)
    else:
        with gzip.open(io.BytesIO(_bomb(codec))) as stream:
            assert stream.read(8 << 20) == bytes(8 << 20)


def test_r12_a_false_snappy_length_allocates_no_memory() -> None:
    """Ten bytes that announce 100 MB count as damaged with any limit, and no buffer of that size is
    allocated."""
    claim = b"\x80\x84\xaf\x5f" + b"\x00" * 6
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError, match="cannot hold"):
            decompress(Codec.SNAPPY, claim, 1 << 30)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def _peak_resident_kib() -> int:
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak
