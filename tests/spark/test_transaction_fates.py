"""The outcome of prepared transactions, as the sink finds it out."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_client.admin.results import Results
from odradek_client.errors import (
    AuthenticationFailed,
    OdradekError,
    Refused,
    TransactionalIdAuthorizationFailed,
    UnsupportedByBroker,
)
from odradek_protocol.errors import ErrorCode
from pyspark_odradek.errors import SinkError
from pyspark_odradek.exactly_once.brokers import Brokers
from pyspark_odradek.exactly_once.identity import transactional_id
from pyspark_odradek.exactly_once.ledger import Participant
from pyspark_odradek.exactly_once.protocol import Describe, Fate

PART = Participant(name="name", producer_id=1, epoch=0, version=2, slot=0, rows=1)


async def described(monkeypatch: pytest.MonkeyPatch, error: OdradekError) -> tuple[Fate, ...]:
    """The fates that the sink finds for one transaction, if its description fails with this
    error."""
    brokers = Brokers({"bootstrap_servers": "127.0.0.1:1"})

    async def describe_transactions(*_: Any, **__: Any) -> Results[str, Any]:
        found = Results[str, Any]()
        found.errors = {transactional_id("query", "run", PART.name): error}
        return found

    monkeypatch.setattr(brokers._admin, "describe_transactions", describe_transactions)
    return await brokers._describe("query", Describe("run", (PART,)))


async def test_a_transaction_that_the_broker_does_not_know_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = Refused("no such id", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert await described(monkeypatch, error) == (Fate.UNKNOWN,)


async def test_a_transaction_is_open_if_the_broker_cannot_describe_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await described(monkeypatch, UnsupportedByBroker("too old")) == (Fate.OPEN,)


@pytest.mark.parametrize("error", [AuthenticationFailed, TransactionalIdAuthorizationFailed])
async def test_a_failed_look_at_transactions_is_not_a_loss(
    monkeypatch: pytest.MonkeyPatch, error: type[OdradekError]
) -> None:
    with pytest.raises(SinkError, match="could not be looked up: the reason"):
        await described(monkeypatch, error("the reason"))
