"""Bugs of the resources of clients."""

from __future__ import annotations

from typing import Any

from tests.sim.mutants.base import Mutant

from odradek_client.consumer.fetcher import Fetcher, FetchPlan
from odradek_client.consumer.group.offsets import Commit, CommitQueue
from odradek_client.producer.accumulator import Accumulator
from odradek_client.producer.batch import ProducerBatch
from odradek_client.producer.sender import Produce, Sender


def _memory_is_kept(self: Accumulator, batch: ProducerBatch) -> None:
    self.incomplete.pop(batch, None)


def _commit_stays_in_the_queue(
    self: CommitQueue, commit: Commit, outcome: BaseException | None
) -> None:
    if not commit.outcome.done():
        commit.outcome.set_result(outcome)


def _fetch_stays_in_flight(self: Fetcher, plan: FetchPlan, now_ms: int) -> None:
    _on_failure(self, plan, now_ms)
    self._in_flight.add(plan.node_id)


def _topics_of_the_present_metadata(self: Sender, sent: Produce, *answered: Any) -> Any:
    sent.topic_names = dict(self._cluster.topic_names)
    return _answered(self, sent, *answered)


_on_failure = Fetcher.on_failure
_answered = Sender.answered

CLIENTS = (
    Mutant(
        "completed batches do not return their memory to the accumulator",
        "produce",
        1,
        {(Accumulator, "finished"): _memory_is_kept},
    ),
    Mutant(
        "completed commits stay in the consumer's queue",
        "groups",
        1,
        {(CommitQueue, "end"): _commit_stays_in_the_queue},
        ("queues: ",),
    ),
    Mutant(
        "a failed fetch still counts as in flight",
        "groups",
        17,
        {(Fetcher, "on_failure"): _fetch_stays_in_flight},
        ("queues: ",),
    ),
    Mutant(
        "the topics of a Produce answer are looked up in the current metadata",
        "admin-churn",
        25,
        {(Sender, "answered"): _topics_of_the_present_metadata},
        ("does not mention the partition",),
    ),
)
