"""`odradek cluster`, `config` and `topic trim` against a broker in another process."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli_runner import Commands
from odradek import NewTopic, sync


@pytest.fixture
def odradek(live_bootstrap: str) -> Commands:
    return Commands(live_bootstrap)


@pytest.fixture
def topic(live_bootstrap: str, unique_topic: str) -> str:
    """A topic with ten records in partition 0, one a second from 2024 on, and five in partition
    1."""
    begin_ms = round(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
    with (
        sync.Admin(bootstrap_servers=live_bootstrap) as admin,
        sync.Producer(bootstrap_servers=live_bootstrap) as producer,
    ):
        admin.create_topics(NewTopic(unique_topic, 2))
        for partition, count in ((0, 10), (1, 5)):
            for second in range(count):
                at_ms = begin_ms + 1000 * second
                producer.send(unique_topic, b"x", partition=partition, timestamp_ms=at_ms)
    return unique_topic


def test_a_cluster_is_shown_with_its_disks_and_features(odradek: Commands, topic: str) -> None:
    head, columns, node, _, features, *_ = odradek.table("cluster")
    assert (head[0], head[2:]) == ("Cluster:", ["Controller:", "1", "Nodes:", "1"])
    assert columns == [
        "NODE", "HOST", "PORT", "RACK", "LOG-DIR", "PARTITIONS", "SIZE", "FREE", "OF"
    ]  # fmt: skip
    assert node[:2] == ["1", "127.0.0.1"]
    assert features == ["FEATURE", "LEVEL", "SUPPORTED"]
    (found,) = odradek.rows("cluster")
    (only,) = found["nodes"]
    assert only["controller"] and only["log_dirs"][0]["size_bytes"] > 0
    assert found["features"]["transaction.version"] == {"level": 2, "supported": [0, 2]}
    assert ["ApiVersions", "0-4"] in odradek.table("cluster", "--apis")


@pytest.mark.own_broker
def test_settings_are_set_shown_with_their_source_and_deleted(
    odradek: Commands, topic: str
) -> None:
    # The settings of the fixture's broker are from its command line.
    in_sync, row = odradek.rows("config", "describe", "topic", topic)
    assert (row["name"], row["value"], row["source"]) == ("retention.ms", "-1", "static-broker")
    assert (in_sync["name"], in_sync["source"]) == ("min.insync.replicas", "dynamic-default-broker")
    odradek.run("config", "set", "topic", topic, "retention.ms=86400000", "max.message.bytes=2000")
    assert f"set retention.ms=86400000 of topic {topic}\n" in odradek.stderr
    assert odradek.table("config", "describe", "topic", topic) == [
        ["TOPIC", "NAME", "VALUE", "SOURCE"],
        [topic, "max.message.bytes", "2000", "dynamic-topic"],
        [topic, "min.insync.replicas", "1", "dynamic-default-broker"],
        [topic, "retention.ms", "86400000", "dynamic-topic"],
    ]
    odradek.run("config", "delete", "topic", topic, "retention.ms")
    first, _, last = odradek.rows("config", "describe", "topic", topic)
    assert (first["name"], first["source"]) == ("max.message.bytes", "dynamic-topic")
    assert (last["name"], last["source"]) == ("retention.ms", "static-broker")
    (row,) = odradek.rows("config", "describe", "topic", topic, "--key", "cleanup.policy")
    assert (row["value"], row["default"]) == ("delete", True)
    assert len(odradek.rows("config", "describe", "topic", topic, "--all")) > 10


def test_settings_of_brokers_are_shown_by_node_or_for_all(odradek: Commands) -> None:
    names = {row["name"] for row in odradek.rows("config", "describe", "broker")}
    assert "log.dirs" in names
    odradek.run("config", "describe", "broker", "default")
    odradek.run("config", "describe", "broker", "7", code=1)
    assert "there is no broker '7'; give one of 1, or `default` for all" in odradek.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("set topic {} retention.ms=soon", 1, "retention.ms"),
        ("set topic {} nonsense=1", 1, "nonsense"),
        ("set topic nobody retention.ms=1", 1, "nobody"),
        ("set topic {} retention.ms", 2, "'retention.ms' must be KEY=VALUE"),
        ("delete topic {} retention.ms=1", 2, "without a value"),
        ("describe planet {}", 2, "planet"),
    ],
)
def test_wrong_config_arguments_are_explained(
    odradek: Commands, topic: str, words: str, code: int, says: str
) -> None:
    odradek.run("config", *words.format(topic).split(), code=code)
    assert says in odradek.stderr


def test_topic_trim_is_a_plan_until_it_is_executed(odradek: Commands, topic: str) -> None:
    assert odradek.table("topic", "trim", f"{topic}:0", "--to-offset", "4") == [
        ["TOPIC", "PARTITION", "LOG-START-OFFSET", "NEW-START-OFFSET", "LOG-END-OFFSET", "GONE"],
        [topic, "0", "0", "4", "10", "4"],
    ]
    assert "nothing was deleted: this is the plan" in odradek.stderr
    odradek.run("topic", "trim", f"{topic}:0", "--to-offset", "4", "--execute")
    assert odradek.stderr == ""

    def starts() -> list[int]:
        (row,) = odradek.rows("topic", "describe", topic)
        return [each["log_start_offset"] for each in row["partitions"]]

    assert starts() == [4, 0]
    odradek.run("topic", "trim", topic, "--before", "2024-01-01T00:00:07Z", "--execute")
    assert starts() == [7, 5], "partition 1 has nothing that is younger"
    odradek.run("topic", "trim", topic, "--all", "--execute")
    assert starts() == [10, 5]
    rows = odradek.rows("topic", "trim", topic, "--all")
    assert [row["gone"] for row in rows] == [0, 0]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("{}:0 --to-offset 11 --execute", 1, "{}-0 ends at 10: there is no offset 11"),
        ("{}:5 --all", 1, "topic '{}' has no partition 5; it has 2"),
        ("nobody --all", 1, "nobody"),
        ("{}", 2, "say up to where, once"),
        ("{} --all --to-offset 1", 2, "say up to where, once"),
        ("{} --before yesterday", 2, "yesterday"),
        ("__consumer_offsets --all --execute", 1, "is the brokers' own; clients may not"),
    ],
)
def test_wrong_trim_arguments_are_explained(
    odradek: Commands, topic: str, words: str, code: int, says: str
) -> None:
    odradek.run("group", "reset-offsets", topic, "--topic", topic, "--to-latest", "--execute")
    odradek.run("topic", "trim", *words.format(topic).split(), code=code)
    assert says.format(topic) in odradek.stderr


@pytest.mark.own_broker
def test_a79_levels_of_loggers_are_shown_set_and_deleted(odradek: Commands) -> None:
    def level(name: str) -> str:
        (row,) = odradek.rows("config", "describe", "broker-logger", "1", "--key", name)
        assert row["source"] == "dynamic-broker-logger"
        return str(row["value"])

    shown = {row["name"] for row in odradek.rows("config", "describe", "broker-logger")}
    assert {"root", "odradek", "odradek.groups", "odradek.tls"} <= shown
    before = level("odradek.groups")
    odradek.run("config", "set", "broker-logger", "1", "odradek.groups=ERROR")
    assert "set odradek.groups=ERROR of broker-logger 1" in odradek.stderr
    assert (level("odradek.groups"), level("odradek.tls")) == ("ERROR", before)
    odradek.run("config", "delete", "broker-logger", "1", "odradek.groups")
    assert level("odradek.groups") == before
    odradek.run("config", "set", "broker-logger", "1", "odradek.groups=verbose", code=1)
    assert "TRACE, DEBUG, INFO, WARN, ERROR, FATAL" in odradek.stderr
    odradek.run("config", "set", "broker-logger", "default", "odradek.groups=INFO", code=1)
    assert "there is no broker 'default'; give one of 1\n" in odradek.stderr
