"""Metrics that clients pushed, as kafka_client_*; how often clients pushed, and how often a limit
was reached (M-20)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import field

from odradek_broker.metrics.families import (
    PAUSE,
    Counter,
    Families,
    Family,
    Gauge,
    in_order,
    labels_text,
)
from odradek_broker.node import Node
from odradek_broker.telemetry.manager import client_labels
from odradek_broker.telemetry.otlp import MetricType
from odradek_broker.telemetry.series import Series
from odradek_protocol.lazy_dataclass import dataclass

_TOTAL = "_total"
#: The number of samples between two points at which the caller may pause.
_SAMPLES = 100


class _Untyped(Family):
    """A metric that clients push as different kinds."""

    __slots__ = ()
    kind = "untyped"


def telemetry_families(node: Node) -> Families:
    """The series of clients, and the metrics about their number, their limits and dropped data
    points."""
    yield from _client_families(node)
    yield from _own_families(node)


def _own_families(node: Node) -> Iterator[Family]:
    telemetry, config = node.telemetry, node.metadata.config
    for name, text, value in (
        (
            "odradek_client_telemetry_clients",
            "Clients whose metrics are stored.",
            len(telemetry.series),
        ),
        ("odradek_client_telemetry_series", "Stored series of clients.", telemetry.series.series),
        (
            "odradek_client_telemetry_series_limit",
            "Limit of the stored series of clients (telemetry.max.series).",
            config.telemetry_max_series,
        ),
        (
            "kafka_server_client_metrics_instance_count",
            "Client instances that have requested a subscription.",
            len(telemetry.instances),
        ),
    ):
        yield Gauge(name, text, value=value)
    left_out = Counter(
        "odradek_client_telemetry_left_out",
        "Pushed data points that were dropped, by the limit that was reached: of a client"
        " (telemetry.max.series.per.client), of the broker (telemetry.max.series) or of characters.",
        labels=["limit"],
    )
    for limit in ("client", "broker", "characters"):
        left_out.add_metric([limit], getattr(telemetry.series.left_out, limit))
    yield left_out
    for name, text, value in (
        ("plugin_export", "Pushes whose metrics were accepted.", telemetry.taken),
        ("plugin_error", "Pushes that could not be read.", telemetry.unreadable),
        (
            "throttle",
            "Requests that clients sent before their push interval had passed.",
            telemetry.instances.counts.throttled,
        ),
        (
            "unknown_subscription_request",
            "Pushes for a subscription that has changed.",
            telemetry.instances.counts.unknown_subscription,
        ),
    ):
        yield Counter(f"kafka_server_client_metrics_{name}_count", text, value=value)


@dataclass(slots=True)
class _Named:
    """The series of all clients with one name: their kinds, and their samples in chunks."""

    source: str
    kinds: set[MetricType] = field(default_factory=set)
    chunks: deque[list[tuple[str, float]]] = field(default_factory=deque)

    def add(self, place: str, series: Series) -> None:
        self.kinds.add(series.kind)
        if not self.chunks or len(self.chunks[-1]) == _SAMPLES:
            self.chunks.append([])
        self.chunks[-1].append((place, series.value))


def _client_families(node: Node) -> Families:
    """The series of all clients by name. Clients choose the kinds of their metrics. If metrics of
    one name have several kinds, their family is untyped."""
    by_name: dict[str, _Named] = {}
    clients = yield from in_order(node.telemetry.series.ids())
    for instance_id in clients:
        yield PAUSE
        client = node.telemetry.series.get(instance_id)
        if client is None:
            # The client was removed during a pause.
            continue
        own = client_labels(client.attributes)
        for number, ((name, labels), series) in enumerate(list(client.series.items()), 1):
            # Clients push NaN for values that they have not measured yet.
            if math.isfinite(series.value):
                place = labels_text(
                    [*own, *(label for label, _ in labels)],
                    [*own.values(), *(value for _, value in labels)],
                )
                by_name.setdefault(name, _Named(series.source)).add(place, series)
            if number % _SAMPLES == 0:
                yield PAUSE
    names = yield from in_order(by_name)
    for name in names:
        found = by_name.pop(name)
        family = _family(name, found.source, found.kinds)
        while found.chunks:
            # Each chunk is removed from the list after its use, so that the memory is also freed in
            # steps.
            for place, value in found.chunks.popleft():
                family.add_line(place, value)
            yield PAUSE
        yield family


def _family(name: str, source: str, kinds: set[MetricType]) -> Family:
    text = f"Pushed by clients as {source}."
    if len(kinds) > 1:
        return _Untyped(name, text)
    if kinds == {MetricType.COUNTER}:
        return Counter(name.removesuffix(_TOTAL), text)
    return Gauge(name, text)
