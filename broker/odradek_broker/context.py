"""What a handler knows of a request besides its body."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RequestContext:
    """`host` is the peer's address; `connection_id` is unique while the broker runs."""

    api_version: int
    client_id: str | None
    host: str
    connection_id: int


class CloseConnection(Exception):
    """The only answer to this request is to hang up; the text goes to the log (rule N-06)."""


@dataclass(frozen=True, slots=True)
class AnswerTooLarge:
    """What a handler returns that gave up on an answer larger than fetch.max.bytes: so many bytes
    it had by then (D11)."""

    least_bytes: int


class NoResponse:
    """What a handler returns when the protocol wants no answer (acks=0, rule N-09)."""


NO_RESPONSE = NoResponse()
