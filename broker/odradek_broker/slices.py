"""Work in slices: a request that takes long shares the event loop with all other requests (N-57).

A handler whose work grows with the names in its request, or with what the broker has, is a
coroutine that awaits `pause()` between the pieces of its work, or walks over them with `paced`:

    topics = [describe(name) async for name in paced(request.names)]

`Slices` runs such coroutines without asyncio. A coroutine that ends within its first slice has its
result at once, and all others take turns, one slice each. A coroutine may also await a `Deferred`.

Other requests run during a pause. So a coroutine looks up again, after a pause, what it has looked
up before, and changes state only between two pauses.

The work for a closed connection ends at its next pause, unless it has begun to change something:
after `pause_in_change` it goes on to its end, or to `end_of_change`.

The requests and answers of long works are large in memory. So only LONG_AT_ONCE long works take
turns at a time, LONG_HELD with those that wait for the disk by `soon`, and others wait for one of
them to end, or to wait for something else. Works that are not long have turns of their own between
those of long works.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from types import coroutine
from typing import Any, Generic, Self, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.platform.peer_log import PeerLog
from odradek_broker.platform.seams import Scheduler
from odradek_broker.request import CloseConnection, RequestContext

T = TypeVar("T")
U = TypeVar("U")
#: The time for all slices in one turn of the loop, and for one slice.
TURN_US = 2_000
SLICE_US = 500
#: The most steps of a turn and of a slice. The simulator's clock stands still during a slice, and
#: there requests would never interleave without these limits.
TURN_STEPS = 1_000
SLICE_STEPS = 250
#: The first slice of a request that begins when the turn is over. It is enough for most requests,
#: which would else wait for the slices of long works.
LATE_US = 100
LATE_STEPS = 16
#: The most works at a time that have used up their first slice: as many as Kafka handles requests
#: at a time (num.io.threads).
LONG_AT_ONCE = 8
#: The same with those that wait for the disk.
LONG_HELD = 16


class _Step:
    """A pause, which a coroutine yields to `Slices`. `changing`: whether the work goes on from here
    although nobody waits for the answer any more; None if that stays as it is."""

    def __init__(self, *, changing: bool | None = None) -> None:
        self.changing = changing


_PAUSE, _CHANGING, _CHANGED = _Step(), _Step(changing=True), _Step(changing=False)


@coroutine
def pause() -> Generator[_Step, None, None]:
    """Let others go on if the slice is over. Work whose connection is closed ends here, unless it
    is changing something."""
    yield _PAUSE


@coroutine
def pause_in_change() -> Generator[_Step, None, None]:
    """Like `pause`; from here on the work is done to its end even if its connection is closed,
    because a part of the request is carried out."""
    yield _CHANGING


@coroutine
def end_of_change() -> Generator[_Step, None, None]:
    """Like `pause`; from here on the work is only done for an open connection again."""
    yield _CHANGED


@coroutine
def with_pauses(steps: Generator[object, None, T]) -> Generator[_Step, None, T]:
    """The result of a generator, with a pause wherever it yields."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
        yield _PAUSE


async def arrived(parts: Iterable[Deferred[T]]) -> list[T]:
    """All values, in the order of `parts`, when the last one has arrived."""
    return [await part async for part in paced(parts)]


class _Soon:
    """A wait that a coroutine yields to `Slices`; see `soon`."""

    def __init__(self, awaited: Deferred[Any]) -> None:
        self.awaited = awaited


@coroutine
def soon(awaited: Deferred[T]) -> Generator[_Soon, None, T]:
    """The value of a `Deferred` that only waits for the disk. A long work keeps its place
    meanwhile: if others began at each such wait, all of them would be in memory."""
    if not awaited.done:
        yield _Soon(awaited)
    return awaited.result()


#: The most answers that a request waits for at a time: those that wait for the same records to be
#: on disk arrive in one callback.
_ASKED_AT_ONCE = 64


async def asked(
    items: Iterable[T], ask: Callable[[T], Deferred[U]], *, changing: bool = False
) -> list[U]:
    """The answers for all items, of which a limited number is asked for at a time. `changing`: see
    `pause_in_change`."""
    found: list[U] = []
    async for some in paced(in_order(list(items), _ASKED_AT_ONCE), changing=changing):
        for answer in [ask(item) async for item in paced(some)]:
            found.append(await soon(answer))
    return found


async def each_once(items: Iterable[T]) -> dict[T, None]:
    """The items in their order, without repetitions. The first use of a name computes its hash."""
    found: dict[T, None] = {}
    async for some in in_pieces(items):
        found |= dict.fromkeys(some)
    return found


#: The most items that are freed in one step.
_FREED_AT_ONCE = 128


