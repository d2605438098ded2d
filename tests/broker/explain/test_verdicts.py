"""Verdicts about groups, from samples of commits and log ends in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ended_log import ended_log
from handler_calls import finished
from odradek_broker.explain import verdicts
from odradek_broker.explain.verdicts import (
    PATIENCE,
    SAMPLE_INTERVAL_MS,
    WINDOW,
    GroupVerdicts,
    Verdict,
    Window,
)

START_MS = 1_700_000_000_000
T0, T1 = ("t", 0), ("t", 1)


@dataclass
class Commit:
    offset: int
    commit_timestamp: int


class World:
    """A group "g" whose commits and log ends a test changes between samples."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.commits: dict[str, dict[tuple[str, int], Commit]] = {"g": {}}
        self.ends: dict[tuple[str, int], int] = {}
        #: The last stable offsets that are not the ends.
        self.stable: dict[tuple[str, int], int] = {}
        self.verdicts = GroupVerdicts(
            lambda: self.commits, lambda group: self.commits[group].items(), self.log_of
        )

    def log_of(self, where: tuple[str, int]) -> Any:
        return ended_log(self.ends.get(where), self.stable.get(where))

    @property
    def wall_ms(self) -> int:
        return START_MS + self.now_ms

    def commit(self, offset: int, partition: tuple[str, int] = T0, group: str = "g") -> None:
        self.commits[group][partition] = Commit(offset, self.wall_ms)

    def sample(self) -> Verdict:
        """Take the next sample; returns the verdict."""
        self.now_ms += SAMPLE_INTERVAL_MS
        finished(self.verdicts.step(self.now_ms, self.wall_ms))
        return self.verdict()

    def verdict(self, group: str = "g") -> Verdict:
        return finished(self.verdicts.verdict(group, self.wall_ms)).verdict


@pytest.fixture
def world() -> World:
    return World()


def run(world: World, samples: int, consumed: int, produced: int, every: int = 1) -> list[Verdict]:
    """Take `samples` samples; returns the verdicts. Before each sample `produced` records are
    added. Before the first sample, and then before every `every`-th, the group commits `consumed`
    more records."""
    found = []
    for number in range(samples):
        world.ends[T0] = world.ends.get(T0, 0) + produced
        if number % every == 0:
            before = world.commits["g"].get(T0)
            world.commit((before.offset if before else 0) + consumed)
        found.append(world.sample())
    return found


def test_a_group_that_keeps_up_with_its_producers_is_ok(world: World) -> None:
    world.ends[T0] = 100
    assert set(run(world, 40, 100, 100)) == {Verdict.OK}


def test_a_group_that_catches_up_is_ok(world: World) -> None:
    world.ends[T0] = 10_000
    assert set(run(world, 40, 110, 100)) == {Verdict.OK}


def test_g163_a_group_that_is_slower_than_its_producers_gets_a_warning(world: World) -> None:
    found = run(world, 20, 50, 100)
    # The first sample has no earlier log end to compare with. At the second, the group has reached
    # the log end of the first.
    assert found == [Verdict.OK] * (WINDOW + 1) + [Verdict.WARNING] * (20 - WINDOW - 1)
    # The group comes nearer to the end once. The next warning comes only after ten further commits.
    assert run(world, 1, 200, 100) == [Verdict.OK]
    assert run(world, 10, 50, 100)[-1] is Verdict.WARNING


def test_g163_a_group_that_commits_the_same_offset_is_stalled(world: World) -> None:
    world.ends[T0] = 1_000
    found = []
    for _ in range(20):
        world.commit(42)
        found.append(world.sample())
    # The group is behind from the second sample on.
    assert found == [Verdict.OK] * (PATIENCE + 1) + [Verdict.STALLED] * (19 - PATIENCE)


def test_g163_a_group_without_commits_is_stopped(world: World) -> None:
    world.ends[T0] = 10_000
    run(world, 5, 10, 0)
    found = [world.sample() for _ in range(8)]
    assert found == [Verdict.OK] * (PATIENCE - 1) + [Verdict.STOPPED] * (9 - PATIENCE)
    world.commit(60)
    assert world.sample() is Verdict.OK


def test_g163_a_group_that_commits_seldom_is_not_stopped(world: World) -> None:
    """Its earlier commits show that a commit every two minutes is normal for the group."""
    world.ends[T0] = 10**6
    found = run(world, 130, 1_000, 10, every=12)
    # Before the second commit the group is taken for one that has stopped.
    assert set(found[: PATIENCE + 1]) == set(found[12:]) == {Verdict.OK}
    found = [world.sample() for _ in range(40)]
    assert found.index(Verdict.STOPPED) + 130 - 120 == 24
    assert set(found[24 - 10 :]) == {Verdict.STOPPED}


