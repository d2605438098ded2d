"""Headers of every version, and whole frames in both directions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from many_cases import looped
from odradek_protocol import codec, frames
from odradek_protocol.keys import APIS, Api, ApiKey
from odradek_protocol.primitives import DecodeError, EncodeError
from odradek_protocol.schemas.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek_protocol.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from wire_values import full

EVERY_API_VERSION = looped(
    "api, version",
    [(api, version) for api in APIS.values() for version in api.request.versions],
    ids=lambda value: value.name if isinstance(value, Api) else f"v{value}",
    by=lambda api, version: api.name,
)


def _joined(parts: Any) -> bytes:
    """The frame after its length field; checks the length."""
    data = b"".join(parts)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


@EVERY_API_VERSION
def test_n02_requests_survive_a_round_trip_in_every_version(api: Api, version: int) -> None:
    request = full(api.request, version)
    for client_id in ("größe", "", None):
        frame = _joined(frames.encode_request(request, version, -7, client_id))
        header, position = frames.decode_request_header(frame)
        assert header == frames.RequestHeader(api.key, version, -7, client_id)
        if api.request_header_version(version) == 2:
            position = frames.skip_tags(frame, position)
        assert codec.decode_at(api.request, version, frame, position) == (request, len(frame))


@EVERY_API_VERSION
def test_n05_responses_survive_a_round_trip_in_every_version(api: Api, version: int) -> None:
    response = full(api.response, version)
    frame = _joined(frames.encode_response(api, version, 2**31 - 1, response))
    assert frames.decode_correlation_id(frame) == 2**31 - 1
    assert frames.decode_response(api, version, frame) == response


def test_n02_the_client_id_is_encoded_as_a_plain_string_in_every_version() -> None:
    request = HeartbeatRequest(group_id="g")
    for version, tags in ((3, b""), (4, b"\0")):
        frame = _joined(frames.encode_request(request, version, 5, "me"))
        assert frame.startswith(b"\0\x0c" + bytes([0, version]) + b"\0\0\0\x05\0\x02me" + tags)
    assert _joined(frames.encode_request(request, 3, 5, None))[8:10] == b"\xff\xff"


def test_n07_api_versions_responses_have_header_version_0() -> None:
    api = APIS[ApiKey.API_VERSIONS]
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    for version in api.versions:
        frame = _joined(frames.encode_response(api, version, 9, response))
        assert frame == b"\0\0\0\x09" + codec.encode_bytes(response, version)
    heartbeat = APIS[ApiKey.HEARTBEAT]
    answers = [
        _joined(frames.encode_response(heartbeat, v, 9, HeartbeatResponse())) for v in (3, 4)
    ]
    assert [len(answer) - 4 for answer in answers] == [6, 1 + 6 + 1]


def test_n07_api_versions_requests_have_the_usual_header() -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    assert _joined(frames.encode_request(request, 2, 1, None)) == bytes.fromhex(
        "0012000200000001ffff"
    )
    assert _joined(frames.encode_request(request, 3, 1, None)) == bytes.fromhex(
        "0012000300000001ffff000278023100"
    )


def test_n07_the_header_of_a_request_of_unknown_version_is_read() -> None:
    header, _ = frames.decode_request_header(bytes.fromhex("0012006300000001000178"))
    assert (header.api_key, header.api_version, header.correlation_id) == (18, 99, 1)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "0000",
        "000000030000000000",
        "00000003000000000005",  # the client id is missing
        "0000000300000000fffe",  # a negative length other than -1, which means null
        "000000030000000000017f"[:-2],
        "00000003000000000001ff",  # not UTF-8
    ],
)
def test_n06_malformed_headers_are_a_decode_error(header: str) -> None:
    with pytest.raises(DecodeError):
        frames.decode_request_header(bytes.fromhex(header))


def test_header_tags_are_skipped() -> None:
    data = b"head" + b"\x02\x00\x01x\x07\x03abc" + b"body"
    assert data[frames.skip_tags(data, 4) :] == b"body"
    assert frames.skip_tags(b"\0", 0) == 1


@pytest.mark.parametrize(
    "tags",
    [
        "",
        "01",
        "0100",
        "010005",
        "010005616263",
        "41" + "0000" * 65,  # More tags than any client needs.
        "ffffffff0f",
        "0100ffffffff0f",
        "808080808001",
        "01808080808001",
    ],
)
def test_n06_malformed_header_tags_are_a_decode_error(tags: str) -> None:
    with pytest.raises(DecodeError):
        frames.skip_tags(bytes.fromhex(tags), 0)


@given(st.binary(max_size=40))
def test_n06_any_bytes_are_a_header_or_a_decode_error(data: bytes) -> None:
    for read in (
        frames.decode_request_header,
        lambda frame: frames.skip_tags(frame, 0),
        frames.decode_correlation_id,
        lambda frame: frames.decode_response(APIS[ApiKey.HEARTBEAT], 4, frame),
        lambda frame: frames.decode_response(APIS[ApiKey.HEARTBEAT], 0, frame),
    ):
        try:
            read(data)
        except DecodeError:
            continue


@pytest.mark.full
@EVERY_API_VERSION
def test_n06_every_truncated_response_is_a_decode_error(api: Api, version: int) -> None:
    frame = _joined(frames.encode_response(api, version, 1, full(api.response, version)))
    for cut in range(len(frame)):
        with pytest.raises(DecodeError):
            frames.decode_response(api, version, frame[:cut])


def test_a_request_with_a_field_unknown_to_its_version_is_refused() -> None:
    with pytest.raises(EncodeError):
        frames.encode_request(HeartbeatRequest(group_instance_id="i"), 2, 1, None)


def test_d06_large_record_sets_stay_buffers_of_their_own() -> None:
    api = APIS[ApiKey.FETCH]
    response = full(api.response, 12)
    records = memoryview(b"r" * 100_000)
    response.responses[0].partitions[0].records = records
    parts = frames.encode_response(api, 12, 1, response)
    assert any(part is records for part in parts)
    assert len(parts) == 3
    assert frames.decode_response(api, 12, _joined(parts)) == response
