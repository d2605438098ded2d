"""Responses to acknowledgements that arrive after another member has finished the records
(KIP-932).

Java's consumer and ours are tried with our broker and with Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import kafka_cluster
from broker_proxy import BrokerProxy
from foreign_programs import converse
from killable import killable
from odradek import Admin, ConfigResource, NewTopic, Producer, ShareConsumer, ShareRecord
from odradek.errors import LockExpired, NotLeader
from odradek_protocol.keys import ApiKey

pytestmark = [pytest.mark.kafka, pytest.mark.own_broker]

PROGRAM = Path(__file__).parent / "java" / "ShareFaults.java"
RECORDS = 5
ONCE = "{0=1, 1=1, 2=1, 3=1, 4=1}"
TWICE = "{0=2, 1=2, 2=2, 3=2, 4=2}"
LOCK_MS = 3_000
SETTINGS = {"group.share.min.record.lock.duration.ms": "1000"}


@pytest.fixture(scope="module", params=["ours", "kafka"])
def proxy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProxy]:
    """The proxy through which all clients reach the broker."""
    proxy = BrokerProxy()
    settings = {**SETTINGS, "advertised.listeners": f"PLAINTEXT://{proxy.address}"}
    with killable(request.param, tmp_path_factory.mktemp("behind"), settings) as broker:
        proxy.port = int(broker.address.rpartition(":")[2])
        yield proxy
        proxy.close()


@pytest.fixture(params=["connection", "lock"])
def lost(request: pytest.FixtureRequest) -> str:
    """The loss by which the first member's locks end: the connection is cut, or the lock
    expires."""
    kind: str = request.param
    return kind


@pytest.fixture
async def topic(proxy: BrokerProxy, unique_topic: str, lost: str) -> str:
    """A topic with records; the share group has the same name."""
    proxy.reset()
    async with Admin(bootstrap_servers=proxy.address) as admin:
        await admin.create_topics([NewTopic(unique_topic, 1)])
        settings = {"share.auto.offset.reset": "earliest"}
        if lost == "lock":
            settings["share.record.lock.duration.ms"] = str(LOCK_MS)
        await admin.alter_configs({ConfigResource.group(unique_topic): settings})
    # One batch, so that one poll returns all records.
    async with Producer(bootstrap_servers=proxy.address, linger_ms=60_000) as producer:
        for number in range(RECORDS):
            await producer.send(unique_topic, b"%d" % number)
    return unique_topic


def end_locks(proxy: BrokerProxy, lost: str) -> None:
    """End the locks of the member that has fetched: cut its connection, or do nothing, so that the
    locks expire."""
    if lost == "connection":
        proxy.cut(ApiKey.SHARE_FETCH)


def test_k65_javas_consumer_refuses_an_answer_only_if_its_session_was_lost(
    proxy: BrokerProxy, topic: str, lost: str, tmp_path: Path
) -> None:
    assert converse(
        *(kafka_cluster.java(), "-Xmx256m", "-Dorg.apache.logging.log4j.level=OFF"),
        *("-cp", kafka_cluster.class_path(), str(PROGRAM)),
        *(proxy.address, topic, topic, str(RECORDS), "finish"),
        folder=tmp_path,
        do=lambda _: end_locks(proxy, lost),
    ) == [
        f"the first has: {ONCE}",
        f"the second has: {TWICE}",
        "the second is told: ok",
        f"the first is told: {'NotLeaderOrFollowerException' if lost == 'connection' else 'ok'}",
    ]


async def test_k65_our_consumer_refuses_an_answer_to_a_record_that_it_has_lost(
    proxy: BrokerProxy, topic: str, lost: str
) -> None:
    def member() -> ShareConsumer:
        return ShareConsumer(
            topic,
            bootstrap_servers=proxy.address,
            group_id=topic,
            share_acknowledgement_mode="explicit",
        )

    async def taken(consumer: ShareConsumer) -> list[ShareRecord]:
        records: list[ShareRecord] = []
        while len(records) < RECORDS:
            records += await consumer.poll(500)
        return records

    async with member() as first, member() as second:
        held = await taken(first)
        end_locks(proxy, lost)
        again = await taken(second)
        assert [record.delivery_count for record in again] == [2] * RECORDS
        for record in again:
            record.reject()
        assert list((await second.commit()).values()) == [None]
        for record in held:
            record.accept()
        await first.commit()
        refusal = NotLeader if lost == "connection" else LockExpired
        assert all(isinstance(record.error, refusal) for record in held)
        assert all(record.error is None for record in again)
