"""Delegation tokens (KIP-48): short-lived passwords that a user creates for programs.

Clients authenticate by SCRAM with the id of a token as the user name and its HMAC, in base64, as
the password. The HMAC is computed from the id and the secret key of the brokers, and is not stored
anywhere (A-50).
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from odradek_protocol.lazy_dataclass import dataclass

_HMAC = "sha512"


@dataclass(frozen=True, slots=True)
class TokenInformation:
    """A token. `owner`: the principal that the token authenticates; `requester`: the principal that
    has created it; `renewers`: the principals that may renew and expire the token in addition to
    the owner. Principals are texts such as "User:alice"; times are wall times in ms."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    @property
    def owner_name(self) -> str:
        """The name of the user that the token authenticates."""
        return self.owner.partition(":")[2]

    def is_expired(self, now_ms: int) -> bool:
        """True if the token has expired at this wall time."""
        return self.expires_ms < now_ms or self.max_ms < now_ms

    def concerns(self, principals: AbstractSet[str]) -> bool:
        """True if one of the principals is the owner, the requester or a renewer."""
        own = (self.owner, self.requester)
        return not principals.isdisjoint(own) or not principals.isdisjoint(self.renewers)

    def may_be_changed_by(self, principal: str) -> bool:
        """True if the principal is the owner or a renewer; the requester is not sufficient."""
        return principal == self.owner or principal in self.renewers


class DelegationTokens:
    """The tokens of a cluster, by id and by HMAC. `secret_key`: empty if tokens are disabled."""

    def __init__(self, secret_key: str) -> None:
        self._key = secret_key.encode()
        self._by_id: dict[str, TokenInformation] = {}
        self._ids: dict[bytes, str] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __repr__(self) -> str:
        return f"DelegationTokens({len(self)})"

    @property
    def enabled(self) -> bool:
        """True if tokens are enabled, because there is a secret key."""
        return bool(self._key)

    def all(self) -> Iterable[TokenInformation]:
        """Every token, including expired tokens that are not removed yet."""
        return self._by_id.values()

    def get(self, token_id: str) -> TokenInformation | None:
        return self._by_id.get(token_id)

    def with_hmac(self, wanted: bytes) -> TokenInformation | None:
        token_id = self._ids.get(bytes(wanted))
        return None if token_id is None else self._by_id[token_id]

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of a token. To be called only if tokens are enabled."""
        if not self._key:
            raise RuntimeError("there is no secret key")
        return hmac.digest(self._key, token_id.encode(), _HMAC)

    def password_of(self, token_id: str) -> str:
        """The password with which clients authenticate by SCRAM: the token's HMAC in base64."""
        return base64.b64encode(self.hmac_of(token_id)).decode()

    def put(self, token: TokenInformation) -> None:
        """Add a token, or replace the token with the same id."""
        self._by_id[token.token_id] = token
        if self._key:
            self._ids[self.hmac_of(token.token_id)] = token.token_id

    def remove(self, token_id: str) -> bool:
        """Remove a token; False if there is no such token."""
        if self._by_id.pop(token_id, None) is None:
            return False
        if self._key:
            self._ids.pop(self.hmac_of(token_id), None)
        return True
