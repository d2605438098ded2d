"""The data of a request without its body, and the possible replies of a handler."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_protocol.codec import Buffer
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.message import Message

#: The user of a connection without authentication. The name is Kafka's.
ANONYMOUS = "ANONYMOUS"


@dataclass(frozen=True)
class AuthenticationAnswer:
    """The answer to SaslAuthenticate. `lifetime_ms`: the lifetime of the session; 0 means
    unlimited."""

    error: ErrorCode
    message: str
    token: bytes = field(repr=False)
    lifetime_ms: int


class Authentication(Protocol):
    """The authentication of the connection on which a request came."""

    def versions_asked(self) -> ErrorCode:
        """The error code for ApiVersions."""
        ...

    def handshake(self, mechanism: str, version: int, /) -> tuple[ErrorCode, list[str]]:
        """The error code and the mechanisms for SaslHandshake."""
        ...

    def authenticate(
        self, token: bytes, /
    ) -> AuthenticationAnswer | Deferred[AuthenticationAnswer]:
        """The answer to a SaslAuthenticate with this token."""
        ...


@dataclass(slots=True)
class Peer:
    """The other end of a connection, and the name of the listener that accepted it.

    `user`: the authenticated user, or ANONYMOUS; `by_token`: a delegation token has authenticated
    it. `throttle_ms`: the time for which the session has to throttle the connection; the session
    sets it to 0 when the throttling begins. `authentication`: the exchange in progress, or None.
    `requests`: the number of requests so far; `client_id` and `api_name` are those of the last
    request. `recorded`: true if the history has the event of the first request. `opened_ms`: wall
    time. `end`: the reason for which the broker closes the connection.

    `fetched_ms`: the monotonic time of the last Fetch, -1 before the first; `read_committed`: it
    asked for committed records only. `fetch_errors`: the last error of a partition in answers to
    Fetch, with its time. `throttled_by`: the quota that last throttled the connection;
    `throttled_until_ms`: the end of that wait.
    """

    host: str
    connection_id: int
    listener: str = ""
    user: str = ANONYMOUS
    throttle_ms: int = 0
    authentication: Authentication | None = None
    requests: int = 0
    recorded: bool = False
    client_id: str | None = None
    api_name: str = ""
    software_name: str = ""
    software_version: str = ""
    port: int = 0
    opened_ms: int = 0
    end: str = ""
    by_token: bool = False
    fetched_ms: int = -1
    read_committed: bool = False
    fetch_errors: dict[tuple[str, int], tuple[ErrorCode, int]] = field(default_factory=dict)
    throttled_by: str = ""
    throttled_until_ms: int = -1


@dataclass(slots=True)
class RequestContext:
    """The data of a request besides its body. `host`: the peer's address. `connection_id` is unique
    while the broker runs.

    `user`: the authenticated user; `by_token`: a delegation token has authenticated it. `listener`:
    the name of the listener that accepted the connection. `authentication`: set while the
    connection authenticates. `api_name`: the API, such as Fetch. `size_bytes`: the size of the
    request's body. `throttle_ms`: the time for which the connection has to wait because of the
    quota `throttled_by`, or 0.
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
    by_token: bool = False

    def throttle(self, quota: str, throttle_ms: int) -> None:
        """Throttle the connection because a quota is exceeded; if several quotas are exceeded, the
        longest time applies (Q-06)."""
        if throttle_ms > self.throttle_ms:
            self.throttle_ms, self.throttled_by = throttle_ms, quota


class CloseConnection(Exception):
    """The reply, or the exception, that closes the connection; the text is logged (N-06)."""


class UnservedKey(CloseConnection):
    """The close of a connection because of an API key that is not served. The event is logged once
    for each key.
    """


@dataclass(frozen=True, slots=True)
class AnswerTooLarge:
    """The reply of a handler whose answer would be larger than fetch.max.bytes (D11).

    `least_bytes`: the size of the answer when the handler stopped.
    """

    least_bytes: int


class NoResponse:
    """The reply to a request for which the protocol has no response (acks=0, N-09)."""


NO_RESPONSE = NoResponse()

#: The encoded reply: the buffers of a frame, None for no response, or the close of the connection.
EncodedReply = list[Buffer] | None | CloseConnection
HandlerReply = Message | CloseConnection | AnswerTooLarge | NoResponse
