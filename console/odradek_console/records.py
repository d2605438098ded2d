"""Records of a topic: a scan in bounded steps, one record with its batch, and whole values."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

from odradek_client.admin import Admin
from odradek_client.errors import OffsetOutOfRange
from odradek_client.structs import TopicPartition
from odradek_console.answers import HttpProblem, Json, PageQuery
from odradek_console.asked import Asked, Stream, Streamer, View
from odradek_console.partition_log import LogRecord, Marker, Piece, fetch, read_piece
from odradek_console.reading import (
    COUNT_DEFAULT,
    COUNT_MAX,
    OFFSET_MAX,
    Choice,
    Ranges,
    bounds_of,
    choice_of,
    ranges_of,
    scanning,
    take_step,
)
from odradek_console.record_rules import formats
from odradek_console.scan import CursorError, Scan, last_records
from odradek_console.shown import (
    PANEL_CHARACTERS,
    PANEL_CHARACTERS_MAX,
    Formats,
    marker_row,
    panel_of,
)
from odradek_protocol.schemas.fetch import PartitionData
from odradek_records.partition_fetch import FetchLimits

_ONE_BATCH = FetchLimits(max_bytes=1, partition_bytes=1)
_VALUE_PIECE_BYTES = 256 * 1024


async def records(asked: Asked) -> Json:
    """A step of a scan: rows, the offsets that were read, and the cursors to continue with."""
    query = asked.query
    count = query.whole("count", COUNT_DEFAULT, least=1, most=COUNT_MAX)
    rows_max = query.whole("rows", count, least=1, most=COUNT_MAX)
    chosen = Formats.of(query)
    with scanning():
        admin = await asked.session.admin()
        choice = await choice_of(admin, query)
        began = time.monotonic()
        scan, about = await _scan_of(admin, choice, query, count)
        total = scan.left
        step = await take_step(admin, choice, chosen, scan, rows_max)
    return {
        **about,
        "rows": step.rows,
        "read": [
            {"partition": part, "from": first, "to": end}
            for part, ranges in sorted(step.read.items())
            for first, end in ranges
        ],
        "records": step.records,
        "hits": step.hits,
        "hidden": step.hidden,
        "markers": step.markers,
        "missing": step.missing,
        "size_bytes": step.size_bytes,
        "seconds": round(time.monotonic() - began, 3),
        "offsets": total,
        "left": scan.left,
        "cursor": None if scan.done else scan.cursor(),
        "notes": step.notes,
        "partitions": len(choice.partitions),
        "all_partitions": choice.partition_count,
        "formats": list(formats()),
    }


async def _scan_of(admin: Admin, choice: Choice, query: PageQuery, count: int) -> tuple[Scan, Json]:
    """The scan, and fields that only its first answer has. `before`: the cursor of a scan of the
    records before the requested ones. `held`: the offsets that open transactions hold back."""
    window = -(-count // max(len(choice.partitions), 1))
    text = query.text("cursor", "")
    try:
        if text and not query.flag("before"):
            return Scan.resume(text), {}
        bounds = await bounds_of(admin, choice)
        if text:
            # The records before the requested ones are read by a new scan.
            earlier = Scan.resume(text).spans
            ranges = {part: (span.at, span.high) for part, span in earlier.items()}
            last = last_records(ranges, count)
            found = Ranges(last, {part: (ranges[part][0], last[part][0]) for part in last})
        else:
            found = await ranges_of(admin, choice, query, bounds)
    except CursorError as error:
        raise HttpProblem(
            400, "The parameter cursor is wrong", str(error), "Begin the search again."
        ) from None
    scan = (
        Scan.backward(found.ranges, window) if choice.newest_first else Scan.forward(found.ranges)
    )
    before = {part: span for part, span in found.before.items() if span[0] < span[1]}
    about = {"before": Scan.forward(before).cursor() if before else None, "held": bounds.held()}
    return scan, about


# --- One record -----------------------------------------------------------------------------------


async def record(asked: Asked) -> Json:
    """A single record: key, value and headers, timestamps, producer, batch, transaction."""
    query = asked.query
    chosen = Formats.of(query)
    characters = query.whole("characters", PANEL_CHARACTERS, least=1, most=PANEL_CHARACTERS_MAX)
    with scanning():
        found, fate = await _find(await asked.session.admin(), query)
        if isinstance(found, Marker):
            return marker_row(found)
        panel = await asyncio.to_thread(panel_of, found, chosen, characters)
    return {"kind": "record", **panel, "transaction": fate}


async def _find(admin: Admin, query: PageQuery) -> tuple[LogRecord | Marker, str | None]:
    """The record or marker at the offset in the parameters, and the state of its transaction:
    "committed", "aborted", "open", or None if it is not transactional. Refusal if there is no
    record."""
    tp = TopicPartition(query.text("topic"), query.whole("partition", least=0, most=(1 << 31) - 1))
    offset = query.whole("offset", least=0, most=OFFSET_MAX)
    data = await _batch_at(admin, tp, offset, read_committed=True)
    is_open = not data.records
    if is_open:
        data = await _batch_at(admin, tp, offset, read_committed=False)
    piece = await _piece(tp, offset, data, read_committed=False)
    if piece.damage is not None:
        raise HttpProblem(422, "The batch with this offset cannot be read", piece.damage)
    if piece.markers:
        return piece.markers[0], None
    if not piece.records:
        raise await _nothing_at(admin, tp, offset)
    found = piece.records[0]
    if not found.batch.is_transactional:
        return found, None
    hidden = (await _piece(tp, offset, data, read_committed=True)).hidden
    return found, "open" if is_open else "aborted" if hidden else "committed"


async def _piece(
    tp: TopicPartition, offset: int, data: PartitionData, *, read_committed: bool
) -> Piece:
    return await asyncio.to_thread(
        read_piece, tp, offset, offset + 1, data, read_committed=read_committed
    )


async def _batch_at(
    admin: Admin, tp: TopicPartition, offset: int, *, read_committed: bool
) -> PartitionData:
    fetched = await fetch(admin, {tp: offset}, _ONE_BATCH, read_committed=read_committed)
    for error in fetched.errors.values():
        if isinstance(error, OffsetOutOfRange):
            raise await _nothing_at(admin, tp, offset)
        raise error
    return fetched[tp]


async def _nothing_at(admin: Admin, tp: TopicPartition, offset: int) -> HttpProblem:
    """The reason why there is no record at an offset."""
    first = (await admin.list_offsets({tp: "earliest"}))[tp]
    end = (await admin.list_offsets({tp: "latest"}))[tp]
    start_at, end_at = 0 if first is None else first.offset, 0 if end is None else end.offset
    if offset < start_at:
        detail = f"records before offset {start_at:,} were deleted"
    elif offset >= end_at:
        detail = f"the partition ends before offset {end_at:,}"
    else:
        detail = "compaction has removed the record, or no record ever had the offset"
    return HttpProblem(
        404, f"There is no record at offset {offset:,} of partition {tp.partition}", detail
    )


async def value(asked: Asked) -> Stream:
    """The bytes of a key, a value or a header, as a file that the browser downloads."""
    query = asked.query
    part = query.text("part", "value")
    found, _ = await _find(await asked.session.admin(), query)
    data: bytes | None = None
    if isinstance(found, LogRecord):
        if part == "key":
            data = found.key
        elif part == "value":
            data = found.value
        elif part == "header":
            number = query.whole("header", least=0, most=(1 << 31) - 1)
            data = found.headers[number][1] if number < len(found.headers) else None
    if data is None:
        raise HttpProblem(404, f"The record has no {part[:20]!r}, or it is null")
    name = f"{query.text('topic')}-{found.partition}-{found.offset}.{part}.bin"
    return Stream("application/octet-stream", _pieces(data), name)


async def _pieces(data: bytes) -> AsyncGenerator[bytes, None]:
    for at in range(0, len(data), _VALUE_PIECE_BYTES):
        yield data[at : at + _VALUE_PIECE_BYTES]


VIEWS: dict[str, View] = {"/records": records, "/record": record}
STREAMS: dict[str, Streamer] = {"/value": value}
