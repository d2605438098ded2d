"""Scans of a real broker's records, and the details of one record."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import httpx
import pytest

from odradek import Producer
from odradek.broker import SubprocessBroker
from odradek_client.admin import Admin, NewTopic
from odradek_console import reading
from odradek_console.record_rules import use_decoders
from odradek_console.server import Console, ConsoleOptions
from odradek_records.decoders import Decoders
from waiting import DEADLINE_S


async def _create(bootstrap: str, topic: str, partitions: int = 1, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics(NewTopic(topic, partitions=partitions, configs=named))


async def _write(bootstrap: str, topic: str, *values: bytes | None, partitions: int = 1) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number, value in enumerate(values):
            await producer.send(
                topic,
                value,
                key=b"k%d" % number,
                partition=number % partitions,
                timestamp_ms=number,
            )
        await producer.flush()


async def _ask(client: httpx.AsyncClient, topic: str, **params: Any) -> dict[str, Any]:
    answer = await client.get("/api/records", params={"topic": topic, **params})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def _offsets(body: dict[str, Any]) -> list[int]:
    return [row["offset"] for row in body["rows"]]


async def test_the_last_records_are_shown_first_and_earlier_ones_on_request(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic, 2)
    await _write(live_bootstrap, unique_topic, *(b"%d" % n for n in range(20)), partitions=2)
    body = await _ask(console_client, unique_topic, count=6)
    assert [row["timestamp"] for row in body["rows"]] == [19, 18, 17, 16, 15, 14]
    assert body["read"] == [
        {"partition": 0, "from": 7, "to": 10},
        {"partition": 1, "from": 7, "to": 10},
    ]
    assert (body["hits"], body["records"], body["missing"], body["cursor"]) == (6, 6, 0, None)
    assert (body["partitions"], body["all_partitions"], body["left"]) == (2, 2, 0)
    earlier = await _ask(console_client, unique_topic, count=20, cursor=body["before"], before=1)
    assert [row["timestamp"] for row in earlier["rows"]] == list(range(13, -1, -1))
    assert earlier["before"] is None


async def test_a_scan_in_steps_reads_every_offset_once(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic, 3)
    await _write(live_bootstrap, unique_topic, *(b"%d" % n for n in range(100)), partitions=3)
    for order in ("newest", "oldest"):
        seen: list[int] = []
        cursor = ""
        while cursor is not None:
            body = await _ask(
                console_client, unique_topic, scope="all", order=order, rows=7, cursor=cursor
            )
            assert len(body["rows"]) <= 7
            seen += [row["timestamp"] for row in body["rows"]]
            cursor = body["cursor"]
        assert sorted(seen) == list(range(100))


async def test_a_scan_may_begin_at_an_offset_or_a_time(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    await _write(live_bootstrap, unique_topic, *(b"%d" % n for n in range(10)))
    body = await _ask(console_client, unique_topic, scope="offset", at=7, order="oldest")
    assert _offsets(body) == [7, 8, 9]
    body = await _ask(
        console_client, unique_topic, scope="time", at="1970-01-01T00:00:00.004", order="oldest"
    )
    assert _offsets(body) == [4, 5, 6, 7, 8, 9]
    assert _offsets(await _ask(console_client, unique_topic, scope="time", at="2999-01-01")) == []


async def test_filters_match_key_header_text_and_path_and_count_records_read(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        for number in range(50):
            await producer.send(
                unique_topic,
                json.dumps({"n": number, "who": "Odradek" if number == 9 else "x"}).encode(),
                key=b"k%d" % number,
                headers=[("kind", b"order" if number == 5 else b"other")],
            )
        await producer.flush()
    for text, expected in (
        ("key=k7", [7]),
        ("header.kind=order", [5]),
        ("Odradek", [9]),
        ("$.n>=48", [49, 48]),
        ("$.n>=10 $.n<12 partition=0", [11, 10]),
    ):
        body = await _ask(console_client, unique_topic, scope="all", filter=text)
        assert (_offsets(body), body["records"]) == (expected, 50), text
        assert body["hits"] == len(expected)


@pytest.fixture
def schema_of_fruit(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A schema whose file the console knows, until the end of the test."""
    schema = {"type": "record", "name": "Fruit", "fields": [{"name": "weight", "type": "long"}]}
    path = tmp_path / "fruit.avsc"
    path.write_text(json.dumps(schema))
    use_decoders(Decoders(schemas=[f"value={path}"]))
    yield schema
    use_decoders(Decoders())


