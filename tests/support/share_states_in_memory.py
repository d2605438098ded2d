"""A share coordinator in memory, whose answers can be delayed or refused."""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.deferred import Deferred
from odradek_broker.share_state import ShareKey, ShareState, StateResult
from odradek_protocol.errors import ErrorCode


class ShareStatesInMemory:
    """The states of share partitions, by key.

    `hold`: calls take effect and are answered at `flush`. `waiting`: the
    calls that wait. `refuse`: the error of every call.
    """

    def __init__(self) -> None:
        self.states: dict[ShareKey, ShareState] = {}
        self.hold = False
        self.refuse = ErrorCode.NONE
        self.waiting: list[Callable[[], None]] = []

    def initialize(
        self, key: ShareKey, state_epoch: int, start_offset: int
    ) -> Deferred[StateResult]:
        def act() -> StateResult:
            self.states[key] = ShareState(0, state_epoch, 0, start_offset)
            return StateResult()

        return self._answer(act)

    def read_summary(self, key: ShareKey, leader_epoch: int) -> Deferred[StateResult]:
        return self._answer(lambda: StateResult(state=self.states.get(key)))

    def delete(self, key: ShareKey) -> Deferred[StateResult]:
        def act() -> StateResult:
            self.states.pop(key, None)
            return StateResult()

        return self._answer(act)

    def _answer(self, act: Callable[[], StateResult]) -> Deferred[StateResult]:
        deferred: Deferred[StateResult] = Deferred()

        def run() -> None:
            refused = self.refuse is not ErrorCode.NONE
            deferred.resolve(StateResult(self.refuse, "refused") if refused else act())

        self.waiting.append(run)
        if not self.hold:
            self.flush()
        return deferred

    def flush(self) -> None:
        """Carry out and answer the calls that wait."""
        waiting, self.waiting = self.waiting, []
        for run in waiting:
            run()
