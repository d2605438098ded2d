"""The connections of the console's server: peers that send nothing, half of something, or take
nothing, and the log lines that peers cause."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from console_process import options_for
from odradek_console import connections, server
from odradek_console.connections import BrowserConnection, PeerLimits, RequestAdmission
from odradek_console.server import WRITE_HEADER, serve
from waiting import until

PATIENCE_S = 20.0
Address = tuple[str, int]
_PAGE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def address() -> AsyncIterator[Address]:
    """The address of a console's server. There is no broker."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    host, port = listening.getsockname()
    started = asyncio.Event()
    task = asyncio.create_task(serve(options_for("127.0.0.1:1"), listening, started.set))
    async with asyncio.timeout(PATIENCE_S):
        await started.wait()
    yield host, port
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    listening.close()


async def ask(address: Address, request: bytes = _PAGE) -> int:
    """The status of the answer to a request on a connection of its own."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What came until the server closed the connection."""
    found = b""
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ConnectionError):
            while piece := await reader.read(65_536):
                found += piece
    return found


async def test_n61_silent_connections_do_not_keep_the_console_closed(address: Address) -> None:
    silent = [await asyncio.open_connection(*address) for _ in range(600)]
    assert await ask(address) == 200
    for reader, _ in silent[: -connections.WAITING_PER_ADDRESS_MAX]:
        assert await closed(reader) == b""
    for _, writer in silent:
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: localh"])
async def test_n61_the_head_of_a_first_request_has_a_deadline(
    address: Address, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(sent)
    assert await closed(reader) == b""
    writer.close()


@pytest.mark.parametrize(
    "first",
    [
        _PAGE,
        # A body that nobody reads.
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n",
        _PAGE + _PAGE,
    ],
)
async def test_n61_no_byte_prolongs_the_wait_for_a_later_request(
    address: Address, first: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "LATER_HEAD_S", 0.2)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(first)

    async def drip() -> None:
        while not writer.is_closing():
            writer.write(b"x")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    assert (await closed(reader)).startswith(b"HTTP/1.1 200 ")
    dripping.cancel()
    writer.close()


async def test_n61_a_body_has_a_deadline(address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_BODY_S", 0.05)
    head = (
        f"POST /api/sign-in HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
        f"{WRITE_HEADER}: 1\r\nContent-Length: 90\r\n\r\n{{"
    )
    assert await ask(address, head.encode()) == 408


async def test_n61_a_peer_that_takes_no_answer_is_left(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALLED_S", 0.05)
    ended: list[BrowserConnection] = []
    abort = BrowserConnection._abort

    def noted(connection: BrowserConnection) -> None:
        ended.append(connection)
        abort(connection)

    monkeypatch.setattr(BrowserConnection, "_abort", noted)
    with socket.create_connection(address, PATIENCE_S) as peer:
        peer.setblocking(False)
        request = _PAGE.replace(b"GET /", b"GET /static/app.mjs")
        while not ended:
            with suppress(BlockingIOError, ConnectionError):
                peer.send(request * 100)
            await asyncio.sleep(0.001)
    assert ended[0].transport.is_closing()
    assert await ask(address) == 200


async def test_n61_one_address_has_a_part_of_the_requests_in_progress() -> None:
    going_on = asyncio.Event()
    refused: list[str] = []

    async def view(_scope: Scope, _receive: Receive, _send: Send) -> None:
        await going_on.wait()

    async def refuse(scope: Scope, _receive: Receive, _send: Send) -> None:
        refused.append(scope["client"][0])

    admission = RequestAdmission(view, refuse)

    def begin(host: str) -> asyncio.Task[Any]:
        nothing: Any = None
        scope: Scope = {"type": "http", "client": (host, 1)}
        return asyncio.create_task(admission(scope, nothing, nothing))

    most = connections.REQUESTS_PER_ADDRESS_MAX
    hosts = ["a"] * (most + 1) + ["b"] * (connections.REQUESTS_MAX - most) + ["c"]
    tasks = [begin(host) for host in hosts]
    await until(lambda: len(refused) == 2)
    assert refused == ["a", "c"]
    going_on.set()
    await asyncio.gather(*tasks)
    assert admission._in_progress == {}
    await begin("c")
    assert refused == ["a", "c"]


def test_n61_the_connections_of_a_proxy_are_not_those_of_one_address() -> None:
    limits = PeerLimits(["10.0.0.7", "fd00::/8"])
    assert limits.counted("10.0.0.8", 1) == limits.counted("10.0.0.8", 2)
    for proxy in ("10.0.0.7", "fd00::1"):
        assert limits.counted(proxy, 1) != limits.counted(proxy, 2)


_BAD = (
    b"\x16\x03\x01\x02\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
)


async def test_peers_cause_few_log_lines(
    address: Address, caplog: pytest.LogCaptureFixture
) -> None:
    with capture_logs() as lines:
        for _ in range(100):
            for request in _BAD:
                await ask(address, request)
    assert len(lines) <= 3 and {line["log_level"] for line in lines} == {"warning"}
    assert [record.name for record in caplog.records if record.name == "uvicorn.error"] == []


def test_the_lines_of_peers_have_the_form_of_the_log() -> None:
    command = [sys.executable, "-m", "odradek", "console", "--no-open"]
    command += ["--bootstrap", "127.0.0.1:1", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        host, _, port = process.stderr.readline().split("/")[2].rpartition(":")
        for _ in range(50):
            for request in _BAD:
                with socket.create_connection((host, int(port)), PATIENCE_S) as peer:
                    peer.sendall(request)
                    assert peer.recv(8)
        process.terminate()
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert 1 <= len(lines) <= 3
    for line in lines:
        assert {"event", "level", "timestamp", "logger"} <= line.keys()
