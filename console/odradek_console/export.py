"""Records of a topic as a file: JSON Lines that `odradek produce --json` takes, or CSV."""

from __future__ import annotations

import asyncio
import base64
import csv
import io
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime, timedelta

from odradek_client.admin import Admin
from odradek_console.answers import HttpProblem
from odradek_console.asked import Asked, Stream, Streamer
from odradek_console.partition_log import LogRecord
from odradek_console.reading import (
    Choice,
    Reader,
    ScanStep,
    bounds_of,
    choice_of,
    ranges_of,
    scanning,
)
from odradek_console.scan import Scan
from odradek_console.shown import TIMESTAMP_TYPES
from odradek_records.record_format import to_json_line

LIMIT_DEFAULT = 100_000
LIMIT_MAX = 1_000_000
_BYTES_MAX = 2 * 1024 * 1024 * 1024
_EXPORT_S = 600.0
_LINES_AT_A_TIME = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ExportEnded(Exception):
    """The end of an export at a limit. The download fails, so that the file is not taken for
    complete."""


async def export(asked: Asked) -> Stream:
    """The records that a query selects, as a file; each partition begins with its oldest record."""
    query = asked.query
    name = query.text("format", "jsonl")
    if name not in _FORMATS:
        raise HttpProblem(400, "The parameter format is wrong", "jsonl or csv")
    limit = query.whole("limit", LIMIT_DEFAULT, least=1, most=LIMIT_MAX)
    # An export beyond the limit is refused here, because no refusal can be sent once the file has
    # begun.
    with scanning():
        admin = await asked.session.admin()
        choice = await choice_of(admin, query)
        found = await ranges_of(admin, choice, query, await bounds_of(admin, choice))
    media_type, head, line = _FORMATS[name]
    return Stream(
        media_type,
        _lines(admin, choice, Scan.forward(found.ranges), limit, head, line),
        f"{choice.topic}.{name}",
    )


async def _lines(
    admin: Admin,
    choice: Choice,
    scan: Scan,
    limit: int,
    head: bytes,
    line: Callable[[LogRecord], bytes],
) -> AsyncGenerator[bytes, None]:
    reader = Reader(admin, choice.topic, choice.read_committed, scan)
    step = ScanStep()
    left, sent_bytes = limit, 0
    deadline = time.monotonic() + _EXPORT_S
    with scanning():
        if head:
            yield head
        while left and not scan.done:
            for tp, piece in await reader.pieces(step):
                if piece.damage is not None:
                    raise ExportEnded(step.notes[-1])
                found = [record for record in piece.records if choice.matches(record)][:left]
                left -= len(found)
                for at in range(0, len(found), _LINES_AT_A_TIME):
                    some = found[at : at + _LINES_AT_A_TIME]
                    text = await asyncio.to_thread(_joined, line, some)
                    sent_bytes += len(text)
                    yield text
                scan.took(tp.partition, piece.next_offset)
            if sent_bytes > _BYTES_MAX or time.monotonic() > deadline:
                raise ExportEnded(f"{sent_bytes:,} bytes, or {_EXPORT_S:.0f} s")


def _joined(line: Callable[[LogRecord], bytes], records: Sequence[LogRecord]) -> bytes:
    return b"".join(map(line, records))


# --- CSV ------------------------------------------------------------------------------------------

_COLUMNS = (
    "partition",
    "offset",
    "time",
    "timestamp_type",
    "key",
    "key_encoding",
    "value",
    "value_encoding",
    "headers",
)
#: The first characters of texts that a spreadsheet takes for formulas.
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")


def _csv_line(record: LogRecord) -> bytes:
    headers = [[name, _header_text(value)] for name, value in record.headers]
    return _csv_row(
        [
            record.partition,
            record.offset,
            _iso(record.timestamp),
            TIMESTAMP_TYPES[record.timestamp_type],
            *_encoded(record.key),
            *_encoded(record.value),
            _cell(json.dumps(headers, ensure_ascii=False)),
        ]
    )


def _csv_row(cells: list[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode("utf-8", "replace")


def _encoded(data: bytes | None) -> tuple[str, str]:
    if data is None:
        return "", "null"
    try:
        return _cell(data.decode()), "text"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _cell(text: str) -> str:
    """The text, with an apostrophe in front if a spreadsheet would take it for a formula."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _header_text(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _iso(timestamp_ms: int) -> str:
    """The time in UTC; the number itself if it is beyond the range of the calendar."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds") if timestamp_ms >= 0 else ""


#: Name -> media type, first line, and function that makes the line of a record.
_FORMATS: dict[str, tuple[str, bytes, Callable[[LogRecord], bytes]]] = {
    "jsonl": ("application/jsonl", b"", to_json_line),
    "csv": ("text/csv; charset=utf-8", _csv_row(list(_COLUMNS)), _csv_line),
}

STREAMS: dict[str, Streamer] = {"/export": export}
