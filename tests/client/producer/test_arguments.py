"""The arguments that `send` accepts and refuses, with and without an open batch; and serializers
and partitioners that raise."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

import budget
from odradek import Producer
from odradek_client.errors import BufferFull
from odradek_client.timestamps import as_ms
from scripted_broker import ScriptedBroker


@pytest.fixture
async def broker() -> Any:
    async with ScriptedBroker(topics={"t": 1, "wide": 6}) as running:
        yield running


def producer(broker: ScriptedBroker, **settings: Any) -> Producer:
    given: dict[str, Any] = {
        "bootstrap_servers": broker.address,
        "linger_ms": 60_000,
    }
    made = Producer(**(given | settings))
    made._random.seed(1)
    return made


WELL_SHAPED: list[tuple[Any, tuple[Any, ...]]] = [
    ({"a": b"1", "bc": None}, (("a", b"1"), ("bc", None))),
    ({"ab": b"xy"}, (("ab", b"xy"),)),
    ([("a", b"1"), ("a", b"2")], (("a", b"1"), ("a", b"2"))),
    ((["a", bytearray(b"1")],), (("a", b"1"),)),
    (None, ()),
    ({}, ()),
]


async def test_headers_of_every_accepted_shape_are_sent(
    broker: ScriptedBroker,
) -> None:
    async with producer(broker) as sending:
        for headers, _ in WELL_SHAPED * 2:
            await sending.send("t", b"x", headers=headers)
            sending.send_nowait("t", b"x", headers=headers)
    expected = [shape for _, shape in WELL_SHAPED * 2 for _ in range(2)]
    assert broker.log("t").headers == expected


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"headers": 5}, "headers must be"),
    ({"headers": "name"}, "headers must be"),
    ({"headers": [("a",)]}, "each of the headers"),
    ({"headers": [("a", b"1", b"2")]}, "each of the headers"),
    ({"headers": ["ab"]}, "each of the headers"),
    ({"headers": {"a": "text"}}, "value of header 'a' is str"),
    ({"headers": [("ab", "x")]}, "value of header 'ab' is str"),
    ({"headers": {b"a": b"x"}}, "name of header b'a' is bytes"),
    ({"headers": [(None, b"x")]}, "name of header None"),
    ({"value": "text"}, "value is str"),
    ({"value": 5}, "value is int"),
    ({"key": "text"}, "key is str"),
    ({"topic": None}, "topic is a name"),
    ({"topic": b"t"}, "topic is a name"),
    ({"topic": ["t"]}, "topic is a name"),
    ({"partition": "0"}, "partition is a number"),
    ({"partition": 0.0}, "partition is a number"),
    ({"partition": True}, "partition is a number"),
    ({"timestamp_ms": 1.5}, "timestamp_ms is float; give a datetime"),
    ({"timestamp_ms": "2020-01-01"}, "timestamp_ms is str; give a datetime"),
    ({"timestamp_ms": timedelta(1)}, "timestamp_ms is timedelta; give a datetime"),
]


@pytest.mark.parametrize("batch_is_open", [False, True])
async def test_arguments_of_wrong_types_are_named_and_reserve_no_memory(
    broker: ScriptedBroker, batch_is_open: bool
) -> None:
    async with producer(broker) as sending:
        await sending.partitions_for("t")
        if batch_is_open:
            await sending.send("t", b"first")
        accumulator = sending.accumulator
        assert accumulator is not None
        available = accumulator.available_bytes
        for wrong, said in WRONG:
            arguments: dict[str, Any] = {"topic": "t", "value": b"x"} | wrong
            with pytest.raises(TypeError, match=said):
                await sending.send(**arguments)
            with pytest.raises(TypeError, match=said):
                sending.send_nowait(**arguments)
        assert accumulator.available_bytes == available
        await sending.send("t", b"last")
    assert broker.log("t").values == ([b"first"] if batch_is_open else []) + [b"last"]


async def test_a_record_timestamp_may_be_a_datetime(broker: ScriptedBroker) -> None:
    moment = datetime(2026, 11, 22, 13, 5, 0, 123_999, tzinfo=timezone(timedelta(hours=1)))
    expected = 1_795_349_100_123
    async with producer(broker) as sending:
        deliveries = [
            await sending.send("t", b"x", timestamp_ms=moment),
            await sending.send("t", b"x", timestamp_ms=moment),
            sending.send_nowait("t", b"x", timestamp_ms=moment),
        ]
        await sending.flush()
        assert {(await each).timestamp_ms for each in deliveries} == {expected}


def test_a_time_without_a_zone_is_local_time() -> None:
    naive = datetime(2026, 7, 1, 12, 0, 0)
    assert as_ms(naive, "at") == int(naive.timestamp() * 1000)
    assert as_ms(datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), "at") == -1
    assert as_ms(7, "at") == 7
    with pytest.raises(TypeError, match="at is bool"):
        as_ms(True, "at")


# --- hooks that raise -----------------------------------------------------------------------------


class Capricious:
    """A serializer or partitioner that raises while `fails` is True."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.fails = False

    def __call__(self, *arguments: Any) -> Any:
        if self.fails:
            raise LookupError("a hook of the application")
        return self.answer if not callable(self.answer) else self.answer(*arguments)


