"""A send and a poll execute code only in the files that their walks in `docs/understand/design.md`
name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

import odradek_client
from odradek import Consumer, Producer
from odradek.broker import SubprocessBroker
from walks import named

_FOLDER = odradek_client.__path__[0] + "/"
DEADLINE_MS = 20_000
SEND, POLL = "A producer's send", "A consumer's poll"
#: Heartbeats are sent at the same time as polls, and are no part of their walk.
_HEARTBEATS = _FOLDER + "consumer/group/heartbeats.py"


@contextmanager
def traced() -> Iterator[set[str]]:
    """The client's files whose functions are called, except by heartbeats."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(_FOLDER):
            return
        caller = frame.f_back
        while caller is not None:
            if caller.f_code.co_filename == _HEARTBEATS:
                return
            caller = caller.f_back
        entered.add(path.removeprefix(_FOLDER))

    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)


async def test_a_send_enters_the_documented_files_only(odradek_broker: SubprocessBroker) -> None:
    async with Producer(bootstrap_servers=odradek_broker.bootstrap) as producer:
        await producer.send_and_wait("t", b"first", key=b"key")
        with traced() as entered:
            await producer.send_and_wait("t", b"second", key=b"key")
    assert entered - named(SEND) == set()
    assert "producer/idempotence.py" in entered


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_poll_enters_the_documented_files_only(
    odradek_broker: SubprocessBroker, protocol: Any
) -> None:
    address = odradek_broker.bootstrap
    async with (
        Producer(bootstrap_servers=address) as producer,
        Consumer(
            "t",
            bootstrap_servers=address,
            group_id="g",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=600_000,
        ) as consumer,
    ):
        await producer.send_and_wait("t", b"first")
        assert await consumer.poll(timeout_ms=DEADLINE_MS)
        await consumer.poll(timeout_ms=0)
        with traced() as entered:
            await producer.send_and_wait("t", b"second")
            assert await consumer.poll(timeout_ms=DEADLINE_MS)
    assert entered - named(SEND) - named(POLL) == set()
    assert {"consumer/fetcher.py", "consumer/completed_fetch.py"} < entered
