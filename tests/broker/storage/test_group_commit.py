"""Group commit with a fake log that only counts (D5)."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from odradek_broker.storage.group_commit import GroupCommit

DEADLINE_S = 20


class Ticket:
    def __init__(self, log: FakeLog, end: int) -> None:
        self.log = log
        self.end = end
        self.sync_thread: int | None = None

    def sync(self) -> None:
        self.sync_thread = threading.get_ident()
        self.log.sync(self)


class FakeLog:
    """A log whose `appended` and `durable` are counts; `gate` delays syncs until it is set."""

    def __init__(self) -> None:
        self.appended = 0
        self.durable = 0
        self.offline = False
        self.tickets: list[Ticket] = []
        self.errors: list[OSError] = []
        self.syncing = 0
        self.syncing_most = 0
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()
        self.failure: BaseException | None = None
        self.loop_thread = threading.get_ident()
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def next_journal(self) -> None: ...

    def begin_journaled(self, journal: object) -> None: ...

    def begin_flush(self) -> Ticket | None:
        assert threading.get_ident() == self.loop_thread
        if self.offline or self.durable == self.appended:
            return None
        ticket = Ticket(self, self.appended)
        self.tickets.append(ticket)
        return ticket

    def sync(self, ticket: Ticket) -> None:
        self.syncing += 1
        self.syncing_most = max(self.syncing_most, self.syncing)
        self.entered.release()
        assert self.gate.wait(DEADLINE_S)
        self.syncing -= 1
        if self.failure is not None:
            raise self.failure

    def finish_flush(self, ticket: Any, error: OSError | None) -> None:
        assert threading.get_ident() == self.loop_thread
        if error is not None:
            self.errors.append(error)
            self.offline = True
        else:
            self.durable = ticket.end
        for ready, waiter in self._waiters:
            if ready() and not waiter.done():
                waiter.set_result(None)

    async def until(self, ready: Callable[[], bool]) -> None:
        if not ready():
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((ready, waiter))
            await asyncio.wait_for(waiter, DEADLINE_S)

    async def sync_entered(self) -> None:
        entered = await asyncio.to_thread(self.entered.acquire, True, DEADLINE_S)
        assert entered


@pytest.fixture(params=["threads", "inline"])
async def commit(request: pytest.FixtureRequest) -> AsyncIterator[GroupCommit]:
    workers = 4 if request.param == "threads" else 0
    commit = GroupCommit(asyncio.get_running_loop(), workers)
    yield commit
    await asyncio.wait_for(commit.drain(), DEADLINE_S)
    commit.close()


@pytest.fixture
async def threaded() -> AsyncIterator[GroupCommit]:
    commit = GroupCommit(asyncio.get_running_loop())
    yield commit
    await asyncio.wait_for(commit.drain(), DEADLINE_S)
    commit.close()


def append(commit: GroupCommit, log: FakeLog, count: int = 1) -> None:
    for _ in range(count):
        log.appended += 1
        commit.request(log)


async def test_d5_an_append_becomes_durable(commit: GroupCommit) -> None:
    log = FakeLog()
    append(commit, log)
    assert log.durable == 0
    await log.until(lambda: log.durable == 1)
    assert [ticket.end for ticket in log.tickets] == [1]


async def test_d5_a_sync_runs_outside_of_the_thread_of_the_loop(threaded: GroupCommit) -> None:
    log = FakeLog()
    append(threaded, log)
    await log.until(lambda: log.durable == 1)
    assert log.tickets[0].sync_thread not in (None, threading.get_ident())


async def test_appends_of_one_round_share_a_flush(commit: GroupCommit) -> None:
    log = FakeLog()
    append(commit, log, 100)
    await log.until(lambda: log.durable == 100)
    assert [ticket.end for ticket in log.tickets] == [100]


async def test_appends_during_a_flush_share_the_next_one(threaded: GroupCommit) -> None:
    log = FakeLog()
    log.gate.clear()
    append(threaded, log)
    await log.sync_entered()
    append(threaded, log, 50)
    await asyncio.sleep(0)
    assert [ticket.end for ticket in log.tickets] == [1]  # one sync runs, the next is requested
    log.gate.set()
    await log.until(lambda: log.durable == 51)
    assert [ticket.end for ticket in log.tickets] == [1, 51]
    assert log.syncing_most == 1


async def test_a_log_without_new_bytes_is_not_synced(commit: GroupCommit) -> None:
    log = FakeLog()
    commit.request(log)
    await asyncio.wait_for(commit.drain(), DEADLINE_S)
    assert log.tickets == []


async def test_logs_do_not_wait_for_each_other(threaded: GroupCommit) -> None:
    stuck, quick = FakeLog(), FakeLog()
    stuck.gate.clear()
    append(threaded, stuck)
    append(threaded, quick)
    await quick.until(lambda: quick.durable == 1)
    assert stuck.durable == 0
    stuck.gate.set()
    await stuck.until(lambda: stuck.durable == 1)


async def test_more_logs_than_workers_are_all_synced() -> None:
    commit = GroupCommit(asyncio.get_running_loop(), 2)
    logs = [FakeLog() for _ in range(25)]
    gate = logs[0].gate
    for log in logs:
        log.gate = gate
    gate.clear()
    for log in logs:
        append(commit, log, 2)
    await logs[0].sync_entered()
    await logs[13].sync_entered()  # the first log of the second worker
    assert sum(log.syncing for log in logs) == 2
    gate.set()
    await asyncio.wait_for(commit.drain(), DEADLINE_S)
    assert all(log.durable == 2 and len(log.tickets) == 1 for log in logs)
    commit.close()


async def test_logs_above_the_limit_of_files_wait_their_turn(commit: GroupCommit) -> None:
    """Each flush keeps a file open until it has ended."""
    commit.files_max = 3
    begun = most = 0

    class Counted(FakeLog):
        def begin_flush(self) -> Ticket | None:
            nonlocal begun, most
            ticket = super().begin_flush()
            begun += ticket is not None
            most = max(most, begun)
            return ticket

        def finish_flush(self, ticket: Any, error: OSError | None) -> None:
            nonlocal begun
            begun -= 1
            super().finish_flush(ticket, error)

    logs = [Counted() for _ in range(40)]
    for number, log in enumerate(logs):
        append(commit, log, 2)
        log.offline = number % 5 == 1
        log.failure = OSError(errno.EIO, "I/O error") if number % 5 == 2 else None
    await asyncio.wait_for(commit.drain(), DEADLINE_S)
    assert most == 3
    assert all(len(log.tickets) == (number % 5 != 1) for number, log in enumerate(logs))
    assert all(log.durable == 2 for number, log in enumerate(logs) if number % 5 not in (1, 2))
    for log in logs:
        log.failure = None
        append(commit, log)
        append(commit, log)
    await asyncio.wait_for(commit.drain(), DEADLINE_S)
    assert most == 3
    assert all(log.durable == 4 for log in logs if not log.offline)


async def test_logs_requested_together_are_finished_in_few_callbacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One callback to the loop for each log would take longer than the disk."""
    loop = asyncio.get_running_loop()
    commit = GroupCommit(loop, 1)
    wake_ups = 0
    wake = loop.call_soon_threadsafe

    def counting(*arguments: Any) -> asyncio.Handle:
        nonlocal wake_ups
        wake_ups += arguments[0] == commit._finish
        return wake(*arguments)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
    logs = [FakeLog() for _ in range(64)]
    for log in logs:
        append(commit, log)
    await asyncio.wait_for(commit.drain(), DEADLINE_S)
    assert [log.durable for log in logs] == [1] * 64
    assert wake_ups == 4
    commit.close()


