"""`odradek client-metrics`, with a librdkafka that pushes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from cli_runner import Commands
from odradek.broker import SubprocessBroker
from waiting import wait_until


@pytest.fixture
def broker() -> Iterator[SubprocessBroker]:
    with SubprocessBroker(settings={"log.durability": "page-cache"}) as broker:
        yield broker


@pytest.fixture
def odradek(broker: SubprocessBroker) -> Commands:
    return Commands(broker.bootstrap)


pytestmark = pytest.mark.own_broker


def test_m03_subscriptions_are_made_described_and_deleted(odradek: Commands) -> None:
    odradek.run("client-metrics", "list")
    assert "there is no subscription" in odradek.stderr
    odradek.run(
        *("client-metrics", "alter", "s", "--metrics", "a.,b.", "--interval", "1000"),
        *("--match", "client_id=x.*,client_software_name=y"),
    )
    assert odradek.run("client-metrics", "list") == "s\n"
    assert odradek.rows("client-metrics", "list") == [{"name": "s"}]
    (row,) = odradek.rows("client-metrics", "describe")
    assert row == {
        "name": "s",
        "metrics": "a.,b.",
        "interval.ms": "1000",
        "match": "client_id=x.*,client_software_name=y",
    }
    odradek.run("client-metrics", "alter", "s", "--interval", "", "--match", "")
    assert odradek.table("client-metrics", "describe", "s") == [
        ["NAME", "METRICS", "INTERVAL.MS", "MATCH"],
        ["s", "a.,b.", "300000", "-"],
    ]
    made = odradek.run("client-metrics", "alter", "--generate-name", "--metrics", "*").strip()
    assert sorted(odradek.run("client-metrics", "list").split()) == sorted(["s", made])
    for name in ("s", made):
        odradek.run("client-metrics", "delete", "--", name)
    assert odradek.run("client-metrics", "list") == ""
    odradek.run("client-metrics", "describe")
    assert "there is no subscription" in odradek.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["alter"], 2, "NAME or --generate-name"),
        (["alter", "s", "--generate-name", "--metrics", "*"], 2, "NAME or --generate-name"),
        (["alter", "s"], 2, "nothing to change"),
        (["alter", "s", "--interval", "99"], 1, "between 100 and 3600000"),
        (["alter", "s", "--match", "color=red"], 1, "client_software_name"),
        (["delete", "s"], 1, "no subscription 's'"),
        (["describe", "s"], 1, "no subscription 's'"),
        (["show", "short"], 1, "22 characters"),
        (["show", "mcWZLyBFQLaDCSRTR2Jn6A"], 1, "no client with the instance id"),
    ],
)
def test_wrong_client_metrics_options_are_explained(
    odradek: Commands, words: list[str], code: int, says: str
) -> None:
    odradek.run("client-metrics", *words, code=code)
    assert says in odradek.stderr


def test_m20_m30_the_metrics_of_librdkafka_are_shown(
    odradek: Commands, broker: SubprocessBroker
) -> None:
    odradek.run("client-metrics", "show")
    assert "no client pushes" in odradek.stderr
    odradek.run("client-metrics", "alter", "s", "--metrics", "*", "--interval", "100")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "the-producer"}
    )
    rows: list[dict[str, Any]] = []

    def pushed() -> bool:
        producer.produce("t", b"value")
        producer.flush(10)
        rows[:] = odradek.rows("client-metrics", "show")
        return any(row["pushes"] and row["series"] for row in rows)

    wait_until(pushed, "a push")
    (row,) = rows
    assert row["client_id"] == "the-producer"
    assert row["software_name"] == "confluent-kafka-python" and not row["gone"]
    assert row["subscribed"] == ["*"] and row["push_interval_ms"] == 100
    client, *metrics = odradek.rows("client-metrics", "show", row["client_instance_id"])
    assert client["client_instance_id"] == row["client_instance_id"]
    by_source = {each["source"]: each for each in metrics}
    made = by_source["org.apache.kafka.producer.connection.creation.total"]
    assert made["name"] == "kafka_client_producer_connection_creation_total"
    assert made["kind"] == "counter"
    assert any(each["value"] > 0 for each in metrics)
    table = odradek.run("client-metrics", "show", row["client_instance_id"])
    assert "org.apache.kafka.producer.connection.creation.total" in table
    assert "the-producer" in odradek.stderr
    assert "the-producer" in odradek.run("client-metrics", "show")