async def test_values_are_decoded_and_filtered_by_the_schemas_of_the_console(
    console_client: httpx.AsyncClient,
    live_bootstrap: str,
    unique_topic: str,
    schema_of_fruit: dict[str, Any],
) -> None:
    await _create(live_bootstrap, unique_topic)
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        for weight in (70, 90):
            data = io.BytesIO()
            fastavro.schemaless_writer(data, schema_of_fruit, {"weight": weight})
            await producer.send_and_wait(unique_topic, data.getvalue())
    body = await _ask(console_client, unique_topic, scope="all", filter="$.weight>80")
    (row,) = body["rows"]
    assert row["value"]["format"] == "avro"
    assert json.loads(row["value"]["text"]) == {"weight": 90}
    assert "protobuf" in (await console_client.get("/api/console")).json()["formats"]


@pytest.mark.parametrize(
    ("params", "status", "word"),
    [
        ({"filter": "colour=red"}, 400, "colour"),
        ({"filter": "key=~(a+)+$"}, 400, "regular expressions"),
        ({"partitions": "0-9999999"}, 400, "Too many"),
        ({"partitions": "x"}, 400, "partitions"),
        ({"partitions": "7"}, 404, "no such partition"),
        ({"scope": "time", "at": "yesterday"}, 400, "time"),
        ({"scope": "some"}, 400, "scope"),
        ({"order": "random"}, 400, "order"),
        ({"isolation": "none"}, 400, "isolation"),
        ({"cursor": "zzz"}, 400, "cursor"),
        ({"value_format": "cobol"}, 400, "format"),
    ],
)
async def test_a_wrong_parameter_is_named(
    console_client: httpx.AsyncClient,
    live_bootstrap: str,
    unique_topic: str,
    params: dict[str, str],
    status: int,
    word: str,
) -> None:
    await _create(live_bootstrap, unique_topic)
    answer = await console_client.get("/api/records", params={"topic": unique_topic, **params})
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert word in error["title"] + error["detail"]


