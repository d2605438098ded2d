"""The metrics that clients push: any bytes are read or refused, and accepted metrics can be served
(M-12, M-13, M-20).

The first byte chooses the compression. Accepted metrics are also stored as series of clients: the
limits on series must hold, and the parser of Prometheus must read the text of /metrics.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from tests.adversity.fuzz.target import Broken, Target

import otlp_messages as otlp
from odradek_broker.metrics.families import Family, Gauge, labels_text
from odradek_broker.telemetry.otlp import (
    ATTRIBUTES_MAX,
    TEXT_CHARACTERS_MAX,
    MetricsError,
    Points,
    read_metrics,
)
from odradek_broker.telemetry.series import ClientSeries, SeriesLimits
from odradek_broker.telemetry.subscriptions import ClientAttributes
from odradek_protocol.compression import Codec, compress

_POINTS_MAX = 50
_SERIES_MAX = 20
_CLIENT = ClientAttributes("id", "client", "software", "1", "host", "1")


def _served(points: Points) -> None:
    series = ClientSeries(lambda: SeriesLimits(_SERIES_MAX, _SERIES_MAX))
    series.push(b"a", _CLIENT, "user", points, 1, 0)
    series.push(b"b", _CLIENT, "user", points, 1, 0)
    if series.series > _SERIES_MAX:
        raise Broken(f"{series.series} series, with a limit of {_SERIES_MAX}")
    by_name: dict[str, Family] = {}
    places: set[tuple[str, str]] = set()
    for client in [kept for each in sorted(series.ids()) if (kept := series.get(each))]:
        for (name, labels), each in client.series.items():
            place = labels_text([key for key, _ in labels], [value for _, value in labels])
            if client is series.get(b"a") and (name, place) in places:
                raise Broken(f"{name}{place} twice for one client")
            places.add((name, place))
            family = by_name.setdefault(name, Gauge(name, each.source))
            family.add_line(place, each.value)
    text = b"".join(family.encoded() for family in by_name.values()).decode()
    found = sum(len(family.samples) for family in text_string_to_metric_families(text))
    if found != series.series:
        raise Broken(f"{found} samples in /metrics of {series.series} series")


def _check(data: bytes) -> None:
    if not data:
        return
    try:
        points = read_metrics(data[0] % len(Codec), data[1:], _POINTS_MAX)
    except MetricsError:
        return
    for point in points.points:
        texts = [text for pair in point.labels for text in pair]
        if len(point.labels) > ATTRIBUTES_MAX or max(map(len, texts), default=0) > (
            TEXT_CHARACTERS_MAX + len("exported_attribute_")
        ):
            raise Broken(f"{len(point.labels)} labels with texts of any length")
        if not all(map(str.isprintable, (point.name, point.source, *texts))):
            raise Broken("characters that cannot be printed")
    _served(points)


def _seeds() -> Iterator[bytes]:
    attributes: dict[str, str | bool | int | float] = {
        "topic": "t",
        "client_id": "x",
        "9": True,
        "n": -1,
        "d": 0.5,
    }
    metrics = [
        otlp.gauge("org.apache.kafka.producer.record.queue.time.avg", otlp.point(1.5, attributes)),
        otlp.counter("a.total", otlp.point(3, {"topic": "t"}, time_ns=7), otlp.point(4)),
        otlp.counter("b", otlp.point(-1.0), temporality=otlp.CUMULATIVE, monotonic=False),
        otlp.histogram("c", 5, 2.5),
        otlp.gauge('d"\n{}', otlp.point(float("nan"), {"k\x00": 'v"\\\n'})),
    ]
    whole = otlp.metrics_data(metrics, {"group_id": "g"})
    for codec in Codec:
        yield bytes([codec]) + compress(codec, whole)
    for metric in metrics:
        yield b"\0" + otlp.metrics_data([metric])
    yield b"\0" + otlp.metrics_data(metrics * 30)
    yield bytes([Codec.GZIP]) + compress(Codec.GZIP, bytes(20 * 1024 * 1024))
    yield bytes([Codec.ZSTD]) + compress(Codec.ZSTD, otlp.metrics_data([b""] * 300_000))


TARGET = Target(_check, _seeds)
