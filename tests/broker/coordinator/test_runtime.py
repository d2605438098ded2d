"""The runtime of a coordinator's core: append, replay, release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator_world import ListPartition
from odradek_broker.coordinator.runtime import (
    APPEND_TIMEOUT_MS,
    CoreOutcome,
    Instant,
    Reply,
    Runtime,
    RuntimeState,
    RuntimeStep,
)
from odradek_broker.coordinator.timers import Timers
from odradek_broker.deferred import Deferred
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import DecodeError


class CounterCore:
    """A core whose durable state is a dictionary; `parked` has requests that wait."""

    def __init__(self) -> None:
        self.timers: Timers[str] = Timers()
        self.held: dict[bytes, bytes] = {}
        self.loaded_at: Instant | None = None
        self.parked: list[Deferred[str]] = []
        self.settled: list[ErrorCode] = []

    def replay(self, key: bytes, value: bytes | None) -> None:
        if key == b"bad":
            raise DecodeError("unreadable")
        if value is None:
            self.held.pop(key, None)
        else:
            self.held[key] = value

    def loaded(self, now: Instant) -> CoreOutcome:
        self.loaded_at = now
        return CoreOutcome()

    def put(self, key: bytes, value: bytes, deferred: Deferred[str]) -> CoreOutcome:
        def settled(error: ErrorCode, then: Instant) -> CoreOutcome:
            self.settled.append(error)
            return CoreOutcome()

        return CoreOutcome([(key, value)], [_reply(deferred, "put")], settled)

    def get(self, key: bytes, deferred: Deferred[str]) -> CoreOutcome:
        return CoreOutcome(replies=[_reply(deferred, self.held.get(key, b"").decode())])

    def on_timer(self, name: str, now: Instant) -> CoreOutcome:
        return CoreOutcome([(name.encode(), b"%d" % now.monotonic_ms)])

    def closed(self, error: ErrorCode) -> CoreOutcome:
        parked, self.parked = self.parked, []
        return CoreOutcome(replies=[_reply(deferred, error.name) for deferred in parked])


def _reply(deferred: Deferred[str], text: str) -> Reply[str]:
    return Reply(deferred, text, lambda error: error.name)


class World:
    def __init__(self) -> None:
        self.now_ms = 100
        self.partition = ListPartition()
        self.core = CounterCore()
        self.runtime = Runtime(self.core, self.partition, self.now)

    def now(self) -> Instant:
        return Instant(self.now_ms, 1_000_000 + self.now_ms)

    def put(self, key: bytes, value: bytes) -> Deferred[str]:
        deferred: Deferred[str] = Deferred()
        self.runtime.run(lambda _: self.core.put(key, value, deferred))
        return deferred

    def get(self, key: bytes) -> Deferred[str]:
        deferred: Deferred[str] = Deferred()
        self.runtime.run(lambda _: self.core.get(key, deferred))
        return deferred


@pytest.fixture
def world() -> World:
    made = World()
    assert made.runtime.load()
    return made


def test_d4_records_are_replayed_at_append_and_answered_when_durable(world: World) -> None:
    world.partition.hold = True
    answer = world.put(b"k", b"v")
    assert world.core.held == {b"k": b"v"}
    assert not answer.done
    assert world.core.settled == []
    world.partition.flush()
    assert answer.result() == "put"
    assert world.core.settled == [ErrorCode.NONE]


def test_d4_a_read_waits_until_its_result_is_durable(world: World) -> None:
    world.partition.hold = True
    world.put(b"k", b"v")
    read = world.get(b"k")
    assert not read.done
    world.partition.flush()
    assert read.result() == "v"


def test_d4_records_of_a_decision_are_appended_as_one_batch(world: World) -> None:
    deferred: Deferred[str] = Deferred()
    world.runtime.run(
        lambda _: CoreOutcome([(b"a", b"1"), (b"b", b"2")], [_reply(deferred, "both")])
    )
    assert world.partition.records == [(b"a", b"1"), (b"b", b"2")]
    assert world.partition.append_times_ms == [1_000_100]
    assert deferred.result() == "both"


def test_g91_a_refused_append_changes_nothing_and_gets_the_mapped_error(
    world: World,
) -> None:
    world.partition.refuse = ErrorCode.MESSAGE_TOO_LARGE
    assert world.put(b"k", b"v").result() == "UNKNOWN_SERVER_ERROR"
    assert world.core.held == {}
    assert world.core.settled == [ErrorCode.UNKNOWN_SERVER_ERROR]
    world.partition.refuse = ErrorCode.NONE
    assert world.put(b"k", b"v").result() == "put"


@pytest.mark.parametrize(
    ("storage", "client"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_g91_append_errors_are_mapped(world: World, storage: ErrorCode, client: ErrorCode) -> None:
    world.partition.refuse = storage
    assert world.put(b"k", b"v").result() == client.name


def test_d5_a_failed_flush_stops_the_runtime_and_fails_waiting_answers(world: World) -> None:
    world.partition.hold = True
    parked: Deferred[str] = Deferred()
    world.core.parked.append(parked)
    written, read = world.put(b"k", b"v"), world.get(b"k")
    world.partition.flush(ErrorCode.KAFKA_STORAGE_ERROR)
    assert written.result() == read.result() == parked.result() == "NOT_COORDINATOR"
    assert world.runtime.state is RuntimeState.FAILED
    assert world.runtime.error is ErrorCode.NOT_COORDINATOR
    with pytest.raises(RuntimeStep):
        world.get(b"k")


def test_o03_an_answer_waits_at_most_five_seconds_for_the_disk(world: World) -> None:
    world.partition.hold = True
    answer = world.put(b"k", b"v")
    assert world.runtime.next_deadline_ms() == 100 + APPEND_TIMEOUT_MS
    world.runtime.run_due(Instant(100 + APPEND_TIMEOUT_MS - 1, 0))
    assert not answer.done
    assert world.runtime.waiting_answers == 1
    world.runtime.run_due(Instant(100 + APPEND_TIMEOUT_MS, 0))
    assert answer.result() == "COORDINATOR_NOT_AVAILABLE"
    assert world.runtime.waiting_answers == 0
    world.partition.flush()
    assert world.core.settled == [ErrorCode.NONE]
    assert world.runtime.state is RuntimeState.ACTIVE


def test_timers_of_the_core_may_append_records(world: World) -> None:
    world.core.timers.set("tick", 150)
    assert world.runtime.next_deadline_ms() == 150
    world.runtime.run_due(Instant(149, 0))
    assert world.core.held == {}
    world.runtime.run_due(Instant(150, 0))
    assert world.core.held == {b"tick": b"150"}
    assert world.runtime.next_deadline_ms() is None


def test_g90_requests_are_refused_while_the_log_is_replayed() -> None:
    world = World()
    world.partition.records = [(b"a", b"1"), (None, b"skipped"), (b"b", b"2"), (b"a", None)]
    assert world.runtime.error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not world.runtime.load(records_max=2)
    assert world.core.loaded_at is None
    with pytest.raises(RuntimeStep):
        world.get(b"a")
    assert world.runtime.load(records_max=10)
    assert world.core.held == {b"b": b"2"}
    assert world.core.loaded_at == world.now()
    assert world.runtime.error.value == 0
    with pytest.raises(RuntimeStep):
        world.runtime.load()


def test_an_unreadable_record_stops_the_load() -> None:
    world = World()
    world.partition.records = [(b"a", b"1"), (b"bad", b"")]
    with pytest.raises(DecodeError):
        world.runtime.load()
    assert world.runtime.state is RuntimeState.FAILED
    assert world.runtime.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_disk_error_stops_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator fails as a whole: no later request finds a part of the state."""
    world = World()

    def half() -> Iterator[tuple[int, bytes | None, bytes | None]]:
        yield 0, b"a", b"1"
        raise StorageError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

    monkeypatch.setattr(world.partition, "read_all", half)
    with pytest.raises(StorageError):
        world.runtime.load()
    assert world.runtime.state is RuntimeState.FAILED
    assert world.runtime.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_n15_closing_the_runtime_answers_parked_requests(world: World) -> None:
    parked: Deferred[str] = Deferred()
    world.core.parked.append(parked)
    world.runtime.close()
    assert parked.result() == "NOT_COORDINATOR"
    assert world.runtime.error is ErrorCode.NOT_COORDINATOR
    world.runtime.close()


def test_a_callback_of_an_answer_may_send_the_next_request(world: World) -> None:
    """A connection may handle its next pipelined request inside the callback."""
    world.partition.hold = True
    seen: list[Any] = []

    def next_request(_: str) -> None:
        world.partition.hold = False
        world.put(b"k", b"2").then(seen.append)

    world.put(b"k", b"1").then(next_request)
    world.partition.flush()
    assert seen == ["put"]
    assert world.core.held == {b"k": b"2"}
