"""The HTTP endpoint: its answers to valid and invalid requests."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

import budget
from fake_node import FakeNode
from odradek_broker.config.broker import parse_config
from odradek_broker.metrics.broker import BrokerMetrics
from odradek_broker.metrics.exposition import Exposition
from odradek_broker.metrics.families import PAUSE, Families, Gauge
from odradek_broker.server import http_connections
from odradek_broker.server.http import HttpServer, names_of
from odradek_broker.server.http_messages import HttpError, check_host, check_order, parse_head
from odradek_protocol.http_hosts import OwnHosts, host_name, is_address
from waiting import until

PATIENCE_S = 20
TOKEN = "s3cret"
#: What one address may have: connections without a request, and requests in progress.
WAITING_PER_ADDRESS_MAX, REQUESTS_PER_ADDRESS_MAX = 32, 64


class Endpoint:
    def __init__(
        self, node: Any, metrics: BrokerMetrics, server: HttpServer, address: tuple[str, int]
    ) -> None:
        self.node = node
        self.metrics = metrics
        self.server = server
        self.address = address

    async def send(self, request: bytes, *, end: bool = False) -> bytes:
        """The whole answer to these bytes. `end`: the client closes its side after sending."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(request)
        if end:
            writer.write_eof()
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await reader.read()
        finally:
            writer.close()

    async def get(
        self, path: str, method: str = "GET", *, headers: str = "", host: str = "127.0.0.1"
    ) -> tuple[int, dict[str, str], bytes]:
        request = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n"
        answer = await self.send(request.encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


class NoGroups:
    def groups(self) -> list[Any]:
        return []


async def an_endpoint(token: str = "") -> AsyncGenerator[Endpoint]:
    node: Any = FakeNode()
    node.groups = NoGroups()
    node.create("t", 2)
    node.partitions = lambda: [
        (name, index, node.partition(name, index))
        for name, topic in node.metadata.topics.items()
        for index in topic.partitions
    ]
    metrics = BrokerMetrics(lambda: 0)
    server = HttpServer(node, metrics, token=token, names=["broker.example"])
    yield Endpoint(node, metrics, server, await server.start("127.0.0.1", 0))
    await server.stop()


@pytest.fixture
async def endpoint() -> AsyncGenerator[Endpoint]:
    async for made in an_endpoint():
        yield made


@pytest.fixture
async def guarded() -> AsyncGenerator[Endpoint]:
    """An endpoint that requires the token."""
    async for made in an_endpoint(TOKEN):
        yield made


async def test_the_metrics_page_has_prometheus_text(endpoint: Endpoint) -> None:
    status, headers, body = await endpoint.get("/metrics?name=x")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert int(headers["Content-Length"]) == len(body)
    assert b'kafka_topic_partitions{topic="t"} 2.0' in body


async def test_other_requests_are_answered_while_the_metrics_are_rendered(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that request /metrics during a rendering also get the result of that rendering."""
    made: list[int] = []
    begun, answered = asyncio.Event(), asyncio.Event()

    def families(_: Any) -> Families:
        made.append(1)
        begun.set()
        for _number in range(100_000):
            if answered.is_set():
                break
            yield PAUSE
        yield Gauge("parts", "x", value=float(answered.is_set()))

    clock_us = iter(range(0, 10**12, 1_000_000))
    endpoint.metrics.now_us = lambda: next(clock_us)
    monkeypatch.setattr(Exposition, "families", families)
    scrapes = [asyncio.ensure_future(endpoint.get("/metrics")) for _ in range(3)]
    await begun.wait()
    assert (await endpoint.get("/healthz"))[0] == 200
    answered.set()
    bodies = [body for _, _, body in await asyncio.gather(*scrapes)]
    assert bodies == [b"# HELP parts x\n# TYPE parts gauge\nparts 1.0\n"] * 3
    assert len(made) == 1


async def test_a_sound_broker_is_healthy_and_ready(endpoint: Endpoint) -> None:
    assert await endpoint.get("/healthz") == (
        200,
        {"Content-Type": "text/plain; charset=utf-8", "Content-Length": "3", "Connection": "close"},
        b"ok\n",
    )
    status, _, body = await endpoint.get("/readyz")
    ready = {
        "ready": True,
        "offline_partitions": [],
        "unreadable_partitions": [],
        "disk_problem": "",
        "failed_directories": {},
    }
    assert (status, json.loads(body)) == (200, ready)


async def test_a_broker_with_an_offline_partition_is_not_ready(endpoint: Endpoint) -> None:
    endpoint.node.offline.add(("t", 1))
    status, _, body = await endpoint.get("/readyz")
    assert (status, json.loads(body)["offline_partitions"]) == (503, ["t-1"])
    assert (await endpoint.get("/healthz"))[0] == 200


async def test_l42_a_broker_with_a_failed_directory_is_not_ready(endpoint: Endpoint) -> None:
    directory = endpoint.node.logs.directories[0]
    metrics = (await endpoint.get("/metrics"))[2]
    assert b"kafka_log_logmanager_offlinelogdirectorycount 0.0" in metrics
    directory.fail("Input/output error")
    status, _, body = await endpoint.get("/readyz")
    failed = {directory.path: "Input/output error"}
    assert (status, json.loads(body)["failed_directories"]) == (503, failed)
    metrics = (await endpoint.get("/metrics"))[2]
    assert b"kafka_log_logmanager_offlinelogdirectorycount 1.0" in metrics
    name = f'kafka_log_logmanager_logdirectoryoffline{{logDirectory="{directory.path}"}} 1.0'
    assert name.encode() in metrics


async def test_the_space_of_each_log_directory_is_a_metric(endpoint: Endpoint) -> None:
    directory = endpoint.node.logs.directories[0]
    metrics = (await endpoint.get("/metrics"))[2].decode()
    found = dict(
        line.rsplit(" ", 1) for line in metrics.splitlines() if line.startswith("odradek_log_dir")
    )
    label = f'{{logDirectory="{directory.path}"}}'
    total = float(found[f"odradek_log_directory_total_bytes{label}"])
    assert 0 <= float(found[f"odradek_log_directory_usable_bytes{label}"]) <= total
    assert total == directory.volume().total_bytes


async def test_a_broker_on_a_full_disk_is_not_ready(endpoint: Endpoint) -> None:
    endpoint.node.logs.directories[0].disk.failed(OSError(errno.ENOSPC, "No space left on device"))
    status, _, body = await endpoint.get("/readyz")
    assert (status, json.loads(body)["disk_problem"]) == (503, "No space left on device")
    metrics = (await endpoint.get("/metrics"))[2]
    assert b"odradek_disk_writable 0.0" in metrics
    assert b"odradek_disk_write_failures_total 1.0" in metrics
    endpoint.node.logs.directories[0].disk.works()
    assert (await endpoint.get("/readyz"))[0] == 200
    assert b"odradek_disk_writable 1.0" in (await endpoint.get("/metrics"))[2]


async def test_n35_a_request_without_the_token_gets_no_details(guarded: Endpoint) -> None:
    guarded.node.offline.add(("t", 1))
    status, headers, body = await guarded.get("/metrics")
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert b"http.token" in body and b"s3cret" not in body
    assert (await guarded.get("/nothing"))[0] == 401, "what there is does not leak"
    assert (await guarded.get("/healthz"))[0] == 200
    status, _, body = await guarded.get("/readyz")
    assert (status, json.loads(body)) == (503, {"ready": False})


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Authorization: Bearer s3cret\r\n", 200),
        ("authorization:bearer  s3cret \r\n", 200),
        ("Authorization: Bearer s3cre\r\n", 401),
        ("Authorization: Bearer s3cret2\r\n", 401),
        ("Authorization: Bearer\r\n", 401),
        ("Authorization: Basic s3cret\r\n", 401),
        ("Authorization: s3cret\r\n", 401),
        ("X-Authorization: Bearer s3cret\r\n", 401),
    ],
)
async def test_n35_a_request_with_the_token_gets_all_details(
    guarded: Endpoint, headers: str, status: int
) -> None:
    assert (await guarded.get("/metrics", headers=headers))[0] == status
    told = json.loads((await guarded.get("/readyz", headers=headers))[2])
    assert ("offline_partitions" in told) == (status == 200)


async def test_the_answer_to_head_has_no_body(endpoint: Endpoint) -> None:
    status, headers, body = await endpoint.get("/healthz", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "3", b"")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\nHost: [::1]\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET /metrics SPDY/3\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x00\x00\x00\x12\x00\x12\x00\x03\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b" " * 8_000 + b"\0\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nno header\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing HTTP/1.1\r\n\r\n", 200),
    ],
)
async def test_an_http_request_is_answered_with_its_status(
    endpoint: Endpoint, request_: bytes, status: int
) -> None:
    answer = await endpoint.send(request_)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1") == 1 or status == 400, "one request of a connection"
    assert (await endpoint.get("/healthz"))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("LocalHost.:1", 200),
        ("[::1]:8080", 200),
        ("10.1.2.3", 200),
        ("broker.example", 200),
        ("Broker.Example.:80", 200),
        ("evil.example", 421),
        ("evil.example.", 421),
        ("127.0.0.1.evil.example:8080", 421),
        ("localhost.evil.example", 421),
        ("", 421),
        ("2130706433", 421),
        ("127.0.0.1:99999", 400),
        ("[::1", 400),
        ("a@127.0.0.1", 400),
        ("127.0.0.1/x", 400),
        ("127.0.0.1\r\nHost: 127.0.0.1", 400),
        ("127.0.0.1\r\nhost: evil.example", 400),
    ],
)
async def test_n60_the_endpoint_answers_to_its_own_names_only(
    endpoint: Endpoint, host: str, status: int
) -> None:
    for path in ("/metrics", "/healthz", "/readyz", "/nothing"):
        found, _, body = await endpoint.get(path, host=host)
        assert found == (404 if (status, path) == (200, "/nothing") else status)
        if status == 421:
            assert b"http.allowed.hosts" in body
            assert b"kafka" not in body


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://127.0.0.1:1/healthz", "127.0.0.1:1", 200),
        ("HTTP://localhost?x=/", "localhost", 404),
        ("http://evil.example/healthz", "127.0.0.1", 421),
        ("http://127.0.0.1/healthz", "evil.example", 421),
        ("https://u@127.0.0.1/healthz", "127.0.0.1", 400),
        ("ftp://127.0.0.1/healthz", "127.0.0.1", 400),
    ],
)
async def test_n60_the_host_of_an_absolute_target_counts_too(
    endpoint: Endpoint, target: str, host: str, status: int
) -> None:
    assert (await endpoint.get(target, host=host))[0] == status


async def test_n60_only_http_1_0_needs_no_host(endpoint: Endpoint) -> None:
    """No browser sends HTTP/1.0, but health checks of load balancers do."""
    assert (await endpoint.send(b"GET /healthz HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    answer = await endpoint.send(b"GET /healthz HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and b"Host" in answer


async def test_n60_a_request_with_the_token_may_have_any_name(guarded: Endpoint) -> None:
    with_token = "Authorization: Bearer s3cret\r\n"
    assert (await guarded.get("/metrics", headers=with_token, host="evil.example"))[0] == 200
    for headers in ("", "Authorization: Bearer guess\r\n"):
        assert (await guarded.get("/metrics", headers=headers, host="evil.example"))[0] == 421


async def test_n60_the_names_of_the_settings_are_the_endpoints() -> None:
    config = parse_config(
        {
            "http.listen": "localhost:0",
            "advertised.listeners": "PLAINTEXT://kafka.example:9092",
            "http.allowed.hosts": "broker, metrics.example",
        }
    )[0]
    names = names_of(config, config.advertised_addresses)
    assert {"localhost", "kafka.example", "broker", "metrics.example"} < set(names)
    assert socket.gethostname() in names


_LINES = st.lists(
    st.sampled_from(
        [b"Host: localhost", b"Host: evil", b"host:", b"Origin: null", b"Content-Length: 9", b" x"]
    )
    | st.binary(max_size=40)
)
_TARGETS = st.sampled_from([b"/metrics", b"*", b"http://localhost", b"x"]) | st.binary(max_size=40)


@given(method=st.sampled_from([b"GET", b"POST", b""]), target=_TARGETS, lines=_LINES)
def test_n60_no_head_gets_past_the_check_of_the_host(
    method: bytes, target: bytes, lines: list[bytes]
) -> None:
    """A head is refused, or has only names of the server, each of which the client has sent."""
    head = b"\r\n".join([method + b" " + target + b" HTTP/1.1", *lines, b"", b""])
    try:
        request = parse_head(head[: head.index(b"\r\n\r\n") + 4], "127.0.0.1")
        check_host(request, OwnHosts(), "{name}")
        check_order(request)
    except HttpError as refused:
        assert refused.status in (400, 403, 413, 415, 421)
        return
    sent = head.lower().split(b"\r\n\r\n")[0].split(b"\r\n")
    assert b"host: evil" not in sent
    assert request.hosts
    assert all(host_name(host) == "localhost" or is_address(host) for host in request.hosts)
    assert request.path.startswith(("/", "*"))


def test_a_head_is_checked_in_one_pass() -> None:
    """A pattern that goes back at each character would take a minute."""
    for line in (
        b"X:" + b" " * 400_000 + b"\0",
        b"!" * 400_000,
        b"X: " + b"\t " * 200_000 + b"\x7f",
    ):
        with pytest.raises(HttpError):
            parse_head(b"GET / HTTP/1.1\r\n" + line + b"\r\n\r\n", "")
    with pytest.raises(HttpError):
        parse_head(b"GET http://" + b"x" * 400_000 + b"/\n HTTP/1.1\r\nHost: x\r\n\r\n", "")


async def test_an_incomplete_http_request_is_answered_with_400(endpoint: Endpoint) -> None:
    assert (await endpoint.send(b"GET /heal", end=True)).startswith(b"HTTP/1.1 400 ")


async def test_an_http_request_that_does_not_arrive_in_time_is_ended(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "_REQUEST_TIMEOUT_S", 0.02)
    for begun in (b"", b"GET /heal", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"):
        assert (await endpoint.send(begun)).startswith(b"HTTP/1.1 408 ")


def assert_all_room(endpoint: Endpoint) -> None:
    """No ended connection counts any more."""
    connections = endpoint.server.connections
    assert connections._in_progress == {}
    assert len(connections._waiting) == len(connections._leaving) == 0


async def _all_closed(readers: list[asyncio.StreamReader]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for reader in readers:
            with suppress(ConnectionError):
                assert await reader.read() == b""


async def test_n61_silent_connections_keep_nobody_out(endpoint: Endpoint) -> None:
    """The oldest are closed for the next, before their time is over."""
    silent = [await asyncio.open_connection(*endpoint.address) for _ in range(300)]
    assert (await endpoint.get("/healthz"))[0] == 200
    assert (await endpoint.get("/metrics"))[0] == 200
    most = WAITING_PER_ADDRESS_MAX
    await _all_closed([reader for reader, _ in silent[: 300 - most]])
    for _, writer in silent:
        writer.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_n61_connections_that_are_closed_for_others_are_no_failures(new_loop: Any) -> None:
    """A write to a closed connection raises RuntimeError on uvloop, and each had a traceback."""
    failed = []

    async def crowd() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        made = an_endpoint()
        endpoint = await anext(made)
        idle = len(asyncio.all_tasks())
        for sent in (b"", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            opened = [await asyncio.open_connection(*endpoint.address) for _ in range(200)]
            for _, writer in opened:
                writer.write(sent)
                writer.transport.abort() if sent else None
            assert (await endpoint.get("/healthz"))[0] == 200
            for _, writer in opened:
                writer.close()
        await until(lambda: len(asyncio.all_tasks()) == idle)
        await made.aclose()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(crowd())
    assert failed == []


async def test_n61_peers_that_take_no_answer_keep_nobody_out(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def much() -> list[bytes]:
        return [b"#" * 100_000] * 80

    monkeypatch.setattr(endpoint.server, "_scraped", much)
    most = REQUESTS_PER_ADDRESS_MAX
    deaf = [socket.create_connection(endpoint.address, PATIENCE_S) for _ in range(most + 10)]
    for each in deaf:
        each.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert len((await endpoint.get("/metrics"))[2]) == 8_000_000
    for each in deaf:
        each.close()


async def test_n61_of_many_peers_that_take_no_answer_the_oldest_are_closed(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "_ANSWER_TIMEOUT_S", 10 * PATIENCE_S)

    async def much() -> list[bytes]:
        return [b"#" * 100_000] * 80

    monkeypatch.setattr(endpoint.server, "_scraped", much)
    most = 2 * REQUESTS_PER_ADDRESS_MAX
    idle, loop = len(asyncio.all_tasks()), asyncio.get_running_loop()
    deaf: list[socket.socket] = []
    while len(deaf) < most + 10:
        deaf.append(socket.create_connection(endpoint.address, PATIENCE_S))
        deaf[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        deaf[-1].setblocking(False)
        assert await loop.sock_recv(deaf[-1], 1), "the answer has begun"
    await until(lambda: len(asyncio.all_tasks()) == idle + most)
    for each in deaf:
        each.close()


async def test_n61_half_a_request_and_a_read_answer_count_as_silent(endpoint: Endpoint) -> None:
    most = WAITING_PER_ADDRESS_MAX
    opened = []
    for number in range(most):
        reader, writer = await asyncio.open_connection(*endpoint.address)
        whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        writer.write(whole if number % 2 else b"GET /healthz HTTP/1.1\r\nHo")
        if number % 2:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        opened.append((reader, writer))
    for _ in range(2 * most):
        opened.append(await asyncio.open_connection(*endpoint.address))
    assert (await endpoint.get("/healthz"))[0] == 200
    async with asyncio.timeout(PATIENCE_S):
        for reader, _ in opened[:most]:
            with suppress(ConnectionError):
                await reader.read()
    for _, writer in opened:
        writer.close()


async def test_n61_requests_over_the_limit_are_refused_but_probes_are_answered(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    scraped = []

    async def scrape() -> None:
        scraped.append(1)
        await asyncio.Event().wait()

    monkeypatch.setattr(endpoint.server, "_scraped", scrape)
    most = REQUESTS_PER_ADDRESS_MAX
    begun = []
    for _ in range(most):
        begun.append(await asyncio.open_connection(*endpoint.address))
        begun[-1][1].write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await until(lambda: len(scraped) == most)
    status, _, body = await endpoint.get("/metrics")
    assert (status, body[:17]) == (503, b"too many requests")
    assert (await endpoint.get("/healthz"))[0] == 200
    assert (await endpoint.get("/readyz"))[0] == 200
    for _, writer in begun:
        writer.transport.abort()


async def test_n61_an_answer_that_nobody_takes_ends_its_connection(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a reader the bytes stay, and a socket that is closed politely stays with them."""
    monkeypatch.setattr(http_connections, "_ANSWER_TIMEOUT_S", 0.2)

    async def much() -> list[bytes]:
        return [b"#" * 8_000_000]

    monkeypatch.setattr(endpoint.server, "_scraped", much)
    # Without a task that reads, the kernel's buffer fills up.
    idle = len(asyncio.all_tasks())
    with socket.create_connection(endpoint.address, PATIENCE_S) as peer:
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(asyncio.all_tasks()) > idle)
        await until(lambda: len(asyncio.all_tasks()) == idle)
        taken = await asyncio.to_thread(
            lambda: sum(map(len, iter(partial(peer.recv, 1 << 20), b"")))
        )
    assert taken < 8_000_000, "what the peer had not taken was dropped"
    assert_all_room(endpoint)


@pytest.mark.budgeted
async def test_n61_ten_thousand_connections_leave_nothing_behind(endpoint: Endpoint) -> None:
    idle = len(asyncio.all_tasks())
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for number in range(budget.examples(10_000)):
        _, writer = await asyncio.open_connection(*endpoint.address)
        writer.write(request[: number % (len(request) + 1)])
        writer.close() if number % 2 else writer.transport.abort()
    assert (await endpoint.get("/healthz"))[0] == 200
    await until(lambda: len(asyncio.all_tasks()) == idle)
    assert_all_room(endpoint)


async def test_a_failure_is_answered_and_does_not_affect_other_requests(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(endpoint.node, "partitions", broken)
    status, _, body = await endpoint.get("/readyz")
    assert (status, b"RuntimeError" in body, b"broken" in body) == (500, True, False)
    assert (await endpoint.get("/healthz"))[0] == 200


class _RoomyWriter:
    """A writer whose peer takes everything at once."""

    def __init__(self, name: str, written: list[str]) -> None:
        self._name, self._written = name, written
        self.transport = self

    def is_closing(self) -> bool:
        return False

    def write(self, part: bytes) -> None:
        self._written.append(self._name)

    async def drain(self) -> None:
        pass


async def test_n57_large_answers_are_written_in_turns() -> None:
    written: list[str] = []
    writers: list[Any] = [_RoomyWriter(name, written) for name in "ab"]
    await asyncio.gather(*(http_connections._send(None, [b"part"] * 3, each) for each in writers))
    assert "".join(written) == "ababab"


async def test_a_stop_closes_open_http_connections(endpoint: Endpoint) -> None:
    reader, writer = await asyncio.open_connection(*endpoint.address)
    writer.write(b"GET /heal")
    assert (await endpoint.get("/healthz"))[
        0
    ] == 200  # The endpoint accepted the first connection before this request.
    await endpoint.server.stop()
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()
