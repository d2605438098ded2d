"""A proxy that parses the frames between clients and a broker; at chosen requests, it can cut
connections and change responses."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from odradek_protocol import codec, frames
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import Message


class Cut(Exception):
    """Raised by a hook to close the connection."""


@dataclass
class Exchange:
    """One request, and its response once the broker has sent it."""

    connection: _Connection
    key: ApiKey
    version: int
    correlation_id: int
    request_frame: bytes
    #: True if the request went on to the broker: no hook has closed its connection or answered it.
    forwarded: bool = False
    response_frame: bytes | None = None

    @property
    def request(self) -> Any:
        """The request's message."""
        api = APIS[self.key]
        _, position = frames.decode_request_header(self.request_frame)
        if api.request_header_version(self.version) == 2:
            position = frames.skip_tags(self.request_frame, position)
        return codec.decode(api.request, self.version, self.request_frame, position)

    @property
    def response(self) -> Any:
        """The message that the broker answered with."""
        assert self.response_frame is not None
        return frames.decode_response(APIS[self.key], self.version, self.response_frame)


def pass_on(_: Exchange) -> Message | None:
    """The default `asked` hook: forward the request."""
    return None


def deliver(_: Exchange) -> bool:
    """The default `answered` hook: give the response to the client."""
    return True


class BrokerProxy:
    """Listens at `address`, which the broker has to advertise, and forwards to `port` on 127.0.0.1.

    `asked` is called with each request; it returns a response to give without asking the broker, or
    None. `answered` is called with each response, and returns True if the client gets it. Both may
    raise `Cut`. Both run on threads of the proxy.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.port = 0
        self.asked: Callable[[Exchange], Message | None] = pass_on
        self.answered: Callable[[Exchange], bool] = deliver
        self.exchanges: list[Exchange] = []
        self._connections: list[_Connection] = []
        self._refusing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self) -> None:
        """Remove the hooks, and forget all exchanges."""
        self.asked, self.answered = pass_on, deliver
        self.exchanges.clear()

    def of(self, key: ApiKey) -> list[Exchange]:
        """The exchanges of one API, in order."""
        return [each for each in list(self.exchanges) if each.key is key]

    def unanswered(self, keys: Collection[ApiKey]) -> list[Exchange]:
        """The forwarded requests without a response, on connections that the proxy has not
        closed."""
        return [
            each
            for each in list(self.exchanges)
            if each.key in keys
            and each.forwarded
            and each.response_frame is None
            and each.connection.ended_by != "proxy"
        ]

    def refuse(self) -> None:
        """Cut all connections, and cut new ones immediately, until `resume`."""
        self._refusing = True
        for connection in list(self._connections):
            connection.end("proxy")

    def cut(self, key: ApiKey) -> None:
        """Cut the connections that have sent requests of this API."""
        for connection in {each.connection for each in self.of(key)}:
            connection.end("proxy")

    def resume(self) -> None:
        """Accept connections again."""
        self._refusing = False

    def close(self) -> None:
        """Close all connections and stop listening."""
        self.refuse()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                client.close()
                continue
            connection = _Connection(self, client, broker)
            self._connections.append(connection)
            for pump in (connection.pump_requests, connection.pump_responses):
                threading.Thread(target=pump, daemon=True).start()


class _Connection:
    """A client's connection to the proxy, with the proxy's connection to the broker for this
    client."""

    def __init__(self, proxy: BrokerProxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy, self._client, self._broker = proxy, client, broker
        self._lock = threading.Lock()
        self._waiting: dict[int, Exchange] = {}
        #: The side that closed first: "client", "broker" or "proxy"; None while the connection is
        #: open.
        self.ended_by: str | None = None

    def end(self, by: str) -> None:
        with self._lock:
            self.ended_by = self.ended_by or by
        for side in (self._client, self._broker):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def pump_requests(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _receive(self._client)) is not None:
                header, _ = frames.decode_request_header(frame)
                exchange = Exchange(
                    self, ApiKey(header.api_key), header.api_version, header.correlation_id, frame
                )
                self._proxy.exchanges.append(exchange)
                try:
                    instead = self._proxy.asked(exchange)
                except Cut:
                    self.end("proxy")
                    return
                if instead is not None:
                    api = APIS[exchange.key]
                    answer = frames.encode_response(
                        api, exchange.version, exchange.correlation_id, instead
                    )
                    self._client.sendall(b"".join(answer))
                    continue
                self._waiting[exchange.correlation_id] = exchange
                exchange.forwarded = True
                self._broker.sendall(len(frame).to_bytes(4, "big") + frame)
        self.end("client")

    def pump_responses(self) -> None:
        with contextlib.suppress(OSError):
            while (frame := _receive(self._broker)) is not None:
                exchange = self._waiting.pop(frames.decode_correlation_id(frame))
                exchange.response_frame = frame
                try:
                    if self._proxy.answered(exchange):
                        self._client.sendall(len(frame).to_bytes(4, "big") + frame)
                except Cut:
                    self.end("proxy")
                    return
        self.end("broker")


def _receive(source: socket.socket) -> bytes | None:
    """Return the next frame without its length, or None at the end of the stream."""
    size = _exactly(source, 4)
    return None if size is None else _exactly(source, int.from_bytes(size, "big"))


def _exactly(source: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        part = source.recv(size - len(received))
        if not part:
            return None
        received += part
    return bytes(received)
