"""Admin calls about delegation tokens, and clients that authenticate with a token."""

from __future__ import annotations

from typing import Any

import pytest

from odradek import Admin, Broker, Producer
from odradek_client.errors import AuthenticationFailed, OdradekError
from sasl_clients import LISTENER, plain_users

KEYS = {
    **LISTENER,
    **plain_users(alice="secret", bob="geheim"),
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "delegation.token.secret.key": "a key",
}


def of_user(at: str, user: str, password: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": at,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": password,
        **more,
    }


@pytest.mark.own_broker
async def test_a_token_is_created_used_renewed_and_ended() -> None:
    async with Broker(settings=KEYS) as broker:
        await _life_of_a_token(broker.bootstrap)


async def _life_of_a_token(at: str) -> None:
    async with Admin(**of_user(at, "alice", "secret")) as alice:
        token = await alice.create_delegation_token("bob", max_lifetime_ms=3_600_000)
        assert (token.owner, token.requester, token.renewers) == (
            *("User:alice", "User:alice"),
            ("User:bob",),
        )
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 3_600_000
        assert token.password not in repr(token) and repr(token.hmac) not in repr(token)
        assert await alice.describe_delegation_token() == [token]
        assert await alice.describe_delegation_token("carol") == []
        login = of_user(at, token.token_id, token.password, sasl_mechanism="SCRAM-SHA-512")
        async with Producer(**login, sasl_token_auth=True) as producer:
            await producer.send("t", b"by token")
        async with Admin(**login, sasl_token_auth=True) as by_token:
            with pytest.raises(OdradekError, match="authenticated connection"):
                await by_token.create_delegation_token()
        with pytest.raises(AuthenticationFailed):
            async with Admin(**login):
                pass
        async with Admin(**of_user(at, "bob", "geheim")) as bob:
            assert await bob.describe_delegation_token() == [token]
            renewed_ms = await bob.renew_delegation_token(token.hmac, period_ms=1_000)
            assert renewed_ms < token.expiry_timestamp_ms
            await bob.expire_delegation_token(token.hmac)
        with pytest.raises(AuthenticationFailed, match="delegation token"):
            async with Admin(**login, sasl_token_auth=True):
                pass
        with pytest.raises(OdradekError, match="no such delegation token"):
            await alice.renew_delegation_token(token.hmac)
        with pytest.raises(ValueError, match="max_lifetime_ms is 0"):
            await alice.create_delegation_token(max_lifetime_ms=0)
