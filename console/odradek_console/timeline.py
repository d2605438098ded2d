"""The timeline, which shows the history of subjects as bands and events on one time axis, with
sentences.

A subject is a group, a transactional id, a producer id, a partition, a record of a share group or a
client id. The lanes of a group or a transactional id are followed by the connections of its
clients, so that a rebalance appears next to a lost connection.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, replace
from itertools import islice
from weakref import WeakKeyDictionary

from odradek_client.admin import Admin
from odradek_client.admin.broker import BrokerDescription, Section
from odradek_client.admin.history import HistoryDescription, HistoryEvent, Subject
from odradek_client.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    NothingKnown,
    OdradekError,
    TransactionalIdAuthorizationFailed,
    UnsupportedByBroker,
)
from odradek_console.answers import HttpProblem, Json
from odradek_console.asked import Asked, View
from odradek_console.live import Feed
from odradek_console.sessions import ConsoleSession
from odradek_console.timeline_lanes import Lane, event_tone, lane_key, lanes_of

_KEEP_MS = 700
_EVERY_MS = 1_000
#: The maximum number of clients of a subject whose connections are shown: the clients that were
#: named last.
_CLIENTS_MAX = 12
#: The maximum number of events of one subject that are shown: the newest events. A broker keeps 500
#: events of most subjects.
_EVENTS_MAX = 1_000
#: The maximum number of subjects of each type that are offered for choice.
_OFFERED_MAX = 200
_RECENT_EVENTS = 1_000
#: The maximum time for which the history of the shown subject is kept without new events.
_STATES_S = 5.0
#: The same time for the history of one of the subject's clients.
_CLIENTS_S = 60.0
#: The time for any history if the console cannot request new events.
_UNFOLLOWED_S = 3.0
_HISTORIES_MAX = 200
#: Smaller differences of clocks are ignored.
_SKEW_MS = 500

_TYPES = {
    "group": Subject.GROUP,
    "transaction": Subject.TRANSACTIONAL_ID,
    "producer": Subject.PRODUCER_ID,
    "partition": Subject.PARTITION,
    "record": Subject.SHARE_RECORD,
    "client": Subject.CLIENT,
}
_NAMES = {subject: name for name, subject in _TYPES.items()}
_MISSING_RIGHTS = (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)


@dataclass(frozen=True)
class _Told:
    """A history, or the reason why there is none."""

    descriptions: list[HistoryDescription]
    nothing: str = ""

    @property
    def events(self) -> list[HistoryEvent]:
        every = [event for each in self.descriptions for event in each.events]
        if len(self.descriptions) > 1:
            every.sort(key=lambda event: event.time_ms)
        return every[-_EVENTS_MAX:]


def _subject(text: str) -> tuple[Subject, str]:
    """The type and name of a subject, from a text such as `group:orders`."""
    kind, _, name = text.partition(":")
    if kind not in _TYPES or not name:
        raise HttpProblem(
            400,
            "The subject is wrong",
            f"{text[:100]!r} must be one of {', '.join(_TYPES)}, a colon and a name",
        )
    return _TYPES[kind], name


@dataclass(frozen=True)
class _Key:
    subject: Subject
    name: str


class _Histories:
    """The histories of a session's subjects, which are requested again after new events.

    A broker has to make a sentence of each event for each answer, so a history is kept while it is
    unchanged. To find the changed histories, a small request for new events of all subjects is sent
    first. This request needs DESCRIBE on the cluster. Without this right, and for subjects that the
    answer leaves out, histories are requested at fixed intervals instead.
    """

    def __init__(self) -> None:
        self._told: dict[_Key, tuple[_Told, float]] = {}
        self._changed: set[_Key] = set()
        self._after = -1
        self._started_ms = -1
        self._follows = True

    async def told(self, session: ConsoleSession, key: _Key, keep_s: float) -> _Told:
        """The history of a subject, at most `keep_s` old, and requested again as soon as its events
        have changed."""
        await self._look(session)
        found = self._told.get(key)
        if found is not None and key not in self._changed:
            followed = self._follows and key.subject is not Subject.SHARE_RECORD
            if time.monotonic() - found[1] < (keep_s if followed else _UNFOLLOWED_S):
                return found[0]
        if key in self._changed:
            self._changed.discard(key)
            session.forget(("history", key))
        told = await session.cached(("history", key), _KEEP_MS, lambda admin: _ask(admin, key))
        self._told.pop(key, None)
        self._told[key] = told, time.monotonic()
        while len(self._told) > _HISTORIES_MAX:
            self._told.pop(next(iter(self._told)))
        return told

    async def _look(self, session: ConsoleSession) -> None:
        after = self._after
        try:
            recent = await session.cached(
                ("events", after), _KEEP_MS, lambda admin: _events(admin, after)
            )
        except (UnsupportedByBroker, *_MISSING_RIGHTS):
            self._follows = False
            return
        self._follows = True
        if self._after != after:
            return
        # When a broker starts, its events are numbered from the beginning again. If as many events
        # arrive as were requested, there may be more, and any subject may have changed.
        if recent.started_ms != self._started_ms or len(recent.events) == _RECENT_EVENTS:
            self._told.clear()
        self._started_ms, self._after = recent.started_ms, recent.next_after
        self._changed |= {_Key(event.subject_type, event.subject) for event in recent.events}
        self._changed &= self._told.keys()


async def _events(admin: Admin, after: int) -> BrokerDescription:
    return await admin.describe_broker_status(Section.EVENTS, after=after, limit=_RECENT_EVENTS)


async def _ask(admin: Admin, key: _Key) -> _Told:
    try:
        return _Told(await admin.describe_history(key.subject, key.name))
    except NothingKnown as error:
        return _Told([], str(error))


_HISTORIES: WeakKeyDictionary[ConsoleSession, _Histories] = WeakKeyDictionary()


async def _told(session: ConsoleSession, subject: Subject, name: str, keep_s: float) -> _Told:
    histories = _HISTORIES.setdefault(session, _Histories())
    return await histories.told(session, _Key(subject, name), keep_s)


async def timeline(session: ConsoleSession, about: str) -> Json:
    """The lanes, events and present states of a subject such as `group:orders`."""
    subject, name = _subject(about)
    told = await _told(session, subject, name, _STATES_S)
    lanes = lanes_of(subject, told.events)
    clients = [] if subject is Subject.CLIENT else list(lanes.clients)[-_CLIENTS_MAX:]
    connections, missing = await _connections(session, clients)
    events = _rows(told.events)
    rows = [asdict(lane) for lane in sorted(lanes.lanes.values(), key=_state_first)]
    for client, history in connections.items():
        label = f"{client} connections"
        for lane in lanes_of(Subject.CLIENT, history.events).lanes.values():
            rows.append({**asdict(lane), "key": f"client {client}", "label": label})
        events += _rows(history.events, client)
    if connections:
        events.sort(key=lambda row: int(row["time_ms"]))
    now = told.descriptions[0] if told.descriptions else None
    return {
        "subject": about,
        "type": _NAMES[subject],
        "name": name,
        "nothing": told.nothing,
        "started_ms": None if now is None else now.started_ms,
        "complete_since_ms": max((each.complete_since_ms for each in told.descriptions), default=0),
        "dropped": sum(each.dropped for each in told.descriptions),
        "skew_ms": 0 if now is None else _skew_ms(now.now_ms),
        "lanes": rows,
        "lanes_left_out": lanes.left_out,
        "events": events,
        "states": [state.text for each in told.descriptions for state in each.states],
        "missing": missing,
    }


def _state_first(lane: Lane) -> bool:
    return lane.kind != "state"


def _skew_ms(broker_ms: int) -> int:
    """The difference between the broker's clock and this machine's, rounded to seconds, so that
    small changes do not change the answer."""
    skew = broker_ms - time.time_ns() // 1_000_000
    return 0 if abs(skew) < _SKEW_MS + _KEEP_MS else round(skew / 1_000) * 1_000


def _rows(events: list[HistoryEvent], client: str = "") -> list[Json]:
    """Events as rows with their lanes; the sentences of a client's events begin with its id."""
    return [
        {
            "time_ms": event.time_ms,
            "last_time_ms": event.last_time_ms,
            "times": event.times,
            "name": event.name,
            "tone": event_tone(event),
            "text": f"{client}: {event.text}" if client else event.text,
            "lane": f"client {client}" if client else lane_key(event),
        }
        for event in events
    ]


