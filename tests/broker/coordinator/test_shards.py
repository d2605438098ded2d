"""The common part of coordinators: a core for each partition, and the actions that follow each
decision of a core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator_world import ListPartition
from node_world import SoonScheduler
from odradek_broker.coordinator.runtime import (
    LOAD_SLICE_RECORDS,
    CoreOutcome,
    Instant,
    Reply,
    Runtime,
)
from odradek_broker.coordinator.shards import DEADLINES_AT_ONCE, Shards, partition_for
from odradek_broker.coordinator.timers import Timers
from odradek_broker.deferred import Deferred
from odradek_broker.slices import Slices
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import DecodeError
from odradek_testkit.simulation.clock import SimulatedClock

E = ErrorCode
TOPIC = "__words"


class Words:
    """A core that stores words. Each word sets a deadline, and asks for an action."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.timers: Timers[str] = Timers()
        self.words: list[str] = []
        self.expired: list[str] = []
        self.asked_for: list[str] = []

    def replay(self, key: bytes, value: bytes | None) -> None:
        if key == b"unreadable":
            raise DecodeError("no word")
        self.words.append(key.decode())

    def loaded(self, now: Instant) -> CoreOutcome:
        return CoreOutcome()

    def take(self, word: str, deferred: Deferred[str], now: Instant) -> CoreOutcome:
        def settled(error: ErrorCode, then: Instant) -> CoreOutcome:
            self.asked_for.append(f"durable {word}")
            self.timers.set(f"late {word}", then.monotonic_ms + 50)
            return CoreOutcome()

        self.asked_for.append(word)
        self.timers.set(word, now.monotonic_ms + 100)
        reply = Reply(deferred, word, lambda error: error.name)
        return CoreOutcome([(word.encode(), None)], [reply], settled)

    def on_timer(self, name: str, now: Instant) -> CoreOutcome:
        self.expired.append(name)
        self.asked_for.append(f"expired {name}")
        return CoreOutcome()

    def closed(self, error: ErrorCode) -> CoreOutcome:
        return CoreOutcome()


