"""Long before its timeout, a client logs that no broker answers (C-79)."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from odradek_client.admin import Admin
from odradek_client.consumer.consumer import Consumer
from odradek_client.network import metadata
from odradek_client.producer.producer import Producer
from scripted_broker import ScriptedBroker
from waiting import until

WORDS = "could be reached for 0.05 s"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    assert metadata.UNREACHED_WARNING_S < 10
    monkeypatch.setattr(metadata, "UNREACHED_WARNING_S", 0.05)
    caplog.set_level(logging.WARNING, "odradek.client")


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody() -> str:
    """An address at which no server listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def told(caplog: pytest.LogCaptureFixture, words: str = WORDS) -> list[str]:
    return [line.getMessage() for line in caplog.records if words in line.getMessage()]


@pytest.mark.parametrize("make", [Producer, Consumer, Admin])
@pytest.mark.parametrize(
    ("address", "cause"), [("nobody", "refused"), ("silent", "it does not answer")]
)
async def test_c79_a_start_that_reaches_no_broker_is_logged(
    make: Any,
    address: str,
    cause: str,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = request.getfixturevalue(address)
    client = make(bootstrap_servers=at)
    starting = asyncio.ensure_future(client.start())
    await until(lambda: bool(told(caplog)))
    assert not starting.done()
    (line,) = told(caplog)
    assert f"no broker of {at} " in line and cause in line
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await client.close()


async def test_c79_an_outage_and_its_end_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = ScriptedBroker(topics={"t": 1})
    await broker.start()
    settings: dict[str, Any] = {"reconnect_backoff_max_ms": 50, "retry_backoff_max_ms": 50}
    async with Producer(bootstrap_servers=broker.address, **settings) as producer:
        await producer.send_and_wait("t", b"1")
        assert told(caplog) == []
        await broker.stop()
        delivery = await producer.send("t", b"2")
        await until(lambda: bool(told(caplog)))
        assert not delivery.done()
        await broker.start()
        await delivery
        assert len(told(caplog)) == 1
        await until(lambda: len(told(caplog, "a broker could be reached again")) == 1)
    await broker.stop()


async def test_c79_a_client_with_an_answer_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        ScriptedBroker(topics={"t": 1}) as broker,
        Producer(bootstrap_servers=broker.address, metadata_max_age_ms=20) as producer,
    ):
        asked = len(broker.requests)
        await until(lambda: len(broker.requests) > asked + 5)
        await producer.send_and_wait("t", b"1")
        address = broker.address
    # Clients of earlier tests may still log messages about their brokers.
    texts = [line.getMessage() for line in caplog.records]
    assert [text for text in texts if address in text] == []
