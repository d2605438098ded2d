"""The share consumer against a broker with share groups. A test also kills and restarts the
broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from odradek import Admin, ConfigResource, NewTopic, Producer, Reject, Release, ShareConsumer
from odradek.broker import SubprocessBroker
from odradek_client.errors import OdradekError
from odradek_protocol.schemas.update_features import FeatureUpdateKey, UpdateFeaturesRequest

DEADLINE_S = 100.0
GROUP = "workers"


@pytest.fixture
def broker() -> Iterator[SubprocessBroker]:
    """A broker with share groups and a topic "jobs" of three partitions. The group GROUP begins at
    the earliest offsets."""

    async def prepare(bootstrap: str) -> None:
        switch_on = FeatureUpdateKey(feature="share.version", max_version_level=1)
        async with Admin(bootstrap_servers=bootstrap) as admin:
            answer = await admin.requests.to_controller(
                UpdateFeaturesRequest(feature_updates=[switch_on])
            )
            assert answer.error_code == 0, answer
            await admin.create_topics([NewTopic("jobs", 3)])
            settings = {"share.auto.offset.reset": "earliest"}
            await admin.alter_configs({ConfigResource.group(GROUP): settings})

    with SubprocessBroker() as broker:
        asyncio.run(prepare(broker.bootstrap))
        yield broker


def member(broker: SubprocessBroker, **settings: Any) -> ShareConsumer:
    given = {"group_id": GROUP, "share_acknowledgement_mode": "explicit", **settings}
    return ShareConsumer("jobs", bootstrap_servers=broker.bootstrap, **given)


async def produce(broker: SubprocessBroker, count: int) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(count):
            await producer.send("jobs", b"%d" % number)
        await producer.flush()


async def test_k61_k71_two_members_share_records_and_repeat_released_ones(
    broker: SubprocessBroker,
) -> None:
    await produce(broker, 200)
    deliveries = dict[int, list[int]]()
    ended = set[int]()

    async def work(mode: str) -> None:
        async with member(broker, share_acquire_mode=mode, max_poll_records=20) as consumer:
            while len(ended) < 200:
                for record in await consumer.poll(500):
                    number = int(record.value)
                    deliveries.setdefault(number, []).append(record.delivery_count)
                    async with record:
                        if number % 10 == 3 and record.delivery_count == 1:
                            raise Release("once more")
                        ended.add(number)
                        if number % 10 == 7:
                            raise Reject("poison")
            assert all(error is None for error in (await consumer.commit()).values())

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(work("batch_optimized"), work("record_limit"))
    assert deliveries == {n: [1, 2] if n % 10 == 3 else [1] for n in range(200)}


@pytest.mark.full
async def test_no_record_is_lost_when_the_broker_is_killed(broker: SubprocessBroker) -> None:
    await produce(broker, 100)
    accepted, unknown, kills = set[int](), set[int](), 0
    async with asyncio.timeout(DEADLINE_S), member(broker, max_poll_records=10) as consumer:
        while True:
            records = await consumer.poll(1_000)
            if not records and len(accepted | unknown) == 100:
                break
            numbers = [int(record.value) for record in records]
            assert accepted.isdisjoint(numbers), "accepted, and delivered again"
            results = [record.accept() for record in records]
            if kills < 3 and len(accepted) > 20 * (kills + 1):
                kills += 1
                await asyncio.to_thread(broker.kill)
                await asyncio.to_thread(broker.restart)
            for number, result in zip(numbers, results, strict=True):
                try:
                    await result
                except OdradekError:
                    # The broker may have stored the acknowledgement before it was killed.
                    unknown.add(number)
                else:
                    accepted.add(number)
    assert kills == 3
