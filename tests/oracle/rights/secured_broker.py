"""A broker of ours with the authorizer of the Kafka that was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.oracle.judge import OUR_SETTINGS
from tests.oracle.play import Answers
from tests.oracle.rights.cells import Cell
from tests.oracle.rights.secured_kafka import AUTHORIZER
from tests.oracle.rights.turns import Streams, open_streams, play

from odradek_broker.config.broker import parse_assignments, parse_config
from odradek_broker.server.server import Server
from odradek_protocol import frames

_MARK = "log in as "


def play_on_ours(folder: Path, chosen: Sequence[Cell]) -> Mapping[tuple[str, int], Answers | str]:
    return asyncio.run(_play(folder, chosen))


async def _play(folder: Path, chosen: Sequence[Cell]) -> Mapping[tuple[str, int], Answers | str]:
    given = {
        **parse_assignments(OUR_SETTINGS),
        **AUTHORIZER,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(folder),
    }
    server = Server(parse_config(given)[0])
    _, port = await server.start()
    _let_log_in(server)

    async def connect(user: str | None) -> Streams:
        streams = await open_streams(port)
        if user is not None:
            await _log_in(streams, user)
        return streams

    try:
        return await play(connect, chosen, "t")
    finally:
        await server.stop()


def _let_log_in(server: Server) -> None:
    """Users are told by the client id of their first request."""
    dispatcher: Any = server._dispatcher
    answer = dispatcher.answer

    def told(peer: Any, frame: memoryview) -> Any:
        header, _ = frames.decode_request_header(frame)
        if (header.client_id or "").startswith(_MARK):
            peer.user = (header.client_id or "").removeprefix(_MARK)
        return answer(peer, frame)

    dispatcher.answer = told


async def _log_in(streams: Streams, user: str) -> None:
    reader, writer = streams
    client_id = (_MARK + user).encode()
    head = b"\0\x12\0\0" + bytes(4) + len(client_id).to_bytes(2, "big") + client_id
    writer.write(len(head).to_bytes(4, "big") + head)
    size = int.from_bytes(await reader.readexactly(4), "big")
    await reader.readexactly(size)
