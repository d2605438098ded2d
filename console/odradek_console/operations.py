"""The work of a broker: throughput over time, requests by API with percentiles, connections.

Only Odradek's brokers have this description (DescribeBroker); for other brokers the views say that
the description is missing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from weakref import WeakKeyDictionary

from odradek_client.admin.broker import BrokerDescription, RequestCounts, Section
from odradek_console.answers import LIMIT_DEFAULT, LIMIT_MAX, Json
from odradek_console.asked import Asked, View
from odradek_console.live import Feed
from odradek_console.sessions import ConsoleSession
from odradek_protocol.errors import PROTOCOL_STEPS, ErrorCode

#: The time between two requests while a page is open.
EVERY_MS = 2_000
_KEEP_PAST_MS = 4_000
#: The length of the period up to now that the recent percentiles cover.
_RECENT_MS = 30_000
#: The maximum time between two samples. For samples further apart, no rates are computed.
_GAP_MS = 4 * EVERY_MS

#: The rates of a sample: the name in the answer and the counter that grows.
_RATES = {
    "in_bytes": "appended_bytes_total",
    "out_bytes": "fetched_bytes_total",
    "requests": "requests_total",
    "errors": "request_errors_total",
}


def rates(before: BrokerDescription, after: BrokerDescription) -> Json | None:
    """The rates per second and the mean flush time in the interval between two descriptions.

    None if the broker was started in the interval, or if the interval is too long or empty.
    """
    ms = after.now_ms - before.now_ms
    if after.started_ms != before.started_ms or not 0 < ms <= _GAP_MS:
        return None

    def grown(name: str) -> float:
        return after.counters.get(name, 0.0) - before.counters.get(name, 0.0)

    flushes = grown("flushes_total")
    return {
        "time_ms": after.now_ms,
        **{name: round(grown(counter) * 1_000 / ms, 1) for name, counter in _RATES.items()},
        "flush_ms": round(grown("flush_time_us_total") / flushes / 1_000, 2) if flushes else None,
        "connections": after.counters.get("connections"),
    }


def percentile_ms(counts: Sequence[int], bounds_us: Sequence[int], share: float) -> float | None:
    """The duration in milliseconds that this share of the requests did not exceed; None if there
    were no requests.

    The requests of a bucket are assumed to be evenly distributed between its bounds. A result above
    the last bound becomes the last bound.
    """
    total = sum(counts)
    if not total:
        return None
    wanted, seen, low = share * total, 0, 0
    for count, high in zip(counts, bounds_us, strict=False):
        if count and seen + count >= wanted:
            return round((low + (high - low) * (wanted - seen) / count) / 1_000, 3)
        seen, low = seen + count, high
    return bounds_us[-1] / 1_000


def request_row(each: RequestCounts, bounds_us: Sequence[int], lasted_ms: float) -> Json:
    """The figures of an API, from its requests within `lasted_ms` milliseconds."""
    return {
        "requests": each.requests,
        "errors": each.errors,
        "codes": [
            [name, count, ErrorCode[name] in PROTOCOL_STEPS]
            for name, count in sorted(each.codes.items(), key=lambda code: -code[1])
            if count > 0
        ],
        "per_s": round(each.requests * 1_000 / lasted_ms, 2) if lasted_ms > 0 else None,
        "mean_ms": round(each.sum_us / each.requests / 1_000, 3) if each.requests else None,
        "p50_ms": percentile_ms(each.counts, bounds_us, 0.5),
        "p95_ms": percentile_ms(each.counts, bounds_us, 0.95),
        "p99_ms": percentile_ms(each.counts, bounds_us, 0.99),
    }


def since(after: RequestCounts, before: RequestCounts | None) -> RequestCounts:
    """The requests of an API that a broker handled between two of its descriptions."""
    if before is None:
        return after
    return RequestCounts(
        after.name,
        after.requests - before.requests,
        after.errors - before.errors,
        after.sum_us - before.sum_us,
        [new - old for new, old in zip(after.counts, before.counts, strict=True)],
        {name: count - before.codes.get(name, 0) for name, count in after.codes.items()},
    )


@dataclass
class _Watched:
    """The recent descriptions of a broker in a session."""

    last: BrokerDescription | None = None
    sample: Json | None = None
    requests: deque[BrokerDescription] = field(default_factory=deque)


_watched: WeakKeyDictionary[ConsoleSession, _Watched] = WeakKeyDictionary()


def _of(session: ConsoleSession) -> _Watched:
    return _watched.setdefault(session, _Watched())


async def describe_broker(session: ConsoleSession, *sections: Section) -> BrokerDescription:
    """The broker's description of itself, shared by the pages. UnsupportedByBroker if the broker is
    not Odradek's."""
    return await session.cached(
        ("broker", *sections), EVERY_MS // 2, lambda admin: admin.describe_broker_status(*sections)
    )


