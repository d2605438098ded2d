"""Hostile parameters of every address below `/api` get an answer or a clear refusal, never a
500."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from console_process import clients_for
from odradek import Producer
from odradek_client.admin import Admin, NewTopic
from odradek_client.errors import OdradekError
from odradek_console import server
from odradek_console.answers import HttpProblem, PageQuery, refusal_of
from odradek_console.asked import Asked
from odradek_console.changes import perform
from odradek_console.live import Hub
from odradek_console.sessions import ConsoleSession

_TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "-0",
    "1.5",
    "NaN",
    "Infinity",
    "1e400",
    "9" * 18,
    str(2**31),
    str(2**63 - 1),
    str(2**63),
    "9" * 5_000,
    "٣",
    "²",
    "\0",
    "\ud800",
    "..",
    "<script>",
    "x" * 300,
    "x" * 20_000,
    "a" * 200 + ",",
    "0-999999999",
    "[" * 5_000,
    json.dumps([0, [{}]]),
    "key=" + "(" * 500,
    "$." + "a." * 3_000,
    "time>=99999999999999",
    "9999-12-31T23:59:59+23:59",
    "partition:x-0",
    "share_record:x",
    "-name",
)
_VALUES: tuple[Any, ...] = (
    *_TEXTS,
    None,
    True,
    -1,
    1.5,
    float("nan"),
    float("inf"),
    2**64,
    10**400,
    [],
    [[]],
    {},
    {"a": {"b": []}},
    {"\ud800": "\ud800"},
    {"": ""},
    [{"topic": None}],
)


class _Told(dict[str, Any]):
    """Query parameters, or fields of a change, that record the names which are looked up."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)


def _routes(kind: str) -> list[str]:
    return sorted(path for family in server._FAMILIES for path in getattr(family, kind, {}))


def _route(kind: str, path: str) -> Any:
    (found,) = [
        table[path] for family in server._FAMILIES if path in (table := getattr(family, kind, {}))
    ]
    return found


@pytest.fixture
async def session(live_bootstrap: str) -> AsyncIterator[ConsoleSession]:
    settings = clients_for(live_bootstrap)["admin"]
    patient = {**settings, "default_api_timeout_ms": 3_000, "request_timeout_ms": 3_000}
    made = ConsoleSession({"admin": patient, "consumer": patient, "producer": patient})
    yield made
    await made.close()


@pytest.fixture
async def sound(live_bootstrap: str, unique_topic: str) -> dict[str, Any]:
    """Parameters with which most views answer."""
    async with Admin(bootstrap_servers=live_bootstrap) as admin:
        await admin.create_topics(NewTopic(unique_topic, partitions=1))
    async with Producer(bootstrap_servers=live_bootstrap) as producer:
        await producer.send_and_wait(unique_topic, b"x", partition=0)
    return {
        "topic": unique_topic,
        "name": unique_topic,
        "type": "topic",
        "partition": "0",
        "offset": "0",
        "subject": "group:g",
    }


def _hostile(sound: dict[str, Any], names: set[str], values: Any) -> Iterator[dict[str, Any]]:
    """Parameters for each hostile value: once with this value for all names, and once for each
    name, with valid values for the other names; for the type, all that have settings."""
    types = ("topic", "group", "broker") if "type" in names else ("topic",)
    for value in values:
        yield dict.fromkeys(names, value)
        for name in sorted(names):
            for kind in types:
                yield {**sound, "type": kind, name: value}


async def _outcome(asking: Any) -> int:
    """The status of an answer or a refusal. Other exceptions are raised."""
    try:
        async with asyncio.timeout(60):
            await asking
    except HttpProblem as refusal:
        assert refusal.title
        return refusal.status
    except OdradekError as error:
        return refusal_of(error).status
    return 200


async def _names_of(ask: Any, sound: dict[str, Any]) -> set[str]:
    told = _Told(sound)
    await _outcome(ask(told))
    alone = _Told({})
    await _outcome(ask(alone))
    return told.names | alone.names


async def _check(ask: Any, sound: dict[str, Any], values: Any) -> None:
    names = await _names_of(ask, sound)
    wrong = []
    for given in _hostile(sound, names, values):
        try:
            if await _outcome(ask(_Told(given))) == 500:
                wrong.append((given, "500"))
        except Exception as error:  # noqa: BLE001 - all are reported together
            wrong.append((given, repr(error)))
    assert [f"{str(given)[:200]}: {why[:200]}" for given, why in wrong] == []


@pytest.mark.parametrize("path", _routes("VIEWS"))
async def test_a_view_refuses_hostile_parameters(
    path: str, session: ConsoleSession, sound: dict[str, Any]
) -> None:
    async def ask(given: dict[str, Any]) -> None:
        answer = await _route("VIEWS", path)(Asked(session, PageQuery(given)))
        json.dumps(answer)

    await _check(ask, sound, _TEXTS)


async def test_repeated_and_odd_parameters_are_answered_in_json(
    console_client: httpx.AsyncClient,
) -> None:
    for path in _routes("VIEWS"):
        for text in (
            "limit=1&limit=x&offset=0&offset=-1&id=a&id=b&name=a&name=b&topic=a&topic=b",
            "&".join(["name=%00&topic=%ff&id=%ed%a0%80&subject=%"] * 200),
            "&&==;=&;&limit",
        ):
            answer = await console_client.get(f"/api{path}?{text}")
            assert answer.status_code != 500, (path, text, answer.text)
            assert isinstance(answer.json(), dict)


@pytest.mark.parametrize("path", _routes("STREAMS"))
async def test_a_stream_refuses_hostile_parameters(
    path: str, session: ConsoleSession, sound: dict[str, Any]
) -> None:
    async def ask(given: dict[str, Any]) -> None:
        stream = await _route("STREAMS", path)(Asked(session, PageQuery(given), "9" * 5_000))
        server._Pieces(stream, session)
        await anext(stream.pieces, None)
        await stream.pieces.aclose()

    await _check(ask, sound, _TEXTS)


@pytest.mark.parametrize("path", _routes("FEEDS"))
async def test_a_feed_refuses_hostile_names(path: str, session: ConsoleSession) -> None:
    feed = _route("FEEDS", path)
    hub = Hub(session, {path: feed})

    async def ask(text: str) -> None:
        hub.check([f"{path}:{text}"])
        await feed.poll(session, text)

    wrong = []
    for text in _TEXTS:
        try:
            if await _outcome(ask(text)) == 500:
                wrong.append((text[:50], "500"))
        except Exception as error:  # noqa: BLE001 - all are reported together
            wrong.append((text[:50], repr(error)))
    assert wrong == []


@pytest.mark.parametrize("path", _routes("CHANGES"))
async def test_a_change_refuses_hostile_fields(
    path: str, session: ConsoleSession, sound: dict[str, Any]
) -> None:
    async def ask(given: _Told) -> None:
        # A change without a plan changes nothing.
        json.dumps(await perform(path, _route("CHANGES", path), session, given))

    await _check(ask, {**sound, "partition": 0, "offset": 0, "value": "eA=="}, _VALUES)
