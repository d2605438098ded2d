"""Our broker with the listeners, users and authorizer of the recorded Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.oracle.judge import OUR_SETTINGS
from tests.oracle.play import Answers
from tests.oracle.rights.cells import Cell
from tests.oracle.rights.secured_kafka import AUTHORIZER, PASSWORD, SALTS, jaas_line
from tests.oracle.rights.turns import Streams, log_in, open_streams, play, users

from fake_node import FakeLogLevels
from odradek_broker.config.broker import parse_assignments, parse_config
from odradek_broker.server.server import Server


def play_on_ours(folder: Path, chosen: Sequence[Cell]) -> Mapping[tuple[str, int], Answers | str]:
    return asyncio.run(_play(folder, chosen))


async def _play(folder: Path, chosen: Sequence[Cell]) -> Mapping[tuple[str, int], Answers | str]:
    turns = sum(len(cell.scenario.runs()) for cell in chosen)
    given = {
        **parse_assignments(OUR_SETTINGS),
        **AUTHORIZER,
        "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": jaas_line(users(turns, SALTS[0])),
        "log.dirs": str(folder),
    }
    server = Server(parse_config(given)[0])
    await server.start()
    # The log levels must stay as they are: pytest captures the log lines of this process.
    server.node.log_levels = FakeLogLevels()
    ports = {name: port for name, (_, port) in server.addresses.items()}

    async def connect(user: str | None) -> Streams:
        if user is None:
            return await open_streams(ports["PLAINTEXT"])
        return await log_in(await open_streams(ports["CLIENTS"]), user, PASSWORD)

    try:
        return await play(connect, chosen, SALTS[0])
    finally:
        await server.stop()
