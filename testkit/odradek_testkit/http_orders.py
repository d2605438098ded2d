"""Orders as JSON over HTTP to a broker under test, or to the host process of virtual clusters."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

from odradek_client.errors import OdradekError
from odradek_protocol.http_deadline import Deadline

_CONNECT_S = 10.0
_TEXT_BYTES_MAX = 1000
_ANSWER_BYTES_MAX = 64 * 1024 * 1024


class HttpOrders:
    """Sends orders to the HTTP endpoint at HOST:PORT, under a path such as /faults.

    Raises `refused` if an order is refused or the endpoint is unreachable. If the endpoint does not
    accept such orders, the text of the error is `takes_none`. `answer_s`: the longest time to wait
    for an answer, in seconds.
    """

    def __init__(
        self,
        address: str,
        path: str,
        refused: type[OdradekError],
        takes_none: str,
        answer_s: float = _CONNECT_S,
    ) -> None:
        self.address = address.removeprefix("http://").rstrip("/")
        self._path = path
        self._refused = refused
        self._takes_none = takes_none
        self._answer_s = answer_s

    def send(self, method: str, path: str, order: dict[str, Any] | None) -> Any:
        """Send an order; returns the answer."""
        from http.client import HTTPConnection, HTTPException

        body = None if order is None else json.dumps(order)
        try:
            connection = HTTPConnection(self.address, timeout=self._answer_s)
            headers = {"Content-Type": "application/json"} if method == "POST" else {}
            with Deadline(self._answer_s) as deadline, closing(connection):
                deadline.watched(connection).request(method, f"{self._path}{path}", body, headers)
                answer = connection.getresponse()
                status, content = answer.status, answer.read(_ANSWER_BYTES_MAX)
        except (OSError, HTTPException, ValueError) as error:
            raise self._refused(
                f"cannot reach the broker at http://{self.address}: {error}"
            ) from error
        try:
            found = json.loads(content)
            if status >= 300:
                refusal = str(found["error"])
        except (ValueError, RecursionError, TypeError, KeyError):
            # A broker that accepts no such orders answers 404 or 405, or 401 if it requires a
            # token.
            problem = (
                self._takes_none
                if status in (200, 401, 404, 405)
                else f"refused: {content[:_TEXT_BYTES_MAX].decode('utf-8', 'replace').strip()}"
            )
            raise self._refused(f"http://{self.address} (HTTP {status}) {problem}") from None
        if status >= 300:
            raise self._refused(refusal)
        return found
