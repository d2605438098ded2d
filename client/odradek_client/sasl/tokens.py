"""Tokens of OAUTHBEARER: their lifetime, and the time to replace them. Without I/O."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek_client.errors import AuthenticationFailed

#: The limit of the characters of a token. A token has to fit into a request to a broker, and into
#: an HTTP header.
TOKEN_CHARACTERS_MAX = 262_144
_JWT_PARTS = 3


@dataclass(frozen=True)
class Token:
    """A token. Times are milliseconds since the epoch; None: unknown."""

    value: str = field(repr=False)
    expires_ms: float | None = None
    begins_ms: float | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class RefreshWindow:
    """The time at which a token is replaced, as in Kafka's `sasl.login.refresh` settings
    (KIP-255)."""

    factor: float = 0.8
    jitter: float = 0.05
    min_period_ms: float = 60_000
    buffer_ms: float = 300_000

    def refresh_ms(self, token: Token, now_ms: float, random: float) -> float:
        """The time at which a new token is replaced. `random`: a number from 0 to 1, which selects
        the jitter.

        The token is replaced after `factor` of its lifetime, but neither during the last
        `buffer_ms` of its lifetime nor during its first `min_period_ms`. For a token whose lifetime
        is too short for these two limits, only `factor` applies. A token without a known expiry is
        replaced now.
        """
        if token.expires_ms is None:
            return now_ms
        factor = self.factor + self.jitter * random
        if now_ms + self.min_period_ms + self.buffer_ms > token.expires_ms:
            return now_ms + (token.expires_ms - now_ms) * factor
        begins_ms = now_ms if token.begins_ms is None else min(token.begins_ms, now_ms)
        refresh_ms = begins_ms + (token.expires_ms - begins_ms) * factor
        return max(min(refresh_ms, token.expires_ms - self.buffer_ms), now_ms + self.min_period_ms)


def token_of(
    value: str, expires_ms: float | None = None, extensions: Mapping[str, str] | None = None
) -> Token:
    """A token from its text; a JWT contains its own lifetime. AuthenticationFailed for an invalid
    text."""
    value = value.strip()
    if not value:
        raise AuthenticationFailed("the token is empty")
    if len(value) > TOKEN_CHARACTERS_MAX:
        raise AuthenticationFailed(f"the token has more than {TOKEN_CHARACTERS_MAX} characters")
    claims = claims_of(value)
    if expires_ms is None:
        expires_ms = _time_ms(claims.get("exp"))
    return Token(value, expires_ms, _time_ms(claims.get("iat")), extensions or {})


def claims_of(value: str) -> Mapping[str, object]:
    """The claims of a JWT, whose signature only the broker checks; an empty dict for any other
    token."""
    parts = value.split(".")
    if len(parts) != _JWT_PARTS:
        return {}
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        claims = json.loads(base64.urlsafe_b64decode(padded))
    except (ValueError, binascii.Error, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _time_ms(seconds: object) -> float | None:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return None
    try:
        return float(seconds) * 1000
    except OverflowError:
        return None
