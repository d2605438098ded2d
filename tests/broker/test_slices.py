"""Work in slices (rule N-57): a request that takes long shares the loop with all others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from node_world import SoonScheduler
from odradek_broker.deferred import Deferred
from odradek_broker.request import CloseConnection
from odradek_broker.slices import (
    TURN_STEPS,
    TURN_US,
    Slices,
    Work,
    batches,
    in_order,
    paced,
    pause,
    with_pauses,
)

Start = Callable[[Coroutine[Any, Any, Any]], Any]


class World:
    """A scheduler whose clock moves when a test says so."""

    def __init__(self) -> None:
        self.now_us = 1
        self.soon = SoonScheduler()
        self.slices = Slices(lambda: self.now_us, self.soon)
        self.done: list[str] = []

    async def work(self, name: str, times: int, cost_us: int = 0, **how: bool) -> str:
        async for number in paced(range(times), **how):
            self.now_us += cost_us
            self.done.append(f"{name}{number}")
        return name


@pytest.fixture
def world() -> World:
    return World()


def test_n57_short_work_has_its_result_at_once(world: World) -> None:
    assert world.slices.run(world.work("a", 10)) == "a"
    world.soon.run()
    assert len(world.done) == 10


def test_n57_works_take_turns_of_the_time_of_a_slice(world: World) -> None:
    first = world.slices.run(world.work("a", 6, TURN_US // 2))
    second = world.slices.run(world.work("b", 2, TURN_US // 2))
    assert isinstance(first, Work) and isinstance(second, Work)
    turns = [world.done[:]]
    while world.soon.turn():
        turns.append(world.done[sum(map(len, turns)) :])
    # What begins in a turn that is over has one step less.
    assert turns[:4] == [["a0", "a1"], ["a2", "a3"], ["b0", "b1"], ["a4", "a5"]]
    assert first.result() == "a" and second.result() == "b"


def test_n57_a_slice_has_a_limit_of_steps_for_clocks_that_stand_still(world: World) -> None:
    work = world.slices.run(world.work("a", 3 * TURN_STEPS))
    assert isinstance(work, Work) and len(world.done) <= TURN_STEPS
    before = len(world.done)
    world.soon.turn()
    assert before < len(world.done) <= before + TURN_STEPS
    world.soon.run()
    assert work.result() == "a"


def test_n57_a_work_waits_for_a_deferred_and_no_turn_is_taken_meanwhile(world: World) -> None:
    flushed: Deferred[int] = Deferred()

    async def story() -> int:
        return await flushed + await Deferred.of(2)

    work = world.slices.run(story())
    assert isinstance(work, Work) and not world.soon.turn()
    flushed.resolve(40)
    assert work.result() == 42


def test_n57_an_error_in_the_first_slice_is_raised_and_a_later_one_closes_the_connection(
    world: World,
) -> None:
    async def story(pauses: int, problem: Exception) -> None:
        for _ in range(pauses):
            await pause()
        raise problem

    with pytest.raises(CloseConnection):
        world.slices.run(story(0, CloseConnection("bad")))
    for problem, reason in ((CloseConnection("bad"), "bad"), (ValueError("x"), "its log has")):
        late = world.slices.run(story(2 * TURN_STEPS, problem))
        other = world.slices.run(world.work("b", 1))
        world.soon.run()
        assert isinstance(late, Work) and isinstance(other, Work)
        assert isinstance(late.result(), CloseConnection) and reason in str(late.result())
        assert other.result() == "b"


def test_n10_reading_ends_when_its_connection_is_closed_and_a_change_goes_on(world: World) -> None:
    reading = world.slices.run(world.work("a", 6, TURN_US))
    changing = world.slices.run(world.work("b", 6, TURN_US, changing=True))
    assert isinstance(reading, Work) and isinstance(changing, Work)
    for work in (reading, changing):
        work.abandon()
    world.soon.run()
    assert [name for name in world.done if name[0] == "a"] == ["a0"]
    assert [name for name in world.done if name[0] == "b"] == [f"b{n}" for n in range(6)]
    assert not reading.done


def test_n10_what_a_closed_connection_waited_for_is_abandoned(world: World) -> None:
    parked: Deferred[int] = Deferred()

    async def story() -> int:
        return await parked

    work = world.slices.run(story())
    assert isinstance(work, Work)
    work.abandon()
    assert parked.abandoned


def test_n57_the_time_of_a_work_is_that_of_its_own_slices(world: World) -> None:
    spent: list[int] = []

    async def story() -> None:
        await world.work("a", 3, TURN_US)
        spent.append(world.slices.busy_us())

    world.slices.run(story())
    world.slices.run(world.work("b", 5, TURN_US))
    world.soon.run()
    assert spent == [3 * TURN_US]


def test_n57_items_are_those_at_the_beginning_of_the_walk(world: World) -> None:
    topics = {"a": 1, "b": 2}

    async def story() -> list[str]:
        names = []
        async for name in paced(topics):
            topics.pop(name)
            topics[f"{name}!"] = 1
            names.append(name)
        return names

    assert world.slices.run(story()) == ["a", "b"]


def test_n57_a_generator_pauses_wherever_it_yields(world: World) -> None:
    def steps() -> Any:
        for number in range(2 * TURN_STEPS):
            yield
            world.done.append(str(number))
        return "whole"

    async def story() -> Any:
        return await with_pauses(steps())

    work = world.slices.run(story())
    assert len(world.done) <= TURN_STEPS
    world.soon.run()
    assert work.result() == "whole"


@pytest.mark.parametrize("times", [1, 2, 127, 128, 129, 130, 257, 1_000])
@pytest.mark.parametrize("others", [0, 3, 20])
def test_n57_items_with_one_key_never_stand_alone_in_a_batch(
    world: World, times: int, others: int
) -> None:
    items = [*(f"x{n}" for n in range(others)), *["same"] * times, *(f"y{n}" for n in range(9))]
    work = world.slices.run(batches(items, lambda item: item))
    world.soon.run()
    made = work.result() if isinstance(work, Work) else work
    assert sorted(item for batch in made for item in batch) == sorted(items)
    counts = [batch.count("same") for batch in made]
    assert times == 1 or 1 not in counts
    assert max(map(len, made)) <= 130 or len(items) <= 8
    assert in_order(items, 4)[0] == items[:4]
