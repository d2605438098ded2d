"""The shards of a coordinator: for each partition of its internal topic that this broker leads, a
core that decides and the runtime that writes.

A key (a group id or a transactional id) belongs to one shard. After every decision, this module
carries out the effects that the core requested and sets the timer to the earliest deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from struct import iter_unpack
from typing import Any, Generic, Protocol, TypeVar

import structlog

from odradek_broker.coordinator.runtime import (
    Core,
    CoreOutcome,
    Decision,
    Instant,
    InternalPartition,
    Reply,
    Runtime,
    RuntimeState,
)
from odradek_broker.deferred import Deferred
from odradek_broker.platform.seams import Clock, Scheduler, Timer
from odradek_broker.slices import paced
from odradek_broker.storage.errors import StorageError
from odradek_protocol.errors import ErrorCode
from odradek_protocol.lazy_tuple import NamedTuple
from odradek_protocol.primitives import WireError

#: The limit of the length of a group id: encoded in UTF-8 the id must fit into a record key, whose
#: strings have a 16-bit length.
GROUP_ID_MAX_CHARS = 8_000


def java_hash(text: str) -> int:
    """The value of Java's `String.hashCode`: over UTF-16 code units, a signed 32-bit integer."""
    value = 0
    for (unit,) in iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def partition_for(key: str, partitions: int) -> int:
    """The partition of a key among `partitions`: the absolute value of the key's hash, modulo
    `partitions`, as in Kafka. The smallest hash has no absolute value, and gets partition 0."""
    hashed = java_hash(key)
    return 0 if hashed == -(1 << 31) else abs(hashed) % partitions


def masked_partition_for(key: str, partitions: int) -> int:
    """The partition of a key in data directories of early versions of Odradek, which cleared the
    sign bit of the hash in place of taking the absolute value."""
    return (java_hash(key) & 0x7FFFFFFF) % partitions


