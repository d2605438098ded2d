"""Frames: a length, a header, a body (rules N-01, N-02). Without I/O.

Frames that are encoded here begin with their length. Received frames do not contain their length; a
`FrameReceiver` cuts them from a byte stream. The receiver is made for `asyncio.BufferedProtocol`:
the transport writes into its memory, so that a large frame is received in place and a small one is
copied once.

    receiver.get_buffer()     a writable view to receive into
    receiver.received(n)      n bytes are in the view; returns the frames that they complete

The loops of asyncio and uvloop run nothing else on the thread between these two calls. So the
connections of a loop share one scratch buffer, and an idle connection has no buffer.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from struct import Struct as Packer
from typing import Any, cast

from odradek_protocol import codec
from odradek_protocol.codec import Buffer
from odradek_protocol.compression import writable_memory
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import Api, api_of
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.message import Message
from odradek_protocol.primitives import DecodeError, EncodeError, decode_uvarint
from odradek_protocol.settings import INT32_MAX

_SIZE = Packer(">i")
_SIZE_BYTES = _SIZE.size
_REQUEST = Packer(">hhih")
_CORRELATION = Packer(">i")
#: The limit of tags in a header. Kafka defines no tags for headers (KIP-482).
_HEADER_TAGS_MAX = 64
SCRATCH_BYTES = 128 * 1024
#: Whenever the memory of an unfinished frame is full, it grows to at most this size, or to `_AHEAD`
#: times the received bytes if that is more. So a peer cannot make this program allocate much memory
#: by sending nothing but a length. The sizes are those of which the last one, that of the frame, is
#: `_AHEAD` times the size before: so each is filled long after the content of the size before,
#: which is moved a part at a time, is in it.
FIRST_STEP_BYTES = 4 * 1024
_AHEAD = 7


class FrameTooLarge(DecodeError):
    """The error for a frame length that is negative or above the limit (rule N-01)."""


class TlsBytes(FrameTooLarge):
    """The error for a frame length that is really the start of a TLS record, because the peer uses
    TLS."""


#: The types of TLS records, and the first byte of their version.
_TLS_RECORDS = range(0x14, 0x18)
_TLS_VERSION = 0x03


class FrameReceiver:
    """Divides received bytes into frames without their length prefix.

    `max_frame_bytes`: the largest accepted frame. The memory is at most eight times the received
    bytes of one frame, plus `scratch` (SCRATCH_BYTES); several receivers may share one `scratch`.
    Each returned frame is a memoryview of memory that nothing else uses, so the frame stays
    valid and may be changed.

    `frames_at_once`: the most frames that `received` returns. A small frame takes many times its
    bytes, so others stay `uncut` until the next call, which may be `received(0)`.
    """

    __slots__ = (
        "_former",
        "_frame",
        "_frame_bytes",
        "_frame_filled",
        "_length",
        "_moved",
        "_scratch",
        "frames_at_once",
        "max_frame_bytes",
        "uncut",
    )

    def __init__(self, max_frame_bytes: int, scratch: memoryview | None = None) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._scratch = memoryview(bytearray(SCRATCH_BYTES)) if scratch is None else scratch
        self.frames_at_once = sys.maxsize
        # The bytes of an incomplete length.
        self._length = b""
        #: Received bytes with further frames.
        self.uncut = b""
        self._frame: memoryview | None = None
        self._frame_bytes = 0
        self._frame_filled = 0
        # The memory before the last growth, and how much of its content is in `_frame`.
        self._former: memoryview | None = None
        self._moved = 0

    def get_buffer(self) -> memoryview:
        """The buffer for the next bytes; never empty."""
        if self._frame is not None:
            if self._frame_filled < len(self._frame):
                return self._frame[self._frame_filled :]
            # The frame grows when the bytes are there: the end of a connection brings none, and
            # the connections of many peers may end together.
            return self._scratch[: self._frame_bytes - self._frame_filled]
        if self._length:
            return self._scratch[len(self._length) :]
        return self._scratch

    def received(self, size_bytes: int) -> list[memoryview]:
        """The frames that the received bytes complete. Raises FrameTooLarge, after which the
        connection must be closed."""
        if self._frame is not None:
            if self._frame_filled == len(self._frame):
                self._grow(self._frame, self._scratch[:size_bytes])
            elif self._former is not None:
                self._move(self._former, self._frame, size_bytes)
            self._frame_filled += size_bytes
            if self._frame_filled < self._frame_bytes:
                return []
            frame, self._frame = self._frame, None
            if self._former is not None:
                # The memory began with bytes of `uncut`, which may be more than a scratch buffer.
                self._move(self._former, frame, len(self._former))
            return [frame]
        if self.uncut:
            uncut, self.uncut = self.uncut + self._scratch[:size_bytes], b""
            return self._split(memoryview(uncut), len(uncut))
        length_bytes = len(self._length)
        if length_bytes:
            self._scratch[:length_bytes] = self._length
            self._length = b""
        return self._split(self._scratch, length_bytes + size_bytes)

    @property
    def idle(self) -> bool:
        """True if there is no unfinished frame."""
        return self._frame is None and not self._length and not self.uncut

    @property
    def unfinished(self) -> tuple[int, int]:
        """The received bytes of an unfinished frame, and its size; (0, 0) if there is none."""
        if self._frame is None:
            return 0, 0
        former_bytes = 0 if self._former is None else len(self._former)
        return len(self._frame) + former_bytes, self._frame_bytes

    def _split(self, view: memoryview, filled: int) -> list[memoryview]:
        frames: list[memoryview] = []
        start = 0
        while filled - start >= _SIZE_BYTES:
            size = _SIZE.unpack_from(view, start)[0]
            if size < 0 or size > self.max_frame_bytes:
                if size >> 24 in _TLS_RECORDS and size >> 16 & 0xFF == _TLS_VERSION:
                    raise TlsBytes("a TLS record in the place of a frame")
                if view[start : start + _SIZE_BYTES].tobytes() == b"HTTP":
                    raise FrameTooLarge("an answer of HTTP; the address is not that of a listener")
                raise FrameTooLarge(
                    f"a frame of {size} bytes; at most {self.max_frame_bytes} are taken"
                )
            body = start + _SIZE_BYTES
            if body + size > filled:
                self._begin(size, view[body:filled])
                return frames
            start = body + size
            frames.append(memoryview(bytearray(view[body:start])))
            if len(frames) == self.frames_at_once and start < filled:
                self.uncut = bytes(view[start:filled])
                return frames
        self._length = bytes(view[start:filled])
        return frames

    def _begin(self, size: int, arrived: memoryview) -> None:
        """Keep the first bytes of a frame; memory for the rest is allocated when it arrives."""
        self._frame = memoryview(bytearray(arrived))
        self._frame_bytes = size
        self._frame_filled = len(arrived)

    def _grow(self, frame: memoryview, arrived: memoryview) -> None:
        """Replace the full buffer of an unfinished frame by a larger one, with the bytes that have
        arrived after it."""
        if self._former is not None:
            # It had bytes of `uncut`, which may be more than were received since.
            self._move(self._former, frame, len(self._former))
        filled = len(frame)
        received_bytes = filled + len(arrived)
        size = self._frame_bytes
        while size > max(FIRST_STEP_BYTES, _AHEAD * received_bytes):
            size = -(-size // _AHEAD)
        self._frame = larger = memoryview(writable_memory(size))
        larger[filled:received_bytes] = arrived
        self._former, self._moved = frame, 0
        self._move(frame, larger, SCRATCH_BYTES)

    def _move(self, former: memoryview, frame: memoryview, most_bytes: int) -> None:
        """Move a part of the content of the former memory. As many bytes as are received later,
        because moving all of a large frame would hold the loop."""
        end = min(self._moved + most_bytes, len(former))
        frame[self._moved : end] = former[self._moved : end]
        self._moved = end
        if end == len(former):
            self._former = None


@dataclass(slots=True)
class RequestHeader:
    """The header of a request. `client_id` may be null."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """(header without the tags of header version 2, position after the header). Raises DecodeError
    if the frame is too short for a header.

    `skip_tags` reads the tags. Only header version 2 has tags, and only some API keys and versions
    use it.
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
    """The position after the tagged fields of a header. Raises DecodeError if the fields exceed the
    frame."""
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
    """The error for a response that would exceed the limit of its sender."""

    def __init__(self, name: str, size_bytes: int) -> None:
        super().__init__(f"{name} of {size_bytes} bytes")
        self.size_bytes = size_bytes


