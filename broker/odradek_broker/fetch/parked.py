"""The fetch purgatory, in which Fetch requests wait for data (rules F-01, F-03, N-10, N-15).

A parked fetch watches its partitions. The fetch is answered when one of them has enough new data or
can no longer be read, when max.wait.ms is over, or when the broker stops; it is dropped when its
client disconnects. A partition calls its watchers (`Partition.data_waiters`) when its high
watermark or its last stable offset moves, when its log goes offline and when the partition is
deleted. A fetch session watches the partitions at which it is up to date; when one of these
partitions changes, the session adds it to its parked fetch (`fetch/sessions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.fetch.sessions import FetchSession, RequestedPartition
from odradek_broker.partition import Partition, Waiter
from odradek_broker.platform.timeouts import Timeouts
from odradek_broker.slices import in_pieces

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


Include = Callable[[RequestedPartition, Partition], None]


class Watched(Protocol):
    """A partition or share partition whose changes may end a wait."""

    @property
    def data_waiters(self) -> dict[Waiter, None]:
        """The callbacks for a change of the partition, called with the partition and in the order
        of this dict."""
        ...


class DelayedFetch(Protocol[A_co]):
    """A Fetch or ShareFetch request, which may be read several times before it is answered."""

    def satisfied(self) -> bool:
        """True if there are enough bytes, or an error, so that the wait ends (F-01)."""
        ...

    def read(self) -> A_co:
        """The answer with the records that can be read now."""
        ...


class LargeFetch(Protocol):
    """A fetch of so many partitions that they are not all looked at whenever one changes."""

    @property
    def min_bytes(self) -> int: ...

    def available_bytes(self, requested: Any) -> int:
        """The bytes that can be read of a partition, at most as many as are requested; -1 if the
        fetch is to be answered, because of an error."""
        ...


class ParkedFetches:
    """The parked fetches of one broker; `len()` is the number of parked fetches."""

    __slots__ = ("_parked", "_stopping", "_timeouts")

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._stopping = False
        self._parked: dict[ParkedFetch[Any] | WaitOfMany, None] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(
        self,
        fetch: DelayedFetch[A],
        partitions: Sequence[Watched],
        max_wait_ms: int,
        session: FetchSession | None = None,
        include: Include | None = None,
    ) -> Deferred[A]:
        """The answer to `fetch`, as soon as one of `partitions` or a partition of the session
        satisfies the fetch, or when `max_wait_ms` is over. `include` is called to add a partition
        at which the session is no longer up to date."""
        if self._stopping:
            max_wait_ms = 0
        parked = ParkedFetch(
            fetch, partitions, self._parked, session, include, self._timeouts, max_wait_ms
        )
        self._timeouts.begin(parked, max_wait_ms)
        return parked

    def wait(
        self,
        fetch: LargeFetch,
        max_wait_ms: int,
        session: FetchSession | None = None,
        include: Include | None = None,
    ) -> WaitOfMany:
        """The wait of a fetch of many partitions, for `max_wait_ms`. The caller adds the partitions
        in slices, and calls `forget` at the end. `session`, `include`: see `park`."""
        if self._stopping:
            max_wait_ms = 0
        waiting = WaitOfMany(fetch, self._parked, session, include, self._timeouts, max_wait_ms)
        self._timeouts.begin(waiting, max_wait_ms)
        return waiting

    def answer_all(self) -> None:
        """Answer every parked fetch, and those that will be parked, with the records that can be
        read, because the broker stops (N-15)."""
        self._stopping = True
        for parked in list(self._parked):
            parked.answer()


class ParkedFetch(Deferred[A]):
    """A parked fetch, and the deferred of its answer."""

    __slots__ = (
        "_fetch",
        "_include",
        "_max_wait_ms",
        "_parked",
        "_partitions",
        "_session",
        "_timeouts",
    )

    def __init__(
        self,
        fetch: DelayedFetch[A],
        partitions: Sequence[Watched],
        parked: dict[ParkedFetch[Any] | WaitOfMany, None],
        session: FetchSession | None,
        include: Include | None,
        timeouts: Timeouts,
        max_wait_ms: int,
    ) -> None:
        super().__init__()
        self._fetch = fetch
        self._session = session
        self._include = include
        self._partitions: list[Watched] = [*partitions]
        self._parked = parked
        self._timeouts = timeouts
        self._max_wait_ms = max_wait_ms
        self.on_abandon = self._unwatch
        # All partitions share one bound method, because a fetch may have thousands of partitions.
        waiter = self._try_to_answer
        for partition in partitions:
            partition.data_waiters[waiter] = None
        if session is not None:
            session.waiting = self
        parked[self] = None

    def answer(self) -> None:
        """Answer with the records that can be read now, unless the fetch was answered before."""
        self._unwatch()
        if not self.done:
            self.resolve(self._fetch.read())

    def timed_out(self) -> None:
        """Answer with the records that can be read now, because max.wait.ms is over."""
        self.answer()

    def include(self, requested: RequestedPartition, partition: Partition) -> None:
        """Add a partition to the parked fetch, because the session is no longer up to date at this
        partition."""
        assert self._include is not None, "a fetch with a session includes partitions"
        self._include(requested, partition)
        self._partitions.append(partition)
        partition.data_waiters[self._try_to_answer] = None

    def _try_to_answer(self, _: Watched) -> None:
        if self._fetch.satisfied():
            self.answer()

    def _unwatch(self) -> None:
        waiter = self._try_to_answer
        for partition in self._partitions:
            partition.data_waiters.pop(waiter, None)
        if self._session is not None and self._session.waiting is self:
            self._session.waiting = None
        self._parked.pop(self, None)
        self._timeouts.end(self, self._max_wait_ms)


class WaitOfMany(Deferred[None]):
    """The wait of a fetch of many partitions. The available bytes of each are kept, so a change of
    one partition takes the same time however many others the fetch has."""

    __slots__ = (
        "_available_bytes",
        "_bytes",
        "_fetch",
        "_include",
        "_max_wait_ms",
        "_parked",
        "_session",
        "_timeouts",
        "_watched",
    )

    def __init__(
        self,
        fetch: LargeFetch,
        parked: dict[ParkedFetch[Any] | WaitOfMany, None],
        session: FetchSession | None,
        include: Include | None,
        timeouts: Timeouts,
        max_wait_ms: int,
    ) -> None:
        super().__init__()
        self._fetch = fetch
        self._parked = parked
        self._session = session
        self._include = include
        self._timeouts = timeouts
        self._max_wait_ms = max_wait_ms
        #: The partitions as they were requested, by what is watched for them.
        self._watched: dict[Watched, Any] = {}
        self._bytes: dict[Any, int] = {}
        self._available_bytes = 0
        parked[self] = None
        if session is not None:
            session.waiting = self

    def watch(self, requested: Any, partition: Watched | None) -> None:
        """Add a partition of the fetch; None if it does not exist, so that the fetch is answered.
        The fetch is answered when this partition, or all together, have what it waits for."""
        if partition is None:
            self.answer()
        elif not self.done:
            self._watched[partition] = requested
            partition.data_waiters[self._changed] = None
            self._changed(partition)

    def include(self, requested: RequestedPartition, partition: Partition) -> None:
        """Add a partition to the fetch, because the session is no longer up to date at this
        partition."""
        assert self._include is not None, "a fetch with a session includes partitions"
        self._include(requested, partition)
        self.watch(requested, partition)

    def _changed(self, partition: Watched) -> None:
        if self.done:
            return
        requested = self._watched[partition]
        available_bytes = self._fetch.available_bytes(requested)
        self._available_bytes += available_bytes - self._bytes.get(requested, 0)
        self._bytes[requested] = available_bytes
        if available_bytes < 0:
            self.answer()
        self.check()

    def check(self) -> None:
        """End the wait if there are enough bytes."""
        if self._available_bytes >= self._fetch.min_bytes:
            self.answer()

    def answer(self) -> None:
        """End the wait, unless it has ended."""
        if not self.done:
            self._end()
            self.resolve(None)

    def timed_out(self) -> None:
        """End the wait, because max.wait.ms is over."""
        self.answer()

    def _end(self) -> None:
        if self._session is not None and self._session.waiting is self:
            self._session.waiting = None
        self._parked.pop(self, None)
        self._timeouts.end(self, self._max_wait_ms)

    async def forget(self) -> None:
        """Drop the wait, if it has not ended, and let no partition refer to it."""
        self._end()
        waiter = self._changed
        async for some in in_pieces(self._watched):
            for partition in some:
                partition.data_waiters.pop(waiter, None)
