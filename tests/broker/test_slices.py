"""Work in slices (rule N-57): a request that takes long shares the loop with all others."""

from __future__ import annotations

import gc
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import ref

import pytest
from structlog.testing import capture_logs

from held_thread import HeldThread
from node_world import SoonScheduler
from odradek_broker.deferred import Deferred
from odradek_broker.request import CloseConnection, RequestContext
from odradek_broker.slices import (
    BESIDE_MAX,
    LATE_US,
    LONG_AT_ONCE,
    LONG_HELD,
    SLICE_STEPS,
    SLICE_US,
    TURN_STEPS,
    TURN_US,
    Slices,
    TooMuchWaits,
    Work,
    asked,
    batches,
    end_of_change,
    in_order,
    in_sorted_order,
    let_go,
    paced,
    pause,
    pause_in_change,
    with_pauses,
)

_REQUEST = RequestContext(0, "client", "1.2.3.4", 1, api_name="Fetch")
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


def test_n57_works_take_turns_of_one_slice_each(world: World) -> None:
    first = world.slices.run(world.work("a", 6, SLICE_US))
    second = world.slices.run(world.work("b", 3, SLICE_US))
    assert isinstance(first, Work) and isinstance(second, Work)
    assert world.done == ["a0", "b0"]
    world.soon.run()
    assert world.done == ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "a4", "a5"]
    assert first.result() == "a" and second.result() == "b"


def test_n57_a_turn_ends_when_its_time_is_over(world: World) -> None:
    for name in "abcdef":
        world.slices.run(world.work(name, 8, SLICE_US))
    world.done.clear()
    while world.soon.turn():
        done, world.done = len(world.done), []
        assert done <= TURN_US // SLICE_US


