"""Groups of this consumer with a broker that is killed and restarted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import budget
from live_consumers import DEADLINE_S, make_topic, produce
from odradek.broker import SubprocessBroker
from odradek_client.consumer.consumer import Consumer

pytestmark = pytest.mark.own_broker

PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"heartbeat_interval_ms": 50},
    "cooperative": {
        "heartbeat_interval_ms": 50,
        "partition_assignment_strategy": "cooperative-sticky",
    },
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.full
@pytest.mark.parametrize("protocol", budget.of_which(PROTOCOLS, ["cooperative"]))
async def test_k35_members_continue_after_the_broker_was_killed(protocol: str) -> None:
    """The members skip no record, and a new consumer does not read committed records again."""
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.min.heartbeat.interval.ms": 50,
        "group.consumer.heartbeat.interval.ms": 50,
    }
    with SubprocessBroker(settings=settings) as broker:
        topic = make_topic(broker, 3)
        group = [
            Consumer(
                topic,
                bootstrap_servers=broker.bootstrap,
                group_id="g",
                auto_offset_reset="earliest",
                retry_backoff_ms=20,
                reconnect_backoff_max_ms=100,
                **PROTOCOLS[protocol],
            )
            for _ in range(2)
        ]
        seen: list[int] = []

        async def read(count: int) -> None:
            async with asyncio.timeout(DEADLINE_S):
                while len(set(seen)) < count:
                    for records in await asyncio.gather(*(each.poll(50) for each in group)):
                        seen.extend(int(record.value) for record in records)

        await asyncio.gather(*(each.start() for each in group))
        try:
            produce(broker, topic, 300)
            await read(300)
            await asyncio.gather(*(each.poll(20) for each in group))
            broker.kill()
            await asyncio.gather(*(each.poll(200) for each in group))
            await asyncio.to_thread(broker.restart)
            produce(broker, topic, 300, start=300)
            await read(600)
        finally:
            await asyncio.gather(*(each.close() for each in group))
        assert set(seen) == set(range(600))
        produce(broker, topic, 3, start=600)
        group[:] = [
            Consumer(topic, bootstrap_servers=broker.bootstrap, group_id="g", **PROTOCOLS[protocol])
        ]
        seen.clear()
        async with group[0]:
            await read(3)
        assert sorted(seen) == [600, 601, 602]