# --- Throughput -----------------------------------------------------------------------------------


async def _throughput(session: ConsoleSession, _name: str) -> Json:
    """The rates in the newest interval, and the counters, which the page shows unchanged."""
    watched = _of(session)
    found = await describe_broker(session, Section.COUNTERS)
    before = watched.last
    if before is None or found.now_ms > before.now_ms:
        watched.last = found
        sample = None if before is None else rates(before, found)
        watched.sample = sample or watched.sample
    return {
        "sample": watched.sample,
        "counters": found.counters,
        "version": found.version,
        "started_ms": found.started_ms,
        "now_ms": found.now_ms,
    }


async def _samples(asked: Asked) -> Json:
    """The samples that the broker keeps of the last quarter of an hour, oldest first."""
    found = await asked.session.cached(
        "samples", _KEEP_PAST_MS, lambda admin: admin.describe_broker_status(Section.SAMPLES)
    )
    past = [
        replace(found, now_ms=time_ms, counters=counters, samples=[])
        for time_ms, counters in found.samples
    ]
    samples = [rates(before, after) for before, after in pairwise(past)]
    return {"samples": [sample for sample in samples if sample is not None]}


# --- Requests -------------------------------------------------------------------------------------


async def _requests(session: ConsoleSession, _name: str = "") -> Json:
    """Requests by API: since the broker's start, and in the recent past."""
    watched = _of(session)
    found = await describe_broker(session, Section.REQUESTS)
    kept = watched.requests
    if kept and kept[-1].started_ms != found.started_ms:
        kept.clear()
    if not kept or found.now_ms > kept[-1].now_ms:
        kept.append(found)
    while len(kept) > 2 and kept[1].now_ms <= found.now_ms - _RECENT_MS:
        kept.popleft()
    before = kept[0]
    old: Mapping[str, RequestCounts] = {each.name: each for each in before.requests}
    recent_ms = found.now_ms - before.now_ms
    return {
        "recent_ms": recent_ms,
        "started_ms": found.started_ms,
        "rows": [
            {
                "name": each.name,
                "total": request_row(each, found.bounds_us, found.now_ms - found.started_ms),
                "recent": request_row(since(each, old.get(each.name)), found.bounds_us, recent_ms)
                if recent_ms
                else None,
            }
            for each in found.requests
        ],
    }


# --- Connections ----------------------------------------------------------------------------------


async def _connections(asked: Asked) -> Json:
    """A page of the open connections, in the broker's order."""
    offset = asked.query.whole("offset", 0, most=10_000_000)
    limit = asked.query.whole("limit", LIMIT_DEFAULT, least=1, most=LIMIT_MAX)
    wanted = asked.query.text("filter", "")
    found = await asked.session.cached(
        ("connections", offset, limit, wanted),
        EVERY_MS // 2,
        lambda admin: admin.describe_broker_status(
            Section.CONNECTIONS, offset=offset, limit=limit, filter=wanted
        ),
    )
    return {
        "offset": offset,
        "total": found.connections_total,
        "now_ms": found.now_ms,
        "rows": [
            {
                "id": each.connection_id,
                "listener": each.listener,
                "host": each.host,
                "user": each.user,
                "client_id": each.client_id,
                "software": each.software,
                "opened_ms": each.opened_ms,
                "requests": each.requests,
                "api": each.api_name,
            }
            for each in found.connections
        ],
    }


VIEWS: dict[str, View] = {"/throughput": _samples, "/connections": _connections}
FEEDS = {"throughput": Feed(_throughput, EVERY_MS), "requests": Feed(_requests, EVERY_MS)}
