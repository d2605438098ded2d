"""OAUTHBEARER at a listener: tokens that are signed with the keys of a JWKS, and tokens without a
signature for development (KIP-255, KIP-768).

The answer to a refused token is a challenge with the error; the exchange ends with the client's
next message (RFC 7628, section 3.2.3).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from odradek_broker.config.sasl import SignedTokens, UnsecuredTokens
from odradek_broker.deferred import Deferred
from odradek_broker.security.sasl import Authenticated, Challenge, SaslFailure, SaslServer, Step
from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.sasl.oauthbearer import ABORT, parse_oauthbearer

#: The maximum length of a token; sasl.server.max.receive.size may be a lower limit.
_TOKEN_CHARACTERS_MAX = 65_536
_NAME_CHARACTERS_MAX = 1_024
#: JSON can have it, but no message that names the user, such as the list of connections.
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")
_INVALID = "invalid_token"
_INSUFFICIENT = "insufficient_scope"


class TokenRefused(Exception):
    """The error for a refused token. The text contains no part of the token; `status` and `scope`
    are sent to the client."""

    def __init__(self, reason: str, status: str = _INVALID, scope: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class Validator(Protocol):
    """Validates a token and finds its user."""

    def validate(self, token: str, /) -> Authenticated | Deferred[Authenticated | TokenRefused]:
        """The user of a token. A refusal is either raised as a TokenRefused, or is the value with
        which the Deferred resolves."""
        ...


class OAuthBearerMechanism:
    """OAUTHBEARER with a validator."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator

    def begin(self, host: str) -> SaslServer:
        return _OAuthBearerExchange(self._validator)


class _OAuthBearerExchange:
    def __init__(self, validator: Validator) -> None:
        self._validator = validator
        #: The error for the client, after a token was refused; until then empty.
        self._error = ""
        #: The reason for the refusal, for the log; until then empty.
        self._reason = ""

    def step(self, token: bytes) -> Step | Deferred[Step]:
        if self._error and token == ABORT:
            return SaslFailure(self._reason, self._error)
        try:
            message = parse_oauthbearer(token)
        except SaslMessageError as problem:
            return SaslFailure(str(problem))
        if self._error:
            return SaslFailure("OAUTHBEARER: another token after one that was refused")
        wanted = message.authorization_id
        try:
            if len(message.token) > _TOKEN_CHARACTERS_MAX:
                raise TokenRefused(f"it has more than {_TOKEN_CHARACTERS_MAX} characters")
            found = self._validator.validate(message.token)
        except TokenRefused as problem:
            return self._refused(problem)
        if isinstance(found, Deferred):
            return found.map(lambda value: self._ended(value, wanted))
        return self._ended(found, wanted)

    def _ended(self, found: Authenticated | TokenRefused, wanted: str) -> Step:
        if isinstance(found, TokenRefused):
            return self._refused(found)
        if wanted not in ("", found.user):
            shown = wanted[:_NAME_CHARACTERS_MAX]
            message = (
                f"Authentication failed: Client requested an authorization id ({shown}) that is"
                f" different from the token's principal name ({found.user})"
            )
            return SaslFailure("OAUTHBEARER: an authorization id that is not the token's", message)
        return found

    def _refused(self, problem: TokenRefused) -> Step:
        fields = {"status": problem.status}
        if problem.scope:
            fields["scope"] = problem.scope
        self._error = json.dumps(fields, separators=(",", ":"))
        self._reason = f"OAUTHBEARER: {problem}"
        return Challenge(self._error.encode())


# --- Claims ---------------------------------------------------------------------------------------


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    """The time of a claim in ms; the claim is in seconds since 1970. Raises TokenRefused for any
    other value."""
    value = claims.get(name)
    if value is None:
        return None
    # No comparison with a number that is too large for a float fails, nor one with "not a number".
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < 1e14:
        raise TokenRefused(f"its claim {name} is no time")
    return int(value * 1000)


def _user(claims: Mapping[str, Any], name: str) -> str:
    user = claims.get(name)
    if not isinstance(user, str) or not user.strip():
        raise TokenRefused(f"it has no claim {name} with the name of its user")
    if len(user) > _NAME_CHARACTERS_MAX:
        raise TokenRefused(f"its claim {name} has more than {_NAME_CHARACTERS_MAX} characters")
    if _HALF_PAIR.search(user):
        raise TokenRefused(f"its claim {name} has half of a surrogate pair, which is no character")
    return user.strip()


