"""Records in the form of pages: lists with the beginnings of keys and values, and a panel with all
details of one record.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Any

from odradek_console.answers import HttpProblem, Json, PageQuery
from odradek_console.partition_log import LogRecord, Marker
from odradek_console.record_rules import MaskedPart, decoders, formats
from odradek_protocol.records.batch import BatchHeader
from odradek_records.decoders import GUESS, decode
from odradek_records.decoders.plain import indented_json
from odradek_records.record_filter import FilteredRecord, json_value

#: The maximum numbers of characters that lists show of a key or value, and of a header.
LIST_CHARACTERS = 4_096
_HEADER_CHARACTERS = 256
_HEADERS_IN_LIST = 16
#: The maximum size of a key or value that lists decode. Of a longer key or value, lists show
#: only the beginning, undecoded.
_LIST_BYTES_MAX = 64 * 1024
_HEX_BYTES = 256
#: The maximum numbers of characters that the panel of one record shows of a key or value: at first,
#: and on request.
PANEL_CHARACTERS = 64 * 1024
PANEL_CHARACTERS_MAX = 1024 * 1024
_HEADERS_IN_PANEL = 500
_ATTEMPTS_MAX = 32

#: The names of the timestamp types 0 and 1, as on the command line.
TIMESTAMP_TYPES = ("create", "logappend")


def json_or_decoded_value(record: FilteredRecord) -> Any:
    """The value of a record for a path of a filter: what masks show of it, JSON, or else what a
    guess decodes. May block."""
    rules = getattr(record, "masked", None)
    if rules is not None:
        return rules.value.value
    value = json_value(record)
    if value is None and record.value is not None:
        topic = getattr(record, "topic", "")
        return decode(record.value, topic=topic, is_key=False, registry=decoders()).value
    return value


@dataclass(frozen=True)
class Formats:
    """The formats that a page requests."""

    key: str = GUESS
    value: str = GUESS

    @classmethod
    def of(cls, query: PageQuery) -> Formats:
        """The formats in the parameters. Refusal for an unknown one."""
        found = cls(query.text("key_format", GUESS), query.text("value_format", GUESS))
        known = formats()
        for name in (found.key, found.value):
            if name not in known:
                raise HttpProblem(400, "There is no such format", f"{name[:100]!r}", _choice(known))
        return found


def _choice(known: tuple[str, ...]) -> str:
    return f"There are {', '.join(known)}."


def row_of(record: LogRecord, chosen: Formats) -> Json:
    """A record in a list. May block, because decoders of other packages may block."""
    return {
        "kind": "record",
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _beginning(record, chosen.key, True),
        "value": _beginning(record, chosen.value, False),
        "headers": [
            [name[:_HEADER_CHARACTERS], field]
            for name, field in _headers(record, _HEADERS_IN_LIST, _HEADER_CHARACTERS)
        ],
        "header_count": len(record.headers),
    }


def marker_row(marker: Marker) -> Json:
    """A control record in a list."""
    return {
        "kind": "marker",
        "partition": marker.partition,
        "offset": marker.offset,
        "timestamp": marker.timestamp,
        "marker": marker.kind,
        "producer_id": marker.producer_id,
        "producer_epoch": marker.producer_epoch,
    }


def _beginning(record: LogRecord, which: str, is_key: bool) -> Json:
    """The beginning of a key or value: `format`, `text`, `bytes`, and `cut` if the text is
    incomplete."""
    if record.masked is not None:
        return _masked(record.masked.key if is_key else record.masked.value, LIST_CHARACTERS)
    data, topic = record.key if is_key else record.value, record.topic
    if data is not None and len(data) > _LIST_BYTES_MAX:
        return _undecoded(data, LIST_CHARACTERS)
    found = decode(data, which=which, topic=topic, is_key=is_key, registry=decoders())
    if data is not None and found.format == "hex":
        # A hex dump would have several lines, and a list shows one line.
        text, is_cut = data[:_HEX_BYTES].hex(" "), len(data) > _HEX_BYTES
        return {"format": "hex", "text": text, "bytes": len(data), "cut": is_cut}
    return _cut(found.format, found.text, data, LIST_CHARACTERS)


def _masked(part: MaskedPart, characters: int) -> Json:
    text = part.value if isinstance(part.value, str) else indented_json(part.value)
    found = _cut(part.format, text, None, characters)
    return {**found, "bytes": part.size_bytes}


def _undecoded(data: bytes, characters: int) -> Json:
    """The beginning of the data as text, or in hexadecimal digits if it is no text."""
    head = data[:characters]
    try:
        # A character may be cut in the middle.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return {
            "format": "hex",
            "text": head[:_HEX_BYTES].hex(" "),
            "bytes": len(data),
            "cut": True,
        }
    return {"format": "text", "text": text, "bytes": len(data), "cut": True}


def _cut(name: str, text: str, data: bytes | None, characters: int) -> Json:
    return {
        "format": name,
        "text": text[:characters],
        "bytes": None if data is None else len(data),
        "cut": len(text) > characters,
    }


def _headers(record: LogRecord, most: int, characters: int) -> list[tuple[str, Json]]:
    found = [(name, _header(value, characters)) for name, value in record.headers[:most]]
    if record.masked is not None:
        for (_, field), size in zip(found, record.masked.header_sizes, strict=False):
            field["bytes"] = size
    return found


def _header(value: bytes | None, characters: int) -> Json:
    if value is None:
        return {"format": "null", "text": "null", "bytes": None, "cut": False}
    head = value[:characters]
    try:
        text, name = codecs.getincrementaldecoder("utf-8")().decode(head), "text"
    except UnicodeDecodeError:
        text, name = head.hex(" "), "hex"
    return {"format": name, "text": text, "bytes": len(value), "cut": len(value) > characters}


def panel_of(record: LogRecord, chosen: Formats, characters: int) -> Json:
    """A single record with all details. May block, because decoders of other packages may block."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TIMESTAMP_TYPES[record.timestamp_type],
        "key": _whole(record, chosen.key, True, characters),
        "value": _whole(record, chosen.value, False, characters),
        "headers": [
            [name[:characters], field]
            for name, field in _headers(record, _HEADERS_IN_PANEL, LIST_CHARACTERS)
        ],
        "header_count": len(record.headers),
        "sequence": record.sequence,
        "batch": batch_of(record.batch),
        "formats": list(formats()),
        "most_characters": PANEL_CHARACTERS_MAX,
    }


def _whole(record: LogRecord, which: str, is_key: bool, characters: int) -> Json:
    if record.masked is not None:
        part = record.masked.key if is_key else record.masked.value
        return {**_masked(part, characters), "attempts": []}
    data, topic, registry = record.key if is_key else record.value, record.topic, decoders()
    found = decode(data, which=which, topic=topic, is_key=is_key, registry=registry)
    attempts = [
        {"format": each.format, "failure": each.failure} for each in found.attempts[:_ATTEMPTS_MAX]
    ]
    if data is not None and len(data) > registry.limits.data_bytes_max:
        return {**_undecoded(data, characters), "attempts": attempts}
    return {**_cut(found.format, found.text, data, characters), "attempts": attempts}


def batch_of(header: BatchHeader) -> Json:
    """The batch of a record."""
    has_producer = header.producer_id >= 0
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size_bytes,
        "compression": header.codec.name.lower(),
        "leader_epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "transactional": header.is_transactional,
        "producer_id": header.producer_id if has_producer else None,
        "producer_epoch": header.producer_epoch if has_producer else None,
        "base_sequence": header.base_sequence if header.base_sequence >= 0 else None,
    }
