"""Delegation tokens: the rights of users; creating, renewing, expiring and describing tokens; and
refusals.

Kafka's answers are in tests/oracle/tokens.
"""

from __future__ import annotations

from typing import Any

import pytest

from acl_rules import Rule, RuleList
from fake_node import FakeNode
from handler_calls import ask
from node_world import NodeWorld
from odradek_broker.metadata import delegation_tokens
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.security.delegation_tokens import DelegationTokens
from odradek_broker.server.dispatch import HANDLERS
from odradek_broker.storage.errors import StorageError
from odradek_log_tools.record_decoders import decode_record
from odradek_protocol.common_structs import TokenPrincipal
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import api_of
from odradek_protocol.message import Message
from odradek_protocol.schemas.create_delegation_token import CreateDelegationTokenRequest
from odradek_protocol.schemas.describe_delegation_token import DescribeDelegationTokenRequest
from odradek_protocol.schemas.expire_delegation_token import ExpireDelegationTokenRequest
from odradek_protocol.schemas.renew_delegation_token import RenewDelegationTokenRequest
from odradek_protocol.stored.cluster_metadata import DelegationTokenRecord, encode_record

REQUESTS = [
    CreateDelegationTokenRequest(),
    RenewDelegationTokenRequest(hmac=b"a token"),
    ExpireDelegationTokenRequest(hmac=b"a token"),
    DescribeDelegationTokenRequest(owners=None),
]
KEY = {"delegation_token_secret_key": "a key"}
HOUR_MS = 3_600_000


def asked(node: Any, request: Message, user: str = "alice", **more: Any) -> Any:
    """The answer to a user's request; a Deferred if the answer waits for the disk."""
    api = api_of(request)
    context = RequestContext(api.versions.last, "client", "host", 1, user=user, **more)
    answer: Any = HANDLERS[api.key](node, context, request)
    return answer


def told(world: NodeWorld, request: Message, user: str = "alice", **more: Any) -> Any:
    answer = asked(world.node, request, user, **more)
    world.flush()
    return answer.result() if hasattr(answer, "result") else answer


def create(*renewers: str, lifetime_ms: int = -1) -> CreateDelegationTokenRequest:
    given = [TokenPrincipal(principal_type="User", principal_name=each) for each in renewers]
    return CreateDelegationTokenRequest(renewers=given, max_lifetime_ms=lifetime_ms)


