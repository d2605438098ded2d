"""The procedures of the exactly-once sink with a real broker, without Spark.

A task's writer runs in this process, with a context that replaces Spark's.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import budget
from odradek import sync
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, ConfigChange, ConfigResource, NewTopic
from odradek_client.admin.results import Results
from odradek_client.errors import ConnectionLost, OdradekError, Refused, UnsupportedByBroker
from odradek_protocol.errors import ErrorCode
from pyspark_odradek import blocking, transactional_writer, writer
from pyspark_odradek.errors import SinkError, Superseded, TooLate, TransactionsLost
from pyspark_odradek.exactly_once import decision_log, identity, ledger, protocol
from pyspark_odradek.exactly_once.brokers import Brokers
from pyspark_odradek.exactly_once.identity import Writer
from sink_query import Job, Query, made


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"log.durability": "page-cache", "log.retention.ms": "-1"}
    folder = tmp_path_factory.mktemp("broker")
    with SubprocessBroker(data_dir=folder, settings=settings) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def without_kip939(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with without_two_phase_commit(tmp_path_factory.mktemp("broker"), 1000) as broker:
        yield broker.bootstrap


def without_two_phase_commit(folder: Path, max_timeout_ms: int) -> SubprocessBroker:
    settings = {
        "log.durability": "page-cache",
        "transaction.two.phase.commit.enable": "false",
        "transaction.max.timeout.ms": str(max_timeout_ms),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    return SubprocessBroker(data_dir=folder, settings=settings)


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, address: str, unique_topic: str) -> Query:
    return made(monkeypatch, address, unique_topic)


def test_s03_s10_s13_committed_batches_are_visible_and_ids_are_reused(query: Query) -> None:
    """A task without rows has no transaction. A worker reuses its transactional ids, batch after
    batch."""
    for batch in range(3):
        messages = query.tasks(batch, [f"{batch}a"], [f"{batch}b", f"{batch}c"], [])
        assert messages[2].outcome.participant is None
        query.commit(batch, messages)
    assert query.visible(9) == sorted(f"{batch}{row}" for batch in range(3) for row in "abc")
    state = query.state()
    assert (state.holder, state.batch, state.done, state.rows) == (query.run, 2, True, 3)
    with sync.Admin(bootstrap_servers=query.address) as admin:
        ids = [x.transactional_id for x in admin.list_transactions()]
    assert len([each for each in ids if query.query in each and query.run in each]) == 2


def test_s09_a_decided_batch_is_committed_by_the_next_run(query: Query) -> None:
    query.decide(0, query.tasks(0, ["a"], ["b"]))
    again = query.restarted()
    messages = again.tasks(0, ["b", "a"])  # The number of tasks has changed.
    assert messages[0].outcome.participant is None, "nothing is written again"
    again.commit(0, messages)
    assert query.visible(2) == ["a", "b"]
    assert again.state().done


def test_s06_the_older_of_two_runs_fails_and_names_the_newer(query: Query) -> None:
    messages = query.tasks(0, ["a"])
    newer = query.restarted()
    newer.commit(0, newer.tasks(0, ["a"]))
    with pytest.raises(Superseded, match=newer.run):
        query.commit(0, messages)
    with pytest.raises(Superseded, match="a checkpoint of its own"):
        query.task(1, 0, "b")
    query.abort(0, messages)
    newer.commit(1, newer.tasks(1, ["b"]))
    assert query.visible(2) == ["a", "b"]
    assert query.open_transactions() == [], "S-15"


@pytest.mark.full
def test_s04_a_worker_creates_the_decision_log_of_a_second_broker_compacted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A log that the broker creates when the worker reads it would not be compacted, and the broker
    would delete old decisions."""
    name, policy = "__odradek_spark_commits", "cleanup.policy"
    with SubprocessBroker(data_dir=tmp_path / "first") as broker:
        address = broker.bootstrap
        with sync.Admin(bootstrap_servers=address) as admin:
            # The test creates the decision log of the first broker: a worker would create it, but
            # then wait until it can be used.
            admin.create_topics(NewTopic(name, configs={policy: "compact"}))
        query = made(monkeypatch, address, "rows")
        query.commit(0, query.tasks(0, ["a"]))
    with SubprocessBroker(data_dir=tmp_path / "second", listen=address):
        for topic in ("rows-1", "rows-2"):
            query = made(monkeypatch, address, topic)
            query.commit(0, query.tasks(0, ["b"]))
        with sync.Admin(bootstrap_servers=address) as admin:
            (found,) = admin.describe_configs(ConfigResource.topic(name), names=[policy]).values()
    assert found[policy].value == "compact"


