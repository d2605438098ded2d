"""The runtime of a core whose decisions may take long (N-57)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Protocol, TypeGuard, TypeVar

from odradek_broker.coordinator.runtime import (
    Core,
    CoreOutcome,
    Decision,
    Instant,
    InternalPartition,
    Record,
    Reply,
    Runtime,
    RuntimeState,
    RuntimeStep,
    TransactionalCore,
    TransactionalRuntime,
    in_batches,
)
from odradek_broker.deferred import Deferred
from odradek_broker.slices import Slices, in_pieces, pause, pause_in_change
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple

_E = ErrorCode

#: The size from which on a record has a piece of its own.
_LARGE_BYTES = 4_096


class SlicedCore(Core, Protocol):
    """A core whose decisions may take long."""

    async def replay_in_pieces(self, key: bytes, value: bytes) -> None:
        """Like `replay`, for a record with a large value. It pauses, and waits for nothing."""
        ...


SC = TypeVar("SC", bound=SlicedCore)


class _Task(NamedTuple):
    """A decision to make. `refuse` is called if it is not made."""

    decide: Callable[[Instant], Decision]
    refuse: Callable[[ErrorCode], None]


class SlicedRuntime(Runtime[SC]):
    """A `Runtime` whose decisions may be coroutines that pause (see `slices`).

    The core makes one decision at a time: during a pause, requests and deadlines of the core wait,
    and only other cores and other work go on. So a decision sees no change but its own, and a small
    decision is carried out before `run` returns, unless a large one is under way.
    """

    def __init__(
        self,
        slices: Slices,
        core: SC,
        partition: InternalPartition,
        clock: Callable[[], Instant],
        follow_up: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(core, partition, clock, follow_up)
        self._slices = slices
        self._is_busy = False
        #: What waits for the end of the present decision.
        self._tasks: deque[_Task] = deque()

    def _load_record(self, key: bytes, value: bytes | None) -> Iterable[object]:
        if value is None or len(value) <= _LARGE_BYTES:
            return super()._load_record(key, value)
        pieces = self.core.replay_in_pieces(key, value).__await__()
        return (None for _ in pieces for _ in range(in_pieces.SIZE))

    # --- Decisions ---

    def run(
        self,
        decide: Callable[[Instant], Decision],
        refuse: Callable[[ErrorCode], None] = lambda error: None,
    ) -> None:
        if self.state is not RuntimeState.ACTIVE:
            raise RuntimeStep(f"a decision in state {self.state.value}")
        task = _Task(decide, refuse)
        if self._is_busy:
            self._tasks.append(task)
            return
        decision = decide(self._clock())
        if _is_small(decision):
            self._process(decision)
            self._follow_up()
        else:
            self._is_busy = True
            self._slices.run(self._serve(task, decision), is_shared=True)

    def _run_timers(self, now: Instant, deadlines_max: float) -> int:
        task = None
        if deadlines_max > 0 and not self._is_busy:
            task = self._next_task(now.monotonic_ms)
        if task is not None:
            self._is_busy = True
            decision = task.decide(now)
            self._slices.run(self._serve(task, decision, now.monotonic_ms), is_shared=True)
        return 0

    def _next_task(self, due_ms: int | None) -> _Task | None:
        """The oldest request in the queue; without one, the earliest deadline up to `due_ms`."""
        if self.state is not RuntimeState.ACTIVE:
            return None
        if self._tasks:
            return self._tasks.popleft()
        name = None if due_ms is None else self.core.timers.pop_due(due_ms)
        return None if name is None else _Task(partial(self.core.on_timer, name), _ignore)

    def _has_task(self, due_ms: int | None) -> bool:
        if self._tasks or due_ms is None:
            return bool(self._tasks)
        at_ms = self.core.timers.next_deadline()
        return at_ms is not None and at_ms <= due_ms

    async def _serve(
        self, task: _Task | None, decision: Decision | None, due_ms: int | None = None
    ) -> None:
        """Carry out a decision, then what others ask for meanwhile, and act on the deadlines up to
        `due_ms`."""
        try:
            while task is not None:
                try:
                    await self._carry_out(decision or task.decide(self._clock()))
                except Exception:
                    task.refuse(_E.UNKNOWN_SERVER_ERROR)
                    raise
                self._follow_up()
                if self._has_task(due_ms):
                    await pause_in_change()
                task, decision = self._next_task(due_ms), None
        except GeneratorExit:
            # The loop was closed meanwhile.
            self._follow_up = _nothing
            raise
        finally:
            self._is_busy = False
            self._follow_up()

    async def _carry_out(self, decision: Decision) -> None:
        outcome = decision if isinstance(decision, CoreOutcome) else await decision
        whole = [outcome.records] if outcome.records else []
        batches = in_batches(outcome.records) if outcome.is_divisible else whole
        written = self._last_append
        for records in batches:
            if self.state is not RuntimeState.ACTIVE:
                break
            part = replace(outcome, records=records)
            written = self._append(part)
            if written.done and written.result() is not _E.NONE:
                error = written.result()
                refusal = outcome.append_errors.get(error, error)
                await self._after(outcome, refusal)
                self._release(outcome.replies, refusal)
                return
            self._last_append = written
            await self._replay_in_pieces(part)
        if self.state is not RuntimeState.ACTIVE:
            self._drop(outcome)
        elif written.done and written.result() is _E.NONE:
            await self._after(outcome, _E.NONE)
            self._release(outcome.replies, _E.NONE)
        else:
            self._await_disk(outcome, written)

    async def _replay_in_pieces(self, outcome: CoreOutcome) -> None:
        async for some in in_pieces(outcome.records):
            small: list[Record] = []
            for key, value in some:
                if value is None or len(value) <= _LARGE_BYTES or outcome.producer is not None:
                    small.append((key, value))
                    continue
                self._replay(replace(outcome, records=small))
                small = []
                await pause()
                await self.core.replay_in_pieces(key, value)
                await pause()
            self._replay(replace(outcome, records=small))

    async def _after(self, outcome: CoreOutcome, error: ErrorCode) -> None:
        if outcome.after_append is not None and self.state is RuntimeState.ACTIVE:
            await self._carry_out(outcome.after_append(error, self._clock()))

    def _durable(self, outcome: CoreOutcome, replies: list[Reply[Any]]) -> None:
        if outcome.after_append is None or self.state is not RuntimeState.ACTIVE:
            self._release(replies, _E.NONE)
            return

        async def go_on() -> CoreOutcome:
            await self._after(outcome, _E.NONE)
            self._release(replies, _E.NONE)
            return CoreOutcome()

        self.run(lambda _: go_on(), lambda error: self._release(replies, error))

    # --- What others append ---

    def appended(self, replay: Callable[[SC], None], written: Deferred[ErrorCode]) -> None:
        if not self._is_busy:
            super().appended(replay, written)
            return

        def decide(_: Instant) -> CoreOutcome:
            # Records that were appended later may have been replayed. Answers wait for the last.
            last = self._last_append
            Runtime.appended(self, replay, written)
            if not last.done:
                self._last_append = last
            return CoreOutcome()

        self._tasks.append(_Task(decide, _ignore))

    # --- The end ---

    def _core_deadline_ms(self) -> int | None:
        if self._is_busy:
            return None
        return self._clock().monotonic_ms if self._tasks else super()._core_deadline_ms()

    def _drop(self, outcome: CoreOutcome) -> None:
        """Refuse the answers of a decision during which the runtime has stopped."""
        self._release(outcome.replies, self._error)
        self._release(self.core.closed(self._error).replies, _E.NONE)
        self._send_some(inf)

    def _stop(self, state: RuntimeState, error: ErrorCode) -> None:
        super()._stop(state, error)
        while self._tasks:
            self._tasks.popleft().refuse(error)


class SlicedTransactionalCore(SlicedCore, TransactionalCore, Protocol):
    """A `TransactionalCore` whose decisions may take long."""


STC = TypeVar("STC", bound=SlicedTransactionalCore)


class SlicedTransactionalRuntime(SlicedRuntime[STC], TransactionalRuntime[STC]):
    """A `TransactionalRuntime` whose decisions may be coroutines that pause."""


def _nothing() -> None:
    pass


def _ignore(_: ErrorCode) -> None:
    pass


def _is_small(decision: Decision) -> TypeGuard[CoreOutcome]:
    """True if a decision can be carried out in one piece."""
    return (
        isinstance(decision, CoreOutcome)
        and decision.after_append is None
        and len(decision.records) <= in_pieces.SIZE
        and sum([len(value or b"") for _, value in decision.records]) <= _LARGE_BYTES
    )
