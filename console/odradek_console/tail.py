"""A live tail, which shows new records of a topic as they arrive, with a separate client for each
page.

The page gets every record as long as it can keep all of them. A longer burst is sampled: the page
gets some of the records, the total number of records, and the number of matching records. A tail
that falls far behind continues at the end, and reports the number of skipped records.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from odradek_client.admin import Admin
from odradek_client.errors import OdradekError, OffsetOutOfRange, UnknownTopicOrPartition
from odradek_client.structs import TopicPartition
from odradek_console.answers import HttpProblem, Json, refusal_of
from odradek_console.asked import EVENTS, Asked, Stream, Streamer
from odradek_console.partition_log import LogRecord, Piece, fetch, pieces_of
from odradek_console.reading import OFFSET_MAX, Choice, choice_of
from odradek_console.scan import CursorError, Scan
from odradek_console.sessions import ConsoleSession
from odradek_console.shown import Formats, row_of
from odradek_records.partition_fetch import FetchLimits

T = TypeVar("T")

_TAILS_MAX = 32
#: The minimum time between two events.
_TICK_S = 0.25
#: The maximum number of records in one event, as many as a page keeps. What an event leaves of it
#: is added to the number of the next event, ROWS_OF_TICK.
ROWS_MAX = 1_000
ROWS_OF_TICK = 100
_WAIT_MS = 500
_FETCH_BYTES = 2 * 1024 * 1024
_PARTITION_BYTES = 256 * 1024
#: The maximum number of offsets between a tail's positions and the ends of the logs. A tail that is
#: further behind continues at the ends.
_BEHIND_MAX = 200_000
_KEEP_ALIVE_S = 15.0
_RETRY_S = (0.2, 0.5, 1.0, 2.0, 5.0)
#: Timeouts are short, so that a page is soon informed of an unreachable broker; the tail retries.
_PATIENCE_MS = 2_000

_running = 0
_closing: set[asyncio.Task[None]] = set()


def running() -> int:
    """The number of tails of this process."""
    return _running


def sample(items: Sequence[T], most: int) -> list[T]:
    """At most `most` of the items, evenly spread; the last item is always included."""
    if len(items) <= most:
        return list(items)
    return [items[(number + 1) * len(items) // most - 1] for number in range(most)]


@dataclass
class _Tick:
    """The records since the last event, at most `most` of them, and their counts."""

    most: int
    received: int = 0
    matched: int = 0
    skipped: int = 0
    records: list[LogRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, piece: Piece, choice: Choice) -> None:
        """Add the records of a piece."""
        matched = [record for record in piece.records if choice.matches(record)]
        self.received += len(piece.records)
        self.matched += len(matched)
        self.records += sample(matched, self.most)
        self.records = sample(self.records, self.most)


class _Tail:
    def __init__(self, session: ConsoleSession, choice: Choice, formats: Formats) -> None:
        self._session = session
        self._choice = choice
        self._formats = formats
        self._admin = Admin(
            **{
                **session.settings["admin"],
                "default_api_timeout_ms": _PATIENCE_MS,
                "request_timeout_ms": _PATIENCE_MS + _WAIT_MS,
            }
        )
        self._positions: dict[TopicPartition, int] = {}
        self._limits = FetchLimits(_FETCH_BYTES, _PARTITION_BYTES, _WAIT_MS)

    async def events(self, last_id: str) -> AsyncGenerator[bytes, None]:
        """The events, until the page is closed or the topic is deleted."""
        global _running
        _running += 1
        try:
            yield b"retry: 2000\n\n"
            try:
                async for event in self._live(last_id):
                    yield event
            except HttpProblem as refusal:
                yield _event(refusal.as_json())
            except OdradekError as error:
                yield _event(refusal_of(error).as_json())
        finally:
            _running -= 1
            # The browser has closed the stream, so this task is cancelled and cannot wait.
            task = asyncio.create_task(self._admin.close())
            _closing.add(task)
            task.add_done_callback(_closing.discard)

    async def _live(self, last_id: str) -> AsyncGenerator[bytes, None]:
        await self._admin.start()
        await self._begin(last_id)
        yield _event({"state": "live", "partitions": len(self._positions)})
        tick, failures, lost = _Tick(ROWS_MAX), 0, False
        sent_s = time.monotonic()
        while not self._session.closed:
            try:
                await self._read(tick)
            except OdradekError as error:
                if not error.retriable or isinstance(error, UnknownTopicOrPartition):
                    raise
                if not lost:
                    yield _event({"state": "lost", "why": str(error)})
                lost = True
                await asyncio.sleep(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                failures += 1
                continue
            now_s = time.monotonic()
            if lost:
                yield _event({"state": "live", "partitions": len(self._positions)})
                lost, failures = False, 0
            if tick.received or tick.skipped or tick.notes:
                if now_s - sent_s >= _TICK_S:
                    yield await self._told(tick)
                    left = tick.most - len(tick.records)
                    tick, sent_s = _Tick(min(left + ROWS_OF_TICK, ROWS_MAX)), now_s
            elif now_s - sent_s > _KEEP_ALIVE_S:
                yield b": nothing new\n\n"
                sent_s = now_s
        raise HttpProblem(401, "The session has ended", "", "Sign in again.")

    async def _begin(self, last_id: str) -> None:
        """Set the positions to those in the last event that the page has, or to the ends if it has
        none."""
        try:
            known = {part: span.at for part, span in Scan.resume(last_id).spans.items()}
        except CursorError:
            known = {}
        wanted = [TopicPartition(self._choice.topic, part) for part in self._choice.partitions]
        ends = await self._admin.list_offsets(dict.fromkeys(wanted, "latest"))
        for tp, end in ends.items():
            at = 0 if end is None else end.offset
            self._positions[tp] = min(known.get(tp.partition, at), at)
        nodes = {part.leader for part in await self._partitions()}
        # Leaders get requests one after another, so each request gets its share of the waiting
        # time.
        self._limits = FetchLimits(
            _FETCH_BYTES, _PARTITION_BYTES, max(_WAIT_MS // max(len(nodes), 1), 20)
        )

    async def _partitions(self) -> list[Any]:
        found = await self._admin.describe_topics([self._choice.topic])
        return list(found[self._choice.topic].partitions)

    async def _read(self, tick: _Tick) -> None:
        """Fetch once; the brokers wait a short time if there are no new records."""
        committed = self._choice.read_committed
        wanted = {tp: (at, OFFSET_MAX) for tp, at in self._positions.items()}
        fetched = await fetch(self._admin, self._positions, self._limits, read_committed=committed)
        await self._follow({tp: data.high_watermark for tp, data in fetched.items()}, tick)
        pieces = await asyncio.to_thread(
            lambda: list(pieces_of(fetched, wanted, read_committed=committed))
        )
        for tp, piece in pieces:
            if piece.first != self._positions[tp]:
                continue
            if piece.damage is not None:
                tick.notes.append(f"Partition {tp.partition}: {piece.damage}")
                await self._go_to_end(tp)
                continue
            await asyncio.to_thread(tick.add, piece, self._choice)
            # A partition that was read becomes the last in the order, so the next fetch begins with
            # the other partitions.
            del self._positions[tp]
            self._positions[tp] = piece.next_offset
        for tp, error in fetched.errors.items():
            if not isinstance(error, OffsetOutOfRange):
                raise error
            tick.notes.append(
                f"The log of partition {tp.partition} was cut; the tail continues at its end."
            )
            await self._go_to_end(tp)

    async def _follow(self, ends: dict[TopicPartition, int], tick: _Tick) -> None:
        """Skip to the ends of the partitions if the tail is too far behind them."""
        behind = sum(max(end - self._positions[tp], 0) for tp, end in ends.items())
        if behind > _BEHIND_MAX:
            tick.skipped += behind
            self._positions |= {tp: max(end, 0) for tp, end in ends.items()}

    async def _go_to_end(self, tp: TopicPartition) -> None:
        end = (await self._admin.list_offsets({tp: "latest"}))[tp]
        self._positions[tp] = 0 if end is None else end.offset

    async def _told(self, tick: _Tick) -> bytes:
        rows = await asyncio.to_thread(
            lambda: [
                row_of(record, self._formats)
                for record in sorted(
                    tick.records, key=lambda each: (each.timestamp, each.partition, each.offset)
                )
            ]
        )
        spans = {tp.partition: (at, OFFSET_MAX) for tp, at in self._positions.items()}
        return _event(
            {
                "rows": rows,
                "received": tick.received,
                "matched": tick.matched,
                "skipped": tick.skipped,
                "notes": tick.notes[:10],
            },
            Scan.forward(spans).cursor(),
        )


def _event(data: Json, event_id: str = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


async def tail(asked: Asked) -> Stream:
    """New records of a topic, as events."""
    try:
        if _running >= _TAILS_MAX:
            raise HttpProblem(
                429, "Too many tails of this console are open", "", "Close some of them."
            )
        formats = Formats.of(asked.query)
        choice = await choice_of(await asked.session.admin(), asked.query)
        made = _Tail(asked.session, choice, formats)
        return Stream(EVENTS, made.events(asked.last_event_id))
    except HttpProblem as refusal:
        return Stream(EVENTS, _refused(refusal))
    except OdradekError as error:
        return Stream(EVENTS, _refused(refusal_of(error)))


async def _refused(refusal: HttpProblem) -> AsyncGenerator[bytes, None]:
    """The refusal as an event, because a page cannot read an error response to an event stream."""
    yield _event(refusal.as_json())


STREAMS: dict[str, Streamer] = {"/tail": tail}
