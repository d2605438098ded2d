"""DescribeBroker (key 10001, Odradek's own): counters, requests by API, connections, problems and
the newest events of this broker.

Rights (A-22): DESCRIBE on the cluster. Events, and the problems of partitions and transactional
ids, are left out if DescribeHistory would refuse them to the client.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from heapq import merge
from itertools import islice

from odradek_broker.coordinator.transactions.transaction import TransactionState
from odradek_broker.explain.causes import Judge
from odradek_broker.explain.connections import matches
from odradek_broker.explain.history import History, RecordedEvent
from odradek_broker.explain.problems import find_problems
from odradek_broker.explain.signals import find_signals
from odradek_broker.explain.texts import Rights, event_values, state_text
from odradek_broker.explain.verdicts import Verdict
from odradek_broker.metrics.broker import BUCKETS_US, SAMPLED
from odradek_broker.mirror.events import SourceState
from odradek_broker.node import Node
from odradek_broker.request import Peer, RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.slices import paced, with_pauses
from odradek_protocol.errors import PROTOCOL_STEPS, ErrorCode
from odradek_protocol.schemas import describe_broker as wire
from odradek_protocol.schemas import describe_history as history_wire
from odradek_protocol.schemas.describe_broker import DescribeBrokerRequest, DescribeBrokerResponse
from odradek_protocol.version import VERSION

_E = ErrorCode

#: The maximum number of connections, and of events, in one answer.
LISTED_MAX = 1_000
#: The maximum number of events that are examined for one answer. LISTED_MAX alone would not limit
#: them, because the client may have no right to most events.
_LOOKED_AT_MAX = 10_000
_SECTIONS = frozenset(range(wire.COUNTERS, wire.SAMPLES + 1))


async def handle(
    node: Node, context: RequestContext, request: DescribeBrokerRequest
) -> DescribeBrokerResponse:
    """The requested sections; the answer to an unknown section is INVALID_REQUEST."""
    if not node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        return DescribeBrokerResponse(error_code=_E.CLUSTER_AUTHORIZATION_FAILED)
    unknown = sorted(set(request.sections) - _SECTIONS)
    if unknown:
        text = f"there is no section {unknown[0]}"
        return DescribeBrokerResponse(error_code=_E.INVALID_REQUEST, error_message=text)
    rights = Rights(node.authorizer, context)
    answer = DescribeBrokerResponse(
        now_ms=node.clock.wall_ms(),
        started_ms=node.group_history.started_ms,
        node_id=node.node_id,
        version=VERSION,
        console_url=node.console_url or None,
    )
    limit = min(max(request.limit, 0), LISTED_MAX)
    if wire.COUNTERS in request.sections:
        groups = await with_pauses(_groups_by_state(node))
        transactions = paced(node.transactions.transactions())
        open_now = [each async for each in transactions if each.state is TransactionState.ONGOING]
        answer.counters = [
            wire.Counter(name=name, value=float(value))
            for name, value in _counters(node, groups, len(open_now))
        ]
    if wire.REQUESTS in request.sections:
        answer.bounds_us = list(BUCKETS_US)
        answer.requests = list(_requests(node))
    if wire.CONNECTIONS in request.sections:
        found = [
            peer
            async for peer in paced(node.connections.peers.values())
            if matches(peer, request.filter)
        ]
        first = max(request.offset, 0)
        answer.connections_total = len(found)
        answer.connections = [_connection(peer) for peer in found[first : first + limit]]
    if wire.PROBLEMS in request.sections:
        answer.problems = await _problems(node, rights)
    if wire.EVENTS in request.sections:
        answer.next_after, answer.events = await with_pauses(
            _events(node, rights, request.after, limit)
        )
    if wire.SAMPLES in request.sections:
        answer.sample_names = list(SAMPLED)
        answer.samples = [
            wire.Sample(time_ms=each.wall_ms, values=[float(value) for value in each.values])
            for each in node.metrics.samples
        ]
    return answer


# --- Problems ---


async def _problems(node: Node, rights: Rights) -> list[wire.Problem]:
    problems = await find_problems(
        node.logs.directories,
        (partition.log for _, _, partition in node.replicas.partitions()),
        node.cleaner.statistics.uncleanable,
        node.transactions.transactions(),
        await with_pauses(_groups_behind(node, rights)),
        node.clock.wall_ms(),
    )
    signals = find_signals(
        node.metrics,
        node.logs.directories,
        node.group_history,
        node.share_history,
        {
            name: _sources(node, name)
            for name in list(node.metadata.mirror_sources)
            if rights.topic(name)
        },
        node.clock.wall_ms(),
    )
    problems += await with_pauses(signals)
    return [each for each in problems if rights.to_subject(each.subject_type, each.subject)]


def _sources(node: Node, name: str) -> Iterator[SourceState | None]:
    """The last reports about the partitions of a mirror topic."""
    topic = node.metadata.topics.get(name)
    for index in list(topic.partitions if topic is not None else ()):
        yield node.mirrors.source_of(name, index)


def _groups_behind(node: Node, rights: Rights) -> Generator[None, None, list[tuple[str, str]]]:
    """Each group that is not OK, with the sentence about it."""
    judge = Judge(node)
    found: list[tuple[str, str]] = []
    for group_id in node.verdicts.behind():
        yield
        if len(found) > LISTED_MAX or not rights.group(group_id):
            continue
        state = yield from judge.state_of(group_id)
        if state.fields["verdict"] != Verdict.OK.name:
            found.append((group_id, state_text(state, rights).text))
    return found


# --- Counters and requests ---


def _groups_by_state(node: Node) -> Generator[None, None, dict[str, int]]:
    groups: dict[str, int] = {}
    for listing in node.groups.groups():
        groups[listing.state.value] = groups.get(listing.state.value, 0) + 1
        yield
    return groups


def _counters(
    node: Node, groups: Mapping[str, int], open_transactions: int
) -> Iterator[tuple[str, float]]:
    metrics = node.metrics
    yield from metrics.sampled().items()
    yield "received_bytes_total", metrics.received_total
    yield "sent_bytes_total", metrics.sent_total
    yield "connections_refused_total", metrics.connections_refused_total
    yield "throttled_requests_total", sum(metrics.throttled_requests.values())
    yield "throttle_time_ms_total", sum(metrics.throttle_time_ms.values())
    yield "topics", len(node.metadata.topics)
    yield "partitions", node.metadata.total_partitions
    yield "groups", sum(groups.values())
    for state, count in sorted(groups.items()):
        yield f"groups_{state}", count
    yield "open_transactions", open_transactions
    usable = total = 0
    for directory in node.logs.directories:
        with suppress(OSError):
            volume = directory.volume()
            usable, total = usable + volume.usable_bytes, total + volume.total_bytes
    yield "disk_usable_bytes", usable
    yield "disk_total_bytes", total
    usage = metrics.process_usage()
    yield "memory_peak_bytes", usage.memory_peak_bytes
    yield "processor_ms_total", usage.processor_ms


def _requests(node: Node) -> Iterator[wire.RequestCounts]:
    requests: dict[str, int] = {}
    codes: dict[str, list[wire.CodeCount]] = {}
    for (name, _), count in node.metrics.requests.items():
        requests[name] = requests.get(name, 0) + count
    for (name, code), count in sorted(node.metrics.errors.items()):
        codes.setdefault(name, []).append(wire.CodeCount(code=code, count=count))
    for name, times in sorted(node.metrics.times.items()):
        yield wire.RequestCounts(
            name=name,
            requests=requests.get(name, 0),
            errors=sum(
                each.count for each in codes.get(name, ()) if each.code not in PROTOCOL_STEPS
            ),
            sum_us=times.sum_us,
            counts=list(times.counts),
            codes=codes.get(name, []),
        )


def _connection(peer: Peer) -> wire.Connection:
    return wire.Connection(
        connection_id=peer.connection_id,
        listener=peer.listener,
        host=peer.host,
        user=peer.user,
        client_id=peer.client_id,
        software_name=peer.software_name,
        software_version=peer.software_version,
        opened_ms=peer.opened_ms,
        requests=peer.requests,
        api_name=peer.api_name,
    )


# --- Events ---


def _rings(node: Node) -> list[tuple[int, History]]:
    return [
        (history_wire.TRANSACTIONAL_ID, node.transaction_history),
        (history_wire.PRODUCER_ID, node.producer_history),
        (history_wire.GROUP, node.group_history),
        (history_wire.PARTITION, node.partition_history),
        (history_wire.CLIENT, node.connections.history),
    ]


def _events(
    node: Node, rights: Rights, after: int, limit: int
) -> Generator[None, None, tuple[int, list[wire.NumberedEvent]]]:
    """The value of `after` for the next request, and the events, oldest first.

    The numbers of events begin again with each start. So an `after` above all numbers is from an
    earlier start, and is ignored.
    """
    rings = _rings(node)
    newest = merge(*(_newest(kind, ring, -1) for kind, ring in rings), key=lambda each: -each[0])
    last = next((number for number, *_ in newest), -1)
    if after > last:
        after = -1
    newest = merge(*(_newest(kind, ring, after) for kind, ring in rings), key=lambda each: -each[0])
    next_after = after
    found: list[wire.NumberedEvent] = []
    for number, kind, subject, event in islice(newest, _LOOKED_AT_MAX):
        yield
        next_after = max(next_after, number)
        if len(found) == limit:
            break
        if kind == history_wire.PRODUCER_ID:
            allowed = rights.to_event_of_producer(event)
        else:
            allowed = rights.to_subject(kind, subject)
        if allowed:
            shown = wire.NumberedEvent(
                number=number, subject_type=kind, subject=subject, **event_values(event, rights)
            )
            found.append(shown)
    return next_after, found[::-1]


def _newest(kind: int, ring: History, after: int) -> Iterator[tuple[int, int, str, RecordedEvent]]:
    for number, subject, event in ring.newest(after):
        yield number, kind, subject, event
