"""Public names of `odradek_records.decoders`."""

from odradek_records.decoders import (
    GUESS,
    Attempt,
    CannotDecode,
    Decoded,
    DecoderError,
    Decoders,
    Found,
    Limits,
    SchemaRegistry,
    decode,
)

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
