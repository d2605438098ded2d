"""Exports of records: JSON Lines that produce the same records again, CSV, and limits."""

from __future__ import annotations

import asyncio
import csv
import io
from pathlib import Path

import httpx
import pytest

from cli_runner import Shell
from odradek import Consumer, Producer
from odradek_client.admin import Admin, NewTopic
from odradek_console import export

#: Key, value and headers of each record.
_RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"key", b'{"a": "\xc3\xa4"}', [("h", b"1"), ("h", None), ("", b"\xff\x00")]),
    (None, None, []),
    (b"", b"", []),
    (b"\xff\xfe", bytes(range(256)), [("\u202eh\n", "\u2028".encode())]),
    (b"a\nb", b"line\r\nline\x00\x1b[31m", []),
    (b"k", b"=1+1", [("=h", b"x")]),
]


async def _create(bootstrap: str, *topics: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, partitions=2) for topic in topics])


async def _write(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number, (key, value, headers) in enumerate(_RECORDS):
            await producer.send_and_wait(
                topic, value, key=key, headers=headers, partition=number % 2, timestamp_ms=number
            )


async def _read(bootstrap: str, topic: str) -> list[tuple[object, ...]]:
    async with Consumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        found: list[tuple[object, ...]] = []
        while len(found) < len(_RECORDS):
            found += [
                (r.partition, r.offset, r.timestamp, r.key, r.value, list(r.headers))
                for r in await consumer.poll()
            ]
        return sorted(found, key=lambda each: each[:2])


async def test_exported_json_lines_produce_the_same_records_again(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str, tmp_path: Path
) -> None:
    again = f"{unique_topic}-again"
    await _create(live_bootstrap, unique_topic, again)
    await _write(live_bootstrap, unique_topic)
    answer = await console_client.get("/api/export", params={"topic": unique_topic, "scope": "all"})
    assert answer.headers["content-type"] == "application/jsonl"
    assert answer.headers["content-disposition"].endswith(f"''{unique_topic}.jsonl")
    file = tmp_path / "records.jsonl"
    file.write_bytes(answer.content)
    shell = Shell(live_bootstrap)
    arguments = ["produce", again, str(file), "--json", "--keep-partition"]
    await asyncio.to_thread(shell.run, *arguments)
    assert await _read(live_bootstrap, again) == await _read(live_bootstrap, unique_topic)


async def test_exported_csv_has_all_bytes_and_no_formulas(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    await _write(live_bootstrap, unique_topic)
    answer = await console_client.get(
        "/api/export", params={"topic": unique_topic, "scope": "all", "format": "csv"}
    )
    rows = list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))
    by_place = {(int(row["partition"]), int(row["offset"])): row for row in rows}
    assert len(by_place) == len(_RECORDS)
    first = by_place[0, 0]
    assert (first["key"], first["value"], first["time"]) == (
        "key",
        '{"a": "ä"}',
        "1970-01-01T00:00:00.000+00:00",
    )
    assert first["headers"] == '[["h", "1"], ["h", null], ["", {"base64": "/wA="}]]'
    null, empty = by_place[1, 0], by_place[0, 1]
    assert (null["key_encoding"], null["value_encoding"]) == ("null", "null")
    assert (empty["key_encoding"], empty["value_encoding"]) == ("text", "text")
    assert by_place[1, 1]["value_encoding"] == "base64"
    assert by_place[0, 2]["value"] == "line\r\nline\x00\x1b[31m"
    assert by_place[1, 2]["value"] == "'=1+1"


async def test_an_export_takes_a_filter_a_scope_and_a_limit(
    console_client: httpx.AsyncClient, live_bootstrap: str, unique_topic: str
) -> None:
    await _create(live_bootstrap, unique_topic)
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        for number in range(100):
            await producer.send(unique_topic, b"%d" % number, partition=0)
        await producer.flush()

    async def count(**params: str | int) -> int:
        answer = await console_client.get(
            "/api/export", params={"topic": unique_topic, "scope": "all", **params}
        )
        assert answer.status_code == 200
        return answer.content.count(b"\n")

    assert await count() == 100
    assert await count(filter="value~7") == 19
    assert await count(limit=30) == 30
    assert await count(scope="last", count=10) == 10
    assert await count(scope="offset", at=90) == 10
    answer = await console_client.get("/api/export", params={"topic": f"{unique_topic}-not"})
    assert answer.status_code == 404
    answer = await console_client.get(
        "/api/export", params={"topic": unique_topic, "format": "parquet"}
    )
    assert answer.status_code == 400


async def test_an_export_beyond_its_limit_of_bytes_fails_visibly(
    console_client: httpx.AsyncClient,
    live_bootstrap: str,
    unique_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await _create(live_bootstrap, unique_topic)
    await _write(live_bootstrap, unique_topic)
    monkeypatch.setattr(export, "_BYTES_MAX", 100)
    with pytest.raises(export.ExportEnded):
        await console_client.get("/api/export", params={"topic": unique_topic, "scope": "all"})
