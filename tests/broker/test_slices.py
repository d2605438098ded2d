"""Long work in slices, one slice at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek_broker.deferred import Deferred
from odradek_broker.slices import SLICE_STEPS, Slices, Work


class Timers:
    """The timers that were set, as an event loop has them."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> Timers:
        assert delay_ms > 0, "others are served in between"
        self.due.append(callback)
        return self

    def cancel(self) -> None:
        raise AssertionError("no slice is cancelled")

    def fire(self) -> None:
        (callback,) = self.due
        self.due.clear()
        callback()


def work(name: str, log: list[str], pieces: int, steps: int = SLICE_STEPS // 2) -> Work[str]:
    for _ in range(pieces):
        log.append(name)
        yield steps
    return name


@pytest.fixture
def timers() -> Timers:
    return Timers()


def test_short_work_is_done_at_once(timers: Timers) -> None:
    assert Slices(timers).run(work("a", [], 1)).result() == "a"
    assert not timers.due


def test_long_work_is_done_in_slices(timers: Timers) -> None:
    log: list[str] = []
    deferred = Slices(timers).run(work("a", log, 5))
    done = [len(log)]
    while not deferred.done:
        timers.fire()
        done.append(len(log))
    assert (done, deferred.result()) == ([2, 4, 5], "a")
    assert not timers.due


def test_several_works_take_turns(timers: Timers) -> None:
    log: list[str] = []
    slices = Slices(timers)
    answers = [slices.run(work(name, log, 4)) for name in "abc"]
    assert log == ["a", "a"], "one slice at a time, however many begin"
    while timers.due:
        timers.fire()
    assert "".join(log) == "aaaabbccbbcc"
    assert [answer.result() for answer in answers] == ["a", "b", "c"]


def test_work_that_nobody_waits_for_any_more_ends(timers: Timers) -> None:
    log: list[str] = []
    deferred = Slices(timers).run(work("a", log, 100))
    deferred.abandon()
    timers.fire()
    assert len(log) == 2 and not timers.due


def test_the_end_of_a_work_may_begin_another_one(timers: Timers) -> None:
    log: list[str] = []
    slices = Slices(timers)
    more: Deferred[str] = slices.run(work("a", log, 3)).bind(
        lambda _: slices.run(work("b", log, 1))
    )
    while timers.due:
        timers.fire()
    assert more.result() == "b"
