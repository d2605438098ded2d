"""The console with Apache Kafka: its data, and the features that Kafka does not have."""

from __future__ import annotations

import httpx
import pytest
from starlette.applications import Starlette

from console_changes import changing_page
from kafka_cluster import KafkaCluster
from odradek_client.admin import Admin, NewTopic
from odradek_console.server import Console, ConsoleOptions

pytestmark = pytest.mark.kafka


async def test_a_console_of_apache_kafka_shows_its_data_and_names_missing_features(
    kafka: KafkaCluster, unique_topic: str
) -> None:
    settings = {"bootstrap_servers": kafka.bootstrap}
    async with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=3))
    clients = {"admin": settings, "consumer": settings, "producer": settings}
    app = Console(ConsoleOptions({"one": clients})).app()
    assert isinstance(app, Starlette)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080"
        ) as client,
    ):
        overview = (await client.get("/api/overview")).json()
        assert (overview["missing"], overview["problems"]) == ([], [])
        assert overview["topics"]["partitions"] >= 3
        assert overview["disks"][0]["usable_bytes"] > 0
        topics = (await client.get("/api/topics", params={"filter": unique_topic})).json()
        (row,) = topics["rows"]
        assert (row["partitions"], row["offsets"], row["size_bytes"]) == (3, 0, 0)
        rows = (await client.get("/api/settings?type=broker&name=1")).json()["rows"]
        assert "log.retention.hours" in {row["name"] for row in rows}
        # The Kafka of the tests has no authorizer.
        assert (await client.get("/api/acls")).json()["enforced"] is False
        for view in ("users", "quotas", "groups", "transactions"):
            assert (await client.get(f"/api/{view}")).status_code == 200, view
        answer = await client.get("/api/connections")
        assert answer.status_code == 501
        assert "Odradek's own brokers" in answer.json()["error"]["detail"]


async def test_users_of_apache_kafka_are_changed(kafka: KafkaCluster, unique_topic: str) -> None:
    user = f"user-{unique_topic}"
    async with changing_page(kafka.bootstrap) as page:
        body = {"user": user, "password": "secret"}
        assert (await page.do("password", body))["text"].startswith("Stored the password")
        planned = (await page.plan("password", body))["plan"]
        assert (planned["replaces"], planned["iterations"]) == (4096, 4096)
        await page.do("user-deletion", {"user": user})
        assert (await page.refused("user-deletion", {"user": user}))[0] == 422
        # The Kafka of the tests has no authorizer.
        status, answer = await page.post("acl-deletion", {"principal": user})
    assert (status, answer["error"]["title"]) == (422, "The broker refuses this")
    assert "authorizer" in answer["error"]["detail"].lower()
