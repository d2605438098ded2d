"""Ctrl+C in a program on asyncio: the program ends immediately, with no more output than asyncio's
own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import budget
from live_brokers import LiveBroker
from odradek_client.consumer.consumer import Consumer
from odradek_client.producer.producer import Producer
from odradek_protocol.keys import ApiKey
from scripted_broker import DEFAULT, ScriptedBroker
from waiting import until

PATIENCE_S = 60.0

EMPTY = """
    print("working", flush=True)
    await asyncio.sleep(1000)
"""
#: The bodies of programs that are interrupted; `settings` are those of their clients.
PROGRAMS = {
    "a loop over a consumer": """
    async with Consumer(topic, group_id=topic, **settings) as consumer:
        print("working", flush=True)
        async for record in consumer:
            pass
""",
    "polls without a group": """
    async with Consumer(topic, **settings) as consumer:
        print("working", flush=True)
        while True:
            await consumer.poll(1000)
""",
    "a producer that is never closed": """
    producer = Producer(**settings)
    await producer.start()
    print("working", flush=True)
    while True:
        await producer.send(topic, b"x" * 100)
""",
    "records in flight": """
    async with Producer(**settings) as producer:
        print("working", flush=True)
        while True:
            await producer.send_and_wait(topic, b"x" * 100)
""",
    "calls of an admin client": """
    async with Admin(**settings) as admin:
        print("working", flush=True)
        while True:
            await admin.describe_topics([topic])
""",
    "a start that reaches nobody": """
    print("working", flush=True)
    async with Producer(bootstrap_servers="127.0.0.1:1"):
        pass
""",
}


def interrupted(body: str, folder: Path, broker: LiveBroker, topic: str) -> list[str]:
    """The lines on stderr of a program that gets Ctrl+C after it has printed "working"."""
    program = folder / "program.py"
    program.write_text(
        "import asyncio, logging, sys\n"
        "from odradek import Admin, Consumer, Producer\n"
        "logging.getLogger('odradek').setLevel(logging.CRITICAL)\n"
        "settings, topic = {'bootstrap_servers': sys.argv[1]}, sys.argv[2]\n"
        f"async def main():{body}\n"
        "asyncio.run(main())\n",
        "utf-8",
    )
    command = [sys.executable, str(program), broker.bootstrap, topic]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT, errors
    return errors.splitlines()


@pytest.fixture(scope="module")
def empty(broker: LiveBroker, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines on stderr of an interrupted program without a client."""
    return interrupted(EMPTY, tmp_path_factory.mktemp("empty"), broker, "none")


@pytest.mark.parametrize("name", budget.of_which(PROGRAMS, ["records in flight"]))
def test_c80_ctrl_c_prints_no_more_than_asyncio_does(
    name: str, empty: list[str], broker: LiveBroker, topic: str, tmp_path: Path
) -> None:
    lines = interrupted(PROGRAMS[name], tmp_path, broker, topic)
    assert lines[-1] == empty[-1] == "KeyboardInterrupt"
    assert len(lines) <= len(empty), "\n".join(lines)


async def test_c80_cancelled_calls_have_no_frames_of_the_client() -> None:
    async with (
        ScriptedBroker(topics={"t": 1}) as broker,
        Consumer("t", bootstrap_servers=broker.address) as consumer,
    ):

        async def read() -> None:
            async for _ in consumer:
                pass

        for waiting in (consumer.poll(60_000), consumer.getone(), read()):
            task = asyncio.ensure_future(waiting)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert (
                len([each for each in caught.traceback if "odradek_client" in str(each.path)]) <= 1
            )


def test_c80_an_interrupted_pass_of_the_sender_leaves_no_waiter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second Ctrl+C directly after the first can be raised at any line of the sender."""
    told: list[str] = []

    async def main() -> None:
        async with (
            ScriptedBroker(topics={"t": 1}) as broker,
            Producer(bootstrap_servers=broker.address) as producer,
        ):
            await producer.send_and_wait("t", b"1")
            assert producer._sender is not None
            plan_of = producer._sender.step

            def step(*given: Any) -> Any:
                plan = plan_of(*given)
                if plan.produce:
                    monkeypatch.undo()
                    raise KeyboardInterrupt
                return plan

            monkeypatch.setattr(producer._sender, "step", step)
            delivery = await producer.send("t", b"2")
            try:
                await asyncio.sleep(PATIENCE_S)
            finally:
                await producer.flush()
                told.append(str(delivery.exception()))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert "the program was interrupted" in told[0]


async def test_c80_a_request_cancelled_by_the_end_of_the_loop_is_sent_again() -> None:
    """`asyncio.run` cancels all tasks, including the client's, and then waits for the coroutine
    that closes the client."""
    async with (
        ScriptedBroker(topics={"t": 1}) as broker,
        Producer(
            bootstrap_servers=broker.address, transactional_id="x", retry_backoff_ms=1
        ) as producer,
    ):
        cancelled = asyncio.Event()

        async def late(*_: Any) -> Any:
            await cancelled.wait()
            return DEFAULT

        broker.on(ApiKey.INIT_PRODUCER_ID, late)
        beginning = asyncio.ensure_future(producer.init_transactions())
        await until(lambda: broker.received(ApiKey.INIT_PRODUCER_ID))
        assert producer._loop is not None and producer._loop._txn_request is not None
        producer._loop._txn_request.cancel()
        cancelled.set()
        await beginning
        assert len(broker.received(ApiKey.INIT_PRODUCER_ID)) == 2
