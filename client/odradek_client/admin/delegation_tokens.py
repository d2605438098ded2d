"""The calls of the admin client about delegation tokens: create, renew, expire and describe
(KIP-48, KIP-373).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek_client.admin.arguments import each_of, whole_number
from odradek_client.admin.requests import AdminPart
from odradek_client.errors import error_for
from odradek_protocol.common_structs import TokenPrincipal
from odradek_protocol.schemas.create_delegation_token import (
    OWNER_SINCE,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from odradek_protocol.schemas.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from odradek_protocol.schemas.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from odradek_protocol.schemas.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_ABOUT = "delegation token"
_USER = "User"
#: The period in a request if the caller gives none. A request to create or renew a token then uses
#: the broker's default period; a request to expire one lets it expire immediately.
_UNSET_MS = -1


@dataclass(frozen=True)
class DelegationToken:
    """A delegation token. Principals are texts such as "User:alice"; times are milliseconds since
    the epoch. `requester` is empty with brokers before Kafka 3.3."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def password(self) -> str:
        """The HMAC in base64. A client authenticates with it as `sasl_password` and with the
        token_id as `sasl_username`."""
        return base64.b64encode(self.hmac).decode()


class DelegationTokenAdmin(AdminPart):
    """The calls about delegation tokens."""

    async def create_delegation_token(
        self,
        renewers: str | Iterable[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """Create a token for this client's user, or for another `owner`. For another owner, this
        client's user needs the right CREATE_TOKENS on the owner. `renewers`: the names of users who
        may renew and expire the token.

        If the answer is lost, the call is not repeated, because each request creates a token.
        Raises Refused, with the broker's error, if the broker has delegation tokens disabled or
        this client has not authenticated.
        """
        names = each_of(renewers, str, "renewers", "the names of users")
        lifetime_ms = _period(max_lifetime_ms, "max_lifetime_ms")
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else _USER,
            owner_principal_name=owner,
            renewers=[TokenPrincipal(principal_type=_USER, principal_name=n) for n in names],
            max_lifetime_ms=lifetime_ms,
        )

        def adapt(adapted: CreateDelegationTokenRequest, version: int) -> None:
            if version < OWNER_SINCE and owner is not None:
                raise ValueError("the broker makes no tokens for other users than the client's own")

        response: CreateDelegationTokenResponse = await self.requests.to_controller(
            request, adapt=adapt
        )
        _check(response.error_code)
        return DelegationToken(
            response.token_id,
            bytes(response.hmac),
            f"{response.principal_type}:{response.principal_name}",
            _principal(
                response.token_requester_principal_type, response.token_requester_principal_name
            ),
            tuple(f"{_USER}:{name}" for name in names),
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
        )

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Let a token expire `period_ms` from now (None: after the broker's default period), but
        not after the token's maximum lifetime. Returns the new expiry, in ms since the epoch."""
        request = RenewDelegationTokenRequest(
            hmac=hmac, renew_period_ms=_period(period_ms, "period_ms")
        )

        async def ask() -> int:
            response: RenewDelegationTokenResponse = await self.requests.to_controller(request)
            _check(response.error_code)
            return response.expiry_timestamp_ms

        return await self.requests.retrying(ask)

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Let a token expire immediately, or in `period_ms`. Returns the expiry, in ms since the
        epoch."""
        request = ExpireDelegationTokenRequest(
            hmac=hmac, expiry_time_period_ms=_period(period_ms, "period_ms", least_ms=0)
        )
        response: ExpireDelegationTokenResponse = await self.requests.to_controller(request)
        _check(response.error_code)
        return response.expiry_timestamp_ms

    async def describe_delegation_token(
        self, owners: str | Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """The tokens that these users own, or all tokens that this client may see."""
        wanted = None
        if owners is not None:
            names = each_of(owners, str, "owners", "the names of users")
            wanted = [TokenPrincipal(principal_type=_USER, principal_name=n) for n in names]
        request = DescribeDelegationTokenRequest(owners=wanted)

        async def ask() -> list[DelegationToken]:
            node_id = await self.network.least_loaded_node()
            response: DescribeDelegationTokenResponse = await self.network.send(node_id, request)
            _check(response.error_code)
            return [
                DelegationToken(
                    each.token_id,
                    bytes(each.hmac),
                    f"{each.principal_type}:{each.principal_name}",
                    _principal(
                        each.token_requester_principal_type, each.token_requester_principal_name
                    ),
                    tuple(f"{r.principal_type}:{r.principal_name}" for r in each.renewers),
                    each.issue_timestamp,
                    each.expiry_timestamp,
                    each.max_timestamp,
                )
                for each in response.tokens
            ]

        return await self.requests.retrying(ask)


def _check(error_code: int) -> None:
    if error_code:
        raise error_for(error_code, about=_ABOUT)


def _principal(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind or name else ""


def _period(given_ms: int | None, name: str, least_ms: int = 1) -> int:
    if given_ms is None:
        return _UNSET_MS
    period_ms = whole_number(given_ms, name)
    if period_ms < least_ms:
        raise ValueError(f"{name} is {period_ms}; it must be at least {least_ms}")
    return period_ms
