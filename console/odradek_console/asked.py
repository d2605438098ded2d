"""A request for a view, with the session of its user and its parameters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass

from odradek_console.answers import Json, PageQuery
from odradek_console.sessions import ConsoleSession

EVENTS = "text/event-stream"


@dataclass(frozen=True)
class Asked:
    """A request for a view. `last_event_id`: the last event that the page got before it
    reconnected.
    """

    session: ConsoleSession
    query: PageQuery
    last_event_id: str = ""


@dataclass(frozen=True)
class Stream:
    """An answer in pieces, whose generator is closed when the browser disconnects.

    A `file_name` makes the browser save the answer as a file.
    """

    media_type: str
    pieces: AsyncGenerator[bytes, None]
    file_name: str | None = None


#: A function that answers the requests for an address below `/api` with a JSON object.
View = Callable[[Asked], Awaitable[Json]]
#: A function that answers the requests for an address below `/api` in pieces: with events, or with
#: a file.
Streamer = Callable[[Asked], Awaitable[Stream]]
