"""The interface of a mechanism of SASL."""

from __future__ import annotations

from typing import Protocol


class SaslClient(Protocol):
    """The client's side of one mechanism, for one authentication."""

    @property
    def mechanism(self) -> str:
        """The mechanism's name in SaslHandshake."""
        ...

    @property
    def who(self) -> str:
        """The name of the user who is authenticated, for error messages."""
        ...

    @property
    def advice(self) -> str:
        """The settings to check after a refusal, for error messages."""
        ...

    def first(self) -> bytes: ...

    def answer(self, token: bytes) -> bytes | None:
        """The next token; None at the end of the exchange. AuthenticationFailed if the broker does
        not authenticate itself, SaslMessageError for an invalid token."""
        ...