async def let_go(*collections: list[Any] | dict[Any, Any]) -> None:
    """Empty lists and dicts that nobody else uses, some items at a time: it takes 20 ms to free
    100,000 objects. A coroutine frees at its end whatever it has not let go before."""
    for items in collections:
        while items:
            if isinstance(items, list):
                del items[-_FREED_AT_ONCE:]
            else:
                for _ in range(min(len(items), _FREED_AT_ONCE)):
                    items.popitem()
            if items:
                await pause()


#: The most items that are sorted in one step.
_SORTED_AT_ONCE = 250


async def in_sorted_order(items: Iterable[T], key: Callable[[T], Any] | None = None) -> list[T]:
    """The items, sorted by themselves or by `key`."""
    unsorted: list[Any] = list(items)
    if len(unsorted) <= _SORTED_AT_ONCE:
        return sorted(unsorted, key=key)
    runs = [sorted(some, key=key) async for some in paced(in_order(unsorted, _SORTED_AT_ONCE))]
    ordered: list[T] = []
    for item in merge(*runs, key=key):
        ordered.append(item)
        await pause()
    return ordered


#: The most items of a batch, of which each may change much.
_BATCH = 8


def in_order(items: Sequence[T], size: int = _BATCH) -> list[Sequence[T]]:
    """The items in batches of `size`, by default a few."""
    return [items[start : start + size] for start in range(0, len(items), size)]


#: The most items of a batch whose items have the same key, so that all but one are refused.
_ALIKE_BATCH = 128


