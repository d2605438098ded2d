"""Quotas with foreign clients and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from odradek import NewTopic, sync
from odradek_client.admin import QuotaEntity

DEADLINE_S = 60.0
#: The allowed bytes/s. A value of 110 KB exceeds the 100 KB of a quota window of ten seconds, so
#: the throttle time is about a second.
RATE = 10_000
VALUE = b"x" * 110_000


def limit(address: str, client_id: str, **quotas: float) -> None:
    with sync.Admin(bootstrap_servers=address) as admin:
        admin.alter_client_quotas({QuotaEntity(client_id=client_id): quotas})


def test_n11_q07_librdkafka_is_told_that_it_is_throttled(
    address: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    limit(address, topic, producer_byte_rate=RATE)
    waits: list[Any] = []
    problems: list[Any] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "client.id": topic, "throttle_cb": waits.append}
    )
    for _ in range(2):
        producer.produce(topic, VALUE, on_delivery=lambda problem, _: problems.append(problem))
        assert producer.flush(DEADLINE_S) == 0
    assert problems == [None, None]
    assert waits
    assert waits[0].broker_id == 1
    assert waits[0].throttle_time > 0


@pytest.mark.full
def test_q08_a_throttled_librdkafka_reads_every_record(
    address: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    with sync.Producer(bootstrap_servers=address) as producer:
        for number in range(12):
            producer.send(topic, VALUE[:10_000] + b"%d" % number)
    limit(address, topic, consumer_byte_rate=RATE)
    waits: list[Any] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "client.id": topic,
            "group.id": topic,
            "fetch.message.max.bytes": 20_000,
            "throttle_cb": waits.append,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while len(values) < 12:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        values.append(message.value() or b"")
    consumer.close()
    assert [value[10_000:] for value in values] == [b"%d" % number for number in range(12)]
    assert waits


@pytest.mark.full
def test_n11_our_throttled_client_waits_and_loses_no_record(
    address: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    limit(address, topic, producer_byte_rate=RATE)
    with sync.Producer(bootstrap_servers=address, client_id=topic) as producer:
        offsets = [producer.send_and_wait(topic, VALUE[:60_000]).offset for _ in range(3)]
    assert offsets == [0, 1, 2]


def test_q10_our_admin_retries_topics_refused_by_a_quota(
    address: str, new_topic: Callable[..., str]
) -> None:
    name = new_topic()
    # The token bucket holds 22 tokens, and gains two per second.
    limit(address, name, controller_mutation_rate=2)
    with sync.Admin(bootstrap_servers=address, client_id=name) as admin:
        admin.create_topics(NewTopic(f"{name}-a", partitions=23))
        admin.create_topics(NewTopic(f"{name}-b"))
        assert {f"{name}-a", f"{name}-b"} <= set(admin.list_topics())
