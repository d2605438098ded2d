"""Delegation tokens are not supported; the answers are those of Kafka without them."""

from __future__ import annotations

from typing import Any

import pytest

from acl_rules import Rule, RuleList
from fake_node import FakeNode
from handler_calls import ask
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_broker.server.dispatch import HANDLERS
from odradek_protocol.errors import ErrorCode
from odradek_protocol.keys import API_OF_REQUEST
from odradek_protocol.message import Message
from odradek_protocol.schemas.create_delegation_token import CreateDelegationTokenRequest
from odradek_protocol.schemas.describe_delegation_token import DescribeDelegationTokenRequest
from odradek_protocol.schemas.expire_delegation_token import ExpireDelegationTokenRequest
from odradek_protocol.schemas.renew_delegation_token import RenewDelegationTokenRequest

REQUESTS = [
    CreateDelegationTokenRequest(),
    RenewDelegationTokenRequest(hmac=b"a token"),
    ExpireDelegationTokenRequest(hmac=b"a token"),
    DescribeDelegationTokenRequest(owners=None),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a49_there_are_no_delegation_tokens(request_: Message) -> None:
    api = API_OF_REQUEST[type(request_)]
    for version in api.versions:
        refused = ask(FakeNode(), request_, version)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        context = RequestContext(version, "client", "host", 1, user="alice")
        node: Any = FakeNode()
        known: Any = HANDLERS[api.key](node, context, request_)
        assert known.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert "a token" not in repr(request_)


def test_a74_a_token_for_another_owner_needs_create_tokens() -> None:
    node: Any = FakeNode()
    rules = node.authorizer = RuleList()
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
    handle: Any = HANDLERS[API_OF_REQUEST[type(request)].key]
    context = RequestContext(3, "client", "host", 1, user="alice")
    answer = handle(node, context, request)
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    rules.rules.append(Rule(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    assert handle(node, context, request).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    own = RequestContext(3, "client", "host", 1, user="bob")
    rules.rules.clear()
    assert handle(node, own, request).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
