"""Each rejected record has one dead letter, even if the broker's process is killed, and even if
the member uses librdkafka."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from killable import Killable, killable
from odradek import Admin, ConfigResource, Consumer, NewTopic, Producer, Reject, ShareConsumer
from odradek.errors import OdradekError

pytestmark = pytest.mark.full

DEADLINE_S = 120.0
RECORDS = 300
KILLS = 4
SETTINGS = {
    "group.share.assignment.interval.ms": "0",
    "group.share.min.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.heartbeat.interval.ms": "200",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Killable]:
    with killable("ours", tmp_path, SETTINGS) as running:
        yield running


async def _prepare(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        allowed = {"errors.deadletterqueue.group.enable": "true"}
        await admin.create_topics([NewTopic("jobs", 2), NewTopic("dlq.jobs", 2, configs=allowed)])
        await admin.alter_configs(
            {
                ConfigResource.group("workers"): {
                    "share.auto.offset.reset": "earliest",
                    "errors.deadletterqueue.topic.name": "dlq.jobs",
                    "errors.deadletterqueue.copy.record.enable": "true",
                }
            }
        )
    async with Producer(bootstrap_servers=address) as producer:
        for number in range(RECORDS):
            await producer.send("jobs", b"%d" % number, partition=number % 2)
        await producer.flush()


async def _dead(address: str) -> list[int]:
    """Read the values of all dead letters."""
    found: list[int] = []
    async with Consumer(bootstrap_servers=address) as consumer:
        for number in range(2):
            tp = ("dlq.jobs", number)
            (end,) = (await consumer.end_offsets(tp)).values()
            consumer.assign([tp])
            await consumer.seek_to_beginning(tp)
            while await consumer.position(tp) < end:
                records = await consumer.poll(500)
                assert all(each.partition == int(each.value) % 2 for each in records)
                found += [int(each.value) for each in records]
    return found


async def _work(address: str) -> None:
    """Reject odd numbers and accept even ones; start a new member after each error."""
    while True:
        try:
            async with ShareConsumer(
                "jobs",
                bootstrap_servers=address,
                group_id="workers",
                share_acknowledgement_mode="explicit",
                max_poll_records=7,
            ) as consumer:
                while True:
                    for record in await consumer.poll(500):
                        async with record:
                            if int(record.value) % 2:
                                raise Reject("odd")
                    await consumer.commit()
        except OdradekError:
            await asyncio.sleep(0.1)


async def _lag(address: str) -> int:
    async with Admin(bootstrap_servers=address) as admin:
        found = await admin.list_share_group_offsets("workers")
    lags = [None if each is None else each.lag for each in found.values()]
    return sum(RECORDS if lag is None else lag for lag in lags) if lags else RECORDS


async def test_h206_each_rejected_record_has_one_dead_letter_though_brokers_die(
    broker: Killable,
) -> None:
    rng = random.Random(1)
    async with asyncio.timeout(DEADLINE_S):
        await _prepare(broker.address)
        working = asyncio.create_task(_work(broker.address))
        lags = []
        for _ in range(KILLS):
            await asyncio.sleep(rng.uniform(0.3, 1.0))
            await asyncio.to_thread(broker.restart)
            lags.append(await _lag(broker.address))
        while await _lag(broker.address):
            assert not working.done(), working
            await asyncio.sleep(0.2)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        dead = await _dead(broker.address)
    assert sorted(dead) == list(range(1, RECORDS, 2)), lags


def test_h202_records_that_librdkafka_rejects_have_dead_letters(broker: Killable) -> None:
    asyncio.run(_prepare(broker.address))
    kafka: Any = confluent_kafka
    consumer = kafka.ShareConsumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe(["jobs"])
    left = RECORDS
    try:
        while left:
            for message in consumer.poll(1.0):
                kind = kafka.AcknowledgeType
                odd = int(message.value()) % 2
                consumer.acknowledge(message, kind.REJECT if odd else kind.ACCEPT)
                left -= 1
            consumer.commit_sync(10.0)
    finally:
        consumer.close()
    dead = asyncio.run(_dead(broker.address))
    assert sorted(dead) == list(range(1, RECORDS, 2))
