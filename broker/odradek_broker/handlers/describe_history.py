"""DescribeHistory (key 10000, Odradek's own): what lately happened to a transactional id, a producer
id or a group, in words, and what holds now.

Rights (A-12, A-18): DESCRIBE on the transactional id or the group. Of a producer id whatever belongs to
topics that one may READ and transactional ids that one may DESCRIBE, and DESCRIBE on the cluster for
who was given it. Partitions of topics, names of topics and groups that one may not DESCRIBE are left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek_broker.authorizer import CLUSTER, Operation, group, topic, transactional_id
from odradek_broker.context import RequestContext
from odradek_broker.coordinator.groups.consumer.settings import session_timeout_ms
from odradek_broker.coordinator.groups.consumer.telling import now_of_consumer_group
from odradek_broker.coordinator.groups.telling import now_of_group
from odradek_broker.coordinator.transactions.telling import now_of_producer_id, now_of_transaction
from odradek_broker.coordinator.transactions.transaction import Transaction
from odradek_broker.history import LIST_MAX, Event, History, Now, Place
from odradek_broker.history_words import Value, What, say
from odradek_broker.later import Later
from odradek_broker.node import Node
from odradek_broker.producer_telling import now_of_producer
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_history as wire
from odradek_protocol.schemas.describe_history import (
    DescribeHistoryRequest,
    DescribeHistoryResponse,
)

_E = ErrorCode

#: Partitions whose files are opened for one question about a producer id.
OPENED_MAX = 64
#: Characters of one text in the answer: at 4 bytes each, what a string of the protocol may have.
_TEXT_MAX = 8_000
#: Of an int64.
_DIGITS_MAX = 19

MayDescribe = Callable[[str], bool]


def handle(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse | Later[DescribeHistoryResponse]:
    """Of a subject of which nothing is known: 105, 59 or 69, by its kind."""
    if request.subject_type == wire.TRANSACTIONAL_ID:
        return _transaction(node, context, request)
    if request.subject_type == wire.PRODUCER_ID:
        return _producer(node, context, request)
    if request.subject_type == wire.GROUP:
        return _group(node, context, request)
    return _failed(_E.INVALID_REQUEST, f"there is no subject type {request.subject_type}")


# --- Transactional ids and groups ---


def _transaction(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse | Later[DescribeHistoryResponse]:
    name = request.subject
    if not node.authorizer.allows(context, Operation.DESCRIBE, transactional_id(name)):
        return _failed(_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    later: Later[DescribeHistoryResponse] = Later()

    def described(told: tuple[ErrorCode, Transaction | None]) -> None:
        error, held = told
        if error not in (_E.NONE, _E.TRANSACTIONAL_ID_NOT_FOUND):
            later.resolve(_failed(error))
            return
        history = node.transactions.history
        if held is None and not history.about(name).events:
            later.resolve(_failed(_E.TRANSACTIONAL_ID_NOT_FOUND))
            return
        now = now_of_transaction(held, node.clock.wall_ms(), history.started_ms)
        later.resolve(_answer(node, context, request, history, [now]))

    node.transactions.describe(name).then(described)
    return later


def _group(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    name = request.subject
    if not node.authorizer.allows(context, Operation.DESCRIBE, group(name)):
        return _failed(_E.GROUP_AUTHORIZATION_FAILED)
    error = node.groups.readiness(name)
    if error is not _E.NONE:
        return _failed(error)
    history = node.groups.history
    held, consumer = node.groups.group(name), node.groups.consumer_group(name)
    offsets = len(node.groups.committed(name))
    if consumer is not None:
        session_ms = session_timeout_ms(node.config, node.metadata, name)
        now = now_of_consumer_group(consumer, node.metadata, offsets, session_ms)
    elif held is None and not history.about(name).events:
        return _failed(_E.GROUP_ID_NOT_FOUND)
    else:
        now = now_of_group(held, offsets, node.clock.wall_ms())
    return _answer(node, context, request, history, now)


# --- Producer ids ---


def _producer(
    node: Node, context: RequestContext, request: DescribeHistoryRequest
) -> DescribeHistoryResponse:
    text = request.subject
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return _failed(_E.INVALID_REQUEST, f"{text[:50]!r} is no producer id: it must be a number")
    request.subject = str(int(text))
    producer_id = int(text)
    now = [
        now_of_producer_id(held, producer_id)
        for held in node.transactions.transactions()
        if producer_id in (held.producer_id, held.previous_producer_id, held.next_producer_id)
        and _may_describe_id(node, context, held.transactional_id)
    ]
    now += _partitions_that_know(node, context, producer_id)
    history = node.producer_history
    events = [
        event for event in history.about(request.subject).events if _may_see(node, context, event)
    ]
    if not events and not now:
        return _failed(
            _E.UNKNOWN_PRODUCER_ID,
            f"nothing is known of producer id {producer_id}: it never wrote here, was forgotten"
            " (producer.id.expiration.ms), or belongs to topics that you may not read",
        )
    if not now:
        reason = "no partition knows it: it has written nothing here, or was forgotten"
        now = [Now(What.NOW_NOTHING, {"reason": reason})]
    return _answer(node, context, request, history, now, events)


def _partitions_that_know(node: Node, context: RequestContext, producer_id: int) -> list[Now]:
    """One state for every partition; a few that were not used since the start are opened."""
    found, opened, unread = [], 0, 0
    now_ms = node.clock.wall_ms()
    readable = _Asked(lambda name: node.authorizer.allows(context, Operation.READ, topic(name)))
    # The broker's own topics last: it is not about them that one asks.
    places = sorted(
        node.partitions(), key=lambda each: (node.metadata.is_internal(each[0]), *each[:2])
    )
    for name, index, partition in places:
        log = partition.log
        if not readable(name) or log.offline:
            continue
        if not log.loaded:
            if opened == OPENED_MAX:
                unread += 1
                continue
            opened += 1
        try:
            entry, restored_to = log.producers.entry(producer_id), log.producers_restored_to
        except StorageError:
            continue
        if entry is not None:
            found.append(now_of_producer((name, index), entry, restored_to, now_ms))
    if unread:
        reason = f"{unread} partitions were not used since the start; ask again to look into more"
        found.append(Now(What.NOW_NOTHING, {"reason": reason}))
    return found


def _may_see(node: Node, context: RequestContext, event: Event) -> bool:
    name = event.fields.get("transactional_id")
    if name is not None and not _may_describe_id(node, context, str(name)):
        return False
    if name is None and not event.places:
        return node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER)
    return all(
        node.authorizer.allows(context, Operation.READ, topic(where)) for where, _ in event.places
    )


def _may_describe_id(node: Node, context: RequestContext, name: str) -> bool:
    return node.authorizer.allows(context, Operation.DESCRIBE, transactional_id(name))


# --- The answer ---


def _answer(
    node: Node,
    context: RequestContext,
    request: DescribeHistoryRequest,
    history: History,
    now: Iterable[Now],
    events: list[Event] | None = None,
) -> DescribeHistoryResponse:
    past = history.about(request.subject)
    events = past.events if events is None else events
    if request.limit >= 0:
        events = events[max(len(events) - request.limit, 0) :]
    may_describe = _Asked(
        lambda name: node.authorizer.allows(context, Operation.DESCRIBE, topic(name))
    )
    may_describe_group = _Asked(
        lambda name: node.authorizer.allows(context, Operation.DESCRIBE, group(name))
    )
    return DescribeHistoryResponse(
        error_code=_E.NONE,
        now_ms=node.clock.wall_ms(),
        started_ms=history.started_ms,
        complete_since_ms=past.since_ms,
        dropped=past.dropped,
        events=[_event(event, may_describe, may_describe_group) for event in events],
        states=[_state(each, may_describe) for each in now],
    )


class _Asked:
    """Asks the authorizer once about each name."""

    def __init__(self, ask: MayDescribe) -> None:
        self._ask = ask
        self._known: dict[str, bool] = {}

    def __call__(self, name: str) -> bool:
        answer = self._known.get(name)
        if answer is None:
            answer = self._known[name] = self._ask(name)
        return answer


def _event(event: Event, may_describe: MayDescribe, may_describe_group: MayDescribe) -> wire.Event:
    fields = dict(event.fields)
    if "group" in fields and not may_describe_group(str(fields["group"])):
        del fields["group"]
    topics = fields.get("topics")
    if isinstance(topics, tuple):
        # Among them are words that no topic can have as its name: "and 3 more".
        fields["topics"] = tuple(each for each in topics if " " in each or may_describe(each))
    fields |= _places(event.places, event.places_more, may_describe)
    if event.error is not _E.NONE:
        fields["error"] = event.error.name
    return wire.Event(
        time_ms=event.at_ms,
        last_time_ms=event.last_ms,
        times=event.times,
        name=event.what.name.lower(),
        text=_cut(say(event.what, fields)),
        details=_details(fields),
    )


def _state(now: Now, may_describe: MayDescribe) -> wire.State:
    fields = {**now.fields, **_places(now.places, 0, may_describe)}
    return wire.State(
        name=now.what.name.lower(), text=_cut(say(now.what, fields)), details=_details(fields)
    )


def _places(places: Iterable[Place], more: int, may_describe: MayDescribe) -> dict[str, Value]:
    known = [f"{name}-{index}" for name, index in places if may_describe(name)]
    if not known:
        return {}
    shown = tuple(known[:LIST_MAX])
    more += len(known) - len(shown)
    return {"places": (*shown, f"and {more} more") if more else shown}


def _details(fields: dict[str, Value]) -> list[wire.Detail]:
    return [
        wire.Detail(
            name=name, value=_cut(", ".join(value) if isinstance(value, tuple) else str(value))
        )
        for name, value in fields.items()
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 3] + "..."


def _failed(error: ErrorCode, message: str | None = None) -> DescribeHistoryResponse:
    return DescribeHistoryResponse(error_code=error, error_message=message)
