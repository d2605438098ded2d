"""The subscription with which a consumer joins a group (rule G-52; Kafka's
ConsumerProtocolSubscription): the opaque metadata of JoinGroup.

The bytes begin with an int16 version. Versions only append fields, so an unknown newer version is
read as the newest known version. Version 1 appends the owned partitions (KIP-429), version 2 the
generation of the owned partitions, version 3 a rack.
"""

from __future__ import annotations

from struct import Struct as Packer

from odradek_protocol import codec
from odradek_protocol.codec import Buffer
from odradek_protocol.message import Message, Struct, array, field, message
from odradek_protocol.primitives import BYTES, INT32, STRING, DecodeError

PROTOCOL_TYPE = "consumer"
"""The protocol type of groups whose members exchange these."""

NEWEST = 3

_VERSION = Packer(">h")


class OwnedPartitions(Struct):
    topic: str = field(STRING, "1+")
    partitions: list[int] = field(array(INT32), "1+")


@message(versions="0-3")
class ConsumerSubscription(Message):
    """The topics that a member subscribes to, and the partitions that it owned before the
    rebalance."""

    topics: list[str] = field(array(STRING))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
    owned_partitions: list[OwnedPartitions] = field(array(OwnedPartitions), "1+", ignorable=True)
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)


def encode_subscription(subscription: ConsumerSubscription, version: int = NEWEST) -> bytes:
    """The metadata of one protocol in a JoinGroup request."""
    return _VERSION.pack(version) + codec.encode_bytes(subscription, version)


def decode_subscription(data: Buffer) -> ConsumerSubscription:
    """The subscription. Raises DecodeError for invalid bytes; a group of another protocol type may
    have other metadata (O-12)."""
    return codec.decode(ConsumerSubscription, read_version(data), data, _VERSION.size)


def decode_topics(data: Buffer) -> list[str]:
    """The topics of a subscription of any version, even if fields of later versions are missing or
    damaged (O-12). Raises DecodeError if the fields of version 0 are not readable."""
    if len(data) < _VERSION.size:
        raise DecodeError(f"{len(data)} bytes are too few for a version")
    topics: list[str] = codec.decode(ConsumerSubscription, 0, data, _VERSION.size).topics
    return topics


def read_version(data: Buffer) -> int:
    """The version in which `data` is read. Raises DecodeError if the version is negative or
    missing."""
    if len(data) < _VERSION.size:
        raise DecodeError(f"{len(data)} bytes are too few for a version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"version {version} of the consumer protocol")
    return min(version, NEWEST)
