"""Metrics that clients pushed, under the names kafka_client_*, and those of their taking (M-20)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from odradek_broker.metrics.families import PAUSE, Counter, Families, Family, Gauge, labels_text
from odradek_broker.node import Node
from odradek_broker.telemetry.manager import client_labels
from odradek_broker.telemetry.otlp import Kind
from odradek_broker.telemetry.series import Series

_TOTAL = "_total"
#: The samples between two places where the caller may pause.
_SAMPLES = 100


class _Untyped(Family):
    """A metric that some clients push as one kind and others as another one."""

    __slots__ = ()
    kind = "untyped"


def telemetry_families(node: Node) -> Families:
    """The series of clients, and how many there are, may be and were left out."""
    yield from _client_families(node)
    yield from _own_families(node)


def _own_families(node: Node) -> Iterator[Family]:
    telemetry, config = node.telemetry, node.metadata.config
    for name, text, value in (
        ("odradek_client_telemetry_clients", "Clients that have series.", len(telemetry.series)),
        ("odradek_client_telemetry_series", "Series of clients.", telemetry.series.series),
        (
            "odradek_client_telemetry_series_limit",
            "The most series of clients (telemetry.max.series).",
            config.telemetry_max_series,
        ),
        (
            "kafka_server_client_metrics_instance_count",
            "Client instances that have asked for a subscription.",
            len(telemetry.instances),
        ),
    ):
        yield Gauge(name, text, value=value)
    left_out = Counter(
        "odradek_client_telemetry_left_out",
        "Pushed data points that were not kept, by the limit: that of a client"
        " (telemetry.max.series.per.client), of the broker (telemetry.max.series) or of characters.",
        labels=["limit"],
    )
    for limit in ("client", "broker", "characters"):
        left_out.add_metric([limit], getattr(telemetry.series.left_out, limit))
    yield left_out
    for name, text, value in (
        ("plugin_export", "Pushes whose metrics were taken.", telemetry.taken),
        ("plugin_error", "Pushes that could not be read.", telemetry.unreadable),
        (
            "throttle",
            "Requests of clients that came before their push interval had passed.",
            telemetry.instances.counts.throttled,
        ),
        (
            "unknown_subscription_request",
            "Pushes for a subscription that has changed.",
            telemetry.instances.counts.unknown_subscription,
        ),
    ):
        yield Counter(f"kafka_server_client_metrics_{name}_count", text, value=value)


def _client_families(node: Node) -> Families:
    """The series of all clients, those of one name together. Clients choose the kinds: a name with
    several has none."""
    by_name: dict[str, list[tuple[str, Series]]] = {}
    samples = 0
    for client in list(node.telemetry.series.clients()):
        own = client_labels(client.attributes)
        for (name, labels), series in list(client.series.items()):
            # Clients push NaN for what they have not measured yet.
            if not math.isfinite(series.value):
                continue
            place = labels_text(
                [*own, *(label for label, _ in labels)],
                [*own.values(), *(value for _, value in labels)],
            )
            by_name.setdefault(name, []).append((place, series))
            samples += 1
            if samples % _SAMPLES == 0:
                yield PAUSE
    for name, found in sorted(by_name.items()):
        family = _family(name, found[0][1].source, {series.kind for _, series in found})
        for number, (place, series) in enumerate(found, 1):
            family.add_line(place, series.value)
            if number % _SAMPLES == 0:
                yield PAUSE
        yield family


def _family(name: str, source: str, kinds: set[Kind]) -> Family:
    text = f"Pushed by clients as {source}."
    if len(kinds) > 1:
        return _Untyped(name, text)
    if kinds == {Kind.COUNTER}:
        return Counter(name.removesuffix(_TOTAL), text)
    return Gauge(name, text)
