"""SCRAM credentials in the cluster metadata: their checks, their description, and their state after
a restart."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fake_node import FakeNode
from handler_calls import ask
from node_world import NodeWorld
from odradek_broker.metadata import scram
from odradek_broker.metadata.scram import (
    ScramDeletion,
    ScramUpsertion,
    alter_scram_credentials,
    credential_record,
)
from odradek_broker.security.sasl import Authenticated, Challenge, SaslFailure
from odradek_broker.security.scram import ScramUsers
from odradek_log_tools.record_decoders import decode_record
from odradek_protocol.errors import ErrorCode
from odradek_protocol.message import HIDDEN
from odradek_protocol.sasl.scram import (
    ClientFirst,
    ScramClient,
    ScramMechanism,
    new_credential,
    salted_password,
)
from odradek_protocol.schemas.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek_protocol.schemas.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek_protocol.schemas.sasl_authenticate import SaslAuthenticateRequest
from odradek_protocol.schemas.sasl_handshake import SaslHandshakeRequest
from odradek_protocol.stored.cluster_metadata import encode_record
from steps import steps_of

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SALT = b"0123456789"


class _Denies:
    def allows(self, *_: object) -> bool:
        return False

    would_allow = allows

    async def allows_any(self, *_: object) -> bool:
        return False


def upsertion(user: str, mechanism: int = 1, iterations: int = 4096, **more: Any) -> ScramUpsertion:
    known = ScramMechanism.of_number(mechanism) or SHA_256
    salted = salted_password(known, "secret", SALT, iterations if iterations > 0 else 1)
    given = {"salt": SALT, "salted_password": salted, **more}
    return ScramUpsertion(user, mechanism, iterations, **given)


def altered(node: Any, deletions: Any = (), upsertions: Any = ()) -> dict[str, ErrorCode]:
    records, results = alter_scram_credentials(node.metadata, [*deletions, *upsertions])
    node.metadata_log.commit(records)
    assert len({each.user for each in results}) == len(results)
    return {each.user: each.error for each in results}


def test_a41_credentials_are_set_replaced_and_removed() -> None:
    node = FakeNode()
    assert altered(node, upsertions=[upsertion("u"), upsertion("v", 2)]) == {
        "u": ErrorCode.NONE,
        "v": ErrorCode.NONE,
    }
    held = node.metadata.scram_credentials
    assert held["u"] == {SHA_256: new_credential(SHA_256, "secret", SALT)}
    assert held["v"] == {SHA_512: new_credential(SHA_512, "secret", SALT)}
    altered(node, upsertions=[upsertion("u", 2), upsertion("v", 2, 8192)])
    assert list(held["u"]) == [SHA_256, SHA_512]
    assert held["v"][SHA_512].iterations == 8192
    assert altered(node, [ScramDeletion("v", 2), ScramDeletion("u", 1)]) == {
        "v": ErrorCode.NONE,
        "u": ErrorCode.NONE,
    }
    assert {user: list(each) for user, each in held.items()} == {"u": [SHA_512]}
    assert node.metadata.scram_users == {SHA_256: {}, SHA_512: {"u": held["u"][SHA_512]}}


def test_a41_a_user_without_a_salt_logs_in() -> None:
    node = FakeNode()
    salted = salted_password(SHA_256, "secret", b"", 4096)
    given = upsertion("u", salt=b"", salted_password=salted)
    assert altered(node, upsertions=[given]) == {"u": ErrorCode.NONE}
    tokens: Any = None
    users = ScramUsers(
        SHA_256, node.metadata.scram_users.__getitem__, tokens, bytes(32), lambda: "n"
    )
    for password, stepped in (("secret", Authenticated), ("secrets", SaslFailure)):
        exchange = users.begin("127.0.0.1")
        client = ScramClient(SHA_256, first := ClientFirst("u", "nonce"))
        challenge = exchange.step(first.encode())
        assert isinstance(challenge, Challenge)
        client.receive_first(challenge.token)
        assert isinstance(exchange.step(client.prove(password)), stepped)


def test_n57_an_unknown_user_is_challenged_quickly_however_many_users_there_are() -> None:
    metadata = FakeNode().metadata
    credential = new_credential(SHA_512, "secret", SALT)
    for number in range(5_000):
        metadata.replay(credential_record(f"user-{number}", SHA_512, credential))
    tokens: Any = None
    for mechanism in ScramMechanism:
        users = ScramUsers(
            mechanism, lambda each: metadata.scram_users[each], tokens, bytes(32), lambda: "n"
        )
        exchange = users.begin("127.0.0.1")
        first = ClientFirst("nobody", "nonce").encode()
        assert steps_of(partial(exchange.step, first)) < 5_000


@pytest.mark.parametrize(
    ("deletions", "upsertions", "error"),
    [
        ([ScramDeletion("u", 2)], [], ErrorCode.RESOURCE_NOT_FOUND),
        ([ScramDeletion("u", 0)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([ScramDeletion("u", 1)] * 2, [], ErrorCode.DUPLICATE_RESOURCE),
        ([ScramDeletion("u", 1)] * 3, [], ErrorCode.DUPLICATE_RESOURCE),
        ([ScramDeletion("u", 1)], [upsertion("u", 2)], ErrorCode.DUPLICATE_RESOURCE),
        ([], [upsertion("u"), upsertion("u", 2)], ErrorCode.DUPLICATE_RESOURCE),
        ([], [upsertion("u", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([], [upsertion("u", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion("u", iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion("u", salt=bytes(1025))], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [upsertion("u", salted_password=b"short")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a41_a_refused_alteration_changes_no_credential(
    deletions: Any, upsertions: Any, error: ErrorCode
) -> None:
    node = FakeNode()
    altered(node, upsertions=[upsertion("u")])
    before = node.metadata.scram_credentials["u"].copy()
    others = [upsertion("other")]
    results = altered(node, deletions, [*upsertions, *others])
    assert results == {"u": error, "other": ErrorCode.NONE}
    assert node.metadata.scram_credentials["u"] == before


def test_a41_the_length_and_the_number_of_user_names_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = FakeNode()
    refused = ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert altered(node, upsertions=[upsertion("")]) == {"": refused}
    assert altered(node, upsertions=[upsertion("x" * 1025)]) == {"x" * 1025: refused}
    monkeypatch.setattr(scram, "_USERS_MAX", 2)
    results = altered(node, upsertions=[upsertion(name) for name in "abc"])
    assert results == {"a": ErrorCode.NONE, "b": ErrorCode.NONE, "c": refused}
    assert altered(node, upsertions=[upsertion("a", 2)]) == {"a": ErrorCode.NONE}


def test_a40_a_user_given_twice_is_answered_once() -> None:
    node = FakeNode()
    altered(node, upsertions=[upsertion("u"), upsertion("v", 2, 5000)])
    users = [UserName(name=name) for name in ("v", "w", "u", "u")]
    found = ask(node, DescribeUserScramCredentialsRequest(users=users), 0)
    assert [
        (each.user, each.error_code, [info.mechanism for info in each.credential_infos])
        for each in found.results
    ] == [
        ("v", ErrorCode.NONE, [SHA_512.number]),
        ("w", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("u", ErrorCode.DUPLICATE_RESOURCE, []),
    ]
    everyone = ask(node, DescribeUserScramCredentialsRequest(users=None), 0)
    told = {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in everyone.results
    }
    assert told == {"u": [(1, 4096)], "v": [(2, 5000)]}


def test_a40_a41_scram_requests_need_a_right_on_the_cluster() -> None:
    node = FakeNode()
    altered(node, upsertions=[upsertion("u")])
    node.authorizer = _Denies()
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    users = [UserName(name="u"), UserName(name="nobody")]
    described = ask(node, DescribeUserScramCredentialsRequest(users=users), 0)
    assert described.error_code == denied
    assert {each.user: each.error_code for each in described.results} == {
        "u": denied,
        "nobody": denied,
    }
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="u", mechanism=1)],
        upsertions=[ScramCredentialUpsertion(name="v", mechanism=1, iterations=1)],
    )
    answer = ask(node, request, 0)
    assert {each.user: each.error_code for each in answer.results} == {"u": denied, "v": denied}
    assert list(node.metadata.scram_credentials) == ["u"]


def test_a42_a_restart_keeps_credentials() -> None:
    world = NodeWorld()
    altered(world.node, upsertions=[upsertion("u"), upsertion("v", 2)])
    altered(world.node, deletions=[ScramDeletion("v", 2)])
    world.flush()
    world.crash(keep_page_cache=False)
    assert world.node.metadata.scram_credentials == {
        "u": {SHA_256: new_credential(SHA_256, "secret", SALT)}
    }


def test_a42_tools_hide_salts_and_keys() -> None:
    credential = new_credential(SHA_256, "secret", SALT)
    record = credential_record("u", SHA_256, credential)
    _, value = decode_record("__cluster_metadata", None, encode_record(record))
    assert value["data"] == {
        "name": "u",
        "mechanism": 1,
        "salt": HIDDEN,
        "stored_key": HIDDEN,
        "server_key": HIDDEN,
        "iterations": 4096,
    }
    for shown in (repr(record), repr(upsertion("u"))):
        assert repr(credential.stored_key) not in shown
        assert repr(SALT) not in shown


def test_n24_sasl_requests_on_a_plaintext_connection_are_refused() -> None:
    for request, versions in ((SaslHandshakeRequest(), 2), (SaslAuthenticateRequest(), 3)):
        for version in range(versions):
            answer: Any = ask(FakeNode(), request, version)
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
