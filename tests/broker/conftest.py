"""Fixtures: brokers that run in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from broker_in_loop import RunningBroker, StartBroker
from odradek_broker.config.broker import parse_config
from odradek_broker.server.server import Server
from raw_client import RawClient


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """Start brokers with settings; each is stopped at the end of the test.

    `keys`: settings whose names cannot be names of Python parameters.
    """
    running: list[RunningBroker] = []

    async def start(
        data_dir: str = "data", keys: Mapping[str, str] | None = None, **settings: str
    ) -> RunningBroker:
        given = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path / data_dir),
            "group.initial.rebalance.delay.ms": "0",
            **{key.replace("_", "."): value for key, value in settings.items()},
            **(keys or {}),
        }
        config, _ = parse_config(given)
        server = Server(config)
        broker = RunningBroker(server, *await server.start())
        running.append(broker)
        return broker

    yield start
    for broker in running:
        await broker.stop()


@pytest.fixture
async def broker(start_broker: StartBroker) -> RunningBroker:
    """A broker with default settings, except for a free port and a temporary directory."""
    return await start_broker()


@pytest.fixture
async def client(broker: RunningBroker) -> RawClient:
    return await broker.client()