@pytest.mark.full
def test_s14_an_abort_prevents_a_later_decision_and_keeps_an_earlier_one(query: Query) -> None:
    messages = query.tasks(0, ["a"], ["b"])
    query.abort(0, [messages[0], None])
    assert query.open_transactions() == []
    with pytest.raises(Superseded, match="has given up"):
        query.commit(0, messages)
    again = query.restarted()
    messages = again.tasks(0, ["a"], ["b"])
    again.decide(0, messages)
    again.abort(0, messages)
    assert len(again.open_transactions()) == 2, "left to the replay"
    third = query.restarted()
    third.commit(0, third.tasks(0, ["a", "b"]))
    assert query.visible(2) == ["a", "b"]


@pytest.mark.full
def test_s14_the_second_of_two_attempts_at_a_task_is_aborted(query: Query) -> None:
    """With speculation, both attempts can write the rows. Here Spark uses the message of the first
    attempt."""
    writer = query.writer()
    first = query.task(0, 0, "a", writer=writer)
    other = query.task(0, 1, "b", writer=writer)
    query.task(0, 0, "a", writer=writer)
    assert len(query.open_transactions()) == 3
    query.commit(0, [first, other])
    assert query.open_transactions() == []
    assert query.visible(2) == ["a", "b"]


@pytest.mark.full
def test_s08_a_batch_with_an_aborted_participant_is_not_committed(query: Query) -> None:
    messages = query.tasks(0, ["a"], ["b"])
    with sync.Admin(bootstrap_servers=query.address) as admin:
        admin.abort_transaction(query.open_transactions()[0])
    with pytest.raises(TransactionsLost, match=r"tasks 0 \(1 rows.*cannot|cannot be committed"):
        query.commit(0, messages)
    query.abort(0, messages)
    again = query.restarted()
    again.commit(0, again.tasks(0, ["a"], ["b"]))
    assert query.visible(2) == ["a", "b"]


@pytest.mark.full
def test_s01_a_query_id_identifies_a_query_without_sparks_properties(query: Query) -> None:
    query.properties_there = False
    query.options = {**query.options, "queryId": "orders"}
    query.query = "orders"
    first = query.tasks(0, ["a"], ["b"])
    query.commit(0, first)
    again = query.tasks(0, ["a"], ["b"])
    assert again[0].outcome.participant is not None
    query.commit(0, again)
    query.commit(1, query.tasks(1, ["c"]))
    assert query.visible(3) == ["a", "b", "c"]
    assert query.open_transactions() == []


@pytest.mark.full
def test_s01_a_write_without_query_id_and_sparks_properties_is_refused(query: Query) -> None:
    query._monkeypatch.setattr(transactional_writer, "QUERY_PROPERTY", "gone")
    with pytest.raises(SinkError, match="by the option queryId"):
        query.task(0, 0, "a")


@pytest.mark.full
@pytest.mark.parametrize("max_ms", budget.of_which([30_000, 500], [500]))
def test_s15_a_failed_task_is_aborted_with_short_transaction_timeouts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unique_topic: str, max_ms: int
) -> None:
    settings = {"log.durability": "page-cache", "transaction.max.timeout.ms": str(max_ms)}
    with SubprocessBroker(data_dir=tmp_path, settings=settings) as broker:
        query = made(monkeypatch, broker.bootstrap, unique_topic)
        query.task(0, 0, "failed")
        again = query.restarted()
        again.commit(0, again.tasks(0, ["a"]))
        assert query.open_transactions() == []
        assert query.visible(1) == ["a"]


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (Refused("no", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), True),
        (Refused("gone", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), False),
    ],
)
@pytest.mark.parametrize("call", ["describe_transactions", "fence_producer"])
def test_s15_a_transaction_that_cannot_be_aborted_is_logged(
    query: Query, caplog: pytest.LogCaptureFixture, call: str, refusal: Refused, told: bool
) -> None:
    query.task(0, 0, "failed")
    (left,) = query.open_transactions()
    original = getattr(Admin, call)

    async def refuse(admin: Any, names: Any, **more: Any) -> Any:
        if left not in names:
            return await original(admin, names, **more)
        if call == "fence_producer":
            raise refusal
        results: Results[str, Any] = Results()
        results.errors[left] = refusal
        return results

    query._monkeypatch.setattr(Admin, call, refuse)
    told = told or call == "fence_producer"
    again = query.restarted()
    again.commit(0, again.tasks(0, ["a"]))
    assert (f"could not abort transaction {left}" in caplog.text) == told


