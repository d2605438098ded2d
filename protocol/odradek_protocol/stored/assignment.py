"""The leader's assignment for one member of a consumer group (rule G-52; Kafka's
ConsumerProtocolAssignment): the opaque assignment of SyncGroup.

The bytes begin with an int16 version; the fields are the same in all versions.
"""

from __future__ import annotations

from struct import Struct as Packer

from odradek_protocol import codec
from odradek_protocol.codec import Buffer
from odradek_protocol.common_structs import PartitionsOfTopic
from odradek_protocol.message import Message, array, field, message
from odradek_protocol.primitives import BYTES
from odradek_protocol.stored.subscription import NEWEST, read_version

_VERSION = Packer(">h")


@message(versions="0-3")
class ConsumerAssignment(Message):
    """The partitions that one member is to consume."""

    assigned_partitions: list[PartitionsOfTopic] = field(array(PartitionsOfTopic))
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)


def encode_assignment(assignment: ConsumerAssignment, version: int = NEWEST) -> bytes:
    """The assignment of one member in a SyncGroup request."""
    return _VERSION.pack(version) + codec.encode_bytes(assignment, version)


def decode_assignment(data: Buffer) -> ConsumerAssignment:
    """The assignment in the bytes. Empty bytes are an empty assignment, for a member that the
    leader left out.

    Raises DecodeError for other invalid bytes.
    """
    if not len(data):
        return ConsumerAssignment()
    return codec.decode(ConsumerAssignment, read_version(data), data, _VERSION.size)
