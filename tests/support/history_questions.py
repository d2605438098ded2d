"""DescribeHistory requests about the world of a coordinator."""

from __future__ import annotations

from typing import Any

import handler_calls
from group_world import GROUP
from odradek_broker.coordinator.transactions.decisions import InitCall
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_history as wire
from transaction_world import ID, TransactionWorld

E = ErrorCode


def ask(world: Any, kind: int, subject: str, limit: int = -1) -> wire.DescribeHistoryResponse:
    """Answer a DescribeHistory request for a subject of this kind; `world` serves as the node."""
    request = wire.DescribeHistoryRequest(subject_type=kind, subject=subject, limit=limit)
    answer: wire.DescribeHistoryResponse = handler_calls.ask(world, request, 0)
    return answer


def sentences(world: Any, subject: str = "") -> list[str]:
    """The texts of the events, oldest first."""
    kind = wire.TRANSACTIONAL_ID if isinstance(world, TransactionWorld) else wire.GROUP
    answer = ask(world, kind, subject or (ID if kind == wire.TRANSACTIONAL_ID else GROUP))
    assert answer.error_code == E.NONE
    return [event.text for event in answer.events]


def now(world: Any, subject: str = "") -> list[str]:
    """The present states of the subject."""
    kind = wire.TRANSACTIONAL_ID if isinstance(world, TransactionWorld) else wire.GROUP
    answer = ask(world, kind, subject or (ID if kind == wire.TRANSACTIONAL_ID else GROUP))
    return [state.text for state in answer.states]


def init(world: TransactionWorld, client: str, **how: Any) -> tuple[int, int]:
    call = InitCall(ID, 60_000, client=f"client {client} at host", **how)
    answer = world.transactions.init_producer_id(call).result()
    return answer.producer_id, answer.epoch