async def test_d5_a_failed_sync_affects_only_its_log(commit: GroupCommit) -> None:
    logs = [FakeLog() for _ in range(20)]
    logs[3].failure = OSError(errno.EIO, "the disk is gone")
    for log in logs:
        append(commit, log)
    await asyncio.wait_for(commit.drain(), DEADLINE_S)
    assert [log.offline for log in logs] == [number == 3 for number in range(20)]
    assert [log.durable for log in logs] == [int(number != 3) for number in range(20)]


async def test_d5_a_failed_sync_is_passed_on_and_never_repeated(threaded: GroupCommit) -> None:
    log = FakeLog()
    log.failure = OSError(errno.EIO, "the disk is gone")
    log.gate.clear()
    append(threaded, log)
    await log.sync_entered()
    append(threaded, log)
    log.gate.set()
    await log.until(lambda: log.offline)
    await asyncio.wait_for(threaded.drain(), DEADLINE_S)
    assert log.errors == [log.failure]
    assert len(log.tickets) == 1
    assert log.durable == 0


async def test_too_many_open_files_are_no_failed_sync(
    threaded: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was synced, so nothing can have been lost: the sync is retried."""
    log = FakeLog()
    log.failure = OSError(errno.EMFILE, "too many open files")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            log.failure = None

    monkeypatch.setattr("odradek_broker.storage.group_commit.time.sleep", pause)
    append(threaded, log)
    await asyncio.wait_for(threaded.drain(), DEADLINE_S)
    assert (log.durable, log.errors, len(log.tickets)) == (1, [], 1)
    assert len(pauses) == 3
    log.failure = OSError(errno.EMFILE, "too many open files")
    pauses.extend([0.0] * 3)
    append(threaded, log)
    await asyncio.wait_for(threaded.drain(), DEADLINE_S)
    assert log.errors == [log.failure], "but not for ever"


async def test_d5_requests_after_a_failed_sync_are_dropped(
    threaded: GroupCommit,
) -> None:
    log = FakeLog()
    log.failure = OSError(errno.EIO, "the disk is gone")
    log.gate.clear()
    append(threaded, log)
    await log.sync_entered()
    append(threaded, log)
    log.gate.set()
    await log.until(lambda: bool(log.errors))
    log.offline = False
    await asyncio.wait_for(threaded.drain(), DEADLINE_S)
    assert len(log.tickets) == 1


async def test_a_bug_in_sync_counts_as_a_failed_sync(commit: GroupCommit) -> None:
    log = FakeLog()
    log.failure = ValueError("a bug")
    append(commit, log)
    await log.until(lambda: log.offline)
    assert log.errors[0].errno == errno.EIO
    assert "a bug" in str(log.errors[0])
    assert log.errors[0].__cause__ is log.failure
    other = FakeLog()
    append(commit, other)
    await other.until(lambda: other.durable == 1)


@pytest.mark.parametrize("method", ["begin_flush", "finish_flush"])
async def test_a_bug_in_a_log_is_reported_and_affects_no_other_log(
    commit: GroupCommit, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

    def broken(*_: object) -> None:
        raise ValueError("a bug")

    log, other = FakeLog(), FakeLog()
    monkeypatch.setattr(log, method, broken)
    append(commit, log)
    append(commit, other)
    await other.until(lambda: other.durable == 1)
    await asyncio.wait_for(commit.drain(), DEADLINE_S)
    assert [str(report["exception"]) for report in reports] == ["a bug"]


async def test_drain_waits_for_everything(threaded: GroupCommit) -> None:
    log = FakeLog()
    log.gate.clear()
    append(threaded, log)
    await log.sync_entered()
    append(threaded, log)
    draining = asyncio.gather(threaded.drain(), threaded.drain())
    await asyncio.sleep(0)
    assert not draining.done()
    log.gate.set()
    await asyncio.wait_for(draining, DEADLINE_S)
    assert log.durable == 2
    await threaded.drain()  # nothing to wait for


async def test_close_ends_threads_and_refuses_requests() -> None:
    commit = GroupCommit(asyncio.get_running_loop())
    log = FakeLog()
    append(commit, log)
    await log.until(lambda: log.durable == 1)
    commit.close()
    commit.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("odradek-flush")]
    with pytest.raises(RuntimeError, match="closed"):
        commit.request(log)


async def test_threads_start_when_needed() -> None:
    commit = GroupCommit(asyncio.get_running_loop(), 4)
    assert not [t for t in threading.enumerate() if t.name.startswith("odradek-flush")]
    log = FakeLog()
    for number in range(1, 6):
        append(commit, log)
        await log.until(lambda number=number: log.durable == number)  # type: ignore[misc]
    assert len([t for t in threading.enumerate() if t.name.startswith("odradek-flush")]) == 1
    commit.close()


def test_a_sync_that_outlives_the_loop_ends_quietly() -> None:
    loop = asyncio.new_event_loop()
    log = FakeLog()

    async def begin() -> GroupCommit:
        commit = GroupCommit(asyncio.get_running_loop())
        log.gate.clear()
        append(commit, log)
        await log.sync_entered()
        return commit

    commit = loop.run_until_complete(begin())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    log.gate.set()
    commit.close()
    assert log.durable == 0


async def test_durations_of_syncs_are_measured() -> None:
    seen: list[float] = []
    ticks = iter([10.0, 12.5, 20.0, 20.25])
    commit = GroupCommit(
        asyncio.get_running_loop(), 1, on_synced=seen.append, timer=lambda: next(ticks)
    )
    log = FakeLog()
    for number in (1, 2):
        append(commit, log)
        await log.until(lambda number=number: log.durable == number)  # type: ignore[misc]
    assert seen == [2.5, 0.25]
    commit.close()


async def test_a_busy_log_flushes_in_few_rounds(commit: GroupCommit) -> None:
    log = FakeLog()
    for _ in range(500):
        append(commit, log)
        await asyncio.sleep(0)
    await log.until(lambda: log.durable == 500)
    ends = [ticket.end for ticket in log.tickets]
    assert ends == sorted(set(ends))
    assert log.syncing_most == 1


def test_negative_workers_are_refused() -> None:
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(ValueError, match="negative"):
            GroupCommit(loop, -1)
    finally:
        loop.close()
