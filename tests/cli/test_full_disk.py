"""Commands that write to a broker whose disk is full: they end soon, and name the reason."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_runner import Commands
from odradek.broker import Broker
from odradek_broker.platform.machine import RealFiles
from odradek_broker.platform.seams import Volume
from odradek_cli.records import consume
from raw_client import RawClient, batch_of, produce_request

FULL = "of broker 1 has 0 bytes left"


class _Running:
    """A broker whose event loop runs in its own thread."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._broker = Broker(data_dir=folder, testing=True)
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._run(self._broker.start())
        self._run(self._fill())
        self.commands = Commands(self._broker.bootstrap)

    def _run(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)  # type: ignore[arg-type]

    async def _fill(self) -> None:
        host, port = self._broker.bootstrap.split(":")
        client = RawClient(*await asyncio.open_connection(host, int(port)))
        await client.create_topic("t")
        await client.call(produce_request("t", batch_of(b"one", b"two")), 9)
        client.close()

    def fill_disk(self) -> None:
        async def order() -> None:
            self._broker.faults.full_disk()

        self._run(order())

    def stop(self) -> None:
        self._run(self._broker.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Running]:
    monkeypatch.setattr(RealFiles, "volume", lambda _, path: Volume(path, 1_000_000, 0))
    running = _Running(tmp_path)
    running.fill_disk()
    yield running
    running.stop()


def test_topic_trim_on_a_full_disk_is_refused_once(running: _Running) -> None:
    running.commands.run("topic", "trim", "t", "--all", "--execute", code=1)
    said = running.commands.stderr
    assert "where 1 partition would begin cannot be written down" in said
    assert FULL in said


def test_consume_names_the_full_disk_that_prevents_a_join(
    running: _Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume, "_JOIN_PATIENCE_S", 0.2)
    monkeypatch.setattr(consume, "_CLOSE_MS", 100)
    running.commands.run("consume", "t", "--group", "g", code=1)
    assert "group 'g' cannot be joined" in running.commands.stderr
    assert FULL in running.commands.stderr


def test_records_on_a_full_disk_are_read_without_a_group(running: _Running) -> None:
    assert running.commands.run("consume", "t", "--exit").splitlines() == ["one", "two"]
