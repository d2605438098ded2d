"""A session in memory: requests are given to it as bytes, and its answers are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from node_world import NodeWorld
from odradek_broker.server.dispatch import Dispatcher
from odradek_broker.server.session import ConnectionSession
from odradek_broker.server.session_limits import SessionLimits
from odradek_protocol import frames
from odradek_protocol.frames import FrameReceiver
from odradek_protocol.message import Message


def _size_at(frames: bytes, at: int) -> int:
    return int.from_bytes(frames[at : at + 4], "big")


class Wire(asyncio.Transport):
    """Counts the complete answers that a session has sent; `reading`: False while the session is
    paused."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0
        self._unfinished = b""
        self.reading = True
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: Any) -> None:
        sent, at = self._unfinished + bytes(data), 0
        while len(sent) >= at + 4 and len(sent) >= (end := at + 4 + _size_at(sent, at)):
            self.answers += 1
            at = end
        self._unfinished = sent[at:]

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0


class Connection:
    """A session without a network. `arrive` passes requests to the session in one turn of the loop,
    until the session pauses reading."""

    def __init__(self, world: NodeWorld, in_flight_max: int = 100) -> None:
        self.world = world
        self.wire = Wire()
        self._waiting = b""
        self.session = ConnectionSession(
            Dispatcher(world.node, 10_000_000),
            1,
            FrameReceiver(10_000_000),
            SessionLimits(in_flight_max, 100_000_000, 100_000_000),
            world.node.metrics,
            lambda _: None,
        )
        self.session.connection_made(self.wire)

    def arrive(self, requests: Sequence[tuple[Message, int]]) -> None:
        for number, (request, version) in enumerate(requests):
            self._waiting += b"".join(frames.encode_request(request, version, number, "c"))
        self.read()

    def read(self) -> None:
        while self._waiting and self.wire.reading:
            buffer = self.session.get_buffer(-1)
            size = min(len(buffer), len(self._waiting))
            buffer[:size] = self._waiting[:size]
            self._waiting = self._waiting[size:]
            self.session.buffer_updated(size)
