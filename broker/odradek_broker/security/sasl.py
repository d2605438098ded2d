"""SASL mechanisms as a listener sees them: an exchange of tokens that ends with a user, or with a
refusal."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from odradek_broker.deferred import Deferred

#: Kafka's words where a client asks to be somebody else than it can show.
OTHER_USER = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


@dataclass(frozen=True)
class Challenge:
    """The exchange goes on: what the client is sent."""

    token: bytes = field(repr=False)


@dataclass(frozen=True)
class Authenticated:
    """The end: the client is this user. `expires_at_ms`: wall time at which what it showed
    expires."""

    user: str
    token: bytes = field(default=b"", repr=False)
    expires_at_ms: int | None = None


@dataclass(frozen=True)
class Refused:
    """The end: why, for the log, which has no secret in it. `told`: what the client is told; None:
    that its credentials are invalid, and nothing more."""

    reason: str
    told: str | None = None


Step = Challenge | Authenticated | Refused


class Exchange(Protocol):
    """An authentication of one client by one mechanism."""

    def step(self, token: bytes, /) -> Step | Deferred[Step]:
        """Take the client's next token. Not called after the end."""
        ...


class Mechanism(Protocol):
    """A mechanism of one listener."""

    def begin(self, host: str, /) -> Exchange:
        """A client at this address begins."""
        ...
