"""Produce: sunny paths and what a partition refuses."""

from __future__ import annotations

from tests.oracle.script import Ask, Batch, Scenario, fetch_body, produce_body, produced, topic

SCENARIOS = [
    Scenario(
        "produce-and-fetch",
        "Produce",
        [
            *topic(),
            Ask("Produce", produce_body(Batch(["a", "b", "c"]))),
            Ask("Produce", produce_body(Batch(["d"]), acks=1)),
            Ask("Fetch", fetch_body()),
        ],
        versions="3-13",
    ),
    Scenario(
        "produce-to-unknown-topic",
        "Produce",
        [*topic(), Ask("Produce", produce_body(Batch(), name="@unknown"))],
        versions="3-12",
    ),
    Scenario(
        "produce-acks-two",
        "Produce",
        [*topic(), Ask("Produce", produce_body(Batch(), acks=2))],
        versions="3-13",
    ),
    Scenario(
        "fetch-from-start",
        "Fetch",
        [*topic(), produced(Batch(["a", "b"])), Ask("Fetch", fetch_body())],
        versions="4-18",
    ),
    Scenario(
        "fetch-out-of-range",
        "Fetch",
        [*topic(), produced(Batch(["a", "b"])), Ask("Fetch", fetch_body(offset=5))],
        versions="4-18",
    ),
]
