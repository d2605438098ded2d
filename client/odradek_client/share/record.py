"""`ShareRecord`: a record that this consumer has acquired, and its acknowledgement.

A record is in one of these states; `RECORD_STEPS` has the legal steps::

    ACQUIRED   returned to the application, which has not acknowledged it; its lock is running
    ANSWERED   acknowledged by the application; the broker's answer has not arrived yet
    DONE       the broker has carried out the acknowledgement
    FAILED     the broker has refused it, or the lock has expired: `error` has the reason
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from types import TracebackType
from typing import Any, Protocol, Self

from odradek_client.errors import IllegalState, OdradekError
from odradek_client.share.acknowledgements import AcknowledgeType, TopicIdPartition
from odradek_client.share.errors import Reject, Release
from odradek_client.structs import ConsumerRecord, TopicPartition
from odradek_protocol.records.record import Headers, TimestampType


class DeliveryState(Enum):
    """The state of a record."""

    ACQUIRED = "acquired"
    ANSWERED = "answered"
    DONE = "done"
    FAILED = "failed"


_S = DeliveryState
#: The states that may follow each state.
RECORD_STEPS: dict[DeliveryState, frozenset[DeliveryState]] = {
    _S.ACQUIRED: frozenset({_S.ANSWERED, _S.FAILED}),
    _S.ANSWERED: frozenset({_S.DONE, _S.FAILED}),
    _S.DONE: frozenset(),
    _S.FAILED: frozenset(),
}


class Holder(Protocol):
    """The methods of the consumer that its records call."""

    def answer(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Send an acknowledgement."""

    def begin_handling(self, record: ShareRecord) -> None:
        """Renew the lock of the record from now on, until `end_handling`."""

    def end_handling(self, record: ShareRecord) -> None:
        """Undo `begin_handling`."""

    def note_decision(self, record: ShareRecord, decision: Reject | Release) -> None:
        """Called when a handler has raised `Reject` or `Release`."""

    def new_waiter(self) -> Any:
        """A new awaitable, with the methods `done` and `set_result`."""


