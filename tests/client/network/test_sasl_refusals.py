"""Clients whose password is changed while they work: all waiting calls fail immediately, before
their timeout."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odradek import Admin, Broker, Consumer, NewTopic, Producer
from odradek_client.admin import UserScramCredentialUpsertion
from odradek_client.errors import AuthenticationFailed, OdradekError
from sasl_brokers import LISTENER, as_admin, as_user
from waiting import until

FOREVER_MS = 2**31 - 1
MECHANISM = "SCRAM-SHA-256"


class Alice:
    """A user of a broker with connections.max.reauth.ms=1500."""

    def __init__(self, broker: Broker, admin: Admin) -> None:
        self.settings: dict[str, Any] = as_user(broker.bootstrap, MECHANISM, "alice", "first")
        self.admin = admin

    async def gets_another_password(self) -> None:
        await self.admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion("alice", "second", MECHANISM)
        )


@pytest.fixture
async def alice() -> AsyncIterator[Alice]:
    settings = LISTENER | {
        "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": "1500"
    }
    async with Broker(settings=settings) as broker, Admin(**as_admin(broker.bootstrap)) as admin:
        await admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion("alice", "first", MECHANISM)
        )
        await admin.create_topics([NewTopic("t", 1)])
        yield Alice(broker, admin)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.full
async def test_c75_calls_of_group_members_fail_at_once(alice: Alice, protocol: str) -> None:
    settings = alice.settings | {"group_id": "g", "group_protocol": protocol}
    async with asyncio.timeout(60):
        async with Consumer("t", **settings, default_api_timeout_ms=FOREVER_MS) as consumer:
            while not consumer.assignment():
                await consumer.poll(100)
            await alice.gets_another_password()
            with pytest.raises(AuthenticationFailed, match="user 'alice'"):
                while True:
                    await consumer.poll(FOREVER_MS)
            with pytest.raises(AuthenticationFailed):
                while True:  # until the session at the coordinator expires too
                    await consumer.commit({("t", 0): 0})
            # The broker refuses the LeaveGroup request, and the consumer closes nevertheless.
            await consumer.close(timeout_ms=FOREVER_MS)


@pytest.mark.full
async def test_c75_calls_in_a_transaction_fail_at_once(alice: Alice) -> None:
    settings = alice.settings | {
        "transactional_id": "x",
        "delivery_timeout_ms": FOREVER_MS,
        "max_block_ms": FOREVER_MS,
    }
    producer = Producer(**settings)
    async with asyncio.timeout(60):
        await producer.start()
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"one")
        await alice.gets_another_password()
        with pytest.raises(AuthenticationFailed, match="user 'alice'"):
            while True:
                await producer.send_and_wait("t", b"more")
        with pytest.raises(OdradekError, match="user 'alice'"):
            await producer.commit_transaction()
        await producer.close()


async def test_c75_steps_at_the_transaction_coordinator_fail_at_once(alice: Alice) -> None:
    """A call waits for the coordinator while the connection to the coordinator is refused."""
    producer = Producer(**alice.settings, transactional_id="x", max_block_ms=FOREVER_MS)
    async with asyncio.timeout(60):
        await producer.start()
        await producer.init_transactions()
        await alice.gets_another_password()
        with pytest.raises(AuthenticationFailed, match="user 'alice'"):
            while True:
                await producer.begin_transaction()
                await producer.send("t", b"one")
                await producer.commit_transaction()
        await producer.close()


async def test_c75_calls_of_an_admin_fail_at_once(alice: Alice) -> None:
    async with asyncio.timeout(60):
        async with Admin(**alice.settings, default_api_timeout_ms=FOREVER_MS) as admin:
            await alice.gets_another_password()
            with pytest.raises(AuthenticationFailed, match="user 'alice'"):
                while True:
                    await admin.describe_topics("t")
                    await admin.list_offsets({("t", 0): -1})
                    await admin.describe_groups("g", raise_errors=False)


async def test_c75_c77_calls_after_a_password_is_replaced_get_no_refusal_of_the_earlier_one(
    alice: Alice, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker refuses the earlier password while no call waits."""
    caplog.set_level(logging.INFO, "odradek.client")
    file = tmp_path / "secrets"
    file.write_text("password=first\n")
    settings = alice.settings | {"sasl_password": f"${{file:{file}:password}}"}
    async with (
        asyncio.timeout(60),
        Admin(**settings) as admin,
        Producer(**settings) as producer,
    ):
        await producer.send_and_wait("t", b"one")
        await admin.describe_topics("t")
        await alice.gets_another_password()
        clients = (producer.network, admin.network)
        await until(
            lambda: all(
                node.failures >= 2
                for network in clients
                for key, node in network._nodes.items()
                if key[0] > 0
            )
        )
        file.write_text("password=second\n")
        await producer.send_and_wait("t", b"two")
        await admin.describe_topics("t")
