"""The hash of topics by which share and streams groups detect changes of their topics (H-03, J-03).

The bytes and the hash function, XXH3 with 64 bits and no seed, are Kafka's: a Kafka that takes over
the records of a group computes the same hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, unpack_from

from odradek_broker.coordinator.groups.settings import CoordinatorMetadata
from odradek_broker.slices import in_pieces, pause

#: The first hashed byte of a topic: the version of Kafka's hash of a topic.
_MAGIC = 0
#: The hashes of the last topics, and the limit of their number.
_KNOWN: dict[tuple[str, bytes, int, str], int] = {}
_KNOWN_MAX = 1_000
_INT32, _INT64, _UINT32S = Struct("<i"), Struct("<q"), Struct("<II")


async def topics_hash(names: Iterable[str], topics: CoordinatorMetadata) -> int:
    """The hash of the existing topics among `names`; 0 for none."""
    existing = [
        name async for some in in_pieces(names) for name in some if topics.partition_count(name)
    ]
    if not existing:
        return 0
    hashes = [
        _INT64.pack(
            await topic_hash(
                name, topics.topic_id(name), topics.partition_count(name), topics.broker_rack
            )
        )
        async for some in in_pieces(sorted(existing))
        for name in some
    ]
    return await xxh3(b"".join(hashes))


async def topic_hash(name: str, topic_id: bytes, partitions: int, rack: str) -> int:
    """The hash of a topic whose partitions have a replica in one rack; the rack is empty if there
    is none.
    """
    hashed = name, topic_id, partitions, rack
    if hashed in _KNOWN:
        return _KNOWN[hashed]
    place = _text(rack, length_first=True) if rack else b""
    replicas = [
        _INT32.pack(index) + place async for some in in_pieces(range(partitions)) for index in some
    ]
    found = await xxh3(
        bytes([_MAGIC])
        + topic_id[7::-1]
        + topic_id[:7:-1]
        + _text(name)
        + _INT32.pack(partitions)
        + b"".join(replicas)
    )
    if len(_KNOWN) >= _KNOWN_MAX:
        _KNOWN.clear()
    _KNOWN[hashed] = found
    return found


def _text(text: str, *, length_first: bool = False) -> bytes:
    """The encoding of a text in Kafka's hash library: UTF-16, followed by the length."""
    units = text.encode("utf-16-le")
    length = _INT32.pack(len(units) // 2)
    return (length if length_first else b"") + units + length


# --- XXH3 -----------------------------------------------------------------------------------------

_MASK = (1 << 64) - 1
_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME64_5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE = 64
_BLOCK = 1024


async def xxh3(data: bytes) -> int:
    """The hash of at least 8 bytes, as a signed number."""
    size = len(data)
    if size <= 16:
        hashed = _short(data)
    elif size <= 128:
        # The bytes are read from both ends inwards, in steps of 16 bytes.
        total = size * _PRIME64_1
        for step in range((size - 1) // 32 + 1):
            total += _mix(data, 16 * step, 32 * step)
            total += _mix(data, size - 16 * (step + 1), 32 * step + 16)
        hashed = _avalanche(total)
    elif size <= 240:
        total = _avalanche(size * _PRIME64_1 + sum(_mix(data, at, at) for at in range(0, 128, 16)))
        total += sum(_mix(data, at, at - 125) for at in range(128, size - 15, 16))
        hashed = _avalanche(total + _mix(data, size - 16, 119))
    else:
        hashed = await _long(data)
    return hashed - (1 << 64) if hashed >> 63 else hashed


def _short(data: bytes) -> int:
    size = len(data)
    if size == 8:
        first, last = _UINT32S.unpack(data)
        keyed: int = (last + (first << 32)) ^ _secret(8) ^ _secret(16)
        keyed ^= _rotated(keyed, 49) ^ _rotated(keyed, 24)
        keyed = keyed * 0x9FB21C651E98DF25 & _MASK
        keyed = (keyed ^ ((keyed >> 35) + size)) * 0x9FB21C651E98DF25 & _MASK
        return keyed ^ keyed >> 28
    low = _int(data, 0) ^ _secret(24) ^ _secret(32)
    high = _int(data, size - 8) ^ _secret(40) ^ _secret(48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche(size + swapped + high + _folded(low, high))


async def _long(data: bytes) -> int:
    lanes = [
        *(_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3),
        *(_PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1),
    ]
    last = len(data) - 1
    for at in range(0, last // _STRIPE * _STRIPE, _STRIPE):
        _add_stripe(lanes, data, at, at % _BLOCK // 8)
        if (at + _STRIPE) % _BLOCK == 0:
            for lane, key in enumerate(unpack_from("<8Q", _SECRET, 128)):
                value = lanes[lane]
                lanes[lane] = (value ^ value >> 47 ^ key) * _PRIME32_1 & _MASK
            await pause()
    _add_stripe(lanes, data, len(data) - _STRIPE, 121)
    total = len(data) * _PRIME64_1
    for lane in range(0, 8, 2):
        key = 11 + 8 * lane
        total += _folded(lanes[lane] ^ _secret(key), lanes[lane + 1] ^ _secret(key + 8))
    return _avalanche(total)


def _add_stripe(lanes: list[int], data: bytes, at: int, secret_at: int) -> None:
    values = unpack_from("<8Q", data, at)
    for lane, key in enumerate(unpack_from("<8Q", _SECRET, secret_at)):
        value = values[lane]
        keyed = value ^ key
        lanes[lane ^ 1] = (lanes[lane ^ 1] + value) & _MASK
        lanes[lane] = (lanes[lane] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK


def _mix(data: bytes, at: int, secret_at: int) -> int:
    low, high = unpack_from("<QQ", data, at)
    return _folded(low ^ _secret(secret_at), high ^ _secret(secret_at + 8))


def _folded(left: int, right: int) -> int:
    product = left * right
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 37) * 0x165667919E3779F9 & _MASK
    return value ^ value >> 32


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _int(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _secret(at: int) -> int:
    return _int(_SECRET, at)
