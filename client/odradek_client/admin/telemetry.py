"""The calls of the admin client about metrics that clients push (KIP-714).

A subscription is a configured resource (`ConfigResource.client_metrics`). Only Odradek's broker
shows the pushed metrics; with other brokers the calls raise UnsupportedByBroker.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode
from dataclasses import dataclass

from odradek_client.admin.requests import AdminPart
from odradek_client.errors import Refused, UnsupportedByBroker, error_for
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID, uuid_text
from odradek_protocol.schemas import describe_client_telemetry as wire
from odradek_protocol.schemas.describe_client_telemetry import (
    DescribeClientTelemetryRequest,
    DescribeClientTelemetryResponse,
)

#: The number of clients or metrics in one request.
_PAGE = 500
#: The limit of pages that one call requests. No broker keeps as many clients or metrics as fit into
#: these pages.
_PAGES_MAX = 10_000


@dataclass(frozen=True)
class PushingClient:
    """A client that has pushed metrics, or has requested its subscription.

    `subscribed`: the prefixes of the metrics that the client should push. `last_push_age_ms`: None
    before the first push. `left_out`: the number of data points of the last push that the broker
    did not keep. `gone`: true if the client has ended.
    """

    client_instance_id: str
    client_id: str
    software_name: str
    software_version: str
    host: str
    port: str
    user: str
    gone: bool
    subscribed: list[str]
    push_interval_ms: int
    pushes: int
    last_push_age_ms: int | None
    last_push_bytes: int
    series: int
    left_out: int


@dataclass(frozen=True)
class ClientMetric:
    """A metric of a client, under the name that the broker uses; `source` is the name that the
    client used."""

    name: str
    source: str
    kind: str
    labels: dict[str, str]
    value: float


class TelemetryAdmin(AdminPart):
    """The calls about metrics of clients."""

    async def list_pushing_clients(self) -> list[PushingClient]:
        """The clients that push metrics, by their instance id.

        Raises UnsupportedByBroker if the broker is not Odradek's, ClusterAuthorizationFailed
        without the right to DESCRIBE the cluster.
        """
        found: list[PushingClient] = []
        request = DescribeClientTelemetryRequest(limit=_PAGE)
        for _ in range(_PAGES_MAX):
            answer = await self._ask_telemetry(request)
            found += map(_client, answer.clients)
            if not answer.more or not answer.clients:
                break
            request.after = answer.clients[-1].client_instance_id
        return found

    async def describe_pushing_client(
        self, client_instance_id: str
    ) -> tuple[PushingClient, list[ClientMetric]]:
        """The client with this instance id (22 characters, as Kafka's clients log it), and its
        metrics.

        Raises Refused for an unknown id, UnsupportedByBroker if the broker is not Odradek's,
        ClusterAuthorizationFailed without the right to DESCRIBE the cluster.
        """
        request = DescribeClientTelemetryRequest(
            client_instance_id=_instance_id(client_instance_id), limit=_PAGE
        )
        metrics: list[ClientMetric] = []
        for _ in range(_PAGES_MAX):
            answer = await self._ask_telemetry(request)
            metrics += map(_metric, answer.metrics)
            if not answer.more or not answer.metrics:
                break
            request.first += len(answer.metrics)
        return _client(answer.clients[0]), metrics

    async def _ask_telemetry(
        self, request: DescribeClientTelemetryRequest
    ) -> DescribeClientTelemetryResponse:
        async def ask() -> DescribeClientTelemetryResponse:
            node_id = await self.network.least_loaded_node()
            try:
                answer: DescribeClientTelemetryResponse = await self.network.send(node_id, request)
            except UnsupportedByBroker as error:
                raise UnsupportedByBroker(
                    "this broker does not show what clients push: that is something of Odradek's own"
                    " brokers; Apache Kafka passes it to a plugin"
                ) from error
            if answer.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                raise Refused(answer.error_message or "there is no such client")
            if answer.error_code:
                raise error_for(answer.error_code, answer.error_message, about="the clients")
            return answer

        return await self.requests.retrying(ask)


def _instance_id(text: str) -> bytes:
    try:
        found = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        found = b""
    if len(found) != len(ZERO_UUID) or found == ZERO_UUID:
        raise Refused(f"{text!r} is no client instance id: it must have 22 characters")
    return found


def _client(given: wire.Client) -> PushingClient:
    return PushingClient(
        client_instance_id=uuid_text(given.client_instance_id),
        client_id=given.client_id,
        software_name=given.software_name,
        software_version=given.software_version,
        host=given.host,
        port=given.port,
        user=given.user,
        gone=given.gone,
        subscribed=list(given.subscribed),
        push_interval_ms=given.push_interval_ms,
        pushes=given.pushes,
        last_push_age_ms=given.last_push_age_ms if given.last_push_age_ms >= 0 else None,
        last_push_bytes=given.last_push_bytes,
        series=given.series,
        left_out=given.left_out,
    )


def _metric(given: wire.Metric) -> ClientMetric:
    labels = {label.name: label.value for label in given.labels}
    return ClientMetric(given.name, given.source, given.kind, labels, given.value)
