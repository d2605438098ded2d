"""Bugs of delegation tokens: snapshots that lose changes, tokens that are valid for too long,
wrong principals, and wrong rights."""

from __future__ import annotations

from typing import Any

from tests.sim.mutants.base import Mutant
from tests.sim.mutants.metadata import committed_at_once

from odradek_broker.handlers import describe_delegation_token
from odradek_broker.metadata import delegation_tokens
from odradek_broker.metadata.delegation_tokens import TokenChange
from odradek_broker.metadata.image import MetadataImage
from odradek_broker.metadata.log import MetadataLog
from odradek_broker.security.delegation_tokens import TokenInformation
from odradek_broker.security.scram import ScramTokens
from odradek_broker.server.sasl_listeners import SaslListener
from odradek_protocol.stored.cluster_metadata import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _always(*_: Any) -> bool:
    return True


_replay = MetadataImage.replay


def _keeping_the_first(self: MetadataImage, record: Any, *values: bytes) -> None:
    known = getattr(record, "token_id", None)
    if type(record) is not DelegationTokenRecord or self._get(("token", known)) is None:
        _replay(self, record, *values)


def _keeping_the_removed(self: MetadataImage, record: Any, *values: bytes) -> None:
    if type(record) is not RemoveDelegationTokenRecord:
        _replay(self, record, *values)


def _valid_until_removed(self: ScramTokens, token_id: str) -> TokenInformation | None:
    return self._tokens().get(token_id)


def _expiring_beyond_its_end(token: TokenInformation, expires_ms: int) -> TokenChange:
    record = delegation_tokens._record(token, expires_ms)
    return TokenChange(records=[record], expires_ms=expires_ms)


def _name_of_the_requester(self: TokenInformation) -> str:
    return self.requester.partition(":")[2]


DELEGATION_TOKENS = (
    Mutant(
        "snapshots keep the first expiry of a renewed delegation token",
        "delegation-tokens",
        6,
        {(MetadataImage, "replay"): _keeping_the_first},
        ("delegation-tokens: ",),
    ),
    Mutant(
        "snapshots keep a removed delegation token",
        "delegation-tokens",
        4,
        {(MetadataImage, "replay"): _keeping_the_removed},
        ("delegation-tokens: ",),
    ),
    Mutant(
        "a change of a delegation token is acknowledged before it is durable",
        "delegation-tokens",
        6,
        {(MetadataLog, "commit"): committed_at_once},
        ("delegation-tokens: ",),
    ),
    Mutant(
        "an expired delegation token authenticates until it is removed",
        "delegation-tokens",
        51,
        {(ScramTokens, "valid"): _valid_until_removed},
        ("delegation-tokens: ",),
    ),
    Mutant(
        "a session continues after its delegation token has expired",
        "delegation-tokens",
        10,
        {(SaslListener, "session_lifetime_ms"): _nothing},
        ("delegation-tokens: ",),
    ),
    Mutant(
        "a delegation token can be renewed beyond its maximum lifetime",
        "delegation-tokens",
        3,
        {(delegation_tokens, "_expiring"): _expiring_beyond_its_end},
        ("delegation-tokens: ",),
    ),
    Mutant(
        "a delegation token authenticates its requester instead of its owner",
        "delegation-tokens",
        1,
        {(TokenInformation, "owner_name"): property(_name_of_the_requester)},
        ("delegation-tokens: ",),
    ),
    Mutant(
        "every user may describe every delegation token",
        "delegation-tokens",
        1,
        {(describe_delegation_token, "_may_describe"): _always},
        ("delegation-tokens: ",),
    ),
)
