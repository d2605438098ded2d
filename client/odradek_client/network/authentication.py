"""The authentication of a connection by SASL: SaslHandshake, then SaslAuthenticate (KIP-43,
KIP-152)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from odradek_client.errors import AuthenticationFailed
from odradek_client.network import mismatches
from odradek_client.network.handshake import Versions
from odradek_client.sasl.exchange import SaslClient
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import APIS, ApiKey
from odradek_protocol.message import Message
from odradek_protocol.sasl.errors import SaslMessageError
from odradek_protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from odradek_protocol.schemas.sasl_handshake import (
    TOKENS_IN_REQUESTS_SINCE,
    SaslHandshakeRequest,
)

#: The limit of messages that an authentication sends.
_STEPS_MAX = 8
#: The share of a session's lifetime after which the session is renewed, and the largest share by
#: which jitter delays the renewal (KIP-368).
_RENEWED_AFTER, _RENEWED_WITHIN = 0.85, 0.10
_SAID_MAX = 500

Ask = Callable[[Message, int], Awaitable[Any]]


async def authenticate(ask: Ask, versions: Versions, exchange: SaslClient, *, tls: bool) -> int:
    """Authenticate; returns the session's lifetime in ms, 0: unlimited (C-71).

    Raises AuthenticationFailed for brokers before Kafka 1.0, and if the broker refuses the client
    (with the broker's message).
    """
    await _handshake(ask, versions, exchange.mechanism, tls=tls)
    version = min(
        APIS[ApiKey.SASL_AUTHENTICATE].versions.last, versions[ApiKey.SASL_AUTHENTICATE][1]
    )
    try:
        token = exchange.first()
        for _ in range(_STEPS_MAX):
            answer = await ask(SaslAuthenticateRequest(auth_bytes=token), version)
            if answer.error_code:
                raise _refused(exchange, answer.error_code, answer.error_message)
            reply = exchange.answer(answer.auth_bytes)
            if reply is None:
                lifetime_ms: int = answer.session_lifetime_ms
                return lifetime_ms
            token = reply
    except SaslMessageError as error:
        raise AuthenticationFailed(f"{exchange.mechanism} failed: {error}") from None
    raise AuthenticationFailed(f"the broker does not come to an end with {exchange.mechanism}")


def reauthentication_ms(lifetime_ms: int, random: float) -> float:
    """The time after which a session is renewed: 85 to 95 % of its lifetime, so that not all
    clients renew their sessions at the same time (KIP-368).

    `random`: a number from 0 to 1, which selects the time in this range.
    """
    return lifetime_ms * (_RENEWED_AFTER + _RENEWED_WITHIN * random)


async def _handshake(ask: Ask, versions: Versions, mechanism: str, *, tls: bool) -> None:
    served = versions.get(ApiKey.SASL_HANDSHAKE)
    if served is None:
        raise AuthenticationFailed(mismatches.wants_no_sasl(tls=tls))
    if served[1] < TOKENS_IN_REQUESTS_SINCE or ApiKey.SASL_AUTHENTICATE not in versions:
        raise AuthenticationFailed("the broker is too old: SASL is spoken with Kafka 1.0 and newer")
    request = SaslHandshakeRequest(mechanism=mechanism)
    answer = await ask(request, TOKENS_IN_REQUESTS_SINCE)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(
            mismatches.wants_no_sasl(tls=tls), code=ErrorCode.ILLEGAL_SASL_STATE
        )
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationFailed(
            f"it does not have sasl.mechanism={mechanism}: {mismatches.names(answer.mechanisms)}",
            code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        )
    if answer.error_code:
        code = ErrorCode.of(answer.error_code)
        raise AuthenticationFailed(f"it does not begin with {mechanism} ({code.name})", code=code)


def _refused(exchange: SaslClient, number: int, said: str | None) -> AuthenticationFailed:
    code = ErrorCode.of(number)
    words = (said or code.name)[:_SAID_MAX].rstrip(". ")
    return AuthenticationFailed(
        f"it refuses {exchange.who} ({exchange.mechanism}): {words}; {exchange.advice}", code=code
    )
