"""A running broker, its topics, and its consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from live_brokers import LiveBroker, live_broker
from live_consumers import make_topic
from odradek_client.consumer.consumer import Consumer


@pytest.fixture(scope="module")
def broker(pytestconfig: pytest.Config) -> Iterator[LiveBroker]:
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 100,
        "group.consumer.heartbeat.interval.ms": 50,
        "group.consumer.min.heartbeat.interval.ms": 50,
        "log.durability": "page-cache",
    }
    with live_broker(pytestconfig, settings) as running:
        yield running


@pytest.fixture
def topic(broker: LiveBroker) -> str:
    """A new topic with three partitions."""
    return make_topic(broker, 3)


@pytest.fixture
async def consumers(broker: LiveBroker) -> AsyncIterator[Callable[..., Any]]:
    """Create and start consumers; they are closed at the end of the test."""
    started: list[Consumer] = []

    async def make(*topics: str, **settings: Any) -> Consumer:
        settings.setdefault("auto_offset_reset", "earliest")
        consumer = Consumer(*topics, bootstrap_servers=broker.bootstrap, **settings)
        started.append(consumer)
        await consumer.start()
        return consumer

    yield make
    for consumer in started:
        await consumer.close()
