"""Bugs of exactly-once writes from Spark: the identity of writes, ended transactions, the decision
log, aborts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_client.admin.transactions import TransactionDescription
from pyspark_odradek.exactly_once import identity, ledger, protocol
from pyspark_odradek.exactly_once.brokers import Brokers
from pyspark_odradek.exactly_once.ledger import LedgerEntry, NewestDecision

_end = Brokers._end


async def _refused_is_ended(self: Brokers, query: str, action: protocol.End) -> tuple[bool, ...]:
    return tuple(True for _ in await _end(self, query, action))


def _last_decision(entries: Iterable[LedgerEntry]) -> NewestDecision:
    held = list(entries)
    if not held:
        return NewestDecision()
    last = held[-1]
    return NewestDecision(last.offset, last.key, last.record.state)


def _abort_without_resigning(terms: protocol.Terms) -> Any:
    found = yield protocol.Read()
    if found.state.run == terms.writer.run and not found.state.done:
        return False
    left = yield protocol.ListOpen((terms.writer.run,))
    if left:
        yield protocol.Fence(left)
    return True


def _unconfirmed(terms: protocol.Terms) -> Any:
    yield from ()


def _commit_id_alone(commit_id: str, topic: str | None) -> str:
    return f"commit:{commit_id}"


SPARK_SINK = (
    Mutant(
        "a write is identified by its commitId alone, without the topic",
        "spark-sink",
        4,
        {(identity, "commit_query"): _commit_id_alone},
        ("is nowhere, and nobody was told",),
    ),
    Mutant(
        "a refused EndTxn counts as the end of the transaction",
        "spark-sink",
        5,
        {(Brokers, "_end"): _refused_is_ended},
    ),
    Mutant(
        "the last record of the decision log counts, even if it is not valid",
        "spark-sink",
        43,
        {(ledger, "newest"): _last_decision},
    ),
    Mutant(
        "a failed batch is aborted before the decision log says that its run has given up",
        "spark-sink",
        24,
        {(protocol, "abort"): _abort_without_resigning},
    ),
    Mutant(
        "cleaning up leaves transactional ids alone that have written no row",
        "spark-sink",
        44,
        {(TransactionDescription, "is_fenced"): property(lambda _: True)},
        ("is Ongoing",),
    ),
    Mutant(
        "a late task does not look whether its batch is over",
        "spark-sink",
        1,
        {(protocol, "confirm_task"): _unconfirmed},
        ("is Ongoing",),
    ),
)
