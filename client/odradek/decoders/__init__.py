"""Decoders of keys and values: JSON, text, Avro, Protobuf, decoders of others, and hex dumps.

    decoders = Decoders()
    shown = decode(record.value, topic=record.topic, is_key=False, registry=decoders)
    shown.format, shown.text, shown.value, shown.attempts

`odradek consume` and the console show records with it.
"""

from odradek.decoders.decoding import GUESS, Decoders, decode
from odradek.decoders.plain import Attempt, CannotDecode, Decoded, Found, Limits

__all__ = [
    "GUESS",
    "Attempt",
    "CannotDecode",
    "Decoded",
    "Decoders",
    "Found",
    "Limits",
    "decode",
]
