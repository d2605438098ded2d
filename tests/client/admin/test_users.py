"""Admin calls about users' SCRAM credentials."""

from __future__ import annotations

import pytest

from odradek import Admin, Broker
from odradek_client.admin import (
    SCRAM_MECHANISMS,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from odradek_client.errors import Refused
from odradek_protocol.keys import ApiKey
from odradek_protocol.sasl.scram import ScramMechanism, salted_password
from odradek_protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from scripted_broker import ScriptedBroker

SHA_256, SHA_512 = SCRAM_MECHANISMS


async def test_c78_credentials_are_stored_described_and_deleted(odradek_broker: Broker) -> None:
    async with Admin(bootstrap_servers=odradek_broker.bootstrap) as admin:
        assert await admin.describe_user_scram_credentials() == {}
        await admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion("alice", "secret"),
                UserScramCredentialUpsertion("bob", "secret", SHA_256, 8192),
            ]
        )
        await admin.alter_user_scram_credentials(
            UserScramCredentialUpsertion("alice", "secret", SHA_256)
        )
        alice = [ScramCredentialInfo(SHA_256, 4096), ScramCredentialInfo(SHA_512, 4096)]
        bob = [ScramCredentialInfo(SHA_256, 8192)]
        assert await admin.describe_user_scram_credentials() == {"alice": alice, "bob": bob}
        assert await admin.describe_user_scram_credentials("bob") == {"bob": bob}
        await admin.alter_user_scram_credentials(UserScramCredentialDeletion("alice"))
        found = await admin.describe_user_scram_credentials(["alice", "eve"], raise_errors=False)
        assert found == {"alice": alice[:1]} and "eve" in str(found.errors["eve"])


async def test_credential_changes_that_the_broker_refuses_are_raised(
    odradek_broker: Broker,
) -> None:
    async with Admin(bootstrap_servers=odradek_broker.bootstrap) as admin:
        with pytest.raises(Refused, match="user 'eve'"):
            await admin.describe_user_scram_credentials("eve")
        with pytest.raises(Refused, match="user 'eve'"):
            await admin.alter_user_scram_credentials(UserScramCredentialDeletion("eve"))
        twice = [UserScramCredentialUpsertion("eve", "x", each) for each in SCRAM_MECHANISMS]
        with pytest.raises(Refused, match="twice"):
            await admin.alter_user_scram_credentials(twice)
        assert await admin.describe_user_scram_credentials() == {}


async def test_c78_the_password_is_not_sent() -> None:
    async with ScriptedBroker() as broker:
        answer = AlterUserScramCredentialsResult(user="alice")
        broker.always(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            lambda *_: AlterUserScramCredentialsResponse(results=[answer]),
        )
        given = UserScramCredentialUpsertion("alice", "a-secret-word")
        async with Admin(bootstrap_servers=broker.address) as admin:
            await admin.alter_user_scram_credentials(given)
            await admin.alter_user_scram_credentials(given)
        first, second = (
            request.upsertions[0]
            for request in broker.received(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
        )
        assert first.salt != second.salt and len(first.salt) == 32
        expected = salted_password(ScramMechanism.SHA_512, "a-secret-word", first.salt, 4096)
        assert first.salted_password == expected and b"a-secret-word" not in expected
        assert "a-secret-word" not in repr(given)


@pytest.mark.parametrize(
    ("alteration", "words"),
    [
        (
            UserScramCredentialUpsertion("alice", "x", "PLAIN"),
            "'PLAIN' must be one of SCRAM-SHA-256",
        ),
        (UserScramCredentialUpsertion("", "x"), "name of the user is empty"),
        (UserScramCredentialUpsertion("alice", ""), "password of user 'alice' is empty"),
        (UserScramCredentialUpsertion("alice", "x", iterations=4095), "must be 4096 to 16384"),
        (UserScramCredentialUpsertion("alice", "x", iterations=16385), "must be 4096 to 16384"),
        (UserScramCredentialDeletion("alice", "x"), "'x' must be one of"),
    ],
)
async def test_invalid_credential_changes_are_refused_before_they_are_sent(
    alteration: UserScramCredentialUpsertion, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        await Admin().alter_user_scram_credentials(alteration)
    with pytest.raises(TypeError, match="give UserScramCredentialUpsertion"):
        await Admin().alter_user_scram_credentials(["alice"])  # type: ignore[list-item]