def encode_response(
    api: Api, version: int, correlation_id: int, response: Message, bytes_max: int = INT32_MAX
) -> list[Buffer]:
    """A response frame with its length, as buffers. ResponseTooLarge above `bytes_max`, before the
    buffers are joined."""
    header = _response_header(api, version, correlation_id)
    return _framed(header, response, version, bytes_max)


def encode_response_with_pauses(
    api: Api, version: int, correlation_id: int, response: Message, bytes_max: int
) -> Generator[None, None, list[Buffer]]:
    """Like `encode_response`, as a generator that yields after some elements and returns the
    buffers. ResponseTooLarge with the size so far."""
    header = _response_header(api, version, correlation_id)
    body: list[Buffer] = []
    size = len(header)
    for buffers in codec.encode_with_pauses(response, version):
        body += buffers
        size += sum(map(len, buffers))
        if size > bytes_max:
            raise ResponseTooLarge(type(response).__name__, size)
        yield
    return codec.gather([_SIZE.pack(size) + header, *body])


def _response_header(api: Api, version: int, correlation_id: int) -> bytes:
    header = _CORRELATION.pack(correlation_id)
    return header + b"\0" if api.response_header_version(version) == 1 else header


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
    """The correlation id of a response frame. Raises DecodeError if it is too short."""
    if len(frame) < 4:
        raise DecodeError(f"a response of {len(frame)} bytes has no header")
    correlation_id: int = _CORRELATION.unpack_from(frame)[0]
    return correlation_id


def is_unsupported_version(frame: Buffer) -> bool:
    """True if an ApiVersions answer has the code UNSUPPORTED_VERSION.

    In every version the error code follows the correlation id. With this code, the rest of the
    answer is in version 0.
    """
    code = frame[_CORRELATION.size : _CORRELATION.size + 2]
    return int.from_bytes(code, "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION


def decode_response(api: Api, version: int, frame: Buffer) -> Message:
    """The body of a response frame. Raises DecodeError for invalid bytes."""
    position = 4
    if api.response_header_version(version) == 1:
        position = skip_tags(frame, position)
    return codec.decode(api.response, version, frame, position)