class DeadlineTimer:
    """A timer that calls `on_due` with the monotonic time in milliseconds, once each time the timer
    is set.

    `on_due` acts on the deadlines that have passed and sets the timer again.
    """

    __slots__ = ("_at_ms", "_clock", "_closed", "_on_due", "_scheduler", "_timer")

    def __init__(self, clock: Clock, scheduler: Scheduler, on_due: Callable[[int], None]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._on_due = on_due
        self._at_ms: int | None = None
        self._timer: Timer | None = None
        self._closed = False

    def set(self, at_ms: int | None) -> None:
        """Fire at `at_ms`, in place of an earlier setting; None means never."""
        if at_ms != self._at_ms and not self._closed:
            self._cancel()
            if at_ms is not None:
                self._at_ms = at_ms
                delay_ms = max(0.0, at_ms - self._clock.monotonic_ms())
                self._timer = self._scheduler.call_later(delay_ms, self._fired)

    def bring_forward(self, at_ms: int | None) -> None:
        """Fire at this time, unless the timer fires earlier anyway; None changes nothing."""
        if at_ms is not None and (self._at_ms is None or at_ms < self._at_ms):
            self.set(at_ms)

    def close(self) -> None:
        """Close the timer: it never fires again, even if it is set again."""
        self._cancel()
        self._closed = True

    def _cancel(self) -> None:
        timer, self._timer, self._at_ms = self._timer, None, None
        if timer is not None:
            timer.cancel()

    def _fired(self) -> None:
        self._timer = self._at_ms = None
        if not self._closed:
            self._on_due(self._clock.monotonic_ms())


A = TypeVar("A")
C = TypeVar("C", bound=Core)
S = TypeVar("S")
T = TypeVar("T")


#: The most deadlines that one turn of the loop acts on: thousands may pass at the same time.
DEADLINES_AT_ONCE = 8

#: The first and the longest pause between two attempts to load a partition.
RELOAD_MS = 1_000
RELOAD_MS_MAX = 60_000


class _Reload(NamedTuple):
    """The time of the next attempt to load a partition, and the pause before it."""

    at_ms: int
    pause_ms: int


class PartitionCounts(Protocol):
    """The numbers of partitions in the cluster metadata."""

    def partition_count(self, name: str, /) -> int:
        """The number of partitions of the topic; 0 if there is no such topic."""
        ...


class Shards(Generic[C]):
    """The shards of a coordinator. `name`: the coordinator's name in log lines; `new_core` makes
    the core of a partition.

    `internal_partition` finds a partition by topic and index if it exists and this broker leads it.
    `carry_out` carries out the effects that a core has requested. `check_key`: the error for a key
    that no shard accepts. `is_stale`: true if the leader epoch of the partition has changed since
    its core was made (T-57). `on_loaded` is called when every partition is replayed, and again when
    a partition whose first load failed is replayed. `partition_for`: the partition of a key, from
    the key and the number of partitions.
    """

    def __init__(
        self,
        topic: str,
        name: str,
        new_core: Callable[[int], C],
        *,
        metadata: PartitionCounts,
        internal_partition: Callable[[str, int], InternalPartition | None],
        clock: Clock,
        scheduler: Scheduler,
        runtime_class: Callable[..., Runtime[C]] = Runtime,
        carry_out: Callable[[Runtime[C]], None] = lambda runtime: None,
        check_key: Callable[[str], ErrorCode] = lambda key: ErrorCode.NONE,
        is_stale: Callable[[int, C], bool] = lambda index, core: False,
        on_loaded: Callable[[], None] = lambda: None,
        partition_for: Callable[[str, int], int] = partition_for,
    ) -> None:
        self._topic = topic
        self._name = name
        self._new_core = new_core
        self._metadata = metadata
        self._internal_partition = internal_partition
        self._clock = clock
        self._runtime_class = runtime_class
        self._carry_out = carry_out
        self._check_key = check_key
        self._is_stale = is_stale
        self._on_loaded = on_loaded
        self._partition_for = partition_for
        self._runtimes: dict[int, Runtime[C]] = {}
        #: The partitions that could not be loaded (G-92).
        self._reloads: dict[int, _Reload] = {}
        self._timer = DeadlineTimer(clock, scheduler, self.run_due)
        #: The error for every key; NONE once the load has begun.
        self._error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def get(self, index: int) -> Runtime[C] | None:
        """The runtime of a partition; None if this broker does not lead the partition."""
        return self._runtimes.get(index)

    def __iter__(self) -> Iterator[Runtime[C]]:
        """Iterate over a copy of the list of runtimes, because work on a runtime may add other
        runtimes."""
        return iter(list(self._runtimes.values()))

    @property
    def complete(self) -> bool:
        """True if every partition that may have records is loaded."""
        for index in range(self._metadata.partition_count(self._topic)):
            runtime = self._runtimes.get(index)
            if runtime is None:
                # A partition that exists, and that no request has used yet, is empty.
                if self._internal_partition(self._topic, index) is None:
                    return False
            elif runtime.state is not RuntimeState.ACTIVE:
                return False
        return True

    @property
    def cores(self) -> list[C]:
        """The cores of all partitions, for reading only. A core may be loading, or have state that
        is not durable yet."""
        return [runtime.core for runtime in self]

    # --- Start and end ---

    def load(self) -> None:
        """Replay every partition of the topic that this broker leads."""
        self.begin_load()
        while not self.load_some():
            pass

    def begin_load(self) -> None:
        """Begin the load: keys of partitions that `load_some` has not reached yet are refused with
        COORDINATOR_LOAD_IN_PROGRESS."""
        if self._is_closed:
            return
        self._error = ErrorCode.NONE
        for index in range(self._metadata.partition_count(self._topic)):
            partition = self._internal_partition(self._topic, index)
            if partition is not None and index not in self._runtimes:
                self._runtimes[index] = self._new_runtime(index, partition)

    def load_some(self) -> bool:
        """Replay some records; True when everything is loaded. The caller may do other work between
        calls."""
        if self._is_closed:
            return True
        for index, runtime in list(self._runtimes.items()):
            if runtime.state is RuntimeState.LOADING:
                self._load_slice(index, runtime)
                return False
        self._on_loaded()
        self._timer.set(self.next_deadline_ms())
        return True

    def give_up(self, index: int) -> None:
        """Close the runtime of a partition that this broker does not lead any more."""
        runtime = self._runtimes.pop(index, None)
        if runtime is not None:
            runtime.close()

    def close(self) -> None:
        """Close all runtimes: their clients must look for another coordinator (N-15)."""
        self._error = ErrorCode.NOT_COORDINATOR
        self._reloads.clear()
        for runtime in self:
            runtime.close()
        self._timer.close()

    # --- Deadlines ---

    def run_due(self, monotonic_ms: int) -> None:
        """Act on deadlines up to this time of the monotonic clock. If there are more than
        DEADLINES_AT_ONCE, the timer is due for the others in the next turn of the loop."""
        now = Instant(monotonic_ms, self._clock.wall_ms())
        left = DEADLINES_AT_ONCE
        for runtime in self:
            left -= runtime.run_due(now, left)
            self._carry_out(runtime)
        for index in [index for index, at in self._reloads.items() if at.at_ms <= monotonic_ms]:
            self._reload(index, now)
        self._timer.set(self.next_deadline_ms())

    def next_deadline_ms(self) -> int | None:
        """The time at which `run_due` has work to do; None if no deadline is set."""
        deadlines = [runtime.next_deadline_ms() for runtime in self]
        deadlines += [reload.at_ms for reload in self._reloads.values()]
        return min((at_ms for at_ms in deadlines if at_ms is not None), default=None)

    def _follow_up(self, runtime: Runtime[C]) -> None:
        """Carry out the effects of the runtime's decision, and set the timer."""
        self._carry_out(runtime)
        self._timer.bring_forward(runtime.next_deadline_ms())

    # --- Requests ---

    def ask(
        self,
        key: str,
        decide: Callable[[C, Deferred[A], Instant], Decision],
        refuse: Callable[[ErrorCode], A],
    ) -> Deferred[A]:
        """Let the core of the key decide a request; the core gives the answer or parks it.

        `refuse` makes the answer if the core is not available.
        """
        runtime, error = self.find(key)
        if runtime is None or error is not ErrorCode.NONE:
            return Deferred.of(refuse(error))
        return self.ask_core(runtime, decide, refuse)

    def ask_core(
        self,
        runtime: Runtime[C],
        decide: Callable[[C, Deferred[A], Instant], Decision],
        refuse: Callable[[ErrorCode], A],
    ) -> Deferred[A]:
        """Like `ask`, for a runtime that is active."""
        deferred: Deferred[A] = Deferred()

        def stopped(error: ErrorCode) -> None:
            if not deferred.done:
                deferred.resolve(refuse(error))

        runtime.run(lambda now: decide(runtime.core, deferred, now), stopped)
        return deferred

    def read(
        self,
        key: str,
        select: Callable[[C], A | Coroutine[Any, Any, A]],
        refuse: Callable[[ErrorCode], A],
    ) -> Deferred[A]:
        """The result of `select` for the core of the key, once the state that `select` reads is
        durable."""
        return self.ask(
            key,
            lambda core, deferred, _: _selected(select(core), deferred, refuse),
            refuse,
        )

    async def read_all(
        self, select: Callable[[C], Iterable[S]], show: Callable[[S], T]
    ) -> tuple[ErrorCode, list[T]]:
        """Select things in all cores and show them, in slices. Returns the results once all state
        that `select` and `show` have read is durable. If a core is not available, the error of this
        core."""
        errors = [runtime.error for runtime in self if runtime.error is not ErrorCode.NONE]
        error = errors[0] if errors else self._error
        found: list[T] = []
        durable: list[Deferred[ErrorCode]] = []
        async for runtime in paced(() if error else self):
            found += [show(each) async for each in paced(select(runtime.core))]
            durable.append(self._durable(runtime))
        async for each in paced(durable):
            error = error or await each
        return error, [] if error else found

    def _durable(self, runtime: Runtime[C]) -> Deferred[ErrorCode]:
        """Resolves when the present state of a core is durable, or with an error."""
        deferred: Deferred[ErrorCode] = Deferred()
        if runtime.error is not ErrorCode.NONE:
            return Deferred.of(runtime.error)
        reply = Reply(deferred, ErrorCode.NONE, _identity)
        runtime.run(lambda _: CoreOutcome(replies=[reply]), deferred.resolve)
        return deferred

    def partition_of(self, key: str) -> int | None:
        """The partition of the topic to which the key belongs; None if the topic does not exist
        yet."""
        count = self._metadata.partition_count(self._topic)
        return self._partition_for(key, count) if count else None

    def find(self, key: str) -> tuple[Runtime[C] | None, ErrorCode]:
        """The runtime of a key, and the error if the runtime is not available (G-20, T-58, D8)."""
        error = self._error or self._check_key(key)
        if error is not ErrorCode.NONE:
            return None, error
        index = self.partition_of(key)
        if index is None:
            return None, ErrorCode.COORDINATOR_NOT_AVAILABLE
        runtime = self._runtimes.get(index)
        if runtime is None:
            partition = self._internal_partition(self._topic, index)
            if partition is None:
                return None, ErrorCode.NOT_COORDINATOR
            # The topic was created after the start.
            runtime = self._runtimes[index] = self._new_runtime(index, partition)
            while runtime.state is RuntimeState.LOADING:
                self._load_slice(index, runtime)
        if self._is_stale(index, runtime.core):
            return runtime, ErrorCode.NOT_COORDINATOR
        return runtime, runtime.error

    def core(self, key: str) -> C | None:
        """The core of a key, for reading only; None if this broker does not have it."""
        runtime, _ = self.find(key)
        return None if runtime is None else runtime.core

    # --- Inside ---

    @property
    def _is_closed(self) -> bool:
        return self._error is ErrorCode.NOT_COORDINATOR

    def _new_runtime(self, index: int, partition: InternalPartition) -> Runtime[C]:
        runtime: Runtime[C] = self._runtime_class(
            self._new_core(index),
            partition,
            self._now,
            follow_up=lambda: self._follow_up(runtime),
        )
        return runtime

    def _load_slice(self, index: int, runtime: Runtime[C]) -> None:
        try:
            runtime.load()
        except (WireError, StorageError) as error:
            # The core stays inactive, because an incomplete state would give wrong answers. Clients
            # repeat their requests until a later load succeeds.
            before = self._reloads.get(index)
            pause_ms = RELOAD_MS if before is None else min(before.pause_ms * 2, RELOAD_MS_MAX)
            at_ms = self._clock.monotonic_ms() + pause_ms
            self._reloads[index] = _Reload(at_ms, pause_ms)
            self._timer.bring_forward(at_ms)
            structlog.get_logger(f"odradek.{self._name}").error(
                f"{self._name} cannot be loaded: a record cannot be read; the broker tries again",
                topic=self._topic,
                partition=index,
                error=str(error),
                next_try_in_ms=pause_ms,
            )

    def _reload(self, index: int, now: Instant) -> None:
        """Read one slice in another attempt to load the partition, with a new runtime."""
        runtime = self._runtimes[index]
        if runtime.state is RuntimeState.FAILED:
            partition = self._internal_partition(self._topic, index)
            if partition is None:
                del self._reloads[index]
                return
            runtime = self._runtimes[index] = self._new_runtime(index, partition)
        if runtime.state is RuntimeState.LOADING:
            # The next slice of the load, if there is one, is read in the next turn of the loop.
            self._reloads[index] = self._reloads[index]._replace(at_ms=now.monotonic_ms)
            self._load_slice(index, runtime)
        if runtime.state is RuntimeState.ACTIVE:
            del self._reloads[index]
            self._on_loaded()

    def _now(self) -> Instant:
        clock = self._clock
        return Instant(clock.monotonic_ms(), clock.wall_ms())


def _identity(error: ErrorCode) -> ErrorCode:
    return error


def _selected(
    found: A | Coroutine[Any, Any, A], deferred: Deferred[Any], refuse: Callable[[ErrorCode], Any]
) -> Decision:
    """The decision to answer with what was found."""
    if not isinstance(found, Coroutine):
        return CoreOutcome(replies=[Reply(deferred, found, refuse)])

    async def wait() -> CoreOutcome:
        return CoreOutcome(replies=[Reply(deferred, await found, refuse)])

    return wait()
