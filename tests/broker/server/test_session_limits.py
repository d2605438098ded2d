"""The memory of unfinished requests of all connections (N-14)."""

from __future__ import annotations

import asyncio

from broker_in_loop import StartBroker
from odradek_broker.server import session_limits
from odradek_broker.server.session_limits import ARRIVAL_S, SessionLimits
from raw_client import RawClient, batch_of, produce_request
from waiting import until

LARGE = 1_000_000


class Connection:
    def __init__(self, *, known: bool = True) -> None:
        self.known = known
        self.told = 0

    def read_on(self) -> None:
        self.told += 1


def limits(total_bytes_max: int = 1_000) -> SessionLimits:
    return SessionLimits(5, LARGE, total_bytes_max)


def test_n14_the_oldest_unfinished_request_is_read_while_others_wait() -> None:
    held = limits()
    first, second, third = Connection(), Connection(), Connection()
    assert held.arriving(first, 900, LARGE)
    assert not held.arriving(second, 200, LARGE)
    assert not held.arriving(third, 100, LARGE)
    assert held.arriving(first, 5_000, LARGE), "one there must be that comes to its end"
    assert held.unfinished_bytes == 5_300
    assert held.arriving(first, 0, 0)
    assert (first.told, second.told, third.told) == (0, 1, 1)
    assert held.unfinished_bytes == 300


def test_n14_the_next_waiting_request_is_read_after_the_oldest() -> None:
    held = limits()
    first, second, third = Connection(), Connection(), Connection()
    held.arriving(first, 2_000, LARGE)
    assert not held.arriving(second, 2_000, LARGE)
    assert not held.arriving(third, 2_000, LARGE)
    held.arriving(first, 0, 0)
    assert (second.told, third.told) == (1, 0)
    assert held.arriving(second, 4_000, LARGE)


def test_n14_small_requests_do_not_wait_for_memory() -> None:
    held = limits()
    held.arriving(Connection(), 2_000, LARGE)
    assert held.arriving(Connection(), 500, session_limits._SMALL_BYTES)


def test_n14_requests_in_flight_occupy_memory_until_they_are_answered() -> None:
    held = limits()
    held.bytes_held = 950
    first, second = Connection(), Connection()
    assert held.arriving(first, 10, LARGE)
    assert not held.arriving(second, 100, LARGE)
    held.released()
    assert second.told == 0
    held.bytes_held = 100
    held.released()
    assert second.told == 1


def test_n14_unauthenticated_peers_may_use_a_part_of_the_memory() -> None:
    held = limits(8_000)
    first, stranger, known = Connection(), Connection(known=False), Connection()
    held.arriving(first, 900, LARGE)
    assert not held.arriving(stranger, 200, LARGE)
    assert held.arriving(known, 200, LARGE)


def test_n14_every_waiting_connection_is_read_when_memory_is_free() -> None:
    held = limits()
    held.bytes_held = 1_000
    first, *others = [Connection() for _ in range(100)]
    held.arriving(first, 1, LARGE)
    assert not any(held.arriving(each, 1, LARGE) for each in others)
    held.bytes_held = 0
    for _ in range(100):
        held.released()
    assert [each.told for each in others] == [1] * 99


def test_n14_a_closed_connection_no_longer_waits_for_memory() -> None:
    held = limits()
    first, second = Connection(), Connection()
    held.arriving(first, 2_000, LARGE)
    held.arriving(second, 2_000, LARGE)
    held.arriving(second, 0, 0)
    held.arriving(first, 0, 0)
    assert (second.told, held.unfinished_bytes, len(held.waiting)) == (0, 0, 0)


def test_n14_a_request_that_arrives_too_slowly_while_others_wait_is_stalled() -> None:
    held = limits()
    first, second = Connection(), Connection()
    held.arriving(first, 2_000, LARGE)
    assert held.stalled(0) is None
    assert held.stalled(2 * ARRIVAL_S) is None, "nobody waits"
    held.arriving(second, 2_000, LARGE)
    assert held.stalled(2 * ARRIVAL_S + 1) is None
    assert held.stalled(3 * ARRIVAL_S + 2) is first
    held.arriving(first, 0, 0)
    assert held.stalled(3 * ARRIVAL_S + 3) is None


async def test_n14_large_requests_take_turns_if_memory_is_short(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(queued_max_request_bytes="300000")
    client = await broker.client()
    await client.create_topic("t")
    request = produce_request("t", batch_of(b"x" * 200_000))
    clients = [await broker.client() for _ in range(10)]

    async def produce(client: RawClient) -> int:
        answer = await client.call(request, 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    async with asyncio.timeout(60):
        assert await asyncio.gather(*map(produce, clients)) == [0] * 10
    held = broker.server.limits
    assert (held.unfinished_bytes, held.bytes_held, len(held.waiting)) == (0, 0, 0)


async def test_n14_a_connection_with_a_stalled_request_is_disconnected(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(queued_max_request_bytes="300000")
    held = broker.server.limits
    slow, other = await broker.client(), await broker.client()
    for each in (slow, other):
        each.writer.write((900_000).to_bytes(4, "big") + bytes(400_000))
    await until(lambda: bool(held.waiting))
    first = held._first = next(iter(held._unfinished))
    held._first_since_s = asyncio.get_running_loop().time() - 2 * ARRIVAL_S
    assert held.stalled(asyncio.get_running_loop().time()) is first
    await until(lambda: len(held._unfinished) == 1)
    assert first not in held._unfinished
