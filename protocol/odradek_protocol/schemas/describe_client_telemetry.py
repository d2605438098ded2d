"""DescribeClientTelemetry (key 10002): the clients that push metrics, and the metrics of one
client.

Versions: only 0.

Of note: this API is Odradek's own, like DescribeHistory, and used by `odradek client-metrics show`.
The answer is divided into pages.
"""

from __future__ import annotations

from odradek_protocol.keys import ApiKey, api_message
from odradek_protocol.message import Message, Struct, array, field
from odradek_protocol.primitives import (
    BOOL,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    ZERO_UUID,
)


@api_message(ApiKey.DESCRIBE_CLIENT_TELEMETRY)
class DescribeClientTelemetryRequest(Message):
    """The request.

    `client_instance_id`: the client whose metrics are wanted, from the metric with the number
    `first` on. An id of zeros asks for a list of clients without their metrics; the list begins
    after the client id `after`. The answer has at most `limit` clients or metrics.
    """

    client_instance_id: bytes = field(UUID, default=ZERO_UUID)
    after: bytes = field(UUID, default=ZERO_UUID)
    first: int = field(INT32)
    limit: int = field(INT32, default=100)


class Label(Struct):
    name: str = field(STRING)
    value: str = field(STRING)


class Metric(Struct):
    """A series. `source`: the name in the client's push; `kind`: gauge or counter."""

    name: str = field(STRING)
    source: str = field(STRING)
    kind: str = field(STRING)
    labels: list[Label] = field(array(Label))
    value: float = field(FLOAT64)


class Client(Struct):
    """A client that has pushed metrics or has requested its subscription.

    `subscribed`: the prefixes of the metrics that the client should push. `last_push_age_ms`: -1
    before the first push. `left_out`: the data points of the last push that were not kept. `gone`:
    true if the client has ended, so that the broker keeps only its metrics.
    """

    client_instance_id: bytes = field(UUID, default=ZERO_UUID)
    client_id: str = field(STRING)
    software_name: str = field(STRING)
    software_version: str = field(STRING)
    host: str = field(STRING)
    port: str = field(STRING)
    user: str = field(STRING)
    gone: bool = field(BOOL)
    subscribed: list[str] = field(array(STRING))
    push_interval_ms: int = field(INT32)
    pushes: int = field(INT64)
    last_push_age_ms: int = field(INT64, default=-1)
    last_push_bytes: int = field(INT32)
    series: int = field(INT32)
    left_out: int = field(INT32)


@api_message(ApiKey.DESCRIBE_CLIENT_TELEMETRY)
class DescribeClientTelemetryResponse(Message):
    """The response. `more`: true if there are more clients or metrics; `metrics`: the metrics, in
    the order of name and labels."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    clients: list[Client] = field(array(Client))
    metrics: list[Metric] = field(array(Metric))
    more: bool = field(BOOL)