def _check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int) -> int:
    """The time at which a token expires. Raises TokenRefused if the token is not valid at the time
    `now_ms`."""
    expires_ms = _time_ms(claims, "exp")
    begins_ms, issued_ms = _time_ms(claims, "nbf"), _time_ms(claims, "iat")
    if expires_ms is None:
        raise TokenRefused("it has no claim exp, which says when it expires")
    if now_ms >= expires_ms + skew_ms:
        raise TokenRefused("it has expired")
    if begins_ms is not None and now_ms < begins_ms - skew_ms:
        raise TokenRefused("it is not valid yet (nbf)")
    if issued_ms is not None and now_ms < issued_ms - skew_ms:
        raise TokenRefused("it was issued in the future (iat)")
    return expires_ms


def _scopes(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    value = claims.get(name, ())
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    raise TokenRefused(f"its claim {name} is neither a text nor a list of texts")


# --- Tokens without a signature ---


class UnsecuredValidator:
    """Accepts tokens without a signature, and so any user. `now_ms`: wall time."""

    def __init__(self, settings: UnsecuredTokens, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms

    def validate(self, token: str) -> Authenticated:
        """The user of a token without a signature. Raises TokenRefused."""
        header, payload, signature = _parts(token)
        settings = self._settings
        if header.get("alg") != "none" or signature:
            raise TokenRefused("it is signed, and this listener takes tokens without a signature")
        user = _user(payload, settings.principal_claim)
        expires_ms = _check_times(payload, self._now_ms(), settings.clock_skew_ms)
        missing = set(settings.required_scope) - _scopes(payload, settings.scope_claim)
        if missing:
            raise TokenRefused(
                "it lacks a scope that is required",
                _INSUFFICIENT,
                " ".join(settings.required_scope),
            )
        return Authenticated(user, expires_at_ms=expires_ms)


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("it is no JWT of three parts")
    header, payload = (_json(part) for part in parts[:2])
    return header, payload, parts[2]


def _json(part: str) -> dict[str, Any]:
    try:
        data = base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
        value = json.loads(data)
    except (binascii.Error, ValueError, RecursionError):
        raise TokenRefused("it is no JWT: its parts are not JSON") from None
    if not isinstance(value, dict):
        raise TokenRefused("it is no JWT: its parts are not objects")
    return value


# --- Signed tokens ---


class KeySource(Protocol):
    """The source of the keys that tokens are signed with; see `odradek_broker.server.jwks`."""

    def key(self, key_id: str | None, /) -> Any | Deferred[Any]:
        """The key (a `jwt.PyJWK`) with this id, or the only key if `key_id` is None; None if there
        is no such key."""
        ...


class SignedValidator:
    """Validates signatures and claims. `now_ms`: wall time. Needs the package PyJWT."""

    def __init__(self, settings: SignedTokens, keys: KeySource, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._keys = keys
        self._now_ms = now_ms

    def validate(self, token: str) -> Authenticated | Deferred[Authenticated | TokenRefused]:
        """The user of a signed token, as a Deferred if the keys have to be read first. Raises
        TokenRefused."""
        header, _, _ = _parts(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise TokenRefused("it is signed by an algorithm that is not taken")
        if key_id is not None and not isinstance(key_id, str):
            raise TokenRefused("the id of its key is no text")
        key = self._keys.key(key_id)
        if not isinstance(key, Deferred):
            return self._with_key(token, algorithm, key)

        def finish(found: Any) -> Authenticated | TokenRefused:
            try:
                return self._with_key(token, algorithm, found)
            except TokenRefused as problem:
                return problem

        return key.map(finish)

    def _with_key(self, token: str, algorithm: str, key: Any) -> Authenticated:
        import jwt

        if key is None:
            raise TokenRefused("it is signed with a key that is not in the JWKS")
        settings = self._settings
        if key.algorithm_name and key.algorithm_name != algorithm:
            raise TokenRefused("it is signed by an algorithm that is not that of its key")
        try:
            # Times are checked in `_check_times`, by the broker's clock.
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=list(settings.audiences) or None,
                issuer=settings.issuer or None,
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": bool(settings.audiences),
                    "verify_iss": bool(settings.issuer),
                    "require": ["exp", "iat"],
                },
            )
        except jwt.InvalidAudienceError:
            raise TokenRefused("it is for another audience") from None
        except jwt.InvalidIssuerError:
            raise TokenRefused("it is of another issuer") from None
        except jwt.MissingRequiredClaimError as problem:
            raise TokenRefused(f"it has no claim {problem.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError):
            raise TokenRefused("its signature is wrong, or it is no JWT") from None
        expires_ms = _check_times(claims, self._now_ms(), settings.clock_skew_s * 1000)
        _scopes(claims, settings.scope_claim)
        return Authenticated(_user(claims, settings.subject_claim), expires_at_ms=expires_ms)
