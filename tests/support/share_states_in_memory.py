"""A share coordinator in memory; a test can delay or refuse its responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from odradek_broker.deferred import Deferred, gather
from odradek_broker.share_state import ShareKey, ShareState, StateResult
from odradek_protocol.errors import ErrorCode


class ShareStatesInMemory:
    """The states of share partitions, by key.

    `hold`: calls are carried out only at `flush`. `waiting`: the calls that wait. `refuse`: the
    error of every call. `refused`: the share partitions for which calls fail.
    """

    def __init__(self) -> None:
        self.states: dict[ShareKey, ShareState] = {}
        self.hold = False
        self.refuse = ErrorCode.NONE
        self.refused: set[ShareKey] = set()
        self.waiting: list[Callable[[], None]] = []

    def initialize_all(
        self, state_epoch: int, offsets: Mapping[ShareKey, int]
    ) -> Deferred[Mapping[ShareKey, StateResult]]:
        def act(key: ShareKey) -> StateResult:
            self.states[key] = ShareState(0, state_epoch, 0, offsets[key])
            return StateResult()

        return self._answer_all(offsets, act)

    def read_summaries(self, keys: Iterable[ShareKey]) -> Deferred[Mapping[ShareKey, StateResult]]:
        return self._answer_all(keys, lambda key: StateResult(state=self.states.get(key)))

    def delete_all(self, keys: Iterable[ShareKey]) -> Deferred[Mapping[ShareKey, StateResult]]:
        def act(key: ShareKey) -> StateResult:
            self.states.pop(key, None)
            return StateResult()

        return self._answer_all(keys, act)

    def _answer_all(
        self, keys: Iterable[ShareKey], act: Callable[[ShareKey], StateResult]
    ) -> Deferred[Mapping[ShareKey, StateResult]]:
        def one(key: ShareKey) -> StateResult:
            if key in self.refused:
                return StateResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, "refused")
            return act(key)

        asked = {key: self._answer(partial(one, key)) for key in keys}
        return gather(list(asked.values())).map(
            lambda results: dict(zip(asked, results, strict=True))
        )

    def _answer(self, act: Callable[[], StateResult]) -> Deferred[StateResult]:
        deferred: Deferred[StateResult] = Deferred()

        def run() -> None:
            refused = self.refuse is not ErrorCode.NONE
            deferred.resolve(StateResult(self.refuse, "refused") if refused else act())

        self.waiting.append(run)
        if not self.hold:
            self.flush()
        return deferred

    def flush(self, calls: int | None = None) -> None:
        """Carry out and answer the waiting calls, oldest first; `calls` limits their number."""
        waiting = self.waiting[:calls]
        del self.waiting[:calls]
        for run in waiting:
            run()
