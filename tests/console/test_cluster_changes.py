"""Changes of topics and transactions from pages: their plans, effects and refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from console_changes import ChangingPage, changing_page
from console_process import console_process
from odradek import Producer
from odradek_client.admin import Admin, NewTopic

if TYPE_CHECKING:
    from playwright.async_api import Page


@pytest.fixture
async def page(live_bootstrap: str) -> AsyncIterator[ChangingPage]:
    async with changing_page(live_bootstrap) as page:
        yield page


async def test_a_topic_is_planned_then_created(
    page: ChangingPage, live_bootstrap: str, unique_topic: str
) -> None:
    body = {"topic": unique_topic, "partitions": 3, "settings": {"retention.ms": "1000"}}
    planned = await page.plan("topic-creation", body)
    assert planned["plan"] == {
        "topic": unique_topic, "partitions": 3, "replicas": 1, "settings": {"retention.ms": "1000"}
    }  # fmt: skip
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        assert unique_topic not in await admin.list_topics()
        assert (await page.do("topic-creation", body))["text"] == f"Created topic {unique_topic}"
        found = (await admin.describe_topics(unique_topic))[unique_topic]
    assert len(found.partitions) == 3
    assert (await page.refused("topic-creation", body))[0] == 422


async def test_a_topic_is_deleted_as_the_plan_has_shown_it(
    page: ChangingPage, live_bootstrap: str, unique_topic: str
) -> None:
    body = {"topic": unique_topic}
    async with (
        Admin(bootstrap_servers=live_bootstrap) as admin,
        Producer(bootstrap_servers=live_bootstrap) as producer,
    ):
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
        await producer.send_and_wait(unique_topic, b"x")
        stale = await page.plan("topic-deletion", body)
        assert (stale["plan"]["partitions"], stale["plan"]["offsets"]) == (1, 1)
        # The topic with this name is another one by now.
        await admin.delete_topics(unique_topic)
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
        assert (await page.refused("topic-deletion", stale["send"]))[0] == 409
        # Records that arrive after the plan do not make it another one.
        seen = await page.plan("topic-deletion", body)
        await producer.send_and_wait(unique_topic, b"y")
        status, answer = await page.post("topic-deletion", seen["send"])
        assert (status, answer["result"]["text"]) == (200, f"Deleted topic {unique_topic}")
        assert unique_topic not in await admin.list_topics()


async def test_an_open_transaction_is_aborted_and_no_later_one(
    page: ChangingPage, live_bootstrap: str, unique_topic: str
) -> None:
    settings: Any = {"bootstrap_servers": live_bootstrap, "transactional_id": unique_topic}
    async with Producer(**settings) as producer, Admin(bootstrap_servers=live_bootstrap) as admin:
        await producer.init_transactions()
        assert (await page.refused("abort", {"id": unique_topic}))[0] == 409
        await producer.begin_transaction()
        await producer.send_and_wait(unique_topic, b"x", partition=0)
        stale = await page.plan("abort", {"id": unique_topic})
        assert (stale["plan"]["partitions"], stale["plan"]["first"]) == (1, [f"{unique_topic}-0"])
        assert not stale["plan"]["client_gone"]
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait(unique_topic, b"x", partition=0)
        assert (await page.refused("abort", stale["send"]))[0] == 409
        result = await page.do("abort", {"id": unique_topic})
        assert result["text"] == f"Aborted the transaction of {unique_topic}"
        found = (await admin.describe_transactions(unique_topic))[unique_topic]
        assert not found.is_open or found.state == "PrepareAbort"


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("topic-creation", {}, 400),
        ("topic-creation", {"topic": "a b", "partitions": 1}, 422),
        ("topic-creation", {"topic": "a", "partitions": -1}, 400),
        ("topic-creation", {"topic": "a", "partitions": 10_001}, 400),
        ("topic-creation", {"topic": "a", "settings": {"retention.ms": 1}}, 400),
        ("topic-creation", {"topic": "a", "settings": {"no.such": "1"}}, 422),
        ("topic-creation", {"topic": "x" * 250}, 400),
        ("topic-deletion", {}, 400),
        ("topic-deletion", {"topic": "no-such-topic"}, 404),
        ("topic-deletion", {"topic": "no-such-topic", "offsets": "7"}, 404),
        ("topic-deletion", {"topic": "__transaction_state"}, 422),
        ("abort", {}, 400),
        ("abort", {"id": "nobody"}, 422),
    ],
)
async def test_a_wrong_change_of_topics_or_transactions_is_refused(
    page: ChangingPage, live_bootstrap: str, what: str, body: dict[str, Any], status: int
) -> None:
    if body.get("topic") == "__transaction_state":
        async with Producer(bootstrap_servers=live_bootstrap, transactional_id="t") as producer:
            await producer.init_transactions()
    answered, title = await page.refused(what, body)
    assert answered == status, title


@pytest.mark.full
async def test_a_browser_creates_a_topic_aborts_a_transaction_and_deletes_the_topic(
    live_bootstrap: str, browser_page: Page, unique_topic: str
) -> None:
    from playwright.async_api import expect

    page = browser_page
    settings: Any = {"bootstrap_servers": live_bootstrap, "transactional_id": unique_topic}
    with console_process(live_bootstrap, "--write") as address:
        await page.goto(f"{address}topics")
        await page.get_by_role("link", name="Create", exact=True).click()
        await page.get_by_role("textbox", name="Topic").fill(unique_topic)
        await page.get_by_label("Partitions").fill("2")
        await page.get_by_label("Settings").fill("retention.ms=86400000")
        await page.get_by_role("button", name="Show the plan").click()
        await expect(page.get_by_role("dialog")).to_contain_text("2 partitions")
        await page.get_by_role("button", name="Create it").click()
        await expect(page.get_by_text(f"Created topic {unique_topic}")).to_be_visible()
        async with Producer(**settings) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait(unique_topic, b"x", partition=0)
            await page.goto(f"{address}transaction?id={unique_topic}")
            await page.get_by_role("link", name="Abort", exact=True).click()
            await page.get_by_role("button", name="Show the plan").click()
            await expect(page.get_by_role("dialog")).to_contain_text(f"{unique_topic}-0")
            await page.get_by_role("button", name="Abort it").click()
            await expect(page.get_by_text("Aborted the transaction")).to_be_visible()
        await page.goto(f"{address}topic?name={unique_topic}")
        await page.get_by_role("link", name="Delete", exact=True).click()
        await page.get_by_role("button", name="Show the plan").click()
        await expect(page.get_by_role("dialog")).to_contain_text("goes for good, with 2 partitions")
        await page.get_by_role("button", name="Delete it").click()
        await expect(page.get_by_text(f"Deleted topic {unique_topic}")).to_be_visible()