def test_n57_a_short_request_does_not_wait_for_long_ones(world: World) -> None:
    for number in range(50):
        world.slices.run(world.work(f"long{number}-", 100, SLICE_US))
    assert world.slices.run(world.work("short", LATE_US // 10 - 1, 10)) == "short"
    work = world.slices.run(world.work("more", SLICE_US // 10 - 1, 10))
    assert isinstance(work, Work)
    for _ in range(2):
        world.soon.turn()
    assert work.result() == "more"


def test_n14_few_long_works_are_in_memory_at_a_time(world: World) -> None:
    in_memory: set[int] = set()
    most = 0
    parked: Deferred[None] = Deferred()

    async def request(number: int) -> int:
        nonlocal most
        await world.work("a", 1, SLICE_US)
        await pause()
        in_memory.add(number)
        most = max(most, len(in_memory))
        await world.work("b", 9, SLICE_US)
        # A part of a request goes on although others wait for their turn.
        part = world.slices.deferred(world.work("c", 9, SLICE_US))
        await part
        if number == 3:
            in_memory.remove(number)
            await parked
            in_memory.add(number)
        await world.work("d", 9, SLICE_US)
        in_memory.remove(number)
        return number

    works = [world.slices.deferred(request(number)) for number in range(60)]
    world.soon.run()
    # The request that waits for something else keeps nobody from going on.
    assert [work.done for work in works].count(False) == 1 and not works[3].done
    parked.resolve(None)
    world.soon.run()
    assert [work.result() for work in works] == list(range(60))
    assert most == LONG_AT_ONCE


def test_n14_what_a_long_work_has_made_does_not_wait_for_other_long_works(world: World) -> None:
    in_memory: list[int] = []
    most = 0

    async def made(number: int) -> int:
        nonlocal most
        await world.work("a", 3, SLICE_US)
        in_memory.append(number)
        most = max(most, len(in_memory))
        return number

    async def encoded(work: Deferred[int]) -> int:
        number = await work
        await world.work("b", 3, SLICE_US)
        in_memory.remove(number)
        return number

    works = [
        world.slices.deferred(encoded(world.slices.deferred(made(number)))) for number in range(60)
    ]
    world.soon.run()
    assert [work.result() for work in works] == list(range(60))
    assert most <= LONG_AT_ONCE


def test_n14_few_long_works_are_in_memory_while_they_wait_for_the_disk(world: World) -> None:
    in_memory: list[int] = []
    flushes: list[Deferred[int]] = []

    def ask(_: int) -> Deferred[int]:
        flushes.append(Deferred())
        return flushes[-1]

    async def request(number: int) -> list[int]:
        await world.work("a", 2, SLICE_US)
        in_memory.append(number)
        found = await asked(range(2), ask)
        in_memory.remove(number)
        return found

    works = [world.slices.deferred(request(number)) for number in range(60)]
    world.soon.run()
    assert len(in_memory) == LONG_HELD
    gone = works[in_memory[0]]
    gone.abandon()
    in_memory.pop(0)
    world.soon.run()
    assert len(in_memory) == LONG_HELD
    while flushes:
        flush = flushes.pop(0)
        flush.resolve(7)
        world.soon.run()
        assert len(in_memory) <= LONG_HELD
    assert [work.result() for work in works if work is not gone] == [[7, 7]] * 59


def test_n57_work_that_is_shared_and_never_ends_keeps_no_long_request_out(world: World) -> None:
    async def decisions() -> None:
        while True:
            await world.slices.deferred(world.work("part", 9, SLICE_US))

    for _ in range(2 * LONG_AT_ONCE):
        world.slices.run(decisions(), is_shared=True)
    requests = [world.slices.deferred(world.work("a", 9, SLICE_US)) for _ in range(3)]
    for _ in range(1_000):
        world.soon.turn()
    assert [each.done for each in requests] == [True] * 3
    world.slices.stop()


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
        other = world.slices.run(world.work("b", SLICE_STEPS + 1))
        world.soon.run()
        assert isinstance(late, Work) and isinstance(other, Work)
        assert isinstance(late.result(), CloseConnection) and reason in str(late.result())
        assert other.result() == "b"


def test_n23_errors_of_works_do_not_fill_the_log(world: World) -> None:
    async def fails(problem: str) -> None:
        await world.work("", 2, TURN_US)
        raise ValueError(problem)

    with capture_logs() as lines:
        for number in range(500):
            request = _REQUEST if number % 2 else None
            world.slices.run(fails(f"{number % 100}"), request)
            world.slices.run(fails("the same"))
            world.soon.run()
    of_requests = [line for line in lines if line["event"] == "a request failed unexpectedly"]
    of_others = [line for line in lines if line["event"] == "work failed unexpectedly"]
    assert {line["peer"] for line in of_requests} == {"1.2.3.4"}
    assert 0 < len(of_requests) <= 40 and 0 < len(of_others) <= 40
    assert len(lines) == len(of_requests) + len(of_others)


def test_n57_an_error_in_a_part_of_a_request_names_the_request(world: World) -> None:
    async def part() -> None:
        await world.work("", 2, TURN_US)
        raise ValueError

    async def whole() -> None:
        world.slices.run(part())

    with capture_logs() as lines:
        world.slices.run(whole(), _REQUEST)
        world.soon.run()
    assert [(line["peer"], line["api"]) for line in lines] == [("1.2.3.4", "Fetch")]


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


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("closed_at", range(3))
def test_n10_a_change_is_done_to_its_end_wherever_its_connection_is_closed(
    world: World, closed_at: int, waits: bool
) -> None:
    flushes: list[Deferred[None]] = [Deferred() for _ in range(3)]

    async def story() -> None:
        await pause_in_change()
        for flush in flushes:
            await world.work("a", 2 * SLICE_STEPS)
            await flush
        world.done = ["changed"]
        await end_of_change()
        world.done.append("answered")

    work = world.slices.run(story())
    assert isinstance(work, Work)
    for number, flush in enumerate(flushes):
        if waits:
            world.soon.run()
        if number == closed_at:
            work.abandon()
        world.soon.run()
        flush.resolve(None)
    assert world.done == ["changed"]
    assert not any(flush.abandoned for flush in flushes)


def test_n10_the_memory_of_a_closed_connection_is_free_at_once(world: World) -> None:
    ended: list[str] = []

    async def story(name: str, *waits: Deferred[None]) -> None:
        try:
            await world.work(name, 2, TURN_US)
            for wait in waits:
                await wait
        finally:
            ended.append(name)

    queued = [world.slices.deferred(story(f"queued{number}")) for number in range(20)]
    parked = world.slices.deferred(story("parked", Deferred()))
    for work in queued[:-1]:
        work.abandon()
    assert len(ended) == 19
    world.soon.run()
    assert ended[19:] == ["queued19"]
    parked.abandon()
    assert ended[20:] == ["parked"]


@pytest.mark.parametrize("is_closed", [False, True])
def test_n57_a_work_that_has_ended_is_freed_without_a_collection(
    world: World, is_closed: bool
) -> None:
    class Large:
        pass

    async def request() -> Large:
        large = Large()
        seen.append(ref(large))
        await world.work("a", 3, SLICE_US)
        return large

    seen: list[ref[Large]] = []
    gc.disable()
    try:
        work = world.slices.run(request())
        assert isinstance(work, Work)
        if is_closed:
            work.abandon()
        world.soon.run()
        del work
        assert seen[0]() is None
    finally:
        gc.enable()


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


def test_n57_many_names_are_sorted_with_pauses(world: World) -> None:
    names = [f"{number * 7919 % 100_003:06}" for number in range(5_000)]
    assert world.slices.run(in_sorted_order(names[:250])) == sorted(names[:250])
    work = world.slices.run(in_sorted_order(names))
    assert isinstance(work, Work)
    world.soon.run()
    assert work.result() == sorted(names)


def test_n57_the_items_of_a_long_request_are_freed_some_at_a_time(world: World) -> None:
    items = [[number] for number in range(100 * TURN_STEPS)]
    work = world.slices.run(let_go([], items))
    assert isinstance(work, Work) and 0 < len(items) < 100 * TURN_STEPS
    world.soon.run()
    assert work.done and not items


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


# --- Work in the thread ---


class Threaded(World):
    """Works may be done in a thread that the test runs."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = HeldThread()
        self.slices = Slices(lambda: self.now_us, self.soon, background=self.thread)

    async def beside(self, name: str, cost_us: int = 0) -> str:
        def work() -> str:
            self.now_us += cost_us
            self.done.append(name)
            if not name:
                raise ValueError("no name")
            return name

        return await self.slices.beside(work)


def test_n57_work_in_the_thread_counts_as_time_of_its_request() -> None:
    world = Threaded()
    work = world.slices.run(world.beside("a", 5_000))
    assert isinstance(work, Work) and world.done == []
    world.thread.run()
    assert (work.result(), work.busy_us) == ("a", 5_000)


def test_n57_what_the_thread_raises_is_raised_in_the_coroutine() -> None:
    world = Threaded()

    async def refused() -> str:
        try:
            return await world.beside("")
        except ValueError as problem:
            return str(problem)

    work = world.slices.deferred(refused())
    world.thread.run()
    assert work.result() == "no name"


def test_n10_work_for_a_closed_connection_is_not_begun_in_the_thread() -> None:
    world = Threaded()
    closed = world.slices.deferred(world.beside("closed"))
    other = world.slices.deferred(world.beside("other"))
    closed.abandon()
    world.thread.run()
    world.thread.run()
    assert world.done == ["other"] and other.result() == "other"
    assert world.slices.unfinished == 0


def test_n14_what_waits_for_the_thread_is_limited() -> None:
    world = Threaded()
    works = [world.slices.deferred(world.beside(f"{number}")) for number in range(BESIDE_MAX)]
    with pytest.raises(TooMuchWaits):
        world.slices.run(world.beside("too much"))
    works[0].abandon()
    world.thread.run()
    again = world.slices.deferred(world.beside("again"))
    while world.thread.works:
        world.thread.run()
    assert again.result() == "again"
