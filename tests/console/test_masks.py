"""Hidden fields: no page, file, tail or filter of the console shows or reveals them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cli_runner import Commands
from odradek import Producer
from odradek_client.admin import Admin, NewTopic
from odradek_console import tail
from odradek_console.answers import PageQuery
from odradek_console.asked import Asked
from odradek_console.record_rules import use_masks
from odradek_console.scan import Scan
from odradek_console.sessions import ConsoleSession
from odradek_records.masking import Masks

_SEEN = {"id": 1, "customer": {"name": "<text of 4>"}, "note": '{"pin": "<number>"}'}


@pytest.fixture
def masks() -> Iterator[None]:
    """The rules of a console with --hide-field pin --hide-field customer.*"""
    use_masks(Masks(True, hidden=["PIN", "customer.*"], items_max=1_000, names_max=1_000))
    yield
    use_masks(None)


async def _write(bootstrap: str, topic: str) -> None:
    value = {"id": 1, "customer": {"name": "hush"}, "note": '{"pin": 4711}'}
    headers: list[tuple[str, bytes | None]] = [
        ("Pin", b"hush"),
        ("kind", b"order"),
        ("bytes", b"\xff"),
    ]
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(NewTopic(topic, partitions=1))
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for each in (json.dumps(value).encode(), b"hush", b"\xff\x00hush", None):
            await producer.send_and_wait(topic, each, key=b"hush", headers=headers)


async def _body(client: httpx.AsyncClient, path: str, **params: Any) -> str:
    answer = await client.get(f"/api/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.text


@pytest.mark.usefixtures("masks")
async def test_hidden_values_are_on_no_page_and_in_no_file(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _write(live_bootstrap, unique_topic)
    listed = await _body(console_client, "records", topic=unique_topic, scope="all", order="oldest")
    rows = json.loads(listed)["rows"]
    assert json.loads(rows[0]["value"]["text"]) == _SEEN
    assert [row["value"]["text"] for row in rows[1:]] == ["<text of 4>", "<text of 68>", "null"]
    # The sizes are those of the records.
    assert [row["value"]["bytes"] for row in rows] == [66, 4, 6, None]
    assert {row["key"]["text"] for row in rows} == {"<text of 4>"}
    assert [(name, field["text"], field["bytes"]) for name, field in rows[0]["headers"]] == [
        ("Pin", "<text of 4>", 4), ("kind", "order", 5), ("bytes", "ff", 1)
    ]  # fmt: skip
    at: dict[str, Any] = {"topic": unique_topic, "partition": 0}
    bodies = [listed]
    for offset in range(4):
        panel = await _body(console_client, "record", **at, offset=offset)
        assert json.loads(panel)["value"]["attempts"] == []
        bodies.append(panel)
    for part in ("key", "value", "header"):
        bodies.append(await _body(console_client, "value", **at, offset=0, part=part, header=0))
    assert json.loads(bodies[-2]) == _SEEN
    for name in ("jsonl", "csv"):
        bodies.append(
            await _body(console_client, "export", topic=unique_topic, scope="all", format=name)
        )
    for body in bodies:
        assert "hush" not in body and "4711" not in body


@pytest.mark.usefixtures("masks")
async def test_hidden_values_are_in_no_tail(live_bootstrap: str, unique_topic: str) -> None:
    await _write(live_bootstrap, unique_topic)
    settings = {"bootstrap_servers": live_bootstrap}
    session = ConsoleSession({"admin": settings})
    start = Scan.forward({0: (0, 1 << 62)}).cursor()
    stream = await tail.tail(Asked(session, PageQuery({"topic": unique_topic}), start))
    told = ""
    while told.count('"offset"') < 4:
        told += (await anext(stream.pieces)).decode()
    await stream.pieces.aclose()
    await session.close()
    assert "<text of 4>" in told and "hush" not in told and "4711" not in told


@pytest.mark.usefixtures("masks")
async def test_a_filter_knows_only_what_is_shown(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _write(live_bootstrap, unique_topic)

    async def hits(text: str) -> int:
        asked = {"topic": unique_topic, "scope": "all", "filter": text}
        found: int = json.loads(await _body(console_client, "records", **asked))["hits"]
        return found

    for probe in (
        *("hush", "key=hush", "value~hush", "value=hush", "header.Pin=hush", "4711"),
        *("$.customer.name=hush", "$.customer.name>=h", "$.note~4711"),
    ):
        assert await hits(probe) == 0, probe
    # The exact opposite must not tell either: every record has the same answer.
    assert await hits("!key=hush") == 4
    assert (await hits("$.id=1"), await hits("header.kind=order"), await hits("offset>=2")) == (
        1, 4, 2
    )  # fmt: skip


@pytest.mark.usefixtures("masks")
@pytest.mark.parametrize("name", ["text", "hex", "protobuf-raw"])
async def test_no_other_format_goes_around_the_masks(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str, name: str
) -> None:
    await _write(live_bootstrap, unique_topic)
    about = json.loads(await _body(console_client, "console"))
    assert about["formats"] == ["guess"]
    for path, more in (("records", {}), ("record", {"partition": 0, "offset": 0})):
        params: dict[str, Any] = {"topic": unique_topic, "value_format": name, **more}
        answer = await console_client.get(f"/api/{path}", params=params)
        assert (answer.status_code, "hush" in answer.text) == (400, False)


def test_fields_cannot_be_shown_that_nothing_hides() -> None:
    odradek = Commands("127.0.0.1:1")
    odradek.run("console", "--no-open", "--show-field", "id", code=2)
    assert "--hide-values or --hide-field" in odradek.stderr
