"""The frame of `odradek top`: rates, lag and durations, from two samples of a cluster.

The module sends no requests and reads no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek_client.admin.broker import BrokerDescription, RequestCounts
from odradek_client.structs import TopicPartition
from odradek_records.lag import LagPoint

#: The counters of brokers that the frame shows as rates, by the name of the rate.
_RATES = {
    "received_bytes": "received_bytes_total",
    "sent_bytes": "sent_bytes_total",
    "requests": "requests_total",
    "errors": "request_errors_total",
    "refused_connections": "connections_refused_total",
    "throttled": "throttled_requests_total",
    "processor_ms": "processor_ms_total",
}
#: The counters of brokers that the frame shows unchanged.
_LEVELS = (
    "connections", "topics", "partitions", "groups", "open_transactions", "memory_peak_bytes",
    "disk_usable_bytes", "disk_total_bytes",
)  # fmt: skip
#: The states in which a group does not consume.
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})
_SLOW_SHARE = 0.99


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction. `start_ms`: its start by the coordinator's clock, None if unknown."""

    transactional_id: str
    producer_id: int
    start_ms: int | None


@dataclass(frozen=True)
class GroupSample:
    """A group. `lag`: None if it has no positions. `verdict`: the broker's verdict, with its
    sentence; empty if the broker gives none."""

    group_id: str
    kind: str
    state: str
    lag: LagPoint | None = None
    verdict: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class ClusterSample:
    """The state of a cluster at one time. `missing`: sentences about the parts that are missing,
    with the reasons."""

    at_ms: int
    cluster_id: str | None = None
    nodes: int = 0
    brokers: Mapping[int, BrokerDescription] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    groups: Iterable[GroupSample] = ()
    transactions: Iterable[OpenTransaction] = ()
    missing: Iterable[str] = ()


@dataclass(frozen=True)
class TopicRate:
    """The appended records of a topic, for each second; None before the second sample."""

    topic: str
    partitions: int
    records_per_s: float | None


@dataclass(frozen=True)
class GroupLag:
    """The lag of a group in records, and the age of the oldest unread record. `age_at_least`: the
    record may be older, because it was appended before the first sample. `verdict` and `sentence`
    are the broker's."""

    group: str
    kind: str
    state: str
    lag: int | None
    age_ms: int | None
    age_at_least: bool
    verdict: str
    sentence: str


@dataclass(frozen=True)
class SlowRequests:
    """The requests of an API between two samples, of all brokers. `slow_ms`: the 99th percentile;
    None if it is above the largest bound of the histogram."""

    name: str
    requests: int
    average_ms: float
    slow_ms: float | None


@dataclass(frozen=True)
class Frame:
    """The content of the screen at a time. Rates are per second.

    `throughput` and `levels` are sums over the brokers that describe themselves; empty if none
    does. `rates_known`: false before the second sample.
    """

    at_ms: int
    cluster_id: str | None
    nodes: int
    rates_known: bool
    throughput: dict[str, float]
    levels: dict[str, float]
    records_per_s: float | None
    topics: list[TopicRate]
    groups: list[GroupLag]
    states: dict[str, int]
    rebalancing: list[str]
    transactions: list[OpenTransaction]
    slow: list[SlowRequests]
    problems: list[str]
    missing: list[str]

    def as_json(self) -> dict[str, Any]:
        """The frame as values of JSON."""
        from dataclasses import asdict

        found = asdict(self)
        for each, transaction in zip(found["transactions"], self.transactions, strict=True):
            start_ms = transaction.start_ms
            each["open_ms"] = None if start_ms is None else max(self.at_ms - start_ms, 0)
        return found


def make_frame(before: ClusterSample | None, now: ClusterSample) -> Frame:
    """The frame of a sample, with rates for the time between the previous sample and this one."""
    elapsed_s = 0.0 if before is None else (now.at_ms - before.at_ms) / 1000
    known = before is not None and elapsed_s > 0
    groups = list(now.groups)
    topics = _topics(before if known else None, now, elapsed_s)
    pairs = [] if before is None else _pairs(before, now)
    return Frame(
        at_ms=now.at_ms,
        cluster_id=now.cluster_id,
        nodes=now.nodes,
        rates_known=known,
        throughput=_throughput(pairs) if known else {},
        levels=_levels(now),
        records_per_s=sum(each.records_per_s or 0 for each in topics) if known else None,
        topics=topics,
        groups=_groups(groups),
        states=dict(sorted(Counter(each.state or "Unknown" for each in groups).items())),
        rebalancing=sorted(each.group_id for each in groups if each.state in REBALANCING),
        transactions=sorted(
            now.transactions, key=lambda each: (each.start_ms is None, each.start_ms or 0)
        ),
        slow=_slow(pairs) if known else [],
        problems=[each.text for broker in now.brokers.values() for each in broker.problems],
        missing=list(dict.fromkeys(now.missing)),
    )


