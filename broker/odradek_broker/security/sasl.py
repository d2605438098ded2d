"""The interface of SASL mechanisms: an exchange of tokens that ends with a user, or with a
refusal."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_protocol.lazy_dataclass import dataclass

#: Kafka's error message for a client that authenticates as one user and asks to act as another.
OTHER_USER = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


@dataclass(frozen=True)
class Challenge:
    """The continuation of an exchange, with a token for the client."""

    token: bytes = field(repr=False)


@dataclass(frozen=True)
class Authenticated:
    """The successful end of an exchange: the client is this user. `expires_at_ms`: the wall time at
    which the client's credentials expire; None if they do not. `by_token`: true if the credentials
    are a delegation token."""

    user: str
    token: bytes = field(default=b"", repr=False)
    expires_at_ms: int | None = None
    by_token: bool = False


@dataclass(frozen=True)
class SaslFailure:
    """The failed end of an exchange.

    `reason`: the reason for the log, without any secret. `client_message`: the message for the
    client; if it is None, the client is told that its credentials are invalid.
    """

    reason: str
    client_message: str | None = None


Step = Challenge | Authenticated | SaslFailure


class SaslServer(Protocol):
    """An authentication of one client by one mechanism."""

    def step(self, token: bytes, /) -> Step | Deferred[Step]:
        """Process the next token of the client. Not to be called after the end of the exchange."""
        ...


class Mechanism(Protocol):
    """A SASL mechanism of one listener."""

    def begin(self, host: str, /) -> SaslServer:
        """Begin the exchange of a client at this address."""
        ...
