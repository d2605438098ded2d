"""The single timer of a coordinator."""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.coordinator.shards import DeadlineTimer


class World:
    """A clock, and the times of the timers that were set and not cancelled."""

    def __init__(self) -> None:
        self.now_ms = 100
        self.set_to: list[float] = []
        self.rung: list[int] = []
        self._callbacks: list[Callable[[], None]] = []
        self.timer = DeadlineTimer(self, self, self.rung.append)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 0

    def call_later(self, delay_ms: float, callback: Callable[[], None], /) -> World:
        assert self.set_to == [], "the one before was not called off"
        self.set_to.append(self.now_ms + delay_ms)
        self._callbacks = [callback]
        return self

    def cancel(self) -> None:
        self.set_to.clear()

    def ring(self) -> None:
        self.now_ms = int(self.set_to.pop())
        self._callbacks.pop()()


def test_the_timer_fires_at_the_deadline_set_last() -> None:
    world = World()
    world.timer.set(500)
    world.timer.set(300)
    world.timer.set(400)
    assert world.set_to == [400]
    world.ring()
    assert (world.rung, world.set_to) == ([400], [])


def test_only_an_earlier_deadline_brings_the_timer_forward() -> None:
    world = World()
    world.timer.bring_forward(None)
    assert world.set_to == []
    world.timer.bring_forward(500)
    world.timer.bring_forward(600)
    assert world.set_to == [500]
    world.timer.bring_forward(450)
    assert world.set_to == [450]
    world.timer.set(None)
    assert world.set_to == []


def test_a_closed_timer_never_fires() -> None:
    world = World()
    world.timer.set(500)
    world.timer.close()
    world.timer.set(600)
    world.timer.bring_forward(700)
    assert (world.set_to, world.rung) == ([], [])
