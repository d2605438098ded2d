"""Partitions for a producer's next transaction wait here while its last one is being ended (T-68).

Markers usually take less time than the pause that clients make after CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_broker.coordinator.runtime import Reply
from odradek_broker.coordinator.timers import Timers
from odradek_broker.coordinator.transactions.calls import AddCall
from odradek_broker.coordinator.transactions.deadlines import Deadline, TimerName
from odradek_broker.coordinator.transactions.interfaces import PartitionCodes
from odradek_broker.deferred import Deferred
from odradek_protocol.errors import ErrorCode

#: How long the partitions of a batch wait (T-68).
PARK_MS = 2_000
#: How long a client's AddPartitionsToTxn does, which has an answer for it (T-20): shorter than the
#: pause that clients make after CONCURRENT_TRANSACTIONS, longer than markers usually take.
PARK_CLIENT_MS = 50
#: How many calls of one id may wait.
PARKED_MAX = 100


class ParkedCall(NamedTuple):
    """A call that waits until `until_ms` of the monotonic clock, at most."""

    call: AddCall
    deferred: Deferred[PartitionCodes]
    until_ms: int

    def answer(self, error: ErrorCode) -> Reply[PartitionCodes]:
        """The same code for every partition, whatever becomes of the records before it."""
        codes = dict.fromkeys(self.call.partitions, error)
        return Reply(self.deferred, codes, lambda _: codes)


class Parking:
    """The parked calls of one shard. Each has a deadline in the shard's timers, which is its name."""

    def __init__(self, timers: Timers[TimerName]) -> None:
        self._timers = timers
        self._calls: dict[TimerName, ParkedCall] = {}
        self._of_id: dict[str, list[TimerName]] = {}
        self._next_number = 0

    def park(self, call: AddCall, deferred: Deferred[PartitionCodes], until_ms: int) -> bool:
        """Wait until then; False if too many calls of the id do."""
        name = call.transactional_id
        if len(self._of_id.get(name, ())) >= PARKED_MAX:
            return False
        self._next_number += 1
        timer = TimerName(Deadline.PARKED, name, self._next_number)
        self._of_id.setdefault(name, []).append(timer)
        self._calls[timer] = ParkedCall(call, deferred, until_ms)
        self._timers.set(timer, until_ms)
        return True

    def of_id(self, transactional_id: str) -> list[TimerName]:
        """The calls of an id that wait, the first one first."""
        return list(self._of_id.get(transactional_id, ()))

    def take(self, timer: TimerName) -> ParkedCall | None:
        """A call that waits no more; None if it was taken before."""
        parked = self._calls.pop(timer, None)
        if parked is not None:
            self._timers.cancel(timer)
            waiting = self._of_id[timer.transactional_id]
            waiting.remove(timer)
            if not waiting:
                del self._of_id[timer.transactional_id]
        return parked

    def clear(self) -> list[ParkedCall]:
        """All calls, which wait no more."""
        return [parked for timer in list(self._calls) if (parked := self.take(timer)) is not None]
