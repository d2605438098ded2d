"""Plays cells against a broker. Each cell has a new user, so that ACLs of one cell do not affect
another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tests.oracle.play import (
    Answers,
    BrokenScenario,
    Connection,
    ScenarioRun,
    ready_broker_scenario,
)
from tests.oracle.rights.cells import PRINCIPAL, USER, Cell
from tests.oracle.script import Scenario

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Opens a connection as a user, or as ANONYMOUS for None.
Connect = Callable[[str | None], Awaitable[Streams]]
SUPER_USER = "admin"
_AT_ONCE = 12
_LIMIT_BYTES = 1 << 26


class _Turn(ScenarioRun):
    """A cell played in one version."""

    def __init__(
        self, connect: Connect, scenario: Scenario, version: int, salt: str, user: str | None
    ) -> None:
        super().__init__(("", 0), scenario, version, salt)
        self._connect = connect
        self._user = user

    async def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            user = self._user if name == USER else SUPER_USER
            self._connections[name] = Connection(*await self._connect(user))
        return self._connections[name]

    def resolve(self, value: Any) -> Any:
        if value == PRINCIPAL:
            return f"User:{self._user or 'ANONYMOUS'}"
        return super().resolve(value)


def users(count: int, salt: str) -> list[str]:
    """The names of users for `count` turns."""
    return [f"{salt}{number}" for number in range(count)]


async def play(
    connect: Connect, chosen: Sequence[Cell], salt: str
) -> Mapping[tuple[str, int], Answers | str]:
    """Play all cells. Returns the answers by (name of the cell, version); for a broken turn, the
    error as text."""
    turns = [(cell, version) for cell in chosen for version in cell.scenario.runs()]
    at_once = asyncio.Semaphore(_AT_ONCE)
    found: dict[tuple[str, int], Answers | str] = {}

    async def one(cell: Cell, version: int, own: str) -> None:
        user = {"super": SUPER_USER, "anonymous": None}.get(cell.who, own)
        async with at_once:
            turn = _Turn(connect, cell.scenario, version, salt, user)
            try:
                answers: Answers | str = await turn.play()
            except (BrokenScenario, TimeoutError, OSError) as error:
                answers = f"{type(error).__name__}: {error}"
            found[cell.name, version] = answers

    await _Turn(connect, ready_broker_scenario(), 4, salt, SUPER_USER).play()
    async with asyncio.TaskGroup() as tasks:
        for (cell, version), own in zip(turns, users(len(turns), salt), strict=True):
            tasks.create_task(one(cell, version, own))
    return found


async def open_streams(port: int) -> Streams:
    """Open a connection to a broker on this machine."""
    return await asyncio.open_connection("127.0.0.1", port, limit=_LIMIT_BYTES)


async def log_in(streams: Streams, user: str, password: str) -> Streams:
    """Authenticate with PLAIN (KIP-152), in the oldest versions. Raises ConnectionError if the
    broker refuses."""
    reader, writer = streams

    async def call(key: int, version: int, body: bytes) -> bytes:
        head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff"
        writer.write((len(head) + len(body)).to_bytes(4, "big") + head + body)
        size = int.from_bytes(await reader.readexactly(4), "big")
        return (await reader.readexactly(size))[4:]

    refused = await call(17, 1, b"\0\x05PLAIN")
    token = b"\0" + user.encode() + b"\0" + password.encode()
    answer = await call(36, 0, len(token).to_bytes(4, "big") + token)
    if refused[:2] != b"\0\0" or answer[:2] != b"\0\0":
        raise ConnectionError(f"{user} cannot log in: {refused!r} {answer!r}")
    return streams
