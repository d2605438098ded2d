"""Checkers on hand-made histories: no violation on a good one, and one for each anomaly."""

from __future__ import annotations

import pytest
from tests.sim.checkers.anomalies import check_anomalies
from tests.sim.checkers.deleted import Deletions
from tests.sim.checkers.history import Operation, Outcome, Poll, Send
from tests.sim.checkers.latest import (
    Fate,
    Writes,
    check_latest,
    check_offsets_given_once,
    check_uncompacted,
)
from tests.sim.checkers.queues import check_empty, check_limits
from tests.sim.checkers.replayed import check_replayed, durable_state
from tests.sim.run import run_seed

from odradek_testkit.simulation.world import World


def sent(client: str, *sends: Send, outcome: Outcome = Outcome.DONE) -> Operation:
    return Operation(client, list(sends), outcome, transactional=True)


def read(client: str, *records: tuple[str, int, bytes], sought: bool = False) -> Operation:
    return Operation(client, [Poll(list(records))], Outcome.DONE, sought=sought)


A, B, C = ("p", 0, b"a"), ("p", 1, b"b"), ("p", 2, b"c")


def test_a_history_without_anomalies_has_no_violation() -> None:
    history = [
        sent("w", Send("p", b"a", 0), Send("p", b"b", 1)),
        sent("w", Send("p", b"x"), outcome=Outcome.FAILED),
        sent("v", Send("p", b"c"), outcome=Outcome.UNKNOWN),
        read("r", A, B),
        read("r", C),
        read("r", B, C, sought=True),
    ]
    assert list(check_anomalies(history)) == []


@pytest.mark.parametrize(
    ("history", "anomaly"),
    [
        (
            [sent("w", Send("p", b"a"), outcome=Outcome.FAILED), read("r", A)],
            "aborted read",
        ),
        ([read("r", A), read("s", ("p", 0, b"b"))], "two values"),
        ([read("r", A, ("p", 1, b"a"))], "duplicate"),
        ([sent("w", Send("p", b"a", 0)), read("r", B)], "lost write"),
        ([sent("w", Send("p", b"b", 1)), read("r", A)], "unseen"),
        ([read("r", A, C), read("s", A, B, C)], "internal poll skip"),
        ([read("r", A), read("r", C), read("s", A, B, C)], "external poll skip"),
        ([read("r", B, A)], "internal poll inversion"),
        ([read("r", B), read("r", A)], "external poll inversion"),
        (
            [sent("w", Send("p", b"b", 1), Send("p", b"a", 0)), read("r", A, B)],
            "internal send inversion",
        ),
        (
            [sent("w", Send("p", b"b", 1)), sent("w", Send("p", b"a", 0)), read("r", A, B)],
            "external send inversion",
        ),
        (
            [Operation("w", [Send("p", b"a"), Poll([A])], Outcome.DONE, transactional=True)],
            "precommitted read",
        ),
    ],
)
def test_each_anomaly_is_a_violation(history: list[Operation], anomaly: str) -> None:
    problems = list(check_anomalies(history))
    assert len(problems) == 1
    assert problems[0].startswith(anomaly)


def test_a_record_read_before_its_commit_was_requested_is_a_violation() -> None:
    """The record is a violation even if it is committed later."""

    def history(read_at: int, commit_at: int | None) -> list[Operation]:
        written = sent("w", Send("p", b"a"), outcome=Outcome.UNKNOWN)
        written.began, written.commit_began = 1, commit_at
        return [written, Operation("r", [Poll([A], ended=read_at)], Outcome.DONE)]

    assert list(check_anomalies(history(read_at=3, commit_at=2))) == []
    (problem,) = check_anomalies(history(read_at=3, commit_at=4))
    assert problem == "precommitted read: r b'a' at p 0"
    (problem,) = check_anomalies(history(read_at=3, commit_at=None))
    assert problem == "aborted read: r b'a' of w at p 0"


def test_an_unread_record_is_unseen_or_lost_after_later_reads() -> None:
    """An unread record counts as lost if the client has read later records, and as unseen
    otherwise."""
    history = [sent("w", Send("p", b"b", 1)), read("r", A)]
    (problem,) = check_anomalies(history)
    assert problem.startswith("unseen")
    assert list(check_anomalies([*history, read("r", B)])) == []
    (problem,) = check_anomalies([*history, read("s", C)])
    assert problem.startswith("lost write")


def test_sends_of_one_operation_out_of_order_are_a_violation() -> None:
    good = [sent("w", Send("p", b"a", 0), Send("q", b"x", 0), Send("p", b"b", 1)), read("r", A, B)]
    good.append(read("r", ("q", 0, b"x")))
    assert list(check_anomalies(good)) == []
    (problem,) = check_anomalies(
        [sent("w", Send("p", b"b", 1), Send("p", b"a", 0)), read("r", A, B)]
    )
    assert problem.startswith("internal send inversion")


def test_records_below_the_log_start_may_be_missing() -> None:
    history = [
        sent("w", Send("p", b"a", 0), Send("p", b"b", 1)),
        read("r", A),
        read("r", C),
        read("s", A, B),
    ]
    assert any(check_anomalies(history, {"p": 1}))
    assert not any(check_anomalies(history, {"p": 2}))