async def test_a_scan_of_an_empty_topic_is_empty_and_of_a_missing_one_fails(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    answer = await console_client.get("/api/records", params={"topic": unique_topic})
    assert answer.status_code == 404
    await _create(live_bootstrap, unique_topic, 3)
    body = await _ask(console_client, unique_topic)
    assert (body["rows"], body["read"], body["cursor"], body["before"]) == ([], [], None, None)


async def test_records_of_transactions_are_shown_by_isolation_level(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    async with Producer(
        bootstrap_servers=live_bootstrap, transactional_id=unique_topic
    ) as producer:
        await producer.init_transactions()
        for value, commits in ((b"yes", True), (b"no", False), (b"open", None)):
            await producer.begin_transaction()
            await producer.send_and_wait(unique_topic, value)
            if commits is not None:
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        # The offsets: 0 is committed, and 1 its marker; 2 is aborted, and 3 its marker; 4 is open.
        body = await _ask(
            console_client, unique_topic, isolation="read_committed", order="oldest", markers=1
        )
        shown = [(row["offset"], row.get("marker", "record")) for row in body["rows"]]
        assert shown == [(0, "record"), (1, "commit"), (3, "abort")]
        assert (body["hidden"], body["markers"], body["missing"]) == (1, 2, 0)
        assert body["held"] == [{"partition": 0, "from": 4, "to": 5}]
        body = await _ask(console_client, unique_topic, order="oldest")
        assert _offsets(body) == [0, 2, 4]
        assert (body["hidden"], body["markers"], body["held"]) == (0, 2, [])
        for offset, fate in ((0, "committed"), (2, "aborted"), (4, "open")):
            panel = await _record(console_client, unique_topic, offset)
            assert panel["transaction"] == fate
            assert panel["batch"]["transactional"] is True
            assert panel["batch"]["producer_id"] >= 0
        assert (await _record(console_client, unique_topic, 1))["marker"] == "commit"
        await producer.abort_transaction()


async def _record(client: httpx.AsyncClient, topic: str, offset: int, **more: Any) -> Any:
    answer = await client.get(
        "/api/record", params={"topic": topic, "partition": 0, "offset": offset, **more}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_record_has_its_batch_its_formats_and_failed_formats(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    async with Producer(bootstrap_servers=live_bootstrap, compression_type="gzip") as producer:
        await producer.send_and_wait(unique_topic, b"\xff\x00", key=None, headers=[("h", None)])
        await producer.send_and_wait(unique_topic, b'{"a": 1}', key=b"text")
    panel = await _record(console_client, unique_topic, 0)
    assert (panel["key"]["format"], panel["value"]["format"]) == ("null", "hex")
    assert {"json", "text"} <= {each["format"] for each in panel["value"]["attempts"]}
    assert all(each["failure"] for each in panel["value"]["attempts"])
    assert panel["headers"] == [
        ["h", {"format": "null", "text": "null", "bytes": None, "cut": False}]
    ]
    panel = await _record(console_client, unique_topic, 1)
    assert (panel["value"]["format"], panel["key"]["format"]) == ("json", "text")
    assert (panel["batch"]["compression"], panel["timestamp_type"]) == ("gzip", "create")
    assert panel["sequence"] == panel["batch"]["base_sequence"] == 1
    panel = await _record(console_client, unique_topic, 1, value_format="hex")
    assert panel["value"]["text"].startswith("00000000  7b 22 61")
    answer = await console_client.get(
        "/api/record", params={"topic": unique_topic, "partition": 0, "offset": 2}
    )
    assert answer.status_code == 404
    assert "ends before offset 2" in answer.json()["error"]["detail"]


async def test_long_values_are_shown_in_part_and_downloaded_as_files(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    value = ("ä" * 2_500_000).encode()
    binary = bytes(range(256)) * 20_000
    await _create(live_bootstrap, unique_topic, max_message_bytes="20000000")
    async with Producer(bootstrap_servers=live_bootstrap, max_request_size=20_000_000) as producer:
        await producer.send_and_wait(unique_topic, value, headers=[("big", binary[:100_000])])
        await producer.send_and_wait(unique_topic, binary)
    answer = await console_client.get("/api/records", params={"topic": unique_topic})
    assert len(answer.content) < 20_000
    rows = answer.json()["rows"]
    assert [
        (row["value"]["format"], row["value"]["bytes"], row["value"]["cut"]) for row in rows
    ] == [
        ("hex", len(binary), True),
        ("text", len(value), True),
    ]
    panel = await _record(console_client, unique_topic, 0)
    assert set(panel["value"]["text"]) == {"ä"}
    assert panel["value"]["cut"] and len(panel["value"]["text"]) <= 64 * 1024
    for part, more, expected in (
        ("value", {}, value),
        ("header", {"header": 0}, binary[:100_000]),
    ):
        answer = await console_client.get(
            "/api/value",
            params={"topic": unique_topic, "partition": 0, "offset": 0, "part": part, **more},
        )
        assert answer.content == expected
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert answer.headers["content-type"] == "application/octet-stream"
    answer = await console_client.get(
        "/api/value", params={"topic": unique_topic, "partition": 0, "offset": 0, "part": "key"}
    )
    assert answer.status_code == 404


async def test_records_that_are_deleted_while_they_are_read_are_reported(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    await _write(live_bootstrap, unique_topic, *(b"%d" % n for n in range(30)))
    body = await _ask(console_client, unique_topic, scope="all", order="oldest", rows=5)
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.delete_records({(unique_topic, 0): 20})
    body = await _ask(
        console_client, unique_topic, scope="all", order="oldest", cursor=body["cursor"]
    )
    assert _offsets(body) == list(range(20, 30))
    assert "before offset 20 were deleted" in body["notes"][0]
    answer = await console_client.get(
        "/api/record", params={"topic": unique_topic, "partition": 0, "offset": 3}
    )
    assert "were deleted" in answer.json()["error"]["detail"]


async def test_a_scan_ends_when_its_topic_is_deleted(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    await _write(live_bootstrap, unique_topic, *(b"%d" % n for n in range(30)))
    body = await _ask(console_client, unique_topic, scope="all", rows=5)
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.delete_topics([unique_topic])
    answer = await console_client.get(
        "/api/records", params={"topic": unique_topic, "scope": "all", "cursor": body["cursor"]}
    )
    assert answer.status_code == 404
    assert "topic" in answer.json()["error"]["title"]


async def test_a_step_of_a_scan_ends_at_its_byte_limit_and_the_next_continues(
    console_client: httpx.AsyncClient,
    live_bootstrap: str,
    unique_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One fetch has two megabytes, so the step ends after one fetch.
    monkeypatch.setattr(reading, "_STEP_BYTES", 1)
    await _create(live_bootstrap, unique_topic)
    values = [b"%07d" % n + b"x" * 20_000 for n in range(400)]
    await _write(live_bootstrap, unique_topic, *values)
    params = {"scope": "all", "filter": "value~0000399", "order": "oldest"}
    body = await _ask(console_client, unique_topic, **params)
    steps, read = 1, body["records"]
    assert 0 < read < 200 and body["size_bytes"] < 3 * 2**20
    assert (body["offsets"], body["left"]) == (400, 400 - read)
    while body["cursor"] is not None:
        body = await _ask(console_client, unique_topic, cursor=body["cursor"], **params)
        steps, read = steps + 1, read + body["records"]
    assert (read, _offsets(body)) == (400, [399])
    assert 3 <= steps <= 20


async def test_the_number_of_scans_is_limited(
    console_client: httpx.AsyncClient, unique_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_SCANS_MAX", 0)
    for path in ("records", "export"):
        answer = await console_client.get(f"/api/{path}", params={"topic": unique_topic})
        assert answer.status_code == 429


@pytest.mark.own_broker
@pytest.mark.full
async def test_offsets_that_compaction_removed_are_counted(
    tmp_path: Path, unique_topic: str
) -> None:
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
    with SubprocessBroker(data_dir=tmp_path / "data", settings=settings) as broker:
        await _create(broker.bootstrap, unique_topic, cleanup_policy="compact", segment_ms="1")
        async with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number in range(20):
                await producer.send_and_wait(unique_topic, b"%d" % number, key=b"same")
        clients = {"bootstrap_servers": broker.bootstrap}
        app = Console(ConsoleOptions({"one": {"admin": clients}})).app()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            async with asyncio.timeout(DEADLINE_S):
                body = await _ask(client, unique_topic, order="oldest")
                while body["missing"] < 15:
                    await asyncio.sleep(0.1)
                    body = await _ask(client, unique_topic, order="oldest")
            assert body["records"] + body["missing"] == 20
            assert body["read"] == [{"partition": 0, "from": 0, "to": 20}]
            assert _offsets(body)[-1] == 19
            answer = await client.get(
                "/api/record", params={"topic": unique_topic, "partition": 0, "offset": 3}
            )
            assert "compaction" in answer.json()["error"]["detail"]
