"""Decoders of keys and values: JSON, text, Avro, Protobuf, decoders of other packages, and hex
dumps.

    decoders = Decoders()
    shown = decode(record.value, topic=record.topic, is_key=False, registry=decoders)
    shown.format, shown.text, shown.value, shown.attempts

`odradek consume` and the console use this package to show records. If `decoders.may_block(data)` is
true, `decode` may block for seconds, because it sends a request to a schema registry; a program
with an event loop then calls it in a thread.
"""

from odradek_records.decoders.decoding import GUESS, Decoders, decode
from odradek_records.decoders.plain import Attempt, CannotDecode, Decoded, Found, Limits
from odradek_records.decoders.schema_registry import SchemaRegistry
from odradek_records.decoders.schemas import DecoderError

__all__ = [
    "GUESS",
    "Attempt",
    "CannotDecode",
    "Decoded",
    "DecoderError",
    "Decoders",
    "Found",
    "Limits",
    "SchemaRegistry",
    "decode",
]