def test_a_deleted_record_that_is_read_again_is_a_violation() -> None:
    deletions = Deletions()
    early = deletions.acknowledged()
    deletions.deleted("p", 2)
    deletions.read("r", [A, B, C], early)
    deletions.read("r", [C], deletions.acknowledged())
    assert deletions.problems == []
    deletions.read("r", [B, C], deletions.acknowledged())
    assert deletions.problems == ["r read p offset 1, and everything below 2 was deleted"]
    deletions.saw_start("p", 1)
    assert deletions.highest_starts == {"p": 2}


def test_a_hole_in_an_uncompacted_log_is_a_violation() -> None:
    """A check of only the last write of the key would not notice the hole."""
    written = {"k": Writes("p")}
    for number in range(3):
        write = written["k"].add(tombstone=False)
        write.fate, write.offset = Fate.ACKNOWLEDGED, number
    found = {"p": [(0, "k", 0), (2, "k", 2)]}
    assert list(check_latest(written, found, whole=True)) == []
    assert list(check_uncompacted(written, found)) == [
        "k: write 1 was acknowledged at p offset 1, and is gone though nothing was compacted"
    ]
    written["k"].writes[1].fate = Fate.UNKNOWN
    assert list(check_uncompacted(written, found)) == []


def acknowledged(place: str, *offsets: int) -> Writes:
    writes = Writes(place)
    for offset in offsets:
        write = writes.add(tombstone=False)
        write.fate, write.offset = Fate.ACKNOWLEDGED, offset
    return writes


def test_the_last_write_of_a_key_may_be_missing_below_the_log_start() -> None:
    written = {"k": acknowledged("p", 0, 2)}
    lost = "k: write 1 was acknowledged, but the last that is there is"
    assert list(check_latest(written, {}, {"p": 3}, whole=True)) == []
    assert list(check_uncompacted(written, {}, {"p": 3})) == []
    assert list(check_latest(written, {}, {"p": 2}, whole=True)) == [f"{lost} -1"]
    assert len(list(check_uncompacted(written, {}, {"p": 2}))) == 1
    old = {"p": [(0, "k", 0)]}
    assert list(check_latest(written, old, {"p": 3}, whole=True)) == [f"{lost} 0"]


def test_records_of_a_deleted_topic_are_a_violation_in_the_new_one() -> None:
    written = {"k": acknowledged("p", 0), "l": acknowledged("p", 0)}
    (gone,) = written["k"].writes
    gone.fate, gone.deletion = Fate.DELETED, 1
    found = {"p": [(0, "k", 0), (1, "l", 0)]}
    assert list(check_latest(written, found, whole=True)) == [
        "k: write 0 at offset 0 is of a deleted topic",
        "l: write 0 was at offset 0, and is at 1 now",
    ]
    # Before the deletion a reader could get the record.
    assert list(check_latest({"k": written["k"]}, {"p": [(0, "k", 0)]}, whole=False)) == []
    assert len(list(check_offsets_given_once(written))) == 1
    written["l"].writes[0].life = 2
    assert list(check_offsets_given_once(written)) == []


def test_differences_between_memory_and_a_replay_are_told() -> None:
    assert not list(check_replayed({"topic t": 1}, {"topic t": 1}))
    assert list(check_replayed({"a": 1, "b": 1}, {"a": 2, "c": 1})) == [
        "a: 1 in memory, 2 after a replay of the logs",
        "b: 1 in memory, nothing after a replay of the logs",
        "c: nothing in memory, 1 after a replay of the logs",
    ]


def test_a_run_compares_the_broker_with_its_disk_and_checks_its_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test adds state that the disk does not have, and requests that wait for an answer."""
    worlds: list[World] = []
    heal = World.heal

    async def spoil(world: World) -> None:
        await heal(world)
        worlds.append(world)
        server = world.broker.server
        server.node.metadata._next_producer_id += 1
        for _, _, partition in server.node.replicas.partitions():
            partition.durable_waiters.append((1_000_000, lambda error: None))
        server.limits.bytes_held += 1

    monkeypatch.setattr(World, "heal", spoil)
    problems = run_seed("produce", 1, []).violations
    assert any("waiters for the disk of orders-0 are left" in problem for problem in problems)
    assert any("bytes held by connections are left" in problem for problem in problems)
    assert any("are counted" in problem for problem in problems)
    assert any(problem.startswith("replay: next producer id") for problem in problems)
    assert len(worlds) == 1


def test_checkers_find_the_state_of_a_running_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    heal = World.heal

    async def look(world: World) -> None:
        await heal(world)
        seen.append(durable_state(world.broker.server.node))
        seen.append([*check_limits(world.broker.server), *check_empty(world.broker.server)])

    monkeypatch.setattr(World, "heal", look)
    assert run_seed("produce", 1, []).violations == []
    state = seen[0]
    assert isinstance(state, dict)
    kinds = {name.split()[0] for name in state}
    assert {"next", "topic", "offsets", "producer"} <= kinds
