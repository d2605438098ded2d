"""The runtime of a core whose decisions may pause: one decision at a time, whatever happens in its
pauses."""

from __future__ import annotations

from functools import partial

import pytest

from coordinator_world import ListPartition
from node_world import SoonScheduler
from odradek_broker.coordinator.runtime import CoreOutcome, Instant, Record, Reply, RuntimeState
from odradek_broker.coordinator.sliced_runtime import SlicedTransactionalRuntime
from odradek_broker.coordinator.timers import Timers
from odradek_broker.deferred import Deferred
from odradek_broker.slices import Slices, pause
from odradek_protocol.errors import ErrorCode

E = ErrorCode


class Words:
    """A core whose state is the list of the words in its records."""

    def __init__(self) -> None:
        self.timers: Timers[str] = Timers()
        self.words: list[str] = []
        self.markers: list[int] = []
        self.parked: list[Deferred[str]] = []

    def replay(self, key: bytes, value: bytes | None) -> None:
        self.words.append(key.decode())

    async def replay_in_pieces(self, key: bytes, value: bytes) -> None:
        await pause()
        self.replay(key, value)

    def replay_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        raise AssertionError

    def replay_marker(self, producer_id: int, commit: bool) -> None:
        self.markers.append(len(self.words))

    def loaded(self, now: Instant) -> CoreOutcome:
        return CoreOutcome()

    def on_timer(self, name: str, now: Instant) -> CoreOutcome:
        return CoreOutcome(records=[(name.encode(), b"")])

    def closed(self, error: ErrorCode) -> CoreOutcome:
        parked, self.parked = self.parked, []
        return CoreOutcome(replies=[Reply(each, "", lambda error: error.name) for each in parked])


class World:
    """A runtime whose decisions are interrupted at every pause."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("TURN_STEPS", "SLICE_STEPS", "LATE_STEPS"):
            monkeypatch.setattr(f"odradek_broker.slices.{name}", 1)
        self.turns = SoonScheduler()
        self.partition = ListPartition()
        self.now_ms = 0
        self.core = Words()
        self.runtime = SlicedTransactionalRuntime(
            Slices(lambda: 0, self.turns),
            self.core,
            self.partition,
            lambda: Instant(self.now_ms, self.now_ms),
        )
        self.runtime.load()

    def ask(self, *words: str, pauses: int = 0, parks: bool = False) -> Deferred[str]:
        """Ask for a decision that writes words after some pauses."""
        deferred: Deferred[str] = Deferred()
        records: list[Record] = [(word.encode(), b"") for word in words]

        async def decide() -> CoreOutcome:
            for _ in range(pauses):
                await pause()
            if parks:
                self.core.parked.append(deferred)
                return CoreOutcome(records=records)
            seen = ",".join(self.core.words)
            return CoreOutcome(records=records, replies=[Reply(deferred, seen, lambda e: e.name)])

        self.runtime.run(lambda _: decide(), lambda error: deferred.resolve(error.name))
        return deferred


def test_n57_a_load_leaves_turns_to_others_within_a_large_record(world: World) -> None:
    world.partition.records = [(b"large", bytes(5_000)), (b"small", b"")]
    runtime = SlicedTransactionalRuntime(
        Slices(lambda: 0, world.turns), world.core, world.partition, lambda: Instant(0, 0)
    )
    assert not runtime.load(10) and not world.core.words
    while not runtime.load(10):
        pass
    assert world.core.words == ["large", "small"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_g02_what_is_asked_for_in_a_pause_comes_after_the_decision(world: World) -> None:
    long = world.ask("a", "b", pauses=3)
    short = world.ask("c")
    world.runtime.appended(partial(Words.replay_marker, producer_id=1, commit=True), long_done())
    world.now_ms = 5
    world.core.timers.set("late", 5)
    world.runtime.run_due(Instant(5, 5))
    assert not long.done and not short.done and not world.core.words
    assert world.runtime.next_deadline_ms() is None, "the decision comes first"
    world.turns.run()
    assert (long.result(), short.result()) == ("", "a,b")
    assert world.core.markers == [3] and world.runtime.next_deadline_ms() == 5
    world.runtime.run_due(Instant(5, 5))
    world.turns.run()
    assert world.core.words == ["a", "b", "c", "late"]


def long_done() -> Deferred[ErrorCode]:
    return Deferred.of(E.NONE)


@pytest.mark.parametrize("parks", [False, True])
def test_n15_a_runtime_that_stops_in_a_pause_answers_everybody(world: World, parks: bool) -> None:
    long, waits = world.ask("a", pauses=3, parks=parks), world.ask("b")
    world.runtime.close()
    assert waits.result() == "NOT_COORDINATOR" and not long.done
    world.turns.run()
    assert long.done and not world.core.words and not world.partition.records
    assert world.runtime.state is RuntimeState.CLOSED


def test_a_decision_that_fails_after_a_pause_does_not_stop_others(world: World) -> None:
    refused: list[ErrorCode] = []

    async def fail() -> CoreOutcome:
        await pause()
        raise ValueError("a bug")

    world.runtime.run(lambda _: fail(), refused.append)
    other = world.ask("a")
    world.turns.run()
    assert refused == [E.UNKNOWN_SERVER_ERROR] and not other.done
    assert world.runtime.next_deadline_ms() == 0
    world.runtime.run_due(Instant(0, 0))
    world.turns.run()
    assert other.result() == "" and world.core.words == ["a"]


def test_d4_answers_of_a_decision_in_pieces_wait_for_the_disk(world: World) -> None:
    world.partition.hold = True
    words = [f"{at:03}" for at in range(100)]
    answer, later = world.ask(*words), world.ask()
    world.turns.run()
    assert world.core.words == words and not answer.done and not later.done
    world.partition.flush()
    world.turns.run()
    assert answer.result() == "" and later.result() == ",".join(words)


def test_d4_answers_wait_for_what_was_appended_after_the_records_of_others(world: World) -> None:
    world.partition.hold = True
    world.ask("a", pauses=3)
    world.runtime.appended(partial(Words.replay_marker, producer_id=1, commit=True), long_done())
    seen = world.ask()
    world.turns.run()
    assert world.core.markers == [1] and not seen.done
    world.partition.flush()
    world.turns.run()
    assert seen.result() == "a"
