"""A request for a view: the session of the person who asks, and the parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from odradek.console.answers import Json, Query
from odradek.console.sessions import Session


@dataclass(frozen=True)
class Asked:
    """A request for a view."""

    session: Session
    query: Query


#: A function behind an address below `/api`, which returns a JSON object.
View = Callable[[Asked], Awaitable[Json]]