def test_a_group_without_commits_since_the_start_is_stopped_after_a_minute(world: World) -> None:
    world.commit(5)
    world.now_ms += 3_600_000
    world.ends[T0] = 50
    found = [world.sample() for _ in range(PATIENCE + 5)]
    assert found.index(Verdict.STOPPED) == PATIENCE + 1
    assert set(found[PATIENCE + 1 :]) == {Verdict.STOPPED}


def test_g163_a_group_that_an_open_transaction_holds_back_is_stalled(world: World) -> None:
    world.ends[T0], world.stable[T0] = 100, 40
    world.commit(40)
    found = [world.sample() for _ in range(PATIENCE + 3)]
    assert found == [Verdict.OK] * (PATIENCE + 1) + [Verdict.STALLED] * 2
    # The transaction ends, and the next one begins at once: the group moves.
    world.stable[T0] = 90
    world.commit(90)
    assert [world.sample() for _ in range(PATIENCE)] == [Verdict.OK] * PATIENCE


def test_g162_a_group_that_reads_behind_an_open_transaction_is_not_held_back(world: World) -> None:
    world.ends[T0], world.stable[T0] = 100, 40
    world.commit(100)
    assert {world.sample() for _ in range(2 * PATIENCE)} == {Verdict.OK}
    world.ends[T0] = 120
    assert [world.sample() for _ in range(2 * PATIENCE)][-1] is Verdict.STOPPED


def test_g162_records_after_a_pause_do_not_stop_a_group_that_reads_them(world: World) -> None:
    """The group commits nothing while nothing is produced."""
    world.ends[T0] = 10
    world.commit(10)
    for _ in range(100):
        assert world.sample() is Verdict.OK
    world.ends[T0] = 11
    assert world.sample() is Verdict.OK
    world.commit(11)
    assert {world.sample() for _ in range(20)} == {Verdict.OK}


def test_a_group_that_was_reset_gets_a_new_window(world: World) -> None:
    world.ends[T0] = 100
    world.commit(50)
    assert run(world, 15, 0, 0)[-1] is Verdict.STALLED
    world.commit(0)
    assert [world.sample() for _ in range(PATIENCE)] == [Verdict.OK] * PATIENCE


def test_g163_the_worst_partition_decides_the_verdict(world: World) -> None:
    world.ends[T1] = 500
    world.commit(0, T1)
    assert run(world, 25, 50, 100)[-1] is Verdict.STOPPED
    assert finished(world.verdicts.verdict("g", world.wall_ms)).worst == [T1]
    del world.commits["g"][T1]
    assert run(world, 1, 50, 100)[-1] is Verdict.WARNING


def test_verdicts_of_deleted_groups_and_partitions_are_dropped(world: World) -> None:
    world.commits["other"] = {}
    world.ends[T0] = 100
    world.commit(1)
    world.commit(1, group="other")
    for _ in range(15):
        world.sample()
    assert world.verdict() is world.verdict("other") is Verdict.STOPPED
    del world.commits["other"]
    world.sample()
    assert world.verdict("other") is Verdict.OK
    del world.ends[T0]
    assert world.sample() is Verdict.OK
    assert world.verdict("nobody") is Verdict.OK


def test_the_offsets_of_a_sample_are_read_in_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdicts, "STEP_OFFSETS", 3)
    asked: list[int] = []
    world.verdicts._log_of = lambda where: asked.append(where[1])
    for index in range(7):
        world.commit(1, ("t", index))
    for steps, count in ((1, 3), (2, 6), (3, 7), (4, 7)):
        finished(world.verdicts.step(0, START_MS))
        assert len(asked) == count, steps
    finished(world.verdicts.step(SAMPLE_INTERVAL_MS, START_MS))
    assert len(asked) == 10


def test_the_number_of_windows_is_limited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "WINDOWS_MAX", 2)
    for index in range(5):
        world.commit(1, ("t", index))
        world.ends["t", index] = 10
    world.sample()
    world.sample()
    assert world.verdicts.unwatched == 3
    # There is a pause for each partition.
    assert len(list(world.verdicts.verdict("g", 0))) == 2
    assert finished(world.verdicts.verdict("g", 0)).count == 2


def test_a_window_keeps_ten_commits() -> None:
    window = Window()
    for number in range(1_000):
        window.sample(number, number, 1)
    assert list(window.times) == list(range(990, 1_000))
