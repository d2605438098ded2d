"""Metrics that clients push (KIP-714): the clients, and the metrics of one client."""

from __future__ import annotations

from dataclasses import asdict

from odradek_client.admin import Admin
from odradek_client.admin.telemetry import ClientMetric, PushingClient
from odradek_client.errors import OdradekError
from odradek_console.answers import Column, Json, page_of
from odradek_console.asked import Asked, View

_KEEP_MS = 2_000

_CLIENT_COLUMNS = {
    "client_id": Column(lambda client: client.client_id),
    "software_name": Column(lambda client: client.software_name),
    "pushes": Column(lambda client: client.pushes),
    "last_push_age_ms": Column(lambda client: client.last_push_age_ms),
    "series": Column(lambda client: client.series),
}
_METRIC_COLUMNS = {
    "name": Column(lambda metric: metric.name),
    "value": Column(lambda metric: metric.value),
}


def _client_name(client: PushingClient) -> str:
    return f"{client.client_id} {client.client_instance_id} {client.host} {client.user}"


def _metric_name(metric: ClientMetric) -> str:
    labels = " ".join(f"{name}={value}" for name, value in sorted(metric.labels.items()))
    return f"{metric.name} {metric.source} {labels}"


async def pushing_clients(asked: Asked) -> Json:
    """A page of the clients that push metrics, and the names of the subscriptions."""

    async def ask(admin: Admin) -> tuple[list[PushingClient], list[str] | None]:
        clients = await admin.list_pushing_clients()
        try:
            return clients, await admin.list_client_metrics()
        except OdradekError:
            # A principal that may see clients may lack the right to see the names of subscriptions.
            return clients, None

    clients, subscriptions = await asked.session.cached("pushing clients", _KEEP_MS, ask)
    page, about = page_of(
        clients, asked.query, _CLIENT_COLUMNS, name=_client_name, sort="client_id"
    )
    return {**about, "subscriptions": subscriptions, "rows": [asdict(client) for client in page]}


async def pushing_client(asked: Asked) -> Json:
    """A client that pushes, and a page of its metrics."""
    instance_id = asked.query.text("id")
    client, metrics = await asked.session.cached(
        ("pushing client", instance_id),
        _KEEP_MS,
        lambda admin: admin.describe_pushing_client(instance_id),
    )
    page, about = page_of(metrics, asked.query, _METRIC_COLUMNS, name=_metric_name, sort="name")
    rows = [
        {
            "name": metric.name,
            "source": metric.source,
            "kind": metric.kind,
            "labels": metric.labels,
            # JSON has no numbers for infinity and not-a-number.
            "value": str(metric.value),
        }
        for metric in page
    ]
    return {**about, "client": asdict(client), "rows": rows}


VIEWS: dict[str, View] = {
    "/pushing-clients": pushing_clients,
    "/pushing-client": pushing_client,
}
