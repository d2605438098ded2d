"""The fetch purgatory: Fetch requests that wait for data (rules F-01, F-03, N-10, N-15).

A parked fetch watches its partitions. It is answered when one of them has moved far enough or cannot
be read any more, when its max.wait.ms is over, or when the broker stops; it is dropped when its client
goes away. A partition calls its watchers when its high watermark or its last stable offset moves, when
its log goes offline and when it is deleted (`Partition.data_waiters`); nobody is called for a
partition that nobody watches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek_broker.deferred import Deferred
from odradek_broker.partition import Partition
from odradek_broker.platform.seams import Scheduler, Timer
from odradek_protocol.schemas.fetch import FetchResponse


class Fetch(Protocol):
    """A Fetch request that may be read more than once until it is answered."""

    def satisfied(self) -> bool:
        """True if there are enough bytes, or an error: waiting longer would change nothing (F-01)."""
        ...

    def read(self) -> FetchResponse:
        """The answer with what can be read now."""
        ...


class ParkedFetches:
    """The parked fetches of one broker; its length is their number."""

    __slots__ = ("_parked", "_scheduler")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._parked: dict[ParkedFetch, None] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(
        self, fetch: Fetch, partitions: Sequence[Partition], max_wait_ms: int
    ) -> Deferred[FetchResponse]:
        """The answer of `fetch` once it is satisfied by one of `partitions`, or its time is over."""
        parked = ParkedFetch(fetch, partitions, self._parked)
        parked.timer = self._scheduler.call_later(max_wait_ms, parked.answer)
        return parked

    def answer_all(self) -> None:
        """Answer every parked fetch with what can be read now: the broker stops (N-15)."""
        for parked in list(self._parked):
            parked.answer()


class ParkedFetch(Deferred[FetchResponse]):
    """One of them, and the answer that it becomes."""

    __slots__ = ("_fetch", "_parked", "_partitions", "timer")

    def __init__(
        self,
        fetch: Fetch,
        partitions: Sequence[Partition],
        parked: dict[ParkedFetch, None],
    ) -> None:
        super().__init__()
        self._fetch = fetch
        self._partitions = partitions
        self._parked = parked
        #: Runs out with max.wait.ms.
        self.timer: Timer | None = None
        self.on_abandon = self._unwatch
        for partition in partitions:
            partition.data_waiters[self._try_to_answer] = None
        parked[self] = None

    def answer(self) -> None:
        """Answer with what can be read now, unless it was answered before."""
        self._unwatch()
        if not self.done:
            self.resolve(self._fetch.read())

    def _try_to_answer(self) -> None:
        if self._fetch.satisfied():
            self.answer()

    def _unwatch(self) -> None:
        for partition in self._partitions:
            partition.data_waiters.pop(self._try_to_answer, None)
        self._parked.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()
