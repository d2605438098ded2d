"""DescribeBroker (key 10001): counters, requests by API, connections, problems and the newest
events of one broker.

Versions: only 0.

Of note: this API is Odradek's own, like DescribeHistory, and used by `odradek console` and `odradek
top`. Only the requested sections are filled. Samples are earlier values of some of the counters.
Counters never decrease while the broker runs, so that the client can compute rates.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import FLOAT64, INT8, INT16, INT32, INT64, STRING
from odradek_protocol.schemas.describe_history import Detail

#: The sections of the response.
COUNTERS = 1
REQUESTS = 2
CONNECTIONS = 3
PROBLEMS = 4
EVENTS = 5
SAMPLES = 6


@api_message(ApiKey.DESCRIBE_BROKER)
class DescribeBrokerRequest(Message):
    """The request.

    The answer has at most `limit` connections and at most `limit` events. The connections are those
    whose client id, host or user contains `filter`; the first `offset` of them are skipped. The
    events are those with numbers above `after` (-1 for all), but only the newest if there are more
    than the limit.
    """

    sections: list[int] = field(array(INT8))
    limit: int = field(INT32, default=100)
    offset: int = field(INT32)
    filter: str = field(STRING)
    after: int = field(INT64, default=-1)


class Counter(Struct):
    """A number with a name. Numbers whose names end in _total only grow."""

    name: str = field(STRING)
    value: float = field(FLOAT64)


class Sample(Struct):
    """The counters `sample_names` at a time in the past."""

    time_ms: int = field(INT64)
    values: list[float] = field(array(FLOAT64))


class CodeCount(Struct):
    """The number of answers, or of their parts, with an error code."""

    code: int = field(INT16)
    count: int = field(INT64)


class RequestCounts(Struct):
    """The requests of an API. `counts`: the number of requests in each bucket of durations; the
    buckets are bounded by `bounds_us`, and the last bucket has no bound. `errors`: without the
    codes that are steps of the protocol; `codes`: each code."""

    name: str = field(STRING)
    requests: int = field(INT64)
    errors: int = field(INT64)
    sum_us: int = field(INT64)
    counts: list[int] = field(array(INT64))
    codes: list[CodeCount] = field(array(CodeCount), "0+", tag=0, tagged="0+", ignorable=True)


class Connection(Struct):
    """An open connection. `requests`: the number of its requests; `api_name`: the API of the last
    request."""

    connection_id: int = field(INT64)
    listener: str = field(STRING)
    host: str = field(STRING)
    user: str = field(STRING)
    client_id: str | None = field(STRING, nullable="0+", default=None)
    software_name: str = field(STRING)
    software_version: str = field(STRING)
    opened_ms: int = field(INT64)
    requests: int = field(INT64)
    api_name: str = field(STRING)


class Problem(Struct):
    """Something that is wrong at the moment, as a sentence. The subject is as in DescribeHistory;
    the subject type is 0 if there is no subject."""

    name: str = field(STRING)
    text: str = field(STRING)
    subject_type: int = field(INT8)
    subject: str = field(STRING)


class NumberedEvent(Struct):
    """An event of DescribeHistory, with its number and its subject."""

    number: int = field(INT64)
    subject_type: int = field(INT8)
    subject: str = field(STRING)
    time_ms: int = field(INT64)
    last_time_ms: int = field(INT64)
    times: int = field(INT32)
    name: str = field(STRING)
    text: str = field(STRING)
    details: list[Detail] = field(array(Detail))


@api_message(ApiKey.DESCRIBE_BROKER)
class DescribeBrokerResponse(Message):
    """The response.

    `now_ms`: the present time by the broker's clock. `started_ms`: the time at which the broker
    started. `console_url`: the address of the broker's console, if there is one.
    `connections_total`: the number of connections that match the filter. `next_after`: the value of
    `after` for the next request, which then returns only later events. Events and samples are
    sorted by time, oldest first.
    """

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    now_ms: int = field(INT64)
    started_ms: int = field(INT64)
    node_id: int = field(INT32)
    version: str = field(STRING)
    console_url: str | None = field(STRING, nullable="0+", default=None)
    counters: list[Counter] = field(array(Counter))
    bounds_us: list[int] = field(array(INT64))
    requests: list[RequestCounts] = field(array(RequestCounts))
    connections_total: int = field(INT32)
    connections: list[Connection] = field(array(Connection))
    problems: list[Problem] = field(array(Problem))
    next_after: int = field(INT64)
    events: list[NumberedEvent] = field(array(NumberedEvent))
    sample_names: list[str] = field(array(STRING), tag=0, tagged="0+")
    samples: list[Sample] = field(array(Sample), tag=1, tagged="0+")
