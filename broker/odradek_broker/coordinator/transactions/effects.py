"""The effects of a shard's decisions outside of it: taking producer ids and sending markers.

A shard only says so, by putting an effect into its outbox. Here the effects are carried out, after the
decision that they come from; what comes of them is the shard's next decision.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from odradek_broker.coordinator.runtime import Core, Instant, Outcome, Runtime, RuntimeState
from odradek_broker.coordinator.transactions.interfaces import MarkerRequest, MarkerWriter
from odradek_broker.deferred import Deferred
from odradek_broker.topic_partition import TopicPartition
from odradek_protocol.errors import ErrorCode

log = structlog.get_logger("odradek.transactions")

#: Transactions whose markers are on their way at the same time; the others wait their turn.
MARKERS_IN_FLIGHT_MAX = 500


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """To be written by the partitions' leaders; the codes come back to `markers_answered`."""

    transactional_id: str
    request: MarkerRequest


@dataclass(frozen=True, slots=True)
class TakeProducerId:
    """A producer id is needed. `decide` goes on with it, or with None if there is none."""

    transactional_id: str
    decide: Callable[[int | None, Instant], Outcome]
    refuse: Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True)
class DecideAgain:
    """A call that was parked may go on."""

    decide: Callable[[Instant], Outcome]


Effect = SendMarkers | TakeProducerId | DecideAgain


class EffectsCore(Core, Protocol):
    """A core with effects."""

    outbox: deque[Effect]

    def markers_answered(
        self, sent: SendMarkers, codes: Mapping[TopicPartition, ErrorCode], now: Instant
    ) -> Outcome:
        """The leaders' answers to one `SendMarkers`."""
        ...


C = TypeVar("C", bound=EffectsCore)


class EffectsEnv(MarkerWriter, Protocol):
    """The node's producer ids and marker writer."""

    def next_producer_id(self) -> Deferred[int | None]:
        """An id that was never given out (P-29); None if that failed."""
        ...


class Effects(Generic[C]):
    """Carries out the effects of all shards."""

    def __init__(self, env: EffectsEnv) -> None:
        self._env = env
        self._at_work: set[Runtime[C]] = set()
        self._markers_waiting: deque[tuple[Runtime[C], SendMarkers]] = deque()
        self._markers_in_flight = 0

    def carry_out(self, runtime: Runtime[C]) -> None:
        """Do what the shard wants done, until it wants nothing more.

        Answers that are there at once come back in here; the outer call does their work too, so
        that nothing nests deeper and deeper.
        """
        if runtime in self._at_work:
            return
        self._at_work.add(runtime)
        try:
            while runtime.core.outbox and runtime.state is RuntimeState.ACTIVE:
                self._do(runtime, runtime.core.outbox.popleft())
        finally:
            self._at_work.discard(runtime)

    def _do(self, runtime: Runtime[C], effect: Effect) -> None:
        if isinstance(effect, TakeProducerId):
            self._take_producer_id(runtime, effect)
        elif isinstance(effect, SendMarkers):
            self._markers_waiting.append((runtime, effect))
            self._send_waiting()
        else:
            runtime.run(effect.decide)

    # --- Producer ids ---

    def _take_producer_id(self, runtime: Runtime[C], effect: TakeProducerId) -> None:
        def given(producer_id: int | None) -> None:
            if runtime.state is RuntimeState.ACTIVE:
                runtime.run(lambda now: effect.decide(producer_id, now))
            else:
                effect.refuse(runtime.error)

        self._env.next_producer_id().then(given)

    # --- Markers ---

    def _send_waiting(self) -> None:
        while self._markers_waiting and self._markers_in_flight < MARKERS_IN_FLIGHT_MAX:
            runtime, sent = self._markers_waiting.popleft()
            if runtime.state is RuntimeState.ACTIVE:
                self._send(runtime, sent)

    def _send(self, runtime: Runtime[C], sent: SendMarkers) -> None:
        self._markers_in_flight += 1

        def answered(codes: Mapping[TopicPartition, ErrorCode]) -> None:
            self._markers_in_flight -= 1
            _log_refusals(sent, codes)
            if runtime.state is RuntimeState.ACTIVE:
                runtime.run(lambda now: runtime.core.markers_answered(sent, codes, now))
            self._send_waiting()

        self._env.write_markers([sent.request]).then(answered)


def _log_refusals(sent: SendMarkers, codes: Mapping[TopicPartition, ErrorCode]) -> None:
    for (topic, index), code in codes.items():
        if code is not ErrorCode.NONE and not code.retriable:
            log.error(
                "a transaction marker was refused",
                transactional_id=sent.transactional_id,
                topic=topic,
                partition=index,
                error=code.name,
            )
