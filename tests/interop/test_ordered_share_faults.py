"""Injected faults of share groups, as share consumers see them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from odradek import Admin, ConfigResource, NewTopic, Producer, ShareConsumer
from odradek.broker import SubprocessBroker
from odradek.faults import ExpiredLock, FaultRefused, Faults
from odradek_cli.tools.faults import app
from odradek_client.errors import OdradekError
from odradek_client.share.errors import LockExpired

pytestmark = pytest.mark.own_broker


@pytest.fixture(scope="module")
def broker() -> Iterator[SubprocessBroker]:
    with SubprocessBroker(testing=True) as broker:
        yield broker


@pytest.fixture
async def faults(broker: SubprocessBroker, unique_topic: str) -> AsyncIterator[Faults]:
    """The faults of a broker with a topic of ten records; the share group has the topic's name."""
    async with Admin(bootstrap_servers=broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(unique_topic, 1)])
        settings = {"share.auto.offset.reset": "earliest"}
        await admin.alter_configs({ConfigResource.group(unique_topic): settings})
    async with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(10):
            await producer.send(unique_topic, b"%d" % number)
    yield broker.faults
    broker.faults.clear()


def member(broker: SubprocessBroker, topic: str, **settings: Any) -> ShareConsumer:
    return ShareConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        share_acknowledgement_mode="explicit",
        **settings,
    )


@pytest.mark.full
async def test_an_ordered_lock_expiry_gives_the_records_to_another_member(
    broker: SubprocessBroker, faults: Faults, unique_topic: str
) -> None:
    async with member(broker, unique_topic) as first, member(broker, unique_topic) as second:
        records = await taken(first)
        assert faults.expire_lock(unique_topic, unique_topic, 0) == [
            ExpiredLock(unique_topic, 0, 0, 9)
        ]
        again = await taken(second)
        assert [(each.offset, each.delivery_count) for each in again] == [
            (offset, 2) for offset in range(10)
        ]
        late = records[0].accept()
        await first.commit()
        with pytest.raises(OdradekError):
            await late
        for record in again:
            record.accept()
        assert list((await second.commit()).values()) == [None]
        with pytest.raises(FaultRefused, match=f"no member of the share group '{unique_topic}'"):
            faults.expire_lock(unique_topic)


async def taken(consumer: ShareConsumer) -> list[Any]:
    """Poll until all ten records have arrived."""
    found: list[Any] = []
    while len(found) < 10:
        found += await consumer.poll(1_000)
    return found


@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.full
async def test_a_lost_acknowledgement_of_our_consumer_may_have_taken_effect(
    broker: SubprocessBroker, faults: Faults, unique_topic: str, handled: bool
) -> None:
    lost = faults.lose_acknowledgement(unique_topic, unique_topic, handled=handled)
    async with member(broker, unique_topic) as consumer:
        for record in (await taken(consumer))[:4]:
            record.accept()
        (outcome,) = (await consumer.commit()).values()
        assert outcome is not None and not isinstance(outcome, LockExpired)
        assert next(each.met for each in faults.list() if each.id == lost.id) == 1
        # The broker releases the other records because the connection is lost. It delivers the four
        # acknowledged records again only if it did not handle the request.
        left = [] if not handled else list(range(4, 10))
        again: list[int] = []
        while len(again) < (len(left) or 10):
            for record in await consumer.poll(1_000):
                again.append(record.offset)
                await record.accept()
    assert sorted(again) == (left or list(range(10)))


@pytest.mark.full
async def test_odradek_faults_orders_the_faults_of_share_groups(
    broker: SubprocessBroker, faults: Faults, unique_topic: str
) -> None:
    orders: Any = faults._send
    environment = {"ODRADEK_FAULTS": orders.__self__.address}

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(app, list(arguments), env=environment)
        assert result.exit_code == 0, result.output
        return json.loads(result.output)

    async with member(broker, unique_topic) as consumer:
        await taken(consumer)
        ordered = run("expire-lock", unique_topic, "--topic", unique_topic, "--partition", "0")
        expected = ExpiredLock(unique_topic, 0, 0, 9)
        assert [ExpiredLock(**each) for each in ordered["expired"]] == [expected]
        lost = run("lose-acknowledgement", unique_topic, "--not-handled", "--times", "2")
        assert (lost["handled"], lost["left"]) == (False, 2)
