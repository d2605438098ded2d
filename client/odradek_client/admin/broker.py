"""The counters, requests, connections, problems and newest events of a broker.

Only Odradek's broker has this description; with other brokers the call raises UnsupportedByBroker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from odradek_client.admin.history import HistoryEvent, Subject, event_of, subject_of_type
from odradek_client.admin.requests import AdminPart
from odradek_client.errors import UnsupportedByBroker, error_for
from odradek_protocol.errors import ErrorCode
from odradek_protocol.schemas import describe_broker as wire
from odradek_protocol.schemas.describe_broker import DescribeBrokerRequest, DescribeBrokerResponse


class Section(Enum):
    """The sections of a description, with their numbers in the protocol."""

    COUNTERS = wire.COUNTERS
    REQUESTS = wire.REQUESTS
    CONNECTIONS = wire.CONNECTIONS
    PROBLEMS = wire.PROBLEMS
    EVENTS = wire.EVENTS
    SAMPLES = wire.SAMPLES


_WARNINGS = frozenset(
    {
        *("transaction_open", "certificate_expires", "journal_nearly_full", "event_loop_late"),
        *("flushes_slow", "group_behind", "rebalance_storm", "records_given_up", "mirror_silent"),
    }
)


@dataclass(frozen=True)
class RequestCounts:
    """The requests of an API since the broker's start.

    `counts`: the number of requests in each bucket of durations. A bucket ends at each bound of
    `BrokerDescription.bounds_us`; the last bucket is above all bounds. `codes`: the number of each
    error code by its name; `errors`: their number without those that are steps of the protocol,
    such as REBALANCE_IN_PROGRESS.
    """

    name: str
    requests: int
    errors: int
    sum_us: int
    counts: list[int]
    codes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientConnection:
    """An open connection. `opened_ms`: the time of its opening, by the broker's clock. `api_name`:
    the API of the last request."""

    connection_id: int
    listener: str
    host: str
    user: str
    client_id: str | None
    software: str
    opened_ms: int
    requests: int
    api_name: str


@dataclass(frozen=True)
class Problem:
    """A problem that the broker has at present. `text` describes it in a sentence. The history of
    `subject` explains the problem; `subject_type` is None if no history explains it."""

    name: str
    text: str
    subject_type: Subject | None
    subject: str

    @property
    def is_warning(self) -> bool:
        """True if records can be written and read in spite of the problem."""
        return self.name in _WARNINGS


@dataclass(frozen=True)
class SubjectEvent:
    """An event with its number and its subject."""

    number: int
    subject_type: Subject
    subject: str
    event: HistoryEvent


@dataclass(frozen=True)
class BrokerDescription:
    """The description that a broker gives of itself. Only the requested sections are filled.

    Times are milliseconds since 1970, by the broker's clock. `counters`: numbers by name; a counter
    whose name ends in _total never decreases. `connections_total`: the number of connections that
    match the filter. `next_after`: the value of `after` for the next request, which then returns
    only later events. Events are in order, oldest first. `samples`: the time and some of the
    counters, taken every few seconds during the last quarter of an hour, oldest first.
    """

    node_id: int
    version: str
    now_ms: int
    started_ms: int
    console_url: str | None
    counters: dict[str, float] = field(default_factory=dict)
    bounds_us: list[int] = field(default_factory=list)
    requests: list[RequestCounts] = field(default_factory=list)
    connections_total: int = 0
    connections: list[ClientConnection] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    next_after: int = -1
    events: list[SubjectEvent] = field(default_factory=list)
    samples: list[tuple[int, dict[str, float]]] = field(default_factory=list)


class BrokerAdmin(AdminPart):
    """The call about a broker."""

    async def describe_broker_status(
        self,
        *sections: Section,
        node_id: int | None = None,
        filter: str = "",
        offset: int = 0,
        after: int = -1,
        limit: int = 100,
    ) -> BrokerDescription:
        """The description of a broker, by default of any broker.

        At most `limit` connections and at most `limit` events are returned. The connections are
        those whose client id, host or user contains `filter`; the first `offset` of them are
        skipped. The events are those with numbers above `after`; -1 requests the newest events.
        Raises UnsupportedByBroker if the broker is not Odradek's, ClusterAuthorizationFailed
        without the right to DESCRIBE the cluster.
        """
        request = DescribeBrokerRequest(
            sections=sorted(each.value for each in set(sections)),
            limit=limit,
            offset=offset,
            filter=filter,
            after=after,
        )

        async def ask() -> BrokerDescription:
            known = self.network.cluster.brokers
            asked = min(known, default=-1) if node_id is None else node_id
            try:
                answer: DescribeBrokerResponse = await self.network.send(asked, request)
            except UnsupportedByBroker as error:
                raise UnsupportedByBroker(
                    "this broker does not describe itself: that is something of Odradek's own"
                    " brokers, and Apache Kafka has nothing like it"
                ) from error
            if answer.error_code:
                raise error_for(answer.error_code, answer.error_message, about="the broker")
            return _description(answer)

        return await self.requests.retrying(ask)


def _description(answer: DescribeBrokerResponse) -> BrokerDescription:
    return BrokerDescription(
        node_id=answer.node_id,
        version=answer.version,
        now_ms=answer.now_ms,
        started_ms=answer.started_ms,
        console_url=answer.console_url,
        counters={each.name: each.value for each in answer.counters},
        bounds_us=list(answer.bounds_us),
        requests=[
            RequestCounts(
                each.name,
                each.requests,
                each.errors,
                each.sum_us,
                list(each.counts),
                {ErrorCode.of(found.code).name: found.count for found in each.codes},
            )
            for each in answer.requests
        ],
        connections_total=answer.connections_total,
        connections=[_connection(each) for each in answer.connections],
        problems=[
            Problem(each.name, each.text, subject_of_type(each.subject_type), each.subject)
            for each in answer.problems
        ],
        next_after=answer.next_after,
        events=[found for each in answer.events if (found := _event(each)) is not None],
        samples=[
            (each.time_ms, dict(zip(answer.sample_names, each.values, strict=False)))
            for each in answer.samples
        ],
    )


def _connection(wired: wire.Connection) -> ClientConnection:
    return ClientConnection(
        connection_id=wired.connection_id,
        listener=wired.listener,
        host=wired.host,
        user=wired.user,
        client_id=wired.client_id,
        software=f"{wired.software_name} {wired.software_version}".strip(),
        opened_ms=wired.opened_ms,
        requests=wired.requests,
        api_name=wired.api_name,
    )


def _event(wired: wire.NumberedEvent) -> SubjectEvent | None:
    """The decoded event; None if this client does not know the type of its subject."""
    subject_type = subject_of_type(wired.subject_type)
    if subject_type is None:
        return None
    return SubjectEvent(wired.number, subject_type, wired.subject, event_of(wired))
