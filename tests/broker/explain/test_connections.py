"""The end of a client's last connection, as it is remembered."""

from __future__ import annotations

from handler_calls import handled
from odradek_broker.explain.connections import ConnectionPeers
from odradek_broker.explain.history import TEXT_MAX, History, RecordedEvent
from odradek_broker.explain.sentences import EventKind, describe_client
from odradek_broker.explain.transactions import client_of
from odradek_broker.request import Peer
from odradek_protocol.errors import ErrorCode

MINE = describe_client("mine", "10.0.0.1")


class World:
    def __init__(self) -> None:
        self.now_ms = 1_000_000
        history = History(lambda: self.now_ms)
        self.connections = ConnectionPeers(history, lambda: self.now_ms)

    def connect(self, number: int, client_id: str | None, host: str) -> Peer:
        peer = Peer(connection_id=number, host=host, client_id=client_id)
        self.connections.opened(peer)
        self.connections.first_request(peer)
        return peer


def test_a_client_is_gone_when_its_last_connection_has_ended() -> None:
    world = World()
    assert handled(world.connections.end_of(MINE)) is None, "nothing is remembered"
    first, second = world.connect(1, "mine", "10.0.0.1"), world.connect(2, "mine", "10.0.0.1")
    other = world.connect(3, "mine", "10.0.0.2")
    world.connections.closed(first)
    assert handled(world.connections.end_of(MINE)) is None
    world.now_ms += 60_000
    world.connections.closed(second)
    world.now_ms += 120_000
    world.connections.closed(other)
    assert handled(world.connections.end_of(MINE)) == "2.0 min ago"
    world.connect(4, "mine", "10.0.0.1")
    assert handled(world.connections.end_of(MINE)) is None


def test_a_client_without_an_id_is_found_by_its_address() -> None:
    world = World()
    world.connections.closed(world.connect(1, None, "10.0.0.1"))
    assert handled(world.connections.end_of(describe_client(None, "10.0.0.1"))) == "0 ms ago"
    assert handled(world.connections.end_of(describe_client(None, "10.0.0.2"))) is None


def step(client: str, kind: EventKind = EventKind.TRANSACTION_STEP) -> RecordedEvent:
    return RecordedEvent(0, kind, ErrorCode.NONE, (), 0, {"client": client}, 0)


def test_the_client_of_a_transaction_is_that_of_the_last_step() -> None:
    refused = step("fenced", EventKind.TRANSACTION_REFUSED)
    assert client_of([step("old"), step(MINE), refused]) == MINE
    assert client_of([refused]) is None
    assert client_of([step("x" * TEXT_MAX)]) is None, "events show only a part of the name"
