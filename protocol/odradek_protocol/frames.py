"""Frames: a length, a header, a body (rules N-01, N-02).

Received frames have no length prefix (`odradek_protocol.connection` divides a stream into frames);
encoded frames begin with it.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import Any, cast

from odradek_protocol import codec
from odradek_protocol.codec import Buffer
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import Api, api_of
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.message import Message
from odradek_protocol.primitives import DecodeError, EncodeError, decode_uvarint
from odradek_protocol.settings import INT32_MAX

_SIZE = Packer(">i")
_REQUEST = Packer(">hhih")
_CORRELATION = Packer(">i")
#: The most tags of a header; none are defined (KIP-482).
_HEADER_TAGS_MAX = 64


@dataclass(slots=True)
class RequestHeader:
    """The header of a request. `client_id` may be null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """(header without the tags of version 2, position behind it). DecodeError if it is too short.

    The tags of a flexible header are read by `skip_tags`: only some keys and versions have them.
    """
    if len(frame) < _REQUEST.size:
        raise DecodeError(f"a request of {len(frame)} bytes has no header")
    key, version, correlation, size = _REQUEST.unpack_from(frame)
    position = _REQUEST.size
    if size < 0:
        if size != -1:
            raise DecodeError(f"a client id of length {size}")
        return RequestHeader(key, version, correlation, None), position
    end = position + size
    if end > len(frame):
        raise DecodeError(f"a client id of length {size} in a frame of {len(frame)} bytes")
    try:
        client_id = str(frame[position:end], "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError("a client id that is no UTF-8") from error
    return RequestHeader(key, version, correlation, client_id), end


def request_header_bytes(client_id: str | None, flexible: bool) -> int:
    """The size of a request header without tags."""
    name_bytes = 0 if client_id is None else len(client_id.encode())
    return _REQUEST.size + name_bytes + flexible


def skip_tags(frame: Buffer, position: int) -> int:
    """The position behind a header's tagged fields. DecodeError if they exceed the frame."""
    try:
        count, position = decode_uvarint(frame, position)
        if count > _HEADER_TAGS_MAX:
            raise DecodeError(f"{count} tagged fields in a header")
        for _ in range(count):
            _, position = decode_uvarint(frame, position)
            size, position = decode_uvarint(frame, position)
            position += size
    except IndexError as error:
        raise DecodeError("the frame ends in its header") from error
    if position > len(frame):
        raise DecodeError("a tagged field of the header runs over the frame")
    return position


def encode_request(
    request: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """A request frame with its length, as buffers."""
    api = api_of(request)
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    header = _REQUEST.pack(api.key, version, correlation_id, size) + name
    if api.request_header_version(version) == 2:
        header += b"\0"
    return _framed(header, request, version)


class ResponseTooLarge(EncodeError):
    """A response would exceed its sender's limit."""

    def __init__(self, name: str, size_bytes: int) -> None:
        super().__init__(f"{name} of {size_bytes} bytes")
        self.size_bytes = size_bytes


def encode_response(
    api: Api, version: int, correlation_id: int, response: Message, bytes_max: int = INT32_MAX
) -> list[Buffer]:
    """A response frame with its length, as buffers. ResponseTooLarge above `bytes_max`, before the
    buffers are joined."""
    header = _CORRELATION.pack(correlation_id)
    if api.response_header_version(version) == 1:
        header += b"\0"
    return _framed(header, response, version, bytes_max)


def _framed(
    header: bytes, message: Message, version: int, bytes_max: int = INT32_MAX
) -> list[Buffer]:
    body = codec.encode(message, version)
    size = len(header) + sum(map(len, body))
    if size > bytes_max:
        raise ResponseTooLarge(type(message).__name__, size)
    start = _SIZE.pack(size) + header
    if not codec.carries_records(cast(Any, type(message))):
        return [b"".join((start, *body))]
    return codec.gather([start, *body])


def decode_correlation_id(frame: Buffer) -> int:
    """The correlation id of a response frame. DecodeError if it is too short."""
    if len(frame) < 4:
        raise DecodeError(f"a response of {len(frame)} bytes has no header")
    correlation_id: int = _CORRELATION.unpack_from(frame)[0]
    return correlation_id


def is_unsupported_version(frame: Buffer) -> bool:
    """True if an ApiVersions answer has the code UNSUPPORTED_VERSION.

    In every version the code follows the correlation id; with this code, the rest is in version 0.
    """
    code = frame[_CORRELATION.size : _CORRELATION.size + 2]
    return int.from_bytes(code, "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION


def decode_response(api: Api, version: int, frame: Buffer) -> Message:
    """The body of a response frame. DecodeError for invalid bytes."""
    position = 4
    if api.response_header_version(version) == 1:
        position = skip_tags(frame, position)
    return codec.decode(api.response, version, frame, position)
