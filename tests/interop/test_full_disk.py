"""Clients of a broker with a full disk.

A commit by librdkafka fails soon, and the consumer stays a member. Acknowledgements of a share
group have no result until there is room again. An admin request that is retried does not write a
log line for each attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from odradek import NewTopic, sync
from odradek.broker import SubprocessBroker
from odradek.faults import Faults
from odradek_client.admin import Admin, ConfigResource
from odradek_client.errors import OdradekError, RequestTimedOut
from odradek_client.share.consumer import ShareConsumer
from odradek_client.share.record import DeliveryState, ShareRecord
from waiting import wait_until

TIMEOUT_S = 20.0
pytestmark = pytest.mark.own_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[SubprocessBroker]:
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.share.heartbeat.interval.ms": 300,
        "group.share.min.heartbeat.interval.ms": 300,
        "num.partitions": 1,
    }
    with SubprocessBroker(testing=True, settings=settings) as broker:
        produce(broker)
        yield broker


def produce(broker: SubprocessBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"x")
    assert producer.flush(TIMEOUT_S) == 0


@pytest.fixture
def faults(broker: SubprocessBroker) -> Iterator[Faults]:
    yield broker.faults
    broker.faults.clear()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_o03_a_commit_on_a_full_disk_keeps_the_membership(
    broker: SubprocessBroker, faults: Faults, protocol: str
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": protocol,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    wait_until(lambda: consumer.poll(0.1) is not None, "the record is read")
    member = consumer.memberid()
    offsets = [TopicPartition("t", 0, 1)]
    faults.full_disk()
    for _ in range(3):
        with pytest.raises(KafkaException) as caught:
            consumer.commit(offsets=offsets, asynchronous=False)
        assert caught.value.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
    faults.clear()
    consumer.commit(offsets=offsets, asynchronous=False)
    assert [each.offset for each in consumer.committed(offsets, TIMEOUT_S)] == [1]
    assert consumer.memberid() == member
    consumer.close()


async def test_h159_an_acknowledgement_on_a_full_disk_succeeds_when_there_is_room(
    broker: SubprocessBroker, faults: Faults
) -> None:
    # With "latest", the group would skip a record that is produced before its first fetch.
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        earliest = {"share.auto.offset.reset": "earliest"}
        await admin.alter_configs({ConfigResource.group("share"): earliest})
    async with ShareConsumer(
        "t",
        bootstrap_servers=broker.bootstrap,
        group_id="share",
        share_acknowledgement_mode="explicit",
    ) as consumer:
        records: list[ShareRecord] = []
        async with asyncio.timeout(TIMEOUT_S):
            while not records:
                records = await consumer.poll(500)
        await asyncio.to_thread(faults.full_disk)
        for record in records:
            record.accept()
        with pytest.raises(RequestTimedOut):
            await consumer.commit(timeout_ms=500)
        assert [record.state for record in records] == [DeliveryState.ANSWERED]
        await asyncio.to_thread(faults.clear)
        assert list((await consumer.commit()).values()) == [None]
        assert [record.state for record in records] == [DeliveryState.DONE]


def test_repeated_admin_requests_do_not_fill_the_log(
    broker: SubprocessBroker, faults: Faults
) -> None:
    with sync.Admin(
        bootstrap_servers=broker.bootstrap, default_api_timeout_ms=1000, retry_backoff_ms=50
    ) as admin:
        faults.full_disk()
        lines = broker.log_tail().count("\n")
        for _ in range(3):
            with pytest.raises(OdradekError):
                admin.create_topics([NewTopic("not-there", 1, 1)])
        assert broker.log_tail().count("\n") <= lines + 1
        faults.clear()
        admin.create_topics([NewTopic("there", 1, 1)])
        assert "there" in admin.list_topics()