@pytest.mark.parametrize(
    ("refusal", "times"),
    [(ConnectionLost("no answer"), 2), (UnsupportedByBroker("ListTransactions"), 1)],
)
def test_s15_a_failure_to_list_open_transactions_is_logged(
    query: Query, caplog: pytest.LogCaptureFixture, refusal: OdradekError, times: int
) -> None:
    """If a broker does not support the request, there is a single warning; other failures are
    reported each time."""

    async def refuse(admin: Any, **filters: Any) -> None:
        raise refusal

    query.task(0, 0, "failed")
    again = query.restarted()
    with query._monkeypatch.context() as patch:
        patch.setattr(Admin, "list_transactions", refuse)
        for batch in range(2):
            again.commit(batch, again.tasks(batch, ["a"]))
    told = [each for each in caplog.records if "could not list open transactions" in each.message]
    assert [each.levelname for each in told] == ["WARNING"] * times
    assert "read_committed" in told[0].message
    assert query.query in told[0].message
    assert len(query.open_transactions()) == 1
    again.commit(2, again.tasks(2, ["a"]))
    assert query.open_transactions() == [], "the next batch has tried again"


@pytest.mark.full
@pytest.mark.parametrize(
    ("max_ms", "used_ms"),
    budget.of_which([(30_000, 10_000), (9_999, 1_000)], [(9_999, 1_000)]),
)
def test_shorter_timeouts_are_tried_if_the_maximum_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unique_topic: str, max_ms: int, used_ms: int
) -> None:
    async def refuse(admin: Any, *resources: Any, **filters: Any) -> None:
        raise Refused("no", code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    monkeypatch.setattr(Admin, "describe_configs", refuse)
    with without_two_phase_commit(tmp_path, max_ms) as broker:
        query = made(monkeypatch, broker.bootstrap, unique_topic)
        messages = query.tasks(0, ["a"])
        (name,) = query.open_transactions()
        with sync.Admin(bootstrap_servers=query.address) as admin:
            assert admin.describe_transactions(name)[name].timeout_ms == used_ms
        query.commit(0, messages)
        assert query.visible(1) == ["a"]


@pytest.mark.full
def test_a_transaction_timeout_of_the_user_is_not_shortened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, unique_topic: str
) -> None:
    with without_two_phase_commit(tmp_path, 30_000) as broker:
        options = {"kafka.transaction.timeout.ms": "40000"}
        query = made(monkeypatch, broker.bootstrap, unique_topic, **options)
        with pytest.raises(SinkError, match=r"transaction\.max\.timeout\.ms"):
            query.task(0, 0, "a")
        query.options["kafka.transaction.timeout.ms"] = "20000"
        query.commit(0, query.tasks(0, ["a"]))
        assert query.visible(1) == ["a"]


def test_kip939_a_transaction_of_a_task_has_no_timeout(query: Query) -> None:
    """On a broker with KIP-939, prepared transactions have no timeout."""
    query.task(0, 0, "a")
    (name,) = query.open_transactions()
    with sync.Admin(bootstrap_servers=query.address) as admin:
        assert admin.describe_transactions(name)[name].timeout_ms == 2**31 - 1


def wait_until_aborted(query: Query) -> None:
    import time

    deadline = time.monotonic() + 30
    while query.open_transactions():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.full
def test_s12_a_late_recovery_without_kip939_fails_and_loses_no_row(
    monkeypatch: pytest.MonkeyPatch, without_kip939: str, unique_topic: str
) -> None:
    query = made(monkeypatch, without_kip939, unique_topic)
    query.decide(0, query.tasks(0, ["a"], ["b"]))
    wait_until_aborted(query)
    late = query.restarted()
    with pytest.raises(
        TransactionsLost, match=r"batch 0 .*tasks 0 \(1 rows.*the decision is revoked"
    ):
        late.commit(0, late.tasks(0, ["a"], ["b"]))
    again = query.restarted()
    again.commit(0, again.tasks(0, ["a"], ["b"]))
    assert query.visible(2) == ["a", "b"]


