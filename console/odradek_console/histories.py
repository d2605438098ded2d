"""Recent events of a group, a transactional id or a producer id, in sentences."""

from __future__ import annotations

from odradek_client.admin.history import (
    CurrentState,
    HistoryDescription,
    HistoryEvent,
    Subject,
)
from odradek_client.errors import NothingKnown, OdradekError, UnsupportedByBroker
from odradek_console.answers import Json
from odradek_console.sessions import ConsoleSession

_KEEP_MS = 1_500
EVENTS = 50
_NO_HISTORY = "This broker keeps no history of its decisions: only Odradek's own brokers do."


async def history_of(session: ConsoleSession, subject: Subject, name: str) -> Json:
    """The newest events and the states of a subject. `missing`: the reason if there is no
    history."""
    try:
        found = await session.cached(
            ("history", subject, name),
            _KEEP_MS,
            lambda admin: admin.describe_history(subject, name, limit=EVENTS),
        )
    except NothingKnown:
        return _nothing(None)
    except UnsupportedByBroker:
        return _nothing(_NO_HISTORY)
    except OdradekError as error:
        return _nothing(str(error))
    return {
        "missing": None,
        "events": [event_json(event) for event in _events(found)],
        "states": [state_json(state) for each in found for state in each.states],
        "complete_since_ms": max(each.complete_since_ms for each in found),
        "forgotten": any(each.forgotten for each in found),
        "lag": [list(point) for each in found for point in each.lag.items()],
    }


def _nothing(missing: str | None) -> Json:
    return {
        "missing": missing,
        "events": [],
        "states": [],
        "complete_since_ms": None,
        "forgotten": False,
        "lag": [],
    }


def _events(found: list[HistoryDescription]) -> list[HistoryEvent]:
    """The newest `EVENTS` events of all brokers, in the order of their times."""
    every = [event for each in found for event in each.events]
    return sorted(every, key=lambda event: event.time_ms)[-EVENTS:]


def event_json(event: HistoryEvent) -> Json:
    """An event as pages show it."""
    return {
        "time_ms": event.time_ms,
        "last_time_ms": event.last_time_ms,
        "times": event.times,
        "name": event.name,
        "text": event.text,
    }


def state_json(state: CurrentState) -> Json:
    """A state as pages show it, with the details for programs."""
    return {"name": state.name, "text": state.text, "details": state.details}