async def batches(items: Sequence[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """The items of a request in batches of a few, which are carried out one after the other.

    Items with the same key are refused because the request has several, so at least two of them are
    in each batch that has one. A request of a few items is one batch.
    """
    if len(items) <= _BATCH:
        return [list(items)]
    by_key: dict[Hashable, list[T]] = {}
    async for item in paced(items):
        by_key.setdefault(key(item), []).append(item)
    made: list[list[T]] = [[]]
    async for alike in paced(by_key.values()):
        if len(made[-1]) + len(alike) <= _BATCH:
            made[-1] += alike
            continue
        start = 0
        while start < len(alike):
            end = start + _ALIKE_BATCH
            end += len(alike) - end == 1
            made.append(alike[start:end])
            start = end
    await let_go(by_key)
    return made


class paced(Generic[T]):
    """The items, with a pause before each one. They are copied first, because the collection may
    change during a pause. `changing`: see `pause_in_change`."""

    __slots__ = ("_items", "_step")

    def __init__(self, items: Iterable[T], *, changing: bool = False) -> None:
        self._items: Iterator[T] = iter(tuple(items))
        self._step = _CHANGING if changing else _PAUSE

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Self:
        return self

    def __await__(self) -> Generator[_Step, None, T]:
        try:
            item = next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None
        yield self._step
        return item


class in_pieces(Generic[T]):
    """The items in pieces of SIZE, for work that is short for each item, with a pause between two
    pieces. They are copied first. A few items are one piece, without a pause."""

    __slots__ = ("_items", "_start")
    SIZE = 32

    def __init__(self, items: Iterable[T]) -> None:
        self._items = tuple(items)
        self._start = 0

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Self:
        return self

    def __await__(self) -> Generator[_Step, None, tuple[T, ...]]:
        start = self._start
        if start >= len(self._items):
            raise StopAsyncIteration
        if start:
            yield _PAUSE
        self._start = start + self.SIZE
        return self._items[start : self._start]


class Work(Deferred[T]):
    """The result of a coroutine that needs more than one slice, or waits. `context`: the request
    that it belongs to, or None. `busy_us`: the time of its slices so far."""

    __slots__ = ("awaited", "busy_us", "changing", "context", "is_long", "is_shared", "steps")

    def __init__(self, steps: Coroutine[Any, Any, T], context: RequestContext | None) -> None:
        super().__init__()
        self.steps = steps
        self.context = context
        self.busy_us = 0
        self.changing = False
        #: True if this is one of the long works that take turns.
        self.is_long = False
        #: True if several requests wait for this work, or for the work that it is a part of.
        self.is_shared = False
        #: The `Deferred` that the coroutine waits for.
        self.awaited: Deferred[Any] | None = None


Done = Callable[[Exception | None], None]
#: Does work in a thread, and then calls `Done` on the loop, with the exception that ended the work
#: or None.
Background = Callable[[Callable[[], None], Done], None]
#: The most pieces of work that wait for the thread.
BESIDE_MAX = 200


class TooMuchWaits(Exception):
    """Too much work waits for the thread."""


def here(work: Callable[[], None], done: Done) -> None:
    """Do the work where it is asked for, without a thread; see `Background`."""
    problem: Exception | None = None
    try:
        work()
    except Exception as error:  # noqa: BLE001 - handed to `done`
        problem = error
    done(problem)


class Slices:
    """Runs coroutines in turns. `now_us`: a clock that never goes back, for any thread.
    `peer_log`: for the exceptions of works. `background`: the thread of `beside`; by default the
    work is done where it is asked for. `counts_steps`: false if only the clock ends a slice."""

    def __init__(
        self,
        now_us: Callable[[], int],
        scheduler: Scheduler,
        peer_log: PeerLog | None = None,
        *,
        background: Background = here,
        counts_steps: bool = True,
    ) -> None:
        self._background = background
        self._beside = 0
        self._counts_steps = counts_steps
        self._peer_log = peer_log or PeerLog(lambda: now_us() / 1e6)
        self._now_us = now_us
        self._scheduler = scheduler
        #: Works that were interrupted in their first slice.
        self._short: deque[Work[Any]] = deque()
        #: Long works that take turns, and those that wait until they may.
        self._long: deque[Work[Any]] = deque()
        self._later: deque[Work[Any]] = deque()
        #: The number of works in `_long` that are not shared.
        self._long_requests = 0
        #: The long works that keep their place while they wait.
        self._held: set[Work[Any]] = set()
        self._short_is_next = True
        #: The works that have not ended.
        self._unfinished: set[Work[Any]] = set()
        #: When the slices of this turn of the loop end; 0 if no coroutine has paused in it.
        self._turn_ends_us = 0
        self._steps_left = 0
        #: The coroutine that runs, and when its slice began.
        self._running: Work[Any] | None = None
        self._began_us = 0

    @property
    def waiting(self) -> int:
        """The number of works that wait for their next slice."""
        return len(self._short) + len(self._long) + len(self._later)

    @property
    def unfinished(self) -> int:
        """The number of works that have not ended."""
        return len(self._unfinished)

    def stop(self) -> None:
        """End all works where they pause, because the broker stops."""
        for work in tuple(self._unfinished):
            self._end(work)

    def busy_us(self) -> int:
        """The time of all slices of the running coroutine until now."""
        assert self._running is not None, "only a coroutine asks"
        return self._running.busy_us + self._now_us() - self._began_us

    def run(
        self,
        steps: Coroutine[Any, Any, T],
        context: RequestContext | None = None,
        *,
        is_shared: bool = False,
    ) -> T | Work[T]:
        """The result of a coroutine, or a `Deferred` of it. Raises what the coroutine raises in its
        first slice. A later exception is logged and closes the connection. `context`: the request,
        if the work that runs is not a part of it. `is_shared`: true if several requests wait for
        the work, so that it waits for none of the long ones to end, and none of them waits for
        it."""
        outer = None if is_shared else self._running
        if context is None and outer is not None:
            context = outer.context
        work = Work(steps, context)
        work.is_shared = is_shared or (outer is not None and outer.is_shared)
        # A part of a long work is long too: else it would wait for other long works to end, while
        # the request is in memory.
        work.is_long = is_shared or (outer is not None and outer.is_long)
        try:
            self._advance(work)
        except StopIteration as ended:
            result: T = ended.value
            return result
        work.on_abandon = partial(self._abandon, work)
        self._unfinished.add(work)
        return work

    def deferred(self, steps: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Like `run`, with a `Deferred` in any case."""
        result = self.run(steps)
        return result if isinstance(result, Work) else Deferred.of(result)

    def changed(self, work: Work[T], change: Callable[[T], U | Deferred[U]]) -> U | Work[U]:
        """The work, and then `change` of its result. It is a `Work` as well, because no request of
        a connection begins behind one (N-03)."""

        async def steps() -> U:
            result = change(await work)
            return await result if isinstance(result, Deferred) else result

        return self.run(steps(), work.context)

    async def beside(self, work: Callable[[], T]) -> T:
        """The result of work that takes long and cannot pause: it is done in a thread, one piece
        after the other, and must use nothing that changes meanwhile. For coroutines that run here.

        The time counts as the request's own. Work for a closed connection is not begun. Raises what
        the work raises, and TooMuchWaits.
        """
        if self._beside >= BESIDE_MAX:
            raise TooMuchWaits
        ended: Deferred[Exception | None] = Deferred()
        results: list[T] = []
        took_us = 0

        def begin() -> None:
            nonlocal took_us
            if ended.abandoned:
                return
            began_us = self._now_us()
            try:
                results.append(work())
            finally:
                took_us = self._now_us() - began_us

        def end(problem: Exception | None) -> None:
            self._beside -= 1
            ended.resolve(problem)

        self._beside += 1
        self._background(begin, end)
        problem = await ended
        if self._running is not None:
            self._running.busy_us += took_us
        if problem is not None:
            try:
                raise problem
            finally:
                # Its traceback has this frame, which must not keep what the work had in memory.
                del problem, ended
        return results[0]

    def _advance(self, work: Work[Any]) -> None:
        """Run the coroutine until its slice is over or it waits. Raises StopIteration with its
        result, or what it raises."""
        outer, outer_began_us = self._running, self._began_us
        self._running, self._began_us = work, self._now_us()
        steps = steps_max = ends_us = 0
        try:
            while True:
                waits_for = work.steps.send(None)
                if isinstance(waits_for, _Soon):
                    # `soon` has seen that its value is not there.
                    waits_for = waits_for.awaited
                    if work.is_long and not work.is_shared:
                        self._held.add(work)
                if not isinstance(waits_for, _Step):
                    if not waits_for.done:
                        work.awaited = waits_for
                        waits_for.then(partial(self._arrived, work))
                        return
                    continue
                if not steps:
                    steps_max, ends_us = self._slice()
                steps += 1
                if waits_for.changing is not None:
                    work.changing = waits_for.changing
                if work.abandoned and not work.changing:
                    self._end(work)
                    return
                if steps >= steps_max or self._now_us() >= ends_us:
                    self._interrupted(work, steps)
                    return
        finally:
            self._steps_left -= steps
            work.busy_us += self._now_us() - self._began_us
            self._running, self._began_us = outer, outer_began_us

    def _slice(self) -> tuple[int, int]:
        """The most steps of a slice, and the time at which it ends."""
        if not self._turn_ends_us:
            self._begin_turn()
        began_us = self._began_us
        return (
            min(SLICE_STEPS, max(self._steps_left, LATE_STEPS))
            if self._counts_steps
            else sys.maxsize,
            min(began_us + SLICE_US, max(self._turn_ends_us, began_us + LATE_US)),
        )

    def _interrupted(self, work: Work[Any], steps: int) -> None:
        if work.is_long:
            self._add_long(work)
        elif (
            self._counts_steps and steps >= SLICE_STEPS
        ) or self._now_us() - self._began_us >= SLICE_US:
            self._later.append(work)
        else:
            self._short.append(work)

    def _begin_turn(self) -> None:
        self._turn_ends_us = self._now_us() + TURN_US
        self._steps_left = TURN_STEPS if self._counts_steps else sys.maxsize
        self._scheduler.call_later(0, self._take_turns)

    def _take_turns(self) -> None:
        self._turn_ends_us = 0
        while (work := self._next()) is not None:
            if not self._turn_ends_us:
                self._begin_turn()
            self._go_on(work)
            if self._steps_left <= 0 or self._now_us() >= self._turn_ends_us:
                return

    def _next(self) -> Work[Any] | None:
        while (
            self._later
            and self._long_requests < LONG_AT_ONCE
            and self._long_requests + len(self._held) < LONG_HELD
        ):
            work = self._later.popleft()
            if work in self._unfinished:
                work.is_long = True
                self._add_long(work)
        if self._short and (self._short_is_next or not self._long):
            self._short_is_next = False
            return self._short.popleft()
        self._short_is_next = True
        if not self._long:
            return None
        work = self._long.popleft()
        self._long_requests -= not work.is_shared
        return work

    def _add_long(self, work: Work[Any]) -> None:
        self._long.append(work)
        self._long_requests += not work.is_shared

    def _arrived(self, work: Work[Any], _: object) -> None:
        awaited, work.awaited = work.awaited, None
        if isinstance(awaited, Work) and awaited.is_long and not awaited.is_shared:
            # What the long work has made is in memory, so this one goes on in its place.
            work.is_long = True
        self._release(work)
        self._go_on(work)

    def _go_on(self, work: Work[Any]) -> None:
        if work not in self._unfinished:
            return
        result: Any
        try:
            self._advance(work)
            return
        except StopIteration as ended:
            result = ended.value
        except CloseConnection as closing:
            result = closing
        except Exception as error:  # noqa: BLE001 - logged, and whoever has resolved the value that
            # this work waited for must go on.
            context = work.context
            peer, api = ("", "") if context is None else (context.host, context.api_name)
            self._peer_log.failed(peer, api, error)
            result = CloseConnection("a request failed in the broker; its log has the cause")
        self._unfinished.discard(work)
        work.resolve(result)

    def _abandon(self, work: Work[Any]) -> None:
        if work.changing:
            return
        if work.awaited is not None:
            work.awaited.abandon()
        if work is not self._running:
            # Its memory is free at once, not only when its turn comes.
            self._end(work)

    def _release(self, work: Work[Any]) -> None:
        """Give the place of a work that has waited to another one."""
        if work in self._held:
            self._held.remove(work)
            if self._later and not self._turn_ends_us:
                self._begin_turn()

    def _end(self, work: Work[Any]) -> None:
        self._unfinished.discard(work)
        self._release(work)
        work.on_abandon = None
        work.steps.close()
