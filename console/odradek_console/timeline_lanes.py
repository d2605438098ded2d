"""The lanes of a timeline, which show the states of a subject as bands over time.

A lane is a row with bands that do not overlap: the state of a group, the part of one member in the
group, or the open connections of a client. Lanes are computed from the names and fields of the
events of `Admin.describe_history`; events with unknown names have only their sentence.

    group        |--- Empty ---|- PreparingRebalance -|-------- Stable ----------
    consumer-1         |--------- asked to join ------|------ generation 1 ------
    consumer-2              |---- asked to join ------|------ generation 1 ------
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from odradek_client.admin.history import HistoryEvent, Subject

#: The maximum numbers of lanes of one subject, and of bands in a lane. The newest bands are kept.
LANES_MAX = 100
BANDS_MAX = 500

#: Tones: "good", "busy", "warning", "error" and "none".
_STATE_TONES = {
    "Stable": "good",
    "CompleteCommit": "good",
    "Ongoing": "busy",
    "PrepareCommit": "busy",
    "PrepareAbort": "warning",
    "PrepareEpochFence": "warning",
    "CompleteAbort": "warning",
    "PreparingRebalance": "warning",
    "CompletingRebalance": "busy",
    "Assigning": "busy",
    "Reconciling": "busy",
    "NotReady": "warning",
    "Dead": "error",
    "(unknown)": "none",
    "forgotten": "none",
}
_EVENT_TONES = {
    "transaction_timeout": "warning",
    "transaction_refused": "error",
    "transaction_not_recorded": "error",
    "transaction_expired": "warning",
    "markers_again": "warning",
    "markers_stopped": "error",
    "producer_refused": "error",
    "duplicate_batch": "warning",
    "batch_refused": "error",
    "marker_refused": "error",
    "producer_expired": "warning",
    "member_removed": "error",
    "member_replaced": "warning",
    "group_refused": "error",
    "rebalance_began": "warning",
    "share_record_given_up": "error",
    "share_record_rejected": "error",
    "share_record_refused": "error",
    "share_record_not_recorded": "error",
    "share_record_back": "warning",
    "share_record_forgotten": "warning",
    "cleaning_failed": "error",
    "cleaning_stopped": "error",
}
_EPOCHS = frozenset({"first_batch", "batch_of_new_epoch", "marker_of_new_epoch"})
_OF_PARTITIONS = _EPOCHS | {
    "duplicate_batch",
    "batch_refused",
    "marker_refused",
    "producer_expired",
}
_CLIENT = re.compile(r"client (.*) at (\S+)", re.DOTALL)
_NO_CLIENT_ID = "(no id)"
_CLOSED_BY_CLIENT = "the client closed it"


@dataclass
class Band:
    """A state from `start_ms` to `end_ms`; None while the state lasts. `text`: the details."""

    start_ms: int
    end_ms: int | None
    state: str
    tone: str = "none"
    text: str = ""


@dataclass
class Lane:
    """A row of the timeline. `key` is unique in its subject."""

    key: str
    label: str
    kind: str
    bands: list[Band] = field(default_factory=list)

    def enter(self, at_ms: int, state: str, tone: str = "none", text: str = "") -> None:
        """End the present band and begin another one, unless the state is the same."""
        last = self.bands[-1] if self.bands else None
        if last is not None and last.end_ms is None:
            if (last.state, last.tone) == (state, tone):
                return
            last.end_ms = max(at_ms, last.start_ms)
        self.bands.append(Band(at_ms, None, state, tone, text))
        if len(self.bands) > BANDS_MAX:
            del self.bands[0]

    def leave(self, at_ms: int) -> None:
        """End the present band."""
        if self.bands and self.bands[-1].end_ms is None:
            self.bands[-1].end_ms = max(at_ms, self.bands[-1].start_ms)

    @property
    def lasts(self) -> bool:
        """True if the last band has no end."""
        return bool(self.bands) and self.bands[-1].end_ms is None


@dataclass
class Lanes:
    """The lanes of a subject in the order of their first events, and the clients that its events
    name."""

    lanes: dict[str, Lane] = field(default_factory=dict)
    clients: dict[str, None] = field(default_factory=dict)
    _beyond: set[str] = field(default_factory=set)

    @property
    def left_out(self) -> int:
        """The number of lanes beyond the limit."""
        return len(self._beyond)

    def lane(self, key: str, label: str, kind: str) -> Lane:
        """The lane with this key. Once there are `LANES_MAX` lanes, a new one is not shown."""
        found = self.lanes.get(key)
        if found is None:
            found = Lane(key, label, kind)
            if len(self.lanes) >= LANES_MAX:
                self._beyond.add(key)
            else:
                self.lanes[key] = found
        return found


def event_tone(event: HistoryEvent) -> str:
    """The tone of an event."""
    if event.name == "client_disconnected":
        return "none" if event.details.get("reason") == _CLOSED_BY_CLIENT else "warning"
    return _EVENT_TONES.get(event.name, "none")


def lane_key(event: HistoryEvent) -> str:
    """The key of the lane on which an event is drawn; None if it is drawn on no lane."""
    if event.name.startswith("client_"):
        return "connections"
    member = event.details.get("member")
    if member and not event.name.startswith("share_record"):
        return f"member {member}"
    if event.name in _OF_PARTITIONS:
        return event.details.get("partitions", "")
    return "state"


def client_id_of(client: str) -> str | None:
    """The client id in a text such as `client consumer-1 at 127.0.0.1`; None if it has none."""
    match = _CLIENT.fullmatch(client)
    return None if match is None or match[1] == _NO_CLIENT_ID else match[1]


def lanes_of(subject: Subject, events: Sequence[HistoryEvent]) -> Lanes:
    """The lanes of a subject, computed from its events. The oldest event must come first."""
    lanes = Lanes()
    draw = _DRAWN[subject]
    for event in events:
        client = client_id_of(event.details.get("client", ""))
        if client is not None:
            lanes.clients[client] = None
        draw(lanes, event)
    return lanes


# --- States ---------------------------------------------------------------------------------------


def _state(lanes: Lanes, event: HistoryEvent, label: str) -> None:
    """Extend the lane of the subject by the state that an event names."""
    before, after = event.details.get("before"), event.details.get("after")
    after = after or event.details.get("state")
    if after is None:
        return
    lane = lanes.lane("state", label, "state")
    if before is not None and not lane.bands and before != after:
        lane.enter(event.time_ms, before, _STATE_TONES.get(before, "none"))
    lane.enter(event.last_time_ms, after, _STATE_TONES.get(after, "none"), event.text)


def _transaction(lanes: Lanes, event: HistoryEvent) -> None:
    if event.name == "transaction_expired":
        lanes.lane("state", "transaction", "state").leave(event.time_ms)
    else:
        _state(lanes, event, "transaction")


# --- Groups ---------------------------------------------------------------------------------------

_JOINED = frozenset({"member_joined", "consumer_joined"})
_GONE = frozenset({"member_left", "member_removed"})
_MOVED_TONES = {"with all that it is to have": "good"}


def _group(lanes: Lanes, event: HistoryEvent) -> None:
    _state(lanes, event, "group")
    details, at_ms = event.details, event.time_ms
    name, member = event.name, event.details.get("member", "")
    if name in _JOINED:
        _member(lanes, event, member).enter(at_ms, "joins", "busy", event.text)
    elif name == "member_rejoined":
        _member(lanes, event, member).enter(at_ms, "waits for the others", "busy", event.text)
    elif name == "member_replaced":
        _member(lanes, event, details.get("fenced_member", "")).leave(at_ms)
        _member(lanes, event, member).enter(at_ms, "joins", "busy", event.text)
    elif name in _GONE:
        _member(lanes, event, member).leave(at_ms)
    elif name == "consumer_moved":
        note = details.get("note", "")
        state = f"epoch {details.get('epoch', '?')}, {note}"
        _member(lanes, event, member).enter(
            at_ms, state, _MOVED_TONES.get(note, "busy"), event.text
        )
    elif name == "rebalance_began":
        for lane in _present(lanes):
            if lane.bands[-1].state not in ("joins", "waits for the others"):
                lane.enter(at_ms, "to join again", "warning", event.text)
    elif name == "group_stable":
        for lane in _present(lanes):
            lane.enter(at_ms, f"generation {details.get('generation', '?')}", "good", event.text)
    elif name in ("group_emptied", "group_gone"):
        for lane in _present(lanes):
            lane.leave(at_ms)
        if name == "group_gone":
            lanes.lane("state", "group", "state").leave(at_ms)
    elif name == "group_restored":
        for restored in filter(None, details.get("members", "").split(", ")):
            _member(lanes, event, restored).enter(at_ms, "found at the start", "none", event.text)


def _member(lanes: Lanes, event: HistoryEvent, member: str) -> Lane:
    lane = lanes.lane(f"member {member}", member, "member")
    client = client_id_of(event.details.get("client", ""))
    if client is not None and lane.label == member and not member.startswith(client):
        lane.label = f"{client} {member}"
    return lane


def _present(lanes: Lanes) -> Iterable[Lane]:
    return (lane for lane in lanes.lanes.values() if lane.kind == "member" and lane.lasts)


# --- Producers, records, partitions, clients ------------------------------------------------------


def _producer(lanes: Lanes, event: HistoryEvent) -> None:
    partition = event.details.get("partitions", "")
    if event.name in _EPOCHS:
        epoch = f"epoch {event.details.get('epoch', '?')}"
        lanes.lane(partition, partition, "partition").enter(
            event.time_ms, epoch, "good", event.text
        )
    elif event.name == "producer_expired":
        lanes.lane(partition, partition, "partition").leave(event.time_ms)


_RECORD_STATES = {
    "share_record_acquired": ("acquired", "busy"),
    "share_record_renewed": ("acquired", "busy"),
    "share_record_back": ("available", "warning"),
    "share_record_forgotten": ("available", "warning"),
    "share_record_accepted": ("accepted", "good"),
    "share_record_rejected": ("archived", "error"),
    "share_record_given_up": ("archived", "error"),
    "share_record_removed": ("archived", "none"),
    "share_record_log_start": ("archived", "none"),
    "share_record_gap": ("a gap", "none"),
}


def _share_record(lanes: Lanes, event: HistoryEvent) -> None:
    found = _RECORD_STATES.get(event.name)
    if found is None:
        return
    state, tone = found
    member = event.details.get("member")
    if state == "acquired" and member:
        state = f"acquired by {member}"
    lanes.lane("state", "record", "state").enter(event.last_time_ms, state, tone, event.text)


def _partition(lanes: Lanes, event: HistoryEvent) -> None:
    if event.name == "cleaning_stopped":
        lanes.lane("state", "compaction", "state").enter(
            event.time_ms, "not compacted", "error", event.text
        )
    elif event.name == "log_cleaned":
        lanes.lane("state", "compaction", "state").enter(
            event.time_ms, f"clean up to {event.details.get('offset', '?')}", "good", event.text
        )


def _client(lanes: Lanes, event: HistoryEvent) -> None:
    """A lane with the number of open connections."""
    lane = lanes.lane("connections", "connections", "connections")
    before = int(lane.bands[-1].state.split()[0]) if lane.lasts else 0
    now = before + event.times * (1 if event.name == "client_connected" else -1)
    if now > 0:
        many = "connection" if now == 1 else "connections"
        lane.enter(event.last_time_ms, f"{now} {many}", "good", event.text)
    else:
        lane.leave(event.last_time_ms)


_DRAWN: dict[Subject, Callable[[Lanes, HistoryEvent], None]] = {
    Subject.TRANSACTIONAL_ID: _transaction,
    Subject.PRODUCER_ID: _producer,
    Subject.GROUP: _group,
    Subject.PARTITION: _partition,
    Subject.SHARE_RECORD: _share_record,
    Subject.CLIENT: _client,
}