class ShareRecord:
    """A record as a share consumer read it, with the attributes of a `ConsumerRecord`.

    `delivery_count`: the number of times that the group has delivered it, from 1 on.

        async with record:
            ...

    renews the lock of the record while the block runs, and accepts the record at its end. If an
    exception ends the block, the record is released. The exceptions `Reject` and `Release` end the
    block and reject or release the record, but are not passed on. With a blocking consumer, use
    `with`.
    """

    __slots__ = (
        "_handled",
        "_holder",
        "_raw",
        "_waiters",
        "answer",
        "deadline_ms",
        "delivery_count",
        "error",
        "handled_since_ms",
        "key",
        "leader_epoch",
        "node_id",
        "offset",
        "place",
        "renew_at_ms",
        "state",
        "value",
    )

    def __init__(
        self,
        holder: Holder,
        place: TopicIdPartition,
        node_id: int,
        raw: ConsumerRecord,
        delivery_count: int,
        deadline_ms: float,
    ) -> None:
        self._holder = holder
        self._raw = raw
        self.place = place
        self.node_id = node_id
        self.offset = raw.offset
        self.key: Any = raw.key
        self.value: Any = raw.value
        self.leader_epoch = raw.leader_epoch
        self.delivery_count = delivery_count
        self.state = DeliveryState.ACQUIRED
        #: The application's acknowledgement; None if it has not acknowledged the record.
        self.answer: AcknowledgeType | None = None
        #: The reason why the acknowledgement has no effect; None if it has an effect or no result
        #: yet.
        self.error: OdradekError | None = None
        #: The time at which the lock expires (clock of the event loop).
        self.deadline_ms = deadline_ms
        self.renew_at_ms = 0.0
        #: The time at which the application began to handle the record with `async with`, or None.
        self.handled_since_ms: float | None = None
        self._handled = False
        self._waiters: list[Any] = []

    @property
    def topic(self) -> str:
        """The topic."""
        return self.place.topic

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self.place.partition

    @property
    def timestamp(self) -> int:
        """The timestamp in ms, -1 for none."""
        return self._raw.timestamp

    @property
    def timestamp_type(self) -> TimestampType:
        """The source of the timestamp."""
        return self._raw.timestamp_type

    @property
    def headers(self) -> Headers:
        """The headers in the order in which they were written."""
        return self._raw.headers

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(self.place.topic, self.place.partition)

    @property
    def is_handled(self) -> bool:
        """True inside the block of `async with record`."""
        return self._handled

    def __repr__(self) -> str:
        return (
            f"<ShareRecord {self.topic}-{self.partition}, offset {self.offset}, delivery "
            f"{self.delivery_count}, {self.state.value}>"
        )

    # --- answers ---

    def acknowledge(self, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> Acknowledgement:
        """Acknowledge the record: accept, release (deliver again) or reject (never deliver again).

        Returns the result; awaiting it is optional. RENEW only restarts the time of the lock.
        Raises IllegalState if the record was acknowledged already. If the lock of the record has
        expired, the call has no effect, and the result is LockExpired.
        """
        kind = AcknowledgeType(kind)
        if self.answer is not None:
            raise IllegalState(f"{self!r} was acknowledged already ({self.answer.name})")
        if kind is not AcknowledgeType.RENEW:
            self.answer = kind
        if self.state is DeliveryState.ACQUIRED:
            self._holder.answer(self, kind)
        return Acknowledgement(self)

    def accept(self) -> Acknowledgement:
        """Acknowledge the record as processed."""
        return self.acknowledge(AcknowledgeType.ACCEPT)

    def release(self) -> Acknowledgement:
        """Return the record to the group, so that the group delivers it again."""
        return self.acknowledge(AcknowledgeType.RELEASE)

    def reject(self) -> Acknowledgement:
        """Refuse the record, so that the group does not deliver it again."""
        return self.acknowledge(AcknowledgeType.REJECT)

    def step(self, state: DeliveryState, error: OdradekError | None = None) -> None:
        """Enter a state, and wake all waiters for the result. IllegalState for a step that is not
        in the table."""
        if state not in RECORD_STEPS[self.state]:
            raise IllegalState(f"a record cannot go from {self.state.value} to {state.value}")
        self.state, self.error = state, error
        if state in (DeliveryState.DONE, DeliveryState.FAILED):
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def wait(self) -> Any:
        """An awaitable that ends when the result is known."""
        waiter = self._holder.new_waiter()
        self._waiters.append(waiter)
        return waiter

    # --- handling ---

    def __enter__(self) -> Self:
        self._handled = True
        self._holder.begin_handling(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._handled = False
        self._holder.end_handling(self)
        decided = isinstance(error, Reject | Release)
        if isinstance(error, Reject | Release):
            self._holder.note_decision(self, error)
        if self.answer is None:
            if error is None:
                self.accept()
            elif isinstance(error, Reject):
                self.reject()
            else:
                self.release()
        return decided

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        return self.__exit__(kind, error, traceback)


class Acknowledgement:
    """The result of an acknowledgement. Await it: it raises if the acknowledgement has no effect;
    the group then delivers the record again.

    May be awaited any number of times, by several tasks, or not at all.
    """

    __slots__ = ("record",)

    def __init__(self, record: ShareRecord) -> None:
        self.record = record

    def __await__(self) -> Generator[Any, None, None]:
        while not self.done():
            yield from self.record.wait().__await__()
        self.result()

    def done(self) -> bool:
        """True if the result is known."""
        return self.record.state in (DeliveryState.DONE, DeliveryState.FAILED)

    def result(self) -> None:
        """Raise the error of a failed acknowledgement. IllegalState before the result is known."""
        error = self.exception()
        if error is not None:
            raise error.with_traceback(None)

    def exception(self) -> OdradekError | None:
        """The reason why the acknowledgement has no effect; None if it has an effect. Raises
        IllegalState while the result is not known."""
        if not self.done():
            raise IllegalState("the acknowledgement is still on its way; await it")
        return self.record.error
