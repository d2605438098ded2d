"""DescribeHistory (key 10000): the recent events of a transactional id, a producer id, a group, a
partition, a record of a share group, a client or a mirror topic.

The sentences are for people; `name` and `details` are for programs. Versions: only 0.

Of note: this API is Odradek's own, for `odradek explain`, with a number far above Kafka's. The API
is advertised like all others, because clients ignore unknown keys: tests show this for
confluent-kafka, aiokafka and kafka-python, and the source code shows it for Kafka's Java client. If
a broker does not advertise the API, `odradek explain` prints a message that names other tools. A
change of its fields gets a new version or a tagged field, as in Kafka.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import INT8, INT16, INT32, INT64, STRING

#: The kinds of subjects. A producer id is written in decimal, a partition as TOPIC-NUMBER, a record
#: of a share group as TOPIC-NUMBER:OFFSET:GROUP.
TRANSACTIONAL_ID = 1
PRODUCER_ID = 2
GROUP = 3
PARTITION = 4
SHARE_RECORD = 5
#: The connections of a client id.
CLIENT = 6
#: A mirror topic; the empty name asks for a state of each mirror topic.
MIRROR = 7


@api_message(ApiKey.DESCRIBE_HISTORY)
class DescribeHistoryRequest(Message):
    """The request. `limit`: the most events; the newest are returned. -1: all events that are
    kept."""

    subject_type: int = field(INT8)
    subject: str = field(STRING)
    limit: int = field(INT32, default=-1)


class Detail(Struct):
    name: str = field(STRING)
    value: str = field(STRING)


class Event(Struct):
    """An event, or several equal events. `text`: the sentence; `times`: the number of equal events;
    `last_time_ms`: the time of the newest of these events."""

    time_ms: int = field(INT64)
    last_time_ms: int = field(INT64)
    times: int = field(INT32)
    name: str = field(STRING)
    text: str = field(STRING)
    details: list[Detail] = field(array(Detail))


class State(Struct):
    """A sentence about the present state; there is one for each partition or member."""

    name: str = field(STRING)
    text: str = field(STRING)
    details: list[Detail] = field(array(Detail))


class LagSample(Struct):
    """The lag of a group at a time, in records."""

    time_ms: int = field(INT64)
    records: int = field(INT64)


@api_message(ApiKey.DESCRIBE_HISTORY)
class DescribeHistoryResponse(Message):
    """The response, with the oldest event first.

    The events are complete from `complete_since_ms` on; `started_ms`: the time at which the broker
    began to keep events; `now_ms`: the broker's clock; `dropped`: the known number of dropped
    events of this subject; `lag`: of a group over time, oldest first.
    """

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    now_ms: int = field(INT64)
    started_ms: int = field(INT64)
    complete_since_ms: int = field(INT64)
    dropped: int = field(INT64)
    events: list[Event] = field(array(Event))
    states: list[State] = field(array(State))
    lag: list[LagSample] = field(array(LagSample), "0+", tag=0, tagged="0+", ignorable=True)
