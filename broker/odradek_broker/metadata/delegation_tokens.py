"""Changes of delegation tokens (KIP-48, KIP-373): pure functions from the state, the principal and
the time to records and an answer. Codes and their order are those of Kafka's controller (A-49 to
A-52)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from odradek_broker.metadata.cluster import ClusterMetadata
from odradek_broker.security.delegation_tokens import TokenInformation
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_dataclass import dataclass
from odradek_protocol.settings import INT64_MAX
from odradek_protocol.stored.cluster_metadata import (
    DelegationTokenRecord,
    MetadataRecord,
    RemoveDelegationTokenRecord,
)

#: The maximum number of tokens in a cluster. Kafka has no such limit.
_TOKENS_MAX = 100_000
#: The maximum number of renewers of a token. Kafka has no such limit.
_RENEWERS_MAX = 1_000
#: The maximum number of characters in a principal. Kafka has no such limit.
_PRINCIPAL_CHARACTERS_MAX = 1_024
#: The maximum number of expired tokens that one check removes, as in Kafka.
EXPIRED_AT_ONCE_MAX = 100


@dataclass(frozen=True)
class TokenChange:
    """The result of a request for a change: the records to append, or an error. `expires_ms`: the
    expiry time for the answer, 0 if there is an error."""

    error: ErrorCode = ErrorCode.NONE
    records: Sequence[MetadataRecord] = ()
    expires_ms: int = 0
    #: The token, if the request created one.
    token: TokenInformation | None = None


def create_token(
    metadata: ClusterMetadata,
    owner: str,
    requester: str,
    renewers: Sequence[str],
    lifetime_ms: int,
    now_ms: int,
) -> TokenChange:
    """Create a token. `lifetime_ms`: the token's maximum lifetime; a value of 0 or less means the
    broker's setting."""
    tokens, config = metadata.delegation_tokens, metadata.config
    if not tokens.enabled:
        return TokenChange(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    if len(renewers) > _RENEWERS_MAX or any(map(_is_too_long, (owner, requester, *renewers))):
        return TokenChange(ErrorCode.INVALID_REQUEST)
    if len(tokens) >= _TOKENS_MAX:
        return TokenChange(ErrorCode.POLICY_VIOLATION)
    max_ms = _later(now_ms, _at_most(lifetime_ms, config.delegation_token_max_lifetime_ms))
    token = TokenInformation(
        metadata.new_token_id(),
        owner,
        requester,
        tuple(renewers),
        now_ms,
        max_ms,
        min(max_ms, _later(now_ms, config.delegation_token_expiry_time_ms)),
    )
    record = _record(token, token.expires_ms)
    return TokenChange(records=[record], expires_ms=token.expires_ms, token=token)


def renew_token(
    metadata: ClusterMetadata, principal: str, hmac: bytes, period_ms: int, now_ms: int
) -> TokenChange:
    """Set a new expiry, `period_ms` from now on. A period of 0 or less means the broker's
    setting."""
    tokens, config = metadata.delegation_tokens, metadata.config
    if not tokens.enabled:
        return TokenChange(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    token = tokens.with_hmac(hmac)
    if token is None:
        return TokenChange(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if token.is_expired(now_ms):
        return TokenChange(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not token.may_be_changed_by(principal):
        return TokenChange(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    period_ms = _at_most(period_ms, config.delegation_token_expiry_time_ms)
    return _expiring(token, _later(now_ms, period_ms))


def expire_token(
    metadata: ClusterMetadata, principal: str, hmac: bytes, period_ms: int, now_ms: int
) -> TokenChange:
    """Set the expiry to `period_ms` from now on. If the period is negative, remove the token
    immediately.
    """
    tokens = metadata.delegation_tokens
    if not tokens.enabled:
        return TokenChange(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    token = tokens.with_hmac(hmac)
    if token is None:
        return TokenChange(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if not token.may_be_changed_by(principal):
        return TokenChange(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    if period_ms < 0:
        removed = RemoveDelegationTokenRecord(token_id=token.token_id)
        return TokenChange(records=[removed], expires_ms=now_ms)
    if token.is_expired(now_ms):
        return TokenChange(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _expiring(token, _later(now_ms, period_ms))


def expired_tokens(tokens: Iterable[TokenInformation], now_ms: int) -> list[MetadataRecord]:
    """The records that remove expired tokens, `EXPIRED_AT_ONCE_MAX` of them at most."""
    expired = (each for each in tokens if each.is_expired(now_ms))
    return [
        RemoveDelegationTokenRecord(token_id=token.token_id)
        for token in islice(expired, EXPIRED_AT_ONCE_MAX)
    ]


def _expiring(token: TokenInformation, expires_ms: int) -> TokenChange:
    expires_ms = min(token.max_ms, expires_ms)
    return TokenChange(records=[_record(token, expires_ms)], expires_ms=expires_ms)


def _record(token: TokenInformation, expires_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=expires_ms,
        token_id=token.token_id,
    )


def _is_too_long(principal: str) -> bool:
    return len(principal) > _PRINCIPAL_CHARACTERS_MAX


def _at_most(wanted_ms: int, most_ms: int) -> int:
    return min(wanted_ms, most_ms) if wanted_ms > 0 else most_ms


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, INT64_MAX)
