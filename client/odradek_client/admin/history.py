"""The history of a transactional id, a producer id, a group, a partition, a record of a share
group, a client id or a mirror topic, as text.

Only Odradek's broker keeps a history; with other brokers the call raises UnsupportedByBroker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from odradek_client.admin.requests import AdminPart
from odradek_client.errors import (
    ConnectionLost,
    CoordinatorUnavailable,
    NotCoordinator,
    NothingKnown,
    RequestTimedOut,
    UnsupportedByBroker,
    error_for,
)
from odradek_protocol.constants import GROUP_COORDINATOR, TRANSACTION_COORDINATOR
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_history as wire
from odradek_protocol.schemas.describe_broker import NumberedEvent
from odradek_protocol.schemas.describe_history import (
    DescribeHistoryRequest,
    DescribeHistoryResponse,
)


class Subject(Enum):
    """The types of subjects that have a history, with the name of each type."""

    TRANSACTIONAL_ID = "transactional id"
    PRODUCER_ID = "producer id"
    GROUP = "group"
    PARTITION = "partition"
    SHARE_RECORD = "record of a share group"
    CLIENT = "client id"
    MIRROR = "mirror topic"


_TYPES = {
    Subject.TRANSACTIONAL_ID: wire.TRANSACTIONAL_ID,
    Subject.PRODUCER_ID: wire.PRODUCER_ID,
    Subject.GROUP: wire.GROUP,
    Subject.PARTITION: wire.PARTITION,
    Subject.SHARE_RECORD: wire.SHARE_RECORD,
    Subject.CLIENT: wire.CLIENT,
    Subject.MIRROR: wire.MIRROR,
}
_COORDINATORS = {
    Subject.TRANSACTIONAL_ID: TRANSACTION_COORDINATOR,
    Subject.GROUP: GROUP_COORDINATOR,
}
_UNKNOWN = {
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.RESOURCE_NOT_FOUND,
}


def subject_of_type(number: int) -> Subject | None:
    """The subject that a number stands for in the protocol; None for an unknown number."""
    return next((subject for subject, each in _TYPES.items() if each == number), None)


@dataclass(frozen=True)
class HistoryEvent:
    """An event, or several equal events: `times` is their number, `last_time_ms` the time of the
    last of them.

    Times are milliseconds since 1970, by the broker's clock. `name` and `details` are for programs.
    """

    time_ms: int
    last_time_ms: int
    times: int
    name: str
    text: str
    details: dict[str, str]


@dataclass(frozen=True)
class CurrentState:
    """The current state of a subject, or of one of its partitions or members."""

    name: str
    text: str
    details: dict[str, str]


@dataclass(frozen=True)
class HistoryDescription:
    """The events, oldest first, and the state of one subject on one broker.

    The events are complete from `complete_since_ms` on. `started_ms`: the start of the broker, when
    the history began; `dropped`: the known number of dropped events of this subject. `lag`: the lag
    of a group in records, by time: of the last quarter of an hour, and the largest of each five
    minutes of the last two days; empty for other subjects.
    """

    node_id: int
    now_ms: int
    started_ms: int
    complete_since_ms: int
    dropped: int
    events: list[HistoryEvent]
    states: list[CurrentState]
    lag: dict[int, int] = field(default_factory=dict)

    @property
    def forgotten(self) -> bool:
        """True if the broker may have dropped some events since its start."""
        return self.complete_since_ms > self.started_ms


class HistoryAdmin(AdminPart):
    """The call about histories."""

    async def describe_history(
        self, subject: Subject, name: str, *, limit: int = -1
    ) -> list[HistoryDescription]:
        """The history of a subject on one or several brokers. For a group or a transactional id,
        its coordinator is asked. For a producer id, a partition ("TOPIC-NUMBER"), a record of a
        share group ("TOPIC-NUMBER:OFFSET:GROUP"), a client id or a mirror topic ("" for all of
        them), every broker is asked.

        At most `limit` events are returned, the newest; -1: all. Raises NothingKnown,
        UnsupportedByBroker if the broker is not Odradek's, and by the subject
        GroupAuthorizationFailed, TransactionalIdAuthorizationFailed, TopicAuthorizationFailed or
        ClusterAuthorizationFailed.
        """
        request = DescribeHistoryRequest(subject_type=_TYPES[subject], subject=name, limit=limit)

        async def ask_coordinator() -> list[HistoryDescription]:
            kind = _COORDINATORS[subject]
            node_id = await self.network.find_coordinator(name, kind)
            try:
                return [await self._ask_history(node_id, request, subject)]
            except (ConnectionLost, RequestTimedOut, NotCoordinator, CoordinatorUnavailable):
                self.network.forget_coordinator(name, kind)
                raise

        async def ask_all() -> list[HistoryDescription]:
            found, unknown = [], None
            for node_id in sorted(self.network.cluster.brokers):
                try:
                    found.append(await self._ask_history(node_id, request, subject))
                except NothingKnown as error:
                    unknown = error
            if not found and unknown is not None:
                raise unknown
            return found

        if subject not in _COORDINATORS:
            await self.network.refresh_metadata()
            return await self.requests.retrying(ask_all)
        return await self.requests.retrying(ask_coordinator)

    async def _ask_history(
        self, node_id: int, request: DescribeHistoryRequest, subject: Subject
    ) -> HistoryDescription:
        about = f"{subject.value} {request.subject!r}"
        try:
            answer: DescribeHistoryResponse = await self.network.send(node_id, request)
        except UnsupportedByBroker as error:
            raise UnsupportedByBroker(
                "this broker keeps no history for people: that is something of Odradek's own brokers, "
                "and Apache Kafka has nothing like it"
            ) from error
        if answer.error_code in _UNKNOWN:
            raise NothingKnown(answer.error_message or f"nothing is known of {about}")
        if answer.error_code:
            raise error_for(answer.error_code, answer.error_message, about=about)
        return HistoryDescription(
            node_id=node_id,
            now_ms=answer.now_ms,
            started_ms=answer.started_ms,
            complete_since_ms=answer.complete_since_ms,
            dropped=answer.dropped,
            events=[event_of(event) for event in answer.events],
            states=[
                CurrentState(state.name, state.text, _details(state)) for state in answer.states
            ],
            lag={point.time_ms: point.records for point in answer.lag},
        )


def event_of(wired: wire.Event | NumberedEvent) -> HistoryEvent:
    """The decoded event."""
    times = wired.time_ms, wired.last_time_ms, wired.times
    return HistoryEvent(*times, wired.name, wired.text, _details(wired))


def _details(wired: wire.Event | NumberedEvent | wire.State) -> dict[str, str]:
    return {detail.name: detail.value for detail in wired.details}