def test_s11_a_partly_lost_batch_fails_the_query(
    monkeypatch: pytest.MonkeyPatch, without_kip939: str, unique_topic: str
) -> None:
    query = made(monkeypatch, without_kip939, unique_topic)
    messages = query.tasks(0, ["a"], ["b"])
    query.decide(0, messages)
    one = (messages[0].outcome.participant,)
    ended: list[Any] = []

    def end_one() -> Any:
        ended.append((yield protocol.End(query.run, one, True)))

    query.drive(end_one(), 0)
    assert ended == [(True,)]
    wait_until_aborted(query)
    for _ in range(2):
        late = query.restarted()
        with pytest.raises(TransactionsLost, match=r"lost in part: .*tasks 1 \(1 rows"):
            late.commit(0, late.tasks(0, ["a"], ["b"]))
    lenient = query.restarted()
    lenient.options = {**query.options, "failOnDataLoss": "false"}
    lenient.commit(0, lenient.tasks(0, ["a"], ["b"]))
    assert query.visible(1) == ["a"]


def test_a_cluster_with_transaction_timeouts_causes_a_single_warning(
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    without_kip939: str,
    unique_topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The warning names the settings that would help. There is no warning if the cluster has no
    limit, or if the user has set the timeout."""
    monkeypatch.setattr(blocking.shared(), "_told", set())
    for broker, options in (
        (address, {}),
        (without_kip939, {"kafka.transaction.timeout.ms": "900"}),
        (without_kip939, {"kafka.transaction.two.phase.commit.enable": "false"}),
    ):
        query = Query(monkeypatch, broker, unique_topic, **options)
        query.commit(0, query.tasks(0, ["a"]))
        assert "aborts transactions" not in caplog.text
    query = Query(monkeypatch, without_kip939, unique_topic)
    for batch in range(3):
        query.commit(batch, query.tasks(batch, ["a"], ["b"]))
    (told,) = [each.getMessage() for each in caplog.records if "aborts" in each.getMessage()]
    assert "after 1 s (transaction.max.timeout.ms)" in told
    assert "transaction.two.phase.commit.enable=true" in told
    assert "unstable.api.versions.enable=true" in told


# --- batch writes ---------------------------------------------------------------------------------


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, query: Query) -> Job:
    return Job(monkeypatch, query.address, query.topic)


def test_s16_the_rows_of_a_job_are_visible_together_or_not_at_all(job: Job) -> None:
    failed = job.tasks(0, ["x"], ["y"])
    job.abort(0, [failed[0], None])
    del job._writer
    job.commit(0, job.tasks(0, ["a"], ["b"], []))
    assert job.visible(2) == ["a", "b"]
    assert not [name for name in job.open_transactions() if ".job." in name]


def _in_between(query: Query, first: Callable[[], None]) -> None:
    """Call `first` when the next task has its transactional id, and has not sent anything yet."""
    send_all = writer.send_all

    def later(*args: Any, **more: Any) -> Any:
        query._monkeypatch.setattr(transactional_writer, "send_all", send_all)
        first()
        return send_all(*args, **more)

    query._monkeypatch.setattr(transactional_writer, "send_all", later)


def _ongoing(address: str) -> set[str]:
    with sync.Admin(bootstrap_servers=address) as admin:
        return {each.transactional_id for each in admin.list_transactions(states=["Ongoing"])}


@pytest.mark.full
@pytest.mark.parametrize(
    "kind", budget.of_which(["stream", "job", "job with a commitId"], ["stream"])
)
def test_s14_s16_rows_after_the_drivers_abort_open_no_transaction(
    query: Query, job: Job, kind: str
) -> None:
    writing = query if kind == "stream" else job
    if kind == "job with a commitId":
        job.options = {**job.options, "commitId": job.query}
    before = _ongoing(query.address)
    # A stream's driver learns the id of the run from the message of a task. Without any message the
    # driver cannot abort, and the next run cleans up.
    known = writing.task(0, 1, "a")
    _in_between(writing, lambda: writing.abort(0, [known, None]))
    with pytest.raises(SinkError, match="rows could not be written"):
        writing.task(0, 0, "late")
    assert _ongoing(query.address) <= before


def _before_its_id(query: Query, first: Callable[[], None]) -> None:
    """Call `first` while the next task waits for the answer to InitProducerId."""
    producer = Brokers.producer

    async def later(self: Brokers, *args: Any, **more: Any) -> Any:
        query._monkeypatch.setattr(Brokers, "producer", producer)
        await asyncio.to_thread(first)
        return await producer(self, *args, **more)

    query._monkeypatch.setattr(Brokers, "producer", later)


KINDS = [
    (kind, end)
    for kind in ("stream", "stream without properties", "job", "job with a commitId")
    for end in ("commit", "abort")
]


@pytest.mark.parametrize(("kind", "end"), budget.of_which(KINDS, KINDS[::3]))
def test_s18_a_task_that_gets_its_id_after_the_end_of_its_batch_writes_nothing(
    query: Query, job: Job, kind: str, end: str
) -> None:
    writing = job if kind.startswith("job") else query
    writing.properties_there = kind != "stream without properties"
    if kind == "job with a commitId":
        job.options = {**job.options, "commitId": job.query}
    before = _ongoing(query.address)
    writer = writing.writer()
    messages = [writing.task(0, slot, row, writer=writer) for slot, row in enumerate("ab")]
    _before_its_id(writing, lambda: getattr(writing, end)(0, messages))
    with pytest.raises((TooLate, Superseded)):
        writing.task(0, 0, "a", writer=writer)
    assert _ongoing(query.address) <= before
    if end == "commit":
        assert writing.visible(2) == ["a", "b"]


def test_s15_ids_that_are_fenced_already_are_not_fenced_again(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    fence, fenced = Admin.fence_producer, list[str]()

    async def noted(admin: Admin, name: str) -> None:
        fenced.append(name)
        await fence(admin, name)

    monkeypatch.setattr(Admin, "fence_producer", noted)
    writer = query.writer()
    accepted = query.task(0, 0, "a", writer=writer)
    query.task(0, 0, "a", writer=writer)
    query.commit(0, [accepted])
    assert len(fenced) == 1
    again = query.restarted()
    again.commit(1, again.tasks(1, ["b"]))
    assert len(fenced) == 1


@pytest.mark.full
def test_s16_rows_after_the_jobs_commit_open_no_transaction(
    job: Job,
) -> None:
    before = _ongoing(job.address)
    _in_between(job, lambda: job.commit(0, job.tasks(0, ["a"])))
    with pytest.raises(SinkError, match="rows could not be written"):
        job.task(0, 0, "a")
    assert _ongoing(job.address) <= before
    assert job.visible(1) == ["a"]


@pytest.mark.full
def test_s16_an_abort_of_a_partly_committed_job_commits_it(job: Job) -> None:
    messages = job.tasks(0, ["a"], ["b"])
    run = messages[0].writer.run
    job.query = "job"

    def end_one() -> Any:
        yield protocol.End(run, (messages[0].outcome.participant,), True)

    job.drive(end_one(), 0)
    job.abort(0, messages)
    assert job.visible(2) == ["a", "b"]


# --- the log --------------------------------------------------------------------------------------


def test_s05_the_decision_log_is_read_from_its_end(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of other queries are ignored, and only the end of a long log is read."""
    query.commit(0, query.tasks(0, ["a"]))
    others = [query.restarted() for _ in range(3)]
    for other in others:
        other.query = str(uuid.uuid4())
        for batch in range(3):
            other.commit(batch, other.tasks(batch, ["x"]))
    query.commit(1, query.tasks(1, ["b"]))
    expected = query.state()
    for window, factor in ((1, 2), (2, 16), (1000, 2)):
        monkeypatch.setattr(decision_log, "FIRST_WINDOW", window)
        monkeypatch.setattr(decision_log, "WINDOW_FACTOR", factor)
        here = blocking.shared()
        for settings in list(here.brokers._clients):
            here.brokers.discard(here.thread, settings)
        assert query.state() == expected


def test_queries_with_a_common_name_suffix_have_separate_decisions(query: Query) -> None:
    """The keys of the decision log end with the commitId. A commitId may contain any characters, so
    that one key may be the end of another."""
    query.query = f"other/{query.query}"
    query.commit(0, query.tasks(0, ["a"]))
    short = query.restarted()
    short.query = query.query.partition("/")[2]
    assert short.state() == ledger.LedgerState()
    short.commit(0, short.tasks(0, ["b"]))
    assert query.visible(2) == ["a", "b"]


@pytest.mark.parametrize("partitions", [1, 2])
def test_an_unsuitable_decision_log_is_refused(
    query: Query, unique_topic: str, partitions: int
) -> None:
    log = f"{unique_topic}-log"
    with sync.Admin(bootstrap_servers=query.address) as admin:
        admin.create_topics(NewTopic(log, partitions=partitions))
        if partitions == 1:
            change = [ConfigChange("cleanup.policy", "delete")]
            admin.alter_configs({ConfigResource.topic(log): change})
    query.options = {**query.options, "commitLogTopic": log}
    told = "has 2 partitions and must have one" if partitions == 2 else "cleanup.policy=delete"
    with pytest.raises(SinkError, match=told):
        query.task(0, 0, "a")


def found(*records: tuple[int, int, str]) -> tuple[int, str]:
    """The (offset, holder) of the newest valid record. Each record is given as (offset, offset of
    its predecessor, holder)."""
    entries = [
        ledger.LedgerEntry(
            offset,
            f"{offset}/q",
            ledger.LedgerRecord(
                ledger.LedgerRecordType.CLAIM, after, ledger.LedgerState(holder=holder)
            ),
        )
        for offset, after, holder in records
    ]
    newest = ledger.newest(entries)
    assert set(newest.needless) == {entry.key for entry in entries} - {newest.key}
    return newest.offset, newest.state.holder


@pytest.mark.full
def test_s04_s05_the_first_record_after_the_same_predecessor_counts() -> None:
    assert found() == (-1, "")
    assert found((3, -1, "a"), (4, -1, "b")) == (3, "a")
    assert found((3, -1, "a"), (4, -1, "b"), (9, 3, "c"), (12, 3, "d"), (13, -1, "e")) == (9, "c")
    # Compaction may have removed older records.
    assert found((4, -1, "b"), (9, 3, "c"), (12, 3, "d")) == (9, "c")
    assert found((9, 3, "c")) == (9, "c")


def test_s02_a_transactional_id_names_its_query_run_and_task() -> None:
    for query in ("q", "a.b", "100%", "%2E.", "commit:x/1"):
        writer = Writer(query, "run.1")
        name = writer.transactional_id("w-0")
        assert identity.split_id(query, name) == ("run.1", "w-0")
        assert identity.split_id("other", name) is None
        assert len(name.split(".")) == 4
    assert identity.split_id("a", identity.transactional_id("a.b", "r", "n")) is None


def test_s13_a_name_is_reused_only_after_the_end_of_its_batch() -> None:
    names = identity.TransactionNames("w")
    assert [names.take(5, 4), names.take(5, 4)] == ["w-0", "w-1"], "another task of the batch"
    assert names.take(6, 4) == "w-2", "5 is not known to be over"
    assert names.take(6, 5) == "w-0"
    assert names.take(5, 5) == "w-3", "a late attempt"


@pytest.mark.full
def test_s15_transactions_of_newer_runs_are_not_aborted(query: Query) -> None:
    """A zombie that cleans up must not abort the transactions of a newer run."""
    query.commit(0, query.tasks(0, ["a"]))
    newer = query.restarted()
    messages = newer.tasks(1, ["b"])
    state = ledger.LedgerState(holder=query.run, batch=0, run=query.run, rows=1)
    query.drive(protocol._clean_up(query.terms(0), ledger.NewestDecision(0, "", state)), 0)
    newer.commit(1, messages)
    assert query.visible(2) == ["a", "b"]


def test_records_of_the_decision_log_survive_a_round_trip() -> None:
    participant = ledger.Participant("w-0", 7, 3, 2, 5, 100)
    state = ledger.LedgerState("r2", ("r0", "r1"), 4, "r1", 100, False, (participant,), "c0ffee")
    record = ledger.LedgerRecord(ledger.LedgerRecordType.COMMIT, 17, state)
    assert ledger.decode(ledger.encode(record)) == record
    earlier = ledger.encode(record).replace(b',"targets":"c0ffee"', b"")
    assert ledger.decode(earlier).state == replace(state, targets=None)
    with pytest.raises(SinkError, match="written by a newer odradek"):
        ledger.decode(ledger.encode(record).replace(b'"v":1', b'"v":2'))
    for wrong in (b"", b"[]", b"{}", b'{"v":1}', b"\xff"):
        with pytest.raises(SinkError, match="nobody else may write to that topic"):
            ledger.decode(wrong, where="record 7")
