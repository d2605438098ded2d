"""The request as handlers see it besides its body, and the forms of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from odradek_protocol.message import Message

#: The user of every connection: there is no authentication. The name is Kafka's.
ANONYMOUS = "ANONYMOUS"


@dataclass(slots=True)
class RequestContext:
    """`host` is the peer's address; `connection_id` is unique while the broker runs.

    `user`: who sent it, as the connection's session has found out. `listener`: the name of the listener
    that it came to. `size_bytes`: of the request's body. `throttle_ms`: how long the connection has to wait because of
    the quota `throttled_by`; 0 if it has not.
    """

    api_version: int
    client_id: str | None
    host: str
    connection_id: int
    size_bytes: int = 0
    user: str = ANONYMOUS
    listener: str = ""
    throttle_ms: int = 0
    throttled_by: str = ""

    def throttle(self, quota: str, throttle_ms: int) -> None:
        """A quota is exceeded; of several the longest wait counts (Q-06)."""
        if throttle_ms > self.throttle_ms:
            self.throttle_ms, self.throttled_by = throttle_ms, quota


class CloseConnection(Exception):
    """Raised or answered: the connection is closed instead, and the text goes to the log (N-06)."""


@dataclass(frozen=True, slots=True)
class AnswerTooLarge:
    """Answered by a handler that gave up on an answer larger than fetch.max.bytes (D11).

    `least_bytes`: its size when it was given up.
    """

    least_bytes: int


class NoResponse:
    """Answered where the protocol wants no response (acks=0, N-09)."""


NO_RESPONSE = NoResponse()

HandlerReply = Message | CloseConnection | AnswerTooLarge | NoResponse
