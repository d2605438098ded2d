"""Injected faults of share groups as Java's share consumer sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafka_cluster
from foreign_programs import converse
from odradek import Admin, ConfigResource, NewTopic, Producer
from odradek.broker import SubprocessBroker
from odradek.faults import ExpiredLock

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker]

PROGRAM = Path(__file__).parent / "java" / "ShareFaults.java"
RECORDS = 5
ONCE = "{0=1, 1=1, 2=1, 3=1, 4=1}"
TWICE = "{0=2, 1=2, 2=2, 3=2, 4=2}"


@pytest.fixture(scope="module")
def broker() -> Iterator[SubprocessBroker]:
    with SubprocessBroker(testing=True) as broker:
        yield broker


@pytest.fixture
async def topic(broker: SubprocessBroker, unique_topic: str) -> str:
    """A topic with records; the share group has the same name."""
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(unique_topic, 1)])
        settings = {"share.auto.offset.reset": "earliest"}
        await admin.alter_configs({ConfigResource.group(unique_topic): settings})
    # One batch, so that one poll returns all records.
    async with Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000) as producer:
        for number in range(RECORDS):
            await producer.send(unique_topic, b"%d" % number)
    return unique_topic


def printed(
    broker: SubprocessBroker, topic: str, fault: str, folder: Path, do: Callable[[str], None]
) -> list[str]:
    """Run the program, and return its output. The program asks for a fault, which `do` injects."""
    return converse(
        *(kafka_cluster.java(), "-Xmx256m", "-Dorg.apache.logging.log4j.level=OFF"),
        *("-cp", kafka_cluster.class_path(), str(PROGRAM)),
        *(broker.bootstrap, topic, topic, str(RECORDS), fault),
        folder=folder,
        do=do,
    )


def test_records_of_an_expired_lock_go_to_the_other_member(
    broker: SubprocessBroker, topic: str, tmp_path: Path
) -> None:
    expired: list[ExpiredLock] = []

    def expire(_: str) -> None:
        expired.extend(broker.faults.expire_lock(topic, topic, 0))

    assert printed(broker, topic, "expire", tmp_path, expire) == [
        f"the first has: {ONCE}",
        f"the second has: {TWICE}",
        "the first is told: InvalidRecordStateException",
        "the second is told: ok",
    ]
    assert expired == [ExpiredLock(topic, 0, 0, RECORDS - 1)]


@pytest.mark.parametrize("handled", [True, False])
def test_a_lost_acknowledgement_may_have_taken_effect(
    broker: SubprocessBroker, topic: str, tmp_path: Path, handled: bool
) -> None:
    def lose(_: str) -> None:
        broker.faults.lose_acknowledgement(topic, topic, handled=handled)

    # Java's client does not retry, because its share session has ended with the lost connection.
    assert printed(broker, topic, "lose", tmp_path, lose) == [
        "it is told: UnknownServerException",
        f"it has again: {'{}' if handled else TWICE}",
        f"it is told: {'' if handled else 'ok'}",
    ]
    assert [each for each in broker.faults.list() if each.left] == []
