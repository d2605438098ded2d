"""Waits of a client that sends small requests to a busy broker.

A separate process sends one request after the other, so that the work of the benchmark itself is
not included.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from benchmarks.support import percentile

_PAUSE_S = 0.002
_PATIENCE_S = 600
_START_S = 20
#: ApiVersions in its first version: size, key, version, correlation id, no client id.
_REQUEST = struct.pack(">ihhih", 10, 18, 0, 1, -1)


@dataclass
class Waits:
    """The waits in milliseconds; empty until the end of `others_wait`."""

    all_ms: list[float] = field(default_factory=list)

    @property
    def worst_ms(self) -> float:
        return max(self.all_ms)

    def share_ms(self, share: float) -> float:
        """The wait that `share` (0 to 1) of all requests does not exceed."""
        return percentile(self.all_ms, share)


def ask(connection: socket.socket) -> None:
    """Send one small request, and read its answer."""
    connection.sendall(_REQUEST)
    size = int.from_bytes(_receive(connection, 4), "big")
    _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts += part
    return parts


def _measure(pipe: Connection, address: tuple[str, int]) -> None:
    waits: list[float] = []
    with socket.create_connection(address, _PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask(connection)
        pipe.send("ready")
        while not pipe.poll(_PAUSE_S):
            started = time.perf_counter()
            ask(connection)
            waits.append((time.perf_counter() - started) * 1e3)
    pipe.send(waits)


def address_of(bootstrap: str) -> tuple[str, int]:
    """The host and the port of a bootstrap server."""
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def others_wait(bootstrap: str) -> Iterator[Waits]:
    """Measure the waits while the block runs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_measure, args=(theirs, address_of(bootstrap)), daemon=True)
    process.start()
    theirs.close()
    waits = Waits()
    try:
        if not ours.poll(_START_S) or ours.recv() != "ready":
            raise SystemExit("the process that measures waits did not start")
        yield waits
        ours.send("enough")
        waits.all_ms = ours.recv()
    finally:
        ours.close()
        process.join(_START_S)
        if process.is_alive():
            process.terminate()
