"""A limit for the whole time of a request over HTTP.

The timeout of a socket begins again with every byte that arrives, and `http.client` forgets the
socket of a response after which the server closes the connection. So a server that sends a byte at
a time could hold a request without an end.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
import urllib.request
from types import TracebackType
from typing import Any, Self


class Deadline:
    """The time limit of a block. After `timeout_s`, the sockets of the `watched` connections are
    shut down, and the block raises TimeoutError, whatever it has read until then."""

    def __init__(self, timeout_s: float) -> None:
        self._end_s = time.monotonic() + timeout_s
        self._links: list[socket.socket] = []
        self._lock = threading.Lock()
        self._timer = threading.Timer(max(timeout_s, 0), self._hang_up)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._timer.cancel()
        is_over = time.monotonic() >= self._end_s
        with self._lock:
            for link in self._links:
                link.close()
            self._links.clear()
        if is_over and (kind is None or issubclass(kind, OSError | http.client.HTTPException)):
            raise TimeoutError("the answer did not arrive in time") from None

    def watched(self, connection: http.client.HTTPConnection) -> http.client.HTTPConnection:
        """The connection, which opens its socket within the limit."""
        connection._create_connection = self._connect  # type: ignore[attr-defined]
        return connection

    def watch(self, link: socket.socket) -> None:
        """Shut this socket down after the limit."""
        # TLS takes a socket over, and `http.client` forgets it; its copy still ends the connection.
        with self._lock:
            self._links.append(socket.socket(fileno=os.dup(link.fileno())))
        if time.monotonic() >= self._end_s:
            self._hang_up()

    def opener(self) -> urllib.request.OpenerDirector:
        """An opener of URLs of http and https, whose connections are watched. It follows redirects
        to no other scheme: the connections of ftp could not be watched."""
        deadline = self

        class Http(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> Any:
                def connection(host: str, **named: Any) -> http.client.HTTPConnection:
                    return deadline.watched(http.client.HTTPConnection(host, **named))

                return self.do_open(connection, request)

        class Https(urllib.request.HTTPSHandler):
            def https_open(self, request: urllib.request.Request) -> Any:
                def connection(host: str, **named: Any) -> http.client.HTTPConnection:
                    return deadline.watched(http.client.HTTPSConnection(host, **named))

                return self.do_open(connection, request)

        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler,
            urllib.request.UnknownHandler,
            urllib.request.HTTPDefaultErrorHandler,
            urllib.request.HTTPRedirectHandler,
            urllib.request.HTTPErrorProcessor,
            Http,
            Https,
        ):
            opener.add_handler(handler())
        return opener

    def _connect(
        self, address: tuple[str, int], timeout_s: float | None, source: Any = None
    ) -> socket.socket:
        failure: OSError = TimeoutError("timed out")
        for family, kind, protocol, _, place in self._resolved(*address):
            left_s = self._end_s - time.monotonic()
            if left_s <= 0:
                break
            link = socket.socket(family, kind, protocol)
            try:
                link.settimeout(left_s if timeout_s is None else min(timeout_s, left_s))
                link.connect(place)
                self.watch(link)
                return link
            except OSError as error:
                link.close()
                failure = error
        raise failure

    def _resolved(self, host: str, port: int) -> list[Any]:
        """The addresses of a host. Nothing ends a resolver that waits for its servers, so it runs
        in a thread that is left alone after the limit."""
        found: list[Any] = []

        def resolve() -> None:
            try:
                found.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            except (OSError, UnicodeError) as error:
                found.append(error)

        thread = threading.Thread(target=resolve, name="odradek-resolver", daemon=True)
        thread.start()
        thread.join(max(self._end_s - time.monotonic(), 0))
        if not found:
            raise TimeoutError("timed out")
        if isinstance(found[0], Exception):
            raise found[0]
        addresses: list[Any] = found[0]
        return addresses

    def _hang_up(self) -> None:
        with self._lock:
            for link in self._links:
                try:
                    link.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue
