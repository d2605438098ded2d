"""Formats without a schema (JSON, text and hex dumps), and the types of decoders' results."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from odradek_protocol.visible import visible_json


class CannotDecode(ValueError):
    """The error of bytes that are not in a format, with the reason."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one decoding.

    `data_bytes_max`: longer data is not decoded, but shown as the beginning of a hex dump.
    `depth_max`: the nesting of objects. `items_max`: the number of values in one record.
    `plugin_s`: the time that a decoder of another package may take for one record.
    """

    data_bytes_max: int = 4 * 1024 * 1024
    hex_bytes_max: int = 64 * 1024
    text_characters_max: int = 16 * 1024 * 1024
    depth_max: int = 64
    items_max: int = 500_000
    plugin_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """A tried format, with the reason of its failure."""

    format: str
    failure: str


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a format that fitted. `text` None: show the value as indented JSON."""

    value: Any
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded key or value.

    `format`: the name of the format that fitted. `text`: the form for people. `value`: a value for
    `json.dumps`, None if the format has none. `attempts`: the formats tried before.
    """

    format: str
    text: str
    value: Any
    attempts: tuple[Attempt, ...] = ()


# --- Text -----------------------------------------------------------------------------------------

#: Control characters, to which a terminal may react; CR LF at the end of a line is allowed.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")


def as_text(data: bytes) -> str:
    """The text in UTF-8. CannotDecode for other bytes, and for control characters apart from tabs
    and ends of lines."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CannotDecode(
            f"no UTF-8: byte 0x{data[error.start]:02x} at {error.start}: {error.reason}"
        ) from None
    control = _CONTROL.search(text)
    if control is not None:
        raise CannotDecode(f"control character U+{ord(control[0]):04X} at {control.start()}")
    return text


# --- JSON -----------------------------------------------------------------------------------------

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_INDENT = "  "


def as_json(data: bytes, limits: Limits) -> Found:
    """The value, and the original JSON indented, with its digits and its order of names
    unchanged."""
    try:
        text = data.decode()
        value = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise CannotDecode(f"no UTF-8: byte 0x{data[error.start]:02x} at {error.start}") from None
    except json.JSONDecodeError as error:
        raise CannotDecode(
            f"no JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise CannotDecode(f"nested more than {limits.depth_max} deep") from None
    except CannotDecode:
        raise
    except ValueError as error:
        raise CannotDecode(f"no JSON: {error}") from None
    if _LONE_SURROGATE.search(text):
        # JSON allows a lone surrogate, which cannot be written as UTF-8.
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return Found(value, visible_json(_indented(text, limits)))


def _refuse_constant(name: str) -> Any:
    raise CannotDecode(f"no JSON: {name} is no number there")


def _indented(text: str, limits: Limits) -> str:
    """The given JSON with indentation; unchanged if the indented text would be too long."""
    out: list[str] = []
    depth = size = 0
    previous = ""
    for found in _TOKEN.finditer(text):
        token = found[0]
        closes = token in ("}", "]")
        if closes:
            depth -= 1
        if (closes and previous not in ("{", "[")) or (previous in ("{", "[", ",") and not closes):
            out.append("\n" + _INDENT * depth)
            size += 1 + len(_INDENT) * depth
        out.append(": " if token == ":" else token)
        size += len(token) + 1
        if size > limits.text_characters_max:
            return text
        if token in ("{", "["):
            depth += 1
            if depth > limits.depth_max:
                raise CannotDecode(f"nested more than {limits.depth_max} deep")
        previous = token
    return "".join(out)


def indented_json(value: Any) -> str:
    """The value as indented JSON for people. CannotDecode if JSON cannot represent it."""
    try:
        text = json.dumps(value, indent=len(_INDENT), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CannotDecode(f"the value cannot be shown as JSON: {error}") from None
    return visible_json(text)


def json_float(value: float) -> float | str:
    """A floating-point number; infinity and NaN become text, because JSON has neither."""
    return value if math.isfinite(value) else str(value)


# --- Hex ------------------------------------------------------------------------------------------

_ROW = 16


def hex_dump(data: bytes, limits: Limits) -> str:
    """Rows of offset, 16 bytes and their ASCII; of long data, only the beginning."""
    shown = data[: limits.hex_bytes_max]
    rows = []
    for at in range(0, len(shown), _ROW):
        row = shown[at : at + _ROW]
        digits = f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}"
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {digits}  |{letters}|")
    if len(data) > len(shown):
        rows.append(f"... {len(data) - len(shown)} more bytes")
    return "\n".join(rows)
