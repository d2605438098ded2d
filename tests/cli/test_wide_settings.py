"""Settings of topics and brokers with their explanations: every line fits."""

from __future__ import annotations

import json

import pytest

from cli_runner import Commands


@pytest.fixture
def odradek(live_bootstrap: str) -> Commands:
    return Commands(live_bootstrap)


def widest(output: str) -> int:
    return max(map(len, output.splitlines()))


def test_every_setting_of_a_topic_is_on_its_own_line(odradek: Commands, unique_topic: str) -> None:
    odradek.run("topic", "create", unique_topic, "--config", "retention.ms=1000")
    (row,) = odradek.rows("topic", "describe", unique_topic, "--all-configs")
    shown = odradek.run("topic", "describe", unique_topic, "--all-configs")
    assert widest(shown) <= 100
    head, _, rest = shown.partition("\n  Configs:\n")
    assert "ReplicationFactor: 1" in head
    settings, _, table = rest.partition("PARTITION")
    assert settings.splitlines() == [
        f"    {each['name']}={each['value']}" for each in row["configs"]
    ]
    assert "    retention.ms=1000\n" in settings and table
    # Short settings are on one line: the line of the topic if it has room, as in Kafka's tool, or
    # the next line.
    short = odradek.run("topic", "describe", unique_topic)
    assert widest(short) <= 100
    configs = next(line for line in short.splitlines() if "Configs:" in line)
    assert "retention.ms=1000" in configs
    assert ("TopicId:" in configs) == (len(short.splitlines()) == 3)


@pytest.mark.parametrize("kind", ["topic", "broker"])
def test_explanations_are_printed_below_their_settings(
    odradek: Commands, unique_topic: str, kind: str
) -> None:
    odradek.run("topic", "create", unique_topic)
    name = unique_topic if kind == "topic" else "1"
    shown = odradek.run("config", "describe", kind, name, "--all", "--doc")
    assert widest(shown) <= 100
    assert shown.startswith(f"{kind} {name}\n  ")
    rows = odradek.rows("config", "describe", kind, name, "--all", "--doc")
    words = " ".join(shown.split())
    for row in rows:
        value = "-" if row["value"] in (None, "") else row["value"]
        if len(str(value)) < 60 and not row["sensitive"]:
            assert f"{row['name']}={value} ({row['source']}) {row['documentation']}" in words


def test_json_output_is_one_line_with_all_settings(odradek: Commands, unique_topic: str) -> None:
    odradek.run("topic", "create", unique_topic)
    (line,) = odradek.run("topic", "describe", unique_topic, "--all-configs", "--json").splitlines()
    assert len(json.loads(line)["configs"]) > 20
