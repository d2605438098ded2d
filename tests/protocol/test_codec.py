"""The generated codecs encode and decode as declared, and refuse everything else."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
from many_cases import looped
from odradek_protocol import codec
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import ArrayOf, Message, Struct, layout, message
from odradek_protocol.message import array as array_of
from odradek_protocol.message import field as field_of
from odradek_protocol.primitives import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    MAX_ARRAY_ELEMENTS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    DecodeError,
    EncodeError,
    WireType,
    encode_uvarint,
)
from odradek_protocol.schemas.fetch import FetchResponse, PartitionData
from odradek_protocol.schemas.metadata import MetadataRequest, MetadataRequestTopic
from odradek_protocol.schemas.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from wire_values import api_of, fixed, full, message_versions, messages, version_id

every_version = looped("cls, version", message_versions(), ids=version_id, by=api_of)


@message(versions="0-1", flexible="1+")
class Everything(Message):
    """A message with every type in every position, including types that no API uses yet."""

    flag: bool = field_of(BOOL)
    ratio: float = field_of(FLOAT64)
    port: int = field_of(UINT16)
    crc: int = field_of(UINT32)
    ids: list[bytes] = field_of(array_of(UUID))
    flags: list[bool] = field_of(array_of(BOOL))
    names: list[str] | None = field_of(array_of(STRING), nullable="0+", default=None)
    blobs: list[bytes] = field_of(array_of(BYTES))
    small: int = field_of(INT8, "1+")
    tagged_text: str | None = field_of(STRING, "1+", nullable="1+", tag=3, tagged="1+")
    tagged_list: list[int] = field_of(array_of(INT16), "1+", tag=1, tagged="1+")


class Half(Struct):
    """A struct that may be null in a message."""

    number: int = field_of(INT32)


@message(versions="0-1", flexible="1+")
class Halves(Message):
    """A message with structs that may be null (KIP-893)."""

    first: Half | None = field_of(Half, nullable="0+", default=None)
    second: Half = field_of(Half)
    third: Half | None = field_of(Half, "1+", nullable="1+", tag=0, tagged="1+", default=None)


@looped(
    "cls, version",
    [*message_versions(), (Everything, 0), (Everything, 1), (Halves, 0), (Halves, 1)],
    ids=version_id,
    by=api_of,
)
@settings(max_examples=budget.examples(12))
@given(data=st.data())
def test_the_generated_codec_equals_the_declared_layout(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(messages(cls, version))
    encoded = codec.encode_bytes(value, version)
    declared = layout(cls, version)
    assert encoded == declared.build(value)
    decoded, end = codec.decode_at(cls, version, encoded)
    assert end == len(encoded)
    assert decoded == value == declared.parse(encoded)


@every_version
def test_fixed_messages_survive_in_every_version(cls: type[Message], version: int) -> None:
    for value in fixed(cls, version):
        encoded = codec.encode_bytes(value, version)
        assert encoded == layout(cls, version).build(value)
        decoded, end = codec.decode_at(cls, version, encoded)
        assert (decoded, end) == (value, len(encoded))


@pytest.mark.full
@every_version
def test_n06_every_truncation_is_a_decode_error(cls: type[Message], version: int) -> None:
    for value in fixed(cls, version):
        encoded = codec.encode_bytes(value, version)
        for cut in range(len(encoded)):
            with pytest.raises(DecodeError):
                codec.decode(cls, version, encoded[:cut])
            with pytest.raises(DecodeError):
                codec.decode(cls, version, memoryview(encoded)[:cut])


@every_version
def test_n06_changed_bytes_decode_or_are_a_decode_error(cls: type[Message], version: int) -> None:
    dice = random.Random(f"{cls.__name__} {version}")
    encoded = codec.encode_bytes(full(cls, version), version)
    for _ in range(40):
        changed = bytearray(encoded)
        for _ in range(dice.choice([1, 1, 2, 8])):
            if changed:
                changed[dice.randrange(len(changed))] = dice.choice(
                    [0, 1, 127, 128, 255, dice.randrange(256)]
                )
        try:
            decoded, end = codec.decode_at(cls, version, changed)
        except DecodeError:
            continue
        assert end <= len(changed)
        codec.encode(decoded, version)


@every_version
def test_n08_bytes_after_the_message_are_ignored(cls: type[Message], version: int) -> None:
    value = full(cls, version)
    encoded = codec.encode_bytes(value, version)
    decoded, end = codec.decode_at(cls, version, b"head" + encoded + b"tail", 4)
    assert (decoded, end) == (value, 4 + len(encoded))


@every_version
def test_decoding_takes_any_buffer(cls: type[Message], version: int) -> None:
    value = full(cls, version)
    encoded = codec.encode_bytes(value, version)
    for buffer in (bytearray(encoded), memoryview(encoded), memoryview(bytearray(encoded))):
        assert codec.decode(cls, version, buffer) == value


@looped("api", APIS.values(), ids=lambda api: api.name)
def test_a_version_that_a_message_does_not_have_is_refused(api: Any) -> None:
    for cls in (api.request, api.response):
        for version in (cls.versions.first - 1, cls.versions.last + 1):
            with pytest.raises(DecodeError, match="has no version"):
                codec.decode(cls, version, b"")
            with pytest.raises(EncodeError, match="has no version"):
                codec.encode(cls(), version)
            with pytest.raises(ValueError, match="has no version"):
                layout(cls, version)


# --- Unknown tags ---------------------------------------------------------------------------------


def test_n08_unknown_tags_survive_beside_known_ones_in_order() -> None:
    response = ProduceResponse(unknown_tags={7: b"seven", 300: b""})
    response.node_endpoints = full(ProduceResponse, 10).node_endpoints
    encoded = codec.encode_bytes(response, 10)
    assert encoded == layout(ProduceResponse, 10).build(response)
    decoded = codec.decode(ProduceResponse, 10, encoded)
    assert decoded.unknown_tags == {7: b"seven", 300: b""}
    assert decoded == response
    assert encoded.endswith(b"\x07\x05seven\xac\x02\x00")


def test_tags_may_come_in_any_order() -> None:
    swapped = Everything(tagged_list=[1], tagged_text="x", names=[])
    body = codec.encode_bytes(swapped, 1)
    assert body.endswith(b"\x02\x01\x03\x02\x00\x01\x03\x02\x02x")
    reordered = (
        body[: -len(b"\x01\x03\x02\x00\x01\x03\x02\x02x")] + b"\x03\x02\x02x\x01\x03\x02\0\x01"
    )
    assert codec.decode(Everything, 1, reordered) == swapped


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x03\x05\x02x",  # the tag is longer than the frame
        b"\x01\x03\x03\x02xy",  # the value is shorter than its tag
        b"\x01\x03\x01\x02xy",  # the value is longer than its tag
        b"\x02\x03\x02\x02x",  # fewer tags than announced
        b"\x01\xff\xff\xff\xff\xff\x00",  # a tag number of more than 32 bits
        b"\xff\xff\xff\xff\x0f",  # the highest possible number of tags
    ],
)
def test_n06_malformed_tags_are_a_decode_error(tags: bytes) -> None:
    body = codec.encode_bytes(Everything(names=[]), 1)[:-1]
    assert codec.decode(Everything, 1, body + b"\0") == Everything(names=[])
    with pytest.raises(DecodeError):
        codec.decode(Everything, 1, body + tags)


# --- Counts and lengths ---------------------------------------------------------------------------


def _arrays(cls: Any, version: int) -> bool:
    return any(
        isinstance(spec.type, ArrayOf) and version in spec.versions and version not in spec.tagged
        for spec in cls.fields
    )


@looped(
    "cls, version",
    [(cls, version) for cls, version in message_versions() if _arrays(cls, version)],
    ids=version_id,
    by=api_of,
)
def test_n06_false_array_counts_are_refused_without_allocating_memory(
    cls: type[Message], version: int
) -> None:
    """All fields before the first array are valid; the array's count announces elements that are
    missing."""
    flexible = version in cls.flexible
    encoded = codec.encode_bytes(cls(), version)
    first = next(
        spec
        for spec in cls.fields
        if isinstance(spec.type, ArrayOf)
        and version in spec.versions
        and version not in spec.tagged
    )
    grown = cls()
    element = first.type.element if isinstance(first.type, ArrayOf) else None
    default = element.default if isinstance(element, WireType) else element and element()
    setattr(grown, first.name, [default])
    other = codec.encode_bytes(grown, version)
    # The two encodings first differ in the count: in its last byte, if the count has four bytes.
    at = next(i for i, (a, b) in enumerate(zip(encoded, other, strict=False)) if a != b)
    head = other[: at if flexible else other.rindex(b"\0\0\0\1", 0, at + 4)]
    for count in (2, 100, MAX_ARRAY_ELEMENTS, MAX_ARRAY_ELEMENTS + 1, 2**31 - 1):
        claimed = encode_uvarint(count + 1) if flexible else count.to_bytes(4, "big")
        # Enough bytes for one element, or for none.
        tail = b"" if count == 2 else bytes(100)
        refused = head + claimed + tail[: count // 2]
        # Other threads of the test process sometimes also allocate memory.
        assert min(_peak_bytes(codec, cls, version, refused) for _ in range(3)) < 200_000


def _peak_bytes(codec: Any, cls: type[Message], version: int, refused: bytes) -> int:
    tracemalloc.start()
    with pytest.raises(DecodeError):
        codec.decode(cls, version, refused)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("count", [-2, -(2**31)])
def test_n06_negative_counts_are_a_decode_error(version: int, count: int) -> None:
    if version == 8:
        head, coded = b"\xff\xff" + bytes(6), count.to_bytes(4, "big", signed=True)
    else:  # A compact length can only be negative for null, and topic_data must not be null.
        head, coded = b"\0" + bytes(6), b"\0"
    with pytest.raises(DecodeError, match="topic_data"):
        codec.decode(ProduceRequest, version, head + coded + bytes(50))


def test_n06_an_array_longer_than_the_limit_is_refused() -> None:
    one_too_many = encode_uvarint(MAX_ARRAY_ELEMENTS + 2) + bytes(MAX_ARRAY_ELEMENTS + 1)
    body = codec.encode_bytes(Everything(names=[]), 1)
    ids_at = 1 + 8 + 2 + 4
    assert body[ids_at : ids_at + 2] == b"\x01\x01"
    with pytest.raises(DecodeError, match="flags"):
        codec.decode(Everything, 1, body[: ids_at + 1] + one_too_many + body[ids_at + 2 :])


@pytest.mark.parametrize("version", [8, 9])
def test_d11_all_arrays_of_a_message_share_a_limit(version: int) -> None:
    partitions = [PartitionProduceData(index=number) for number in range(10)]
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=partitions)] * 5)
    data = codec.encode_bytes(request, version)
    assert codec.decode(ProduceRequest, version, data, 0, 55) == request
    assert codec.decode(ProduceRequest, version, data) == request
    for elements_max in (54, 20, 4, 0):
        with pytest.raises(DecodeError, match="more than a message may have"):
            codec.decode(ProduceRequest, version, data, 0, elements_max)


@pytest.mark.parametrize(
    "varint",
    [
        b"\x80\x80\x80\x80\x80\x00",  # The value would be 0, but it has six bytes.
        b"\xff\xff\xff\xff\x7f",  # A value of 35 bits.
        b"\x81\x80\x80\x80\x80\x01",
        b"\x80",  # The varint is cut off.
    ],
)
def test_n06_overlong_varints_are_a_decode_error(varint: bytes) -> None:
    for body in (
        b"\0" + bytes(6) + varint + bytes(20),  # the count of topics
        varint + bytes(20),  # the length of the transactional id
        b"\0" + bytes(6) + b"\x01" + varint,  # the count of tags
    ):
        if varint == b"\x80":
            body = body[: body.rindex(b"\x80") + 1]
        with pytest.raises(DecodeError):
            codec.decode(ProduceRequest, 9, body)


def test_varints_need_not_be_minimal() -> None:
    """Kafka also accepts varints that are not minimal; our encoder writes minimal ones."""
    body = b"\x80\x00" + bytes(6) + b"\x81\x80\x00\x00"
    assert codec.decode(ProduceRequest, 9, body) == ProduceRequest(acks=0)


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize(
    "text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\x80"]
)
def test_n06_invalid_utf8_is_a_decode_error(version: int, text: bytes) -> None:
    prefix = bytes([len(text) + 1]) if version == 9 else len(text).to_bytes(2, "big")
    with pytest.raises(DecodeError):
        codec.decode(ProduceRequest, version, prefix + text + bytes(20))


@pytest.mark.parametrize("version", [8, 9])
def test_a_string_has_at_most_32767_bytes(version: int) -> None:
    longest = ProduceRequest(transactional_id="é" * 16383 + "x")
    encoded = codec.encode_bytes(longest, version)
    assert codec.decode(ProduceRequest, version, encoded) == longest
    with pytest.raises(EncodeError, match="ProduceRequest"):
        codec.encode(ProduceRequest(transactional_id="x" * 32768), version)
    if version == 9:
        with pytest.raises(DecodeError, match="transactional_id"):
            codec.decode(ProduceRequest, 9, encode_uvarint(32769) + b"x" * 32768 + bytes(20))


# --- Records --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [8, 9])
def test_d06_records_are_not_copied_by_encoding_and_decoding(version: int) -> None:
    records = memoryview(bytearray(b"r" * 100_000))
    request = ProduceRequest(
        topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=records)])]
    )
    parts = codec.encode(request, version)
    assert any(part is records for part in parts)
    frame = bytearray(b"".join(parts))
    decoded = codec.decode(ProduceRequest, version, frame)
    seen = decoded.topic_data[0].partition_data[0].records
    assert isinstance(seen, memoryview)
    at = frame.index(b"rrrr")
    frame[at] = ord("s")
    assert seen[0] == ord("s")


def test_gather_joins_small_buffers_and_leaves_large_ones() -> None:
    large, other = b"L" * 5000, memoryview(b"M" * 10_000)
    gathered = codec.gather([b"a", b"b", large, b"c", other, b"d", b"e"])
    assert gathered == [b"ab", large, b"c", other, b"de"]
    assert gathered[1] is large
    assert gathered[3] is other
    assert codec.gather([]) == []
    assert codec.gather([large]) == [large]


def test_d06_a_large_fetch_answer_is_encoded_as_few_buffers() -> None:
    response = FetchResponse()
    response.responses = full(FetchResponse, 12).responses
    for topic in response.responses:
        topic.partitions = [
            PartitionData(partition_index=i, aborted_transactions=[], records=b"r" * 50_000)
            for i in range(10)
        ]
    parts = codec.gather(codec.encode(response, 12))
    assert len(parts) == 2 * 2 * 10 + 1


# --- What cannot be encoded -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "version", "says"),
    [
        (ProduceRequest(acks=2**15), 9, "ProduceRequest v9"),
        (ProduceRequest(acks=None), 9, "ProduceRequest v9"),  # type: ignore[arg-type]
        (ProduceRequest(topic_data=None), 9, "topic_data may not be null"),  # type: ignore[arg-type]
        (ProduceRequest(transactional_id=b"bytes"), 9, "ProduceRequest v9"),  # type: ignore[arg-type]
        (ProduceRequest(transactional_id="\ud800"), 9, "ProduceRequest v9"),
        (MetadataRequest(topics=None), 0, "topics may not be null"),
        (MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 4, "name may not be null"),
        (MetadataRequest(topics=[], allow_auto_topic_creation=False), 3, "cannot carry allow_auto"),
        (
            ProduceResponse(node_endpoints=full(ProduceResponse, 10).node_endpoints),
            9,
            "cannot carry node_endpoints",
        ),
    ],
)
def test_a_value_that_a_version_cannot_carry_is_an_encode_error(
    value: Message, version: int, says: str
) -> None:
    with pytest.raises(EncodeError, match=says):
        codec.encode(value, version)


def test_ignorable_fields_are_dropped_in_versions_without_them() -> None:
    response = ProduceResponse(throttle_time_ms=5, responses=full(ProduceResponse, 8).responses)
    for topic in response.responses:
        topic.topic_id = b"i" * 16
        topic.name = "n"
    decoded = codec.decode(ProduceResponse, 3, codec.encode_bytes(response, 3))
    assert decoded.throttle_time_ms == 5
    partition = decoded.responses[0].partition_responses[0]
    assert partition.log_start_offset == -1
    assert partition.error_message is None
    assert decoded.responses[0].topic_id == bytes(16)


def test_defaults_are_new_for_every_message() -> None:
    body = codec.encode_bytes(ProduceResponse(), 9)
    first, second = (codec.decode(ProduceResponse, 9, body) for _ in range(2))
    first.node_endpoints.append(full(ProduceResponse, 10).node_endpoints[0])
    assert second.node_endpoints == []
    assert ProduceResponse().node_endpoints == []
    assert ProduceResponse.api_key == ApiKey.PRODUCE
