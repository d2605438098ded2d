"""Fast codecs: straight-line Python, generated from the declarations, with one decoder and one
encoder per version.

The construct of a declaration (`message.layout`) defines the meaning of the bytes. The generated
code reads and writes the same bytes without interpreting the construct, and a test checks for every
message and version that both agree. Codecs are made when a version is first used, by `decoders.py`
and `encoders.py`.

Decoding checks every length against the available bytes before it allocates (rule N-06), and
returns record sets as memoryviews. Encoding returns a list of buffers, so that record sets are not
copied. Messages with many elements are read and written by generators, between whose steps the
broker does other work.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import lru_cache
from struct import error as struct_error
from typing import Any, TypeVar, cast

from odradek_protocol.message import ArrayOf, Message
from odradek_protocol.primitives import (
    MAX_MESSAGE_ELEMENTS,
    RECORDS,
    DecodeError,
    EncodeError,
    WireType,
)

from .decoders import TooManyElements as TooManyElements
from .decoders import struct_decoder
from .defaults import struct_maker as struct_maker
from .encoders import struct_encoder
from .source import Buffer as Buffer
from .source import Decoder, Encoder

# Classes that are cache keys are typed Any, because mypy concludes from unhashable instances that
# the class is unhashable.
M = TypeVar("M", bound=Message)
#: Buffers up to this size are joined with their neighbours, because a copy is cheaper than another
#: buffer in the write.
_JOIN_BYTES = 4096


def decode_at(
    cls: type[M],
    version: int,
    buffer: Buffer,
    position: int = 0,
    elements_max: int = MAX_MESSAGE_ELEMENTS,
) -> tuple[M, int]:
    """(message, position after it). Raises DecodeError for bytes that are not a valid message.

    `elements_max`: the most elements in all arrays of the message together.
    """
    try:
        found: tuple[M, int] = decoder(cast(Any, cls), version)(
            buffer, position, len(buffer), [elements_max]
        )
        return found
    except _DAMAGES as error:
        raise _decode_error(cls, version, error) from error


#: What generated decoders raise for damaged bytes.
_DAMAGES = (struct_error, IndexError, UnicodeDecodeError)


def _decode_error(cls: type[Message], version: int, error: Exception) -> DecodeError:
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"{cls.__name__} v{version}: {error}")
    return DecodeError(f"the frame ends inside {cls.__name__} v{version}")


def decode(
    cls: type[M],
    version: int,
    buffer: Buffer,
    position: int = 0,
    elements_max: int = MAX_MESSAGE_ELEMENTS,
) -> M:
    """The message at `position`; bytes after the message are ignored (rule N-08)."""
    return decode_at(cls, version, buffer, position, elements_max)[0]


def decode_with_pauses(
    cls: type[M], version: int, buffer: Buffer, position: int, elements_max: int
) -> Generator[None, None, M]:
    """Like `decode`, as a generator that yields after some elements and returns the message."""
    read = decoder(cast(Any, cls), version, True)
    try:
        found, _ = yield from read(buffer, position, len(buffer), [elements_max])
        return cast(M, found)
    except _DAMAGES as error:
        raise _decode_error(cls, version, error) from error


def encode(instance: Message, version: int) -> list[Buffer]:
    """The message as a list of buffers, in the order of the bytes. Raises EncodeError for a value
    that this version cannot represent."""
    parts: list[Buffer] = []
    try:
        encoder(cast(Any, type(instance)), version)(instance, parts.append)
    except _UNFIT as error:
        raise EncodeError(f"{type(instance).__name__} v{version}: {error}") from error
    return parts


#: What generated encoders raise for values that do not fit.
_UNFIT = (struct_error, AttributeError, TypeError, UnicodeEncodeError)


def encode_with_pauses(instance: Message, version: int) -> Generator[list[Buffer]]:
    """Like `encode`, as a generator: yields the buffers of some elements at a time, with few
    buffers for many small values."""
    parts: list[Buffer] = []
    write = encoder(cast(Any, type(instance)), version, True)
    try:
        for _ in write(instance, parts.append):
            yield gather(parts)
            parts.clear()
    except _UNFIT as error:
        raise EncodeError(f"{type(instance).__name__} v{version}: {error}") from error
    yield gather(parts)


def encode_bytes(instance: Message, version: int) -> bytes:
    """The message as one bytes object."""
    return b"".join(encode(instance, version))


def encode_bytes_with_pauses(instance: Message, version: int) -> Generator[None, None, bytes]:
    """Like `encode_bytes`, as a generator that yields after some elements and returns the bytes."""
    parts: list[Buffer] = []
    for buffers in encode_with_pauses(instance, version):
        parts += buffers
        yield
    return b"".join(parts)


def gather(parts: Sequence[Buffer]) -> list[Buffer]:
    """The bytes of `parts` in fewer buffers: small buffers are joined, large buffers (record sets)
    are not copied."""
    out: list[Buffer] = []
    start = 0
    for index, size in enumerate(map(len, parts)):
        if size > _JOIN_BYTES:
            if index > start:
                out.append(b"".join(parts[start:index]))
            out.append(parts[index])
            start = index + 1
    if start < len(parts):
        out.append(b"".join(parts[start:]))
    return out


@lru_cache(maxsize=4096)
def decoder(cls: Any, version: int, pausing: bool = False) -> Decoder:
    """The generated decoder of a message in one version; see `Decoder`."""
    if version not in cls.versions:
        raise DecodeError(f"{cls.__name__} has no version {version}")
    return struct_decoder(cls, version, version in cls.flexible, pausing)


@lru_cache(maxsize=4096)
def encoder(cls: Any, version: int, pausing: bool = False) -> Encoder:
    """The generated encoder of a message in one version; see `Encoder`."""
    if version not in cls.versions:
        raise EncodeError(f"{cls.__name__} has no version {version}")
    return struct_encoder(cls, version, version in cls.flexible, pausing)


@lru_cache(maxsize=512)
def carries_records(cls: Any) -> bool:
    """True if a message of this type may have record sets. Record sets should not be copied."""
    return any(
        spec.type is RECORDS
        or (isinstance(spec.type, ArrayOf) and _holds_records(spec.type.element))
        or _holds_records(spec.type)
        for spec in cls.fields
    )


def _holds_records(type_: Any) -> bool:
    return not isinstance(type_, WireType | ArrayOf) and carries_records(type_)
