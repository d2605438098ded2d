"""The common base of the handlers of delegation tokens: the check of the client, and the answers to
changes (A-49)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.handlers._parts import MetadataChangeParts
from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.metadata.commit import when_durable
from odradek_broker.metadata.delegation_tokens import TokenChange
from odradek_broker.platform.seams import Clock
from odradek_broker.request import ANONYMOUS, RequestContext
from odradek_protocol.constants import NO_TIMESTAMP
from odradek_protocol.errors import ErrorCode

#: The principal type of a user.
USER = "User"

Response = TypeVar("Response")


class TokenParts(MetadataChangeParts, Protocol):
    """The parts of `MetadataChangeParts`, and the clock."""

    @property
    def clock(self) -> Clock: ...


def principal_of(context: RequestContext) -> str:
    """The principal of the client."""
    return f"{USER}:{context.user}"


def may_ask(context: RequestContext) -> bool:
    """True if the client is authenticated, and not by a delegation token."""
    return context.user != ANONYMOUS and not context.by_token


def change_expiry(
    node: TokenParts,
    context: RequestContext,
    decide: Callable[[ClusterMetadata, str, bytes, int, int], TokenChange],
    hmac: bytes,
    period_ms: int,
    respond: Callable[[ErrorCode, int], Response],
) -> Response | Deferred[Response]:
    """Change the expiry time of a token, and answer `respond(error, expiry time in ms)` when the
    change is durable. `decide`: returns the change, given the metadata, the principal, the HMAC,
    the period in ms and the wall time in ms."""
    if not may_ask(context):
        return respond(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NO_TIMESTAMP)
    now_ms = node.clock.wall_ms()
    change = decide(node.metadata, principal_of(context), hmac, period_ms, now_ms)
    return answer_change(node, change, respond)


def answer_change(
    node: TokenParts, change: TokenChange, respond: Callable[[ErrorCode, int], Response]
) -> Response | Deferred[Response]:
    """Record a change, and answer `respond(error, expiry time in ms)` when the change is
    durable."""
    if change.error:
        return respond(change.error, change.expires_ms)
    return when_durable(
        node,
        change.records,
        lambda: respond(ErrorCode.NONE, change.expires_ms),
        lambda: respond(ErrorCode.REQUEST_TIMED_OUT, NO_TIMESTAMP),
    )
