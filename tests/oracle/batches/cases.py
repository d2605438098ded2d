"""The produced batches: batches that no correct client sends, and some correct ones."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cramjam
from tests.oracle.batches.malformed_batches import (
    PACKINGS,
    batch,
    octets,
    old_message,
    raw_snappy,
    record,
    records,
)

from odradek_protocol.compression import Codec, compress

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)

TOPICS: dict[str, dict[str, str]] = {
    "create": {},
    "append": {"message.timestamp.type": "LogAppendTime"},
    "window": {"message.timestamp.before.max.ms": str(DAY_MS)},
    "compact": {"cleanup.policy": "compact"},
    "compact-append": {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
    },
    "compact-window": {
        "cleanup.policy": "compact",
        "message.timestamp.before.max.ms": str(DAY_MS),
    },
    "uncompressed": {"compression.type": "uncompressed"},
    "gzip": {"compression.type": "gzip"},
    "zstd": {"compression.type": "zstd"},
    "zstd-append": {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"},
    "several": {},
    "small": {"max.message.bytes": "200"},
    "small-uncompressed": {"max.message.bytes": "200", "compression.type": "uncompressed"},
}
"""Kinds of topics, by their settings."""
PARTITIONS = {"several": 3}
"""A case is produced to all partitions of its topic with one request. Other topics have one."""

COMMON_VERSION = 9


@dataclass(frozen=True)
class Case:
    """A batch to produce. `build(now_ms)` returns its bytes."""

    name: str
    topic: str
    build: Callable[[int], bytes]
    version: int = COMMON_VERSION

    @property
    def title(self) -> str:
        return f"{self.topic} v{self.version}: {self.name}"


_LONG_ZERO = b"\x80\x80\x80\x80\x00"
"""Zero in five bytes instead of one."""
_SIX_BYTES = b"\x80\x80\x80\x80\x80\x00"
_TOO_MANY_BITS = b"\x80\x80\x80\x80\x10"
"""A varint with bit 32, which no int32 has, and which some readers drop."""
_ELEVEN_BYTES = b"\x80" * 10 + b"\x00"


@dataclass(frozen=True)
class Body:
    """Records, and the fields of the header that describe them."""

    data: bytes
    count: int
    header: dict[str, Any] = field(default_factory=dict)


def _bodies() -> dict[str, Body]:
    """Malformed records, to be compressed with any codec."""
    sound = records(3)
    header = octets(b"h") + octets(b"1")
    return {
        "sound": Body(sound, 3),
        "sound with headers and nulls": Body(
            record(0, headers=[header, octets(b"n") + octets(None)], key=None, value=None), 1
        ),
        "5 records announced, 3 there": Body(sound, 5),
        "3 records announced, 5 there": Body(records(5), 3),
        "no records announced, 3 there": Body(sound, 0),
        "no records announced, last offset delta 2": Body(sound, 0, {"last_offset_delta": 2}),
        "minus one record announced": Body(sound, -1, {"last_offset_delta": 2}),
        "2^31-1 records announced": Body(sound, MAX_INT32),
        "last offset delta too small": Body(sound, 3, {"last_offset_delta": 1}),
        "last offset delta too large": Body(sound, 3, {"last_offset_delta": 7}),
        "last offset delta negative": Body(sound, 3, {"last_offset_delta": -5}),
        "rubbish records": Body(b"\xff" * 21, 3),
        "zeros as records": Body(bytes(21), 3),
        "one byte behind the last record": Body(sound + b"\0", 3),
        "many bytes behind the last record": Body(sound + bytes(40), 3),
        "last record cut by one byte": Body(sound[:-1], 3),
        "record length too large by one": Body(record(0, longer_by=1) + record(1), 2),
        "record length too small by one": Body(record(0, longer_by=-1) + record(1), 2),
        "length of the last record too large": Body(record(0) + record(1, longer_by=1), 2),
        "record length beyond everything": Body(record(0) + record(1, length=10_000), 2),
        "record length 2^31-1": Body(record(0) + record(1, length=MAX_INT32), 2),
        "record length zero": Body(record(0) + record(1, length=0), 2),
        "record length negative": Body(record(0) + record(1, length=-1), 2),
        "byte at the end of a record": Body(record(0, tail=b"\0") + record(1), 2),
        "key length -2": Body(record(0, key=None, key_length=-2) + record(1), 2),
        "value length -2": Body(record(0, value=None, value_length=-2) + record(1), 2),
        "key length beyond its record": Body(record(0, key_length=300) + record(1), 2),
        "value length beyond its record": Body(record(0, value_length=300) + record(1), 2),
        "value length into the next record": Body(record(0, value_length=6) + record(1), 2),
        "value length 2^31-1": Body(record(0, value_length=MAX_INT32) + record(1), 2),
        "header count -1": Body(record(0, header_count=-1) + record(1), 2),
        "header count without headers": Body(record(0, header_count=2) + record(1), 2),
        "header count 2^31-1": Body(record(0, header_count=MAX_INT32) + record(1), 2),
        "header key null": Body(record(0, headers=[octets(None) + octets(b"1")]) + record(1), 2),
        "header key length -2": Body(
            record(0, headers=[octets(None, -2) + octets(b"1")]) + record(1), 2
        ),
        "header value length -2": Body(
            record(0, headers=[octets(b"h") + octets(None, -2)]) + record(1), 2
        ),
        "header value beyond its record": Body(
            record(0, headers=[octets(b"h") + octets(b"1", 99)]) + record(1), 2
        ),
        "header key not UTF-8": Body(
            record(0, headers=[octets(b"\xff\xfe") + octets(b"1")]) + record(1), 2
        ),
        "record attributes set": Body(record(0, attributes=0xFF) + record(1, attributes=1), 2),
        "varint longer than needed": Body(
            record(0, timestamp_delta=_LONG_ZERO, key_length=b"\x82\x80\x00"), 1
        ),
        "varint of six bytes": Body(record(_SIX_BYTES), 1),
        "varint with bit 32": Body(record(_TOO_MANY_BITS), 1),
        "length varint of six bytes": Body(record(0, length=_SIX_BYTES), 1),
        "timestamp varint of eleven bytes": Body(record(0, timestamp_delta=_ELEVEN_BYTES), 1),
        "offset deltas with a gap": Body(record(0) + record(2) + record(3), 3),
        "offset deltas beyond the last": Body(record(0) + record(1) + record(9), 3),
        "offset deltas 0 0": Body(record(0) + record(0), 2),
        "offset deltas 1 0": Body(record(1) + record(0), 2),
        "offset deltas from 1": Body(record(1) + record(2), 2),
        "offset delta negative": Body(record(0) + record(-1), 2),
        "offset delta -2^31": Body(record(0) + record(-(2**31)), 2),
        "offset delta 2^31-1": Body(record(0) + record(MAX_INT32), 2),
    }


def _timed(deltas: Iterable[int], **fields: Any) -> bytes:
    return b"".join(record(i, timestamp_delta=d, **fields) for i, d in enumerate(deltas))


def _times() -> dict[str, Callable[[int], Body]]:
    """Records and headers with unusual timestamps, relative to the present."""
    week = 7 * DAY_MS
    return {
        "max timestamp too small": lambda now: Body(_timed([0, 50, 20]), 3, {"max_timestamp": now}),
        "max timestamp too large": lambda now: Body(
            _timed([0, 50, 20]), 3, {"max_timestamp": now + 1000}
        ),
        "max timestamp far in the future": lambda now: Body(
            _timed([0, 50, 20]), 3, {"max_timestamp": now + week}
        ),
        "max timestamp -1": lambda now: Body(_timed([0, 50, 20]), 3, {"max_timestamp": -1}),
        "max timestamp right": lambda now: Body(
            _timed([0, 50, 20]), 3, {"max_timestamp": now + 50}
        ),
        "all without timestamps": lambda now: Body(
            _timed([0, 0]), 2, {"base_timestamp": -1, "max_timestamp": -1}
        ),
        "one without timestamp": lambda now: Body(
            _timed([0, -now - 1, 5]), 3, {"max_timestamp": now + 5}
        ),
        "timestamp -2": lambda now: Body(
            _timed([0, 0]), 2, {"base_timestamp": -2, "max_timestamp": -2}
        ),
        "one too old": lambda now: Body(_timed([0, -week, 0]), 3),
        "one too new": lambda now: Body(_timed([0, week, 0]), 3, {"max_timestamp": now + week}),
        "one too new, hidden": lambda now: Body(_timed([0, week, 0]), 3),
        "first and last too old": lambda now: Body(
            _timed([0, week, 0]), 3, {"base_timestamp": now - week}
        ),
        "two hours early": lambda now: Body(
            _timed([0, -2 * HOUR_MS]), 2, {"base_timestamp": now + 2 * HOUR_MS}
        ),
        "sum of base and delta beyond int64": lambda now: Body(
            _timed([0, MAX_INT64]), 2, {"max_timestamp": now}
        ),
        "sum of base and delta below int64": lambda now: Body(
            _timed([0, -10]), 2, {"base_timestamp": MIN_INT64 + 5, "max_timestamp": now}
        ),
        "base timestamp at the end of int64": lambda now: Body(
            _timed([0, now - MAX_INT64]), 2, {"base_timestamp": MAX_INT64, "max_timestamp": now}
        ),
        "base timestamp far away, records now": lambda now: Body(
            _timed([now, now + 1]), 2, {"base_timestamp": 0, "max_timestamp": now + 1}
        ),
        "all at the last timestamp": lambda now: Body(
            _timed([0]), 1, {"base_timestamp": MAX_INT64, "max_timestamp": MAX_INT64}
        ),
        "all at the first timestamp": lambda now: Body(
            _timed([0]), 1, {"base_timestamp": MIN_INT64, "max_timestamp": MIN_INT64}
        ),
        "append time from the client": lambda now: Body(_timed([0, 10]), 2, {"flags": 8}),
        "append time from the client, too old": lambda now: Body(
            _timed([0, 10]), 2, {"flags": 8, "max_timestamp": now - week}
        ),
        "append time from the client, records too old": lambda now: Body(
            _timed([-week, -week + 10]), 2, {"flags": 8}
        ),
        "append time from the client, none": lambda now: Body(
            _timed([0, 10]), 2, {"flags": 8, "max_timestamp": -1}
        ),
    }


def _headers() -> dict[str, Callable[[int], Body]]:
    """Correct records with wrong headers."""
    sound = records(2)

    def body(**header: Any) -> Callable[[int], Body]:
        return lambda now: Body(sound, 2, header)

    return {
        "control bit": body(flags=0x20),
        "transactional bit": body(flags=0x10),
        "transactional bit and producer id": body(
            flags=0x10, producer_id=4000, producer_epoch=0, base_sequence=0
        ),
        "delete horizon bit": body(flags=0x40),
        "unknown attribute bits": body(flags=0x7F80),
        "all attribute bits above": body(flags=-128),
        "codec 5": body(attributes=5),
        "codec 7": body(attributes=7),
        "base offset 5": body(base_offset=5),
        "base offset negative": body(base_offset=-3),
        "wrong checksum": body(crc_wrong=True),
        "magic 3": body(magic=3),
        "magic -1": body(magic=-1),
        "magic 1 around format 2": body(magic=1),
        "magic 0 around format 2": body(magic=0),
        "length too large by one": body(longer_by=1),
        "length too small by one": body(longer_by=-1),
        "length of the header alone": body(longer_by=-len(sound)),
        "length too small for the header": body(longer_by=-len(sound) - 1),
        "length 13": body(longer_by=13 - 49 - len(sound)),
        "length negative": body(longer_by=-1000),
        "producer id without sequence": body(producer_id=4001, producer_epoch=0, base_sequence=-1),
        "producer id without epoch": body(producer_id=4002, producer_epoch=-1, base_sequence=0),
        "sequence without producer id": body(producer_epoch=0, base_sequence=0),
        "producer id -2": body(producer_id=-2),
    }


def _streams() -> dict[str, tuple[str, bytes, int]]:
    """(codec, the bytes instead of the compressed records, the record count in the header), by
    name."""
    body = records(3)
    large = record(0, value=bytes(100_000))
    half = len(body) // 3
    lz4 = compress(Codec.LZ4, body)
    linked = lz4[:4] + b"\x40\x40" + bytes([_lz4_header_checksum(b"\x40\x40")]) + lz4[7:]
    zstd_sizeless = bytes(cramjam.zstd.compress(body))
    found: dict[str, tuple[str, bytes, int]] = {
        "gzip, two members": ("gzip", gzip.compress(body[:half]) + gzip.compress(body[half:]), 3),
        "gzip, rubbish behind": ("gzip", gzip.compress(body) + b"rubbish!", 3),
        "gzip, zeros behind": ("gzip", gzip.compress(body) + bytes(20), 3),
        "gzip, wrong checksum": (
            "gzip",
            gzip.compress(body)[:-8] + bytes(4) + gzip.compress(body)[-4:],
            3,
        ),
        "raw-snappy, rubbish behind": ("snappy", raw_snappy(body) + b"rubbish!", 3),
        "snappy, claims a gigabyte": ("snappy", b"\xff\xff\xff\xff\x03" + b"\0" * 9, 3),
        "xerial, header alone": ("snappy", compress(Codec.SNAPPY, b""), 3),
        "xerial, header cut": ("snappy", compress(Codec.SNAPPY, b"")[:12], 3),
        "xerial, block length beyond": (
            "snappy",
            compress(Codec.SNAPPY, b"") + struct.pack(">i", 9999) + raw_snappy(body),
            3,
        ),
        "xerial, block length negative": (
            "snappy",
            compress(Codec.SNAPPY, b"") + struct.pack(">i", -1) + raw_snappy(body),
            3,
        ),
        "xerial, other version": (
            "snappy",
            compress(Codec.SNAPPY, b"")[:8]
            + struct.pack(">ii", 9, 9)
            + compress(Codec.SNAPPY, body)[16:],
            3,
        ),
        "lz4, wrong header checksum": ("lz4", lz4[:6] + bytes([lz4[6] ^ 1]) + lz4[7:], 3),
        "lz4, linked blocks": ("lz4", linked, 3),
        "lz4, no end mark": ("lz4", lz4[:-4], 3),
        "lz4, two frames": (
            "lz4",
            compress(Codec.LZ4, body[:half]) + compress(Codec.LZ4, body[half:]),
            3,
        ),
        "zstd, two frames": (
            "zstd",
            compress(Codec.ZSTD, body[:half]) + compress(Codec.ZSTD, body[half:]),
            3,
        ),
        "zstd, frame without size": ("zstd", zstd_sizeless, 3),
        "zstd, window of 128 MiB": ("zstd", _zstd_with_window(body, 27), 3),
        "zstd, window of 256 MiB": ("zstd", _zstd_with_window(body, 28), 3),
        "gzip, 3 records and more behind": ("gzip", gzip.compress(body) + gzip.compress(body), 3),
    }
    for name in ("gzip", "snappy", "raw-snappy", "lz4", "zstd"):
        _, pack = PACKINGS[name]
        packed = pack(body)
        found |= {
            f"{name}, nothing": (name, b"", 3),
            f"{name}, an empty stream": (name, pack(b""), 3),
            f"{name}, rubbish": (name, b"this was never compressed", 3),
            f"{name}, cut by one byte": (name, packed[:-1], 3),
            f"{name}, cut in the middle": (name, packed[: len(packed) // 2], 3),
            f"{name}, zeros inside": (name, pack(large), 1),
            f"{name}, records uncompressed": (name, body, 3),
        }
        if name not in ("gzip", "raw-snappy"):
            found[f"{name}, rubbish behind"] = (name, packed + b"rubbish!", 3)
    return found


def _zstd_with_window(data: bytes, window_log: int) -> bytes:
    """A zstd frame of one raw block with this window, without the size of its content."""
    header = struct.pack("<IBB", 0xFD2FB528, 0x00, (window_log - 10) << 3)
    return header + struct.pack("<I", len(data) << 3 | 1)[:3] + data


def _lz4_header_checksum(descriptor: bytes) -> int:
    """The header checksum of an LZ4 frame: the second byte of the xxHash32 of its descriptor."""
    return (_xxhash32(descriptor) >> 8) & 0xFF


def _xxhash32(data: bytes) -> int:
    """The xxHash32 of fewer than 4 bytes, with seed 0."""
    mask = 0xFFFFFFFF
    number = (374761393 + len(data)) & mask
    for byte in data:
        number = (number + byte * 374761393) & mask
        number = ((number << 11 | number >> 21) & mask) * 2654435761 & mask
    number ^= number >> 15
    number = number * 2246822519 & mask
    number ^= number >> 13
    number = number * 3266489917 & mask
    return number ^ number >> 16


def _whole(sound: Callable[[int], bytes]) -> dict[str, Callable[[int], bytes]]:
    """Bytes instead of a single batch: no batch, a part of one, or several."""
    return {
        "no bytes": lambda now: b"",
        "one byte": lambda now: b"\0",
        "eleven bytes": lambda now: sound(now)[:11],
        "sixteen bytes": lambda now: sound(now)[:16],
        "seventeen bytes": lambda now: sound(now)[:17],
        "sixty bytes": lambda now: sound(now)[:60],
        "header without records": lambda now: sound(now)[:61],
        "cut by one byte": lambda now: sound(now)[:-1],
        "two batches": lambda now: sound(now) * 2,
        "a batch and a half": lambda now: sound(now) + sound(now)[:70],
        "one byte behind": lambda now: sound(now) + b"\0",
        "a hundred bytes behind": lambda now: sound(now) + bytes(100),
        "a hundred bytes of ones behind": lambda now: sound(now) + b"\xff" * 100,
        "a message of format 0": lambda now: old_message(0, now),
        "a message of format 1": lambda now: old_message(1, now),
        "zeros": lambda now: bytes(100),
        "ones": lambda now: b"\xff" * 100,
    }


_IN_EVERY_PACKING = (
    "sound",
    "5 records announced, 3 there",
    "3 records announced, 5 there",
    "rubbish records",
    "one byte behind the last record",
    "value length -2",
)


def _made(body: Body | Callable[[int], Body], packing: str) -> Callable[[int], bytes]:
    def build(now_ms: int) -> bytes:
        made = body(now_ms) if callable(body) else body
        return batch(made.data, made.count, packing=packing, now_ms=now_ms, **made.header)

    return build


def _all_cases() -> Iterator[Case]:
    bodies, times, headers = _bodies(), _times(), _headers()
    for name, body in bodies.items():
        everywhere = name in _IN_EVERY_PACKING
        for packing in PACKINGS if everywhere else ("none", "gzip"):
            yield Case(f"{name}, {packing}", "create", _made(body, packing))
        for packing in ("none", "lz4") if everywhere else ():
            yield Case(f"{name}, {packing}", "append", _made(body, packing))
    for name, timed in times.items():
        for topic in ("create", "window", "append"):
            for packing in ("none", "lz4"):
                yield Case(f"{name}, {packing}", topic, _made(timed, packing))
    for name, claimed in headers.items():
        # A case with a producer id is produced only once: a second batch with its sequence number
        # would be a duplicate.
        for packing in ("none",) if "producer id" in name else ("none", "zstd"):
            yield Case(f"{name}, {packing}", "create", _made(claimed, packing))
    for name, (packing, packed, count) in _streams().items():
        other = "zstd" if packing == "gzip" else "gzip"
        for topic in ("create", other, "several"):
            yield Case(
                name,
                topic,
                lambda now, p=packing, c=packed, n=count: batch(  # type: ignore[misc]
                    b"", n, packing=p, packed=c, now_ms=now
                ),
            )
    sound = _made(bodies["sound"], "none")
    for name, build in _whole(sound).items():
        yield Case(name, "create", build)
    yield from _by_topic(bodies, times)
    yield from _by_version(bodies, times)


def _by_topic(bodies: dict[str, Body], times: dict[str, Callable[[int], Body]]) -> Iterator[Case]:
    """Cases for compacted topics, and for topics with a compression type."""
    keyless = Body(record(0) + record(1, key=None) + record(2) + record(3, key=None), 4)
    late = {"base_timestamp": 5, "max_timestamp": 5}
    for topic in ("compact", "compact-append", "compact-window"):
        for packing in ("none", "lz4"):
            yield Case(f"sound, {packing}", topic, _made(bodies["sound"], packing))
            yield Case(f"two without keys, {packing}", topic, _made(keyless, packing))
            old = Body(keyless.data, 4, late)
            yield Case(f"old, two without keys, {packing}", topic, _made(old, packing))
            old = Body(records(2, key=None), 2, late)
            yield Case(f"old, none with a key, {packing}", topic, _made(old, packing))
            empty = Body(records(2, key=b""), 2)
            yield Case(f"empty keys, {packing}", topic, _made(empty, packing))
            minus = Body(record(0, key=None, key_length=-2), 1)
            yield Case(f"key length -2, {packing}", topic, _made(minus, packing))
    chosen = (
        "sound",
        "sound with headers and nulls",
        "value length -2",
        "record attributes set",
        "varint longer than needed",
        "offset deltas 0 0",
        "offset deltas 1 0",
        "offset deltas with a gap",
        "offset delta negative",
        "5 records announced, 3 there",
        "rubbish records",
        "byte at the end of a record",
    )
    timed = (
        "max timestamp too small",
        "one without timestamp",
        "timestamp -2",
        "append time from the client",
        "base timestamp far away, records now",
        "one too new",
    )
    for topic in ("uncompressed", "gzip", "zstd", "zstd-append"):
        for packing in ("none", "gzip", "zstd"):
            for name in chosen:
                yield Case(f"{name}, {packing}", topic, _made(bodies[name], packing))
            for name in timed:
                yield Case(f"{name}, {packing}", topic, _made(times[name], packing))
    for topic in ("small", "small-uncompressed"):
        swollen = Body(record(0, value=bytes(500)), 1)
        for packing in ("none", "zstd"):
            yield Case(f"500 zeros, {packing}", topic, _made(swollen, packing))


def _by_version(bodies: dict[str, Body], times: dict[str, Callable[[int], Body]]) -> Iterator[Case]:
    for version in (3, 6, 7, 8, 10, 12):
        for packing in ("none", "zstd"):
            yield Case(f"sound, {packing}", "create", _made(bodies["sound"], packing), version)
            yield Case(
                f"one too new, {packing}", "create", _made(times["one too new"], packing), version
            )
            broken = bodies["5 records announced, 3 there"]
            yield Case(f"{'5 announced'}, {packing}", "create", _made(broken, packing), version)
        yield Case("no bytes", "create", lambda now: b"", version)
        yield Case("a message of format 1", "create", lambda now: old_message(1, now), version)


CASES = tuple(_all_cases())
