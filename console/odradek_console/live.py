"""Server-sent events. All pages that show a feed share one poll of the feed.

A page names its feeds in one request, `GET /api/live?feed=overview&feed=group:orders`, and gets an
event for each of them whenever its value changes. A feed without listeners is not polled.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from odradek_client.errors import OdradekError
from odradek_console.answers import HttpProblem, Json, check_text, failed, refusal_of
from odradek_console.sessions import ConsoleSession
from odradek_protocol.repeated_lines import RepeatedLines

#: The limit of log lines in a minute about feeds that failed.
_FAILURE_LINES_MAX = 10
_failures = RepeatedLines(
    structlog.get_logger("odradek.console"), _FAILURE_LINES_MAX, time.monotonic
)

FEEDS_OF_PAGE_MAX = 16
#: The maximum number of digits in an event's number. No run of the console reaches such a number.
_DIGITS_MAX = 15
_FEEDS_MAX = 128
_LISTENERS_MAX = 64
#: The interval of comments on an idle connection. A failed write shows that the browser is closed.
_KEEP_ALIVE_S = 15.0


@dataclass(frozen=True)
class Feed:
    """A value that is polled: `poll` gets the session and the name after the colon, or "".

    `every_ms` is the time between two polls.
    """

    poll: Callable[[ConsoleSession, str], Awaitable[Json]]
    every_ms: int = 2_000


@dataclass(eq=False)
class _Listener:
    """A page, with the events that it has not received yet. For each feed only the newest event is
    kept, so that a slow page does not take more and more memory."""

    waiting: dict[str, tuple[int, str]] = field(default_factory=dict)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def give(self, name: str, number: int, text: str) -> None:
        self.waiting[name] = (number, text)
        self.woken.set()


@dataclass(eq=False)
class _Polled:
    """A feed with listeners, and its last value."""

    listeners: set[_Listener] = field(default_factory=set)
    task: asyncio.Task[None] | None = None
    number: int = 0
    text: str = ""


class Hub:
    """The feeds of one session. The events of all feeds are numbered together. A page that
    reconnects with the id of its last event gets only newer events. If that id is from another run
    of the console, the page gets the last event of every feed."""

    def __init__(self, session: ConsoleSession, feeds: Mapping[str, Feed]) -> None:
        self._session = session
        self._feeds = feeds
        self._polled: dict[str, _Polled] = {}
        self._run = secrets.token_hex(4)
        self._number = 0
        self.listeners = 0
        self._closed = False

    @property
    def polls(self) -> int:
        """The number of feeds that are polled."""
        return len(self._polled)

    def check(self, names: Sequence[str]) -> None:
        """Refuse feeds that do not exist, and too many feeds."""
        if self._closed:
            raise HttpProblem(401, "Sign in to see this cluster")
        if not names or len(names) > FEEDS_OF_PAGE_MAX:
            raise HttpProblem(400, f"A page listens to 1 to {FEEDS_OF_PAGE_MAX} feeds")
        for name in names:
            check_text("The name of a feed", name)
            if name.partition(":")[0] not in self._feeds:
                raise HttpProblem(404, "There is no such feed", f"{name[:100]!r}")
        new = set(names) - self._polled.keys()
        if self.listeners >= _LISTENERS_MAX or len(self._polled) + len(new) > _FEEDS_MAX:
            raise HttpProblem(
                429, "Too many pages of this console are open", "", "Close some of them."
            )

    async def events(self, names: Sequence[str], last_id: str = "") -> AsyncGenerator[bytes, None]:
        """The events for one page, until the page is closed. `last_id`: the id of the last event
        that the page has received."""
        seen = self._seen(last_id)
        listener = _Listener()
        self.listeners += 1
        try:
            for name in names:
                polled = self._listen(name, listener)
                if polled.text and polled.number > seen:
                    listener.give(name, polled.number, polled.text)
            yield b"retry: 1000\n\n"
            while True:
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_S):
                        await listener.woken.wait()
                except TimeoutError:
                    yield b": nothing new\n\n"
                    continue
                if self._closed:
                    return
                listener.woken.clear()
                waiting, listener.waiting = listener.waiting, {}
                for number, text in sorted(waiting.values()):
                    yield f"id: {self._run}-{number}\ndata: {text}\n\n".encode()
        finally:
            self.listeners -= 1
            for name in names:
                self._leave(name, listener)

    def _seen(self, last_id: str) -> int:
        run, _, number = last_id.partition("-")
        if run != self._run or not number.isdecimal() or len(number) > _DIGITS_MAX:
            return 0
        return int(number)

    def _listen(self, name: str, listener: _Listener) -> _Polled:
        polled = self._polled.get(name)
        if polled is None:
            polled = self._polled[name] = _Polled()
            polled.task = asyncio.create_task(self._poll(name, polled))
        polled.listeners.add(listener)
        return polled

    def _leave(self, name: str, listener: _Listener) -> None:
        polled = self._polled.get(name)
        if polled is None:
            return
        polled.listeners.discard(listener)
        if not polled.listeners:
            del self._polled[name]
            if polled.task is not None:
                polled.task.cancel()

    async def _poll(self, name: str, polled: _Polled) -> None:
        kind, _, about = name.partition(":")
        feed = self._feeds[kind]
        while True:
            text = json.dumps({"feed": name, **await self._value(feed, about)})
            if text != polled.text:
                self._number += 1
                polled.number, polled.text = self._number, text
                for listener in polled.listeners:
                    listener.give(name, polled.number, text)
            await asyncio.sleep(feed.every_ms / 1_000)

    async def _value(self, feed: Feed, about: str) -> Json:
        try:
            return {"data": await feed.poll(self._session, about)}
        except HttpProblem as refusal:
            return refusal.as_json()
        except OdradekError as error:
            return refusal_of(error).as_json()
        except Exception as error:  # noqa: BLE001 - logged, and the feed goes on
            _failures.say("exception", "a feed of live values failed", (repr(error),), {})
            return failed(error).as_json()

    async def close(self) -> None:
        """Stop all polls, and end the events of all pages."""
        self._closed = True
        for polled in self._polled.values():
            for listener in polled.listeners:
                listener.woken.set()
        tasks = [polled.task for polled in self._polled.values() if polled.task is not None]
        self._polled.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
