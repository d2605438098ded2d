"""librdkafka's consumer at a broker with a full disk: a commit fails soon, and the consumer stays a
member."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from odradek.broker import SubprocessBroker
from odradek.faults import Faults
from waiting import wait_until

TIMEOUT_S = 20.0
pytestmark = pytest.mark.own_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[SubprocessBroker]:
    settings = {"group.initial.rebalance.delay.ms": 0, "num.partitions": 1}
    with SubprocessBroker(testing=True, settings=settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"x")
        assert producer.flush(TIMEOUT_S) == 0
        yield broker


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
