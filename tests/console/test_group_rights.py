"""Groups, transactions and producers, as users without rights see them, and with Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import sasl_brokers
from kafka_cluster import KafkaCluster
from odradek import Consumer, Producer, ShareConsumer
from odradek.broker import Broker
from odradek.testing import make_unique_topic
from odradek_client.admin import (
    AclBinding,
    AclOperation,
    Admin,
    NewTopic,
    UserScramCredentialUpsertion,
)
from odradek_client.errors import (
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from odradek_console.answers import PageQuery
from odradek_console.asked import Asked
from odradek_console.group import group
from odradek_console.groups import groups
from odradek_console.producers import producer, producers
from odradek_console.sessions import ConsoleSession
from odradek_console.transactions import transaction, transactions
from waiting import DEADLINE_S

_NO_HISTORY = "This broker keeps no history of its decisions: only Odradek's own brokers do."


def _asked(session: ConsoleSession, **params: str) -> Asked:
    return Asked(session, PageQuery(params))


# --- rights ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sasl_bootstrap() -> Iterator[str]:
    """A broker with users and a super user, the only one who may do everything."""
    settings = {
        **sasl_brokers.LISTENER,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }
    with Broker.subprocess(settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture
async def bob(sasl_bootstrap: str) -> AsyncIterator[ConsoleSession]:
    """The session of a user whose only right is DESCRIBE on the group `his`. Another group, a topic
    and a transactional id exist."""
    settings = sasl_brokers.as_admin(sasl_bootstrap)
    async with (
        Admin(**settings) as admin,
        Producer(**settings, transactional_id="payments") as paying,
    ):
        await admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("bob", "bob-secret", "SCRAM-SHA-512")]
        )
        await admin.create_topics([NewTopic("orders", 1)])
        await admin.create_acls([AclBinding.group("his", "User:bob", AclOperation.DESCRIBE)])
        for name in ("his", "other"):
            await admin.alter_group_offsets(name, {("orders", 0): 0})
        await paying.init_transactions()
    his = sasl_brokers.as_user(sasl_bootstrap, "SCRAM-SHA-512", "bob", "bob-secret")
    session = ConsoleSession({"admin": his, "consumer": his, "producer": his})
    yield session
    await session.close()


async def test_groups_and_transactions_without_a_right_are_not_shown(bob: ConsoleSession) -> None:
    listed = await groups(_asked(bob))
    assert [row["group"] for row in listed["rows"]] == ["his"]
    shown = await group(bob, "his")
    # Without the right to describe the topic, its offsets are hidden.
    assert (shown["state"], shown["topics"]) == ("Empty", [])
    with pytest.raises(GroupAuthorizationFailed):
        await group(bob, "other")
    assert (await transactions(_asked(bob)))["total"] == 0
    with pytest.raises(TransactionalIdAuthorizationFailed):
        await transaction(bob, "payments")
    with pytest.raises(TopicAuthorizationFailed):
        await producers(_asked(bob, topic="orders", partition="0"))


# --- Apache Kafka ---------------------------------------------------------------------------------


@pytest.fixture
async def foreign(kafka: KafkaCluster) -> AsyncIterator[ConsoleSession]:
    settings = {"bootstrap_servers": kafka.bootstrap}
    session = ConsoleSession({"admin": settings, "consumer": settings, "producer": settings})
    yield session
    await session.close()


async def _until_it_has(consumer: Any, count: int, admin: Admin, name: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            await consumer.poll(100)
            ask = (
                admin.describe_share_groups
                if isinstance(consumer, ShareConsumer)
                else admin.describe_groups
            )
            found = (await ask(name, raise_errors=False)).get(name)
            if found and [len(member.assignment) for member in found.members] == [count]:
                return


@pytest.mark.kafka
async def test_groups_of_apache_kafka_are_shown_without_history_and_verdict(
    kafka: KafkaCluster, foreign: ConsoleSession
) -> None:
    topic = make_unique_topic()
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        await admin.create_topics(NewTopic(topic, 2))
        for kind in ("classic", "consumer", "share"):
            name = f"{topic}-{kind}"
            more = {"group_protocol": kind} if kind != "share" else {}
            make: Any = ShareConsumer if kind == "share" else Consumer
            async with make(
                topic, bootstrap_servers=kafka.bootstrap, group_id=name, **more
            ) as member:
                await _until_it_has(member, 2, admin, name)
                shown = await group(foreign, name)
                assert (shown["type"], shown["state"], shown["missing"]) == (kind, "Stable", [])
                assert shown["history"]["missing"] == _NO_HISTORY
                assert [cell[1] for cell in shown["topics"][0]["cells"]] == [[0], [0]]
        listed = await groups(_asked(foreign, filter=topic))
        assert [row["type"] for row in listed["rows"]] == ["classic", "consumer", "share"]
        assert {row["missing"] for row in listed["rows"]} == {None}
        assert {row["verdict"] for row in listed["rows"]} == {None}


@pytest.mark.kafka
async def test_a_transaction_of_apache_kafka_is_shown(
    kafka: KafkaCluster, foreign: ConsoleSession
) -> None:
    topic = make_unique_topic()
    async with (
        Admin(bootstrap_servers=kafka.bootstrap) as admin,
        Producer(bootstrap_servers=kafka.bootstrap, transactional_id=topic) as paying,
    ):
        await admin.create_topics(NewTopic(topic, 1))
        await paying.init_transactions()
        await paying.begin_transaction()
        await paying.send_and_wait(topic, b"x")
        (row,) = (await transactions(_asked(foreign, filter=topic)))["rows"]
        assert (row["state"], row["hidden"]) == ("Ongoing", 1)
        shown = await transaction(foreign, topic)
        assert (shown["partitions"][0]["stable"], shown["partitions"][0]["end"]) == (0, 1)
        assert shown["history"]["missing"] == _NO_HISTORY
        (found,) = (await producers(_asked(foreign, topic=topic, partition="0")))["rows"]
        assert (found["transactional_id"], found["hanging"]) == (topic, False)
        one = await producer(_asked(foreign, id=str(found["producer_id"])))
        assert [each["transaction_start_offset"] for each in one["rows"]] == [0]
        await paying.abort_transaction()
