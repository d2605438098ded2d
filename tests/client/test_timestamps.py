"""Durations as texts, in the form that Java, and so Kafka's tools and clients, accept."""

from __future__ import annotations

import pytest

from odradek_protocol.settings import parse_iso_duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("P2D", 172_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("pt1h", 3_600_000),
        ("PT0S", 0),
        ("PT1,5S", 1_500),
        ("PT1.S", 1_000),
        ("PT1.123456789S", 1_124),
        ("PT0.0005S", 1),
        ("PT-0.5S", -500),
        ("-PT0.5S", -500),
        ("-PT-0.5S", 500),
        ("-PT1H", -3_600_000),
        ("PT-1H", -3_600_000),
        ("P+1DT-3H", 75_600_000),
        ("+P1D", 86_400_000),
        ("P106751991167D", 9_223_372_036_828_800_000),
    ],
)
def test_iso_durations_are_parsed(text: str, duration_ms: int) -> None:
    assert parse_iso_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text",
    [
        *("", "P", "PT", "P1DT", "P1W", "P1M", "P1Y", "1H", "PT1", "PT.5S", "PT1.0000000001S"),
        *("P1.5D", "PT1.5H", "PT1S1M", "PT1H ", " PT1H", "PT1H\n", "P\uff11D", "PT1\u017f"),
        *("--PT1H", "PT" + "9" * 5_000 + "S"),
    ],
)
def test_texts_that_java_refuses_as_durations(text: str) -> None:
    assert parse_iso_duration_ms(text) is None
