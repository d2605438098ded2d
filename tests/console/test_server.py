"""Answers of the console's server: access, the headers of every answer, and errors."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from odradek_client.errors import ClusterAuthorizationFailed
from odradek_console import topics
from odradek_console.server import WRITE_HEADER
from odradek_console.sessions import ConsoleSession


async def test_every_answer_has_security_headers(console_client: httpx.AsyncClient) -> None:
    for path in ("/", "/topics?zone=local", "/static/app.mjs", "/api/console", "/api/nothing"):
        answer = await console_client.get(path)
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


async def test_every_page_address_serves_the_same_html(console_client: httpx.AsyncClient) -> None:
    answer = await console_client.get("/group?name=..")
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script>" not in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("localhost", 200),
        ("LOCALHOST.:1", 200),
        ("[::1]:8080", 200),
        ("10.1.2.3", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:8080", 421),
        ("", 421),
        ("127.0.0.1:99999", 400),
        ("127.0.0.1:" + "9" * 5_000, 400),
        ("[127.0.0.1", 400),
        ("[::1]]:8080", 400),
        ("127.0.0.1/x", 400),
        ("a@127.0.0.1", 400),
    ],
)
async def test_unknown_host_headers_are_refused(
    console_client: httpx.AsyncClient, host: str, status: int
) -> None:
    answer = await console_client.get("/api/console", headers={"host": host})
    assert answer.status_code == status
    if status == 421:
        assert "--allow-host" in answer.json()["error"]["what_to_do"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"origin": "http://127.0.0.1:8080"}, 403),
        ({WRITE_HEADER: "1"}, 403),
        ({"origin": "http://evil.example", WRITE_HEADER: "1"}, 403),
        ({"origin": "null", WRITE_HEADER: "1"}, 403),
        # The origin is accepted, but this address allows no POST.
        ({"origin": "http://127.0.0.1:8080", WRITE_HEADER: "1"}, 405),
    ],
)
async def test_changes_are_accepted_from_pages_of_the_console_only(
    console_client: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    answer = await console_client.post("/api/topics", headers=headers)
    assert answer.status_code == status
    assert answer.json()["error"]["title"]


@pytest.mark.parametrize(
    ("site", "status"),
    [
        ("same-origin", 200),
        # an address that a person has typed
        ("none", 200),
        ("cross-site", 403),
        ("same-site", 403),
        ("anything", 403),
    ],
)
async def test_other_sites_get_no_data_but_may_link_to_pages(
    console_client: httpx.AsyncClient, site: str, status: int
) -> None:
    headers = {"sec-fetch-site": site}
    answer = await console_client.get("/api/console", headers=headers)
    assert answer.status_code == status
    if status != 200:
        assert site in answer.json()["error"]["detail"]
    assert (await console_client.get("/topics", headers=headers)).status_code == 200


async def test_a_view_that_does_not_exist_is_an_error_in_json(
    console_client: httpx.AsyncClient,
) -> None:
    answer = await console_client.get("/api/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"]["detail"] == "/api/nothing"


async def test_files_outside_of_the_static_folder_are_not_served(
    console_client: httpx.AsyncClient,
) -> None:
    answer = await console_client.get("/static/..%2fserver.py")
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (ClusterAuthorizationFailed("needs Describe on the cluster"), 403, "needs Describe"),
        (ZeroDivisionError("a value from a record"), 500, "ZeroDivisionError"),
    ],
)
async def test_a_failed_view_is_an_error_in_json(
    console_client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    detail: str,
) -> None:
    async def fail(_session: ConsoleSession) -> Any:
        raise error

    monkeypatch.setattr(topics, "topic_table", fail)
    answer = await console_client.get("/api/topics")
    assert answer.status_code == status
    assert detail in answer.json()["error"]["detail"]
    assert "a value" not in answer.text


async def test_unknown_feeds_are_refused_before_the_stream_begins(
    console_client: httpx.AsyncClient,
) -> None:
    answer = await console_client.get("/api/live?feed=nothing")
    assert answer.status_code == 404
