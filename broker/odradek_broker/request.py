"""The request as handlers see it besides its body, and the forms of an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_protocol.codec import Buffer
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import Message

#: The user of a connection on which nobody has said who it is. The name is Kafka's.
ANONYMOUS = "ANONYMOUS"


@dataclass(frozen=True)
class AuthenticationAnswer:
    """The answer to SaslAuthenticate. `lifetime_ms`: of the session; 0 for ever."""

    error: ErrorCode
    message: str
    token: bytes = field(repr=False)
    lifetime_ms: int


class Authentication(Protocol):
    """An authentication that is under way on the connection of a request."""

    def versions_asked(self) -> ErrorCode:
        """The code to answer ApiVersions with."""
        ...

    def handshake(self, mechanism: str, version: int, /) -> tuple[ErrorCode, list[str]]:
        """The code and the mechanisms to answer SaslHandshake with."""
        ...

    def authenticate(
        self, token: bytes, /
    ) -> AuthenticationAnswer | Deferred[AuthenticationAnswer]:
        """The answer to a SaslAuthenticate with this token."""
        ...


@dataclass(slots=True)
class RequestContext:
    """`host` is the peer's address; `connection_id` is unique while the broker runs.

    `user`: who sent it, as the connection's session has found out. `listener`: the name of the
    listener that it came to. `authentication`: the one that this request belongs to, if it does.
    `api_name`: what it asks, like Fetch. `size_bytes`: of the request's body. `throttle_ms`: how
    long the connection has to wait because of the quota `throttled_by`; 0 if it has not.
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
    authentication: Authentication | None = None
    api_name: str = ""

    def throttle(self, quota: str, throttle_ms: int) -> None:
        """A quota is exceeded; of several the longest wait counts (Q-06)."""
        if throttle_ms > self.throttle_ms:
            self.throttle_ms, self.throttled_by = throttle_ms, quota


class CloseConnection(Exception):
    """Raised or answered: the connection is closed instead, and the text goes to the log (N-06)."""


class UnservedKey(CloseConnection):
    """A request of a key that is not served: the log says so once for each key."""


@dataclass(frozen=True, slots=True)
class AnswerTooLarge:
    """Answered by a handler that gave up on an answer larger than fetch.max.bytes (D11).

    `least_bytes`: its size when it was given up.
    """

    least_bytes: int


class NoResponse:
    """Answered where the protocol wants no response (acks=0, N-09)."""


NO_RESPONSE = NoResponse()

#: The buffers of a frame; None where nothing is sent; or the end of the connection.
EncodedReply = list[Buffer] | None | CloseConnection
HandlerReply = Message | CloseConnection | AnswerTooLarge | NoResponse
