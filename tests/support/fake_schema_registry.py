"""A schema registry over HTTP, in a thread, which gives the responses that a test has set."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: The time in s after which the server notices that it is to stop.
_POLL_S = 0.01


class FakeRegistry:
    """A registry on a free port.

    `answers`: the response to each path with its query: a dict is sent as JSON, bytes are sent as
    they are, with `status`, an int is a status that gets an error message.

    `asked`: the requested paths so far. `headers`: the headers of the last request.
    """

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any] | bytes | int] = {}
        self.asked: list[str] = []
        self.headers: dict[str, str] = {}
        self.redirect: str | None = None
        self.message = "Schema not found"
        self.status = 200
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.asked.append(self.path)
                fake.headers = dict(self.headers.items())
                if fake.redirect is not None:
                    self.send_response(302)
                    self.send_header("Location", fake.redirect)
                    self.end_headers()
                    return
                answer = fake.answers.get(self.path, 404)
                status, body = fake.status, answer
                if isinstance(answer, int):
                    status, body = answer, {"error_code": 40403, "message": fake.message}
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=[_POLL_S], daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """A registry that is closed at the end of the block."""
    fake = FakeRegistry()
    try:
        yield fake
    finally:
        fake.close()
