"""Metrics that clients push, both valid and hostile."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budget
import otlp_messages as otlp
from many_cases import looped
from odradek_broker.telemetry.otlp import (
    ATTRIBUTES_MAX,
    DECOMPRESSED_BYTES_MAX,
    FIELDS_MAX,
    NAME_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
    MetricsError,
    MetricType,
    Points,
    read_metrics,
)
from odradek_protocol.compression import Codec, compress

SENT = "org.apache.kafka.producer.record.send.total"


def read(data: bytes, codec: Codec = Codec.NONE, points_max: int = 1000) -> Points:
    return read_metrics(codec, compress(codec, data), points_max)


@looped("codec", list(Codec))
def test_m12_metrics_of_every_compression_are_read(codec: Codec) -> None:
    data = otlp.metrics_data([otlp.gauge("org.apache.kafka.a.b", otlp.point(1.5))] * 3)
    assert [each.value for each in read(data, codec).points] == [1.5] * 3


def test_m20_names_and_labels_are_made_valid_for_prometheus() -> None:
    attributes: dict[str, str | bool | int | float] = {
        "topic": "orders",
        "node.id": 7,
        "ok": True,
        "rate": 0.5,
        "client_id": "mine",
    }
    data = otlp.metrics_data(
        [
            otlp.counter(SENT, otlp.point(3, attributes, time_ns=5)),
            otlp.gauge("my app/größe", otlp.point(2.5)),
        ],
        {"group_id": "readers", "1st": "x", "empty": ""},
    )
    sent, mine = read(data).points
    assert (sent.name, sent.kind, sent.delta) == (
        "kafka_client_producer_record_send_total",
        MetricType.COUNTER,
        True,
    )
    assert (sent.value, sent.time_ns, sent.source) == (3.0, 5, SENT)
    assert dict(sent.labels) == {
        "attribute_1st": "x",
        "exported_client_id": "mine",
        "group_id": "readers",
        "node_id": "7",
        "ok": "true",
        "rate": "0.5",
        "topic": "orders",
    }
    assert (mine.name, mine.kind, mine.value) == ("kafka_client_my_app_gr_e", MetricType.GAUGE, 2.5)
    assert dict(mine.labels) == {"attribute_1st": "x", "group_id": "readers"}


def test_m20_names_of_counters_end_with_total() -> None:
    data = otlp.metrics_data(
        [
            otlp.counter("a.count", otlp.point(1), temporality=otlp.CUMULATIVE),
            otlp.counter("b.size", otlp.point(-1), monotonic=False),
        ]
    )
    first, second = read(data).points
    assert (first.name, first.delta) == ("kafka_client_a_count_total", False)
    assert (second.name, second.kind, second.delta) == (
        "kafka_client_b_size",
        MetricType.GAUGE,
        True,
    )


def test_m20_the_count_and_sum_of_a_histogram_are_kept() -> None:
    data = otlp.metrics_data([otlp.histogram("latency", 4, 2.5)])
    assert [(each.name, each.value) for each in read(data).points] == [
        ("kafka_client_latency_count_total", 4.0),
        ("kafka_client_latency_sum_total", 2.5),
    ]


def test_m20_a_metric_is_read_with_its_fields_in_any_order() -> None:
    data_first = otlp.message(5, otlp.message(1, otlp.point(1.0))) + otlp.message(1, b"late.name")
    assert read(otlp.metrics_data([data_first])).points[0].name == "kafka_client_late_name"


def test_unknown_fields_are_skipped_and_points_without_a_value_left_out() -> None:
    odd = otlp.message(99, b"?") + otlp.number_field(98, 1) + otlp.double(97, 1.0)
    data = otlp.metrics_data([odd + otlp.gauge("a", otlp.point(1.0) + odd, otlp.fixed64(3, 1))])
    assert read(odd + data) == Points(read(data).points, 1)
    unrecorded = otlp.metrics_data([otlp.gauge("a", otlp.point(1.0, flags=1))])
    assert read(unrecorded).points == []


def test_control_characters_and_invalid_utf8_are_replaced() -> None:
    data = otlp.metrics_data(
        [otlp.gauge("a\x1b[31m", otlp.point(1.0, {"k\x00": "v\x1b\n", "s": "\ud800"}))]
    )
    (point,) = read(data).points
    assert point.name == "kafka_client_a_31m" and point.source.isprintable()
    assert all(value.isprintable() for _, value in point.labels)
    assert dict(point.labels)["k"] == "v\ufffd\ufffd"


def test_m13_the_length_of_texts_and_number_of_attributes_are_limited() -> None:
    many = {f"k{number:03}": "v" * 1000 for number in range(200)}
    data = otlp.metrics_data(
        [
            otlp.gauge("n" * (NAME_BYTES_MAX + 1), otlp.point(1.0)),
            otlp.gauge("", otlp.point(1.0)),
            otlp.gauge("a", otlp.point(1.0, many)),
        ]
    )
    found = read(data)
    assert found.left_out == 2
    (point,) = found.points
    assert len(point.labels) == ATTRIBUTES_MAX
    assert {len(value) for _, value in point.labels} == {TEXT_CHARACTERS_MAX}


def test_m13_points_beyond_the_limit_are_counted() -> None:
    metric = otlp.gauge("a", *[otlp.point(float(number)) for number in range(50)])
    found = read(otlp.metrics_data([metric]), points_max=20)
    assert (len(found.points), found.left_out) == (20, 30)


@pytest.mark.full
def test_m13_a_push_with_very_many_fields_is_refused() -> None:
    million = otlp.metrics_data([b""] * 1_000_000)
    with pytest.raises(MetricsError, match=f"more than {FIELDS_MAX} fields"):
        read(million, Codec.GZIP)


@looped("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_m13_a_decompression_bomb_is_refused(codec: Codec) -> None:
    bomb = compress(codec, bytes(DECOMPRESSED_BYTES_MAX + 1))
    with pytest.raises(MetricsError, match="limit"):
        read_metrics(codec, bomb, 10)


def test_m12_deeply_nested_attribute_values_are_skipped() -> None:
    value = otlp.message(1, b"text")
    for _ in range(5000):
        value = otlp.message(5, otlp.message(1, value))
    pair = otlp.message(1, b"deep") + otlp.message(2, value)
    data = otlp.metrics_data([otlp.gauge("a", otlp.point(1.0) + otlp.message(7, pair))])
    assert read(data).points[0].labels == ()


@looped(
    "data",
    [
        b"\x0a\x05\x01",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a",
        b"\x08\x80",
        b"\x09\x01",
        b"\x0d\x01",
        b"\x0b",
        b"\x0f",
        b"\x02\x00",
        otlp.message(1, otlp.message(2, b"\x12\x7f\x00")),
    ],
)
def test_m12_invalid_metrics_data_is_refused(data: bytes) -> None:
    with pytest.raises(MetricsError):
        read(data)


def test_m12_damaged_compressed_metrics_are_refused() -> None:
    with pytest.raises(MetricsError, match="gzip"):
        read_metrics(Codec.GZIP, b"\x1f\x8bnothing", 10)


def test_values_are_read_exactly_as_pushed() -> None:
    values = [math.inf, -math.inf, math.nan, 1e300, -0.0, 2**62, -(2**63), 0]
    data = otlp.metrics_data([otlp.gauge("a", *map(otlp.point, values))])
    for found, value in zip(read(data).points, values, strict=True):
        assert found.value == value or (math.isnan(found.value) and math.isnan(value))


@given(st.binary(max_size=300), st.randoms(use_true_random=False))
@settings(max_examples=budget.examples(300), deadline=None)
def test_m12_any_bytes_are_read_or_refused(noise: bytes, chance: random.Random) -> None:
    whole = bytearray(
        otlp.metrics_data([otlp.counter(SENT, otlp.point(3, {"topic": "t"}))], {"r": "x"})
    )
    for byte in noise[:8]:
        whole[chance.randrange(len(whole))] = byte
    for data in (noise, bytes(whole)):
        try:
            found = read(data)
        except MetricsError:
            continue
        assert all(point.name.startswith("kafka_client_") for point in found.points)
