"""Formats of records on a terminal and in a pipe: kcat's format tokens, and JSON Lines.

Tokens: %s value, %S its length, %R its length as four bytes, %k key, %K its length, %T timestamp,
%h headers, %t topic, %p partition, %o offset, %% a percent sign; \\n \\r \\t \\\\ \\0 \\xHH.
Lengths of null are -1.

A JSON line has topic, partition, offset, tstype, ts, headers (name, value, name, value...), key and
payload. Bytes that are not UTF-8 are given as `key_base64`, `payload_base64`, or in the headers as
{"base64": ...}, so that every record can be printed and read again without a change.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from odradek_protocol.visible import json_line

Headers = Sequence[tuple[str, bytes | None]]

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}
_TIMESTAMP_TYPES = ("create", "logappend")


class FormatError(ValueError):
    """The error of an invalid format or JSON line, with the position of the fault."""


class PrintedRecord(Protocol):
    """The attributes of a record that formats print, such as a ConsumerRecord."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any

    @property
    def headers(self) -> Headers: ...


Printer = Callable[[PrintedRecord], bytes]


def _length(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def _headers(headers: Headers) -> bytes:
    """Headers as kcat prints them: name=value, separated by commas; NULL for null."""
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers
    )


def _tokens(null_text: bytes) -> dict[str, Printer]:
    def text(value: bytes | None) -> bytes:
        return null_text if value is None else value

    return {
        "s": lambda record: text(record.value),
        "S": lambda record: b"%d" % _length(record.value),
        "R": lambda record: _length(record.value).to_bytes(4, "big", signed=True),
        "k": lambda record: text(record.key),
        "K": lambda record: b"%d" % _length(record.key),
        "T": lambda record: b"%d" % record.timestamp,
        "h": lambda record: _headers(record.headers),
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
    }


def unescape(text: str) -> bytes:
    """A delimiter or literal as typed: \\n, \\t, \\x1f... become the byte. Raises FormatError."""
    out = bytearray()
    position = 0
    while position < len(text):
        letter = text[position]
        if letter != "\\":
            out += letter.encode()
            position += 1
            continue
        escape = text[position + 1 : position + 2]
        if escape == "x":
            digits = text[position + 2 : position + 4]
            try:
                out += bytes.fromhex(digits)
            except ValueError:
                digits = ""
            if len(digits) != 2:
                raise FormatError(f"\\x needs two hexadecimal digits in {text!r}")
            position += 4
        elif escape in _ESCAPES:
            out += _ESCAPES[escape]
            position += 2
        else:
            raise FormatError(f"unknown escape \\{escape} in {text!r}")
    return bytes(out)


def compile_format(text: str, null_text: bytes = b"") -> Printer:
    """A function that prints one record. FormatError names an unknown token."""
    tokens = _tokens(null_text)
    parts: list[bytes | Printer] = []
    literal = ""
    position = 0
    while position < len(text):
        letter = text[position]
        if letter == "\\":
            literal += text[position : position + 2]
            position += 2
            continue
        if letter != "%":
            literal += letter
            position += 1
            continue
        token = text[position + 1 : position + 2]
        position += 2
        if token == "%":
            literal += "%"
        elif token in tokens:
            parts.append(unescape(literal))
            parts.append(tokens[token])
            literal = ""
        else:
            raise FormatError(
                f"unknown token %{token} in the format; there are "
                + " ".join(f"%{name}" for name in tokens)
                + " %%"
            )
    parts.append(unescape(literal))

    def render(record: PrintedRecord) -> bytes:
        return b"".join([part if isinstance(part, bytes) else part(record) for part in parts])

    return render


# --- JSON Lines -----------------------------------------------------------------------------------


def _json_value(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _json_header(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def to_json_line(record: PrintedRecord, *, decoded: dict[str, Any] | None = None) -> bytes:
    """A record as a line of JSON, with its line end. `decoded`: key and value in other forms."""
    headers: list[Any] = []
    for name, value in record.headers:
        headers += [name, _json_header(value)]
    line: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "tstype": _TIMESTAMP_TYPES[record.timestamp_type],
        "ts": record.timestamp,
        "headers": headers,
        **_json_value("key", record.key),
        **_json_value("payload", record.value),
        **({} if decoded is None else {"decoded": decoded}),
    }
    return json_line(line).encode() + b"\n"


@dataclass(slots=True)
class InputRecord:
    """A record to produce. `timestamp_ms` and `partition` None: the producer decides."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_ms: int | None = None
    partition: int | None = None


def _from_base64(name: str, text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError) as error:
        raise FormatError(f"{name} is no base64") from error


def _take(line: dict[str, Any], name: str) -> bytes | None:
    coded = line.get(f"{name}_base64")
    if coded is not None:
        return _from_base64(f"{name}_base64", coded)
    value = line.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise FormatError(f"{name} must be a string or null; quote JSON inside it")
    return value.encode()


def _take_headers(value: object) -> list[tuple[str, bytes | None]]:
    if not isinstance(value, list) or len(value) % 2:
        raise FormatError("headers must be a list: name, value, name, value...")
    headers: list[tuple[str, bytes | None]] = []
    for name, item in zip(value[::2], value[1::2], strict=True):
        if not isinstance(name, str):
            raise FormatError("the name of a header must be a string")
        if isinstance(item, dict):
            headers.append((name, _from_base64("a header", item.get("base64"))))
        elif item is None or isinstance(item, str):
            headers.append((name, None if item is None else item.encode()))
        else:
            raise FormatError('the value of a header must be a string, null or {"base64": ...}')
    return headers


def from_json_line(text: bytes) -> InputRecord:
    """The record in a line as `to_json_line` writes it; fields may be missing. Raises
    FormatError."""
    try:
        line = json.loads(text)
    except ValueError as error:
        raise FormatError(f"no JSON: {error}") from error
    if not isinstance(line, dict):
        raise FormatError("a JSON object is wanted")
    known = {"topic", "partition", "offset", "tstype", "ts", "headers", "key", "payload"}
    unknown = line.keys() - known - {"key_base64", "payload_base64", "broker", "decoded"}
    if unknown:
        raise FormatError(f"unknown field {', '.join(sorted(unknown))}")
    numbers = {}
    for name in ("ts", "partition"):
        value = line.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise FormatError(f"{name} must be a whole number")
        numbers[name] = value
    return InputRecord(
        value=_take(line, "payload"),
        key=_take(line, "key"),
        headers=_take_headers(line.get("headers") or []),
        timestamp_ms=numbers["ts"],
        partition=numbers["partition"],
    )