def described(world: NodeWorld, user: str = "alice", *owners: str) -> list[str]:
    """The ids of the tokens that the user sees."""
    wanted = [TokenPrincipal(principal_type="User", principal_name=o) for o in owners]
    answer = told(world, DescribeDelegationTokenRequest(owners=wanted or None), user)
    assert answer.error_code == ErrorCode.NONE
    return [each.token_id for each in answer.tokens]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a49_token_requests_without_a_secret_key_are_refused(request_: Message) -> None:
    api = api_of(request_)
    for version in api.versions:
        refused = ask(FakeNode(), request_, version)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        context = RequestContext(version, "client", "host", 1, user="alice")
        node: Any = FakeNode()
        known: Any = HANDLERS[api.key](node, context, request_)
        assert known.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert "a token" not in repr(request_)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a49_clients_authenticated_by_token_and_anonymous_ones_are_refused(
    request_: Message,
) -> None:
    world = NodeWorld(**KEY)
    for more in ({"by_token": True}, {"user": "ANONYMOUS"}):
        answer = told(world, request_, **more)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a74_a_token_for_another_owner_needs_create_tokens() -> None:
    node: Any = FakeNode()
    rules = node.authorizer = RuleList()
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    answer = asked(node, request)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    rules.rules.append(Rule(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    assert asked(node, request).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    rules.rules.clear()
    assert asked(node, request, "bob").error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_a49_a_token_is_answered_with_its_hmac_when_it_is_durable() -> None:
    world = NodeWorld(**KEY)
    waiting = asked(world.node, create("bob"))
    assert not waiting.done
    world.flush()
    answer = waiting.result()
    assert answer.error_code == ErrorCode.NONE
    assert answer.hmac == DelegationTokens("a key").hmac_of(answer.token_id)
    assert len(answer.hmac) == 64
    assert answer.hmac != DelegationTokens("another key").hmac_of(answer.token_id)
    assert repr(answer.hmac) not in repr(answer)
    assert answer.expiry_timestamp_ms - answer.issue_timestamp_ms == 24 * HOUR_MS
    assert answer.max_timestamp_ms - answer.issue_timestamp_ms == 7 * 24 * HOUR_MS


def test_a49_tokens_renewers_and_names_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    world = NodeWorld(**KEY)
    for request in (create(*"b" * 1001), create("x" * 1025)):
        assert told(world, request).error_code == ErrorCode.INVALID_REQUEST
    monkeypatch.setattr(delegation_tokens, "_TOKENS_MAX", 1)
    assert told(world, create()).error_code == ErrorCode.NONE
    assert told(world, create()).error_code == ErrorCode.POLICY_VIOLATION
    assert len(world.node.metadata.delegation_tokens) == 1


def test_a49_no_token_is_created_on_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    world = NodeWorld(**KEY)

    def full(_: object) -> None:
        raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

    monkeypatch.setattr(world.node.metadata_log, "commit", full)
    answer = told(world, create())
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (answer.token_id, answer.hmac) == ("", b"")


def test_a51_the_owner_and_the_renewers_change_the_expiry() -> None:
    world = NodeWorld(**KEY)
    made = told(world, create("bob", lifetime_ms=3 * HOUR_MS))
    world.clock.advance(HOUR_MS)
    now_ms = world.clock.wall_ms()
    renew = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=HOUR_MS)
    assert told(world, renew, "bob").expiry_timestamp_ms == now_ms + HOUR_MS
    longer = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1)
    assert told(world, longer).expiry_timestamp_ms == made.max_timestamp_ms
    mismatch = told(world, longer, "carol")
    assert mismatch.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    later = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=5)
    assert told(world, later).expiry_timestamp_ms == now_ms + 5
    world.clock.advance(6)
    assert told(world, longer).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
    at_once = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    assert told(world, at_once, "bob").error_code == ErrorCode.NONE
    assert told(world, at_once, "bob").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a52_owners_renewers_and_authorized_users_see_tokens() -> None:
    world = NodeWorld(**KEY)
    own = told(world, create("bob")).token_id
    bobs = told(world, create(), "bob").token_id
    node: Any = world.node
    rules = node.authorizer = RuleList()
    assert described(world) == [own]
    assert described(world, "bob") == [own, bobs]
    assert described(world, "bob", "alice") == [own]
    assert described(world, "carol") == []
    rules.rules.append(Rule(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, own))
    assert described(world, "carol") == [own]
    rules.rules[:] = [Rule(Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")]
    assert described(world, "carol") == [bobs]
    nobody = told(world, DescribeDelegationTokenRequest(owners=[]))
    assert (nobody.error_code, nobody.tokens) == (ErrorCode.NONE, [])


def test_a52_a_token_is_described_when_it_is_durable() -> None:
    world = NodeWorld(**KEY)
    asked(world.node, create())
    waiting = asked(world.node, DescribeDelegationTokenRequest(owners=None))
    assert not waiting.done
    world.flush()
    assert len(waiting.result().tokens) == 1


def test_a50_tokens_survive_a_restart_and_a_snapshot_but_not_another_key() -> None:
    world = NodeWorld(
        **KEY,
        metadata_log_max_record_bytes_between_snapshots="1",
        metadata_max_retention_bytes="0",
    )
    kept, gone = told(world, create("bob")), told(world, create())
    told(world, ExpireDelegationTokenRequest(hmac=gone.hmac, expiry_time_period_ms=-1))
    before = list(world.node.metadata.delegation_tokens.all())
    world.crash()
    assert list(world.node.metadata.delegation_tokens.all()) == before
    for _ in range(2):
        world.maintain_later()
        world.soon.run()
        world.flush()
    assert any(
        name.endswith(".checkpoint") for name in world.files.list("data/__cluster_metadata-0")
    )
    world.crash()
    assert list(world.node.metadata.delegation_tokens.all()) == before
    assert [each.token_id for each in before] == [kept.token_id]
    renew = RenewDelegationTokenRequest(hmac=kept.hmac, renew_period_ms=HOUR_MS)
    assert told(world, renew).error_code == ErrorCode.NONE
    world.settings["delegation.token.secret.key"] = "another key"
    world.crash()
    assert told(world, renew).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert described(world) == [kept.token_id]
    world.settings["delegation.token.secret.key"] = ""
    world.crash()
    assert told(world, renew).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    world.settings["delegation.token.secret.key"] = "a key"
    world.crash()
    assert told(world, renew).error_code == ErrorCode.NONE


def test_a50_tools_show_the_token_id_and_no_key() -> None:
    world = NodeWorld(**KEY)
    made = told(world, create("bob"))
    token = world.node.metadata.delegation_tokens.get(made.token_id)
    assert token is not None
    record = DelegationTokenRecord(token_id=token.token_id, owner=token.owner)
    _, value = decode_record("__cluster_metadata", None, encode_record(record))
    assert value["data"]["token_id"] == made.token_id
    assert value["data"]["owner"] == "User:alice"
    assert "a key" not in repr(world.node.metadata.delegation_tokens)
    assert "a key" not in repr(world.node.config)


def test_a54_expired_tokens_are_removed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world = NodeWorld(**KEY, delegation_token_expiry_check_interval_ms="60000")
    monkeypatch.setattr(delegation_tokens, "EXPIRED_AT_ONCE_MAX", 2)
    monkeypatch.setattr("odradek_broker.node.EXPIRED_AT_ONCE_MAX", 2)
    for _ in range(3):
        told(world, create(lifetime_ms=1_000))
    kept = told(world, create()).token_id
    tokens = world.node.metadata.delegation_tokens

    def maintained() -> int:
        world.node.maintain()
        world.flush()
        return len(tokens)

    world.clock.advance(30_000)
    assert maintained() == 4
    world.clock.advance(30_000)
    assert [maintained() for _ in range(3)] == [2, 1, 1]
    assert described(world) == [kept]
    world.crash()
    assert described(world) == [kept]
