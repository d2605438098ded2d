"""Events that end the waits of thousands of requests are spread over turns of the loop (N-57)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from node_world import SoonScheduler
from odradek_broker.partition import WOKEN_AT_ONCE, Waiter, Wakes
from odradek_broker.server.session_limits import ANSWERS_AT_ONCE, AnswerTurns

NOT_CALLED = 5 * WOKEN_AT_ONCE // 2


class World:
    """Waiters of one partition, by number."""

    def __init__(self) -> None:
        self.soon = SoonScheduler()
        self.wakes = Wakes(partial(self.soon.call_later, 0))
        self.called: list[int] = []
        self.waiters: dict[Waiter, None] = {}

    def wait(self, *numbers: int) -> None:
        for number in numbers:
            self.waiters[partial(self._woken, number)] = None

    def _woken(self, number: int, _: Any) -> None:
        self.called.append(number)

    def wake(self) -> None:
        self.wakes.wake(None, self.waiters)

    def turn(self) -> int:
        """Run one turn; returns the number of waiters that were called in it."""
        before = len(self.called)
        self.soon.turn()
        return len(self.called) - before


@pytest.fixture
def world() -> World:
    return World()


def test_n57_a_few_waiters_are_called_at_once(world: World) -> None:
    world.wait(*range(WOKEN_AT_ONCE))
    world.wake()
    assert world.called == list(range(WOKEN_AT_ONCE))
    assert not world.soon.waits


def test_n57_many_waiters_are_called_in_turns(world: World) -> None:
    world.wait(*range(1_000))
    world.wake()
    assert len(world.called) == WOKEN_AT_ONCE
    while world.soon.waits:
        assert world.turn() <= WOKEN_AT_ONCE
    assert world.called == list(range(1_000))


def test_n57_a_waiter_that_is_removed_before_its_turn_is_not_called(world: World) -> None:
    world.wait(*range(1_000))
    world.wake()
    for waiter in list(world.waiters)[NOT_CALLED:]:
        del world.waiters[waiter]
    world.soon.run()
    assert world.called == list(range(NOT_CALLED))


def test_n57_wakes_that_follow_each_other_reach_every_waiter(world: World) -> None:
    """A partition that changes in every turn: nobody is left out, and nothing piles up."""
    world.wait(*range(1_000))
    for _ in range(2 * 1_000 // WOKEN_AT_ONCE):
        world.wake()
        assert world.turn() <= WOKEN_AT_ONCE
    assert set(world.called) == set(range(1_000))
    world.soon.run()
    assert len(world.called) <= 4 * 1_000


def test_n57_a_waiter_may_wake_the_partition(world: World) -> None:
    world.waiters[lambda _: world.wake() if len(world.called) < 2_000 else None] = None
    world.wait(*range(1_000))
    world.wake()
    world.soon.run()
    assert set(world.called) == set(range(1_000))


# --- Responses ---


class Connection:
    """A connection with one response."""

    def __init__(self, answers: list[int], number: int) -> None:
        self._answers, self._number = answers, number

    def write_ready(self) -> None:
        self._answers.append(self._number)


def test_n57_responses_to_requests_that_have_waited_are_written_in_turns() -> None:
    soon, turns = SoonScheduler(), AnswerTurns()
    written: list[int] = []

    def call_soon(callback: Any, *arguments: Any) -> None:
        soon.call_later(0, partial(callback, *arguments))

    for number in range(1_000):
        connection = Connection(written, number)
        if turns.may_answer(connection, call_soon):
            connection.write_ready()
    assert len(written) == ANSWERS_AT_ONCE
    while soon.waits:
        before = len(written)
        soon.turn()
        assert len(written) - before <= ANSWERS_AT_ONCE
    assert written == list(range(1_000))
    assert turns.may_answer(Connection(written, 0), call_soon)
