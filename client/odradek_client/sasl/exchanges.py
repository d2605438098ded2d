"""The client's side of PLAIN, SCRAM and OAUTHBEARER: one object for one authentication."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from odradek_client.errors import AuthenticationFailed
from odradek_client.sasl.tokens import Token
from odradek_protocol.sasl import oauthbearer, plain
from odradek_protocol.sasl.oauthbearer import OAuthBearerMessage
from odradek_protocol.sasl.plain import PlainMessage
from odradek_protocol.sasl.scram import (
    ITERATIONS_MIN,
    TOKEN_AUTHENTICATION,
    ClientFirst,
    ScramClient,
    ScramMechanism,
    ScramState,
)

#: The limit of SCRAM iterations that a broker may demand. With this number the computation takes a
#: tenth of a second (C-72). Kafka's brokers store at most 16,384 iterations.
SCRAM_ITERATIONS_MAX = 100_000
_ERROR_BYTES_MAX = 4096


@dataclass(frozen=True)
class Password:
    """A user's name and password. `place`: the setting that contains them, for error messages."""

    username: str
    password: str = field(repr=False)
    place: str
    #: True if the name is that of a delegation token (KIP-48).
    is_delegation_token: bool = False

    @property
    def who(self) -> str:
        """The name of the user, for error messages."""
        kind = "delegation token" if self.is_delegation_token else "user"
        return f"{kind} {self.username!r}"

    def advice(self, mechanism: str) -> str:
        """The advice after a refused SCRAM authentication."""
        if self.is_delegation_token:
            return (
                "it has expired or was ended, or its id and HMAC are not those of"
                f" {self.place}: get another token, as with `odradek token create`"
            )
        return f"check {self.place}, and that there is a credential of {mechanism}"


class PlainExchange:
    """PLAIN: one token with name and password."""

    mechanism = plain.MECHANISM

    def __init__(self, credentials: Password) -> None:
        self._credentials = credentials
        self.who = credentials.who
        self.advice = f"check {credentials.place}"

    def first(self) -> bytes:
        return PlainMessage(self._credentials.username, self._credentials.password).encode()

    def answer(self, token: bytes) -> bytes | None:
        """Always None, because PLAIN has no further token."""
        return None


class ScramExchange:
    """SCRAM: shows that the client knows the password, and that the broker knows it (C-72)."""

    def __init__(self, scram: ScramMechanism, credentials: Password, nonce: str) -> None:
        self.mechanism = scram.mechanism
        self.who = credentials.who
        self.advice = credentials.advice(scram.mechanism)
        self._password = credentials.password
        extensions = {TOKEN_AUTHENTICATION: "true"} if credentials.is_delegation_token else {}
        self._first = ClientFirst(credentials.username, nonce, extensions=extensions)
        self._client = ScramClient(scram, self._first)

    def first(self) -> bytes:
        return self._first.encode()

    def answer(self, token: bytes) -> bytes | None:
        """The client's proof as the next token; None when the broker has shown its own proof."""
        if self._client.state is ScramState.FIRST:
            server = self._client.receive_first(token)
            self._check_iterations(server.iterations)
            return self._client.prove(self._password)
        right, error = self._client.receive_final(token)
        if error:
            raise AuthenticationFailed(f"it refuses {self.who}: {error}; {self.advice}")
        if not right:
            raise AuthenticationFailed(
                "it does not know the password itself (its signature is wrong), and so is not the broker"
                " that it claims to be"
            )
        return None

    def _check_iterations(self, iterations: int) -> None:
        if iterations < ITERATIONS_MIN:
            raise AuthenticationFailed(
                f"the broker requires {iterations} iterations of {self.mechanism}, which are too"
                f" few to protect the password: at least {ITERATIONS_MIN} are needed; create the"
                " credential again"
            )
        if iterations > SCRAM_ITERATIONS_MAX:
            raise AuthenticationFailed(
                f"the broker requires {iterations} iterations of {self.mechanism}; at most"
                f" {SCRAM_ITERATIONS_MAX} are done"
            )


class OAuthBearerExchange:
    """OAUTHBEARER: one token of an identity provider."""

    mechanism = oauthbearer.MECHANISM
    who = "the token"

    def __init__(self, token: Token, source: str, now_ms: float) -> None:
        self._token = token
        expired = token.expires_ms is not None and token.expires_ms <= now_ms
        self.advice = (
            f"it has expired, says the clock of this machine: check {source}"
            if expired
            else f"check {source}, and the audience and scope that the broker requires"
        )

    def first(self) -> bytes:
        return OAuthBearerMessage(self._token.value, extensions=self._token.extensions).encode()

    def answer(self, token: bytes) -> bytes | None:
        """The answer to the broker: None if the broker accepts the token, otherwise a message after
        which the broker ends the exchange with its error (RFC 7628)."""
        if not token:
            return None
        status = _status(token)
        if status:
            self.who = f"the token as {status}"
        return oauthbearer.ABORT


def _status(token: bytes) -> str:
    """The `status` in the broker's error message; empty if the message has none."""
    try:
        said = json.loads(token[:_ERROR_BYTES_MAX])
    except (ValueError, RecursionError):
        return ""
    status = said.get("status", "") if isinstance(said, dict) else ""
    return repr(status) if isinstance(status, str) and status else ""
