"""Several clusters in one console: addresses that name them, their states, and their sessions."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.applications import Starlette
from structlog.testing import capture_logs

import sasl_brokers
from console_changes import WRITE
from console_process import clients_for, console_process
from odradek.broker import Broker
from odradek_cli.common import run
from odradek_client.admin import Admin, NewTopic
from odradek_console.command import _clusters_of
from odradek_console.server import Console, ConsoleOptions
from odradek_console.sessions import ClientSettings
from waiting import DEADLINE_S

if TYPE_CHECKING:
    from playwright.async_api import Page


@pytest.fixture(scope="module")
def other_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A second broker, whose only topic is `elsewhere`."""
    with Broker.subprocess(data_dir=tmp_path_factory.mktemp("other")) as broker:
        asyncio.run(_create(broker.bootstrap, "elsewhere"))
        yield broker.bootstrap


@pytest.fixture
def silent_bootstrap() -> Iterator[str]:
    """An address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"127.0.0.1:{silent.getsockname()[1]}"


async def _create(bootstrap: str, topic: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(NewTopic(topic, partitions=1))


@asynccontextmanager
async def _console(write: bool = False, **clusters: ClientSettings) -> AsyncIterator[Any]:
    app = Console(ConsoleOptions(clusters, write=write)).app()
    assert isinstance(app, Starlette)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8080", headers=WRITE
        ) as client,
    ):
        yield client


async def _topics(client: httpx.AsyncClient, cluster: str) -> list[str]:
    answer = await client.get("/api/topics", params={"cluster": cluster})
    assert answer.status_code == 200, answer.text
    return [row["name"] for row in answer.json()["rows"]]


async def test_an_address_names_the_cluster_that_it_shows(
    live_bootstrap: str, other_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    async with _console(
        one=clients_for(live_bootstrap), two=clients_for(other_bootstrap)
    ) as client:
        assert unique_topic in await _topics(client, "one")
        assert await _topics(client, "two") == ["elsewhere"]
        for params in ({}, {"cluster": "three"}, {"cluster": ""}):
            answer = await client.get("/api/topics", params=params)
            assert answer.status_code == 404
            assert answer.json()["error"]["title"] == "There is no such cluster"
        about = (await client.get("/api/console")).json()
        assert (about["clusters"], about["open"], about["cluster"]) == (["one", "two"], True, "")
        about = (await client.get("/api/console", params={"cluster": "two"})).json()
        assert (about["bootstrap"], about["cluster"]) == (other_bootstrap, "two")


async def test_a_console_for_one_cluster_needs_no_name(console_client: httpx.AsyncClient) -> None:
    about = (await console_client.get("/api/console")).json()
    assert (len(about["clusters"]), about["cluster"], about["open"]) == (1, "", True)


async def test_a_silent_cluster_delays_no_other(live_bootstrap: str, silent_bootstrap: str) -> None:
    silent = clients_for(silent_bootstrap)
    hasty = {"request_timeout_ms": 1_500, "default_api_timeout_ms": 1_500}
    dead = {kind: {**each, **hasty} for kind, each in silent.items()}
    async with _console(dead=dead, live=clients_for(live_bootstrap)) as client:
        states: list[str] = []

        async def rows() -> dict[str, Any]:
            found = {row["name"]: row for row in (await client.get("/api/clusters")).json()["rows"]}
            states.append(found["dead"]["state"])
            return found

        while (found := await rows())["live"]["state"] == "asking":
            pass
        # The other cluster is complete while this one still owes its first answer.
        assert (found["live"]["state"], found["dead"]["state"]) == ("known", "asking")
        assert (found["live"]["nodes"], found["live"]["bootstrap"]) == (1, live_bootstrap)
        await _topics(client, "live")

        async with asyncio.timeout(DEADLINE_S):
            while (await rows())["dead"]["state"] == "asking":
                pass
        assert "not answer" in (await rows())["dead"]["error"]["title"]
        # A cluster that failed once stays so while it is asked again.
        assert set(states) == {"asking", "failed"} and states == sorted(states)


async def test_people_sign_in_to_each_cluster(live_bootstrap: str, tmp_path: Path) -> None:
    with Broker.subprocess(data_dir=tmp_path / "data", settings=sasl_brokers.LISTENER) as broker:
        settings = {**clients_for(broker.bootstrap)["admin"], "security_protocol": "SASL_PLAINTEXT"}
        users = {"mechanism": "PLAIN", "user": "admin", "password": sasl_brokers.ADMIN_PASSWORD}
        async with _console(
            open=clients_for(live_bootstrap), first={"admin": settings}, second={"admin": settings}
        ) as client:
            with capture_logs() as lines:
                answer = await client.post("/api/sign-in?cluster=first", json=users)
            assert answer.status_code == 200, answer.text
            assert [line["cluster"] for line in lines if line["event"] == "signed in"] == ["first"]
            found = [row["state"] for row in (await client.get("/api/clusters")).json()["rows"]]
            assert found[2] == "sign-in" and "sign-in" not in found[:2]
            for name, status in (("first", 200), ("second", 401), ("open", 200)):
                answer = await client.get("/api/topics", params={"cluster": name})
                assert answer.status_code == status, name
            assert (await client.post("/api/sign-out?cluster=second", json={})).status_code == 200
            assert await _topics(client, "first") == []
            assert (await client.post("/api/sign-out?cluster=first", json={})).status_code == 200
            answer = await client.get("/api/topics", params={"cluster": "first"})
            assert answer.status_code == 401


async def test_a_plan_for_one_cluster_changes_nothing_in_another(
    live_bootstrap: str, other_bootstrap: str, unique_topic: str
) -> None:
    clusters = {"one": clients_for(live_bootstrap), "two": clients_for(other_bootstrap)}
    async with _console(write=True, **clusters) as client:
        path = "/api/change/topic-creation"
        plan = await client.post(f"{path}?cluster=one", json={"topic": unique_topic})
        send = plan.json()["send"]
        with capture_logs() as lines:
            assert (await client.post(f"{path}?cluster=two", json=send)).status_code == 409
            assert (await client.post(f"{path}?cluster=one", json=send)).status_code == 200
        assert [line["cluster"] for line in lines if "change" in line] == ["two", "one"]
        assert unique_topic in await _topics(client, "one")
        assert await _topics(client, "two") == ["elsewhere"]


def test_settings_may_be_those_of_one_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "prod.properties"
    file.write_text("security.protocol=SSL\nbootstrap.servers=wrong:1\n")
    given = [f"prod:{file}", "client.id=us", "test:client.dns.lookup=x"]
    found = _clusters_of(["prod=127.0.0.1:9092", "test=t:1,u:1", "b:9092"], given)
    assert {name: each["admin"]["bootstrap_servers"] for name, each in found.items()} == {
        "prod": "127.0.0.1:9092", "test": "t:1,u:1", "b:9092": "b:9092"
    }  # fmt: skip
    assert [each["admin"].get("security_protocol") for each in found.values()] == [
        "SSL",
        None,
        None,
    ]
    assert [each["producer"].get("client_dns_lookup") for each in found.values()] == [
        None,
        "x",
        None,
    ]
    assert {each["consumer"]["client_id"] for each in found.values()} == {"us"}
    # Without -b, the variable and then a file have the brokers, as with other commands.
    assert [*_clusters_of(None, None)] == ["127.0.0.1:9092"]
    only = _clusters_of(None, [str(file)])["127.0.0.1:9092"]
    assert only["admin"]["bootstrap_servers"] == "wrong:1"
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", "a:1, b:1")
    assert [*_clusters_of(None, None)] == ["a:1, b:1"]


def test_names_that_are_never_resolved_leave_threads_to_other_clusters() -> None:
    released = threading.Event()

    async def others_go_on() -> str:
        held = [asyncio.create_task(asyncio.to_thread(released.wait)) for _ in range(64)]
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await asyncio.to_thread(lambda: "done")
        finally:
            released.set()
            await asyncio.gather(*held)

    assert run(others_go_on()) == "done"


# --- In a browser ---------------------------------------------------------------------------------


@pytest.mark.full
async def test_the_choice_of_a_cluster_keeps_the_page(
    live_bootstrap: str,
    other_bootstrap: str,
    silent_bootstrap: str,
    browser_page: Page,
    unique_topic: str,
) -> None:
    from playwright.async_api import expect

    page = browser_page
    chosen = page.get_by_role("combobox", name="Cluster")
    # So `main` has more topics than `other`.
    for end in ("a", "b"):
        await _create(live_bootstrap, f"{unique_topic}-{end}")
    more: tuple[str, ...] = ("-b", f"other={other_bootstrap}", "-b", f"silent={silent_bootstrap}")
    for setting in ("default.api.timeout.ms", "request.timeout.ms"):
        more += ("-X", f"silent:{setting}=1000")
    with console_process(f"main={live_bootstrap}", *more) as address:
        await page.goto(f"{address}topics?filter=e&zone=local")
        # An address without a cluster shows all of them, with links to its page.
        await expect(page.get_by_role("heading", name="Clusters")).to_be_visible()
        card = page.get_by_role("listitem", name="other")
        await expect(card.get_by_text("Good", exact=True)).to_be_visible()
        await expect(card.get_by_text("1 node, 1 topic, 0 groups")).to_be_visible()
        await expect(page.get_by_role("navigation", name="Pages")).not_to_be_visible()
        await card.get_by_role("link", name="other").click()
        await expect(page.get_by_role("cell", name="elsewhere", exact=True)).to_be_visible()
        assert page.url.endswith("/topics?filter=e&zone=local&cluster=other")
        await expect(page).to_have_title(re.compile("Topics . other . Odradek"))
        # Links and keys stay in the cluster, and the choice stays on the page.
        await page.get_by_role("link", name="elsewhere").click()
        assert "cluster=other" in page.url
        await chosen.select_option("main")
        assert re.search(r"/topic\?name=elsewhere.*cluster=main", page.url)
        await expect(page.get_by_role("alert")).to_contain_text("There is no such topic")
        await page.keyboard.press("g")
        await page.keyboard.press("o")
        await expect(page.get_by_text("Live", exact=True)).to_be_visible()
        # The feeds, too, are those of the cluster.
        topics = page.get_by_label("The cluster").get_by_role("link").first
        count = await topics.inner_text()
        await chosen.select_option("other")
        await expect(topics).to_have_text("1")
        await page.go_back()
        await expect(chosen).to_have_value("main")
        await expect(topics).to_have_text(count)
        await chosen.select_option("silent")
        await expect(page.get_by_role("alert")).to_be_visible()
        await chosen.select_option("")
        await expect(page.get_by_role("heading", name="Clusters")).to_be_visible()
        assert "cluster" not in page.url
