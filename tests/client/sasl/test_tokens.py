"""The lifetime of tokens, and the times at which they are replaced."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from odradek_client.errors import AuthenticationFailed
from odradek_client.sasl.tokens import TOKEN_CHARACTERS_MAX, RefreshWindow, Token, token_of

HOUR_MS = 3_600_000


def jwt(claims: Any) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.sig"


def test_the_lifetime_of_a_jwt_is_in_its_claims() -> None:
    token = token_of(f" {jwt({'exp': 100, 'iat': 40.5})}\n")
    assert (token.expires_ms, token.begins_ms) == (100_000, 40_500)
    assert token.value == jwt({"exp": 100, "iat": 40.5}) and token.value not in repr(token)
    assert token_of(jwt({"exp": 100}), 5000).expires_ms == 5000


@pytest.mark.parametrize(
    "odd", ["opaque", "a.b.c", "a.!!.c", jwt([1]), jwt({"exp": "x"}), jwt({"exp": True})]
)
def test_other_tokens_have_an_unknown_lifetime(odd: str) -> None:
    assert token_of(odd) == Token(odd)


def test_c74_a_time_that_no_clock_reaches_is_no_time() -> None:
    endless = jwt({"exp": 10**400, "iat": -(10**400)})
    assert token_of(endless) == Token(endless)


def test_an_invalid_token_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="empty"):
        token_of(" \n")
    with pytest.raises(AuthenticationFailed, match="characters"):
        token_of("x" * (TOKEN_CHARACTERS_MAX + 1))


@pytest.mark.parametrize(
    ("token", "random", "expected_ms"),
    [
        (Token("x", HOUR_MS), 0.0, 0.8 * HOUR_MS),
        (Token("x", HOUR_MS), 1.0, 0.85 * HOUR_MS),
        # The buffer before the expiry is longer than 20 % of the lifetime.
        (Token("x", 1_000_000), 0.0, 700_000),
        # The lifetime is too short for both limits, so the limits are ignored.
        (Token("x", 300_000), 0.0, 240_000),
        # The token is near its end, but the shortest refresh period has to pass first.
        (Token("x", 400_000, -HOUR_MS), 0.0, 60_000),
        # The lifetime is unknown, so that each connection gets a new token.
        (Token("x"), 0.0, 0),
    ],
)
def test_c74_a_token_is_replaced_within_its_refresh_window(
    token: Token, random: float, expected_ms: float
) -> None:
    assert RefreshWindow().refresh_ms(token, 0, random) == pytest.approx(expected_ms)
