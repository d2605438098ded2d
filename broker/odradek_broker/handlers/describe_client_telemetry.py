"""DescribeClientTelemetry (key 10002, Odradek's own): the clients that push metrics, or the metrics
of one client (M-30)."""

from __future__ import annotations

from heapq import nsmallest
from itertools import islice

from odradek_broker.node import Node
from odradek_broker.request import RequestContext
from odradek_broker.security.authorizer import CLUSTER, Operation
from odradek_broker.telemetry.instances import ClientInstance
from odradek_broker.telemetry.manager import client_labels
from odradek_broker.telemetry.otlp import printable
from odradek_broker.telemetry.series import ClientMetrics
from odradek_protocol.errors import ErrorCode
from odradek_protocol.primitives import ZERO_UUID, uuid_text
from odradek_protocol.schemas import describe_client_telemetry as wire
from odradek_protocol.schemas.describe_client_telemetry import (
    DescribeClientTelemetryRequest,
    DescribeClientTelemetryResponse,
)

_E = ErrorCode
#: The maximum number of clients, and of metrics, in one answer.
PAGE_MAX = 1_000


def handle(
    node: Node, context: RequestContext, request: DescribeClientTelemetryRequest
) -> DescribeClientTelemetryResponse:
    """A page of the list of clients, or of the metrics of one client."""
    if not node.authorizer.allows(context, Operation.DESCRIBE, CLUSTER):
        return DescribeClientTelemetryResponse(error_code=_E.CLUSTER_AUTHORIZATION_FAILED)
    limit = min(max(request.limit, 0), PAGE_MAX)
    if request.client_instance_id == ZERO_UUID:
        return _clients(node, request.after, limit)
    return _metrics(node, request.client_instance_id, max(request.first, 0), limit)


def _clients(node: Node, after: bytes, limit: int) -> DescribeClientTelemetryResponse:
    telemetry = node.telemetry
    known = {each.instance_id for each in telemetry.instances} | telemetry.series.ids()
    page = nsmallest(limit + 1, (each for each in known if each > after))
    return DescribeClientTelemetryResponse(
        clients=[_client(node, each) for each in page[:limit]], more=len(page) > limit
    )


def _metrics(
    node: Node, instance_id: bytes, first: int, limit: int
) -> DescribeClientTelemetryResponse:
    telemetry = node.telemetry
    found = telemetry.series.get(instance_id)
    if found is None and telemetry.instances.get(instance_id) is None:
        text = (
            f"no client with the instance id {uuid_text(instance_id)} is known: it has not"
            " requested a subscription, or it stopped some time ago"
        )
        return DescribeClientTelemetryResponse(error_code=_E.RESOURCE_NOT_FOUND, error_message=text)
    series = sorted(found.series.items()) if found is not None else []
    return DescribeClientTelemetryResponse(
        clients=[_client(node, instance_id)],
        metrics=[
            wire.Metric(
                name=name,
                source=each.source,
                kind=each.kind.value,
                labels=[wire.Label(name=label, value=value) for label, value in labels],
                value=each.value,
            )
            for (name, labels), each in islice(series, first, first + limit)
        ],
        more=len(series) > first + limit,
    )


def _client(node: Node, instance_id: bytes) -> wire.Client:
    instance: ClientInstance | None = node.telemetry.instances.get(instance_id)
    metrics: ClientMetrics | None = node.telemetry.series.get(instance_id)
    known = instance or metrics
    assert known is not None
    labels = client_labels(known.attributes)
    made = wire.Client(
        client_instance_id=instance_id,
        client_id=labels.get("client_id", ""),
        software_name=labels["client_software_name"],
        software_version=labels["client_software_version"],
        host=printable(known.attributes.client_source_address),
        port=known.attributes.client_source_port,
        gone=instance is None,
    )
    if instance is not None:
        made.subscribed = list(instance.wanted.metrics)
        made.push_interval_ms = instance.wanted.interval_ms
    if metrics is not None:
        made.user = metrics.user
        made.pushes, made.series = metrics.pushes, len(metrics.series)
        made.last_push_age_ms = node.clock.monotonic_ms() - metrics.last_push_ms
        made.last_push_bytes, made.left_out = metrics.last_push_bytes, metrics.left_out
    return made
