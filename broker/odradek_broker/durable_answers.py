"""Answers that wait for cluster metadata to be durable (architecture, D4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import structlog

from odradek_broker.later import Later
from odradek_broker.storage.errors import StorageError
from odradek_protocol.stored.cluster_metadata import MetadataRecord

if TYPE_CHECKING:
    from odradek_broker.node import Node

log = structlog.get_logger("odradek.admin")

Response = TypeVar("Response")
#: Some clients send no time at all and mean "whatever it takes".
_SHORTEST_WAIT_MS = 5_000
DEFAULT_WAIT_MS = 60_000


def when_durable(
    node: Node,
    records: Sequence[MetadataRecord],
    respond: Callable[[], Response],
    timed_out: Callable[[], Response],
    timeout_ms: int = DEFAULT_WAIT_MS,
) -> Response | Later[Response]:
    """Record, and give `respond()` once everything replayed so far is on disk.

    `timed_out()` is given instead where that takes longer than `timeout_ms`; what was recorded
    stays recorded. So it is where nothing can be recorded: clients try again. With a negative
    time nothing is recorded either: it is over before it has begun.
    """
    if timeout_ms < 0:
        return timed_out()
    try:
        recorded = node.commit_metadata(list(records)) if records else node.metadata_durable()
    except StorageError as problem:
        log.error("metadata was not recorded", problem=problem.message)
        return timed_out()
    if recorded.done:
        return respond()
    answer: Later[Response] = Later()

    def late() -> None:
        if not answer.done:
            answer.resolve(timed_out())

    timer = node.call_later(max(timeout_ms, _SHORTEST_WAIT_MS), late)

    def durable(_: None) -> None:
        if not answer.done:
            node.cancel(timer)
            answer.resolve(respond())

    recorded.then(durable)
    return answer