@pytest.mark.parametrize("hook", ["key_serializer", "value_serializer", "partitioner"])
@pytest.mark.parametrize("batch_is_open", [False, True])
async def test_a_serializer_or_partitioner_that_raises_leaves_the_producer_unchanged(
    broker: ScriptedBroker, hook: str, batch_is_open: bool
) -> None:
    capricious = Capricious(0 if hook == "partitioner" else lambda content: content)
    settings: dict[str, Any] = {hook: capricious}
    async with producer(broker, **settings) as sending:
        await sending.partitions_for("t")
        if batch_is_open:
            await sending.send("t", b"first", b"k")
        accumulator = sending.accumulator
        assert accumulator is not None
        before = (accumulator.available_bytes, len(accumulator.incomplete))
        capricious.fails = True
        for _ in range(3):
            with pytest.raises(LookupError):
                await sending.send("t", b"x", b"k")
            with pytest.raises(LookupError):
                sending.send_nowait("t", b"x", b"k")
        assert (accumulator.available_bytes, len(accumulator.incomplete)) == before
        capricious.fails = False
        await sending.send("t", b"last", b"k")
    assert broker.log("t").values == ([b"first"] if batch_is_open else []) + [b"last"]


@pytest.mark.parametrize("chosen", [6, -1, "0", None])
async def test_a_partitioner_that_chooses_a_missing_partition_is_an_error(
    broker: ScriptedBroker, chosen: Any
) -> None:
    async with producer(broker, partitioner=lambda *_: chosen) as sending:
        with pytest.raises(ValueError, match="the partitioner chose"):
            await sending.send("wide", b"x")
        accumulator = sending.accumulator
        assert accumulator is not None
        assert accumulator.available_bytes == accumulator.buffer_memory


async def test_a_serializer_that_raises_while_sends_wait_reserves_no_memory(
    broker: ScriptedBroker,
) -> None:
    def refuse(content: bytes | None) -> bytes | None:
        if content == b"bad":
            raise LookupError("bad")
        return content

    room = {"buffer_memory": 2_000, "batch_size": 1_000, "max_request_size": 2_000, "linger_ms": 0}
    async with producer(broker, value_serializer=refuse, **room) as sending:
        good = [asyncio.ensure_future(sending.send("t", b"x" * 900)) for _ in range(20)]
        bad = [asyncio.ensure_future(sending.send("t", b"bad")) for _ in range(20)]
        assert all(
            isinstance(each, LookupError)
            for each in await asyncio.gather(*bad, return_exceptions=True)
        )
        await asyncio.gather(*[await each for each in good])
        accumulator = sending.accumulator
        assert accumulator is not None
        assert (accumulator.available_bytes, len(accumulator.waiters)) == (2_000, 0)
    assert len(broker.log("t").values) == 20


# --- producers that are never closed --------------------------------------------------------------


async def test_a_producer_dropped_with_unsent_records_warns_of_their_number(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    sending = producer(broker)
    await sending.start()
    for n in range(3):
        await sending.send("t", b"%d" % n)
    with (
        pytest.warns(ResourceWarning, match="3 records are lost or unacknowledged"),
        caplog.at_level(logging.ERROR, "odradek.client.producer"),
    ):
        sending._warn_of_lost_records()
    assert "3 records" in caplog.text
    await sending.network.close()


async def test_records_acknowledged_while_they_are_counted_cause_no_error(
    broker: ScriptedBroker,
) -> None:
    """At the end of a program the thread of `odradek.sync` still runs, and may complete batches
    while they are counted."""
    sending = producer(broker)
    await sending.start()
    accumulator = sending.accumulator
    assert accumulator is not None
    unfinished: dict[Any, None] = {}

    class Acknowledged:
        @property
        def builder(self) -> Any:
            unfinished.pop(self, None)
            return SimpleNamespace(record_count=1)

    unfinished.update(dict.fromkeys([Acknowledged(), Acknowledged()]))
    accumulator.incomplete = unfinished
    with pytest.warns(ResourceWarning, match="2 records"):
        sending._warn_of_lost_records()
    await sending.network.close()


@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_closed_idle_and_unstarted_producers_give_no_warning(broker: ScriptedBroker) -> None:
    async with producer(broker, linger_ms=0) as sending:
        await sending.send_and_wait("t", b"x")
        with pytest.raises(BufferFull):
            async with producer(broker, buffer_memory=1_000, batch_size=900) as small:
                await small.partitions_for("t")
                while True:
                    small.send_nowait("t", b"x" * 400)
    Producer(bootstrap_servers=broker.address)
    del sending, small
    gc.collect()


@pytest.mark.parametrize("kind", budget.of_which(["async", "sync"], ["async"]))
async def test_a_program_that_does_not_close_its_producer_gets_a_warning(
    broker: ScriptedBroker, kind: str
) -> None:
    programs = {
        "async": """
            import asyncio, odradek
            async def main():
                producer = odradek.Producer(bootstrap_servers=SERVERS, linger_ms=60_000)
                await producer.start()
                for n in range(5):
                    await producer.send("t", b"x")
            asyncio.run(main())
        """,
        "sync": """
            from odradek import sync
            producer = sync.Producer(bootstrap_servers=SERVERS, linger_ms=60_000)
            producer.start()
            for n in range(5):
                producer.send("t", b"x")
        """,
    }
    program = textwrap.dedent(programs[kind]).replace("SERVERS", repr(broker.address))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-X", "dev", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning: 5 records are lost or unacknowledged" in done.stderr
    # The message is printed twice: it is also in the log, and by default the log is shown on
    # stderr.
    assert done.stderr.count("5 records are lost or unacknowledged") >= 2
