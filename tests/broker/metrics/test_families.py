"""Families of metrics as text: read again by Prometheus' own parser."""

from __future__ import annotations

import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek_broker.metrics.families import (
    PAUSE,
    Counter,
    Family,
    Gauge,
    HistogramFamily,
    Summary,
    in_order,
)


def read(family: Family) -> tuple[str, str, dict[tuple[str, str], float]]:
    """(type, help, values by name and labels) of the family, as Prometheus' parser reads its
    text."""
    (found,) = text_string_to_metric_families(family.encoded().decode())
    samples = {
        (each.name, ",".join(f"{k}={v}" for k, v in sorted(each.labels.items()))): each.value
        for each in found.samples
    }
    return found.type, found.documentation, samples


def test_prometheus_parser_reads_each_kind_of_family() -> None:
    gauge = Gauge("a", "Text.", ["x", "y"])
    gauge.add_metric(["1", "2"], 3)
    assert read(gauge) == ("gauge", "Text.", {("a", "x=1,y=2"): 3})
    assert read(Gauge("a", "", value=0)) == ("gauge", "", {("a", ""): 0})
    assert read(Counter("c", "N.", value=2**40)) == ("counter", "N.", {("c_total", ""): 2**40})
    summary = Summary("s", "", ["g"])
    summary.add_summary(["a"], 2, 0.25)
    assert read(summary)[2] == {("s_count", "g=a"): 2, ("s_sum", "g=a"): 0.25}
    assert read(Summary("s", "", (), 2, 5))[2] == {("s_count", ""): 2, ("s_sum", ""): 5}
    histogram = HistogramFamily("h", "", ["g"])
    histogram.add_buckets(["a"], [("0.1", 1), ("+Inf", 4)], 7.5)
    assert read(histogram)[2] == {
        ("h_bucket", "g=a,le=0.1"): 1,
        ("h_bucket", "g=a,le=+Inf"): 4,
        ("h_count", "g=a"): 4,
        ("h_sum", "g=a"): 7.5,
    }


@pytest.mark.parametrize("value", ['a"b', "a\\b", "a\nb", "\\n", "ä€", ""])
def test_labels_and_help_texts_are_escaped(value: str) -> None:
    gauge = Gauge("a", f"About {value}.", ["x"])
    gauge.add_metric([value], 1)
    _, about, samples = read(gauge)
    assert samples == {("a", f"x={value}"): 1}
    if '"' not in value:
        assert about == f"About {value}."


def test_a_family_refuses_too_many_label_values() -> None:
    with pytest.raises(ValueError, match="zip"):
        Gauge("a", "", ["x"]).add_metric(["1", "2"], 1)


def test_a_large_family_is_rendered_in_parts() -> None:
    gauge = Gauge("a", "", ["x"])
    for number in range(2_500):
        gauge.add_metric([str(number)], number)
    parts = list(gauge.parts())
    assert len(parts) == 3 and all(part.endswith(b"\n") for part in parts)
    (found,) = text_string_to_metric_families(b"".join(parts).decode())
    assert len(found.samples) == 2_500
    assert gauge.encoded() == b""


def test_keys_are_sorted_with_pauses() -> None:
    keys = random.Random(5).sample(range(100_000), 5_500)
    steps = in_order(keys)
    pauses = 0
    while True:
        try:
            assert next(steps) is PAUSE
        except StopIteration as end:
            assert list(end.value) == sorted(keys)
            break
        pauses += 1
    assert pauses == 6
