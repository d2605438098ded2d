"""The user data in the subscription of JoinGroup, with which the leader of a group can leave
partitions with their present members (K-52, K-53).

Unlike the subscription, the user data does not begin with a version, so a reader tries the newest
version first.
"""

from __future__ import annotations

from odradek_protocol import codec
from odradek_protocol.codec import Buffer
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.constants import NO_GENERATION
from odradek_protocol.message import Message, array, field, message
from odradek_protocol.primitives import INT32, DecodeError


@message(versions="0-1")
class StickyUserData(Message):
    """The user data of `sticky`: a member's partitions and, in version 1 (KIP-341), the generation
    in which the member owned these partitions."""

    previous_assignment: list[PartitionsOfTopic] = field(array(PartitionsOfTopic))
    generation: int = field(INT32, "1+", default=NO_GENERATION, ignorable=True)


@message(versions="0")
class CooperativeStickyUserData(Message):
    """The user data of `cooperative-sticky`: the generation in which the member owned the
    partitions that its subscription lists as owned."""

    generation: int = field(INT32, default=NO_GENERATION)


def encode_sticky(data: StickyUserData, version: int = 1) -> bytes:
    """The user data of a member of a `sticky` group."""
    return codec.encode_bytes(data, version)


def decode_sticky(data: Buffer | None) -> StickyUserData:
    """The user data of any version; empty if there is no user data, or if the bytes are those of
    another assignor.

    kafka-python 3 writes an int16 version at the start. In the format of other clients these two
    bytes are the upper half of an array length, which would be above 65535, so decoding fails.
    """
    for version, position in ((1, 0), (0, 0), (1, 2)) if data is not None and len(data) else ():
        try:
            return codec.decode(StickyUserData, version, data or b"", position)
        except DecodeError:
            continue
    return StickyUserData(previous_assignment=[])


def encode_cooperative(generation: int) -> bytes:
    """The user data of a member of a `cooperative-sticky` group."""
    return codec.encode_bytes(CooperativeStickyUserData(generation=generation), 0)


def decode_cooperative(data: Buffer | None) -> int:
    """The generation; -1 if there is no user data, or if the bytes are those of another
    assignor."""
    if data is None or not len(data):
        return NO_GENERATION
    try:
        return codec.decode(CooperativeStickyUserData, 0, data).generation
    except DecodeError:
        return NO_GENERATION
