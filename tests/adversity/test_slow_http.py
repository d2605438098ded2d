"""Servers over HTTP that send a byte at a time: every client of ours ends within its own time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fake_schema_registry import fake_registry
from odradek.decoders import SchemaRegistry
from odradek.faults import FaultRefused
from odradek_broker.server import jwks
from odradek_client.sasl import token_endpoint
from odradek_client.sasl.settings import TokenEndpoint
from odradek_client.sasl.token_endpoint import EndpointBusy
from odradek_records.decoders.plain import CannotDecode
from odradek_testkit.http_orders import HttpOrders

LIMIT_S = 0.3


def registry(address: str) -> None:
    with pytest.raises(CannotDecode, match="does not answer within"):
        SchemaRegistry(f"http://{address}", timeout_s=LIMIT_S).by_id(1)


def tls_registry(address: str) -> None:
    with pytest.raises(CannotDecode, match="does not answer within"):
        SchemaRegistry(f"https://{address}", timeout_s=LIMIT_S).by_id(1)


def tokens(address: str) -> None:
    endpoint = TokenEndpoint(url=f"http://{address}", client_id="id", client_secret="secret")
    with pytest.raises(EndpointBusy, match="does not answer in time"):
        token_endpoint.ask(endpoint, int(LIMIT_S * 1000), int(LIMIT_S * 1000))


def keys(address: str) -> None:
    with pytest.raises(jwks.JwksError, match="in time"):
        jwks.read_jwks(f"http://{address}")


def orders(address: str) -> None:
    with pytest.raises(FaultRefused, match="in time"):
        HttpOrders(address, "/faults", FaultRefused, "takes none", LIMIT_S).send("GET", "", None)


#: What the server sends before it drips: nothing; the head of an answer after which it closes the
#: connection; the head of a TLS record.
STARTS = {
    "status": b"H",
    "close": b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n",
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    "tls": b"\x16\x03\x03\x40\x00",
}


@contextmanager
def dripping(start: bytes) -> Iterator[str]:
    done = threading.Event()

    def serve(server: socket.socket) -> None:
        while not done.is_set():
            link, _ = server.accept()
            with link:
                try:
                    link.sendall(start)
                    while not done.wait(0.01):
                        link.sendall(b"1")
                except OSError:
                    continue

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=[server], daemon=True)
        thread.start()
        port = server.getsockname()[1]
        yield f"127.0.0.1:{port}"
        done.set()
        socket.create_connection(("127.0.0.1", port)).close()
        thread.join()


@pytest.mark.parametrize("start", ["status", "close", "length"])
@pytest.mark.parametrize("ask", [registry, tokens, keys, orders])
def test_no_request_outlives_its_time(
    ask: Callable[[str], None], start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "_TIMEOUT_S", LIMIT_S)
    with dripping(STARTS[start]) as address:
        ask(address)


@pytest.mark.parametrize("ask", [registry, tls_registry, tokens, keys, orders])
def test_no_request_waits_longer_for_a_resolver_of_names(
    ask: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        answered.wait()
        return []

    monkeypatch.setattr(jwks, "_TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    ask("registry.test:1")
    assert not answered.is_set()
    answered.set()


def test_a_redirect_to_another_scheme_is_not_followed() -> None:
    """The connections of ftp would have no limit."""
    with fake_registry() as redirecting:
        redirecting.redirect = "ftp://127.0.0.1:1/keys"
        with pytest.raises(jwks.JwksError, match="unknown url type: ftp"):
            jwks.read_jwks(redirecting.url)


@pytest.mark.parametrize("answer", [b"[]", b'{"id": 1}', b'"no"', b"[" * 100_000, b"\xff"])
def test_a_refusal_without_a_text_is_an_error_that_says_so(answer: bytes) -> None:
    with fake_registry() as fake:
        fake.answers["/faults"], fake.status = answer, 500
        address = fake.url.removeprefix("http://")
        with pytest.raises(FaultRefused, match="HTTP 500"):
            HttpOrders(address, "/faults", FaultRefused, "takes none").send("GET", "", None)


def test_no_handshake_of_tls_outlives_its_time() -> None:
    with dripping(STARTS["tls"]) as address:
        tls_registry(address)