class Node:
    """Two partitions, and the single timer of the shards."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(1_000)
        self.count = 2
        self.partitions: dict[int, ListPartition] = {0: ListPartition(), 1: ListPartition()}
        self.epoch = 0
        self.timer: tuple[float, Callable[[], None]] | None = None
        self.carried_out: list[str] = []
        self.shards = self.new_shards()

    def new_shards(self, **how: Any) -> Shards[Words]:
        return Shards(
            TOPIC,
            "words",
            Words,
            metadata=self,
            internal_partition=self.internal_partition,
            clock=self.clock,
            scheduler=self,
            carry_out=self.carry_out,
            **how,
        )

    def carry_out(self, runtime: Runtime[Words]) -> None:
        asked_for, runtime.core.asked_for = runtime.core.asked_for, []
        self.carried_out += asked_for

    def partition_count(self, name: str) -> int:
        return self.count if name == TOPIC else 0

    def internal_partition(self, topic: str, index: int) -> ListPartition | None:
        return self.partitions.get(index)

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Node:
        self.timer = (self.clock.monotonic_ms() + delay_ms, callback)
        return self

    def cancel(self) -> None:
        self.timer = None

    @property
    def due_ms(self) -> float | None:
        return None if self.timer is None else self.timer[0]

    def fire(self) -> None:
        assert self.timer is not None
        (at_ms, callback), self.timer = self.timer, None
        self.clock.now_ms = int(at_ms)
        callback()

    def take(self, word: str) -> Deferred[str]:
        return self.shards.ask(
            word,
            lambda core, deferred, now: core.take(word, deferred, now),
            lambda error: error.name,
        )

    def read(self, key: str) -> str | None:
        answer = self.shards.read(key, lambda core: ",".join(core.words), lambda error: error.name)
        return answer.result() if answer.done else None


@pytest.fixture
def node() -> Node:
    made = Node()
    made.shards.load()
    return made


def test_a_key_belongs_to_one_partition(node: Node) -> None:
    for word in ("a", "b", "c"):
        assert node.take(word).result() == word
        assert word in node.shards.cores[partition_for(word, 2)].words
    assert node.shards.partition_of("a") == partition_for("a", 2)


def test_a_decision_is_followed_by_its_effects_and_sets_the_timer(node: Node) -> None:
    node.take("a")
    assert node.carried_out == ["a", "durable a"]
    assert node.due_ms == node.clock.now_ms + 50
    runtime = node.shards.get(partition_for("b", 2))
    assert runtime is not None
    node.clock.now_ms -= 200
    runtime.run(lambda now: runtime.core.take("b", Deferred(), now))
    assert node.carried_out[-2:] == ["b", "durable b"], "whoever runs it"
    assert node.due_ms == node.clock.now_ms + 50


def test_effects_of_a_durable_append_are_carried_out_too(node: Node) -> None:
    for partition in node.partitions.values():
        partition.hold = True
    node.take("a")
    assert (node.carried_out, node.due_ms) == (["a"], node.clock.now_ms + 100)
    for partition in node.partitions.values():
        partition.flush()
    assert node.carried_out == ["a", "durable a"]
    assert node.due_ms == node.clock.now_ms + 50


def test_a_passed_deadline_has_its_effects_and_sets_the_next_timer(node: Node) -> None:
    node.take("a")
    began_ms = node.clock.now_ms
    node.fire()
    assert node.carried_out[-1] == "expired late a"
    assert node.due_ms == began_ms + 100 == node.shards.next_deadline_ms()
    node.fire()
    assert node.carried_out[-1] == "expired a"
    assert node.due_ms is None and node.shards.next_deadline_ms() is None


def test_n57_many_deadlines_that_pass_together_take_several_turns(node: Node) -> None:
    words = [f"word {number}" for number in range(3 * DEADLINES_AT_ONCE)]
    for word in words:
        node.take(word)

    def expired() -> list[str]:
        return [word for core in node.shards.cores for word in core.expired]

    turns: list[int] = []
    while node.due_ms is not None:
        before = len(expired())
        node.fire()
        turns.append(len(expired()) - before)
    # Each word has two deadlines.
    assert turns == [DEADLINES_AT_ONCE] * 6
    assert sorted(expired()) == sorted([*words, *(f"late {word}" for word in words)])


def listed(shards: Shards[Words]) -> Deferred[tuple[ErrorCode, list[str]]]:
    slices = Slices(lambda: 0, SoonScheduler())
    return slices.deferred(shards.read_all(lambda core: core.words, str))


def test_reading_all_shards_waits_for_every_disk_and_returns_the_first_error(node: Node) -> None:
    for word in ("a", "b"):
        node.take(word)
    node.partitions[0].hold = True
    held = next(word for word in ("c", "d") if partition_for(word, 2) == 0)
    node.take(held)
    every = listed(node.shards)
    assert not every.done
    node.partitions[0].flush()
    error, words = every.result()
    assert (error, sorted(words)) == (E.NONE, sorted(["a", "b", held]))
    node.take(held)
    failed = listed(node.shards)
    node.partitions[0].flush(E.KAFKA_STORAGE_ERROR)
    assert failed.result() == (E.NOT_COORDINATOR, [])
    assert listed(node.shards).result() == (E.NOT_COORDINATOR, [])


def test_requests_are_refused_before_the_load_and_after_the_close(node: Node) -> None:
    node.take("a")
    node.shards.close()
    shards = node.shards = node.new_shards()
    assert node.read("a") == "COORDINATOR_LOAD_IN_PROGRESS"
    assert listed(shards).result()[0] is E.COORDINATOR_LOAD_IN_PROGRESS
    shards.begin_load()
    assert node.read("a") == "COORDINATOR_LOAD_IN_PROGRESS"
    while not shards.load_some():
        pass
    assert node.read("a") == "a"
    shards.close()
    assert node.read("a") == "NOT_COORDINATOR"
    assert listed(shards).result() == (E.NOT_COORDINATOR, [])
    assert node.due_ms is None


def test_shards_closed_before_their_load_load_nothing(node: Node) -> None:
    node.take("a")
    loaded: list[str] = []
    shards = node.new_shards(on_loaded=lambda: loaded.append("loaded"))
    shards.close()
    shards.load()
    assert (shards.cores, loaded) == ([], [])


def test_an_unreadable_partition_refuses_requests_and_the_others_serve(node: Node) -> None:
    node.partitions[0].append_internal([(b"unreadable", None)], 0)
    shards = node.shards = node.new_shards()
    shards.load()
    first = next(word for word in ("a", "b") if partition_for(word, 2) == 0)
    second = next(word for word in ("a", "b") if partition_for(word, 2) == 1)
    assert node.read(first) == "COORDINATOR_NOT_AVAILABLE"
    assert node.take(second).result() == second


def test_g92_a_partition_that_could_not_be_read_is_loaded_again(node: Node) -> None:
    first = next(word for word in ("a", "b") if partition_for(word, 2) == 0)
    node.take(first)
    partition = node.partitions[0]
    readable = list(partition.records)
    partition.records.append((b"unreadable", None))
    shards = node.shards = node.new_shards()
    shards.load()
    pauses_ms = []
    for _ in range(8):
        assert node.read(first) == "COORDINATOR_NOT_AVAILABLE"
        assert node.due_ms is not None
        pauses_ms.append(node.due_ms - node.clock.now_ms)
        node.fire()
    assert pauses_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    partition.records[:] = [*readable, *([(first.encode(), None)] * LOAD_SLICE_RECORDS)]
    node.fire()
    assert node.read(first) == "COORDINATOR_LOAD_IN_PROGRESS", "a slice at a time"
    node.fire()
    assert node.read(first) == ",".join([first] * (LOAD_SLICE_RECORDS + 1))
    assert node.due_ms is None
    assert node.take(first).result() == first


def test_g92_no_partition_is_loaded_again_after_the_close(node: Node) -> None:
    node.partitions[0].records.append((b"unreadable", None))
    shards = node.shards = node.new_shards()
    shards.load()
    shards.close()
    assert node.due_ms is None and shards.next_deadline_ms() is None


def test_a_topic_created_while_the_coordinator_runs_is_served(node: Node) -> None:
    node.count = 0
    node.shards = node.new_shards()
    node.shards.load()
    assert node.shards.partition_of("a") is None
    assert node.read("a") == "COORDINATOR_NOT_AVAILABLE"
    assert listed(node.shards).result() == (E.NONE, [])
    node.count = 2
    assert node.take("a").result() == "a"
    del node.partitions[partition_for("b", 2)]
    assert node.read("b") == "NOT_COORDINATOR"


def test_invalid_keys_and_taken_over_partitions_are_refused(node: Node) -> None:
    taken_over: set[int] = set()
    node.shards = node.new_shards(
        check_key=lambda key: E.NONE if key else E.INVALID_GROUP_ID,
        is_stale=lambda index, core: index in taken_over,
    )
    node.shards.load()
    assert node.read("") == "INVALID_GROUP_ID"
    assert node.take("a").result() == "a"
    taken_over.add(partition_for("a", 2))
    assert node.read("a") == "NOT_COORDINATOR"
    assert node.take("b").result() == "b"
