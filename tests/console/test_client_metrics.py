"""Metrics that clients push, as the console shows them; the client is librdkafka."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import confluent_kafka
import httpx
import pytest
from starlette.applications import Starlette

from console_process import console_process, options_for
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, ConfigResource, NewTopic
from odradek_console.server import Console
from waiting import DEADLINE_S

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.own_broker

CLIENT = "<b>measured</b>"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The only broker that requests metrics, so that clients of other tests push none."""
    with SubprocessBroker(settings={"log.durability": "page-cache"}) as broker:
        yield broker.bootstrap


@pytest.fixture
async def console(bootstrap: str) -> AsyncIterator[httpx.AsyncClient]:
    app = Console(options_for(bootstrap)).app()
    assert isinstance(app, Starlette)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080"
        ) as client,
    ):
        yield client


async def push(bootstrap: str) -> None:
    """Let a producer push its metrics at least once."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("measured")], raise_errors=False)
        wanted = {"metrics": "org.apache.kafka.", "interval.ms": "500"}
        await admin.alter_configs({ConfigResource.client_metrics("all"): wanted})
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "client.id": CLIENT, "log_level": 0}
        )
        async with asyncio.timeout(DEADLINE_S):
            while not any(
                each.client_id == CLIENT and each.series
                for each in await admin.list_pushing_clients()
            ):
                producer.produce("measured", b"value")
                await asyncio.to_thread(producer.flush, 10)
                await asyncio.sleep(0.05)


async def test_a_client_is_shown_with_its_pushed_metrics(
    console: httpx.AsyncClient, bootstrap: str
) -> None:
    await push(bootstrap)
    body = (await console.get("/api/pushing-clients", params={"filter": "measured"})).json()
    assert body["subscriptions"] == ["all"]
    client = next(row for row in body["rows"] if row["series"])
    assert client["software_name"] == "confluent-kafka-python"
    answer = await console.get(
        "/api/pushing-client",
        params={"id": client["client_instance_id"], "filter": "connection.creation"},
    )
    body = answer.json()
    assert body["client"]["client_id"] == CLIENT
    assert body["total"] < body["total_unfiltered"]
    assert any(row["name"].startswith("kafka_client_producer_connection") for row in body["rows"])
    assert all(float(row["value"]) >= 0 for row in body["rows"])


async def test_an_unknown_client_is_refused(console: httpx.AsyncClient) -> None:
    answer = await console.get("/api/pushing-client", params={"id": "no id"})
    assert answer.status_code == 422
    assert "22 characters" in answer.json()["error"]["detail"]


@pytest.mark.full
async def test_the_page_leads_from_the_client_to_its_metrics(
    bootstrap: str, browser_page: Page
) -> None:
    from playwright.async_api import expect

    await push(bootstrap)
    page = browser_page
    with console_process(bootstrap) as address:
        await page.goto(f"{address}client-metrics")
        await page.get_by_role("link", name=CLIENT).first.click()
        await expect(page.get_by_role("heading", name=CLIENT)).to_be_visible()
        await page.keyboard.press("/")
        await page.keyboard.type("connection_creation_total")
        await expect(
            page.get_by_text("kafka_client_producer_connection_creation_total")
        ).to_be_visible()
        await expect(page).to_have_url(re.compile("filter=connection_creation_total"))
