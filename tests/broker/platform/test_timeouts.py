"""Time-outs of requests, independent of each other (P-23)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_broker.platform.timeouts import _KEPT_MAX, Timeouts
from odradek_testkit.simulation.clock import SimulatedClock
from produce_worlds import Timers


class Waiting:
    def __init__(self) -> None:
        self.told = 0

    def timed_out(self) -> None:
        self.told += 1


class World:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.timers = Timers()
        self.timeouts = Timeouts(self.clock, self.timers)

    def pass_time(self, duration_ms: int) -> None:
        for _ in range(duration_ms):
            self.clock.advance(1)
            self.timers.fire(self.clock.now_ms)

    def begin(self, wait_ms: int) -> Waiting:
        waiting = Waiting()
        self.timeouts.begin(waiting, wait_ms)
        return waiting


def test_p23_each_waiter_times_out_once() -> None:
    world = World()
    first = world.begin(10)
    world.pass_time(4)
    second = world.begin(10)
    other = world.begin(3)
    world.pass_time(5)
    assert (first.told, second.told, other.told) == (0, 0, 1)
    world.pass_time(1)
    assert (first.told, second.told) == (1, 0)
    world.pass_time(4)
    assert (first.told, second.told) == (1, 1)
    world.pass_time(100)
    assert (first.told, second.told, other.told) == (1, 1, 1)
    assert len(world.timeouts) == 0


def test_p23_an_ended_waiter_does_not_time_out() -> None:
    world = World()
    first, second = world.begin(10), world.begin(10)
    world.timeouts.end(first, 10)
    world.timeouts.end(first, 10)
    world.pass_time(10)
    assert (first.told, second.told) == (0, 1)
    world.timeouts.end(second, 10)


def test_p23_a_timeout_callback_may_end_waiters_and_wait_again() -> None:
    world = World()
    later = Waiting()

    class Busy(Waiting):
        def timed_out(self) -> None:
            super().timed_out()
            world.timeouts.end(later, 10)
            if self.told < 3:
                world.timeouts.begin(self, 10)

    busy = Busy()
    world.timeouts.begin(busy, 10)
    world.timeouts.begin(later, 10)
    world.pass_time(10)
    world.pass_time(10)
    world.pass_time(10)
    assert busy.told == 3
    assert len(world.timeouts) == 0


def test_p23_a_failing_timeout_callback_does_not_stop_other_waiters() -> None:
    class Failing(Waiting):
        def timed_out(self) -> None:
            super().timed_out()
            raise RuntimeError("a test")

    world = World()
    failing, behind = Failing(), Waiting()
    for each in (failing, behind):
        world.timeouts.begin(each, 10)
    with pytest.raises(RuntimeError, match="a test"):
        world.pass_time(10)
    assert (failing.told, behind.told) == (1, 1)


def test_d11_durations_without_a_waiting_request_are_dropped() -> None:
    """A client can request another duration, of up to 24 days, in each request."""
    world = World()
    for wait_ms in range(1_000_000, 1_001_000):
        world.timeouts.end(world.begin(wait_ms), wait_ms)
    assert len(world.timeouts._queues) <= _KEPT_MAX + 1
    assert sum(timer.callback is not None for _, _, timer in world.timers._due) <= _KEPT_MAX + 1


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 5, 20]), st.integers(0, 12)),
        max_size=60,
    )
)
def test_p23_all_waiters_time_out_or_end(steps: list[tuple[int, int, int]]) -> None:
    """The time-outs are compared with a list of all deadlines."""
    world = World()
    open_: list[tuple[Waiting, int, int]] = []
    for kind, wait_ms, number in steps:
        if kind < 2:
            open_.append((world.begin(wait_ms), wait_ms, world.clock.now_ms + wait_ms))
        elif kind == 2 and open_:
            waiting, duration_ms, _ = open_.pop(number % len(open_))
            world.timeouts.end(waiting, duration_ms)
        world.pass_time(number)
        for waiting, _, deadline_ms in open_:
            due = deadline_ms <= world.clock.now_ms
            # A time-out of 0 ms fires in the next turn of the loop.
            assert waiting.told == due or (due and number == 0)
        open_ = [each for each in open_ if each[2] > world.clock.now_ms or not each[0].told]