async def _connections(
    session: ConsoleSession, clients: list[str]
) -> tuple[dict[str, _Told], list[str]]:
    """The histories of clients, and the reasons why some are missing."""

    async def ask(client: str) -> _Told | OdradekError:
        try:
            return await _told(session, Subject.CLIENT, client, _CLIENTS_S)
        except OdradekError as error:
            return error

    found: dict[str, _Told] = {}
    missing: list[str] = []
    for client, told in zip(clients, await asyncio.gather(*map(ask, clients)), strict=True):
        if isinstance(told, _Told):
            if told.descriptions:
                found[client] = told
        elif str(told) not in missing:
            missing.append(f"Connections of clients: {told}")
    return found, list(dict.fromkeys(missing))


async def _show(asked: Asked) -> Json:
    return await timeline(asked.session, asked.query.text("subject"))


# --- Subjects to choose from ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Offered:
    """A subject to choose, with its state if it has one, and with its last event."""

    name: str
    state: str | None = None
    time_ms: int | None = None
    text: str = ""


async def subjects(asked: Asked) -> Json:
    """Subjects to choose from by type: groups, transactional ids, subjects of recent events."""
    found = await asked.session.cached("timeline subjects", 3_000, _subjects)
    return {"subjects": found[0], "missing": found[1]}


async def _subjects(admin: Admin) -> tuple[dict[str, list[Json]], list[str]]:
    found: dict[str, dict[str, _Offered]] = {name: {} for name in _TYPES}
    missing = []
    try:
        recent = await _events(admin, -1)
        for event in reversed(recent.events):
            last = _Offered(event.subject, None, event.event.last_time_ms, event.event.text)
            found[_NAMES[event.subject_type]].setdefault(event.subject, last)
    except UnsupportedByBroker:
        missing.append(
            "The timeline needs one of Odradek's own brokers: others keep no history of groups,"
            " transactions and producers."
        )
    except _MISSING_RIGHTS as error:
        missing.append(f"Subjects of recent events: {error}")
    try:
        listed: dict[str, dict[str, str | None]] = {
            "group": {group.group_id: group.state for group in await admin.list_groups()},
            "transaction": {
                each.transactional_id: each.state for each in await admin.list_transactions()
            },
        }
        for kind, states in listed.items():
            for name, state in states.items():
                found[kind][name] = replace(found[kind].get(name, _Offered(name)), state=state)
    except OdradekError as error:
        missing.append(str(error))
    offered = {
        kind: [asdict(each) for each in islice(some.values(), _OFFERED_MAX)]
        for kind, some in found.items()
    }
    return offered, missing


VIEWS: dict[str, View] = {"/timeline": _show, "/timeline/subjects": subjects}
FEEDS = {"timeline": Feed(timeline, _EVERY_MS)}
