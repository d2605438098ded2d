"""Any bytes as answers to the client: every API and version, and streams of frames.

The first two bytes choose the API and the next two the version with which the rest is decoded. If
the first two are 0x7fff, the next two choose a size, and the rest is a stream of frames that is
received in pieces of this size.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.adversity.fuzz.target import MEGABYTE, Broken, Target

import golden
from odradek_protocol import frames
from odradek_protocol.frames import FrameReceiver, FrameTooLarge
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.primitives import DecodeError

_STREAM = b"\x7f\xff"
_FRAME_BYTES_MAX = 2000


def _frames_at_once(data: bytes) -> tuple[list[bytes], bool]:
    """The whole frames of a stream, and True if an impossible length follows them."""
    found: list[bytes] = []
    position = 0
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        if not 0 <= size <= _FRAME_BYTES_MAX:
            return found, True
        if position + 4 + size > len(data):
            break
        found.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return found, False


def _check_stream(data: bytes, piece_bytes: int) -> None:
    receiver = FrameReceiver(_FRAME_BYTES_MAX)
    found: list[bytes] = []
    position, too_large = 0, False
    while position < len(data) and not too_large:
        room = receiver.get_buffer()
        piece = data[position : position + min(piece_bytes, len(room))]
        if not piece:
            raise Broken("there is no room for what comes next")
        room[: len(piece)] = piece
        position += len(piece)
        try:
            found += map(bytes, receiver.received(len(piece)))
        except FrameTooLarge:
            too_large = True
    wanted, ends = _frames_at_once(data)
    # A frame that is too large also drops the frames that arrived before it in the same piece.
    if too_large != ends or found != wanted[: len(found)] or (not ends and found != wanted):
        raise Broken(f"{len(found)} frames of {len(wanted)}")


def _check(data: bytes) -> None:
    if len(data) < 4:
        return
    version = int.from_bytes(data[2:4], "big")
    if data[:2] == _STREAM:
        _check_stream(data[4:], version % 1000 + 1)
        return
    keys = list(APIS)
    api = APIS[keys[int.from_bytes(data[:2], "big") % len(keys)]]
    versions = list(api.versions)
    version = versions[version % len(versions)]
    frame = data[4:]
    try:
        correlation_id = frames.decode_correlation_id(frame)
        if api.key is ApiKey.API_VERSIONS:
            frames.is_unsupported_version(frame)
        answer = frames.decode_response(api, version, frame)
    except DecodeError:
        return
    again = b"".join(map(bytes, frames.encode_response(api, version, correlation_id, answer)))
    if frames.decode_response(api, version, again[4:]) != answer and "nan" not in repr(answer):
        raise Broken(f"{api.name} v{version} changes when it is written and read")


def _seeds() -> Iterator[bytes]:
    keys = list(APIS)
    stream = b""
    for api, line in golden.bodies():
        if line["direction"] != "response" or line["version"] not in api.versions:
            continue
        tags = b"\0" if api.response_header_version(line["version"]) == 1 else b""
        frame = b"\0\0\0\7" + tags + bytes.fromhex(line["hex"])
        head = keys.index(api.key).to_bytes(2, "big")
        version = list(api.versions).index(line["version"]).to_bytes(2, "big")
        yield head + version + frame
        stream += len(frame).to_bytes(4, "big") + frame
    for piece in (b"\0\0", b"\0\7", b"\3\0"):
        yield _STREAM + piece + stream[:3000]


TARGET = Target(_check, _seeds, memory_bytes=32 * MEGABYTE)
