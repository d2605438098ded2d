"""Records of modern groups, encoded in pieces if they are large."""

from __future__ import annotations

from odradek_broker.coordinator.runtime import Record
from odradek_broker.slices import in_pieces, with_pauses
from odradek_protocol.message import Message
from odradek_protocol.stored.modern_groups import encode_record, encode_record_with_pauses


async def encoded(value: Message, elements: int, **key: str) -> Record:
    """The record with this value. `elements`: how many names, topics or subtopologies it lists.
    `key`: the fields of the key."""
    if elements <= in_pieces.SIZE:
        return encode_record(value, **key)
    return await with_pauses(encode_record_with_pauses(value, **key))
