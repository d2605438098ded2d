"""Queries with a `queryId` that continue with another checkpoint (S-19), and the errors of jobs
with a `commitId`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import budget
from odradek import sync
from odradek.broker import SubprocessBroker
from pyspark_odradek.errors import StaleBatch, Superseded, TransactionsLost
from pyspark_odradek.exactly_once import ledger, protocol
from pyspark_odradek.exactly_once.identity import Writer
from pyspark_odradek.exactly_once.ledger import LedgerState
from sink_query import Job, Query, made


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"log.durability": "page-cache", "log.retention.ms": "-1"}
    folder = tmp_path_factory.mktemp("broker")
    with SubprocessBroker(data_dir=folder, settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, address: str, unique_topic: str) -> Query:
    """A query with a `queryId`. `Query.query` is the id that its checkpoint has."""
    return made(monkeypatch, address, unique_topic, queryId=f"orders of {unique_topic}")


def renewed(query: Query) -> Query:
    """The query with a new checkpoint."""
    other = query.restarted()
    other.query = str(uuid.uuid4())
    return other


def run(query: Query, batch: int, *rows: str) -> None:
    query.commit(batch, query.tasks(batch, list(rows)))


def test_s19_batches_of_a_new_checkpoint_are_other_batches(query: Query) -> None:
    """The batch number may be below the newest written one, and may be equal to it with as many
    rows."""
    run(query, 0, "a", "b")
    run(renewed(query), 0, "c", "d")
    third = query.restarted()
    third.query = str(uuid.uuid4())
    for batch in range(3):
        run(third, batch, f"e{batch}")
    run(renewed(query), 0, "f")
    assert query.visible(8) == ["a", "b", "c", "d", "e0", "e1", "e2", "f"]


def test_s19_a_replay_with_the_same_checkpoint_writes_nothing_again(query: Query) -> None:
    run(query, 0, "a")
    other = renewed(query)
    run(other, 0, "b")
    again = other.restarted()
    again.query = other.query
    messages = again.tasks(0, ["b"])
    assert messages[0].outcome.participant is None
    again.commit(0, messages)
    assert query.visible(2) == ["a", "b"]


def test_s19_a_new_checkpoint_completes_the_decided_batch_of_the_old_one(query: Query) -> None:
    """It also aborts what the old checkpoint has left open."""
    messages = query.tasks(0, ["a"], ["b"])
    query.task(0, 0, "a")
    query.decide(0, messages)
    other = renewed(query)
    run(other, 0, "c", "d")
    assert query.visible(4) == ["a", "b", "c", "d"]
    name = query.options["queryId"]
    with sync.Admin(bootstrap_servers=query.address) as admin:
        found = admin.list_transactions(states=["Ongoing"])
    assert [each for each in found if name in each.transactional_id] == []
    with pytest.raises(Superseded, match="and another queryId"):
        query.task(1, 0, "e")


def test_s19_the_old_checkpoint_is_refused_when_a_new_one_has_written(query: Query) -> None:
    run(query, 0, "a")
    other = renewed(query)
    other.tasks(0, ["b"])  # As long as the new one has only begun, the old one may go on.
    run(query.restarted(), 1, "a2")
    run(renewed(query), 0, "c")
    with pytest.raises(StaleBatch, match=r"newer checkpoint .*another queryId"):
        query.restarted().task(2, 0, "d")
    assert query.visible(3) == ["a", "a2", "c"]


@pytest.mark.full
def test_s19_an_outdated_copy_of_a_known_checkpoint_may_be_replaced_by_a_new_one(
    query: Query,
) -> None:
    for batch in range(2):
        run(query, batch, f"a{batch}")
    with pytest.raises(StaleBatch, match="or a new one and mind the starting offsets"):
        query.restarted().task(0, 0, "a0")
    run(renewed(query), 0, "b")
    assert query.visible(3) == ["a0", "a1", "b"]


@pytest.mark.full
def test_s19_a_decision_of_an_unknown_checkpoint_counts_as_one_of_any(query: Query) -> None:
    """Earlier connectors did not store the checkpoint."""
    state = LedgerState("r0", batch=4, run="r0", rows=1, targets="0")
    a, b = Writer("q", "r1", "a"), Writer("q", "r2", "b")
    assert (state.batch_of(a), state.batch_of(b)) == (4, 4)
    with pytest.raises(StaleBatch, match="with another queryId, if it has one"):
        ledger.refuse_stale(state, a, 3)
    ledger.refuse_stale(state, a, 4)
    state = ledger.commit(replace(state, holder="r1"), a, 5, 1, "0", ()).state
    assert (state.batch_of(a), state.batch_of(b), state.over(b)) == (5, -1, -1)
    unknown = replace(state, holder="r3")
    state = ledger.commit(unknown, Writer("q", "r3"), 6, 1, "0", ()).state
    assert (state.checkpoint, state.replaced) == ("a", ())
    state = ledger.commit(replace(state, holder="r2"), b, 0, 1, "0", ()).state
    assert (state.batch_of(b), state.replaced) == (0, ("a",))
    record = ledger.LedgerRecord(ledger.LedgerRecordType.COMMIT, 7, state)
    assert ledger.decode(ledger.encode(record)) == record


@pytest.mark.full
def test_s19_a_revoked_batch_of_the_old_checkpoint_is_not_announced_as_written_again(
    query: Query,
) -> None:
    messages = query.tasks(0, ["a"])
    query.decide(0, messages)

    def abort() -> Any:
        yield protocol.End(query.run, (messages[0].outcome.participant,), False)

    query.drive(abort(), 0)
    other = renewed(query)
    with pytest.raises(TransactionsLost, match="was replaced, so nothing writes it again"):
        run(other, 0, "b")


# --- jobs -----------------------------------------------------------------------------------------


def job_of(query: Query, version: int = 0, **options: str) -> Job:
    job = Job(query._monkeypatch, query.address, query.topic)
    job.options |= {"commitId": query.topic, "commitVersion": str(version), **options}
    return job


def test_s16_messages_for_jobs_speak_of_commit_ids_and_not_of_checkpoints(query: Query) -> None:
    job_of(query, 3).commit(0, job_of(query, 3).tasks(0, ["a"]))
    with pytest.raises(
        StaleBatch, match=r"commitVersion 2 .* commitVersion 3 .*use 4 or more"
    ) as old:
        job_of(query, 2).task(0, 0, "b")
    with pytest.raises(
        StaleBatch, match="another write has this commitId and commitVersion"
    ) as same:
        again = job_of(query, 3)
        again.commit(0, again.tasks(0, ["a", "b"]))
    first, second = job_of(query, 4), job_of(query, 4)
    messages = first.tasks(0, ["c"])
    second.commit(0, second.tasks(0, ["c"]))
    with pytest.raises(Superseded, match=f"another job with commitId {query.topic}") as other:
        first.commit(0, messages)
    for error in (old, same, other):
        text = str(error.value).replace(query.topic, "")
        assert not any(word in text for word in ("checkpoint", "query", "restart")), text
    assert query.visible(2) == ["a", "c"]


KINDS: list[dict[str, Any]] = [{}, {"failOnDataLoss": "false"}]


@pytest.mark.full
@pytest.mark.parametrize("options", budget.of_which(KINDS, KINDS[:1]))
def test_s16_a_version_below_the_newest_is_refused_in_any_case(
    query: Query, options: dict[str, str]
) -> None:
    later = job_of(query, 1)
    later.commit(0, later.tasks(0, ["a"]))
    with pytest.raises(StaleBatch, match="must increase"):
        job_of(query, 0, **options).task(0, 0, "b")
