"""Quotas of connections, without real connections."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_broker.config.addresses import parse_counts
from odradek_broker.config.broker import BrokerConfig, BrokerConfigError, parse_config
from odradek_broker.quotas.connections import ConnectionQuotas
from odradek_broker.quotas.rates import Windows
from odradek_testkit.simulation.clock import SimulatedClock


class World:
    """Quotas of connections, a clock, and settings that a test can change."""

    def __init__(self, **settings: Any) -> None:
        self.clock = SimulatedClock(now_ms=1000)
        self.set(**settings)
        self.quotas = ConnectionQuotas(self.clock, Windows(11, 1000), lambda: self.config)

    def set(self, **settings: Any) -> None:
        given = {key.replace("_", "."): str(value) for key, value in settings.items()}
        self.config: BrokerConfig = parse_config(given)[0]

    def admitted(self, *hosts: str) -> list[bool]:
        return [not self.quotas.admit(host).reason for host in hosts]


def test_connections_are_unlimited_by_default() -> None:
    world = World()
    assert all(world.admitted(*["192.0.2.1"] * 1000))
    assert world.quotas.pause_ms() == 0


def test_q12_the_connections_of_each_address_are_limited() -> None:
    world = World(max_connections_per_ip=2, max_connections_per_ip_overrides="192.0.2.9:1")
    assert world.admitted("192.0.2.1", "192.0.2.1", "192.0.2.1") == [True, True, False]
    assert world.admitted("192.0.2.9", "192.0.2.9") == [True, False]
    world.quotas.closed("192.0.2.1")
    assert world.admitted("::ffff:192.0.2.1", "::ffff:192.0.2.1") == [True, False]
    assert world.admitted("fe80::1%eth0", "fe80::1", "fe80::1") == [True, True, False]


def test_q12_addresses_without_connections_are_dropped() -> None:
    world = World()
    for host in ("192.0.2.1", "192.0.2.1"):
        world.admitted(host)
    for _ in range(2):
        world.quotas.closed("192.0.2.1")
    assert world.quotas._counts == {}


def test_q12_a_changed_limit_counts_open_connections() -> None:
    world = World(max_connections_per_ip=1)
    assert world.admitted("192.0.2.1", "192.0.2.1") == [True, False]
    world.set(max_connections_per_ip=3)
    assert world.admitted("192.0.2.1", "192.0.2.1", "192.0.2.1") == [True, True, False]


@pytest.mark.parametrize(
    "text",
    [
        *("192.0.2.1", "host:1", "192.0.2.1:-1", "192.0.2.1:x", ":5", "0:1", "192.0.2.1:1_0"),
        *(",192.0.2.1:1", "192.0.2.1:1,,192.0.2.2:1"),
    ],
)
def test_q12_invalid_overrides_of_the_limit_per_ip_are_refused(text: str) -> None:
    with pytest.raises(BrokerConfigError, match="ADDRESS:COUNT"):
        parse_config({"max.connections.per.ip.overrides": text})


def test_q12_overrides_may_be_ipv6() -> None:
    assert parse_counts(" 192.0.2.1:5 , [2001:DB8::1]:0,::1:7, ,") == {
        "192.0.2.1": 5,
        "2001:db8::1": 0,
        "::1": 7,
    }


def test_q13_connections_over_the_rate_are_delayed_by_at_most_a_window() -> None:
    world = World(max_connection_creation_rate=1)
    assert all(world.admitted(*["192.0.2.1"] * 10))
    assert world.quotas.pause_ms() == 0
    assert world.admitted("192.0.2.2") == [True]
    # Eleven connections in ten seconds; ten are allowed.
    assert world.quotas.pause_ms() == 1000
    world.clock.advance(400)
    assert world.quotas.pause_ms() == 600
    world.clock.advance(600)
    assert world.quotas.pause_ms() == 0


def test_q13_a_rate_of_0_accepts_one_connection_in_each_window() -> None:
    world = World(max_connection_creation_rate=0)
    assert world.admitted("192.0.2.1") == [True]
    assert world.quotas.pause_ms() == 1000


def test_q14_connections_over_the_rate_of_an_address_are_held_and_closed() -> None:
    world = World()
    world.quotas.update("192.0.2.1", 0.5)
    assert all(world.admitted(*["192.0.2.1"] * 5))
    refused = world.quotas.admit("192.0.2.1")
    assert "connection_creation_rate" in refused.reason
    # Six connections in ten seconds, and five are allowed. The wait would be two seconds, but is
    # limited to one window.
    assert refused.hold_ms == 1000
    assert world.admitted("192.0.2.2") == [True]
    # The refused connection is not counted, so five connections expire.
    world.clock.advance(10_900)
    world.admitted("192.0.2.1")
    world.clock.advance(100)
    assert all(world.admitted(*["192.0.2.1"] * 5))
    world.quotas.update("192.0.2.1", None)
    assert all(world.admitted(*["192.0.2.1"] * 50))


def test_q14_the_default_rate_applies_to_each_address_separately() -> None:
    world = World()
    world.quotas.update(None, 0.1)
    world.quotas.update("192.0.2.9", 100)
    assert world.admitted("192.0.2.1", "192.0.2.1", "192.0.2.2") == [True, False, True]
    assert all(world.admitted(*["192.0.2.9"] * 20))
