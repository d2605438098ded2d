"""Bugs of requests that are carried out in slices, and of the order of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_broker import slices
from odradek_broker.deferred import Deferred
from odradek_broker.handlers import _creation, delete_topics
from odradek_broker.metadata import commit, log
from odradek_broker.server import session

_WORKLOAD = "long-requests"
_ANSWERS = ("are not those of any order",)
_committed = commit.committed


def _late(node: Any, records: Sequence[Any] = (), timeout_ms: int = 60_000) -> Deferred[bool]:
    """Records that are decided before a pause and appended after it."""

    async def append() -> bool:
        for _ in range(20):
            await slices.pause_in_change()
        return await _committed(node, records, timeout_ms)

    late: Deferred[bool] = node.slices.deferred(append())
    return late


def _nothing(*_: Any) -> None:
    pass


def _any_request(_: memoryview) -> bool:
    return True


class _NoWork:
    """No request is an instance of this class."""


LONG_REQUESTS = (
    # The check of records hides these bugs: it refuses the records, and the answer is a timeout.
    *(
        Mutant(
            f"{name} does not look again after a pause",
            _WORKLOAD,
            seed,
            {(handler, "committed"): _late, (log, "check_all"): _nothing},
        )
        for name, handler, seed in (
            ("a creation of topics or partitions", _creation, 11),
            ("DeleteTopics", delete_topics, 4),
        )
    ),
    Mutant(
        "a request begins before the answer to the one before it is complete",
        _WORKLOAD,
        2,
        {(session, "_is_produce"): _any_request, (session, "Work"): _NoWork},
        _ANSWERS,
    ),
    Mutant(
        "a batch overtakes one that is checked in the thread",
        "large-batches",
        1,
        {(session, "Work"): _NoWork},
        ("comes before",),
    ),
    Mutant(
        "a change ends in the middle when its connection is closed",
        _WORKLOAD,
        2,
        {(slices._CHANGING, "changing"): None},
        ("topics of one request there are",),
    ),
)