def _pairs(
    before: ClusterSample, now: ClusterSample
) -> list[tuple[BrokerDescription, BrokerDescription]]:
    """The earlier and the present description of each broker that was not restarted between
    them."""
    return [
        (earlier, broker)
        for node, broker in now.brokers.items()
        if (earlier := before.brokers.get(node)) is not None
        and earlier.started_ms == broker.started_ms
        and broker.now_ms > earlier.now_ms
    ]


def _throughput(pairs: list[tuple[BrokerDescription, BrokerDescription]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for earlier, broker in pairs:
        # The time is the broker's, because answers may arrive late.
        elapsed_s = (broker.now_ms - earlier.now_ms) / 1000
        for name, counter in _RATES.items():
            if counter in broker.counters and counter in earlier.counters:
                grown = max(broker.counters[counter] - earlier.counters[counter], 0)
                found[name] = found.get(name, 0) + grown / elapsed_s
    return found


def _levels(now: ClusterSample) -> dict[str, float]:
    return {
        name: sum(each.counters[name] for each in now.brokers.values() if name in each.counters)
        for name in _LEVELS
        if any(name in each.counters for each in now.brokers.values())
    }


def _topics(before: ClusterSample | None, now: ClusterSample, elapsed_s: float) -> list[TopicRate]:
    """The topics, the busiest one first."""
    records: dict[str, int] = {}
    partitions: Counter[str] = Counter(tp.topic for tp in now.ends)
    for tp, end in now.ends.items():
        earlier = None if before is None else before.ends.get(tp)
        # A partition's end is lower after a truncation, or after its topic was created again.
        grown = 0 if earlier is None else max(end - earlier, 0)
        records[tp.topic] = records.get(tp.topic, 0) + grown
    found = [
        TopicRate(topic, partitions[topic], None if before is None else count / elapsed_s)
        for topic, count in records.items()
    ]
    return sorted(found, key=lambda each: (-(each.records_per_s or 0), each.topic))


def _groups(groups: list[GroupSample]) -> list[GroupLag]:
    """The groups, the one with the largest lag first."""
    found = [
        GroupLag(
            each.group_id,
            each.kind,
            each.state,
            None if each.lag is None else each.lag.records,
            None if each.lag is None else each.lag.age_ms,
            each.lag is not None and each.lag.at_least,
            each.verdict,
            each.sentence,
        )
        for each in groups
    ]
    return sorted(found, key=lambda each: (-(each.lag or 0), each.lag is None, each.group))


def _slow(pairs: list[tuple[BrokerDescription, BrokerDescription]]) -> list[SlowRequests]:
    """The APIs with requests between the samples, the slowest one first."""
    grown: dict[str, tuple[int, int, list[int]]] = {}
    bounds_us: list[int] = []
    for earlier, broker in pairs:
        bounds_us = broker.bounds_us
        held = {each.name: each for each in earlier.requests}
        for each in broker.requests:
            counts, sum_us = _grown(held.get(each.name), each)
            requests, all_us, all_counts = grown.get(each.name, (0, 0, [0] * len(counts)))
            grown[each.name] = (
                requests + sum(counts),
                all_us + sum_us,
                [a + b for a, b in zip(all_counts, counts, strict=True)],
            )
    found = [
        SlowRequests(name, requests, sum_us / requests / 1000, _slow_ms(counts, bounds_us))
        for name, (requests, sum_us, counts) in grown.items()
        if requests
    ]
    return sorted(
        found, key=lambda each: (each.slow_ms is not None, -(each.slow_ms or 0), -each.average_ms)
    )


def _grown(earlier: RequestCounts | None, now: RequestCounts) -> tuple[list[int], int]:
    """The number of requests between two samples in each bucket of durations, and the sum of their
    durations in µs."""
    if earlier is None:
        return list(now.counts), now.sum_us
    counts = [max(a - b, 0) for a, b in zip(now.counts, earlier.counts, strict=True)]
    return counts, max(now.sum_us - earlier.sum_us, 0)


def _slow_ms(counts: list[int], bounds_us: list[int]) -> float | None:
    """The lowest bound, in ms, that 99 % of the requests do not exceed; None if no bound is high
    enough."""
    below = 0
    for bound_us, count in zip(bounds_us, counts, strict=False):
        below += count
        if below >= _SLOW_SHARE * sum(counts):
            return bound_us / 1000
    return None
